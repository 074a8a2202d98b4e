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


LIBRARIES = {"credibly.integrations.lightning": "lightning"}
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
    decided = re.search(r"There are (\d+) claims: networks decide (\d+)", results)
    assert decided is not None
    assert int(decided[1]) == claims
    said = f"{claims} claims of four papers, {decided[2]} decided by networks"
    assert " · ".join((*parts, said)) in text
    assert f"version: {project['version']}\n" in (ROOT / "CITATION.cff").read_text()
    assert len(text.split()) <= 900
    assert (ROOT / "src" / "credibly" / "py.typed").exists()


def test_a_recording_is_drawn_without_a_font_from_elsewhere():
    from benchmarks.recording import draw

    drawing = draw("loss  NLL\nbce   0.2 < 0.3\n", "demo")
    assert drawing.startswith("<svg")
    assert "bce" in drawing
    assert "url(http" not in drawing
