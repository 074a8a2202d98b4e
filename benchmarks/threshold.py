"""The threshold of a label budget on 30,000 rows × 1,081 labels: time and memory against a sort.

One thread, interleaved, CPU time, median of ratios. ``python -m benchmarks.threshold``.
"""

from __future__ import annotations

import statistics
import time
import tracemalloc
from collections.abc import Callable

import numpy as np
import torch
from rich.console import Console
from rich.table import Table

from credibly.decide import AverageSize
from credibly.decide.selection import LeadingBits, MatrixSource, largest

ROWS, LABELS, SIZE = 30_000, 1_081, 10


def run(repeats: int = 15) -> None:
    """Print a table: CPU seconds, how many times faster than the full sort, memory beyond it."""
    probabilities = _softmax_rows()
    table = Table(title=f"Threshold for {SIZE} labels per row, {ROWS:,} × {LABELS:,} float32")
    for column in ("method", "CPU s", "× faster than the sort", "extra memory, MB"):
        table.add_column(column, justify="left" if column == "method" else "right")
    methods = _methods(probabilities)
    values = {name: float(method()) for name, method in methods.items()}
    if len(set(values.values())) > 1:
        raise AssertionError(f"the methods must agree bit for bit; got {values}")
    times: dict[str, list[float]] = {name: [] for name in methods}
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    for _ in range(repeats):
        for name, method in methods.items():
            times[name].append(_seconds(method))
    torch.set_num_threads(threads)
    for name, seconds in times.items():
        pairs = zip(times["full sort (numpy)"], seconds, strict=True)
        ratio = statistics.median(slow / fast for slow, fast in pairs)
        memory = _memory(methods[name], torch_owned="torch" in name)
        table.add_row(name, f"{statistics.median(seconds):.3f}", f"{ratio:.1f}", memory)
    Console().print(table)


def _methods(probabilities: np.ndarray) -> dict[str, Callable[[], float]]:
    """Each gives the threshold: midway between the (K n)-th largest value and the next."""
    flat, last = probabilities.reshape(-1), ROWS * SIZE
    tensor, parts = torch.from_numpy(flat), np.array_split(probabilities, 30)
    places = [flat.size - last - 1, flat.size - last]

    def select() -> float:
        source = MatrixSource(probabilities)
        return sum(largest(source, LeadingBits(source), (last, last + 1))) / 2

    return {
        "full sort (numpy)": lambda: np.sort(flat)[places].sum(dtype=float) / 2,
        "partition (numpy)": lambda: np.partition(flat, places)[places].sum(dtype=float) / 2,
        "topk (torch)": lambda: tensor.topk(last + 1).values[-2:].double().mean().item(),
        "16-bit histograms (credibly)": select,
        "AverageSize.fit, in 30 parts": lambda: AverageSize(SIZE).fit(parts).threshold,
    }


def _softmax_rows() -> np.ndarray:
    noise = np.random.default_rng(0)
    result = np.empty((ROWS, LABELS), dtype=np.float32)
    for start in range(0, ROWS, 1000):
        scores = np.exp(2.5 * noise.standard_normal((1000, LABELS), dtype=np.float32))
        result[start : start + 1000] = scores / scores.sum(axis=1, keepdims=True)
    return result


def _memory(method: Callable[[], object], torch_owned: bool) -> str:
    if torch_owned:  # invisible to tracemalloc
        return "not measured"
    tracemalloc.start()
    method()
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    return f"{peak / 1e6:.1f}"


def _seconds(method: Callable[[], object]) -> float:
    start = time.process_time()
    method()
    return time.process_time() - start


if __name__ == "__main__":
    run()
