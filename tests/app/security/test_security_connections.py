"""Slow, many, huge and ambiguous requests: refused, and others are answered meanwhile."""

from __future__ import annotations

import socket
import time

import h11
import httpx
import pytest
from attacks import ask, head, status

from credibly.app.server import connections, guard

# Slow, many, large ---------------------------------------------------------------------------


def test_answers_do_not_wait_for_receipts(served, client):
    """A head and a body sent apart would: the second waits until the client confirms the first."""
    assert client.get("/api/health").status_code == 200
    (ours,) = served.server_state.connections
    socket_of_ours = ours.transport.get_extra_info("socket")
    assert socket_of_ours.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY) == 1


def test_a_body_that_trickles_is_refused(address):
    start = time.monotonic()
    request = head("Content-Length: 1000", start="POST /api/predict HTTP/1.1")
    answer = ask(address, request, *[b" "] * 8, pause=0.15)
    assert status(answer) == 408
    assert time.monotonic() - start < 5


@pytest.mark.parametrize("pieces", [[], [b"GET / HT"], [b"GET / HTTP/1.1\r\n", *[b"A: b\r\n"] * 8]])
def test_a_head_that_trickles_is_refused(address, pieces):
    assert status(ask(address, *pieces, pause=0.15)) == 408


def test_a_second_head_that_trickles_is_refused(address):
    first = b"GET /api/health HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n"
    answer = ask(address, first, b"GET ", *[b"/"] * 8, pause=0.15)
    assert answer.startswith(b"HTTP/1.1 200")
    assert b"HTTP/1.1 408" in answer


def test_idle_connections_do_not_keep_others_out(address, client):
    idle = [socket.create_connection(address, timeout=10) for _ in range(300)]
    try:
        assert client.get("/api/health").status_code == 200
        more = [socket.create_connection(address, timeout=10) for _ in range(150)]
        idle += more
        time.sleep(1.0)  # past the patience: all of them are closed
        with httpx.Client(base_url=client.base_url) as other:
            assert other.get("/api/health").status_code == 200
    finally:
        for one in idle:
            one.close()


def test_a_client_that_never_reads_is_dropped(served, address):
    """Requests are sent without reading an answer, until nothing more can be written to us."""
    request = b"GET /docs HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n"
    with socket.socket() as deaf:
        deaf.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 2048)
        deaf.settimeout(20)
        deaf.connect(address)
        mine = deaf.getsockname()
        deaf.sendall(request * 500)
        deadline = time.monotonic() + 8  # keep-alive would end an idle connection later

        def held():
            ours = list(served.server_state.connections)
            return any(one.client == mine for one in ours)

        while not held():
            assert time.monotonic() < deadline, "the connection was not accepted"
            time.sleep(0.02)
        while held():
            assert time.monotonic() < deadline, "the connection is kept for ever"
            time.sleep(0.1)


@pytest.mark.parametrize(
    "request_head",
    [
        head("X: " + "a" * 40_000),
        head(*[f"X-{i}: {'a' * 100}" for i in range(500)]),
        head(start="GET /" + "a" * 40_000 + " HTTP/1.1"),
        head(start="GET /api/search?q=" + "a" * 9_000 + " HTTP/1.1"),
    ],
)
def test_huge_heads_are_refused(address, request_head):
    answer = ask(address, request_head)
    assert not answer or status(answer) in (400, 414, 431)  # or closed before all was sent
    assert status(ask(address, head())) == 200


# Ambiguous -----------------------------------------------------------------------------------

AMBIGUOUS = {
    "two hosts": head("Host: 127.0.0.1"),
    "a good host, then a bad one": head("Host: evil.example"),
    "a bad host, then a good one": head("Host: 127.0.0.1", host="evil.example"),
    "no host": b"GET /api/health HTTP/1.1\r\nConnection: close\r\n\r\n",
    "no host, old protocol": b"GET /api/health HTTP/1.0\r\n\r\n",
    "two lengths": head("Content-Length: 1", "Content-Length: 2"),
    "a negative length": head("Content-Length: -1"),
    "a length of 5000 digits": head("Content-Length: " + "9" * 5000),
    "a signed length": head("Content-Length: +5"),
    "a blank before the colon": head("Content-Length : 5"),
    "a bare carriage return": head("X: a\rHost: evil.example"),
    "a null byte": head("X: a\0b"),
    "a blank in the target": head(start="GET /api/health evil HTTP/1.1"),
    "the protocol of another service": b"EHLO localhost\r\n\r\n",
    "TLS": bytes.fromhex("160301020001"[:12]) + b"\r\n\r\n",
    "HTTP/2": b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
    "an unknown version": head(start="GET /api/health HTTP/3.7"),
    "a length and an encoding": head("Content-Length: 5", "Transfer-Encoding: chunked"),
    "lines that end with LF alone": head().replace(b"\r\n", b"\n"),
    "one line that ends with LF alone": head("X: a\nY: b"),
}


@pytest.mark.parametrize("request_head", AMBIGUOUS.values(), ids=AMBIGUOUS)
def test_ambiguous_requests_are_refused(address, request_head):
    answered = status(ask(address, request_head))
    assert 400 <= answered < 500 or answered == 505


@pytest.mark.parametrize(
    "start",
    [
        "GET http://evil.example/api/health HTTP/1.1",
        "GET //evil.example/labels/ HTTP/1.1",
        "GET /%2f%2fevil.example/ HTTP/1.1",
        "GET /labels%0d%0aSet-Cookie:evil=1/ HTTP/1.1",
        "CONNECT evil.example:80 HTTP/1.1",
        "TRACE / HTTP/1.1",
        "OPTIONS * HTTP/1.1",
        "GET * HTTP/1.1",
    ],
)
def test_odd_targets_lead_nowhere(address, start):
    answer = ask(address, head(start=start))
    assert 400 <= status(answer) < 500
    before = answer.partition(b"\r\n\r\n")[0].lower()
    assert b"location:" not in before
    assert b"\r\nset-cookie" not in before


def test_redirects_stay_here_and_on_one_line(address):
    answer = ask(address, head(start="GET /labels/?q=%0d%0aSet-Cookie:%20evil=1 HTTP/1.1"))
    before = answer.partition(b"\r\n\r\n")[0].lower()
    assert b"\r\nset-cookie" not in before
    if b"location:" in before:
        assert b"location: http://127.0.0.1/labels" in before


def test_a_second_request_in_the_body_is_not_answered(address):
    inner = head(start="GET /api/labels HTTP/1.1")
    both = head("Transfer-Encoding: chunked", "Content-Length: 5", start="POST /x HTTP/1.1")
    answer = ask(address, both + b"0\r\n\r\n" + inner)
    assert answer.count(b"HTTP/1.1 ") == 1


@pytest.mark.parametrize("path", [
    "/static/../guard.py", "/static/..%2f_guard.py", "/static/%2e%2e/guard.py",
    "/static/..%5c_guard.py", "/static//etc/passwd", "/../../etc/passwd", "/%2e%2e/%2e%2e/etc",
    "/static/app.js%00.css", "/image?id=..%2f..%2fetc%2fpasswd", "/image?id=%2Fetc%2Fpasswd",
    "/image?id=..%255cevil.png", "/image?id=file:///etc/passwd", "/image?id=~/.ssh/id.png",
    "/image?id=.", "/image?id=%C0%AE%C0%AE%2Fevil.png", "/image?id=a%0d%0ab.png",
])  # fmt: skip
def test_paths_do_not_escape(address, path):
    answer = ask(address, head(start=f"GET {path} HTTP/1.1"))
    assert status(answer) in (400, 404, 422)
    assert b"root:" not in answer
    assert b"import asyncio" not in answer


# What is used of uvicorn ---------------------------------------------------------------------


def test_uvicorn_has_what_the_connection_uses(served, address):
    """Our connection replaces methods of uvicorn's: they are called, and their state is there."""
    with socket.create_connection(address, timeout=10) as one:
        mine, deadline = one.getsockname(), time.monotonic() + 10
        while not (found := [c for c in served.server_state.connections if c.client == mine]):
            assert time.monotonic() < deadline, "the connection is not among uvicorn's"
            time.sleep(0.01)
        (ours,) = found
        assert isinstance(ours, connections.Connection)
        assert isinstance(ours.conn, h11.Connection), "uvicorn reads heads with h11"
        assert ours.conn.their_state is h11.IDLE
        assert ours._head_timer is not None, "connection_made was called"
        assert ours._write_timer is not None
        one.sendall(b"GET /api/health HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n")
        assert one.recv(4096).startswith(b"HTTP/1.1 200"), "data_received was called"
    while ours in list(served.server_state.connections):
        assert time.monotonic() < deadline, "connection_lost was not called"
        time.sleep(0.01)
    assert ours._write_timer.cancelled()
    assert ours._head_timer is None or ours._head_timer.cancelled()


def test_uvicorn_takes_our_settings(served):
    """Settings that uvicorn no longer knows would raise; these must also arrive."""
    assert served.config.http_protocol_class is connections.Connection
    assert served.config.limit_concurrency == connections.MOST_CONNECTIONS
    assert served.config.h11_max_incomplete_event_size == guard.HEAD_LIMIT
    assert served.config.timeout_keep_alive == connections.KEEP_ALIVE_SECONDS
