"""Code blocks of a Markdown page, and how they are run.

Blocks of `python`, `bash` and `javascript` are run in order, in one folder, Python with one set of
names per page. `credibly serve` gets a free port, which takes the place of 8000 in the blocks below
it, and runs until the next one or `stop`. Blocks of `console` are run, too, and must show what the
page shows. A block below `<!-- not run: why -->` is not run. `text` is not code; every other
language must be marked.

A block of `text` directly below `<!-- prints -->` is what the block above it prints: `agrees`
compares the two, and `refreshed` writes it anew (`make outputs`). `<!-- prints: 12 lines -->` shows
the first twelve, and a line `…`.
"""

from __future__ import annotations

import dataclasses
import os
import re
import shlex
import shutil
import subprocess
import sys
import textwrap
import urllib.request
from collections.abc import Callable
from pathlib import Path
from typing import Any

RUN = ("python", "bash", "console", "javascript")
FENCE = re.compile(r"^( *)```(\S*)[^\n]*\n(.*?)^\1```$", re.DOTALL | re.MULTILINE)
MARK = re.compile(r"<!-- not run: ((?:(?!-->).)+?) -->\s*\Z", re.DOTALL)
PRINTS = re.compile(r"<!-- prints(?:: (\d+) lines)? -->\s*\Z")
MASKS = (
    (re.compile(r"\b\d+(\.\d+)? ?(s|ms|seconds|minutes)\b"), "TIME"),
    (re.compile(r"http://127\.0\.0\.1:\d+"), "http://127.0.0.1:PORT"),
    (re.compile(r"\b\d+\.\d+\.\d+\b"), "VERSION"),
    (re.compile(r"(/[\w.-]+){2,}"), "PATH"),
    (re.compile(r"[─━]+"), ""),
)
"""What differs from one machine to another, or with the width of a terminal."""

NUMBER = re.compile(r"\d+(?:,\d{3})*(?:\.\d+)?(?:e[+-]\d+)?")
TINY = 1e-6
"""Numbers below it are rounding errors, which differ between processors."""
MANY = 100
"""Counts from here on may differ by 0.5 %: sums in another order move rows across a cut."""
WIDTH = 86
"""Characters of a line that fit the column of a page."""

SHELL = re.compile(r"[|&;<>$`*]|^(?!credibly )", re.MULTILINE)


_server: tuple[subprocess.Popen[str], str] | None = None
"""The server that a page started last, and its port."""


def stop() -> None:
    """Stop the server of a page, if one runs."""
    global _server
    if _server is not None:
        process, _ = _server
        process.terminate()
        process.communicate()
        _server = None


@dataclasses.dataclass(frozen=True)
class Block:
    """A fenced block: its language, its text, its line, and why it is not run if it is not.

    ``prints`` is what the page says it prints, of which it shows ``limit`` lines.
    """

    language: str
    code: str
    line: int
    reason: str = ""
    prints: str | None = None
    limit: int | None = None

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
        prints = PRINTS.search(text[: found.start()])
        if prints and language == "text":
            limit = int(prints[1]) if prints[1] else None
            blocks[-1] = dataclasses.replace(blocks[-1], prints=code, limit=limit)
            continue
        line = text.count("\n", 0, found.start()) + 1
        blocks.append(Block(language, code, line, mark[1] if mark else ""))
    return blocks


def shown_lines(printed: str, limit: int | None) -> str:
    """Return what a page shows of an output: at most ``limit`` lines, long sentences wrapped."""
    lines = [line.rstrip() for line in printed.strip("\n").splitlines()]
    lines = [line for k, line in enumerate(lines) if line or (k and lines[k - 1])]
    if limit is not None and len(lines) > limit:
        lines = [*lines[:limit], "…"]
    lines = [line if re.search("  |─", line) else _wrapped(line) for line in lines]  # but tables
    return "\n".join(lines).strip("\n") + "\n"


def _wrapped(line: str) -> str:
    return textwrap.fill(line, WIDTH, break_long_words=False, break_on_hyphens=False)


def agrees(shown: str, printed: str) -> bool:
    """Say whether two outputs are equal: words exactly, numbers as far as processors agree."""

    def parts(text: str) -> tuple[list[str], list[str]]:
        for mask, word in MASKS:
            text = mask.sub(word, text)
        return "".join(NUMBER.sub("#", text).split()).split("#"), NUMBER.findall(text)

    (words, numbers), (other_words, others) = parts(shown), parts(printed)
    if words != other_words or len(numbers) != len(others):
        return False
    return all(_agree(one, other) for one, other in zip(numbers, others, strict=True))


def _agree(one: str, other: str) -> bool:
    """Say whether two numbers are equal to their last printed digit; see ``TINY`` and ``MANY``."""
    a, b = (float(number.replace(",", "")) for number in (one, other))
    if 0 < a < TINY and 0 < b < TINY:
        return True
    digits, _, exponent = one.partition("e")
    places = len(digits.partition(".")[2])
    whole = 0.005 * a * (a >= MANY)
    return abs(a - b) <= (1.001 * 10.0 ** (int(exponent or 0) - places) if places else whole)


def refreshed(text: str, outputs: list[str]) -> str:
    """Return the text of a page with the outputs that it shows as they are now, in their order."""
    left = iter(outputs)

    def replaced(found: re.Match[str]) -> str:
        _, language, code = found.groups()
        prints = PRINTS.search(text[: found.start()])
        if not prints or language != "text":
            return found[0]
        shown = shown_lines(next(left), int(prints[1]) if prints[1] else None)
        return found[0].replace(f"```text\n{code}", f"```text\n{shown}", 1)

    return FENCE.sub(replaced, text)


def run(block: Block, names: dict[str, Any], page: str, captured: Callable[[], str]) -> str:
    """Run a block in the working folder, and return what it printed.

    Args:
        block: what to run.
        names: what Python blocks of the page have defined so far.
        page: the name of the page, for messages.
        captured: returns what was printed since its last call.
    """
    where = f"{page}, line {block.line}"
    if _server is not None:
        code = block.code.replace("http://127.0.0.1:8000", f"http://127.0.0.1:{_server[1]}")
        block = dataclasses.replace(block, code=code)
    if block.language == "python":
        # Lines before the block, so that a traceback names the line of the page.
        captured()
        exec(compile("\n" * block.line + block.code, page, "exec"), names)
        return captured()
    if block.language == "bash":
        printed = []
        for command in _commands(block.code):
            code, shown = _command(command, captured)
            assert code == 0, f"{where}: {command}\n{shown}"
            printed.append(shown)
        return "\n".join(printed)
    if block.language == "javascript":
        node = shutil.which("node")
        if node is None:  # nothing to compare
            return block.prints or ""
        done = subprocess.run(
            [node, "--input-type=module"], input=block.code, capture_output=True, text=True
        )
        assert done.returncode == 0, f"{where}: {done.stderr}"
        return done.stdout
    if block.language == "console":
        for command, expected in _transcript(block.code):
            _, shown = _command(command, captured)
            assert "".join(expected.split()) in "".join(shown.split()), f"{where}: {shown}"
    return ""


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
        return serve(words[2:])
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


def serve(words: list[str]) -> tuple[int, str]:
    """Serve on a free port, and ask for the first page."""
    global _server
    stop()
    code = "import sys; from credibly.cli import main; sys.exit(main(sys.argv[1:]))"
    command = [sys.executable, "-c", code, "serve", *words, "--port", "0"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    assert process.stdout is not None
    printed = ""
    for line in process.stdout:  # until the address, or the end of a server that refuses
        printed += line
        if found := re.match(r"http://127\.0\.0\.1:(\d+)\S*", line):
            _server = process, found[1]
            with urllib.request.urlopen(found[0], timeout=60) as answer:
                return 0 if answer.status in (200, 202) else 1, printed  # 202: still reading
    process.communicate()
    return 1, printed


def _transcript(code: str) -> list[tuple[str, str]]:
    """Return the commands of a transcript, each with what it is said to show."""
    parts = re.split(r"^\$ ", re.sub(r"\\\n\s*", " ", code), flags=re.MULTILINE)
    return [(part.partition("\n")[0], part.partition("\n")[2]) for part in parts if part.strip()]
