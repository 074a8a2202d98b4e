"""Killed at any instant: final files whole, and the next run ends as if nothing had happened."""

from __future__ import annotations

import pytest
from fault_kills import kill_often

KILLS = {"train": 4, "predict": 4, "calibrate": 2, "sets": 2, "compare": 2, "report": 1}


@pytest.mark.parametrize("name", KILLS)
def test_a_command_killed_again_and_again_leaves_whole_files_and_ends_the_same(
    name, world, reference, tmp_path
):
    tally = kill_often(name, world, tmp_path, reference(name), KILLS[name], seed=1)
    assert tally.sound, tally
    assert tally.kills >= KILLS[name]
