"""An image that somebody uploads cannot hold the server: not its memory, its time or its end."""

from __future__ import annotations

import signal
import socket
import subprocess
import sys
import textwrap

import numpy as np
import pytest
from hostile_images import ALLOWED, REFUSED
from starlette.testclient import TestClient

from credibly.app.server import create_app
from credibly.child_processes import end_workers
from credibly.data import Data
from credibly.train import fit, recipe


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """The folder of a run on 16 × 16 images."""
    folder = tmp_path_factory.mktemp("served")
    rng = np.random.default_rng(0)
    targets = (rng.random((60, 3)) < 0.5).astype(np.int8)
    images = rng.integers(0, 256, (60, 16, 16), dtype=np.uint8)
    data = Data(["a", "b", "c"], targets, images=images, split=np.arange(60) % 3)
    fit(data, recipe(model="cnn", hidden=4, epochs=1), folder=folder / "run")
    return folder / "run"


def app(run):
    return TestClient(create_app([run / "predictions.parquet"], run=run, hosts=["testserver"]))


@pytest.fixture(scope="module")
def client(run):
    with app(run) as found:
        yield found


def through_api(client, content):
    headers = {"content-type": "application/octet-stream"}
    answer = client.post("/api/predict/image", content=content, headers=headers)
    return answer.status_code, answer.json().get("error", "")


def through_page(client, content):
    answer = client.post("/try", files={"file": ("x.png", content)})
    return answer.status_code, answer.text


@pytest.mark.parametrize("post", [through_api, through_page])
@pytest.mark.parametrize("case", REFUSED)
def test_what_must_not_be_decoded_is_refused(client, post, case):
    content, words = REFUSED[case]
    status, text = post(client, content)
    assert status == 400
    assert words in text


@pytest.mark.parametrize("case", ALLOWED)
def test_other_images_are_predicted(client, case):
    assert through_api(client, ALLOWED[case]) == (200, "")


def test_a_decoder_that_does_not_end_is_ended(run, monkeypatch):
    monkeypatch.setattr("credibly.app.server.image_worker.SECONDS", 0.01)
    status, text = through_api(app(run), ALLOWED["PNG"])
    assert status == 400
    assert "must be an image that decodes within 10 seconds" in text


def test_a_decoder_goes_on_after_a_worker_has_ended(client):
    for _ in range(2):
        assert through_api(client, ALLOWED["PNG"]) == (200, "")
        end_workers()
        through_api(client, ALLOWED["PNG"])
        through_api(client, ALLOWED["PNG"])


def test_the_process_ends_although_a_thread_is_at_work():
    """Python waits for its threads, and a thread cannot be stopped."""
    program = """
    import socket, threading, time
    from anyio import to_thread
    from credibly.app.server.connections import Server
    from credibly.app.server import connections

    connections.SHUTDOWN_SECONDS = 1

    async def app(scope, receive, send):
        if scope["type"] == "http":
            print("working", flush=True)
            await to_thread.run_sync(time.sleep, 10_000)

    listener = socket.socket()
    listener.bind(("127.0.0.1", 0))
    listener.listen()
    print(listener.getsockname()[1], flush=True)
    Server(app, log_level="error", owns_process=True).run(sockets=[listener])
    """
    process = subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(program)], stdout=subprocess.PIPE, text=True
    )
    try:
        assert process.stdout is not None
        port = int(process.stdout.readline())
        with socket.create_connection(("127.0.0.1", port), timeout=60) as connection:
            connection.sendall(b"GET / HTTP/1.1\r\nhost: x\r\n\r\n")
            assert process.stdout.readline() == "working\n"
            process.send_signal(signal.SIGTERM)
            process.wait(timeout=60)
    finally:
        process.kill()
        process.communicate()
