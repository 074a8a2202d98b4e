"""Predictions of two runs, and a decision as made in the app."""

from pathlib import Path

import credibly as cr

for name in ("spa", "asl"):
    Path("runs", name).mkdir(parents=True)
    predictions.write(f"runs/{name}/predictions.parquet")  # noqa: F821
row, label = str(predictions.ids[0]), predictions.labels[0]  # noqa: F821
cr.inspect.ReviewLog("corrections.jsonl").append([cr.inspect.Review(row, label, 1)], who="Ana")
