"""The server's connections: how many there may be, and how long a request may take to begin."""

from __future__ import annotations

import asyncio
import socket
from typing import Any

import h11
import uvicorn
from uvicorn.protocols.http.h11_impl import H11Protocol

from credibly.serve._guard import HEAD_LIMIT

HEAD_SECONDS = 10.0
KEEP_ALIVE_SECONDS = 10
MOST_CONNECTIONS = 400

_TOO_SLOW = (
    b"HTTP/1.1 408 Request Timeout\r\nconnection: close\r\ncontent-type: application/json\r\n\r\n"
    b'{"error": "the head of a request must arrive within %d seconds."}'
)


class Connection(H11Protocol):
    """Closed when a request's head does not arrive in time; uvicorn alone would wait for ever."""

    _head_timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: Any) -> None:
        super().connection_made(transport)
        _send_at_once(transport)
        self._watch()

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        self._watch()

    def connection_lost(self, exc: Exception | None) -> None:
        self._unwatch()
        super().connection_lost(exc)

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
            self.transport.write(_TOO_SLOW % HEAD_SECONDS)
            self.transport.close()


def _send_at_once(transport: Any) -> None:
    """Head and body are written apart; else the body waits for the head's receipt, some 40 ms."""
    found = transport.get_extra_info("socket")
    # asyncio does this only for sockets made with the protocol's number, which ours need not be.
    if found is not None and found.family in (socket.AF_INET, socket.AF_INET6):
        found.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)


def server(app: Any, *, log_level: str = "info") -> uvicorn.Server:
    """A server for ``app``, bounded in connections, in the size of heads and in time."""
    config = uvicorn.Config(
        app,
        http=Connection,
        ws="none",
        log_level=log_level,
        limit_concurrency=MOST_CONNECTIONS,
        timeout_keep_alive=KEEP_ALIVE_SECONDS,
        h11_max_incomplete_event_size=HEAD_LIMIT,
        server_header=False,
        access_log=False,
    )
    return uvicorn.Server(config)
