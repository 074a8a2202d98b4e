"""Search 1e6 rows × 80 labels by five conditions with a joint model, against independent labels.

CPU time and its ratio; the bar is five seconds for the choice of a model on 2,000 rows. An index
computes the weights of its rows once; a search of a file reads all labels. "first" is the first
query of a new process; the imports of the library are not counted, those that the query needs are.
``python -m benchmarks.joint_search [--rows 100000] [--folder DIR]`` keeps its file.
"""

from __future__ import annotations

import argparse
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np

from credibly.predictions import Predictions, Writer
from credibly.retrieve import Index, Joint, fit_joint, search
from credibly.types import Array

ROWS, LABELS, TOP = 1_000_000, 80, 100
QUERY = "+l03 +l07 -l01 -l02 -l00"
FIRST = """
import sys, time
from credibly.retrieve import Joint, search
path, query, top, *joint = sys.argv[1:]
joint = Joint.read(joint[0]) if joint else None
start = time.process_time()
search(path, query, top=int(top), joint=joint)
print(time.process_time() - start)
"""


def run(repeats: int = 7) -> list[dict[str, object]]:
    """One row per model: seconds and ratios, in memory and from Parquet."""
    with tempfile.TemporaryDirectory() as folder:
        return measure(ROWS, Path(folder), repeats)


def measure(rows: int, folder: Path, repeats: int) -> list[dict[str, object]]:
    """Write ``rows`` predictions into ``folder`` (kept if already there) and search them."""
    path = folder / f"joint-{rows}.parquet"
    names = [f"l{place:02d}" for place in range(LABELS)]
    if not path.exists():
        with Writer(path, names) as writer:
            for start in range(0, rows, 100_000):
                size = min(100_000, rows - start)
                ids = [f"img{row:08d}" for row in range(start, start + size)]
                values = {"probabilities": drawn(size, start)[0], "ids": ids}
                writer.append(Predictions.from_arrays(labels=names, **values))
    index = Index.read(path)
    chances, truth = drawn(2000, rows)
    start = time.process_time()
    fit_joint(chances, truth, names)
    choice = time.process_time() - start
    alone = {"memory": _cost(lambda: index.search(QUERY, top=TOP), repeats)}
    alone["files"] = _cost(lambda: search(path, QUERY, top=TOP), repeats)
    alone["first"] = _first(path)
    results: list[dict[str, object]] = []
    for components in (1, 3):
        joint = Joint(components).fit(chances, truth, names)
        model = folder / f"joint-{components}.json"
        joint.write(model)
        first = _first(path, model)
        found = search(path, QUERY, top=TOP, joint=joint)
        assert found.ids == index.search(QUERY, top=TOP, joint=joint).ids
        memory = _cost(lambda joint=joint: index.search(QUERY, top=TOP, joint=joint), repeats)
        files = _cost(lambda joint=joint: search(path, QUERY, top=TOP, joint=joint), repeats)
        results.append(
            {
                "components": components,
                "memory_ms": round(1e3 * memory, 2),
                "memory_ratio": round(memory / alone["memory"], 2),
                "files_s": round(files, 3),
                "files_ratio": round(files / alone["files"], 2),
                "first_independent_s": round(alone["first"], 2),
                "first_s": round(first, 2),
                "choice_s": round(choice, 2),
            }
        )
    return results


def drawn(rows: int, seed: int) -> tuple[Array, Array]:
    """Return probabilities and truth with frequent and rare labels, some of them together."""
    rng = np.random.default_rng(seed)
    rates = np.arange(1, LABELS + 1) ** -0.8
    rates = np.minimum(rates / rates.sum() * 2.9, 0.6)
    kinds = np.random.default_rng(0).normal(0, 1, (4, LABELS))[rng.integers(0, 4, rows)]
    log_rates = np.log(rates) + 0.7 * kinds
    truth = rng.random((rows, LABELS)) < 1 / (1 + np.exp(-log_rates - 1))
    log_odds = rng.normal(0, 1.5, (rows, LABELS)) + 5.5 * truth + np.log(rates) - 2
    return 1 / (1 + np.exp(-log_odds)), truth.astype(np.int8)


def _cost(work: Callable[[], object], repeats: int) -> float:
    work()
    spent = []
    for _ in range(repeats):
        start = time.process_time()
        work()
        spent.append(time.process_time() - start)
    return statistics.median(spent)


def _first(path: Path, *model: Path) -> float:
    """Return the median CPU time of the first query in three new processes."""
    command = [sys.executable, "-c", FIRST, str(path), QUERY, str(TOP), *map(str, model)]
    runs = [subprocess.run(command, capture_output=True, text=True, check=True) for _ in range(3)]
    return statistics.median(float(each.stdout) for each in runs)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=ROWS)
    parser.add_argument("--folder", type=Path)
    options = parser.parse_args()
    folder = options.folder
    for result in run() if folder is None else measure(options.rows, folder, repeats=7):
        print(result)


if __name__ == "__main__":
    main()
