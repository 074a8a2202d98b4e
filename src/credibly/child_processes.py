"""Child processes that end with their parent, however the parent ends."""

from __future__ import annotations

import os
import signal
import sys
import threading
from collections import deque
from collections.abc import Callable, Generator, Sequence
from contextlib import ExitStack
from multiprocessing import get_context
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from typing import Any, TypeVar

Job = TypeVar("Job")
Result = TypeVar("Result")

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

    def end_when_closed() -> None:
        try:
            reader.recv_bytes()
        except (EOFError, OSError):
            os._exit(1)

    threading.Thread(target=end_when_closed, daemon=True, name="watch-parent").start()


def in_processes(
    function: Callable[[Job], Result], jobs: Sequence[Job], count: int
) -> Generator[tuple[int, Result], None, None]:
    """Do jobs in ``count`` processes; yield the number of each and its result, as they finish.

    The first error of a job is raised here and ends the others in the middle. No thread helps on
    this side: where memory has ended, one that cannot start would leave everybody waiting.

    Args:
        function: of a module, so that a fresh process can import it.
        jobs: its arguments.
        count: most processes at a time.

    Raises:
        ChildProcessError: a process was killed.

    Example:
        >>> sorted(in_processes(abs, [-1, 2], 1))
        [(0, 1), (1, 2)]
    """
    context = get_context("spawn")
    reader, writer = context.Pipe(duplex=False)
    waiting = deque(enumerate(jobs))
    busy: dict[Connection, tuple[BaseProcess, int]] = {}
    with reader, writer, ExitStack() as started:
        try:
            for _ in range(min(count, len(waiting))):
                ours, theirs = context.Pipe()
                started.enter_context(ours)
                process = context.Process(target=_serve, args=(function, theirs, reader))
                process.start()
                started.callback(process.join)
                theirs.close()
                _hand_over(ours, process, waiting, busy)
            while busy:
                for ours in wait(list(busy)):
                    assert isinstance(ours, Connection)
                    process, number = busy.pop(ours)
                    result = _result(ours, process)
                    _hand_over(ours, process, waiting, busy)
                    yield number, result
        finally:
            writer.close()  # the processes end at once


def _hand_over(
    ours: Connection,
    process: BaseProcess,
    waiting: deque[tuple[int, Any]],
    busy: dict[Connection, tuple[BaseProcess, int]],
) -> None:
    if waiting:
        number, job = waiting.popleft()
        busy[ours] = process, number
        try:
            ours.send(job)
        except OSError as error:  # a killed process
            raise _killed(process) from error


def _result(ours: Connection, process: BaseProcess) -> Any:
    try:
        done, result = ours.recv()
    except (EOFError, OSError) as error:
        raise _killed(process) from error
    if done:
        return result
    raise result


def _killed(process: BaseProcess) -> ChildProcessError:
    process.join(10)
    return ChildProcessError(
        f"a process that did part of the work was killed (exit code {process.exitcode}), perhaps "
        "for lack of memory. The same command goes on where it was."
    )


def _serve(function: Callable[[Any], Any], theirs: Connection, reader: Connection) -> None:
    """Do one job after another, until the parent closes the pipe."""
    try:
        watch_parent(reader)
    except RuntimeError:  # no memory for a thread; the parent says so
        os._exit(1)
    while True:
        try:
            job = theirs.recv()
        except EOFError:
            return
        try:
            answer = True, function(job)
        except Exception as error:
            answer = False, error
        try:
            theirs.send(answer)
        except Exception:  # not every error can be sent, and nothing of it was
            theirs.send((False, RuntimeError(f"{type(answer[1]).__name__}: {answer[1]}")))
