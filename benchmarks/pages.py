"""Every page of the web app: its first answer and a later one, at three shapes of predictions.

    python -m benchmarks pages
    python -m benchmarks.pages --rows 100000 --labels 80      (one shape of your own)

The file is written to a temporary folder (1e6 × 80: 0.4 GB) and served in this process. Times are
in milliseconds, of one request at a time. "first" is until something is shown, which after five
seconds is a page that says what is worked out; "ready" is until the page itself is shown. "CPU" is
the CPU time until then, which other programs disturb less. "MB" is what the process holds at most.
"""

from __future__ import annotations

import argparse
import resource
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

SHAPES = ((1_000_000, 80), (5_823, 20), (5_000, 10_000))
BATCH = 2**22
PAGES = (
    "/",
    "/?q=%2Bl1+-l2",
    "/explore?low=0.3&high=0.6",
    "/explore?q=%2Bl1+-l2&low=0.3&high=0.6",
    "/labels",
    "/labels?sort=excess",
    "/pairs",
    "/label?name=l1",
    "/row?id=0000007",
    "/errors?label=l1",
    "/errors",
    "/errors?kind=borderline",
    "/review",
    "/import",
    "/decide",
    "/decide?miss=50&review=0.5",
    "/decide?by=size&average_size=3",
    "/api/entries?kind=probably-wrong&format=csv",
    "/api/atlas?format=csv",
    "/compare",
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

    from credibly.app.server import create_app

    found: list[dict[str, object]] = []
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "predictions.parquet"
        write(path, rows, labels)
        begun, cpu = time.perf_counter(), time.process_time()
        log = Path(folder) / "log.jsonl"
        other = Path(folder) / "other.parquet"
        other.hardlink_to(path)
        app = create_app([path, other], hosts=["testserver"], annotate=log)
        with TestClient(app) as client:
            took = time.perf_counter() - begun
            found.append(_row(rows, labels, "start", Times(took, took, time.process_time() - cpu)))
            for page in PAGES:
                found.append(_row(rows, labels, page, _times(client, page)))
                print(*found[-1].values(), flush=True)
    return found


@dataclass(frozen=True)
class Times:
    """Seconds until a page showed something, was complete, its CPU time, and when asked again."""

    first: float
    ready: float
    cpu: float
    later: float = float("nan")
    size: int = 0


def _times(client: Any, page: str) -> Times:
    begun, cpu = time.perf_counter(), time.process_time()
    answer = client.get(page)
    first = time.perf_counter() - begun
    while answer.status_code in (202, 503):
        time.sleep(0.05)
        answer = client.get(page)
    ready, cpu = time.perf_counter() - begun, time.process_time() - cpu
    assert answer.status_code == 200, (page, answer.text[:300])
    later = []
    for _ in range(3):
        start = time.perf_counter()
        client.get(page)
        later.append(time.perf_counter() - start)
    return Times(first, ready, cpu, min(later), len(answer.content))


def _row(rows: int, labels: int, page: str, times: Times) -> dict[str, object]:
    return {
        "shape": f"{rows:,} × {labels:,}",
        "page": page,
        "first, ms": f"{1000 * times.first:.0f}",
        "ready, ms": f"{1000 * times.ready:.0f}",
        "CPU, ms": f"{1000 * times.cpu:.0f}",
        "later, ms": "" if times.later != times.later else f"{1000 * times.later:.0f}",
        "kB": f"{times.size / 1000:.0f}",
        "MB": f"{resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1000:.0f}",
    }


def run() -> list[dict[str, object]]:
    """Measure every shape."""
    return [row for shape in SHAPES for row in measure(*shape)]


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=100_000)
    parser.add_argument("--labels", type=int, default=80)
    given = parser.parse_args()
    measure(given.rows, given.labels)
