"""Show every notebook of ``docs/notebooks`` as a page: text, code and stored outputs."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

from mkdocs.structure.files import File, Files

FENCE = "```"


def on_files(files: Files, config: Any, **_: Any) -> Files:
    """Add a page per notebook; the notebook itself stays beside it, to be downloaded."""
    for path in sorted(Path(config.docs_dir, "notebooks").glob("*.ipynb")):
        page = File.generated(config, f"notebooks/{path.stem}.md", content=to_markdown(path))
        files.append(page)
    return files


def to_markdown(path: Path) -> str:
    """Return a notebook as Markdown."""
    cells = json.loads(path.read_text(encoding="utf-8"))["cells"]
    title, *rest = (part for cell in cells for part in _parts(cell))
    download = f"[Download this notebook]({path.name}){{ download }}"
    return "\n\n".join([title, download, *rest]) + "\n"


def _parts(cell: dict[str, Any]) -> list[str]:
    source = "".join(cell["source"])
    if cell["cell_type"] == "markdown":
        return [source]
    return [f"{FENCE}python\n{source}\n{FENCE}", *map(_shown, cell["outputs"])]


def _shown(output: dict[str, Any]) -> str:
    if output["output_type"] == "stream":
        return f"{FENCE}text\n{output['text'].rstrip()}\n{FENCE}"
    data = output["data"]
    if "text/html" not in data:
        return f"{FENCE}text\n{data['text/plain']}\n{FENCE}"
    # Markdown ends a block of HTML at an empty line; style sheets of data frames are not ours.
    other = r"<style(?!>\.credibly).*?</style>|<metadata>.*?</metadata>"
    text = re.sub(other, "", data["text/html"], flags=re.S)
    one_line = re.sub(r"\s*\n\s*", " ", text).replace("<th></th>", "<td></td>")
    focus = 'tabindex="0" role="group" aria-label="output"'  # it may scroll
    return f'<div class="output" {focus}>{one_line}</div>'
