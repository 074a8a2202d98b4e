"""Code blocks of a Markdown page, and how they are run.

Blocks of `python` and `bash` are run in order, in one folder and with one set of names per page;
`credibly serve` until its first page has come. Blocks of `console` are run, too, and must show what
the page shows. A block directly below `<!-- not run: why -->` is not run. `text` is not code; every
other language must be marked.
"""

from __future__ import annotations

import dataclasses
import os
import re
import shlex
import subprocess
import sys
import urllib.request
from collections.abc import Callable
from pathlib import Path
from typing import Any

RUN = ("python", "bash", "console")
FENCE = re.compile(r"^( *)```(\S*)[^\n]*\n(.*?)^\1```$", re.DOTALL | re.MULTILINE)
MARK = re.compile(r"<!-- not run: (\S.*?) -->\s*\Z", re.DOTALL)
SHELL = re.compile(r"[|&;<>$`*]|^(?!credibly )", re.MULTILINE)


@dataclasses.dataclass(frozen=True)
class Block:
    """A fenced block: its language, its text, its line, and why it is not run if it is not."""

    language: str
    code: str
    line: int
    reason: str = ""

    @property
    def is_run(self) -> bool:
        return self.language in RUN and not self.reason


def read(path: Path) -> list[Block]:
    """Return the fenced blocks of a page."""
    text = path.read_text(encoding="utf-8")
    blocks = []
    for found in FENCE.finditer(text):
        indent, language, code = found.groups()
        mark = MARK.search(text[: found.start()])
        code = re.sub(rf"^{indent}", "", code, flags=re.MULTILINE)
        line = text.count("\n", 0, found.start()) + 1
        blocks.append(Block(language, code, line, mark[1] if mark else ""))
    return blocks


def run(block: Block, names: dict[str, Any], page: str, captured: Callable[[], str]) -> None:
    """Run a block in the working folder.

    Args:
        block: what to run.
        names: what Python blocks of the page have defined so far.
        page: the name of the page, for messages.
        captured: returns what was printed since its last call.
    """
    where = f"{page}, line {block.line}"
    if block.language == "python":
        # Lines before the block, so that a traceback names the line of the page.
        exec(compile("\n" * block.line + block.code, page, "exec"), names)
    elif block.language == "bash":
        for command in _commands(block.code):
            code, shown = _command(command, captured)
            assert code == 0, f"{where}: {command}\n{shown}"
    else:
        for command, expected in _transcript(block.code):
            _, shown = _command(command, captured)
            assert "".join(expected.split()) in "".join(shown.split()), f"{where}: {shown}"


def _commands(code: str) -> list[str]:
    """Return one command per line for lines that only call credibly, else the block as it is."""
    joined = re.sub(r"\\\n\s*", " ", code)
    lines = [line for line in joined.splitlines() if line.strip()]
    plain = [re.sub(r"'[^']*'", "", line.partition(" #")[0]) for line in lines]
    return [code] if any(SHELL.search(line) for line in plain) else lines


def _command(command: str, captured: Callable[[], str]) -> tuple[int, str]:
    """Run a command; one of credibly in this process, which saves its imports."""
    from credibly.cli import main

    words = shlex.split(command, comments=True)
    captured()
    if words[:2] == ["credibly", "serve"]:
        return _served(words[2:])
    if words[0] == "credibly" and "\n" not in command.strip():
        try:
            code = main(words[1:])
        except SystemExit as error:
            code = int(error.code or 0)
        return code, captured()
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    done = subprocess.run(
        ["bash", "-ec", command], capture_output=True, text=True, env={**os.environ, "PATH": path}
    )
    return done.returncode, done.stdout + done.stderr


def _served(words: list[str]) -> tuple[int, str]:
    """Serve on a free port, ask for the first page, and stop."""
    code = "import sys; from credibly.cli import main; sys.exit(main(sys.argv[1:]))"
    command = [sys.executable, "-c", code, "serve", *words, "--port", "0"]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    ) as server:
        assert server.stdout is not None
        first = server.stdout.readline()
        try:
            if not first.startswith("http://127.0.0.1:"):
                return 1, first + server.stdout.read()
            with urllib.request.urlopen(first.split()[0], timeout=60) as answer:
                return 0 if answer.status == 200 else 1, first
        finally:
            server.terminate()


def _transcript(code: str) -> list[tuple[str, str]]:
    """Return the commands of a transcript, each with what it is said to show."""
    parts = re.split(r"^\$ ", re.sub(r"\\\n\s*", " ", code), flags=re.MULTILINE)
    return [(part.partition("\n")[0], part.partition("\n")[2]) for part in parts if part.strip()]
