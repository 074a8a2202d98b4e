"""Evaluate, calibrate, sets and inspect on a Spark cluster beside this machine.

A master and two workers of one core each run on loopback (``tests/spark/spark_cluster.py``), so the
table shows what the detour over Spark costs, not what more machines gain. Seconds of CPU time, of
this process and of all processes of the cluster, after one call that starts the workers.
``SPARK_ROWS=1000000`` sets the number of rows.
"""

from __future__ import annotations

import os
import shutil
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

LABELS = [f"l{place:02d}" for place in range(80)]
FILES = 4


def run() -> list[dict[str, object]]:
    """Return one row per command."""
    try:
        import pyspark  # noqa: F401
    except ImportError:
        print("PySpark is not installed: pip install 'credibly[spark]'")
        return []
    sys.path.insert(0, str(Path(__file__).parents[1] / "tests" / "spark"))
    from spark_cluster import spark_on_a_cluster

    rows = int(os.environ.get("SPARK_ROWS", "400000"))
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        make(folder / "parts", rows)
        with spark_on_a_cluster(folder) as (cluster, session):
            processes = [each.pid for each in (cluster.master, *cluster.workers)]
            return [
                measured(name, folder, work, session, processes)
                for name, work in commands(folder).items()
            ]


def commands(folder: Path) -> dict[str, Callable[..., object]]:
    """Return the commands, as functions of where to write and of the executor."""

    import credibly as cr
    from credibly.review import label_issues
    from credibly.workflows import calibrate_dataset
    from credibly.workflows.rows import FitRows

    parts = folder / "parts"
    return {
        "evaluate": lambda out, **where: cr.evaluate(parts, **where),
        "calibrate": lambda out, **where: calibrate_dataset(parts, out, **where),
        "sets": lambda out, **where: cr.write_sets(
            parts, cr.decide.AverageSize(3), out, fit_rows=FitRows(0.1), **where
        ),
        "review": lambda out, **where: label_issues(parts, **where),
    }


def measured(
    name: str, folder: Path, work: Callable[..., object], session: Any, processes: list[int]
) -> dict[str, object]:
    """Return the seconds of one command on both executors."""
    from credibly.executors import Executor, Spark

    executors = {"local": Executor(), "spark": Spark(session)}
    seconds = {}
    for where, executor in executors.items():
        for _ in range(2):  # the first starts workers and compiles
            out = folder / "out"
            shutil.rmtree(out, ignore_errors=True)
            start = cpu_seconds(processes)
            work(out, executor=executor)
            seconds[where] = cpu_seconds(processes) - start
    print(name, seconds, flush=True)
    return {
        "command": name,
        "this machine, CPU s": f"{seconds['local']:.1f}",
        "Spark, CPU s": f"{seconds['spark']:.1f}",
        "ratio": f"{seconds['spark'] / seconds['local']:.1f}",
    }


def cpu_seconds(groups: list[int]) -> float:
    """Return the CPU time of this process, its children and the sessions of a cluster."""
    ticks = 0
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = path.read_text().rsplit(")", 1)[1].split()
        except OSError:
            continue  # it has ended
        parent, session = int(fields[1]), int(fields[3])
        own = int(path.parent.name) == os.getpid()
        if own or parent == os.getpid() or session in groups:
            ticks += sum(map(int, fields[11:15]))
    return ticks / os.sysconf("SC_CLK_TCK")


def make(folder: Path, rows: int) -> None:
    """Write predictions with truth, in some files."""
    import credibly as cr

    folder.mkdir()
    generator = np.random.default_rng(0)
    for part in range(FILES):
        odds = generator.normal(-3, 2, (rows // FILES, len(LABELS)))
        chances = (1 / (1 + np.exp(-odds))).astype(np.float32)
        cr.Predictions.from_arrays(
            probabilities=chances,
            targets=(generator.random(chances.shape) < chances).astype(np.int8),
            labels=LABELS,
            ids=[f"{part}-{row}" for row in range(len(chances))],
        ).write(folder / f"{part}.parquet")
