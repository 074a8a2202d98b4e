"""What stands in front of every request: host, origin, size, time, headers.

The server is meant for one person on their own machine. A page elsewhere on the web must not be
able to reach it: not by a name that resolves to this machine (DNS rebinding), nor by a form, a
fetch or an embedded image. It may link to it: a person who follows the link sees the page.
"""

from __future__ import annotations

import asyncio
import mmap
import re
import time
from collections.abc import Coroutine, Iterable
from ipaddress import ip_address
from typing import TYPE_CHECKING, Any

import numpy as np
from starlette.datastructures import MutableHeaders
from starlette.requests import ClientDisconnect
from starlette.responses import HTMLResponse, JSONResponse, Response
from starlette.types import Message, Receive, Scope, Send

from credibly.app.rendering import environment

if TYPE_CHECKING:
    from fastapi import FastAPI

BODY_LIMIT = 10 * 2**20
BODIES_LIMIT = 64 * 2**20
"""Bytes of all request bodies that are held at once."""
BODY_SECONDS = 20.0
QUERY_LIMIT = 8 * 2**10
HEAD_LIMIT = 32 * 2**10
REQUEST_SECONDS = 60.0
MOST_REQUESTS = 128
QUEUES = {
    "search": (3, 48),
    "predict": (32, 32),
    "file": (8, 64),
    "page": (2, 32),
    "review": (4, 64),
    "upload": (4, 16),
}
"""By kind of request: how many are worked on at once, and how many may be there with those waiting.

One kind cannot take all the threads, so that slow searches do not keep pages and images waiting.
Of predictions the model itself lets a few in at once (``ServedModel.in_turn``).
"""
ALWAYS = ("/api/health", "/api/ready", "/metrics")
"""Answered by the event loop, whatever is worked on."""
EVERYWHERE = {"0.0.0.0", "::"}
"""Hosts that stand for every address of the machine."""
ONCE = (b"host", b"content-length", b"origin", b"sec-fetch-site")
_AUTHORITY = re.compile(r"(?:\[([0-9a-f:.]+)\]|([^:\[\]@/]+))(?::[0-9]{1,5})?")

HEADERS = {
    # Charts carry their colours in style attributes; nothing else is inline.
    "content-security-policy": (
        "default-src 'none'; script-src 'self'; style-src 'self' 'unsafe-inline'; "
        "img-src 'self'; connect-src 'self'; form-action 'self'; base-uri 'none'; "
        "frame-ancestors 'none'"
    ),
    "x-content-type-options": "nosniff",
    "x-frame-options": "DENY",
    "referrer-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "cross-origin-opener-policy": "same-origin",
}


class _Refused(Exception):
    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status


class Guard:
    """ASGI middleware; what it refuses is answered as JSON, to a form as a page.

    Args:
        app: what answers the others.
        hosts: names that it answers to. With 0.0.0.0 or :: every address in digits is one: no
            other site can lead a browser to it under a name of its own.
        first_page: path of the page to begin with; empty for the home page.
        root_path: what a proxy puts before every path, such as ``/credibly``; it may strip it.

    Attributes:
        counters: of requests, for ``/metrics``.
    """

    def __init__(
        self, app: FastAPI, hosts: Iterable[str], first_page: str = "", root_path: str = ""
    ) -> None:
        self.app = app
        self.first_page, self.root_path = first_page, root_path
        self.hosts = {host.lower() for host in hosts}
        self.counters = Counters()
        self._tasks: set[asyncio.Future[None]] = set()
        self._queues = {kind: _Requests(*limits) for kind, limits in QUEUES.items()}
        self.held = 0

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "websocket":
            await send({"type": "websocket.close", "code": 1008})
            return
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        root, path = self.root_path, scope["path"]
        if root and (path == root or path.startswith(f"{root}/")):
            scope = {**scope, "path": path[len(root) :] or "/"}
        answer = _GuardAnswer(scope, receive, send, root)
        if scope["method"] == "HEAD":  # answered as GET, without the body
            scope = {**scope, "method": "GET"}
        body = _Body(receive, answer, self)
        try:
            self._check(scope, _headers(scope))
            if scope["path"] == "/metrics":
                text = self.counters.text(self.app.state.ready)
                await answer.finish(Response(text, media_type="text/plain; version=0.0.4"))
            elif scope["path"] in ALWAYS:
                await self.app(scope, body.receive, answer.send)
            else:
                await self._counted(scope, body, answer)
        except _Refused as refused:
            await answer.refuse(refused)
        except ClientDisconnect:
            pass  # nobody waits for an answer

    async def _counted(self, scope: Scope, body: _Body, answer: _GuardAnswer) -> None:
        kind, begin = _kind(scope["path"]), time.monotonic()
        self.counters.add(kind, "in progress")
        try:
            await self._bounded(kind, scope, body, answer)
        except _Refused as refused:
            await answer.refuse(refused)
        finally:
            self.counters.add(kind, "in progress", -1)
            self.counters.add(kind, "seconds", time.monotonic() - begin)
            self.counters.add(kind, f"{answer.status // 100}xx")

    async def _bounded(self, kind: str, scope: Scope, body: _Body, answer: _GuardAnswer) -> None:
        """Work on a request, one of so many, for so long."""
        if len(self._tasks) >= MOST_REQUESTS:
            raise _Refused(503, f"{MOST_REQUESTS} requests are being worked on; try again soon.")
        queue = self._queues[kind]
        if queue.inside >= queue.most:
            raise _Refused(503, f"{queue.most} {kind} requests are waiting; try again soon.")
        scope["deadline"] = asyncio.get_running_loop().time() + REQUEST_SECONDS
        work = self.app(scope, body.receive, answer.send)
        task = asyncio.ensure_future(queue.in_turn(work))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        task.add_done_callback(lambda _: body.release())
        await asyncio.wait({task}, timeout=REQUEST_SECONDS)
        if task.done():
            task.result()
            return
        # Work in a thread cannot be stopped: it ends by the bounds on its size, and counts among
        # the requests until then. Work that still waits for a thread is not begun (`state_of`).
        task.add_done_callback(_forget)
        raise _Refused(503, f"this request took longer than {REQUEST_SECONDS:.0f} seconds.")

    def _check(self, scope: Scope, headers: dict[bytes, bytes]) -> None:
        if scope.get("http_version", "1.1") not in ("1.0", "1.1"):
            raise _Refused(505, "this server speaks HTTP/1.0 and HTTP/1.1.")
        if b"content-length" in headers and b"transfer-encoding" in headers:
            raise _Refused(400, "a request must not have Content-Length and Transfer-Encoding.")
        host = _host(headers.get(b"host", b"").decode("latin-1"))
        if host not in self.hosts and not (self.hosts & EVERYWHERE and _is_address(host)):
            raise _Refused(
                421,
                f"this server answers to {', '.join(sorted(self.hosts))}; got host {host!r}. Start "
                "it with --allow-host to add a name.",
            )
        if len(scope.get("query_string", b"")) > QUERY_LIMIT:
            raise _Refused(414, f"the address must be shorter than {QUERY_LIMIT} bytes.")
        if not _followed_link(scope, headers):
            _same_site(headers)
        length = headers.get(b"content-length", b"0")
        if not length.isdigit() or len(length) > 20 or int(length) > BODY_LIMIT:
            raise _Refused(413, f"a request body must be at most {BODY_LIMIT // 2**20} MB.")


class _Requests:
    """Requests of one kind: some at work, the others wait."""

    def __init__(self, at_once: int, most: int) -> None:
        self.most, self.inside = most, 0
        self._slots = asyncio.Semaphore(at_once)

    async def in_turn(self, work: Coroutine[Any, Any, None]) -> None:
        """Do the work when it is its turn."""
        self.inside += 1
        try:
            async with self._slots:
                await work
        finally:
            self.inside -= 1
            work.close()  # of work that was never begun


def _kind(path: str) -> str:
    if path in ("/", "/explore", "/api/search", "/compare"):
        return "search"
    if path.startswith(("/api/predict", "/api/scores")) or path == "/try":
        return "predict"
    if path.startswith("/import"):
        return "upload"
    if path == "/api/reviews":
        return "review"
    return "file" if path.startswith(("/image", "/static/")) else "page"


def _is_page(scope: Scope) -> bool:
    """Return whether a browser asks, for a page and not for data."""
    accepts = dict(scope["headers"]).get(b"accept", b"")
    return b"text/html" in accepts and not scope["path"].startswith("/api/")


def _forget(task: asyncio.Future[None]) -> None:
    """Take note of how abandoned work ended, so that asyncio does not report it."""
    if not task.cancelled():
        task.exception()


def _headers(scope: Scope) -> dict[bytes, bytes]:
    """Return headers by name; those that decide something must come once."""
    size = sum(len(name) + len(value) for name, value in scope["headers"])
    if size + len(scope.get("raw_path") or b"") > HEAD_LIMIT:
        raise _Refused(431, f"the head of a request must be at most {HEAD_LIMIT // 2**10} kB.")
    names = [name.lower() for name, _ in scope["headers"]]
    for name in ONCE:
        if names.count(name) > 1:
            raise _Refused(400, f"the header {name.decode()} must come once.")
    return {name.lower(): value for name, value in scope["headers"]}


def _followed_link(scope: Scope, headers: dict[bytes, bytes]) -> bool:
    """A person went to a page, from wherever; nothing else may come from another site."""
    reads = scope["method"] in ("GET", "HEAD") and not scope["path"].startswith("/api/")
    goes = headers.get(b"sec-fetch-mode") == b"navigate"
    return reads and goes and headers.get(b"sec-fetch-dest") == b"document"


def _same_site(headers: dict[bytes, bytes]) -> None:
    if headers.get(b"sec-fetch-site", b"none") not in (b"none", b"same-origin"):
        raise _Refused(403, "requests from other sites are refused.")
    origin = headers.get(b"origin")  # with its port: another program here is another site
    if origin is not None and origin.partition(b"://")[2].lower() != headers[b"host"].lower():
        raise _Refused(403, "requests from other sites are refused.")


def _host(value: str) -> str:
    """Return the name or address alone, without a port; empty for what is neither.

    Example:
        >>> _host("LocalHost:8000"), _host("[::1]:80"), _host("[::1]evil"), _host("localhost:x")
        ('localhost', '::1', '', '')
    """
    found = _AUTHORITY.fullmatch(value.lower())
    return (found[1] or found[2]) if found else ""


def _is_address(host: str) -> bool:
    try:
        ip_address(host)
    except ValueError:
        return False
    return True


class _Body:
    """The request's body, refused when it grows past the limit or trickles in too slowly."""

    def __init__(self, receive: Receive, answer: _GuardAnswer, guard: Guard) -> None:
        self._receive, self._answer, self._guard = receive, answer, guard
        self._seen, self._finished = 0, False
        self._deadline = asyncio.get_running_loop().time() + BODY_SECONDS

    async def receive(self) -> Message:
        if self._finished:
            return await self._receive()
        try:
            left = self._deadline - asyncio.get_running_loop().time()
            message = await asyncio.wait_for(self._receive(), max(left, 0.001))
        except TimeoutError:
            await self._refuse(408, f"a body must arrive within {BODY_SECONDS:.0f} seconds.")
            raise AssertionError("refused above") from None
        if message["type"] == "http.request":
            self._seen += len(message.get("body", b""))
            self._guard.held += len(message.get("body", b""))
            self._finished = not message.get("more_body", False)
            if self._seen > BODY_LIMIT:
                await self._refuse(413, f"a body must be at most {BODY_LIMIT // 2**20} MB.")
            if self._guard.held > BODIES_LIMIT:
                await self._refuse(503, "other requests hold too much memory; try again soon.")
        return message

    def release(self) -> None:
        """Take this body's bytes out of the total: its request has ended."""
        self._guard.held -= self._seen
        self._seen = 0

    async def _refuse(self, status: int, message: str) -> None:
        # Answered here and now: the framework would turn the exception into an answer of its own.
        refused = _Refused(status, message)
        await self._answer.refuse(refused)
        raise refused


_ADDRESS = re.compile(r'\b(href|src|action|formaction|data-poll)="/')


def below_root(page: str, root_path: str) -> str:
    """Return a page whose links, forms and files lie below ``root_path``.

    Pages and charts write addresses as if the app had a host of its own; this is the one place
    that knows better. Names from files cannot look like an attribute: their quotes are escaped.

    Example:
        >>> below_root('<a href="/labels">', "/credibly")
        '<a href="/credibly/labels">'
    """
    return _ADDRESS.sub(rf'\1="{root_path}/', page) if root_path else page


class _GuardAnswer:
    """The response, with the guard's headers; once refused, whatever else comes is dropped."""

    def __init__(self, scope: Scope, receive: Receive, send: Send, root_path: str) -> None:
        self._scope, self._receive, self._send = scope, receive, send
        self._root_path = root_path
        self.status = 500
        self._started = self._refused = False

    async def send(self, message: Message) -> None:
        if self._refused:
            return
        if message["type"] == "http.response.start":
            self._started, self.status = True, message["status"]
            headers = MutableHeaders(raw=list(message["headers"]))
            for name, value in HEADERS.items():
                headers.setdefault(name, value)
            if headers.get("location", "").startswith("/"):
                headers["location"] = self._root_path + headers["location"]
            message = {**message, "headers": headers.raw}
        elif self._scope["method"] == "HEAD" and message["type"] == "http.response.body":
            message = {**message, "body": b""}
        await self._send(message)

    async def finish(self, response: Response) -> None:
        """Send a whole answer; what is refused closes the connection."""
        if response.status_code >= 400:
            response.headers["connection"] = "close"
        if response.status_code == 503:
            response.headers["retry-after"] = "2"
        await response(self._scope, self._receive, self.send)

    async def refuse(self, refused: _Refused) -> None:
        if self._started:
            return
        if _is_page(self._scope):
            page = environment().get_template("refused.html").render(message=str(refused))
            text = below_root(page, self._root_path)
            await self.finish(HTMLResponse(text, refused.status))
        else:
            await self.finish(JSONResponse({"error": str(refused)}, refused.status))
        self._refused = True


STATUSES = ("2xx", "3xx", "4xx", "5xx")
COLUMNS = (*STATUSES, "seconds", "in progress")


class Counters:
    """Counts by kind of request, in memory that so many forked processes share."""

    def __init__(self, workers: int = 1) -> None:
        shape = (workers, len(QUEUES), len(COLUMNS))
        memory = mmap.mmap(-1, 8 * int(np.prod(shape)))
        self._values = np.frombuffer(memory, dtype=np.float64).reshape(shape)
        self.start(0)

    def start(self, worker: int) -> None:
        """Count as this worker from now on; nothing is in progress in it."""
        self._own = self._values[worker]
        self._own[:, COLUMNS.index("in progress")] = 0

    def add(self, kind: str, column: str, value: float = 1) -> None:
        """Add to one of ``COLUMNS`` of a kind of request."""
        self._own[list(QUEUES).index(kind), COLUMNS.index(column)] += value

    def text(self, ready: bool) -> str:
        """Return all values as Prometheus reads them."""
        running, counted, timed = [], [], []
        for kind, row in zip(QUEUES, self._values.sum(axis=0).tolist(), strict=True):
            *counts, seconds, now = row
            running.append(f'credibly_requests_in_progress{{kind="{kind}"}} {now:.0f}')
            for status, count in zip(STATUSES, counts, strict=True):
                labels = f'kind="{kind}",status="{status}"'
                counted.append(f"credibly_requests_total{{{labels}}} {count:.0f}")
            timed.append(f'credibly_request_seconds_sum{{kind="{kind}"}} {seconds:.6f}')
            timed.append(f'credibly_request_seconds_count{{kind="{kind}"}} {sum(counts):.0f}')
        lines = [
            "# TYPE credibly_ready gauge",
            f"credibly_ready {int(ready)}",
            "# TYPE credibly_requests_in_progress gauge",
            *running,
            "# TYPE credibly_requests_total counter",
            *counted,
            "# TYPE credibly_request_seconds summary",
            *timed,
        ]
        return "\n".join(lines) + "\n"
