"""A served run under attack: memory and health of the real server, in a process of its own."""

from __future__ import annotations

import io
import json
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import httpx
import numpy as np
import pytest
from PIL import Image

from credibly.data import Data
from credibly.train import fit, recipe

BODY_LIMIT = 10 * 2**20
MOST_VALUES = 2_000_000
"""Bytes of a request, and numbers that it may hold."""

MEGABYTES = 200
"""What an attack may add to the largest memory the server ever had."""

pytestmark = pytest.mark.skipif(
    not Path("/proc/self/status").exists(), reason="memory is read from /proc"
)


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    """The address and process id of ``credibly serve --run`` with a run on 16 × 16 images."""
    folder = tmp_path_factory.mktemp("attacked")
    rng = np.random.default_rng(0)
    targets = (rng.random((60, 3)) < 0.5).astype(np.int8)
    images = rng.integers(0, 256, (60, 16, 16), dtype=np.uint8)
    data = Data(["a", "b", "c"], targets, images=images, split=np.arange(60) % 3)
    run = fit(data, recipe(model="cnn", hidden=4, epochs=1), folder=folder / "run")
    run.predict(data).write(folder / "predictions.parquet")
    arguments = ["serve", "predictions.parquet", "--run", "run", "--port", "0"]
    process = subprocess.Popen(
        [sys.executable, "-m", "credibly", *arguments],
        cwd=folder,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )
    try:
        assert process.stdout is not None
        address = process.stdout.readline().split()[0]
        _wait_for(address)
        warm = post_image(address, png(16, 16))  # the first prediction loads what all need
        assert warm.status_code == 200, warm.text
        yield address, process.pid
    finally:
        process.terminate()
        process.communicate(timeout=60)


def _wait_for(address):
    deadline = time.monotonic() + 120
    while True:
        try:
            httpx.get(f"{address}/api/health", timeout=120)
            return
        except httpx.ConnectError:
            assert time.monotonic() < deadline, "the server did not start"
            time.sleep(0.1)


def memory(pid, name="VmHWM"):
    """Megabytes of resident memory: the largest so far, or now (VmRSS)."""
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return next(int(line.split()[1]) / 1024 for line in lines if line.startswith(name))


def png(width, height):
    file = io.BytesIO()
    Image.new("L", (width, height), 128).save(file, "PNG")
    return file.getvalue()


def post_image(address, content):
    headers = {"content-type": "application/octet-stream"}
    return httpx.post(f"{address}/api/predict/image", content=content, headers=headers, timeout=120)


def health(address):
    """Seconds until health is answered, the best of three: others may use this machine."""
    seconds = []
    for _ in range(3):
        begin = time.monotonic()
        assert httpx.get(f"{address}/api/health", timeout=60).json()["status"] == "ok"
        seconds.append(time.monotonic() - begin)
    return min(seconds)


# 64 million pixels in a file of 62 kB; the largest image that is decoded.
@pytest.mark.parametrize(("side", "statuses"), [(8000, {400}), (5000, {200, 503})])
@pytest.mark.parametrize("times", [1, 12])
def test_a_huge_image_costs_little_memory(server, side, statuses, times):
    address, pid = server
    content = png(side, side)
    before = memory(pid)
    with ThreadPoolExecutor(times) as pool:
        waiting = [pool.submit(post_image, address, content) for _ in range(times)]
        seconds = health(address)
        answers = [each.result() for each in waiting]
    assert {answer.status_code for answer in answers} <= statuses
    assert all(answer.json()["error"] for answer in answers if answer.status_code != 200)
    assert memory(pid) - before < MEGABYTES
    assert seconds < 1


# As many numbers as are parsed, and as many as fit into a body.
@pytest.mark.parametrize("numbers", [MOST_VALUES, BODY_LIMIT // 2])
def test_rows_of_many_numbers_wait_as_bytes(server, numbers):
    address, pid = server
    rows = [[0] * 20_000] * (numbers // 20_000 - 1)
    body = json.dumps({"features": rows}, separators=(",", ":")).encode()
    assert len(body) <= BODY_LIMIT
    before = memory(pid)

    def post(_):
        headers = {"content-type": "application/json"}
        return httpx.post(f"{address}/api/predict", content=body, headers=headers, timeout=120)

    with ThreadPoolExecutor(24) as pool:
        waiting = [pool.submit(post, each) for each in range(24)]
        seconds = health(address)
        answers = [each.result() for each in waiting]
    assert {answer.status_code for answer in answers} <= {400, 503}
    assert memory(pid) - before < 2 * MEGABYTES  # 64 MB of bodies, and two parsed ones
    assert seconds < 1
    assert post_image(address, png(16, 16)).status_code == 200
