"""Without the libraries of an extra, what needs them says which extra to install; the rest runs."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = Path(__file__).with_name("extras.py")


@pytest.mark.parametrize("extra", ["train", "plot", "search", "serve"])
def test_what_needs_an_extra_names_it_and_the_rest_runs(extra: str):
    done = subprocess.run(
        [sys.executable, "-W", "ignore", str(SCRIPT), "--without", extra],
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stdout + done.stderr
