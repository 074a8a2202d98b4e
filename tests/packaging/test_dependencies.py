"""What is installed beside the package: locked, under permissive licences, nothing run unasked.

Offline, from what the installed packages say of themselves; whether one of them has a known
weakness only a service of advisories can tell.
"""

from __future__ import annotations

import json
import re
import sys
import tomllib
from collections.abc import Iterator
from importlib import metadata
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

import credibly as cr

ROOT = Path(__file__).parents[2]
EXTRAS = ("train", "plot", "search", "serve", "export", "metrics")  # as in requirements.lock

pytestmark = pytest.mark.skipif(
    not (ROOT / "pyproject.toml").exists(), reason="the source tree is not here"
)

PERMISSIVE = {
    *("0BSD", "Apache-2.0", "BSD-2-Clause", "BSD-3-Clause", "BSL-1.0", "CC0-1.0", "ISC", "MIT"),
    *("LLVM-exception", "MIT-CMU", "PSF-2.0", "Unlicense", "Zlib"),
    # As older metadata spell them.
    *("3-Clause BSD License", "Apache Software License", "BSD License", "MIT License"),
    "Python Software Foundation License",
}
# MPL binds changes to tqdm's own files alone, and none are made.
ALLOWED = {"tqdm": {"MPL-2.0"}}
# Code in a .pth file runs at every start of Python. This one is known: it hides the old distutils.
STARTS = {"setuptools": {"distutils-precedence.pth"}}
CUSTOM = ("sitecustomize", "usercustomize")


def declared() -> list[Requirement]:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    extras = project["optional-dependencies"]
    lines = [*project["dependencies"], *(line for extra in EXTRAS for line in extras[extra])]
    return [Requirement(line) for line in lines if "[" not in line]


def locked() -> dict[str, str]:
    lines = (ROOT / "requirements.lock").read_text(encoding="utf-8").splitlines()
    pairs = [re.fullmatch(r"(\S+)==(\S+) --hash=sha256:[0-9a-f]{64}", line) for line in lines]
    strange = [
        line
        for line, pair in zip(lines, pairs, strict=True)
        if not pair and line.strip() and not line.startswith("#")
    ]
    assert not strange, "every line must pin one version by its hash"
    return {canonicalize_name(pair[1]): pair[2] for pair in pairs if pair}


def walk() -> dict[str, metadata.Distribution]:
    """Every installed package that the declared ones need, and they themselves."""
    found: dict[str, metadata.Distribution] = {}
    seen: set[tuple[str, str]] = set()
    todo = declared()
    while todo:
        need = todo.pop()
        name = canonicalize_name(need.name)
        for extra in {"", *need.extras}:
            if (name, extra) in seen:
                continue
            seen.add((name, extra))
            try:
                found[name] = metadata.distribution(name)
            except metadata.PackageNotFoundError:  # an optional one
                continue
            needs = map(Requirement, found[name].requires or [])
            todo += [n for n in needs if n.marker is None or n.marker.evaluate({"extra": extra})]
    return found


@pytest.fixture(scope="module")
def installed() -> dict[str, metadata.Distribution]:
    found = walk()
    assert len(found) > 20, "the walk has not begun"
    return found


def licences(package: metadata.Distribution) -> set[str]:
    """From the newest field of its metadata that is filled in to the oldest."""
    about = package.metadata.json
    expression = about.get("license_expression")
    lines = [line for line in about.get("classifier", []) if line.startswith("License :: ")]
    if not expression and lines:
        return {line.split(" :: ")[-1] for line in lines}
    text = str(expression or about.get("license") or "nothing at all").splitlines()[0]
    return set(re.split(r" (?:AND|OR|WITH) ", re.sub("[()]", "", text)))


def test_what_is_declared_is_locked():
    names = {canonicalize_name(need.name) for need in declared()}
    assert names - set(locked()) == {"torch"}, "torch alone is chosen by machine"


def test_what_is_locked_lies_in_the_declared_ranges():
    held = locked()
    outside = [need for need in declared() if need.name != "torch"]
    outside = [need for need in outside if held[canonicalize_name(need.name)] not in need.specifier]
    assert not outside, "run `make lock`"


def test_the_bill_of_materials_is_the_lock():
    bill = json.loads((ROOT / "sbom.json").read_text(encoding="utf-8"))
    parts = {canonicalize_name(part["name"]): part["version"] for part in bill["components"]}
    assert parts == locked()
    assert bill["metadata"]["component"]["version"] == cr.__version__


def test_what_is_installed_is_what_is_locked(installed):
    versions = {name: package.version for name, package in installed.items() if name != "torch"}
    here = (sys.platform, *sys.version_info[:2])
    if here != ("linux", 3, 11):
        pytest.skip(f"requirements.lock is for Python 3.11 on Linux; this is {here}")
    differ = {
        name: f"{version}, locked {locked().get(name)}"
        for name, version in versions.items()
        if locked().get(name) != version
    }
    if differ:
        pytest.skip(f"TESTED WITH OTHER VERSIONS than requirements.lock has: {differ}")
    assert set(locked()) <= set(versions), "something is locked that nothing needs"


def test_licences_are_permissive(installed):
    others = {
        name: licences(package) - PERMISSIVE - ALLOWED.get(name, set())
        for name, package in installed.items()
    }
    assert not {name: found for name, found in others.items() if found}


def files(package: metadata.Distribution) -> Iterator[Path]:
    held = package.files
    assert held is not None, f"{package.name} has no record of its files"
    return (Path(str(file)) for file in held)


def test_nothing_runs_at_the_start_of_python_or_takes_the_place_of_its_modules(installed):
    odd: dict[str, set[str]] = {}
    for name, package in installed.items():
        for file in files(package):
            alone = len(file.parts) == 1  # beside the packages, where Python looks at the start
            runs = file.suffix in (".pth", ".start") or file.stem in CUSTOM
            top = file.stem if file.suffix == ".py" and alone else file.parts[0]
            if (alone and runs) or top in sys.stdlib_module_names:
                odd.setdefault(name, set()).add(file.name)
    assert not {name: held for name, held in odd.items() if held - STARTS.get(name, set())}
