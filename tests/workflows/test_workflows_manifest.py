"""A run that was changed after training is not used without a word."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path

import numpy as np
import pytest

import credibly as cr
from credibly.cli import main
from credibly.train import fit, recipe
from credibly.workflows import check_files

DATA = cr.data.synthetic(80, num_features=3)
GOLDEN = Path(__file__).parents[1] / "compatibility/golden"
RUNS = {
    "linear": recipe(model="linear", calibrate="affine"),
    "auto": recipe(model="auto"),
    "network": recipe(model="mlp", epochs=1, calibrate="affine"),
}


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    folder = tmp_path_factory.mktemp("manifest")
    for name, settings in RUNS.items():
        fit(DATA, settings, folder=folder / name)
    other = recipe(model="linear", calibrate="affine", epochs=3)
    fit(DATA, other, folder=folder / "other", seed=1)
    return folder


@pytest.fixture
def runs(trained, tmp_path):
    shutil.copytree(trained, tmp_path / "runs")
    return tmp_path / "runs"


def changed(path: Path, old: str, new: str) -> None:
    text = path.read_text("utf-8")
    assert re.search(old, text), text
    path.write_text(re.sub(old, new, text, count=1), "utf-8")


CHANGES = {
    "a slope": ("linear/calibration.json", r'"slope": [0-9.]+', '"slope": 8.72'),
    "the order of labels": (
        "linear/config.toml",
        r'labels = \[("[^"]+"), ("[^"]+")',
        r"labels = [\2, \1",
    ),
    "a setting": ("network/config.toml", r"seed = 0", "seed = 7"),
    "a comment": ("network/config.toml", r"\[settings\]", "# mine\n[settings]"),
    "a metric": ("network/metrics.json", r"0\.\d+", "0.999"),
    "the candidates": ("auto/candidates.json", r"0\.\d{4}", "0.9999"),
}


@pytest.mark.parametrize("change", CHANGES)
def test_a_changed_run_is_refused_by_load_and_check(change, runs, capsys):
    name, old, new = CHANGES[change]
    run, file = name.split("/")
    changed(runs / name, old, new)
    with pytest.raises(cr.InputError, match=rf"{file} was changed after training.*delete manifest"):
        cr.load(runs / run)
    assert main(["check", str(runs / run)]) == 1
    assert f"{file} was changed after training" in " ".join(capsys.readouterr().out.split())
    (runs / run / "manifest.json").unlink()  # as the message says
    cr.load(runs / run)


def test_weights_of_another_run_are_refused(runs, capsys):
    shutil.copy(runs / "other" / "model.safetensors", runs / "linear" / "model.safetensors")
    with pytest.raises(cr.InputError, match=r"model\.safetensors was changed after training"):
        cr.load(runs / "linear")
    assert main(["check", str(runs / "linear")]) == 1
    assert "model.safetensors" in capsys.readouterr().out


def test_a_file_that_is_missing_is_named(runs, capsys):
    (runs / "network" / "metrics.json").unlink()
    with pytest.raises(cr.InputError, match=r"metrics\.json is missing"):
        cr.load(runs / "network")
    assert main(["check", str(runs / "network")]) == 1
    assert "metrics.json is missing" in " ".join(capsys.readouterr().out.split())


@pytest.mark.parametrize("run", RUNS)
def test_every_file_that_is_loaded_has_a_checksum(run, runs):
    found = {Path(each.path).name: each.checksum for each in check_files(runs / run).files}
    del found[run]  # the folder: its files fit each other
    assert {name for name, checksum in found.items() if checksum != "sound"} <= {"log.jsonl"}
    assert check_files(runs / run).sound


@pytest.mark.parametrize(
    "text",
    ["[]", "{", '{"files": []}', '{"files": {"../x": "0"}}', '{"files": {"config.toml": 1}}'],
)
def test_a_damaged_manifest_is_named(text, runs, capsys):
    (runs / "linear" / "manifest.json").write_text(text)
    with pytest.raises(cr.InputError, match=r"manifest\.json must"):
        cr.load(runs / "linear")
    assert main(["check", str(runs / "linear")]) == 1
    assert "manifest.json must" in " ".join(capsys.readouterr().out.split())


@pytest.mark.parametrize("run", RUNS)
def test_a_run_stopped_before_its_manifest_is_finished_by_resume(run, runs, trained):
    """The manifest is written last, and replaced after the files that it speaks of."""
    for stale in (False, True):
        folder = runs / run
        if stale:
            (folder / "metrics.json").unlink()
        (folder / "manifest.json").unlink()
        fit(DATA, RUNS[run], folder=folder, resume=True)
        for name in ("manifest.json", "calibration.json", "model.safetensors", "metrics.json"):
            assert (folder / name).read_bytes() == (trained / run / name).read_bytes()


def test_runs_without_a_manifest_load(runs):
    before = cr.load(runs / "linear").predict(DATA.features).probabilities
    (runs / "linear" / "manifest.json").unlink()
    np.testing.assert_array_equal(
        cr.load(runs / "linear").predict(DATA.features).probabilities, before
    )
    assert cr.load(GOLDEN / "run-1.0").labels
    assert not (GOLDEN / "run-1.0" / "manifest.json").exists()


def test_the_manifest_names_no_folder_and_no_time(trained):
    document = json.loads((trained / "linear" / "manifest.json").read_text("utf-8"))
    assert set(document) == {"files"}
    assert all(re.fullmatch("[0-9a-f]{64}", each) for each in document["files"].values())
