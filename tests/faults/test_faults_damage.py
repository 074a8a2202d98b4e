"""Files cut off, out of reach or of the wrong kind: one sentence that names them, exit code 2."""

from __future__ import annotations

import shutil
import sys

import pytest
from fault_process import Fault, run
from fault_readers import CUTS, READERS, complaint, cut, damaged_copy, is_whole
from fault_world import final_files

from credibly.cli import main

each_reader = pytest.mark.parametrize("reader", READERS, ids=str)
each_file = pytest.mark.parametrize(
    "reader", {reader.file: reader for reader in READERS}.values(), ids=str
)


@each_reader
def test_a_file_cut_off_is_named_in_one_sentence(reader, rich_world, tmp_path, capfd):
    found = {}
    for share in CUTS:
        place = tmp_path / f"{share}"
        path = damaged_copy(rich_world, place, reader)
        cut(path, share)
        before = final_files(place)
        code = main(reader.command(place, place / "out"))
        error = capfd.readouterr().err
        if code == 0 and is_whole(path):
            continue  # it ended at a whole row: a shorter file, not a broken one
        found[share] = complaint(path, code, error)
        if final_files(place) != before:
            found[share] = "files have changed"
        shutil.rmtree(place)
    assert not {share: what for share, what in found.items() if what}


@each_file
def test_a_folder_in_place_of_a_file_is_named_in_one_sentence(reader, rich_world, tmp_path, capfd):
    path = damaged_copy(rich_world, tmp_path / "copy", reader)
    path.unlink()
    path.mkdir()
    code = main(reader.command(tmp_path / "copy", tmp_path / "copy/out"))
    assert complaint(path, code, capfd.readouterr().err) is None


@pytest.mark.skipif(sys.platform != "linux", reason="root's rights are given up the Linux way")
@each_file
def test_a_file_without_permission_is_named_in_one_sentence(reader, rich_world, tmp_path):
    path = damaged_copy(rich_world, tmp_path / "copy", reader)
    path.chmod(0)
    command = reader.command(tmp_path / "copy", tmp_path / "copy/out")
    ended = run(command, Fault("unprivileged"), tmp_path / "notes")
    assert complaint(path, ended.code, ended.stderr) is None
    assert "ermission" in ended.stderr
