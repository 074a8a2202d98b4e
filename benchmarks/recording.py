"""Draw what a command printed as an SVG of a terminal.

``credibly demo --quiet | python -m benchmarks.recording docs/img/demo.svg``
"""

from __future__ import annotations

import argparse
import io
import re
import sys
from pathlib import Path

from rich.console import Console
from rich.text import Text


def draw(text: str, title: str) -> str:
    """Return the text as in a terminal that is wide enough; no font is fetched from elsewhere."""
    width = max(map(len, text.splitlines()))
    console = Console(record=True, width=width, file=io.StringIO())
    console.print(Text.from_ansi(text.rstrip()), soft_wrap=True)
    drawing = console.export_svg(title=title, unique_id="terminal")
    drawing = re.sub(r"@font-face \{.*?\}", "", drawing, flags=re.DOTALL)
    drawing = re.sub(r"Fira Code", "ui-monospace, Menlo, Consolas", drawing)
    return re.sub(r"[ \t]+$", "", drawing, flags=re.MULTILINE)


def main() -> None:
    """Read a transcript from the standard input and write the drawing."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("path", type=Path)
    parser.add_argument("--title", default="credibly demo")
    options = parser.parse_args()
    options.path.write_text(draw(sys.stdin.read(), options.title), encoding="utf-8")


if __name__ == "__main__":
    main()
