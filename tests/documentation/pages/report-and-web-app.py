"""Predictions of two runs."""

from pathlib import Path

for name in ("spa", "asl"):
    Path("runs", name).mkdir(parents=True)
    predictions.write(f"runs/{name}/predictions.parquet")  # noqa: F821
