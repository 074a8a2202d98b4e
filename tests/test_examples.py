"""The table of examples in the documentation is what the scripts are; `make examples` runs them."""

from __future__ import annotations

import ast
import importlib.util
import json
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]


@pytest.fixture(scope="module")
def runner():
    spec = importlib.util.spec_from_file_location("run_all", ROOT / "examples" / "run_all.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_documentation_counts_the_lines_of_every_example(runner):
    page = (ROOT / "docs" / "guide" / "integrations.md").read_text(encoding="utf-8")
    assert runner.table() in page, "paste the output of `python examples/run_all.py --count`"


def test_every_example_takes_few_lines_of_credibly(runner):
    for name in runner.EXAMPLES:
        total, ours = runner.lines_of(name)
        assert 1 <= ours <= 6
        assert total <= 60


def test_the_notebook_is_stored_without_outputs(runner):
    cells = json.loads((ROOT / "examples" / "notebook.ipynb").read_text(encoding="utf-8"))["cells"]
    for cell in cells:
        if cell["cell_type"] == "code":
            assert cell["outputs"] == []
            ast.parse("".join(cell["source"]))
