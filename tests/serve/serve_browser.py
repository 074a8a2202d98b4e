"""Where the browser tests keep their screenshots, and how a browser is started."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
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
        pytest.skip("no browser could be installed on this machine; see tests/serve")
    ARTIFACTS.mkdir(exist_ok=True)
    with sync_playwright() as playwright:
        started = playwright.chromium.launch(executable_path=path, args=FLAGS)
        yield started
        started.close()
