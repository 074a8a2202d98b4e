"""A server whose labels, ids and file name are all attacks."""

from __future__ import annotations

import socket
import threading
import time

import httpx
import numpy as np
import pytest
from attacks import HOSTILE, MARK

from credibly import Predictions
from credibly.app.server import connections, create_app, guard


@pytest.fixture(scope="module")
def hostile(tmp_path_factory):
    """Predictions whose labels, ids and file name are all attacks."""
    folder = tmp_path_factory.mktemp("hostile")
    rng = np.random.default_rng(0)
    p = rng.random((80, len(HOSTILE))).astype(np.float32)
    targets = (rng.random(p.shape) < p).astype(np.int8)
    targets[0], targets[1], targets[:, 3] = 0, -1, 0
    ids = [f"{HOSTILE[i % len(HOSTILE)]}{i}" for i in range(len(p))]
    path = folder / f"it's <{MARK}> *[a]?.parquet"
    made = Predictions.from_arrays(probabilities=p, targets=targets, labels=HOSTILE, ids=ids)
    made.write(path)
    return path


@pytest.fixture(scope="module")
def served(hostile):
    """The server as the command starts it, but with less patience."""
    listener = socket.create_server(("127.0.0.1", 0))
    images = hostile.parent / "images"
    images.mkdir()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(connections, "HEAD_SECONDS", 0.6)
        patch.setattr(guard, "BODY_SECONDS", 0.6)
        patch.setattr(connections, "WRITE_SECONDS", 0.6)
        served = connections.Server(create_app([hostile, hostile], images=images))
        served.config.log_level = "error"  # a failing test shows what the server wrote
        served.config.configure_logging()
        thread = threading.Thread(target=served.run, args=([listener],), daemon=True)
        thread.start()
        while not served.started:
            time.sleep(0.02)
        yield served
        served.should_exit = True
        thread.join(10)


@pytest.fixture(scope="module")
def address(served):
    return "127.0.0.1", served.servers[0].sockets[0].getsockname()[1]


@pytest.fixture(scope="module")
def client(address):
    with httpx.Client(base_url=f"http://127.0.0.1:{address[1]}", timeout=30) as client:
        yield client
