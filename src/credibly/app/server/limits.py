"""How many pieces of heavy work are done at once; others wait a little, as bytes."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TypeVar

from anyio import to_thread

Result = TypeVar("Result")


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

    async def run(self, work: Callable[[], Result], wait_seconds: float) -> Result:
        """Return what ``work`` returns, in a thread, when it is its turn.

        Requests wait here and not in a thread, so that they keep no other kind of request waiting.
        """
        try:
            async with asyncio.timeout(wait_seconds):
                await self._slots.acquire()
        except TimeoutError:
            raise Busy(self._message) from None
        try:
            return await to_thread.run_sync(work)
        finally:
            self._slots.release()
