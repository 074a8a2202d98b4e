"""Candidates of the average-K loss: the largest entries of a batch, against ``torch.topk``.

One thread, interleaved, CPU time, median of ratios. ``python -m benchmarks.average_k``.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable

import torch

from credibly.losses.average_k import largest_entries

SIZES = ((32, 100_000, 5), (128, 100_000, 10))


def run(repeats: int = 15) -> list[dict[str, object]]:
    """One row a size: seconds of each, and how many times faster the selection is."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        return [_compare(rows, labels, size, repeats) for rows, labels, size in SIZES]
    finally:
        torch.set_num_threads(threads)


def _compare(rows: int, labels: int, size: int, repeats: int) -> dict[str, object]:
    generator = torch.Generator().manual_seed(0)
    scores = 2 * torch.randn(rows, labels, generator=generator)
    observed = torch.randint(0, labels, (rows,), generator=generator)
    scores[torch.arange(rows), observed] += 8
    values = torch.log_softmax(scores, 1)
    values[torch.arange(rows), observed] = -torch.inf
    flat, count = values.view(-1), (size - 1) * rows
    if set(largest_entries(flat, count).tolist()) != set(flat.topk(count).indices.tolist()):
        raise AssertionError("the selection and torch.topk disagree")
    ours, theirs = [], []
    for _ in range(repeats):
        theirs.append(_seconds(lambda: flat.topk(count)))
        ours.append(_seconds(lambda: largest_entries(flat, count)))
    ratios = [slow / fast for slow, fast in zip(theirs, ours, strict=True)]
    return {
        "what": f"average-K candidates, {rows}×{labels}, {count} of them",
        "torch.topk (ms)": round(1e3 * statistics.median(theirs), 2),
        "credibly (ms)": round(1e3 * statistics.median(ours), 2),
        "times faster": round(statistics.median(ratios), 2),
    }


def _seconds(function: Callable[[], object]) -> float:
    start = time.process_time()
    function()
    return time.process_time() - start


if __name__ == "__main__":
    for row in run():
        print(row)
