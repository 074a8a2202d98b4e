"""Hostile names, and requests as bytes."""

from __future__ import annotations

import select
import socket

MARK = "x-evil"
HOSTILE = [
    f"<{MARK}>",
    f'"><{MARK} onload=evil()>',
    f"'><{MARK}>",
    f"</title></svg></script><{MARK}>",
    f"<!--<{MARK}",
    f"]]><{MARK}>",
    "javascript:alert(1)//x-evil",
    "{{ 7 * 7 }}{% raw %}",
    '"; DROP TABLE rows_read; --',
    "' OR '1'='1",
    "p\") FROM rows_read; COPY (SELECT 1) TO 'evil.txt'; --",
    "`backtick`",
    "line\nbreak\ttab",
    "$x-evil$_{y}",
    "\\frac{1}{\u202e}",
    "%s%n%(name)s",
]


def ask(address, *pieces: bytes, pause: float = 0.0) -> bytes:
    """What the server answers to these bytes until it closes; a refusal ends the sending."""
    answer = b""
    with socket.create_connection(address, timeout=10) as raw:
        try:
            for piece in pieces:
                raw.sendall(piece)
                if pause and select.select([raw], [], [], pause)[0]:
                    answer += raw.recv(65_536)
                    if b" 408 " in answer:
                        return answer
            while more := raw.recv(65_536):
                answer += more
        except (ConnectionResetError, BrokenPipeError):
            pass  # closed before it had read everything
        return answer


def head(*lines: str, start: str = "GET /api/health HTTP/1.1", host: str = "127.0.0.1") -> bytes:
    lines = (start, f"Host: {host}", *lines, "Connection: close", "", "")
    return "\r\n".join(lines).encode("latin-1")


def status(answer: bytes) -> int:
    return int(answer.split(b" ", 2)[1])
