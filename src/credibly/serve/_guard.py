"""What stands in front of every request: host, origin, size, time, headers.

The server is meant for one person on their own machine. A page elsewhere on the web must not be
able to reach it: not by a name that resolves to this machine (DNS rebinding), nor by a form or a
fetch sent from another site.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterable
from typing import Any

BODY_LIMIT = 10 * 2**20
BODY_SECONDS = 20.0
QUERY_LIMIT = 8 * 2**10

HEADERS = {
    # Charts carry their colours in style attributes; nothing else is inline.
    "content-security-policy": (
        "default-src 'none'; script-src 'self'; style-src 'self' 'unsafe-inline'; "
        "img-src 'self'; connect-src 'self'; form-action 'self'; base-uri 'none'; "
        "frame-ancestors 'none'"
    ),
    "x-content-type-options": "nosniff",
    "x-frame-options": "DENY",
    "referrer-policy": "no-referrer",
    "cross-origin-resource-policy": "same-origin",
    "cross-origin-opener-policy": "same-origin",
}


class _Refused(Exception):
    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status


class Guard:
    """ASGI middleware; everything it refuses is answered as JSON."""

    def __init__(self, app: Any, hosts: Iterable[str]) -> None:
        self.app = app
        self.hosts = {host.lower() for host in hosts}

    async def __call__(self, scope: dict[str, Any], receive: Any, send: Any) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        started = False

        async def guarded_send(message: dict[str, Any]) -> None:
            nonlocal started
            if message["type"] == "http.response.start":
                started = True
                taken = {name.lower() for name, _ in message["headers"]}
                message["headers"] = [
                    *message["headers"],
                    *(
                        (name.encode(), value.encode())
                        for name, value in HEADERS.items()
                        if name.encode() not in taken
                    ),
                ]
            await send(message)

        try:
            headers = {name.lower(): value for name, value in scope["headers"]}
            self._check(scope, headers)
            await self.app(scope, _limited(receive), guarded_send)
        except _Refused as refused:
            if not started:
                await _answer(guarded_send, refused.status, str(refused))

    def _check(self, scope: dict[str, Any], headers: dict[bytes, bytes]) -> None:
        host = _host(headers.get(b"host", b"").decode("latin-1"))
        if host not in self.hosts:
            raise _Refused(
                421, f"this server answers to {', '.join(sorted(self.hosts))}; got host {host!r}."
            )
        if len(scope.get("query_string", b"")) > QUERY_LIMIT:
            raise _Refused(414, f"the address must be shorter than {QUERY_LIMIT} bytes.")
        if scope["method"] not in ("GET", "HEAD"):
            _same_site(headers, host)
        length = headers.get(b"content-length", b"0")
        if not length.isdigit() or int(length) > BODY_LIMIT:
            raise _Refused(413, f"a request body must be at most {BODY_LIMIT // 2**20} MB.")


def _same_site(headers: dict[bytes, bytes], host: str) -> None:
    if headers.get(b"sec-fetch-site", b"none") not in (b"none", b"same-origin"):
        raise _Refused(403, "requests from other sites are refused.")
    origin = headers.get(b"origin")
    if origin is not None and _host(origin.decode("latin-1").partition("://")[2]) != host:
        raise _Refused(403, "requests from other sites are refused.")


def _host(value: str) -> str:
    """The name or address alone, without a port."""
    if value.startswith("["):
        return value.partition("]")[0].lstrip("[").lower()
    return value.rpartition(":")[0].lower() if value.count(":") == 1 else value.lower()


def _limited(receive: Any) -> Any:
    """The body, refused when it grows past the limit or trickles in too slowly."""
    seen = 0
    deadline = asyncio.get_running_loop().time() + BODY_SECONDS
    finished = False

    async def limited() -> dict[str, Any]:
        nonlocal seen, finished
        if finished:
            return await receive()
        try:
            left = deadline - asyncio.get_running_loop().time()
            message = await asyncio.wait_for(receive(), max(left, 0.001))
        except TimeoutError:
            raise _Refused(
                408, f"a request body must arrive within {BODY_SECONDS:.0f} seconds."
            ) from None
        if message["type"] == "http.request":
            seen += len(message.get("body", b""))
            if seen > BODY_LIMIT:
                raise _Refused(413, f"a request body must be at most {BODY_LIMIT // 2**20} MB.")
            finished = not message.get("more_body", False)
        return message

    return limited


async def _answer(send: Any, status: int, message: str) -> None:
    body = json.dumps({"error": message}, ensure_ascii=False).encode()
    await send(
        {
            "type": "http.response.start",
            "status": status,
            "headers": [
                (b"content-type", b"application/json; charset=utf-8"),
                (b"content-length", str(len(body)).encode()),
                (b"connection", b"close"),
            ],
        }
    )
    await send({"type": "http.response.body", "body": body})
