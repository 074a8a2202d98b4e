"""Targets are decoded at the door: inside the package, functions take decoded ``Targets``."""

from __future__ import annotations

import ast
from collections import defaultdict
from pathlib import Path

import pytest

SOURCE = Path(__file__).parents[2] / "src" / "credibly"

pytestmark = pytest.mark.skipif(not SOURCE.is_dir(), reason="the source tree is not here")

STILL_INSIDE = ("data", "integrations", "metrics", "predictions", "retrieve")
"""Packages in which a function that is not exported may accept ``coding``. Remove those done."""

DOORS_INSIDE = 14
"""How many such functions there are. Lower it when one goes."""


def exported() -> set[str]:
    names: set[str] = set()
    for path in SOURCE.rglob("*.py"):
        for node in ast.parse(path.read_text(encoding="utf-8")).body:
            if isinstance(node, ast.Assign) and getattr(node.targets[0], "id", "") == "__all__":
                names |= set(ast.literal_eval(node.value))
    return names


def with_coding(body: list[ast.stmt], public: set[str], inside: str | None = None) -> list[str]:
    """Return functions that accept ``coding``, except public ones and methods of public classes."""
    found = []
    for node in body:
        if isinstance(node, ast.ClassDef):
            bases = {base.id for base in node.bases if isinstance(base, ast.Name)}
            known = inside or next(iter({node.name, *bases} & public), None)
            found += with_coding(node.body, public, known)
        elif isinstance(node, ast.FunctionDef):
            arguments = [*node.args.args, *node.args.kwonlyargs]
            private = node.name.startswith("_") and node.name != "__init__"
            door = (inside is not None and not private) or node.name in public
            if any(each.arg == "coding" for each in arguments) and not door:
                found.append(node.name)
    return found


def test_only_public_functions_accept_a_coding():
    public = exported()
    found: dict[str, list[str]] = defaultdict(list)
    for path in sorted(SOURCE.rglob("*.py")):
        package = path.relative_to(SOURCE).parts[0]
        if package != "targets.py":  # which decodes
            body = ast.parse(path.read_text(encoding="utf-8")).body
            found[package] += [f"{path.name}: {name}" for name in with_coding(body, public)]
    left = [name for package in STILL_INSIDE for name in found.pop(package, [])]
    assert len(left) <= DOORS_INSIDE, left
    assert not [name for functions in found.values() for name in functions]
