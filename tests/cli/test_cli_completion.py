"""Completion scripts know every command, flag and value, and shells accept them."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from credibly import names, papers
from credibly.cli import COMMANDS, main

SHELLS = ("bash", "zsh", "fish")


def script(shell: str, capsys) -> str:
    assert main(["completion", shell]) == 0
    return capsys.readouterr().out


def test_every_command_flag_and_name_is_known(capsys, monkeypatch):
    def words(*typed: str) -> list[str]:
        monkeypatch.setenv("CREDIBLY_WORDS", "".join(f"{each}\x1f" for each in typed))
        return [each.partition("\t")[0] for each in script("fish", capsys).splitlines()]

    assert set(words("")) == {*COMMANDS, "--help", "--version"}
    assert {"--loss", "--separator", "--config"} <= set(words("train", "-"))
    assert words("train", "--loss", "") == list(names.LOSSES)
    assert set(words("train", "--model", "")) > set(names.MODELS)
    assert words("train", "--preset", "") == list(papers.PRESETS)
    assert "coco:" in words("train", "co")
    assert words("audit", "as") == ["asl", "asl-single"]
    assert words("nothing", "") == []


@pytest.mark.parametrize("shell", SHELLS)
def test_the_shell_accepts_its_script(shell, capsys, tmp_path):
    if shutil.which(shell) is None:
        pytest.skip(f"{shell} is not installed")
    path = tmp_path / "script"
    path.write_text(script(shell, capsys))
    subprocess.run([shell, "-n", str(path)], check=True, capture_output=True)


def complete(words: list[str], capsys, tmp_path) -> list[str]:
    path = tmp_path / "script"
    path.write_text(script("bash", capsys))
    path_of_programs = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    line = " ".join(f"'{word}'" for word in words)
    program = (
        f"source {path}; COMP_WORDS=({line}); COMP_CWORD={len(words) - 1}; _credibly; "
        'printf "%s\\n" "${COMPREPLY[@]}"'
    )
    shown = subprocess.run(
        ["bash", "-c", program],
        check=True,
        capture_output=True,
        text=True,
        env={**os.environ, "PATH": path_of_programs},
    )
    return shown.stdout.split()


def test_bash_completes(capsys, tmp_path):
    if shutil.which("bash") is None:
        pytest.skip("bash is not installed")
    assert complete(["credibly", "import", "--as", "lo"], capsys, tmp_path) == ["logits"]


def test_another_shell_is_refused(capsys):
    with pytest.raises(SystemExit):
        main(["completion", "tcsh"])
    assert "tcsh" in capsys.readouterr().err
