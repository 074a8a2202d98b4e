"""Kaggle's CSV files: a submission, and the labels of the same images in another layout."""

import csv
import subprocess

import numpy as np

LABELS = ["cat", "dog", "bird", "fish"]
rng = np.random.default_rng(0)
truth = rng.random((800, 4)) < 0.3
overconfident = 1 / (1 + np.exp(-4 * (truth - 0.5 + rng.normal(0, 0.8, truth.shape))))

with open("submission.csv", "w", newline="") as file:  # image_id without a suffix, one column each
    table = csv.writer(file)
    table.writerow(["image_id", *LABELS])
    table.writerows([f"img_{i}", *row.round(5)] for i, row in enumerate(overconfident))
with open("train.csv", "w", newline="") as file:  # image names with a suffix, one list of labels
    table = csv.writer(file)
    table.writerow(["image_id", "labels"])
    for i, row in enumerate(truth):
        table.writerow([f"img_{i}.jpg", " ".join(np.array(LABELS)[row])])


def run(command: str) -> None:
    print(f"$ {command}", flush=True)
    subprocess.run(command.split(), check=True)


run(
    "credibly import submission.csv --as probabilities --truth train.csv --suffix .jpg"
    " --out p.parquet"
)
run("credibly evaluate p.parquet")
run(
    "credibly calibrate submission.csv --as probabilities --truth train.csv --suffix .jpg"
    " --out calibrated.parquet"
)
run("credibly sets calibrated.parquet --average-size 1.2 --out sets.parquet")
