"""The wheel and the source archive hold everything; installed, the program runs anywhere."""

from __future__ import annotations

import os
import subprocess
import sys
import tarfile
import zipfile
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest

import credibly as cr

ROOT = Path(__file__).parents[2]
PACKAGE = ROOT / "src" / "credibly"

pytestmark = [
    pytest.mark.skipif(
        not (ROOT / "pyproject.toml").exists(),
        reason="the source tree is not here: nothing to build",
    ),
    pytest.mark.skipif(
        find_spec("hatchling") is None,
        reason="PACKAGING IS NOT TESTED: the build backend is missing; `pip install hatchling`",
    ),
]


def build(kind: str, folder: Path) -> Path:
    """What `pip wheel` and `pip install` of the source would build, by the same backend."""
    code = (
        "import sys; from hatchling import build; "
        f"print(getattr(build, 'build_{kind}')(sys.argv[1]))"
    )
    made = subprocess.run(
        [sys.executable, "-c", code, str(folder)], cwd=ROOT, capture_output=True, text=True
    )
    assert made.returncode == 0, made.stderr
    return folder / made.stdout.split()[-1]


@pytest.fixture(scope="module")
def wheel(tmp_path_factory):
    return build("wheel", tmp_path_factory.mktemp("wheel"))


@pytest.fixture(scope="module")
def installed(wheel, tmp_path_factory):
    """The wheel in an environment of its own; what it depends on is seen from this one."""
    folder = tmp_path_factory.mktemp("environment")
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(folder)], check=True)
    python = folder / "bin" / "python"
    where = [str(python), "-c", "import sysconfig; print(sysconfig.get_path('purelib'))"]
    site = Path(subprocess.run(where, capture_output=True, text=True, check=True).stdout.strip())
    install = [sys.executable, "-m", "pip", "--python", str(python), "install", "--quiet"]
    subprocess.run([*install, "--no-deps", "--no-index", str(wheel)], check=True, cwd=folder)
    shared = Path(np.__file__).parents[1]  # its .pth files, an editable install's too, are not read
    (site / "shared.pth").write_text(f"{shared}\n")
    return folder


def run(folder: Path, *command: str, cwd: Path) -> str:
    environment = {k: v for k, v in os.environ.items() if not k.startswith(("PYTHON", "COV_"))}
    environment["NUMBA_DISABLE_JIT"] = "1"  # a fresh copy would compile every kernel anew
    done = subprocess.run(
        [str(folder / "bin" / command[0]), *command[1:]],
        cwd=cwd,
        env=environment,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_the_wheel_holds_every_file_of_the_package_and_no_other(wheel):
    expected = {
        "credibly/" + path.relative_to(PACKAGE).as_posix()
        for path in PACKAGE.rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    }
    with zipfile.ZipFile(wheel) as archive:
        held = {name for name in archive.namelist() if ".dist-info/" not in name}
        about = next(name for name in archive.namelist() if name.endswith("METADATA"))
        metadata = archive.read(about).decode()
        entries = archive.read(about.replace("METADATA", "entry_points.txt")).decode()
    assert held == expected
    assert f"Version: {cr.__version__}" in metadata
    assert "License-File: LICENSE" in metadata
    assert "credibly = credibly.cli:main" in entries


def test_the_source_archive_holds_what_tests_and_builds_need(tmp_path):
    with tarfile.open(build("sdist", tmp_path)) as archive:
        held = {name.partition("/")[2] for name in archive.getnames()}
    needed = ["pyproject.toml", "README.md", "LICENSE", "CHANGELOG.md", "Makefile"]
    needed += ["constraints.txt", "tests/packaging/test_packaging.py", "benchmarks/__main__.py"]
    needed += ["src/credibly/app/templates/report.html", "src/credibly/app/static/app.js"]
    assert not [name for name in needed if name not in held]
    assert not [name for name in held if name.startswith((".venv", ".git/", "runs/"))]


def test_the_installed_program_runs_outside_the_checkout(installed, tmp_path):
    where = run(
        installed, "python", "-c", "import credibly; print(credibly.__file__)", cwd=tmp_path
    )
    assert Path(where.strip()).is_relative_to(installed)
    shown = run(installed, "credibly", "--help", cwd=tmp_path)
    assert all(command in shown for command in ("train", "evaluate", "search", "serve"))
    assert cr.__version__ in run(installed, "credibly", "--version", cwd=tmp_path)


def test_the_installed_program_writes_a_report_and_has_its_pages(installed, tmp_path):
    rng = np.random.default_rng(0)
    p = rng.random((24, 3)).astype(np.float32)
    made = cr.Predictions.from_arrays(
        probabilities=p,
        targets=(rng.random(p.shape) < p).astype(np.int8),
        labels=["fork", "apple", "knife"],
        ids=[f"row{i}" for i in range(24)],
    )
    made.write(tmp_path / "predictions.parquet")
    run(installed, "credibly", "report", "predictions.parquet", "--out", "r.html", cwd=tmp_path)
    page = (tmp_path / "r.html").read_text(encoding="utf-8")
    assert "<svg" in page
    assert "fork" in page
    if find_spec("fastapi") is None:
        return
    code = (
        "from fastapi.testclient import TestClient; from credibly.app.server import create_app\n"
        "client = TestClient(create_app(['predictions.parquet']), base_url='http://localhost')\n"
        "paths = ('/', '/?q=fork', '/label?name=fork', '/static/app.js', '/static/style.css')\n"
        "print([client.get(path).status_code for path in paths])"
    )
    answers = run(installed, "python", "-W", "ignore", "-c", code, cwd=tmp_path)
    assert answers.strip() == str([200] * 5)
