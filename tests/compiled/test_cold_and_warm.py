"""A loop gives the same bits in the process that compiles it and in one that loads it."""

from __future__ import annotations

import ast
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

import credibly

SCRIPT = Path(__file__).with_name("kernel_calls.py")
SOURCES = Path(credibly.__file__).parent
FAMILIES = {
    "losses": ["losses"],
    "metrics": ["metrics"],
    "search": ["retrieve"],
    "fits": ["calibrate", "decide"],
}


def digests(family: str, folder: Path) -> dict[str, str]:
    environment = {**os.environ, "NUMBA_CACHE_DIR": str(folder), "OMP_NUM_THREADS": "1"}
    command = [sys.executable, str(SCRIPT), family]
    done = subprocess.run(command, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def compiled_functions(package: str) -> set[str]:
    """Return the names of a package's functions that are kept on disk, by their decorator."""
    found = set()
    for path in (SOURCES / package).rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            marks = [ast.unparse(mark) for mark in getattr(node, "decorator_list", [])]
            kept = any(mark.startswith("compiled(") and "inline" not in mark for mark in marks)
            if kept and isinstance(node, ast.FunctionDef):
                found.add(node.name)
    return found


@pytest.mark.parametrize("family", FAMILIES)
def test_a_cold_and_a_warm_cache_give_the_same_bits(family, tmp_path):
    folder = tmp_path / "kernels"
    folder.mkdir(mode=0o700)
    cold = digests(family, folder)
    made = sorted(folder.iterdir())
    warm = digests(family, folder)
    assert warm == cold
    assert sorted(folder.iterdir()) == made, "the second process compiled something"
    ran = {path.name.split("-")[0].split(".")[-1] for path in made}
    expected = set[str]().union(*map(compiled_functions, FAMILIES[family]))
    assert expected, "no compiled function was found"
    assert expected <= ran, "kernel_calls.py calls no function that runs these"
