"""Child processes that end with their parent, however the parent ends."""

from __future__ import annotations

import os
import signal
import sys
import threading
from multiprocessing.connection import Connection

PR_SET_PDEATHSIG = 1  # linux/prctl.h

WORKER_START = "fork" if sys.platform.startswith("linux") else None
"""How DataLoader starts its workers, for ``multiprocessing_context``.

Children of a fork server, the default from Python 3.14 on, would outlive the process that asked for
them: their parent is the fork server.
"""


def end_with_parent(number: int = 0) -> None:
    """Have the kernel kill this process when its parent ends; Linux only, else do nothing.

    Nothing is lost by it: files are complete or not there at any moment.

    Args:
        number: of a DataLoader worker, which calls this as its ``worker_init_fn``; not used.
    """
    if not sys.platform.startswith("linux"):
        return
    import ctypes

    parent = os.getppid()
    ctypes.CDLL(None, use_errno=True).prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    if os.getppid() != parent:  # it ended before the call
        os._exit(1)


def watch_parent(reader: Connection) -> None:
    """End this process when the parent's end of a pipe closes, or when the parent ends.

    An interrupt of the terminal reaches every process; here only the parent acts on it.

    Args:
        reader: the reading end of ``multiprocessing.Pipe``; only the parent holds the other one.
    """
    end_with_parent()
    signal.signal(signal.SIGINT, signal.SIG_IGN)

    def wait() -> None:
        try:
            reader.recv_bytes()
        except (EOFError, OSError):
            os._exit(1)

    threading.Thread(target=wait, daemon=True, name="watch-parent").start()
