"""What killed writers leave is removed by the next; writers that live are never disturbed."""

from __future__ import annotations

import errno
import fcntl
import os
from multiprocessing.connection import Connection
from pathlib import Path

import pytest
from fault_process import SERVER

from credibly.files import atomic_path, sweep

NAME = "an [odd]* name.txt"  # means something else to patterns


def _write(path: str, text: str, talk: Connection, replaced: bool) -> None:
    """Write; say so; end when told. Some writers replace the file they were given."""
    with atomic_path(path) as beside:
        if replaced:
            other = beside.with_name("other")
            other.write_text(text)
            os.replace(other, beside)
        else:
            beside.write_text(text)
        talk.send("written")
        talk.recv()
    talk.send("renamed")


class Writer:
    """A process that is halfway through writing ``path``."""

    def __init__(self, path: Path, text: str, replaced: bool = False) -> None:
        self.talk, theirs = SERVER.Pipe()
        self.process = SERVER.Process(target=_write, args=(str(path), text, theirs, replaced))
        self.process.start()
        theirs.close()
        assert self.talk.recv() == "written"

    def kill(self) -> None:
        self.process.kill()
        self.process.join()

    def finish(self) -> int | None:
        self.talk.send("go on")
        assert self.talk.recv() == "renamed"
        self.process.join()
        return self.process.exitcode


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def test_what_a_killed_writer_left_goes_with_the_next_of_the_same_file(tmp_path):
    for _ in range(3):
        Writer(tmp_path / NAME, "half").kill()
    assert [name.rpartition(".")[2] for name in names(tmp_path)] == ["lock", "part"]
    with atomic_path(tmp_path / NAME) as beside:
        beside.write_text("whole")
    assert names(tmp_path) == [NAME]
    assert (tmp_path / NAME).read_text() == "whole"


@pytest.mark.parametrize("replaced", [False, True])
def test_writers_of_one_file_at_once_all_succeed_and_the_last_stays(replaced, tmp_path):
    first = Writer(tmp_path / NAME, "first", replaced)
    second = Writer(tmp_path / NAME, "second", replaced)
    with atomic_path(tmp_path / NAME) as beside:
        beside.write_text("third")
    sweep(tmp_path)
    assert (tmp_path / NAME).read_text() == "third"
    assert second.finish() == 0
    assert (tmp_path / NAME).read_text() == "second"
    assert first.finish() == 0
    assert (tmp_path / NAME).read_text() == "first"
    assert names(tmp_path) == [NAME]


def test_only_leftovers_of_the_same_file_go(tmp_path):
    Writer(tmp_path / "other.txt", "half").kill()
    kept = [*names(tmp_path), f".{NAME}.part", f".{NAME}.0123456g.lock", f".{NAME}.0123456g.part"]
    for name in kept[2:]:
        (tmp_path / name).write_text("not ours")
    (tmp_path / f".{NAME}.89abcdef.lock").mkdir()  # cannot be opened, and so stays
    with atomic_path(tmp_path / NAME) as beside:
        beside.write_text("whole")
    assert names(tmp_path) == sorted([*kept, f".{NAME}.89abcdef.lock", NAME])


def test_a_temporary_file_whose_lock_a_power_loss_forgot_goes(tmp_path):
    (tmp_path / f".{NAME}.01234567.part").write_text("half")
    with atomic_path(tmp_path / NAME) as beside:
        beside.write_text("whole")
    assert names(tmp_path) == [NAME]


def test_a_folder_of_whole_parts_is_swept_too(world, tmp_path):
    from credibly.cli import main

    command = ["predict", str(world / "run"), str(world / "rows.npz"), "--shards", "2", "--quiet"]
    assert main([*command, "--out", str(tmp_path / "parts")]) == 0
    whole = names(tmp_path / "parts")
    (tmp_path / "parts" / f".{whole[0]}.01234567.part").write_text("half")
    assert main([*command, "--out", str(tmp_path / "parts")]) == 0
    assert names(tmp_path / "parts") == whole


def test_without_locks_files_are_written_and_nothing_is_swept(tmp_path, monkeypatch):
    Writer(tmp_path / NAME, "half").kill()
    left = names(tmp_path)

    def refused(*_: object) -> None:
        raise OSError(errno.ENOLCK, "no locks available")

    monkeypatch.setattr(fcntl, "flock", refused)
    with atomic_path(tmp_path / NAME) as beside:
        beside.write_text("whole")
        assert len(list(tmp_path.glob(".*.lock"))) == 1  # the dead writer's alone
    assert names(tmp_path) == sorted([*left, NAME])
    assert (tmp_path / NAME).read_text() == "whole"


def test_leftovers_that_may_not_be_removed_do_no_harm(tmp_path, monkeypatch):
    Writer(tmp_path / NAME, "half").kill()
    real = Path.unlink

    def refused(path: Path, missing_ok: bool = False) -> None:
        if path.name in left:
            raise PermissionError(errno.EPERM, "not permitted")
        real(path, missing_ok)

    left = names(tmp_path)
    monkeypatch.setattr(Path, "unlink", refused)
    with atomic_path(tmp_path / NAME) as beside:
        beside.write_text("whole")
    assert names(tmp_path) == sorted([*left, NAME])
