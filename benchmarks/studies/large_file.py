"""Ten million rows through evaluate, sets and search: how much memory do they take?

``python -m benchmarks.studies.large_file --rows 10000000``

The file is made in a temporary folder (1 GB at full size) and removed again.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from benchmarks.serve import LABELS, write_predictions
from benchmarks.studies.training import markdown

COMMANDS = {
    "evaluate": ["evaluate", "{file}", "--json"],
    "sets": ["sets", "{file}", "--average-size", "2", "--out", "{folder}/sets.parquet", "--json"],
    "search": ["search", "{file}", "+l1 +l2 -l5", "--top", "100", "--json"],
}


def main(rows: int, folder: str | None) -> None:
    with tempfile.TemporaryDirectory(dir=folder) as name:
        file = Path(name) / "large.parquet"
        needed = 400 * rows  # bytes: probabilities, truth, ids, and the sets beside them
        if shutil.disk_usage(name).free < needed:
            raise SystemExit(f"{name} must have {needed / 1e9:.0f} GB free; name another --folder.")
        write_predictions(file, rows)
        title = f"{rows:,} rows × {LABELS} labels, {file.stat().st_size / 1e9:.2f} GB"
        print(title, flush=True)
        table = [
            [command, *_measured([part.format(file=file, folder=name) for part in parts])]
            for command, parts in COMMANDS.items()
        ]
    print(markdown(["command", "most memory, MB", "CPU, s", "wall, s"], table))


def _measured(arguments: list[str]) -> list[str]:
    """The command's largest resident memory and its time, as the system counts them."""
    start, most = time.perf_counter(), 0.0
    child = subprocess.Popen(
        [sys.executable, "-m", "credibly", *arguments], stdout=subprocess.DEVNULL
    )
    while True:
        done, status, usage = os.wait4(child.pid, os.WNOHANG)
        if done:
            break
        # Not ru_maxrss: a child's begins at what its parent held when it was started.
        most = max(most, _high_water(child.pid))
        time.sleep(0.05)
    child.returncode = os.waitstatus_to_exitcode(status)
    if child.returncode:
        raise SystemExit(f"{arguments[0]} ended with {child.returncode}.")
    wall = time.perf_counter() - start
    row = [f"{most:,.0f}", f"{usage.ru_utime + usage.ru_stime:.1f}", f"{wall:.1f}"]
    print(arguments[0], *row, flush=True)
    return row


def _high_water(pid: int) -> float:
    """MB a process has held at most; 0 for one that is just ending."""
    _, found, rest = Path(f"/proc/{pid}/status").read_text().partition("VmHWM:")
    return int(rest.split()[0]) / 1024 if found else 0.0


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=10_000_000)
    parser.add_argument("--folder", help="where to put the file (default: the system's)")
    main(**vars(parser.parse_args()))
