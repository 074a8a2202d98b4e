"""Peak of memory of ``cr.evaluate`` as rows grow: past 4.2 million rows it should not.

Files of two labels with truth are made by pyarrow; each is evaluated in a process of its own. The
table has the peak over what the process had before, and the bytes per row beyond the size before
it (bar: 0). ``EVALUATE_ROWS=16000000`` sets the largest file.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

LABELS = ["a", "b"]
BLOCK = 100_000


def run() -> list[dict[str, object]]:
    """Return one row per number of rows."""
    largest = int(os.environ.get("EVALUATE_ROWS", "9000000"))
    sizes = [4_000_000, 5_000_000, largest]
    table: list[dict[str, object]] = []
    before: tuple[int, float] | None = None
    with tempfile.TemporaryDirectory() as folder:
        for rows in sizes:
            path = Path(folder) / f"{rows}.parquet"
            make(path, rows)
            command = [sys.executable, "-m", "benchmarks.evaluate_memory", str(path)]
            done = subprocess.run(command, capture_output=True, text=True, check=True).stdout
            seconds, megabytes = json.loads(done.splitlines()[-1])
            grown = None
            if before is not None:
                grown = (megabytes - before[1]) * 2**20 / (rows - before[0])
            table.append(
                {
                    "rows": f"{rows:,}",
                    "CPU s": f"{seconds:.1f}",
                    "peak MB": f"{megabytes:.0f}",
                    "bytes per further row (bar 0)": "" if grown is None else f"{grown:.1f}",
                }
            )
            before = (rows, megabytes)
            path.unlink()
    return table


def make(path: Path, rows: int) -> None:
    """Write a predictions file, block by block; ids are row numbers."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    generator = np.random.default_rng(0)
    names = [f"p:{label}" for label in LABELS] + [f"y:{label}" for label in LABELS]
    kinds = [pa.float32()] * len(LABELS) + [pa.int8()] * len(LABELS)
    fields = [pa.field("id", pa.string(), nullable=False)]
    fields += [pa.field(name, kind) for name, kind in zip(names, kinds, strict=True)]
    document = json.dumps({"version": "1.0", "labels": LABELS, "ids_checked": rows})
    with pq.ParquetWriter(path, pa.schema(fields), use_dictionary=False) as writer:
        for first in range(0, rows, BLOCK):
            size = min(BLOCK, rows - first)
            values = generator.random((len(LABELS), size)).astype(np.float32) ** 4
            truth = (generator.random(values.shape) < values).astype(np.int8)
            ids = pa.array(np.arange(first, first + size)).cast(pa.string())
            writer.write_table(pa.table([ids, *values, *truth], schema=pa.schema(fields)))
        writer.add_key_value_metadata({"credibly": document})


def _status(key: str) -> float:
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith(key)) / 1024


def _measure(path: str) -> None:
    import credibly as cr

    with tempfile.TemporaryDirectory() as folder:  # compiled and imported before the measurement
        make(Path(folder) / "small.parquet", 1000)
        cr.evaluate(Path(folder) / "small.parquet")
    before, start = _status("VmRSS"), time.process_time()
    cr.evaluate(path)
    print(json.dumps([time.process_time() - start, _status("VmHWM") - before]))


if __name__ == "__main__":
    _measure(sys.argv[1])
