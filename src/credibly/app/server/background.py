"""Work that takes long or much memory: bounded in number, or done once in a thread of its own."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from functools import lru_cache, partial, wraps
from threading import Condition, Thread
from typing import Any, TypeVar

from anyio import to_thread

Result = TypeVar("Result")
KEPT = 256
"""Results of a method that an object remembers; those asked for longest ago are forgotten."""


def remembered(method: Callable[..., Result]) -> Callable[..., Result]:
    """Return a method whose latest results are kept, by object and arguments."""
    name = f"_remembered_{method.__name__}"

    @wraps(method)
    def called(self: Any, *arguments: Any) -> Result:
        if name not in vars(self):
            vars(self)[name] = lru_cache(maxsize=KEPT)(partial(method, self))
        return vars(self)[name](*arguments)

    return called


class Busy(Exception):
    """Raised when as many requests of a kind are worked on as are allowed."""


class Turns:
    """A bound on work of one kind.

    Args:
        at_once: how many pieces.
        what: they are called in the message to those who waited for too long.
    """

    def __init__(self, at_once: int, what: str) -> None:
        self._slots = asyncio.Semaphore(at_once)
        self._message = f"{at_once} {what}, the most at once; try again soon."

    async def run(
        self, work: Callable[[], Result], wait_seconds: float | None, *, abandon: bool = False
    ) -> Result:
        """Return what ``work`` returns, in a thread, when it is its turn.

        Requests wait here and not in a thread, so that they keep no other kind of request waiting.

        Args:
            work: what to do.
            wait_seconds: how long to wait for the turn; None for as long as it takes.
            abandon: whether a server that stops leaves the work behind.
        """
        try:
            async with asyncio.timeout(wait_seconds):
                await self._slots.acquire()
        except TimeoutError:
            raise Busy(self._message) from None
        try:
            return await to_thread.run_sync(work, abandon_on_cancel=abandon)
        finally:
            self._slots.release()


WAIT = 5.0
"""Seconds that a request waits for such work before it is told to come back."""


class NotReady(Exception):
    """Raised when the work goes on; the message says what is being worked out."""


class Pending:
    """Work that is done once. What it finds, it keeps elsewhere.

    Args:
        work: what to do.
        what: what it works out, for people.
    """

    def __init__(self, work: Callable[[], object], what: str) -> None:
        self._work = work
        self.what = what
        self._changed = Condition()
        self._state = "new"
        self._problem: Exception | None = None
        self._begun = 0.0

    def begin(self) -> None:
        """Begin, unless that has happened; a failure is forgotten and tried again.

        Raises:
            Busy: where the system starts no more threads.
        """
        with self._changed:
            if self._state != "new":
                return
            self._problem, self._begun = None, time.monotonic()
            try:
                Thread(target=self._run, name=f"pending {self.what}", daemon=True).start()
            except RuntimeError as error:
                raise Busy(f"no thread is left for {self.what}; try again soon.") from error
            self._state = "working"

    def wait(self, seconds: float | None = None) -> None:
        """Return when the work is done.

        Args:
            seconds: how long to wait at most; ``WAIT`` if None.

        Raises:
            NotReady: when it goes on after that.
        """
        self.begin()
        with self._changed:
            limit = WAIT if seconds is None else seconds
            if not self._changed.wait_for(lambda: self._state != "working", limit):
                so_far = time.monotonic() - self._begun
                raise NotReady(f"{self.what} ({so_far:.0f} seconds so far)")
            if self._problem is not None:
                raise self._problem

    def _run(self) -> None:
        state, problem = "done", None
        try:
            self._work()
        except Exception as error:  # raised again by whoever waits
            state, problem = "new", error
        with self._changed:
            self._state, self._problem = state, problem
            self._changed.notify_all()
