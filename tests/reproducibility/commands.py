"""Run every command that trains or computes, in the working folder: ``python commands.py small``.

What is left in the folder, and what was printed, must not depend on where, when or how often
it ran.
"""

from __future__ import annotations

import io
import os
import sys
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path

import numpy as np

from credibly.cli import main

NETWORK = ("--epochs", "1", "--batch-size", "64")
SMALL = {
    "linear": ("train", "rows.npz", "--model", "linear", "--out", "linear"),
    "mlp": ("train", "rows.npz", "--model", "mlp", "--loss", "asl", *NETWORK, "--out", "mlp"),
    "predict": ("predict", "linear", "new.npz", "--out", "new.parquet"),
    "evaluate": ("evaluate", "linear/predictions.parquet", "--json"),
    "calibrate": ("calibrate", "scores.npz", "--loss", "asl", "--out", "calibrated.parquet"),
    "import": (
        "import",
        "scores.npz",
        "--as",
        "logits",
        "--loss",
        "bce",
        "--out",
        "imported.parquet",
    ),
    "sets": ("sets", "new.parquet", "--average-size", "2", "--out", "sets.parquet"),
    "search": ("search", "new.parquet", "+label-0 -label-1", "--json"),
    "joint": ("joint", "fit", "linear/predictions.parquet", "--out", "joint.json"),
    "review": ("review", "linear/predictions.parquet", "--out", "queue.csv"),
    "report": ("report", "linear/predictions.parquet", "--resamples", "5", "--out", "report.html"),
    "audit": ("audit", "spa", "--json"),
    "check": ("check", "linear"),
}
LARGE = {
    **SMALL,
    **{
        loss: ("train", "rows.npz", "--model", "mlp", "--loss", loss, *NETWORK, "--out", loss)
        for loss in ("bce", "focal", "spa+lpr", "asl+lpr", "twl", "quasibinary")
    },
    "softmax": (
        "train",
        "one.npz",
        "--model",
        "mlp",
        "--loss",
        "softmax",
        *NETWORK,
        "--out",
        "softmax",
    ),
    "avgk": (
        "train",
        "one.npz",
        "--model",
        "mlp",
        "--loss",
        "avgk(average_size=2)",
        *NETWORK,
        "--out",
        "avgk",
    ),
    "auto": ("train", "rows.npz", "--json", "--out", "auto"),  # its table has timings
    "cnn": ("train", "digits", "--model", "cnn", "--loss", "asl", *NETWORK, "--out", "cnn"),
    "forest": ("train", "rows.npz", "--model", "forest", "--out", "forest"),
    "boosting": ("train", "rows.npz", "--model", "boosting", "--out", "boosting"),
    "compare": ("compare", "rows.npz", "--losses", "bce,spa", "--model", "mlp", "--out", "compare"),
    "export": ("export", "linear", "--out", "linear.onnx"),
}


def write_data() -> None:
    """Write a table, new rows of it, one with a label per row, and scores with their truth."""
    generator = np.random.default_rng(0)
    features = generator.normal(size=(400, 60)).astype(np.float32)
    targets = (features @ generator.normal(size=(60, 4)) > 4).astype(np.int8)
    split = np.array([0, 0, 0, 1, 2])[np.arange(400) % 5]
    np.savez("rows.npz", features=features, targets=targets, split=split)
    np.savez("one.npz", features=features, targets=features[:, :4].argmax(1), split=split)
    np.savez("new.npz", features=features[:100] + 1, targets=targets[:100])
    np.savez("scores.npz", scores=features[:, :4], targets=targets)


def run(commands: dict[str, tuple[str, ...]]) -> None:
    """Run the commands one after the other; what each prints goes into a file of its name."""
    write_data()
    for name, words in commands.items():
        for path in Path().rglob("*.parquet"):
            os.utime(path, (10**9, 10**9))  # a report gives the date of its files
        said = io.StringIO()
        with redirect_stdout(said), redirect_stderr(io.StringIO()) as errors:
            try:
                code = main(words)
            except SystemExit as ended:
                code = ended.code
        assert code == 0, f"{' '.join(words)}: {errors.getvalue()}"
        Path(f"printed-{name}.txt").write_text(said.getvalue(), encoding="utf-8")


if __name__ == "__main__":
    run({"small": SMALL, "large": LARGE}[sys.argv[1]])
