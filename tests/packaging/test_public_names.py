"""The public API is what the reference names: how many names there are, and that each is shown."""

from __future__ import annotations

import ast
import importlib
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SOURCE = ROOT / "src" / "credibly"

pytestmark = pytest.mark.skipif(
    not (ROOT / "docs").is_dir(), reason="the documentation is not here"
)

LIMIT = 213
"""Names in all ``__all__`` lists. Lower it when names go; 190 is the aim."""

WITHOUT_EXAMPLE = 36
"""Names that neither their docstring nor the documentation shows in code. Lower it likewise."""


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


def is_module(name: str) -> bool:
    path = SOURCE.parent / name.replace(".", "/")
    return path.with_suffix(".py").exists() or (path / "__init__.py").exists()


def test_there_are_few_public_names():
    count = sum(map(len, exported().values()))
    assert count <= LIMIT, "a new public name needs a page, an example, and another one to go"


def test_the_reference_has_a_page_for_every_module_that_exports_names():
    # The first page of the reference lists the names of the package itself; `app` holds packages.
    assert set(exported()) - {"credibly", "credibly.app"} - pages() == set()


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
    assert len(unshown) <= WITHOUT_EXAMPLE, unshown
