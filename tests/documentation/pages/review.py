"""Predictions with wrong labels; what annotators send back; a folder of images and a decision."""

import json
from pathlib import Path

import numpy as np

import credibly as cr

names, rng = predictions.labels, np.random.default_rng(0)  # noqa: F821
odds = rng.normal(0, 8, (400, len(names)))
right = rng.random(odds.shape) < 1 / (1 + np.exp(-odds))
predictions = cr.Predictions.from_arrays(
    probabilities=1 / (1 + np.exp(-odds)),
    targets=right ^ (rng.random(odds.shape) < 0.05),
    labels=names,
)
predictions.write("predictions.parquet")
issues = cr.review.label_issues(predictions)[:20]
answer = {"result": [{"type": "choices", "value": {"choices": []}}]}
tasks = cr.review.label_studio.tasks(issues)
export = [{"data": task["data"], "annotations": [answer]} for task in tasks]
Path("export.json").write_text(json.dumps(export), encoding="utf-8")
cr.review.fiftyone.write_labels(issues, "reviewed.json")
Path("photos").mkdir()
row, label = str(predictions.ids[0]), predictions.labels[0]
cr.review.ReviewLog("corrections.jsonl").append([cr.review.Review(row, label, 1)], who="Ana")
