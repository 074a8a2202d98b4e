"""How long the paths through the package are, and how its code is shaped.

The first two figures count the files of ``src/credibly`` in which a function is entered; the others
are counted from the source. ``docs/reference/architecture.md`` quotes them.
"""

from __future__ import annotations

import ast
import re
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from types import FrameType

import numpy as np
import torch

import credibly as cr

SOURCE = Path(cr.__file__).parent
MOST_ARGUMENTS = 6


def files_entered(call: Callable[[], object]) -> list[str]:
    """Return the files of the package that a second call of ``call`` enters, in their order."""
    entered: dict[str, None] = {}

    def notice(frame: FrameType, event: str, argument: object) -> None:
        path = Path(frame.f_code.co_filename)
        if event == "call" and path.is_relative_to(SOURCE):
            entered[str(path.relative_to(SOURCE))] = None

    call()
    sys.setprofile(notice)
    try:
        call()
    finally:
        sys.setprofile(None)
    return list(entered)


def training_step(name: str) -> list[str]:
    """Return the files of ``loss(scores, targets).backward()``."""
    loss = cr.losses.from_name(name)
    scores = torch.randn(8, 5, requires_grad=True)
    targets = (torch.rand(8, 5) < 0.4).float()
    return files_entered(lambda: loss(scores, targets).backward())


def repeated_search() -> list[str]:
    """Return the files of a search in a Parquet file that was searched before."""
    probabilities = np.random.default_rng(0).random((50, 3)).astype(np.float32)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "predictions.parquet"
        cr.Predictions.from_arrays(
            probabilities=probabilities,
            targets=(probabilities > 0.5).astype(int),
            labels=["fork", "apple", "knife"],
        ).write(path)
        return files_entered(lambda: cr.retrieve.search(path, "+fork -knife"))


def shape() -> dict[str, int]:
    """Return figures of the source: private imports, many arguments, ``Any``, lines."""
    figures = dict.fromkeys(("private imports", "arguments", "positional", "Any", "lines"), 0)
    for path in SOURCE.rglob("*.py"):
        text, package = path.read_text(encoding="utf-8"), path.relative_to(SOURCE).parts[0]
        figures["lines"] += text.count("\n")
        figures["Any"] += sum("Any" in line for line in text.splitlines())
        imported = re.findall(r"from credibly\.([a-z]+)\._[a-z]", text)
        figures["private imports"] += sum(name != package for name in imported)
        for node in ast.walk(ast.parse(text)):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                places = [*node.args.posonlyargs, *node.args.args]
                positional = sum(each.arg not in ("self", "cls") for each in places)
                figures["positional"] += positional > MOST_ARGUMENTS
                total = positional + len(node.args.kwonlyargs)
                figures["arguments"] += total > MOST_ARGUMENTS
    return figures


def run() -> None:
    """Print the figures of docs/reference/architecture.md."""
    for name in ("bce", "spa", "twl", "spa+lpr"):
        entered = training_step(name)
        print(f"{name}: {len(entered)} files: {', '.join(entered)}")
    entered = repeated_search()
    print(f"search: {len(entered)} files: {', '.join(entered)}")
    for name, count in shape().items():
        print(f"{name}: {count}")


if __name__ == "__main__":
    run()
