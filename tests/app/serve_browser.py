"""Where the browser tests keep their screenshots, and how a browser is started."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import uvicorn
from provide_browser import browser as find_browser

ARTIFACTS = Path(__file__).parents[2] / "artifacts"
FLAGS = ["--no-sandbox", "--disable-gpu", "--disable-quic", "--disable-background-networking"]


@contextmanager
def running() -> Iterator[Any]:
    """Yield a browser; skip where there is none, except in CI."""
    from playwright.sync_api import sync_playwright

    path = find_browser()
    if path is None:
        assert os.environ.get("CI") != "true", "CI must run the browser tests"
        pytest.skip("no browser could be installed on this machine; see tests/app")
    ARTIFACTS.mkdir(exist_ok=True)
    with sync_playwright() as playwright:
        started = playwright.chromium.launch(executable_path=path, args=FLAGS)
        yield started
        started.close()


@contextmanager
def listening(app: Any) -> Iterator[str]:
    """Yield the address of a server for ``app``, in a thread of this process."""
    server = uvicorn.Server(uvicorn.Config(app, port=0, log_level="error", access_log=False))
    thread = threading.Thread(target=server.run, daemon=True)
    thread.start()
    deadline = time.monotonic() + 120  # kernels may be compiled first
    while not server.started:
        assert time.monotonic() < deadline, "the server did not start"
        time.sleep(0.02)
    port = server.servers[0].sockets[0].getsockname()[1]
    yield f"http://127.0.0.1:{port}"
    server.should_exit = True
    thread.join(10)


def wait_until(page: Any, expression: str, arg: object = None) -> None:
    """Wait until an expression of the page is true.

    Playwright's ``wait_for_function`` evaluates text inside the page once the first answer is no,
    which the policy of the app refuses.
    """
    deadline = time.monotonic() + 60
    while not page.evaluate(expression, arg):
        assert time.monotonic() < deadline, f"never true: {expression}"
        page.wait_for_timeout(50)
