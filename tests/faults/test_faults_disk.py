"""No space left: one sentence that says so, exit code 2, old files intact, nothing half-written."""

from __future__ import annotations

import os
import shutil
import subprocess

import pytest
from fault_process import Fault, run
from fault_world import CASES, final_files, leftovers, results

SIZE = 512 * 1024
# Bytes that are free when a command begins: none at all, or enough for some of what it writes.
SPACE = [
    ("train", 0),
    ("train", 8192),
    ("predict", 12288),
    ("calibrate", 0),
    ("sets", 0),
    ("compare", 24576),
    ("report", 0),
]


@pytest.fixture(scope="module")
def disk(tmp_path_factory):
    """A disk of half a megabyte."""
    place = tmp_path_factory.mktemp("disk")
    mount = ["mount", "-t", "tmpfs", "-o", f"size={SIZE}", "tmpfs", str(place)]
    if (
        os.geteuid()
        or shutil.which("mount") is None
        or subprocess.run(mount, check=False).returncode
    ):
        pytest.skip("a disk that can be filled is mounted, which needs root")
    yield place
    subprocess.run(["umount", str(place)], check=True)


def fill(disk, space: int):
    """Take all space but ``space`` bytes."""
    free = os.statvfs(disk).f_bavail * os.statvfs(disk).f_frsize
    ballast = disk / "ballast"
    ballast.write_bytes(bytes(free - space))
    return ballast


@pytest.mark.parametrize(("name", "space"), SPACE)
def test_a_full_disk_is_said_and_nothing_is_lost(name, space, world, reference, disk, tmp_path):
    case, known, out = CASES[name], reference(name), disk / "out"
    shutil.copytree(known.before, out)
    try:
        before, ballast = final_files(out), fill(disk, space)
        ended = run(case.command(world, out), Fault(), tmp_path / "notes")
        assert ended.code == 2, ended.stderr
        assert len(ended.stderr.strip().splitlines()) == 1, ended.stderr
        assert "no space left" in ended.stderr.lower()
        assert before.items() <= final_files(out).items()
        assert not leftovers(out)
        ballast.unlink()
        assert run(case.command(world, out), Fault(), tmp_path / "notes").code == 0
        assert results(out) == results(known.whole)
    finally:
        shutil.rmtree(out)
        (disk / "ballast").unlink(missing_ok=True)


# What a command says goes into a file as well, and must stay below the limit.
@pytest.mark.parametrize("name", ["train", "predict", "calibrate", "sets"])
def test_a_quota_is_said_and_nothing_is_lost(name, world, reference, tmp_path):
    case, known, out = CASES[name], reference(name), tmp_path / "out"
    shutil.copytree(known.before, out)
    ended = run(case.command(world, out), Fault("limit", 700), tmp_path / "notes")
    assert ended.code == 2, ended.stderr
    assert len(ended.stderr.strip().splitlines()) == 1, ended.stderr
    assert "too large" in ended.stderr.lower()
    assert final_files(known.before).items() <= final_files(out).items()
    assert not leftovers(out)
