"""Every request sees the served files as they are now: one that was replaced is opened again."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace
from threading import Lock
from typing import Any

from anyio import to_thread
from fastapi import Request

from credibly.app.server.request_guard import HEALTH
from credibly.app.server.templates import failure
from credibly.checks import InputError
from credibly.predictions import identity


class Current:
    """ASGI middleware in front of the pages and the API.

    Files are compared before a request is worked on, and again before it is answered: what was made
    of two versions of a file is not sent.
    """

    def __init__(self, app: Any) -> None:
        self.app = app
        self._lock = Lock()

    async def __call__(self, scope: dict[str, Any], receive: Any, send: Any) -> None:
        if scope["type"] != "http" or scope["path"].startswith(("/static/", HEALTH)):
            await self.app(scope, receive, send)
            return
        request = Request(scope)
        state = scope["app"].state
        try:
            before = await to_thread.run_sync(self._refresh, state, _file_number(request))
        except (InputError, OSError) as error:
            message = f"a file that is served can no longer be read. {error} Put it back."
            await failure(request, 500, message)(scope, receive, send)
            return
        replaced = False

        async def send_if_current(message: dict[str, Any]) -> None:
            nonlocal replaced
            if message["type"] == "http.response.start":
                now = _identities(state.served.files[: len(before)])
                replaced = now != before
                if replaced:
                    words = "a file was replaced while this was worked out; try again."
                    await failure(request, 503, words)(scope, receive, send)
            if not replaced:
                await send(message)

        await self.app(scope, receive, send_if_current)

    def _refresh(self, state: Any, asked: int) -> list[Any]:
        """Open files that were replaced again; return what the files are now.

        A file that is gone is an error for those who ask for it, by its number.
        """
        with self._lock:
            files = state.served.files
            now = _identities(files)
            if asked < len(files) and now[asked] is None:
                identity(files[asked].path)  # says what is wrong
            changed = [n for n, found in enumerate(now) if found not in (None, files[n].identity)]
            opened = {number: files[number].reopened() for number in changed}
            for number, file in opened.items():
                files[number] = file  # in place: the list of runs adds to it
            if opened:
                state.served = replace(state.served)  # without what was worked out before
            return now


def _file_number(request: Request) -> int:
    with suppress(ValueError):
        return max(0, int(request.query_params.get("file", request.query_params.get("book", 0))))
    return 0


def _identities(files: list[Any]) -> list[Any]:
    """Return what each file is now, None where it is gone."""
    found = []
    for file in files:
        try:
            found.append(identity(file.path))
        except (InputError, OSError):
            found.append(None)
    return found
