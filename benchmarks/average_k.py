"""Candidates of the average-K loss: the largest entries of a batch, against ``torch.topk``.

One thread, interleaved, CPU time, median of ratios. ``python -m benchmarks average_k``.
"""

from __future__ import annotations

import torch
from rich.console import Console
from rich.table import Table

from benchmarks.timing import in_turns, median, ratio
from credibly.losses.average_k import largest_entries

SIZES = ((32, 100_000, 5), (128, 100_000, 10))
BAR = 3.0


def run(repeats: int = 15) -> None:
    """Print a table: milliseconds of each, how many times faster, and the bar."""
    table = Table(title="Candidates of the average-K loss, float32")
    for column in ("batch", "candidates", "torch.topk, ms", "credibly, ms", "× faster", "bar"):
        table.add_column(column, justify="right")
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    for rows, labels, size in SIZES:
        values, count = _log_probabilities(rows, labels), (size - 1) * rows
        if set(largest_entries(values, count).tolist()) != set(values.topk(count).indices.tolist()):
            raise AssertionError("the selection and torch.topk must agree")
        seconds = in_turns(
            {
                "topk": lambda v=values, k=count: v.topk(k),
                "credibly": lambda v=values, k=count: largest_entries(v, k),
            },
            repeats,
        )
        table.add_row(
            f"{rows} × {labels:,}",
            f"{count:,}",
            f"{1e3 * median(seconds['topk']):.1f}",
            f"{1e3 * median(seconds['credibly']):.1f}",
            f"{ratio(seconds, 'topk', 'credibly'):.1f}",
            f"≥ {BAR:g}",
        )
    torch.set_num_threads(threads)
    Console().print(table)


def _log_probabilities(rows: int, labels: int) -> torch.Tensor:
    """Flat log-softmax of a batch, its observed labels excluded."""
    generator = torch.Generator().manual_seed(0)
    scores = 2 * torch.randn(rows, labels, generator=generator)
    observed = torch.randint(0, labels, (rows,), generator=generator)
    scores[torch.arange(rows), observed] += 8
    values = torch.log_softmax(scores, 1)
    values[torch.arange(rows), observed] = -torch.inf
    return values.view(-1)


if __name__ == "__main__":
    run()
