"""Completion scripts know every command, flag and value, and shells accept them."""

from __future__ import annotations

import shutil
import subprocess

import pytest

from credibly.cli import COMMANDS, main
from credibly.cli.completion import SHELLS, all_flags


def script(shell: str, capsys) -> str:
    assert main(["completion", shell]) == 0
    return capsys.readouterr().out


@pytest.mark.parametrize("shell", SHELLS)
def test_every_command_and_flag_is_there(shell, capsys):
    text = script(shell, capsys)
    for command, (_, flags) in all_flags().items():
        assert command in text
        for flag in flags:
            assert flag.name.removeprefix("--") in text
    assert set(all_flags()) == set(COMMANDS)


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
    line = " ".join(f"'{word}'" for word in words)
    program = (
        f"source {path}; COMP_WORDS=({line}); COMP_CWORD={len(words) - 1}; _credibly; "
        'printf "%s\\n" "${COMPREPLY[@]}"'
    )
    shown = subprocess.run(["bash", "-c", program], check=True, capture_output=True, text=True)
    return shown.stdout.split()


CASES = {
    "a command": (["credibly", "revi"], ["review"]),
    "a flag": (["credibly", "sets", "--reca"], ["--recall"]),
    "a renamed flag": (["credibly", "import", "--a"], ["--as"]),
    "a value": (["credibly", "import", "--as", "lo"], ["logits"]),
    "a shell": (["credibly", "completion", "z"], ["zsh"]),
}


@pytest.mark.parametrize(("words", "expected"), CASES.values(), ids=CASES)
def test_bash_completes(words, expected, capsys, tmp_path):
    if shutil.which("bash") is None:
        pytest.skip("bash is not installed")
    assert complete(words, capsys, tmp_path) == expected


def test_another_shell_is_refused(capsys):
    with pytest.raises(SystemExit):
        main(["completion", "tcsh"])
    assert "tcsh" in capsys.readouterr().err
