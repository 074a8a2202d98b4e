"""Operations that fail and power that is lost, at each operation of every writer in turn."""

from __future__ import annotations

import os
import sys

import pytest
from fault_kills import fail_often, lose_power_often
from fault_writers import WRITERS, disturb

from credibly import files

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="reads /proc and forks")


@pytest.mark.parametrize("writer", WRITERS)
@pytest.mark.parametrize("kind", ["power", "error"])
def test_a_writer_disturbed_at_any_operation_leaves_the_old_file_or_the_new_one(
    kind, writer, tmp_path
):
    count = disturb(writer, kind, tmp_path / "place", seeds=2)
    assert count.wrong == ()
    assert count.faults >= 3


def test_a_writer_that_does_not_flush_is_found_out(tmp_path, monkeypatch):
    monkeypatch.setattr(files, "_flush", lambda path: None)
    assert disturb("JSON", "power", tmp_path / "place", seeds=8).wrong


def test_a_writer_that_writes_in_place_is_found_out(tmp_path, monkeypatch):
    monkeypatch.setitem(
        WRITERS, "JSON", lambda folder, version: _write_in_place(folder / "a.json", version)
    )
    assert disturb("JSON", "power", tmp_path / "place", seeds=8).wrong


def _write_in_place(path, version):
    with path.open("w") as file:
        file.write(f"version {version}")
        file.flush()
        os.fsync(file.fileno())


@pytest.mark.parametrize("name", ["train", "sets"])
def test_a_command_that_loses_power_or_meets_errors_ends_the_same(name, world, reference, tmp_path):
    for attack in (lose_power_often, fail_often):
        tally = attack(name, world, tmp_path / attack.__name__, reference(name), 2, seed=1)
        assert tally.sound, tally
        assert tally.kills >= 1
