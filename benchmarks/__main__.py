"""Run every benchmark, or those named: ``python -m benchmarks losses metrics``.

A benchmark is a module of this folder with a function ``run()`` that prints its table, or gives
back the table's rows as dicts.
"""

from __future__ import annotations

import os
import pkgutil
import sys
from importlib import import_module
from pathlib import Path

# One thread, set before torch and numba are loaded: ratios of CPU time mean nothing otherwise.
for variable in ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "NUMBA_NUM_THREADS", "POLARS_MAX_THREADS"):
    os.environ[variable] = "1"

_NOT_BENCHMARKS = {"__main__", "lite0_weights", "scale_files", "timing", "app_pictures"}


def names() -> list[str]:
    """Every benchmark, by name."""
    found = pkgutil.iter_modules([str(Path(__file__).parent)])
    return sorted(m.name for m in found if not m.ispkg and m.name not in _NOT_BENCHMARKS)


def main(chosen: list[str]) -> int:
    """Run the chosen benchmarks, all if none is."""
    unknown = sorted(set(chosen) - set(names()))
    if unknown:
        print(
            f"no benchmark {', '.join(unknown)}; there are: {', '.join(names())}", file=sys.stderr
        )
        return 2
    for name in chosen or names():
        print(f"\n# {name}\n", flush=True)
        rows = import_module(f"benchmarks.{name}").run()
        if rows:
            show(rows)
    return 0


def show(rows: list[dict[str, object]]) -> None:
    """Rows as a table, its columns named by their keys."""
    from rich.console import Console
    from rich.table import Table

    table = Table(*rows[0])
    for row in rows:
        table.add_row(*map(str, row.values()))
    Console().print(table)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
