"""Compiled code kept on disk: never wrong, never trusted from others, never in the way."""

from __future__ import annotations

import os
import re
import stat
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from threading import get_ident

import pytest
from numba.core import event

import credibly
from credibly import compiled

# Compiles one small function for two signatures and prints results, then hits of the cache.
PROGRAM = """
import sys
sys.path.insert(0, sys.argv[1])
from kernel_under_test import total
print(total(3), total(2.5), sum(total._cache_hits.values()))
"""
KERNEL = """
from credibly.compiled import compiled
from kernel_constants import step

@compiled(error_model="numpy")
def total(x):
    return step(x) + x
"""
CONSTANTS = """
from credibly.compiled import compiled

@compiled()
def step(x):
    return x * {factor}
"""


@pytest.fixture
def sources(tmp_path):
    folder = tmp_path / "sources"
    folder.mkdir()
    (folder / "kernel_under_test.py").write_text(KERNEL)
    (folder / "kernel_constants.py").write_text(CONSTANTS.format(factor=2))
    return folder


@pytest.fixture
def kept(tmp_path):
    folder = tmp_path / "kept"
    folder.mkdir(mode=0o700)
    return folder


def begin(sources: Path, **environment: str | None) -> subprocess.Popen[str]:
    plain = {**os.environ, "PYTHONDONTWRITEBYTECODE": "1", "PYTHONWARNINGS": "error", **environment}
    known = {name: value for name, value in plain.items() if value is not None}
    command = [sys.executable, "-c", PROGRAM, str(sources)]
    pipe = subprocess.PIPE
    return subprocess.Popen(command, stdout=pipe, stderr=pipe, text=True, env=known)


def answer(process: subprocess.Popen[str]) -> str:
    out, error = process.communicate(timeout=300)
    assert (process.returncode, error) == (0, ""), error
    return out.strip()


def totals(sources: Path, kept: Path) -> str:
    return answer(begin(sources, NUMBA_CACHE_DIR=str(kept)))


def test_the_second_process_takes_what_the_first_compiled(sources, kept):
    assert totals(sources, kept) == "9 7.5 0"
    assert len(list(kept.glob("*total*.kernel"))) == 2
    assert totals(sources, kept) == "9 7.5 2"
    modes = {stat.S_IMODE(path.stat().st_mode) for path in kept.iterdir()}
    assert modes == {0o600}


def test_a_changed_source_is_compiled_anew_even_in_another_file(sources, kept):
    assert totals(sources, kept) == "9 7.5 0"
    (sources / "kernel_constants.py").write_text(CONSTANTS.format(factor=10))
    assert totals(sources, kept) == "33 27.5 0"


def _flip(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)


def _folder(path: Path) -> None:
    path.unlink()
    path.mkdir()


DAMAGES = {
    "empty": lambda path: path.write_bytes(b""),
    "cut off": lambda path: path.write_bytes(path.read_bytes()[:-100]),
    "one byte": lambda path: path.write_bytes(path.read_bytes()[:1]),
    "a flipped bit": _flip,
    "another file": lambda path: path.write_bytes(b"#!/bin/sh\n"),
    "a folder": _folder,
}


@pytest.mark.parametrize("damage", DAMAGES)
def test_damaged_files_are_compiled_anew(damage, sources, kept):
    totals(sources, kept)
    for path in list(kept.iterdir()):
        DAMAGES[damage](path)
    assert totals(sources, kept) == "9 7.5 0"
    assert totals(sources, kept) == f"9 7.5 {0 if damage == 'a folder' else 2}"


def test_a_file_of_another_signature_under_this_name_is_not_run(sources, kept):
    totals(sources, kept)
    first, second = sorted(kept.glob("*total*.kernel"))
    first.write_bytes(second.read_bytes())
    assert totals(sources, kept) == "9 7.5 1"


def test_four_processes_at_once_all_answer_right(sources, kept):
    for _ in range(2):
        running = [begin(sources, NUMBA_CACHE_DIR=str(kept)) for _ in range(4)]
        assert {answer(each)[:5] for each in running} == {"9 7.5"}
    assert not list(kept.glob("*.tmp"))
    assert totals(sources, kept) == "9 7.5 2"


@pytest.mark.parametrize("place", ["/dev/null/x", "/proc/credibly", "\n" * 300])
def test_a_folder_that_cannot_be_made_is_done_without(place, sources):
    assert totals(sources, Path(place)) == "9 7.5 0"


def test_without_a_home_it_compiles_in_memory_and_writes_nothing_beside_the_sources(
    sources, tmp_path
):
    (tmp_path / "home").write_text("no folder")
    nowhere = begin(sources, HOME=str(tmp_path / "home"), XDG_CACHE_HOME=None, NUMBA_CACHE_DIR=None)
    assert answer(nowhere) == "9 7.5 0"
    assert sorted(path.name for path in sources.iterdir()) == [
        "kernel_constants.py",
        "kernel_under_test.py",
    ]


@pytest.mark.skipif(os.name != "posix", reason="modes and owners are those of POSIX")
@pytest.mark.parametrize("mode", [0o777, 0o770, 0o702])
def test_a_folder_that_others_can_write_to_is_not_used(mode, sources, kept):
    kept.chmod(mode)
    assert totals(sources, kept) == "9 7.5 0"
    assert not list(kept.iterdir())


@pytest.mark.skipif(os.name != "posix", reason="modes and owners are those of POSIX")
def test_a_folder_inside_one_that_others_can_write_to_is_not_used(sources, kept):
    inner = kept / "inner"
    inner.mkdir(mode=0o700)
    kept.chmod(0o777)
    assert totals(sources, inner) == "9 7.5 0"
    assert not list(inner.iterdir())
    kept.chmod(0o1777)  # sticky, as /tmp: others cannot replace what is ours
    assert totals(sources, inner) == "9 7.5 0"
    assert list(inner.iterdir())


@pytest.mark.skipif(not hasattr(os, "geteuid") or os.geteuid(), reason="root gives files away")
def test_a_folder_of_somebody_else_is_not_used(sources, kept):
    os.chown(kept, 65534, 65534)
    assert totals(sources, kept) == "9 7.5 0"
    assert not list(kept.iterdir())


def test_no_source_takes_numba_s_own_cache():
    folder = Path(credibly.__file__).parent
    pattern = re.compile(r"cache=True|[\"']cache[\"']: *True|enable_caching\(")
    odd = [path for path in folder.rglob("*.py") if pattern.search(path.read_text("utf-8"))]
    assert odd == []


def test_the_cache_of_this_user_is_found_or_said_to_be_none():
    folder = compiled.cache_folder()
    assert folder is None or folder.is_dir()


def test_threads_compile_one_after_another(monkeypatch):
    """Timers of threads that compile at once lose count, and raise in one of them (numba 10564)."""
    busy, together = [], []

    @contextmanager
    def timer(kind, callback):
        busy.append(get_ident())
        together.append(len(set(busy)))
        time.sleep(0.1)
        yield
        busy.remove(get_ident())

    def plus(number):
        return compiled.compiled()(lambda x: x + number)

    monkeypatch.setattr(event, "install_timer", timer)
    with ThreadPoolExecutor(2) as pool:
        assert list(pool.map(lambda function: function(1), [plus(1), plus(2)])) == [2, 3]
    assert max(together) == 1
