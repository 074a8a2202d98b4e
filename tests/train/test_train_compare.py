"""Comparisons and the commands around them, from the command line in."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import numpy as np
import pytest
from train_instances import awkward, save_npz

import credibly as cr
from credibly import InputError
from credibly.cli import main
from credibly.train import recipe
from credibly.workflows import compare

QUICK = recipe(model="linear", epochs=2, batch_size=32, learning_rate=0.05)


@pytest.fixture(scope="module")
def rows(tmp_path_factory):
    return str(save_npz(tmp_path_factory.mktemp("data") / "rows.npz", awkward(400)))


def test_a_comparison_has_every_figure_with_an_interval_over_seeds(rows, tmp_path):
    results = compare(rows, tmp_path, ["bce", "twl"], seeds=2, recipe=QUICK, conditions=2)
    assert json.loads((tmp_path / "results.json").read_text()) == results.to_dict()
    for loss in ("bce", "twl"):
        figures = results.losses[loss]
        wanted = {"mAP@y", "mAP@x", "ACE", "MCE", "NLL", "set coverage", "retrieval@1"}
        assert wanted | {"retrieval@2", "ACE, sigmoid"} <= set(figures)
        runs = [results.runs[f"{loss}-seed{seed}"]["NLL"] for seed in range(2)]
        assert figures["NLL"]["mean"] == pytest.approx(np.mean(runs))
        half = 12.706 * np.std(runs, ddof=1) / 2**0.5
        assert figures["NLL"]["high"] - figures["NLL"]["mean"] == pytest.approx(half, rel=1e-3)
    assert len({run["NLL"] for run in results.runs.values()}) == 4
    predictions = cr.Predictions.read(tmp_path / "runs/bce-seed1/predictions.parquet")
    assert predictions.metadata["seed"] == 1


def test_comparing_leaves_the_callers_threads_alone(rows, tmp_path):
    import torch

    before = torch.get_num_threads()
    compare(rows, tmp_path, ["bce"], seeds=1, recipe=QUICK, conditions=1, jobs=1)
    assert torch.get_num_threads() == before


def test_finished_runs_are_kept_and_new_ones_added(rows, tmp_path):
    compare(rows, tmp_path, ["bce"], seeds=1, recipe=QUICK)
    model = tmp_path / "runs/bce-seed0/model.safetensors"
    before = model.stat().st_mtime_ns
    results = compare(rows, tmp_path, ["bce", "spa"], seeds=1, recipe=QUICK)
    assert model.stat().st_mtime_ns == before
    assert list(results.losses) == ["bce", "spa"]
    assert results.losses["spa"]["NLL"]["low"] < results.losses["spa"]["NLL"]["high"]


def test_processes_at_the_same_time_give_the_same_results(rows, tmp_path):
    one = compare(rows, tmp_path / "one", ["bce", "spa"], seeds=1, recipe=QUICK)
    two = compare(rows, tmp_path / "two", ["bce", "spa"], seeds=1, recipe=QUICK, jobs=2)
    for loss in ("bce", "spa"):
        assert two.losses[loss]["NLL"]["mean"] == pytest.approx(
            one.losses[loss]["NLL"]["mean"], rel=1e-4
        )


def test_a_misspelt_loss_is_found_before_any_is_trained(rows, tmp_path):
    with pytest.raises(InputError, match="unknown loss 'spaa'"):
        compare(rows, tmp_path / "out", ["bce", "spaa"], recipe=QUICK)
    assert not (tmp_path / "out").exists()


def test_a_folder_belongs_to_one_data_set(rows, tmp_path):
    compare(rows, tmp_path, ["bce"], seeds=1, recipe=QUICK)
    with pytest.raises(InputError, match="holds a comparison on other data"):
        compare("synthetic", tmp_path, ["bce"], seeds=1, recipe=QUICK)


# The command line ----------------------------------------------------------------------------


def test_train_predict_and_export_from_the_command_line(rows, tmp_path, capsys):
    run = str(tmp_path / "run")
    assert main(["train", rows, "--model", "linear", "--epochs", "2", "--out", run]) == 0
    shown = capsys.readouterr().out
    assert "mAP@y" in shown
    assert "240 train, 80 calibration, 80 test" in shown
    out = str(tmp_path / "p.parquet")
    assert main(["predict", run, rows, "--part", "test", "--out", out, "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == {"rows": 80, "written": [out]}
    written = cr.Predictions.read(f"{run}/predictions.parquet")
    np.testing.assert_allclose(cr.Predictions.read(out).probabilities, written.probabilities)
    pytest.importorskip("onnxruntime", reason="needs the extra `export`")
    model = str(tmp_path / "m.onnx")
    assert main(["export", run, "--out", model, "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["difference"] < 1e-5


def test_compare_prints_a_table_that_says_how_to_read_it(rows, tmp_path, capsys):
    command = ["compare", rows, "--losses", "bce,spa", "--seeds", "1", "--model", "linear"]
    assert main([*command, "--epochs", "2", "--out", str(tmp_path / "c")]) == 0
    shown = capsys.readouterr().out
    assert "Higher is better for mAP" in shown
    assert "±" in shown


@pytest.mark.parametrize(
    ("message", "arguments"),
    [
        ("does not exist", ["train", "nowhere.npz", "--out", "OUT"]),
        ("unknown preset 'spacoco'", ["train", "ROWS", "--preset", "spacoco", "--out", "OUT"]),
        ("Did you mean 'epochs'", ["train", "ROWS", "--config", "TOML", "--out", "OUT"]),
        ("must be a run folder", ["predict", "nowhere", "ROWS", "--out", "OUT"]),
        ("must be a run folder", ["export", "nowhere", "--out", "nowhere.onnx"]),
        ("at least one loss", ["compare", "ROWS", "--losses", ",", "--out", "OUT"]),
    ],
)
def test_bad_input_is_one_sentence_and_exit_code_2(message, arguments, rows, tmp_path, capsys):
    (tmp_path / "run.toml").write_text("epoch = 3\n")
    places = {"ROWS": rows, "OUT": str(tmp_path / "out"), "TOML": str(tmp_path / "run.toml")}
    assert main([places.get(text, text) for text in arguments]) == 2
    error = capsys.readouterr().err
    assert message in error
    assert "Traceback" not in error
    assert not (tmp_path / "out").exists()


def test_the_demo_has_the_same_numbers_for_any_number_of_threads_and_jobs(tmp_path):
    command = [sys.executable, "-m", "credibly", "demo", "--rows", "200", "--epochs", "1", "--json"]
    shown = {}
    for threads, jobs in (("1", "1"), ("4", "3")):
        out = tmp_path / threads
        environment = {**os.environ, "OMP_NUM_THREADS": threads}
        done = subprocess.run(
            [*command, "--jobs", jobs, "--out", str(out)],
            capture_output=True,
            text=True,
            env=environment,
        )
        assert done.returncode == 0, done.stderr
        files = sorted((out / "runs").rglob("predictions.parquet"))
        scores = [cr.Predictions.read(file).scores.tobytes() for file in files]
        shown[threads] = (done.stdout.replace(str(out), ""), scores)
    assert shown["1"] == shown["4"]
