"""How much memory the process may still take, and giving back what it does not use."""

from __future__ import annotations

import ctypes
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
