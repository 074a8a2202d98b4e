"""Average precision and calibration error of 40137×80, against scikit-learn and torchmetrics.

One thread, interleaved, CPU time, median of ratios; the values are compared first.
``python -m benchmarks metrics``.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from rich.console import Console
from rich.table import Table
from sklearn.metrics import average_precision_score
from torchmetrics.functional.classification import (
    binary_calibration_error,
    multilabel_average_precision,
)

from benchmarks.timing import in_turns, median, ratio
from credibly import metrics

ROWS, LABELS = 40_137, 80  # the validation images and labels of MS-COCO


def run(repeats: int = 5) -> None:
    """Print a table: CPU milliseconds of each, and how many times faster the metric is."""
    table = Table(title="Metrics, one thread, CPU time, median of ratios")
    for column in ("what", "peer", "peer (ms)", "credibly (ms)", "times faster"):
        table.add_column(column, justify="left" if column in ("what", "peer") else "right")
    for row in measure(repeats):
        table.add_row(*(str(row.get(str(column.header), "–")) for column in table.columns))
    Console().print(table)


def measure(repeats: int = 5) -> list[dict[str, object]]:
    """One row a metric and peer."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        return _average_precision(repeats) + _calibration(repeats) + _intervals()
    finally:
        torch.set_num_threads(threads)


def predictions(rows: int = ROWS, labels: int = LABELS) -> tuple[np.ndarray, np.ndarray]:
    """2.9 labels per row, some far rarer than others, and probabilities that tell them apart."""
    rng = np.random.default_rng(0)
    rates = np.arange(1, labels + 1) ** -0.8
    rates = np.minimum(rates * 2.9 / rates.sum(), 0.6)
    targets = (rng.random((rows, labels)) < rates).astype(np.int8)
    log_odds = rng.normal(0, 1.5, (rows, labels)) + 3.5 * targets + np.log(rates / (1 - rates))
    return (1 / (1 + np.exp(-log_odds))).astype(np.float32), targets


def _average_precision(repeats: int) -> list[dict[str, object]]:
    scores, targets = predictions()
    as_tensors = torch.from_numpy(scores), torch.from_numpy(targets).long()
    peers = {
        "scikit-learn": lambda: average_precision_score(targets, scores, average=None),
        "torchmetrics": lambda: multilabel_average_precision(
            *as_tensors, num_labels=LABELS, average=None
        ).numpy(),
    }
    ours = metrics.average_precision(scores, targets)
    for peer in peers.values():
        np.testing.assert_allclose(ours, peer(), atol=1e-5)
    what = f"average precision a label, {ROWS}×{LABELS}"
    return _compare(what, lambda: metrics.average_precision(scores, targets), peers, repeats)


def _calibration(repeats: int) -> list[dict[str, object]]:
    probabilities, targets = predictions()
    flat = torch.from_numpy(probabilities).flatten(), torch.from_numpy(targets).flatten().long()
    peers = {"torchmetrics (pooled)": lambda: binary_calibration_error(*flat, n_bins=15).item()}
    ours = metrics.calibration_error(probabilities, targets, "ece")
    # torchmetrics sums millions of entries in float32.
    np.testing.assert_allclose(ours, peers["torchmetrics (pooled)"](), atol=2e-3)

    ways = {
        "calibration error": lambda: metrics.calibration_error(probabilities, targets),
        "reliability a label, with bands": lambda: metrics.reliability(
            probabilities, targets, per_label=True
        ),
    }
    rows = []
    for name, way in ways.items():
        rows += _compare(f"{name}, {ROWS}×{LABELS}", way, peers, repeats)
    return rows


def _intervals() -> list[dict[str, object]]:
    scores, targets = predictions(5_823, 20)
    what = "mAP@y interval, 5823×20, 200 resamples"
    times = in_turns(
        {what: lambda: metrics.interval(metrics.mean_average_precision, scores, targets)}, repeats=1
    )
    return [{"what": what, "peer": "–", "credibly (ms)": round(1e3 * median(times[what]), 1)}]


def _compare(
    what: str, ours: Callable[[], Any], peers: dict[str, Callable[[], Any]], repeats: int
) -> list[dict[str, object]]:
    times = in_turns({"credibly": ours, **peers}, repeats)
    return [
        {
            "what": what,
            "peer": name,
            "peer (ms)": round(1e3 * median(times[name]), 1),
            "credibly (ms)": round(1e3 * median(times["credibly"]), 1),
            "times faster": round(ratio(times, name, "credibly"), 1),
        }
        for name in peers
    ]


if __name__ == "__main__":
    run()
