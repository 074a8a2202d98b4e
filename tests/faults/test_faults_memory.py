"""Memory that ends: a right answer or one sentence, and never a broken file. Linux."""

from __future__ import annotations

import sys

import pytest
from fault_memory import starve

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="limits the address space")


@pytest.mark.parametrize("name", ["sets", "calibrate", "evaluate", "check"])
def test_a_command_without_memory_breaks_nothing(name, world, tmp_path):
    found = starve(name, world, tmp_path, steps=(16, 2, 0))
    assert found.problems == []
    assert found.faults == 3
