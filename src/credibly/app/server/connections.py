"""The server's connections: how many there may be, and how long a request may take to begin."""

from __future__ import annotations

import asyncio
import atexit
import json
import os
import re
import signal
import socket
import threading
import time
from collections.abc import Callable
from typing import Any

import h11
import uvicorn
from uvicorn.protocols.http.h11_impl import H11Protocol

from credibly.app.server.guard import HEAD_LIMIT
from credibly.child_processes import end_workers

HEAD_SECONDS = 10.0
KEEP_ALIVE_SECONDS = 10
MOST_CONNECTIONS = 400
SHUTDOWN_SECONDS = 5
"""That requests have to end when the server is stopped."""
WRITE_SECONDS = 20.0

_LINE_FEED_ALONE = re.compile(rb"(?<!\r)\n")


class Connection(H11Protocol):
    """A connection with limits that uvicorn lacks.

    It is closed when the head of a request does not arrive in time, when the head has lines that
    end with LF alone (which other programs read otherwise), and when the client stops reading.
    """

    _head_timer: asyncio.TimerHandle | None = None
    _write_timer: asyncio.TimerHandle | None = None
    _unsent = 0
    _last = b""

    def connection_made(self, transport: Any) -> None:
        super().connection_made(transport)
        _send_at_once(transport)
        self._watch()
        self._write_timer = self.loop.call_later(WRITE_SECONDS, self._check_reader)

    def data_received(self, data: bytes) -> None:
        if self.conn.their_state is h11.IDLE and self._has_bare_line_feed(data):
            self._refuse("400 Bad Request", "lines of a request's head must end with CR LF.")
            return
        super().data_received(data)
        self._watch()

    def connection_lost(self, exc: Exception | None) -> None:
        self._unwatch()
        if self._write_timer is not None:
            self._write_timer.cancel()
        super().connection_lost(exc)

    def _has_bare_line_feed(self, data: bytes) -> bool:
        carried = len(self._last)
        head, end, _ = (self._last + data).partition(b"\r\n\r\n")
        self._last = b"" if end else (self._last + data)[-3:]  # a line may end in the next packet
        return _LINE_FEED_ALONE.search(head, carried) is not None

    def _check_reader(self) -> None:
        """Drop the connection if nothing of what waits to be sent was read since the last check."""
        waiting = self.transport.get_write_buffer_size()
        if waiting and waiting >= self._unsent > 0:
            self.transport.abort()
            return
        self._unsent = waiting
        self._write_timer = self.loop.call_later(WRITE_SECONDS, self._check_reader)

    def _watch(self) -> None:
        if self.conn.their_state is not h11.IDLE:  # the head is there
            self._unwatch()
        elif self._head_timer is None:
            self._head_timer = self.loop.call_later(HEAD_SECONDS, self._too_slow)

    def _unwatch(self) -> None:
        if self._head_timer is not None:
            self._head_timer.cancel()
            self._head_timer = None

    def _too_slow(self) -> None:
        self._head_timer = None
        if self.conn.their_state is h11.IDLE and not self.transport.is_closing():
            words = f"the head of a request must arrive within {HEAD_SECONDS:.0f} seconds."
            self._refuse("408 Request Timeout", words)

    def _refuse(self, status: str, words: str) -> None:
        lines = (f"HTTP/1.1 {status}", "connection: close", "content-type: application/json", "")
        text = "\r\n".join([*lines, json.dumps({"error": words})])
        self.transport.write(text.encode())
        self.transport.close()


def _send_at_once(transport: Any) -> None:
    """Send the body without waiting for the receipt of the head, which takes some 40 ms."""
    found = transport.get_extra_info("socket")
    # asyncio does this only for sockets made with the protocol's number, which ours need not be.
    if found is not None and found.family in (socket.AF_INET, socket.AF_INET6):
        found.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)


class Server(uvicorn.Server):
    """A server that stops although a thread is at work, which Python alone would wait for.

    It is bounded in connections, in the size of heads and in time.

    Args:
        app: what ``create_app`` returns.
        log_level: of uvicorn.
        owns_process: whether the process ends with the server, whatever its threads are doing.
        ready: called when the server answers.
    """

    def __init__(
        self,
        app: Any,
        *,
        log_level: str = "info",
        owns_process: bool = False,
        ready: Callable[[], None] = lambda: None,
    ) -> None:
        config = uvicorn.Config(
            app,
            http=Connection,
            ws="none",
            log_level=log_level,
            limit_concurrency=MOST_CONNECTIONS,
            timeout_keep_alive=KEEP_ALIVE_SECONDS,
            timeout_graceful_shutdown=SHUTDOWN_SECONDS,
            h11_max_incomplete_event_size=HEAD_LIMIT,
            server_header=False,
            access_log=False,
        )
        super().__init__(config)
        self._owns_process, self._ready = owns_process, ready

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Begin to answer, then say so."""
        await super().startup(sockets)
        if self.started:
            self._ready()

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Answer who waits, for a while; then end the workers and, if it may, the process."""
        if self._owns_process:
            timer = threading.Timer(2 * SHUTDOWN_SECONDS, _end_process)
            timer.daemon = True
            timer.start()
        await super().shutdown(sockets)
        end_workers()


def _end_process() -> None:
    atexit._run_exitfuncs()  # temporary folders are deleted
    os._exit(1)


def fork_workers(count: int) -> tuple[int, Callable[[], None]]:
    """Go on in ``count`` forked processes; return each one's number and how it says it is ready.

    The process that calls this stays here: it starts the others once the first is ready, replaces
    those that die, passes SIGTERM and SIGINT on, and ends after all of them.
    """
    reader, writer = os.pipe()
    numbers: dict[int, int] = {}
    stopped = 0

    def stop(received: int, _: object) -> None:
        nonlocal stopped
        stopped = received
        for process in numbers:
            os.kill(process, signal.SIGTERM)

    handled = {each: signal.signal(each, stop) for each in (signal.SIGTERM, signal.SIGINT)}

    def fork(number: int) -> bool:
        process = os.fork()
        if process:
            numbers[process] = number
            return False
        for each, before in handled.items():
            signal.signal(each, before)
        return True

    if fork(0):
        return 0, lambda: _tell(writer)
    os.close(writer)
    if not os.read(reader, 1):  # it said what is wrong
        raise SystemExit(os.waitstatus_to_exitcode(os.wait()[1]))
    for number in range(1, count):
        if fork(number):
            return number, lambda: None
    while numbers:
        number = numbers.pop(os.wait()[0])
        if not stopped:
            time.sleep(1)
            if fork(number):
                return number, lambda: None
    raise SystemExit(128 + stopped)


def _tell(writer: int) -> None:
    os.write(writer, b"1")
    os.close(writer)
