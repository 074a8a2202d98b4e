"""Search 1e6 rows by five conditions, top 100: in memory, and directly from Parquet.

CPU time; the bars are 5 ms in memory and 0.2 s from Parquet. Every engine's ids and probabilities
are compared first. ``python -m benchmarks.search [--rows 10000000] [--folder DIR]`` searches other
sizes and says how much memory the process had at most.
"""

from __future__ import annotations

import argparse
import resource
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

import credibly as cr
from credibly.predictions import Predictions, Writer

ROWS, LABELS, TOP = 1_000_000, 20, 100
QUERIES = (
    "+l03 +l07 -l01 -l02 -l00",
    "+l00 +l01 -l02 -l03 -l04",
    "+l15 -l01 -l02 -l03 -l04",
    "+l03 +l04 +l05 +l06 -l00",
    "(l03 | l04) & !l00 & (l05 | l06)",
)


def run(repeats: int = 5) -> list[dict[str, object]]:
    """One row per query: milliseconds in memory and seconds from Parquet."""
    with tempfile.TemporaryDirectory() as folder:
        return measure(ROWS, Path(folder), repeats)


def measure(rows: int, folder: Path, repeats: int) -> list[dict[str, object]]:
    """Write ``rows`` predictions into ``folder`` (kept if already there) and search them."""
    path = folder / f"predictions-{rows}.parquet"
    if not path.exists():
        write(path, rows)
    needed = sorted({name for query in QUERIES for name in cr.retrieve.parse(query).labels})
    index = cr.retrieve.Index.read(path, labels=needed)
    results: list[dict[str, object]] = []
    for query in QUERIES:
        ways: dict[str, Callable[[], Any]] = {
            "in memory": lambda query=query: index.search(query, top=TOP),
            "parquet": lambda query=query: cr.retrieve.search(path, query, top=TOP),
        }
        answers = [way() for way in ways.values()]
        for answer in answers[1:]:
            assert (answer.ids, answer.probabilities) == (answers[0].ids, answers[0].probabilities)
        spent = {name: [] for name in ways}
        for _ in range(repeats):
            for name, way in ways.items():
                start = time.process_time()
                way()
                spent[name].append(time.process_time() - start)
        medians = {name: statistics.median(times) for name, times in spent.items()}
        results.append(
            {
                "query": query,
                "rows": rows,
                "memory_ms": round(1e3 * medians["in memory"], 2),
                "parquet_s": round(medians["parquet"], 3),
                "expected_hits": round(answers[0].expected_hits, 1),
            }
        )
    return results


def write(path: Path, rows: int, piece: int = 500_000) -> None:
    """Predictions with frequent and rare labels, written piece by piece."""
    rng = np.random.default_rng(0)
    rates = np.arange(1, LABELS + 1) ** -0.8
    rates = np.minimum(rates / rates.sum() * 1.6, 0.6)
    labels = [f"l{place:02d}" for place in range(LABELS)]
    with Writer(path, labels) as writer:
        for start in range(0, rows, piece):
            size = min(piece, rows - start)
            truth = rng.random((size, LABELS)) < rates
            log_odds = rng.normal(0, 1.5, (size, LABELS)) + 5.5 * truth + np.log(rates) - 2
            ids = [f"img{row:08d}" for row in range(start, start + size)]
            values = {"probabilities": 1 / (1 + np.exp(-log_odds)), "ids": ids}
            writer.append(Predictions.from_arrays(labels=labels, **values))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=ROWS)
    parser.add_argument("--folder", type=Path)
    options = parser.parse_args()
    folder = options.folder
    for result in run() if folder is None else measure(options.rows, folder, repeats=3):
        print(result)
    print(f"peak memory {resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20:.2f} GB")


if __name__ == "__main__":
    main()
