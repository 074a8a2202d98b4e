"""Every page of the web app: its first answer and a later one, at 1e6 × 80 and 5,000 × 10,000.

    python -m benchmarks pages
    python -m benchmarks.pages --rows 100000 --labels 80      (one shape of your own)

The file is written to a temporary folder (1e6 × 80: 0.4 GB) and served in this process. Times are
wall time in milliseconds, of one request at a time; "MB" is what the process holds at most by then.
"""

from __future__ import annotations

import argparse
import resource
import tempfile
import time
from pathlib import Path

import numpy as np

SHAPES = ((1_000_000, 80), (5_000, 10_000))
BATCH = 2**22
PAGES = (
    "/",
    "/?q=%2Bl1+-l2",
    "/labels",
    "/labels?sort=excess",
    "/pairs",
    "/label?name=l1",
    "/row?id=0000007",
    "/errors?label=l1",
    "/errors",
    "/errors?kind=borderline",
    "/review",
    "/bring",
    "/decide",
    "/decide?miss=50&review=0.5",
    "/decide?by=size&average_size=3",
    "/api/entries?kind=doubtful&format=csv",
    "/api/atlas?format=csv",
)


def write(path: Path, rows: int, labels: int) -> None:
    """Write predictions with truth drawn from them, a part of it unknown."""
    from credibly import Predictions
    from credibly.predictions import Writer

    rng = np.random.default_rng(0)
    names = [f"l{t}" for t in range(labels)]
    step = max(1, BATCH // labels)
    with Writer(path, names) as file:
        for first in range(0, rows, step):
            count = min(step, rows - first)
            p = rng.random((count, labels), dtype=np.float32) ** 6
            y = (rng.random(p.shape, dtype=np.float32) < p).astype(np.int8)
            y[rng.random(p.shape, dtype=np.float32) < 0.02] = -1
            ids = [f"{row:07d}" for row in range(first, first + count)]
            file.append(
                Predictions.from_arrays(
                    probabilities=p, targets=y, labels=names, ids=ids, coding="unknown"
                )
            )


def measure(rows: int, labels: int) -> list[dict[str, object]]:
    """Return first and later times of every page at one shape."""
    from starlette.testclient import TestClient

    from credibly.serve import create_app

    found: list[dict[str, object]] = []
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "predictions.parquet"
        write(path, rows, labels)
        begun = time.perf_counter()
        log = Path(folder) / "log.jsonl"
        app = create_app([path], hosts=["testserver"], annotate=log)
        with TestClient(app) as client:
            found.append(_row(rows, labels, "start", [time.perf_counter() - begun], 0))
            for page in PAGES:
                times = []
                size = 0
                for _ in range(3):
                    start = time.perf_counter()
                    answer = client.get(page)
                    times.append(time.perf_counter() - start)
                    assert answer.status_code == 200, (page, answer.text[:300])
                    size = len(answer.content)
                found.append(_row(rows, labels, page, times, size))
                print(*found[-1].values(), flush=True)
    return found


def _row(rows: int, labels: int, page: str, times: list[float], size: int) -> dict[str, object]:
    later = f"{1000 * min(times[1:]):.0f}" if len(times) > 1 else ""
    return {
        "shape": f"{rows:,} × {labels:,}",
        "page": page,
        "first, ms": f"{1000 * times[0]:.0f}",
        "later, ms": later,
        "kB": f"{size / 1000:.0f}",
        "MB": f"{resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1000:.0f}",
    }


def run() -> list[dict[str, object]]:
    """Measure both shapes."""
    return [row for shape in SHAPES for row in measure(*shape)]


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=100_000)
    parser.add_argument("--labels", type=int, default=80)
    given = parser.parse_args()
    measure(given.rows, given.labels)
