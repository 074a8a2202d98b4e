"""Compiling ahead: what is kept, what is said, and where there is nowhere to keep it."""

from __future__ import annotations

import io
import os
import stat

import pytest

from credibly import InputError, compiled
from credibly.cli import main
from credibly.workflows import warm_up, warming


def test_warming_up_compiles_each_part_once(tmp_path, monkeypatch):
    folder = tmp_path / "kernels"
    folder.mkdir(mode=0o700)
    monkeypatch.setattr(compiled, "cache_folder", lambda: folder)
    monkeypatch.setattr(warming, "cache_folder", lambda: folder)

    def parts(_losses):
        @compiled.compiled(error_model="numpy")
        def twice(x):
            return 2 * x

        yield "one", lambda: twice(1.5)
        yield "again", lambda: twice(2.5)

    monkeypatch.setattr(warming, "_parts", parts)
    shown = []
    first = warm_up(progress=shown.append)
    assert (first.compiled, first.kept, shown) == (1, 1, ["one", "again"])
    assert first.to_dict()["folder"] == str(folder)
    assert str(folder) in repr(first)


def test_without_a_folder_to_keep_code_the_command_says_what_to_set(monkeypatch, capsys):
    monkeypatch.setattr(warming, "cache_folder", lambda: None)
    with pytest.raises(InputError, match="NUMBA_CACHE_DIR"):
        warm_up()
    assert main(["warmup"]) == 2
    assert "NUMBA_CACHE_DIR" in capsys.readouterr().err
    assert main(["warmup", "--losses", "spaa"]) == 2
    assert "spa" in capsys.readouterr().err


class Terminal(io.StringIO):
    def isatty(self):
        return True


@pytest.mark.parametrize("stream", [Terminal(), io.StringIO()], ids=["terminal", "file"])
def test_compiling_is_announced_once_and_to_terminals_only(stream, monkeypatch):
    compiled._announce.cache_clear()
    monkeypatch.setattr("sys.stderr", stream)
    for variable in ("FORCE_COLOR", "TTY_COMPATIBLE"):
        monkeypatch.delenv(variable, raising=False)
    monkeypatch.setenv("TERM", "xterm")
    compiled._announce()
    compiled._announce()
    assert stream.getvalue().count("compiling") == isinstance(stream, Terminal)


@pytest.mark.skipif(os.name != "posix" or os.geteuid() != 0, reason="needs root to give files away")
def test_a_folder_of_root_is_read_and_one_of_another_user_is_not(tmp_path, monkeypatch):
    folder = tmp_path / "kernels"
    folder.mkdir(mode=0o755)
    monkeypatch.setattr(os, "geteuid", lambda: 4321)
    assert compiled._only_ours(folder) == all(
        not parent.stat().st_mode & 0o022 or bool(parent.stat().st_mode & stat.S_ISVTX)
        for parent in folder.parents
    )
    os.chown(folder, 1234, -1)
    assert not compiled._only_ours(folder)
