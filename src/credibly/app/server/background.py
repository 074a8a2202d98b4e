"""Work that takes long or much memory: bounded in number, or done once in a thread of its own."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from concurrent.futures import Future, wait
from functools import lru_cache, partial, wraps
from threading import Lock, Thread
from typing import Any, Generic, TypeVar

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
        self._message = f"{at_once} {what}, the most at once"

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


class Pending(Generic[Result]):
    """A value that is worked out once, in a thread of its own, when it is first asked for.

    Args:
        work: returns the value.
        what: what it works out, for people.
    """

    def __init__(self, work: Callable[[], Result], what: str) -> None:
        self._work, self._what = work, what
        self._lock, self._begun = Lock(), time.monotonic()
        self._future: Future[Result] | None = None

    @property
    def done(self) -> bool:
        """Return whether the value is there."""
        future = self._future
        return future is not None and future.done() and future.exception() is None

    @property
    def seconds(self) -> float:
        """Return how long ago the work began."""
        return time.monotonic() - self._begun

    def begin(self) -> Future[Result]:
        """Begin, unless that has happened; a failure is forgotten and tried again.

        Raises:
            Busy: where the system starts no more threads.
        """
        with self._lock:
            if self._future is None or (self._future.done() and not self.done):
                future: Future[Result] = Future()
                try:
                    Thread(target=self._run, args=(future,), daemon=True).start()
                except RuntimeError as error:
                    raise Busy(f"no thread is left for {self._what}") from error
                self._future, self._begun = future, time.monotonic()
            return self._future

    def result(self) -> Result:
        """Return the value, however long that takes."""
        return self.begin().result()

    def wait(self, seconds: float | None = None) -> Result:
        """Return the value.

        Args:
            seconds: how long to wait at most; ``WAIT`` if None.

        Raises:
            NotReady: when the work goes on after that.
        """
        future = self.begin()
        wait((future,), WAIT if seconds is None else seconds)
        if not future.done():
            raise NotReady(f"{self._what} ({self.seconds:.0f} seconds so far)")
        return future.result()

    def _run(self, future: Future[Result]) -> None:
        try:
            future.set_result(self._work())
        except Exception as error:  # raised again by whoever waits
            future.set_exception(error)
