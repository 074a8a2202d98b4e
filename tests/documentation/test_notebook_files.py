"""Every notebook of the documentation runs, and what it stores is what it shows."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT / "examples"))
import notebooks  # noqa: E402

NUMBER = re.compile(r"[-+]?\d+(\.\d+)?(e[-+]?\d+)?|\s+|✓|✗")


def shape(output: dict) -> tuple:
    """What an output is, without its numbers: another processor may round the last digit."""
    if output["output_type"] == "stream":
        return ("stream", NUMBER.sub("#", output["text"]))
    text = output["data"].get("text/html", "")
    return (sorted(output["data"]), "svg" if "<svg" in text else NUMBER.sub("#", text))


@pytest.mark.parametrize("name", notebooks.names())
@pytest.mark.filterwarnings("default")
def test_the_notebook_shows_what_it_stores(name):
    stored = notebooks.read(name)
    kept = [cell["outputs"] for cell in stored["cells"] if cell["cell_type"] == "code"]
    shown = notebooks.run(stored)
    assert any(shown)
    repeat = f"run `python -W ignore examples/notebooks.py {name}`"
    assert [[shape(o) for o in cell] for cell in shown] == [
        [shape(o) for o in cell] for cell in kept
    ], repeat


def test_there_are_three_and_they_are_small():
    assert notebooks.names() == ["decide", "rescue", "train"]
    for name in notebooks.names():
        assert (notebooks.FOLDER / f"{name}.ipynb").stat().st_size < 80_000
