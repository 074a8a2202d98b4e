"""Run the notebooks of the documentation and store what they show.

python examples/notebooks.py            run all of them and store the outputs
python examples/notebooks.py rescue     only one
"""

from __future__ import annotations

import argparse
import ast
import contextlib
import io
import json
import os
import tempfile
import time
from pathlib import Path
from typing import Any

FOLDER = Path(__file__).parents[1] / "docs" / "notebooks"
Output = dict[str, Any]


def names() -> list[str]:
    """Return the names of all notebooks."""
    return sorted(path.stem for path in FOLDER.glob("*.ipynb"))


def read(name: str) -> dict[str, Any]:
    """Return a notebook as stored."""
    return json.loads((FOLDER / f"{name}.ipynb").read_text(encoding="utf-8"))


def run(notebook: dict[str, Any]) -> list[list[Output]]:
    """Return what each code cell shows, run in an empty folder, without a Jupyter kernel."""
    before = Path.cwd()
    variables: dict[str, Any] = {"__name__": "__main__"}
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        try:
            return [
                _outputs("".join(cell["source"]), variables)
                for cell in notebook["cells"]
                if cell["cell_type"] == "code"
            ]
        finally:
            os.chdir(before)


def _outputs(source: str, variables: dict[str, Any]) -> list[Output]:
    """Run a cell: what it prints, then the value of its last line, as a notebook shows them."""
    tree = ast.parse(source)
    last = tree.body.pop() if tree.body and isinstance(tree.body[-1], ast.Expr) else None
    printed = io.StringIO()
    value = None
    with contextlib.redirect_stdout(printed):
        exec(compile(tree, "<cell>", "exec"), variables)
        if last is not None:
            assert isinstance(last, ast.Expr)
            value = eval(compile(ast.Expression(last.value), "<cell>", "eval"), variables)
    outputs: list[Output] = []
    if printed.getvalue():
        outputs.append({"output_type": "stream", "name": "stdout", "text": printed.getvalue()})
    if value is not None:
        outputs.append({"output_type": "display_data", "metadata": {}, "data": _shown(value)})
    return outputs


def _shown(value: object) -> dict[str, str]:
    shown = {"text/plain": repr(value)}
    show = getattr(type(value), "_repr_html_", None)  # the protocol of notebooks
    if show is not None:
        shown["text/html"] = show(value)
    return shown


def store(name: str) -> None:
    """Run a notebook and write it with its outputs."""
    notebook = read(name)
    outputs = iter(run(notebook))
    for cell in notebook["cells"]:
        if cell["cell_type"] == "code":
            cell["outputs"] = next(outputs)
    text = json.dumps(notebook, indent=1, ensure_ascii=False)
    (FOLDER / f"{name}.ipynb").write_text(text + "\n", encoding="utf-8")


def main() -> None:
    """Run the notebooks that are named, or all."""
    parser = argparse.ArgumentParser(description="run notebooks and store their outputs")
    parser.add_argument("names", nargs="*", default=names())
    for name in parser.parse_args().names:
        start = time.perf_counter()
        store(name)
        size = (FOLDER / f"{name}.ipynb").stat().st_size / 1000
        print(f"{name}: {time.perf_counter() - start:.1f} s, {size:.0f} kB", flush=True)


if __name__ == "__main__":
    main()
