"""Run tests in processes that are forked from one, which has imported the large libraries."""

from __future__ import annotations

import json
import os
import resource
import signal
import sys
import time
from collections.abc import Callable, Sequence
from importlib import import_module
from pathlib import Path
from typing import Any

LIBRARIES = ("numpy", "scipy.stats", "torch", "numba", "sklearn.ensemble", "pyarrow.parquet")
LIBRARIES += ("duckdb", "pandas", "hypothesis", "torchmetrics", "pytest")


def prepare(root: Path) -> None:
    """Import what all tests share, but nothing of the package."""
    for variable in ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "NUMBA_NUM_THREADS"):
        os.environ[variable] = "1"
    for name in LIBRARIES:
        import_module(name)
    os.environ["PYTHONPATH"] = str(root / "src")
    sys.path.insert(0, str(root / "src"))
    sys.dont_write_bytecode = True
    os.environ["PYTHONDONTWRITEBYTECODE"] = "1"


def run(root: Path, tests: Sequence[str], seconds: float, plugin: Any = None) -> tuple[int, float]:
    """Run tests until one fails; return pytest's exit code (−1: out of time) and CPU seconds."""

    def work() -> int:
        import pytest

        os.chdir(root)
        options = ["-x", "-q", "-p", "no:cacheprovider", "--no-header", "-W", "ignore"]
        return int(pytest.main([*options, *tests], plugins=[plugin] if plugin else []))

    return forked(work, seconds)


def forked(work: Callable[[], int], seconds: float) -> tuple[int, float]:
    """Return the exit code of a function in a process of its own, −1 if it takes too long."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    child = os.fork()
    if child == 0:
        os.setsid()
        quiet = os.open(os.devnull, os.O_WRONLY)
        os.dup2(quiet, 1)
        os.dup2(quiet, 2)
        resource.setrlimit(resource.RLIMIT_CPU, (int(seconds) + 1, int(seconds) + 5))
        code = 70
        try:
            code = work()
        finally:
            os._exit(code)
    # CPU time is bounded above; a test that waits for ever is ended here.
    code, ends = None, time.monotonic() + 6 * seconds + 30
    while code is None:
        done, status = os.waitpid(child, os.WNOHANG)
        if done:
            code = os.waitstatus_to_exitcode(status)
        elif time.monotonic() > ends:
            os.killpg(child, signal.SIGKILL)
            os.waitpid(child, 0)
            code = -1
        else:
            time.sleep(0.02)
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    spent = used.ru_utime + used.ru_stime - before.ru_utime - before.ru_stime
    return (-1 if code < 0 else code), spent


class Watch:
    """A pytest plugin that notes which functions of the package each test enters, and its time."""

    def __init__(self, root: Path, out: Path) -> None:
        self.source, self.out = str(root / "src"), out
        self.entered: dict[str, set[tuple[str, int]]] = {}
        self.seconds: dict[str, float] = {}
        self.now: set[tuple[str, int]] = set()

    def pytest_runtest_logstart(self, nodeid: str) -> None:
        """Begin to watch a test, with its fixtures."""
        self.now = self.entered.setdefault(nodeid, set())
        self.began = time.process_time()
        sys.settrace(self._trace)

    def pytest_runtest_logfinish(self, nodeid: str) -> None:
        """Stop watching."""
        sys.settrace(None)
        self.seconds[nodeid] = time.process_time() - self.began

    def pytest_sessionfinish(self) -> None:
        """Write what was seen."""
        found = {
            test: {"seconds": round(self.seconds.get(test, 0.0), 3), "entered": sorted(entered)}
            for test, entered in self.entered.items()
        }
        self.out.write_text(json.dumps(found), encoding="utf-8")

    def _trace(self, frame: Any, event: str, argument: object) -> None:
        code = frame.f_code
        if code.co_filename.startswith(self.source):
            self.now.add((code.co_filename[len(self.source) - 3 :], code.co_firstlineno))
