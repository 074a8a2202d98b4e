"""Start child processes that end when their parent ends, whatever ends it."""

from __future__ import annotations

import json
import math
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Generator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from contextlib import suppress
from multiprocessing import get_context
from multiprocessing.connection import Connection
from typing import IO, TYPE_CHECKING, TypeVar

from credibly.checks import InputError
from credibly.memory_limits import Limits, address_space_left

if TYPE_CHECKING:
    from credibly.types import Array, JsonObject

Job = TypeVar("Job")
Result = TypeVar("Result")

PR_SET_PDEATHSIG = 1  # linux/prctl.h

WORKER_START = "fork" if sys.platform.startswith("linux") else None
"""How DataLoader starts its workers, for ``multiprocessing_context``.

Children of a fork server, the default from Python 3.14 on, would outlive the process that asked for
them: their parent is the fork server.
"""


def end_with_parent(number: int = 0) -> None:
    """Make the kernel kill this process when its parent ends.

    It works on Linux only; on other systems it does nothing. The kill loses no data: files are
    complete or absent at any moment.

    Args:
        number: the number of a DataLoader worker, so that this can be its ``worker_init_fn``; not
            used.
    """
    if not sys.platform.startswith("linux"):
        return
    import ctypes

    parent = os.getppid()
    ctypes.CDLL(None, use_errno=True).prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    if os.getppid() != parent:  # the parent ended before the call
        os._exit(1)


def watch_parent(reader: Connection) -> None:
    """End this process when the parent closes its end of a pipe, or when the parent ends.

    An interrupt from the terminal reaches every process, but only the parent handles it.

    Args:
        reader: the reading end of ``multiprocessing.Pipe``; only the parent holds the writing end.
    """
    end_with_parent()
    signal.signal(signal.SIGINT, signal.SIG_IGN)

    def end_when_closed() -> None:
        try:
            reader.recv_bytes()
        except (EOFError, OSError):
            os._exit(1)

    threading.Thread(target=end_when_closed, daemon=True, name="watch-parent").start()


def watched_under_memory_limit() -> int | None:
    """Continue in a child process if memory is limited (``ulimit -v``): a library may abort it.

    Call it before importing libraries that may start threads.

    Returns:
        None in the process that continues; the child's exit code in the parent that waited for it.

    Raises:
        MemoryError: in the parent, if a library ended the child.
    """
    if address_space_left() == float("inf") or not hasattr(os, "fork"):
        return None
    child = os.fork()
    if child == 0:
        end_with_parent()
        return None
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)  # the child reports the interrupt
    try:
        code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    finally:
        signal.signal(signal.SIGINT, before)
    if code in (-signal.SIGSEGV, -signal.SIGABRT, -signal.SIGBUS, 127):
        raise MemoryError("a library ended the process for lack of memory")
    return code if code >= 0 else 128 - code


class Worker:
    """A process that reads untrusted files, so that this process does not open them.

    It runs ``python -m module``, which calls ``serve_jobs``. It starts with the first job, and
    again after a job that ended it. It finds modules on the import path of this process, but never
    in the current folder, which may hold untrusted files. Only one thread at a time may call it.

    Args:
        module: a module of this package.
        seconds: the time limit of a job; the process is then ended.
    """

    def __init__(self, module: str, seconds: float) -> None:
        self._module, self._seconds = module, seconds
        self._process: subprocess.Popen[bytes] | None = None

    def ask(self, job: bytes) -> bytes | None:
        """Return the answer to a job, or None if the job exceeds its limits."""
        process = self._process or self._started()
        assert process.stdin is not None
        assert process.stdout is not None
        timer = threading.Timer(self._seconds, process.kill)
        timer.daemon = True
        timer.start()
        try:
            process.stdin.write(len(job).to_bytes(8, "little") + job)
            process.stdin.flush()
            answer = _read_message(process.stdout)
        except OSError:  # the process ended
            answer = None
        finally:
            timer.cancel()
        if answer is None:
            self.close()
        return answer

    def ask_arrays(self, job: JsonObject, content: bytes = b"") -> dict[str, Array] | None:
        """Return the arrays that ``array_jobs`` answers with, or None after the time limit.

        Raises:
            InputError: the error that the job raised.
        """
        import numpy as np

        answer = self.ask(json.dumps(job).encode() + b"\n" + content)
        if answer is None:
            return None
        line, _, _ = answer.partition(b"\n")
        head = json.loads(line)
        if "error" in head:
            raise InputError(str(head["error"]))
        arrays, place = {}, len(line) + 1
        for name, (dtype, shape) in head["arrays"].items():
            count = math.prod(shape)
            arrays[name] = np.frombuffer(answer, dtype, count, place).reshape(shape).copy()
            place += arrays[name].nbytes
        return arrays

    def close(self) -> None:
        """End the process."""
        if self._process is not None:
            _processes.discard(self._process)
            self._process.kill()
            for pipe in (self._process.stdin, self._process.stdout):
                with suppress(OSError):  # unread data is lost
                    pipe.close()  # pyright: ignore[reportOptionalMemberAccess]
            self._process.wait()
            self._process = None

    __del__ = close

    def __enter__(self) -> Worker:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _started(self) -> subprocess.Popen[bytes]:
        self._process = subprocess.Popen(
            [sys.executable, "-P", "-m", self._module],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
        )
        _processes.add(self._process)
        return self._process


_processes: set[subprocess.Popen[bytes]] = set()


def end_workers() -> None:
    """Kill every worker of this process; their callers get no answer."""
    for process in list(_processes):
        process.kill()


def serve_jobs(answer: Callable[[bytes], bytes], limits: Limits) -> None:
    """Answer the jobs of a ``Worker``, each within ``limits``, until the parent ends.

    Args:
        answer: the function that answers one job.
        limits: the limits of one job.
    """
    parent = os.getppid()

    def end_when_orphaned() -> None:
        while os.getppid() == parent:
            time.sleep(0.5)
        os._exit(1)

    # Not `end_with_parent`: the kernel would treat the thread that started the worker as its
    # parent, and the threads of a server end early.
    threading.Thread(target=end_when_orphaned, daemon=True).start()
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent handles interrupts of the terminal
    while True:
        limits.apply()
        job = _read_message(sys.stdin.buffer)
        if job is None:
            return
        message = answer(job)
        sys.stdout.buffer.write(len(message).to_bytes(8, "little") + message)
        sys.stdout.buffer.flush()


def array_jobs(work: Callable[..., Mapping[str, Array]]) -> Callable[[bytes], bytes]:
    """Return the ``answer`` of ``serve_jobs`` for jobs of ``Worker.ask_arrays``.

    Args:
        work: takes the content of a job, and its fields as keyword arguments; returns arrays by
            name, or raises ``InputError``.
    """

    def answer(job: bytes) -> bytes:
        line, _, content = job.partition(b"\n")
        try:
            arrays = work(content, **json.loads(line))
        except InputError as error:
            return json.dumps({"error": str(error)}).encode()
        head = {name: (array.dtype.str, array.shape) for name, array in arrays.items()}
        parts = [json.dumps({"arrays": head}).encode() + b"\n"]
        return b"".join(parts + [array.tobytes() for array in arrays.values()])

    return answer


def _read_message(file: IO[bytes]) -> bytes | None:
    """Return the next message of a pipe, or None if the pipe was closed before its end."""
    head = file.read(8)
    size = int.from_bytes(head, "little")
    message = file.read(size)
    return message if len(head) == 8 and len(message) == size else None


def in_processes(
    function: Callable[[Job], Result], jobs: Sequence[Job], count: int
) -> Generator[tuple[int, Result], None, None]:
    """Run jobs in ``count`` processes; yield the index and the result of each as it finishes.

    The first error of a job is raised here, and the other jobs are stopped.

    Args:
        function: defined in a module, so that a new process can import it.
        jobs: the argument of each job.
        count: the limit on processes.

    Raises:
        ChildProcessError: if a process was killed.

    Example:
        >>> sorted(in_processes(abs, [-1, 2], 1))
        [(0, 1), (1, 2)]
    """
    context = get_context("spawn")
    reader, writer = context.Pipe(duplex=False)
    pool = ProcessPoolExecutor(min(count, len(jobs) or 1), context, watch_parent, (reader,))
    with reader, pool, writer:  # the writer is closed first, which ends the processes at once
        numbers = {pool.submit(function, job): number for number, job in enumerate(jobs)}
        try:
            for done in as_completed(numbers):
                yield numbers[done], done.result()
        except BrokenProcessPool as error:
            raise ChildProcessError(
                "a process that did part of the work was killed, perhaps for lack of memory. The "
                "same command goes on where it was."
            ) from error
