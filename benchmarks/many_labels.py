"""Train, calibrate, evaluate and search end to end with very many labels, within 8 GB; made data.

Each size runs ``examples/many_labels.py`` in a process of its own; the table has the CPU seconds
of each step and the peak of memory. 1e6 labels run where ``MANY_LABELS_MOST=1000000`` is set.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

EXAMPLE = Path(__file__).parents[1] / "examples" / "many_labels.py"
SIZES = ((10_000, 10_000), (100_000, 10_000), (1_000_000, 4_000))
"""Numbers of labels and rows."""

LIMIT_GB = 8.0


def run() -> list[dict[str, object]]:
    """Return one row per size."""
    most = int(os.environ.get("MANY_LABELS_MOST", "100000"))
    return [_measure(labels, rows) for labels, rows in SIZES if labels <= most]


def _measure(labels: int, rows: int) -> dict[str, object]:
    command = [sys.executable, str(EXAMPLE), "--labels", str(labels), "--rows", str(rows)]
    done = subprocess.run(
        [*command, "--epochs", "1"], capture_output=True, text=True, check=True
    ).stdout
    steps = re.findall(r"\[ *([\d.]+) s CPU, peak ([\d.]+) GB\] (.+)", done)
    names = [name for *_, name in steps]
    # A line tells what the step before it took.
    seconds = {names[i]: float(steps[i + 1][0]) for i in range(len(steps) - 1)}
    peak = max(float(gigabytes) for _, gigabytes, _ in steps)
    precision = re.findall(r"precision@1 +([\d.]+)", done)
    return {
        "labels": f"{labels:,}",
        "rows": f"{rows:,}",
        **{f"{name}, s": f"{value:.1f}" for name, value in seconds.items()},
        "precision@1": precision[-1] if precision else "",
        f"peak GB (bar {LIMIT_GB:g})": f"{peak:.2f}",
    }
