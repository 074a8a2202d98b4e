"""How much memory the process may still take."""

from __future__ import annotations

from pathlib import Path


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
