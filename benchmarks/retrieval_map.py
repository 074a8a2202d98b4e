"""Every query of up to five conditions on 20 labels × 5823 rows, against numpy and scikit-learn.

CPU time, one thread. The peer is timed on drawn queries, with and without relevant rows, and
scaled to all of them; its values are compared. Bars: 6 s, and 150 times faster.
``python -m benchmarks.retrieval_map``
"""

from __future__ import annotations

import math
import statistics
import time

import numpy as np
from sklearn.metrics import average_precision_score

from credibly.metrics import retrieval_map

ROWS, LABELS, CONDITIONS = 5823, 20, 5


def run(repeats: int = 1, drawn: int = 300) -> list[dict[str, object]]:
    """One row: seconds, the peer's seconds, and how many times faster."""
    chances, truth = predictions()
    retrieval_map(chances[:100, :4], truth[:100, :4])  # compiled before the clock starts
    seconds = []
    for _ in range(repeats):
        start = time.process_time()
        result = retrieval_map(chances, truth, CONDITIONS)
        seconds.append(time.process_time() - start)
    assert not result.sampled
    total = sum(math.comb(LABELS, k) * (2**k - 1) for k in range(1, CONDITIONS + 1))
    ranked = sum(result.counts.values())
    peer, mean = peer_seconds(chances, truth, ranked, total, drawn)
    assert abs(mean - result.by_conditions[CONDITIONS]) < 0.05
    ours = statistics.median(seconds)
    return [
        {
            "what": f"retrieval_map, {LABELS} labels × {ROWS} rows, {CONDITIONS} conditions",
            "queries": total,
            "with_relevant_rows": ranked,
            "seconds": round(ours, 2),
            "numpy_and_sklearn_seconds": round(peer),
            "times_faster": round(peer / ours),
        }
    ]


def predictions() -> tuple[np.ndarray, np.ndarray]:
    """About 1.5 labels per row, some of them together, and probabilities that tell them apart."""
    rng = np.random.default_rng(0)
    rates = np.arange(1, LABELS + 1) ** -0.6
    rates *= 1.1 / rates.sum()
    shared = rng.normal(size=(ROWS, 3)) @ rng.normal(size=(3, LABELS)) * 0.6
    truth = rng.random((ROWS, LABELS)) < 1 / (1 + (1 / rates - 1) * np.exp(0.4 - shared))
    truth[np.arange(ROWS), rng.integers(0, LABELS, ROWS)] |= ~truth.any(axis=1)
    log_odds = rng.normal(0, 1.5, (ROWS, LABELS)) + 6 * truth - 4
    return (1 / (1 + np.exp(-log_odds))).astype(np.float32), truth.astype(np.int8)


def peer_seconds(
    chances: np.ndarray, truth: np.ndarray, ranked: int, total: int, drawn: int
) -> tuple[float, float]:
    """Seconds for all queries, and the mean precision of the drawn ones."""
    rng = np.random.default_rng(1)
    columns, present = chances.astype(np.float64).T.copy(), (truth == 1).T.copy()
    with_rows, without, precisions = [], [], []
    for _ in range(drawn):
        chosen = np.sort(rng.choice(LABELS, CONDITIONS, replace=False))
        pattern = int(rng.integers(1, 2**CONDITIONS))
        start = time.process_time()
        scores, relevant = np.ones(ROWS), np.ones(ROWS, bool)
        for place, label in enumerate(chosen):
            wanted = pattern >> place & 1
            scores = scores * (columns[label] if wanted else 1 - columns[label])
            relevant &= present[label] if wanted else ~present[label]
        if relevant.any():
            precisions.append(average_precision_score(relevant, scores))
        (with_rows if relevant.any() else without).append(time.process_time() - start)
    empty = statistics.median(without) if without else 0.0
    return ranked * statistics.median(with_rows) + (total - ranked) * empty, float(
        np.mean(precisions)
    )


if __name__ == "__main__":
    for row in run():
        print(row)
