"""Put the help of every command into ``reference/command-line.md``, in place of a mark."""

from __future__ import annotations

import contextlib
import io
import os
from typing import Any

MARK = "<!-- commands -->"


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    """Replace the mark by a section for each command."""
    return markdown.replace(MARK, sections()) if MARK in markdown else markdown


def sections() -> str:
    """Return the help of every command as Markdown."""
    from credibly.cli import COMMANDS

    return "\n\n".join(f"## {name} {{#{name}}}\n\n```text\n{_help(name)}\n```" for name in COMMANDS)


def _help(name: str) -> str:
    from credibly.cli import main

    text = io.StringIO()
    width, os.environ["COLUMNS"] = os.environ.get("COLUMNS"), "100"
    try:
        with contextlib.redirect_stdout(text), contextlib.suppress(SystemExit):
            main([name, "--help"])
    finally:
        del os.environ["COLUMNS"]
        if width is not None:
            os.environ["COLUMNS"] = width
    return text.getvalue().strip()
