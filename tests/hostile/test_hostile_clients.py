"""Clients that send too many parts, or leave: nothing of it fills the log of the server."""

from __future__ import annotations

import socket
import subprocess
import sys
import time

import numpy as np
import pytest
from starlette.testclient import TestClient

import credibly as cr
from credibly.app.server import create_app

BOUNDARY = b"--x"
MOST_PARTS = 30
"""Fields of a form."""


def form(names: list[str]) -> bytes:
    parts = [
        BOUNDARY + b'\r\ncontent-disposition: form-data; name="' + name.encode() + b'"\r\n\r\n1\r\n'
        for name in names
    ]
    return b"".join(parts) + BOUNDARY + b"--\r\n"


@pytest.mark.parametrize("names", [["a"] * (MOST_PARTS + 1), list(map(str, range(MOST_PARTS + 1)))])
def test_parts_are_counted_whatever_their_names(names):
    client = TestClient(create_app([]), base_url="http://localhost")
    kind = {"content-type": "multipart/form-data; boundary=x"}
    for given, words in ((names[:MOST_PARTS], "choose a file first"), (names, "at most 30 fields")):
        answer = client.post("/import", content=form(given), headers=kind)
        assert answer.status_code == 400
        assert words in answer.text


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    """The port of ``credibly serve``, and the file that its messages go to."""
    folder = tmp_path_factory.mktemp("clients")
    rng = np.random.default_rng(0)
    cr.Predictions.from_arrays(
        probabilities=rng.random((50, 2)), targets=rng.integers(0, 2, (50, 2)), labels=["a", "b"]
    ).write(folder / "p.parquet")
    with (folder / "log").open("wb") as log:
        process = subprocess.Popen(
            [sys.executable, "-m", "credibly", "serve", "p.parquet", "--port", "0"],
            cwd=folder,
            stdout=subprocess.PIPE,
            stderr=log,
            text=True,
        )
        try:
            assert process.stdout is not None
            yield int(process.stdout.readline().split()[0].rpartition(":")[2]), folder / "log"
        finally:
            process.terminate()
            process.communicate(timeout=60)


REQUESTS = {
    "half a body": b"POST /import HTTP/1.1\r\nhost: localhost\r\ncontent-length: 500\r\n\r\nabc",
    "half an API body": (
        b"POST /api/predict HTTP/1.1\r\nhost: localhost\r\ncontent-length: 500\r\n"
        b"content-type: application/json\r\n\r\n{"
    ),
    "half a chunk": (
        b"POST /try HTTP/1.1\r\nhost: localhost\r\ntransfer-encoding: chunked\r\n\r\n5\r\nab"
    ),
    "no answer read": b"GET / HTTP/1.1\r\nhost: localhost\r\n\r\n",
    "half a head": b"GET / HTTP/1.1\r\nhost: loc",
}


@pytest.mark.parametrize("case", REQUESTS)
def test_a_client_that_leaves_causes_no_traceback(case, server):
    port, log = server
    for _ in range(3):
        with socket.create_connection(("127.0.0.1", port), timeout=60) as connection:
            connection.sendall(REQUESTS[case])
            time.sleep(0.1)
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
    with socket.create_connection(("127.0.0.1", port), timeout=60) as connection:
        connection.sendall(b"GET /api/health HTTP/1.1\r\nhost: localhost\r\n\r\n")
        assert connection.recv(15).startswith(b"HTTP/1.1 200")
    time.sleep(0.3)
    text = log.read_text("utf-8")
    assert "Traceback" not in text, text
