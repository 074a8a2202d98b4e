"""A run's folder: soft targets, failures that leave nothing, one writer, workers that end."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

import credibly as cr
from credibly import InputError
from credibly.cli import main
from credibly.train import Callback, fit, recipe

DATA = cr.data.synthetic(300)


@pytest.fixture
def soft_file(tmp_path):
    noise = np.random.default_rng(0)
    rows = noise.normal(size=(240, 6)).astype(np.float32)
    targets = noise.choice([0, 0.3, 0.6, 0.9, 1], size=(240, 4)).astype(np.float32)
    path = tmp_path / "soft.npz"
    np.savez(path, features=rows, targets=targets, labels=np.array(list("abcd")))
    return path


@pytest.mark.parametrize("loss", ["bce", "spa+lpr", "asl"])
@pytest.mark.parametrize("select", ["nll", "map"])
def test_soft_targets_train_and_calibrate(loss, select, soft_file, tmp_path):
    rows = cr.data.load(str(soft_file))
    settings = recipe(loss=loss, epochs=2, select=select, model="linear")
    run = fit(rows, settings, folder=tmp_path / "run")
    assert np.isfinite(run.metrics["NLL"])
    assert 0 < run.metrics["mAP@y"] < 1
    predictions = cr.Predictions.read(tmp_path / "run" / "predictions.parquet")
    assert ((predictions.targets > 0) & (predictions.targets < 1)).any()


def test_soft_targets_train_on_the_command_line(soft_file, tmp_path):
    command = ["train", str(soft_file), "--epochs", "1", "--out", str(tmp_path / "run"), "--quiet"]
    assert main(command) == 0


class Fail(Callback):
    def __init__(self, error: BaseException) -> None:
        self.error = error

    def on_update(self, done: int, total: int) -> None:
        raise self.error


@pytest.mark.parametrize("error", [InputError("no"), RuntimeError("no"), KeyboardInterrupt()])
def test_a_run_that_fails_with_nothing_to_resume_leaves_nothing(error, tmp_path):
    out = tmp_path / "new" / "run"
    with pytest.raises(type(error)):
        fit(DATA, recipe(epochs=1), folder=out, callback=Fail(error))
    assert list(tmp_path.iterdir()) == []
    out.mkdir(parents=True)
    with pytest.raises(type(error)):
        fit(DATA, recipe(epochs=1), folder=out, callback=Fail(error))
    assert list(out.iterdir()) == []
    fit(DATA, recipe(epochs=1), folder=out)


def test_a_run_that_fails_with_a_checkpoint_keeps_it(tmp_path):
    class Late(Callback):
        def on_epoch(self, figures):
            raise RuntimeError("late")

    with pytest.raises(RuntimeError):
        fit(DATA, recipe(epochs=2), folder=tmp_path / "run", callback=Late())
    assert (tmp_path / "run" / "log.jsonl").exists()
    fit(DATA, recipe(epochs=2), folder=tmp_path / "run", resume=True)


def test_two_writers_never_share_a_folder(tmp_path):
    class Second(Callback):
        def on_epoch(self, figures):
            with pytest.raises(InputError, match="another process is writing"):
                fit(DATA, recipe(epochs=2), folder=tmp_path / "run", resume=True)
            seen.append(figures["epoch"])

    seen: list[int] = []
    fit(DATA, recipe(epochs=2), folder=tmp_path / "run", callback=Second())
    assert seen == [1, 2]
    fit(DATA, recipe(epochs=2), folder=tmp_path / "run", resume=True)
    assert not [path for path in (tmp_path / "run").iterdir() if path.name.startswith(".")]


# Kills ---------------------------------------------------------------------------------------

linux = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="reads /proc")


def descendants(parent: int) -> set[int]:
    parents = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                fields = (entry / "stat").read_text().rpartition(")")[2].split()
            except OSError:
                continue
            if fields[0] != "Z":
                parents[int(entry.name)] = int(fields[1])
    found, before = {parent}, 0
    while len(found) > before:
        before = len(found)
        found |= {child for child, above in parents.items() if above in found}
    return found - {parent}


def running(process: int) -> bool:
    try:
        return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def wait_for(condition, seconds: float) -> bool:
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        if condition():
            return True
        time.sleep(0.05)
    return False


def start(command, out, errors=subprocess.PIPE):
    return subprocess.Popen(
        [sys.executable, "-m", "credibly", *command.split(), "--out", str(out)],
        stderr=errors,
        stdout=subprocess.DEVNULL,
        text=True,
        start_new_session=True,
    )


@linux
@pytest.mark.parametrize("sign", [signal.SIGKILL, signal.SIGTERM, signal.SIGINT])
def test_workers_of_a_comparison_end_with_it(sign, tmp_path):
    command = "compare synthetic --losses bce,spa --seeds 2 --jobs 2 --epochs 100000 --model linear"
    process = start(command, tmp_path / "out")
    try:
        logs = (tmp_path / "out" / "runs").glob
        assert wait_for(lambda: len(list(logs("*/log.jsonl"))) == 2, 240), process.poll()
        below = descendants(process.pid)
        assert len(below) >= 2
        os.kill(process.pid, sign)
        _, errors = process.communicate(timeout=60)
        assert wait_for(lambda: not any(map(running, below)), 15), "workers outlive their parent"
        assert "Traceback" not in errors
        assert process.returncode == {9: -9, 15: 143, 2: 130}[sign]
    finally:
        for left in [process.pid, *descendants(process.pid)]:
            if running(left):
                os.kill(left, signal.SIGKILL)


@linux
def test_decoding_workers_end_with_their_parent(tmp_path):
    command = "train digits --workers 2 --epochs 100000 --model linear"
    process = start(command, tmp_path / "run", errors=subprocess.DEVNULL)
    try:
        log = tmp_path / "run" / "log.jsonl"
        assert wait_for(lambda: log.exists() and len(descendants(process.pid)) >= 2, 240)
        below = descendants(process.pid)
        os.kill(process.pid, signal.SIGKILL)
        process.wait()
        assert wait_for(lambda: not any(map(running, below)), 3), "workers outlive their parent"
    finally:
        if running(process.pid):
            os.kill(process.pid, signal.SIGKILL)
