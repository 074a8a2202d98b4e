"""One world of files for all faults of a test process; nothing changes it."""

from __future__ import annotations

import shutil
from functools import cache

import pytest
from fault_kills import undisturbed
from fault_readers import stop_short
from fault_world import make_world


@pytest.fixture(scope="session")
def world(tmp_path_factory):
    return make_world(tmp_path_factory.mktemp("faults") / "world")


@pytest.fixture(scope="session")
def reference(world, tmp_path_factory):
    """By name of a command: its results without any fault, made once."""
    place = tmp_path_factory.mktemp("faults")
    return cache(lambda name: undisturbed(name, world, place / name))


@pytest.fixture(scope="session")
def rich_world(world, reference, tmp_path_factory):
    """With a run that stopped, and in ``out/`` what predict and compare have written."""
    rich = tmp_path_factory.mktemp("faults") / "world"
    shutil.copytree(world, rich)
    stop_short(rich)
    for name in ("predict", "compare"):
        shutil.copytree(reference(name).whole, rich / "out", dirs_exist_ok=True)
    return rich
