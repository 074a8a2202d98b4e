"""Killed at any instant, a resumed run ends as if nothing had happened: bit for bit."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors import safe_open
from safetensors.torch import load_file, save_file
from train_instances import DATA, SERVER, awkward, sha, train_and_die

from credibly import InputError
from credibly.train import fit, recipe

QUICK = {"epochs": 3, "batch_size": 32, "checkpoint_seconds": 0.0}
# Everything with a memory of its own: moments, momentum, averaged weights, a running normalizer,
# an estimate a row, noise, dropout, augmentation, gradients added up, early stopping.
CASES = {
    "adamw": ("awkward", {"model": "mlp", "hidden": 8, "ema": 0.9, "dropout": 0.5}),
    "sgd": (
        "awkward",
        {"model": "linear", "optimizer": "sgd", "nesterov": True, "accumulate": 2, "clip": 1.0},
    ),
    "quasibinary": ("awkward", {"model": "linear", "loss": "quasibinary", "patience": 1}),
    "role": ("single", {"model": "linear", "loss": "role", "average_size": 1.5}),
    "joint": ("awkward", {"model": "linear", "loss": "joint(components=3)"}),
    "topk": ("single", {"model": "linear", "loss": "topk(average_size=2)"}),
    "images": ("pictures", {"model": "cnn", "hidden": 8, "epochs": 2, "dropout": 0.2}),
    "fine-tuning": (
        "pictures",
        {
            **{"model": "resnet20-32", "frozen_epochs": 1, "backbone_rate": 0.3, "views": "flip"},
            **{"layer_decay": 0.9, "rand_augment": 0.5, "cutout": 0.3, "mixup": 0.4},
            **{"loss": "bce", "augment": "shift+flip"},
        },
    ),
    "sweep": ("awkward", {"model": "linear", "l2": (100.0, 10.0, 1.0, 0.1)}),
}
# The kind of instant, and which: updates of the weights, flushes to disk, renames.
INSTANTS = {case: [("update", 3)] for case in CASES} | {
    "adamw": [("update", 2), ("fsync", 5), ("replace", 3), ("fsync", 24)],
    "quasibinary": [("update", 7)],
}


def options(settings: dict[str, Any]) -> dict[str, Any]:
    """Return settings with few epochs; what is solved has none."""
    quick = {"checkpoint_seconds": 0.0} if "l2" in settings else QUICK
    return {**quick, **settings}


def kill_at(case: str, folder: Path, how: str, instant: int) -> int | None:
    kind, settings = CASES[case]
    child = SERVER.Process(
        target=train_and_die, args=(kind, str(folder), options(settings), how, instant)
    )
    child.start()
    child.join(timeout=120)
    return child.exitcode


@pytest.mark.parametrize("case", CASES)
def test_a_run_killed_again_and_again_ends_bit_identical(case, tmp_path):
    kind, settings = CASES[case]
    whole, broken = tmp_path / "whole", tmp_path / "broken"
    fit(DATA[kind](), recipe(**options(settings)), folder=whole)
    exits = [kill_at(case, broken, how, instant) for how, instant in INSTANTS[case]]
    assert set(exits) == {-signal.SIGKILL}
    fit(DATA[kind](), recipe(**options(settings)), folder=broken, resume=True)
    for name in ("model.safetensors", "calibration.json", "predictions.parquet", "log.jsonl"):
        assert sha(broken / name) == sha(whole / name), name
    assert not [path for path in broken.rglob(".*") if path.is_file()]


def test_kill_9_from_outside_then_resume_gives_the_same_weights(tmp_path):
    from credibly.cli import main

    numbers = {"features": awkward().features, "targets": awkward().targets}
    import numpy as np

    data = tmp_path / "rows.npz"
    np.savez(data, labels=np.array(awkward().labels), split=awkward().split, **numbers)
    command = ["train", str(data), "--model", "linear", "--epochs", "40", "--quiet", "--json"]
    command += ["--checkpoint-seconds", "0", "--batch-size", "16"]
    assert main([*command, "--out", str(tmp_path / "whole")]) == 0
    broken = tmp_path / "broken"
    child = subprocess.Popen(
        [sys.executable, "-m", "credibly", *command, "--out", str(broken)],
        stdout=subprocess.DEVNULL,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
    )
    for _ in range(2000):
        if list(broken.glob("state/step-*")) or child.poll() is not None:
            break
        time.sleep(0.02)
    child.kill()
    assert child.wait() == -signal.SIGKILL
    assert not (broken / "metrics.json").exists()
    assert main([*command, "--out", str(broken), "--resume"]) == 0
    assert sha(broken / "model.safetensors") == sha(tmp_path / "whole" / "model.safetensors")


def test_only_the_last_two_checkpoints_are_kept_and_none_needs_pickle(tmp_path):
    fit(awkward(), recipe(**QUICK, model="linear"), folder=tmp_path / "run")
    files = sorted((tmp_path / "run" / "state").iterdir())
    assert len(files) == 2
    assert all(path.suffix == ".safetensors" for path in files)


def test_a_full_disk_keeps_the_last_checkpoint_and_says_so(tmp_path, monkeypatch, capsys):
    from safetensors import torch as safetensors

    real, calls = safetensors.save_file, []

    def failing(tensors, path, metadata):
        calls.append(path)
        if len(calls) == 3:
            raise OSError(28, "No space left on device", str(path))
        real(tensors, path, metadata=metadata)

    monkeypatch.setattr(safetensors, "save_file", failing)
    with pytest.raises(OSError, match="No space left"):
        fit(awkward(), recipe(**QUICK, model="linear"), folder=tmp_path / "run")
    kept = sorted(path.name for path in (tmp_path / "run" / "state").iterdir())
    assert kept == ["step-000000001.safetensors", "step-000000002.safetensors"]
    monkeypatch.undo()
    fit(awkward(), recipe(**QUICK, model="linear"), folder=tmp_path / "run", resume=True)
    fit(awkward(), recipe(**QUICK, model="linear"), folder=tmp_path / "other")
    assert sha(tmp_path / "run/model.safetensors") == sha(tmp_path / "other/model.safetensors")


def test_a_finished_run_is_taken_over_as_it_is(tmp_path):
    run = fit(awkward(), recipe(**QUICK, model="linear"), folder=tmp_path)
    before = (tmp_path / "model.safetensors").stat().st_mtime_ns
    again = fit(awkward(), recipe(**QUICK, model="linear"), folder=tmp_path, resume=True)
    assert (tmp_path / "model.safetensors").stat().st_mtime_ns == before
    assert again.metrics == run.metrics


def begun(folder: Path) -> None:
    fit(awkward(), recipe(**QUICK, model="linear"), folder=folder)


def test_resume_refuses_other_settings_by_name(tmp_path):
    begun(tmp_path)
    other = recipe(**{**QUICK, "epochs": 4}, model="linear")
    with pytest.raises(InputError, match=r"started with epochs = 3; got 4"):
        fit(awkward(), other, folder=tmp_path, resume=True)


def test_resume_allows_settings_that_change_nothing(tmp_path):
    begun(tmp_path)
    same = recipe(**{**QUICK, "checkpoint_seconds": 9.0}, model="linear", workers=1)
    assert fit(awkward(), same, folder=tmp_path, resume=True).metrics


def test_resume_refuses_other_data(tmp_path):
    begun(tmp_path)
    with pytest.raises(InputError, match="begun on other data"):
        fit(awkward(seed=1), recipe(**QUICK, model="linear"), folder=tmp_path, resume=True)


def test_resume_refuses_another_version(tmp_path):
    begun(tmp_path)
    config = tmp_path / "config.toml"
    config.write_text(config.read_text().replace('version = "', 'version = "7.'))
    with pytest.raises(InputError, match=r"started with credibly 7\."):
        fit(awkward(), recipe(**QUICK, model="linear"), folder=tmp_path, resume=True)


def read(path: Path) -> tuple[dict[str, torch.Tensor], dict[str, Any]]:
    """Return the tensors and the document of a checkpoint."""
    with safe_open(path, framework="pt") as file:
        return load_file(path), json.loads(file.metadata()["credibly"])


def write(path: Path, tensors: dict[str, torch.Tensor], values: dict[str, Any]) -> None:
    """Write a checkpoint without a checksum."""
    plain = {name: value for name, value in values.items() if name != "credibly.checksum"}
    save_file(tensors, path, metadata={"credibly": json.dumps(plain)})


def unfinish(folder: Path) -> None:
    for name in ("metrics.json", "manifest.json"):
        (folder / name).unlink()


def test_a_checkpoint_of_another_version_is_refused(tmp_path):
    begun(tmp_path)
    unfinish(tmp_path)
    last = sorted((tmp_path / "state").iterdir())[-1]
    tensors, values = read(last)
    write(last, tensors, {**values, "version": "7.0.0"})
    with pytest.raises(InputError, match=r"written by credibly 7\.0\.0"):
        fit(awkward(), recipe(**QUICK, model="linear"), folder=tmp_path, resume=True)


@pytest.mark.parametrize("settings", [{}, {"l2": (9.0, 1.0)}], ids=["sgd", "sweep"])
def test_a_damaged_checkpoint_is_told_with_a_way_back_to_the_same_result(settings, tmp_path):
    settings = recipe(**options({"model": "linear", **settings}))
    whole, run = tmp_path / "whole", tmp_path / "run"
    fit(awkward(), settings, folder=whole)
    shutil.copytree(whole, run)
    unfinish(run)
    before, last = sorted((run / "state").iterdir())
    sound, document = read(last)
    strange = {**document, "progress": {"epoch": 1}, "tried": None}
    for start in (before.name, "the first step"):
        damaged = sorted((run / "state").iterdir())[-1]
        damaged.write_bytes(damaged.read_bytes()[:-1])
        match = rf"{damaged.name} must .*Delete it to continue from {start}\. .* the same\.$"
        with pytest.raises(InputError, match=match):
            fit(awkward(), settings, folder=run, resume=True)
        for tensors, values in (({}, document), (sound, strange)):
            write(damaged, tensors, values)
            with pytest.raises(InputError, match=match):
                fit(awkward(), settings, folder=run, resume=True)
        damaged.unlink()
        shutil.copytree(run, tmp_path / start)
        fit(awkward(), settings, folder=tmp_path / start, resume=True)
        for name in ("model.safetensors", "predictions.parquet", "log.jsonl", "metrics.json"):
            assert sha(tmp_path / start / name) == sha(whole / name), name


def test_a_folder_with_a_run_is_not_overwritten_unasked(tmp_path):
    begun(tmp_path)
    with pytest.raises(InputError, match="already holds a run"):
        fit(awkward(), recipe(**QUICK, model="linear"), folder=tmp_path)


def test_a_folder_with_other_files_is_left_alone(tmp_path):
    (tmp_path / "thesis.tex").write_text("years of work")
    with pytest.raises(InputError, match="holds other files"):
        fit(awkward(), recipe(**QUICK, model="linear"), folder=tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["thesis.tex"]


def test_the_log_reads_as_one_uninterrupted_run(tmp_path):
    run = fit(awkward(), recipe(**QUICK, model="linear"), folder=tmp_path)
    lines = [json.loads(line) for line in (run.folder / "log.jsonl").read_text().splitlines()]
    assert [line["epoch"] for line in lines] == [1, 2, 3]
    assert {"loss", "nll", "map", "ace", "learning_rate", "best_epoch"} <= set(lines[0])
