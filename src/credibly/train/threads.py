"""How many threads small tables are trained with: one."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch

SMALL = 1_000_000
"""Entries of a feature matrix up to which one thread is at least as quick as several."""


@contextmanager
def threads_for(entries: int) -> Iterator[None]:
    """Compute with one thread where a feature matrix has few entries.

    Threads that wait for each other after every small operation cost more than they save, many
    times more where other programs keep the cores busy. Limits torch and the libraries that are
    loaded when it begins; afterwards all have their threads again.

    Example:
        >>> before = torch.get_num_threads()
        >>> with threads_for(1000):
        ...     torch.get_num_threads()
        1
        >>> torch.get_num_threads() == before
        True
    """
    if entries > SMALL:
        yield
        return
    from threadpoolctl import threadpool_limits

    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        with threadpool_limits(1):
            yield
    finally:
        torch.set_num_threads(before)
