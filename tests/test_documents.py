"""What the documents show is run: doctests of every module, the tour.

Code blocks of pages: tests/documentation/test_blocks.py."""

from __future__ import annotations

import doctest
import importlib
import pkgutil
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

import credibly

ROOT = Path(__file__).parent.parent
MODULES = sorted(
    module.name
    for module in pkgutil.walk_packages(credibly.__path__, "credibly.")
    if not module.name.endswith("__main__")
)


LIBRARIES = {
    "credibly.app.server.application": "httpx",
    "credibly.integrations.lightning": "lightning",
    "credibly.train.onnx": "onnxscript",
}
"""What a module needs that the environment of the tests need not have."""


@pytest.mark.parametrize("name", MODULES)
def test_examples_in_docstrings_are_true(name, tmp_path, monkeypatch):
    if name in LIBRARIES:
        pytest.importorskip(LIBRARIES[name])
    monkeypatch.chdir(tmp_path)
    module = importlib.import_module(name)
    result = doctest.testmod(
        module,
        extraglobs={"cr": credibly, "torch": importlib.import_module("torch")},
        optionflags=doctest.NORMALIZE_WHITESPACE | doctest.ELLIPSIS,
    )
    assert result.failed == 0


def test_the_tour_runs(tmp_path):
    done = subprocess.run(
        [sys.executable, ROOT / "examples" / "tour.py"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    assert len((ROOT / "examples" / "tour.py").read_text().splitlines()) <= 80


def test_the_readme_says_what_the_package_is():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    python = project["requires-python"].replace(">=", "≥ ")
    claims = (ROOT / "benchmarks" / "claims" / "claims.toml").read_text().count("[[claim]]")
    parts = (f"Version {project['version']}", f"Python {python}", project["license"], "typed")
    text = (ROOT / "README.md").read_text()
    results = (ROOT / "docs" / "papers" / "index.md").read_text()
    pattern = r"There are (\d+) claims\. (\d+) of them.*\s.*and (\d+) with short networks\."
    decided = re.search(pattern, results)
    assert decided is not None
    assert int(decided[1]) == claims
    said = (
        f"{claims} claims of four papers tested: {decided[2]} with models of features and tables, "
        f"{decided[3]} with small networks"
    )
    assert " · ".join((*parts, said)) in " ".join(text.split())
    assert f"version: {project['version']}\n" in (ROOT / "CITATION.cff").read_text()
    assert len(text.split()) <= 900
    assert (ROOT / "src" / "credibly" / "py.typed").exists()


def test_the_recipes_name_files_and_functions_that_exist():
    text = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
    named = set(re.findall(r"`((?:[a-z_]+/)+[\w.-]+)`", text))
    yours = {path for path in named if re.search("your", path, re.IGNORECASE)}
    assert len(yours) == 7
    places = (ROOT, ROOT / "src" / "credibly", ROOT / "tests" / "metrics")
    lost = [p for p in named - yours if not any((place / p).exists() for place in places)]
    assert lost == []
    source = "".join(path.read_text() for path in (ROOT / "src").rglob("*.py"))
    functions = set(re.findall(r"`([a-z]+_[a-z_]+)`", text)) - {"batch_values", "row_values"}
    assert [name for name in functions if not re.search(rf"\b{name}\b", source)] == []
