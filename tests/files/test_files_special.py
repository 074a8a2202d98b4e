"""Outputs are files and stay what they were; inputs that are no files are refused."""

import os
import stat

import numpy as np
import pytest

import credibly as cr
from credibly.checks import input_file, out_can_be_written
from credibly.files import atomic_path


def write(path, text="new"):
    with atomic_path(path) as beside:
        beside.write_text(text)


def special(folder, kind):
    path = folder / "special"
    if kind == "a folder":
        path.mkdir()
    elif kind == "a named pipe":
        os.mkfifo(path)
    else:
        path.symlink_to("/dev/null")
    return path


each_kind = pytest.mark.parametrize("kind", ["a folder", "a named pipe", "a device"])


@each_kind
def test_what_is_no_file_is_never_replaced(kind, tmp_path):
    path = special(tmp_path, kind)
    before = os.stat(path)
    for attempt in (write, out_can_be_written):
        with pytest.raises(cr.InputError, match=f"must be a file to write; .*special is {kind}"):
            attempt(path)
    assert (os.stat(path).st_ino, os.stat(path).st_mode) == (before.st_ino, before.st_mode)
    assert os.listdir(tmp_path) == ["special"]


def test_a_link_keeps_pointing_and_its_file_is_replaced(tmp_path):
    (tmp_path / "there").mkdir()
    (tmp_path / "there" / "file").write_text("old")
    (tmp_path / "link").symlink_to("there/file")
    write(tmp_path / "link")
    assert (tmp_path / "link").is_symlink()
    assert (tmp_path / "there" / "file").read_text() == "new"
    assert os.listdir(tmp_path / "there") == ["file"]


def test_a_link_to_nothing_yet_makes_its_file(tmp_path):
    (tmp_path / "link").symlink_to("later")
    write(tmp_path / "link")
    assert (tmp_path / "later").read_text() == "new"


@pytest.mark.parametrize("mode", [0o600, 0o640, 0o444, 0o664])
def test_a_replaced_file_keeps_its_permissions(mode, tmp_path):
    (tmp_path / "file").write_text("old")
    (tmp_path / "file").chmod(mode)
    write(tmp_path / "file")
    assert stat.S_IMODE((tmp_path / "file").stat().st_mode) == mode
    assert (tmp_path / "file").read_text() == "new"


def test_whether_an_output_can_be_written_is_known_before_the_work(tmp_path):
    (tmp_path / "file").write_text("old")
    out_can_be_written(tmp_path / "file")
    out_can_be_written(tmp_path / "new" / "deep" / "file")
    out_can_be_written(tmp_path, folder=True)
    out_can_be_written(tmp_path / "run", folder=True)
    with pytest.raises(cr.InputError, match=r"`out` must be a folder to write; .*file is a file"):
        out_can_be_written(tmp_path / "file", folder=True)
    with pytest.raises(cr.InputError, match=r"in a folder; .*file is not a folder"):
        out_can_be_written(tmp_path / "file" / "below")
    assert os.listdir(tmp_path) == ["file"]


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write anywhere")
def test_a_read_only_folder_is_named(tmp_path):
    tmp_path.chmod(0o555)
    with pytest.raises(cr.InputError, match="is read-only"):
        out_can_be_written(tmp_path / "file")
    tmp_path.chmod(0o755)


@pytest.mark.parametrize("name", ["t.npz", "t.csv", "t.parquet", "t.arff"])
def test_a_pipe_or_device_is_refused_as_data(name, tmp_path):
    os.mkfifo(tmp_path / name)
    with pytest.raises(cr.InputError, match=f"{name} must be a file; it is a named pipe"):
        cr.data.load(tmp_path / name)
    (tmp_path / name).unlink()
    (tmp_path / name).symlink_to("/dev/zero")
    with pytest.raises(cr.InputError, match=f"{name} must be a file; it is a device"):
        cr.data.load(tmp_path / name)


def test_a_pipe_inside_a_layout_is_refused(tmp_path):
    (tmp_path / "cat").mkdir()
    os.mkfifo(tmp_path / "cat" / "1.png")
    data = cr.data.load(f"imagefolder:{tmp_path}", test=0.0, calibration=0)
    with pytest.raises(cr.InputError, match=r"1\.png must be a file; it is a named pipe"):
        data.image(0)
    (tmp_path / "wnids.txt").symlink_to("/dev/zero")
    with pytest.raises(cr.InputError, match=r"wnids\.txt must be a file; it is a device"):
        cr.data.load(f"tinyimagenet:{tmp_path}")


def test_plain_files_and_missing_ones_pass(tmp_path):
    np.save(tmp_path / "x.npy", np.ones(2))
    input_file(tmp_path / "x.npy")
    input_file(tmp_path / "missing")
