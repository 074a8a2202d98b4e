"""Every command gives the same bytes wherever, whenever and however often it runs.

`make test` runs one small case of every command; `make determinism` runs every model and loss, one
condition at a time, and begins with an empty kernel cache, too (tests/compiled has a short form).
Timings and absolute paths are in no compared file. Killed and resumed runs are compared in
tests/faults.
"""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
from pathlib import Path

import pytest
from commands import LARGE

from credibly.cli import COMMANDS

SCRIPT = Path(__file__).with_name("commands.py")
SIZE = "large" if os.environ.get("CREDIBLY_DETERMINISM") else "small"
CONDITIONS = {
    "again": {},
    "other folder and hashes of strings": {"PYTHONHASHSEED": "5"},
    "other locale": {"LC_ALL": "C", "LANG": "C", "PYTHONUTF8": "0"},
    "other time zone and terminal": {"TZ": "Asia/Tokyo", "COLUMNS": "40", "TERM": "dumb"},
    "two threads": {"OMP_NUM_THREADS": "2"},
    "four threads": {"OMP_NUM_THREADS": "4"},
    "cold cache": {"NUMBA_CACHE_DIR": "cache", "CREDIBLY_CACHE": "cache"},
}
THREADS = ("two threads", "four threads")
if SIZE == "small":  # all other surroundings at once
    others = [name for name in CONDITIONS if name not in (*THREADS, "cold cache")]
    together = {key: value for name in others for key, value in CONDITIONS[name].items()}
    CONDITIONS = {"other surroundings": together, **{name: CONDITIONS[name] for name in THREADS}}


def left_by(folder: Path, environment: dict[str, str]) -> dict[str, str]:
    folder.mkdir(parents=True)
    elsewhere = {
        name: str(folder.parent / f"{folder.name}-{value}") if value == "cache" else value
        for name, value in environment.items()
    }
    done = subprocess.run(
        [sys.executable, "-W", "ignore", str(SCRIPT), SIZE],
        cwd=folder,
        env={**os.environ, "OMP_NUM_THREADS": "1", "COLUMNS": "100", **elsewhere},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    return {
        str(path.relative_to(folder)): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in sorted(folder.rglob("*"))
        if path.is_file() and path.parent.name != "state"  # saved by the clock, to go on from
    }


@pytest.fixture(scope="module")
def first(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    found = left_by(tmp_path_factory.mktemp("first") / "here", {})
    assert len(found) > 25
    return found


def test_every_command_that_computes_is_compared():
    others = {"demo", "papers", "serve", "warmup", "completion"}  # the first two call train
    assert {words[0] for words in LARGE.values()} == set(COMMANDS) - others


@pytest.mark.parametrize("condition", list(CONDITIONS))
def test_the_same_bytes(condition: str, first: dict[str, str], tmp_path: Path):
    again = left_by(tmp_path / "some where" / condition, CONDITIONS[condition])
    assert set(first) == set(again)
    # Convolutions add in another order on more threads (test_reproducibility has the tolerance).
    rounded = ("cnn/", "printed-cnn") if condition in THREADS else ()
    compared = {name: each for name, each in again.items() if not name.startswith(rounded)}
    assert {name: first[name] for name in compared} == compared
