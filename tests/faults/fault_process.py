"""Commands in processes of their own: killed, short of disk, or without permission to read."""

from __future__ import annotations

import multiprocessing
import os
import shutil
import signal
import sys
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any

from fault_storage import FailingDisk, PowerLoss

from credibly.cli import COMMANDS

# Children are forked from a process that has imported everything already: one costs milliseconds.
SERVER = multiprocessing.get_context("forkserver")
SERVER.set_forkserver_preload(
    [
        *(f"credibly.cli.{name}" for name in (*COMMANDS, "tables")),
        *(f"credibly.workflows.{name}" for name in ("calibration", "comparison", "label_sets")),
        *(
            f"credibly.{package}"
            for package in ("calibrate", "decide", "metrics", "models", "retrieve")
        ),
        *(f"credibly.data.{name}" for name in ("loading", "npz", "rows")),
        "credibly.app.report",
        *(f"credibly.train.{name}" for name in ("fitting", "prediction")),
        *("accelerate", "jinja2", "matplotlib.backends.backend_svg", "matplotlib.figure"),
        *("numba.core.typing.arraydecl", "numba.cpython.randomimpl", "numba.np.arrayobj"),
        *("pandas", "pyarrow.compute", "pyarrow.parquet", "scipy.stats", "torch._dynamo"),
    ]
)


@dataclass(frozen=True)
class Fault:
    """What happens to a process.

    ``kind`` is one of

    - "none";
    - "delay": killed from outside after ``at`` seconds;
    - "sight": killed from outside when the ``at``-th change of the folder ``watched`` is seen;
    - "flush", "rename", "renamed": killed just before the ``at``-th flush or rename, or just
      after it;
    - "limit": no file may grow past ``at`` bytes;
    - "memory": the address space may grow by ``at`` bytes from where it stands;
    - "unprivileged": files' permissions count, even for root;
    - "error": the ``at``-th operation on the folder ``watched`` raises (``fault_storage``);
    - "power": power is lost at the ``at``-th flush, rename or removal in ``watched``, or at the end
      for 0; what is left is in ``after`` of the notes.
    """

    kind: str = "none"
    at: float = 0
    seed: int = 0


@dataclass(frozen=True)
class Ended:
    """How a process ended; ``code`` is −9 if it was killed."""

    code: int | None
    stderr: str
    seconds: float


def run(command: Sequence[str], fault: Fault, notes: Path, watched: Path | None = None) -> Ended:
    """Run ``credibly COMMAND …`` under a fault; ``notes`` is a folder for what it prints."""
    shutil.rmtree(notes / "after", ignore_errors=True)
    notes.mkdir(parents=True, exist_ok=True)
    ours, theirs = SERVER.Pipe()
    child = SERVER.Process(target=_child, args=(list(command), fault, str(notes), theirs, watched))
    child.start()
    theirs.close()
    ours.recv()
    began = time.monotonic()
    if fault.kind == "delay":
        child.join(timeout=fault.at)
        child.kill()
    elif fault.kind == "sight" and watched is not None:
        _wait_for_changes(watched, int(fault.at), child)
        child.kill()
    child.join(timeout=600)
    if child.is_alive():
        child.kill()
        raise TimeoutError(f"{command} did not end within ten minutes")
    seconds = time.monotonic() - began
    return Ended(child.exitcode, (notes / "stderr").read_text(encoding="utf-8"), seconds)


def _wait_for_changes(folder: Path, count: int, child: BaseProcess) -> None:
    """Look without pause: a file being written is seen before it is whole, if only sometimes."""
    seen = _sizes(folder)
    while count and child.is_alive():
        now = _sizes(folder)
        count -= now != seen
        seen = now


def _sizes(folder: Path) -> dict[str, int]:
    sizes = {}
    for where, _, names in os.walk(folder):
        for name in names:
            with suppress(FileNotFoundError):
                sizes[f"{where}/{name}"] = os.stat(f"{where}/{name}").st_size
    return sizes


def _child(
    command: list[str], fault: Fault, notes: str, begun: Connection, watched: Path | None = None
) -> None:
    import torch

    from credibly.cli import main

    torch.set_num_threads(1)
    for stream, name in ((1, "stdout"), (2, "stderr")):
        os.dup2(os.open(f"{notes}/{name}", os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o644), stream)
    _arm(fault)
    disk = _failing_disk(fault, watched, Path(notes) / "after")
    begun.send(True)
    code = main(command)
    if isinstance(disk, PowerLoss) and code == 0:  # it was faster than the power loss
        disk.lose_power()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)


def _failing_disk(
    fault: Fault, watched: Path | None, after: Path
) -> FailingDisk | PowerLoss | None:
    if watched is None or fault.kind not in ("error", "power"):
        return None
    if fault.kind == "error":
        disk = FailingDisk(watched, int(fault.at))
    else:
        disk = PowerLoss(watched, after, int(fault.at), fault.seed)
    disk.arm()
    return disk


def _arm(fault: Fault) -> None:
    if fault.kind in ("flush", "rename", "renamed"):
        _die_at(fault)
    elif fault.kind == "limit":
        import resource

        resource.setrlimit(resource.RLIMIT_FSIZE, (int(fault.at), int(fault.at)))
    elif fault.kind == "memory":
        import resource

        pages = int(Path("/proc/self/statm").read_text().split()[0])
        limit = pages * resource.getpagesize() + int(fault.at)
        resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
    elif fault.kind == "unprivileged":
        drop_privileges()


def _die_at(fault: Fault) -> None:
    name = "fsync" if fault.kind == "flush" else "replace"
    real, seen = getattr(os, name), 0

    def deadly(*arguments: Any) -> Any:
        nonlocal seen
        seen += 1
        if seen == fault.at and fault.kind != "renamed":
            os.kill(os.getpid(), signal.SIGKILL)
        result = real(*arguments)
        if seen == fault.at:
            os.kill(os.getpid(), signal.SIGKILL)
        return result

    setattr(os, name, deadly)


def drop_privileges() -> None:
    """Root reads what it may not: give that right up, in this process alone (Linux)."""
    import ctypes

    header = (ctypes.c_uint32 * 2)(0x20080522, 0)  # version 3 of the interface, this process
    none = (ctypes.c_uint32 * 6)()
    if os.geteuid() == 0 and ctypes.CDLL(None, use_errno=True).capset(header, none):
        raise OSError(ctypes.get_errno(), "capset failed")
