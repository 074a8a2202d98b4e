"""The public API is what the reference names: how many names there are, and that each is shown."""

from __future__ import annotations

import ast
import importlib
import re
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).parents[2]
SOURCE = ROOT / "src" / "credibly"

pytestmark = pytest.mark.skipif(
    not (ROOT / "docs").is_dir(), reason="the documentation is not here"
)

LIMIT = 190
"""Names in all ``__all__`` lists."""


def exported() -> dict[str, list[str]]:
    """Return the names of every ``__all__``, by module."""
    found: dict[str, list[str]] = {}
    for path in sorted(SOURCE.rglob("*.py")):
        module = ".".join(path.relative_to(SOURCE.parent).with_suffix("").parts)
        for node in ast.parse(path.read_text(encoding="utf-8")).body:
            if isinstance(node, ast.Assign) and getattr(node.targets[0], "id", "") == "__all__":
                found[module.removesuffix(".__init__")] = ast.literal_eval(node.value)
    return found


def pages() -> set[str]:
    """Return what the pages of the reference are generated from."""
    texts = (page.read_text(encoding="utf-8") for page in (ROOT / "docs/reference").glob("*.md"))
    return {name for text in texts for name in re.findall(r"^::: (\S+)", text, re.MULTILINE)}


WHOLE_MODULES = {"credibly.pipeline", "credibly.targets", "credibly.papers.spa"} | {
    "credibly.integrations.huggingface",
    "credibly.integrations.lightning",
    "credibly.papers.average_k",
    "credibly.papers.quasibinary",
    "credibly.papers.two_way",
    "credibly.review.fiftyone",
    "credibly.review.label_studio",
}
"""Modules without ``__all__`` that the reference describes as a whole."""


def referenced() -> dict[str, list[object]]:
    """Return what the reference describes, by the module or function that its pages name."""
    found: dict[str, list[object]] = {}
    for page in (ROOT / "docs/reference").glob("*.md"):
        for path, options in re.findall(
            r"^::: (\S+)\n((?: +.*\n?)*)", page.read_text(encoding="utf-8"), re.MULTILINE
        ):
            if path in WHOLE_MODULES:
                continue
            if not is_module(path):
                module, _, name = path.rpartition(".")
                found[path] = [getattr(importlib.import_module(module), name)]
                continue
            names = re.findall(r"^ +- (\w+)$", options, re.MULTILINE)
            names = names or [x for x in exported()[path] if f"{path}.{x}" not in pages()]
            found[path] = [getattr(importlib.import_module(path), name) for name in names]
    return found


def is_module(name: str) -> bool:
    path = SOURCE.parent / name.replace(".", "/")
    return path.with_suffix(".py").exists() or (path / "__init__.py").exists()


def test_there_are_few_public_names():
    count = sum(map(len, exported().values()))
    assert count <= LIMIT, "a new public name needs a page, an example, and another one to go"


def test_the_reference_has_a_page_for_every_module_that_exports_names():
    # The first page of the reference lists the names of the package itself; `app` holds packages.
    assert set(exported()) - {"credibly", "credibly.app"} - pages() == set()


def test_the_names_are_those_of_the_reference():
    values = {
        f"{module}.{name}": getattr(importlib.import_module(module), name)
        for module, names in exported().items()
        for name in names
        if f"{module}.{name}" not in pages()
    }
    named = {name: value for name, value in values.items() if not isinstance(value, ModuleType)}
    whole = tuple(f"{module}." for module in WHOLE_MODULES)
    described = {id(value) for each in referenced().values() for value in each}
    undescribed = [name for name, value in named.items() if id(value) not in described]
    places = [f"{named[name].__module__}." for name in undescribed]
    assert [
        name for name, place in zip(undescribed, places, strict=True) if not place.startswith(whole)
    ] == []
    public = {id(value) for value in values.values()}
    assert [x for each in referenced().values() for x in each if id(x) not in public] == []


def test_every_exported_name_exists_and_is_shown_in_code():
    blocks = "\n".join(
        block
        for page in [*(ROOT / "docs").rglob("*.md"), ROOT / "README.md"]
        for block in re.findall(r"```[^\n]*\n(.*?)```", page.read_text(encoding="utf-8"), re.DOTALL)
    )
    unshown = []
    for module, names in exported().items():
        package = importlib.import_module(module)
        for name in names:
            if is_module(f"{module}.{name}"):
                continue
            value = getattr(package, name)
            if ">>>" in (getattr(value, "__doc__", None) or ""):
                continue
            if not re.search(
                rf"\b{module.rsplit('.')[-1]}\.{name}\b|\bimport .*\b{name}\b", blocks
            ):
                unshown.append(f"{module}.{name}")
    assert unshown == []
