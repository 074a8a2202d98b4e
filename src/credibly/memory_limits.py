"""How much memory and time a process may take, and giving back what it does not use."""

from __future__ import annotations

import ctypes
import math
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any


def address_space_left() -> float:
    """Return how many bytes the process may still map under its limit (``ulimit -v``).

    Infinite without a limit, and where the system does not tell (Windows, macOS).

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
    """Return how many bytes programs can still take; infinite where the system does not tell.

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


def give_back() -> bool:
    """Return freed memory to the system; say whether there was any.

    The allocator of glibc keeps what each thread has freed for that thread. Elsewhere nothing is
    done.

    Example:
        >>> give_back() in (True, False)
        True
    """
    trim = _trim()
    return trim is not None and bool(trim(0))


@cache
def _trim() -> Any:
    try:
        return ctypes.CDLL(None).malloc_trim
    except (AttributeError, OSError, TypeError):  # another C library; Windows
        return None


@dataclass(frozen=True)
class Limits:
    """What a worker may take for one job: reading a file that somebody else made.

    Attributes:
        memory: bytes of address space.
        seconds: of computation.
        file_bytes: of any file that it writes.
    """

    memory: int
    seconds: int
    file_bytes: int = 0

    def apply(self) -> None:
        """Limit this process from now on, where the system can."""
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
