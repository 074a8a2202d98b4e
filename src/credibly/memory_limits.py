"""Measure and limit the memory and time of a process, and return unused memory to the system."""

from __future__ import annotations

import ctypes
import math
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from pathlib import Path

# Libraries raise errors of several types for this, which only the message distinguishes.
_MEMORY_HAS_ENDED = (
    "allocate memory",
    "out of memory",
    "failed to allocate",
    "failed to map segment",
    "can't start new thread",
    "failed to launch worker thread",
)
_NEARLY_NOTHING = 64 * 2**20  # bytes


def address_space_left() -> float:
    """Return the number of bytes the process may still map under its limit (``ulimit -v``).

    The result is infinite without a limit, and on systems without this figure (Windows, macOS).

    Example:
        >>> address_space_left() > 0
        True
    """
    try:
        import resource

        limit, _ = resource.getrlimit(resource.RLIMIT_AS)
        if limit == resource.RLIM_INFINITY:
            return float("inf")
        pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[0])
    except (ImportError, OSError):
        return float("inf")
    return limit - pages * resource.getpagesize()


def free_memory() -> float:
    """Return the number of bytes programs can still allocate; infinite if the system has no figure.

    Example:
        >>> free_memory() > 0
        True
    """
    try:
        with open("/proc/meminfo", encoding="ascii") as file:
            free = next(line for line in file if line.startswith("MemAvailable:")).split()[1]
    except (OSError, StopIteration):
        return address_space_left()
    return min(1024.0 * int(free), address_space_left())


def lacks_memory(error: BaseException) -> bool:
    """Return whether an error means that memory is exhausted.

    Example:
        >>> lacks_memory(RuntimeError("DefaultCPUAllocator: can't allocate memory: you tried …"))
        True
        >>> lacks_memory(RuntimeError("shapes do not match"))
        False
    """
    text = str(error).lower()
    if isinstance(error, MemoryError) or any(words in text for words in _MEMORY_HAS_ENDED):
        return True
    # A failed allocation is not always reported as such: an extension may return without an
    # exception ("SystemError: error return without exception set"), or an import may fail.
    return not isinstance(error, OSError) and address_space_left() < _NEARLY_NOTHING


def not_for_lack_of_memory(error: BaseException) -> None:
    """Raise MemoryError if that is what an error means, before it is taken for a damaged file."""
    if lacks_memory(error):
        raise MemoryError(str(error)) from error


def give_back() -> bool:
    """Return freed memory to the system; return whether there was any.

    glibc keeps memory that a thread has freed for that thread. With other C libraries, nothing is
    done.

    Example:
        >>> give_back() in (True, False)
        True
    """
    trim = _trim()
    return trim is not None and bool(trim(0))


@cache
def _trim() -> Callable[[int], int] | None:
    try:
        return ctypes.CDLL(None).malloc_trim
    except (AttributeError, OSError, TypeError):  # another C library, or Windows
        return None


@dataclass(frozen=True)
class Limits:
    """Limits on a worker for one job, which reads an untrusted file.

    Attributes:
        memory: bytes of address space.
        seconds: seconds of CPU time.
        file_bytes: size of any file that the worker writes.
    """

    memory: int
    seconds: int
    file_bytes: int = 0

    def apply(self) -> None:
        """Apply the limits to this process, if the system supports them."""
        try:
            import resource
        except ImportError:  # Windows
            return
        used = resource.getrusage(resource.RUSAGE_SELF)
        limits = {
            resource.RLIMIT_AS: self.memory,
            resource.RLIMIT_CPU: math.ceil(used.ru_utime + used.ru_stime) + self.seconds,
            resource.RLIMIT_FSIZE: self.file_bytes,
            resource.RLIMIT_CORE: 0,
        }
        for what, most in limits.items():
            _, hard = resource.getrlimit(what)
            most = most if hard == resource.RLIM_INFINITY else min(most, hard)
            with suppress(OSError, ValueError):
                resource.setrlimit(what, (most, hard))
