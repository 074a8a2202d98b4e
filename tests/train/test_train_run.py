"""A run from data to predictions, and what can be done with its folder afterwards."""

from __future__ import annotations

import dataclasses
import json

import numpy as np
import pytest
import torch
from train_instances import awkward, pictures, save_npz, sha, single

import credibly as cr
from credibly import InputError
from credibly.cli import main
from credibly.papers import preset
from credibly.train import export, fit, recipe

LINEAR = recipe(model="linear", epochs=3, batch_size=32, learning_rate=0.05)
LOSSES = [
    "bce",
    "joint(components=3)",
    "asl(detach_weight=true)",
    "spa",
    "twl",
    "softmax(zero_label=none_class)",
]
SINGLE = ["ce", "quasibinary", "avgk", "epr", "an"]


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    return fit(awkward(), LINEAR, folder=tmp_path_factory.mktemp("runs") / "bce")


@pytest.mark.parametrize("loss", LOSSES + SINGLE)
def test_every_loss_trains_calibrates_and_predicts(loss, tmp_path):
    rows = single() if loss in SINGLE else awkward()
    settings = dataclasses.replace(LINEAR, loss=loss, average_size=1.5, epochs=12)
    done = fit(rows, settings, folder=tmp_path)
    predictions = cr.Predictions.read(tmp_path / "predictions.parquet")
    assert predictions.probabilities.shape == (len(rows.part("test")), 5)
    assert predictions.scores is not None
    assert done.metrics["mAP@y"] > 0.5
    assert 0 < done.metrics["NLL"] < 0.7
    again = cr.load(tmp_path).predict(rows.part("test"))
    np.testing.assert_allclose(again.probabilities, predictions.probabilities, atol=1e-6)


def test_calibrated_probabilities_have_lower_log_loss_than_raw_ones(tmp_path):
    steep = dataclasses.replace(LINEAR, loss="asl", epochs=10)
    raw = fit(awkward(1500), dataclasses.replace(steep, calibrate="none"), folder=tmp_path / "raw")
    mapped = fit(awkward(1500), steep, folder=tmp_path / "mapped")
    assert mapped.metrics["NLL"] < raw.metrics["NLL"]


def test_the_best_epoch_is_kept_not_the_last(tmp_path):
    # A step far too long: the first epochs are better than the last.
    changes = {"learning_rate": 1.0, "epochs": 6, "schedule": "constant", "calibrate": "affine"}
    wild = dataclasses.replace(LINEAR, **changes)
    done = fit(awkward(), wild, folder=tmp_path)
    lines = [json.loads(line) for line in (tmp_path / "log.jsonl").read_text().splitlines()]
    best = min(lines, key=lambda line: line["nll"])["epoch"]
    assert lines[-1]["best_epoch"] == best
    held_out = awkward().part("calibration")
    estimates = done.predict(held_out).probabilities
    expected = min(line["nll"] for line in lines)
    assert float(cr.metrics.log_loss(estimates, held_out.targets)) == pytest.approx(
        expected, abs=1e-4
    )


def test_early_stopping_stops_early(tmp_path):
    wild = dataclasses.replace(LINEAR, learning_rate=1.0, epochs=30, patience=2, warmup=0.0)
    fit(awkward(), dataclasses.replace(wild, schedule="constant"), folder=tmp_path)
    lines = [json.loads(line) for line in (tmp_path / "log.jsonl").read_text().splitlines()]
    assert len(lines) < 30
    assert lines[-1]["epoch"] - lines[-1]["best_epoch"] == 2


def test_prior_bias_starts_at_the_label_rates():
    rows = awkward().part("train")
    for loss in ("bce", "spa", "asl"):
        settings = dataclasses.replace(LINEAR, loss=loss, epochs=1, learning_rate=1e-9)
        done = fit(awkward(), settings)
        criterion, model = done.criterion, done.model
        known = rows.targets >= 0
        rates = (np.where(known, rows.targets, 0).sum(0) + 0.5) / (known.sum(0) + 1)
        started = criterion.probabilities(model.head.bias.detach()[None])[0]
        np.testing.assert_allclose(started, rates, rtol=2e-3)


def test_images_train_and_predict_from_arrays(tmp_path):
    settings = recipe(model="cnn", hidden=8, epochs=3, batch_size=16, learning_rate=1e-2)
    done = fit(pictures(), settings, folder=tmp_path)
    images = pictures().part("test").images
    a = done.predict(images).probabilities
    b = cr.load(tmp_path).predict(images[:, :, :, 0]).probabilities
    np.testing.assert_allclose(a, b, atol=1e-6)


def test_workers_decode_the_same_rows(tmp_path):
    settings = recipe(model="linear", epochs=1, batch_size=16)
    fit(pictures(), settings, folder=tmp_path / "none")
    fit(pictures(), dataclasses.replace(settings, workers=1), folder=tmp_path / "one")
    assert sha(tmp_path / "none/predictions.parquet") == sha(tmp_path / "one/predictions.parquet")


def test_a_frozen_backbone_s_features_are_kept_and_give_the_same_run(tmp_path):
    settings = recipe(model="cnn", hidden=8, epochs=8, batch_size=16, frozen=True)
    settings = dataclasses.replace(settings, learning_rate=1e-2, dropout=0.0)
    rows = dataclasses.replace(pictures(), augmentation="none")
    fit(rows, settings, folder=tmp_path / "live")
    fit(rows, dataclasses.replace(settings, features=True), folder=tmp_path / "kept")
    live, kept = (
        cr.Predictions.read(tmp_path / name / "predictions.parquet") for name in ("live", "kept")
    )
    np.testing.assert_allclose(live.probabilities, kept.probabilities, atol=1e-4)


def test_bf16_and_accumulation_train(tmp_path):
    settings = dataclasses.replace(LINEAR, precision="bf16", accumulate=2, epochs=6)
    assert fit(awkward(), settings, folder=tmp_path).metrics["mAP@y"] > 0.5


def test_a_linear_probe_reaches_the_optimum_of_its_objective(tmp_path):
    from scipy.special import expit

    train = awkward().part("train")
    known = train.targets >= 0
    done = fit(awkward(), recipe(model="linear", l2=0.01 * float(known.sum())), folder=tmp_path)
    model = done.model.double()
    inputs = torch.from_numpy(train.features).double()
    scores = model(inputs).detach().numpy()
    residual = np.where(known, expit(scores) - train.targets, 0) / known.sum()
    slope = residual.T @ model.features(inputs).numpy() + 0.01 * model.head.weight.detach().numpy()
    assert np.abs(slope).max() < 1e-4
    assert np.abs(residual.sum(axis=0)).max() < 1e-4


def test_the_sweep_keeps_the_weight_that_held_out_rows_prefer(tmp_path):
    fit(awkward(), cr.train.Linear(l2=preset("twl-probe").settings["l2"]), folder=tmp_path)
    lines = [json.loads(line) for line in (tmp_path / "log.jsonl").read_text().splitlines()]
    assert len(lines) == 45
    assert [lines[0]["l2"], lines[-1]["l2"]] == pytest.approx([1e5, 1e-6])
    best = min(lines, key=lambda line: line["nll"])
    assert best["epoch"] == lines[-1]["best_epoch"]


# Bad input -----------------------------------------------------------------------------------


ONLY_PRESENT = dataclasses.replace(awkward(), targets=np.ones_like(awkward().targets))


@pytest.mark.parametrize(
    ("message", "rows", "changes"),
    [
        ("unknown loss 'bse'", awkward(), {"loss": "bse"}),
        ("exactly one label per row", awkward(), {"loss": "avgk", "average_size": 2.0}),
        ("has no link", awkward(), {"loss": "twl", "calibrate": "none"}),
        ("at most the number of labels", awkward(), {"average_size": 6.0}),
        ("fp16 needs a GPU", awkward(), {"precision": "fp16"}),
        ("no held-out rows", awkward().part("train"), {}),
        ("must have training rows", awkward().part("test"), {}),
        ("all 720 known targets are present.*coding=.signed.*--loss an", ONLY_PRESENT, {}),
    ],
)
def test_what_cannot_be_trained_is_refused_before_anything_is_written(
    message, rows, changes, tmp_path
):
    if "GPU" in message and torch.cuda.is_available():
        pytest.skip("there is a GPU here")
    with pytest.raises(InputError, match=message):
        fit(rows, dataclasses.replace(LINEAR, **changes), folder=tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_a_loss_that_explodes_is_an_error_and_keeps_the_run(tmp_path):
    rows = awkward()
    huge = dataclasses.replace(rows, features=rows.features * np.float32(1e30))
    with pytest.raises(InputError, match="no longer a finite number"):
        fit(huge, dataclasses.replace(LINEAR, optimizer="sgd", learning_rate=1e30), folder=tmp_path)


def test_load_says_what_a_folder_is_not(tmp_path, run):
    with pytest.raises(InputError, match="does not exist"):
        cr.load(tmp_path / "nothing")
    with pytest.raises(InputError, match=r"has no config\.toml"):
        cr.load(tmp_path)
    (tmp_path / "config.toml").write_text((run.folder / "config.toml").read_text())
    with pytest.raises(InputError, match="has not finished"):
        cr.load(tmp_path)


def test_predict_refuses_other_labels_features_and_kinds(run):
    renamed = dataclasses.replace(awkward(), labels=["x", "dog", "dining table", "fork", "z"])
    with pytest.raises(InputError, match="has 'x', 'z' besides"):
        run.predict(renamed)
    with pytest.raises(InputError, match="trained on 6 features per row"):
        run.predict(np.zeros((3, 7), dtype=np.float32))
    with pytest.raises(InputError, match="trained on features"):
        run.predict(pictures())
    with pytest.raises(InputError, match="features must not be infinite"):
        run.predict(np.full((1, 6), np.inf, dtype=np.float32))


# Shards --------------------------------------------------------------------------------------


def predict(run, folder, out, *flags, seed=0):
    """Predict the rows of a file by the command line; return its exit code."""
    source = save_npz(folder / f"rows{seed}.npz", awkward(seed=seed))
    command = ["predict", str(run.folder), str(source), "--out", str(folder / out), "--quiet"]
    return main([*command, *flags])


def test_parts_of_many_processes_are_the_whole(run, tmp_path, monkeypatch):
    assert predict(run, tmp_path, "whole.parquet") == 0
    monkeypatch.setenv("WORLD_SIZE", "3")
    for process in range(3):
        monkeypatch.setenv("RANK", str(process))
        assert predict(run, tmp_path, "parts", "--shards", "4") == 0
    whole = cr.Predictions.read(tmp_path / "whole.parquet")
    parts = cr.Predictions.read(tmp_path / "parts")
    assert parts.ids.tolist() == whole.ids.tolist()
    np.testing.assert_allclose(parts.probabilities, whole.probabilities, atol=1e-6)
    np.testing.assert_array_equal(parts.targets, whole.targets)


def test_finished_parts_are_skipped_and_strange_ones_refused(run, tmp_path, capsys):
    assert predict(run, tmp_path, "parts", "--shards", "3") == 0
    files = sorted((tmp_path / "parts").glob("*.parquet"))
    assert len(files) == 3
    files[1].unlink()
    before = [files[0].stat().st_mtime_ns, files[2].stat().st_mtime_ns]
    assert predict(run, tmp_path, "parts", "--shards", "3") == 0
    assert sorted((tmp_path / "parts").glob("*.parquet")) == files
    assert before == [files[0].stat().st_mtime_ns, files[2].stat().st_mtime_ns]
    assert predict(run, tmp_path, "parts", "--shards", "3", seed=1) == 2
    assert "another run or of other rows" in " ".join(capsys.readouterr().err.split())


def test_several_shards_need_a_folder(run, tmp_path, capsys):
    assert predict(run, tmp_path, "one.parquet", "--shards", "2") == 2
    assert "need a folder" in " ".join(capsys.readouterr().err.split())


# ONNX ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("loss", "calibrate", "size"),
    [
        ("bce", "affine", None),
        ("softmax", "affine", 1.5),
        ("spa", "per-label", 2.0),
        ("asl", "beta", 1.5),
        ("twl", "temperature", 2.0),
        ("bce", "isotonic", 1.5),
        ("focal", "none", None),
        ("joint(components=3)", "none", None),
    ],
)
def test_onnx_gives_the_probabilities_and_sets_of_the_run(loss, calibrate, size, tmp_path):
    onnxruntime = pytest.importorskip("onnxruntime", reason="needs the extra `export`")
    pytest.importorskip("onnx", reason="needs the extra `export`")
    settings = dataclasses.replace(LINEAR, loss=loss, calibrate=calibrate, average_size=size)
    done = fit(awkward(), settings, folder=tmp_path / "run")
    result = export(done, tmp_path / "model.onnx")
    assert result["difference"] < 1e-5
    rows = awkward().part("test")
    compared = 0 if loss.startswith("joint") else len(rows)  # its scores are not stored
    assert (result["rows"], result["changed"]) == (compared, 0)
    session = onnxruntime.InferenceSession(
        tmp_path / "model.onnx", providers=["CPUExecutionProvider"]
    )
    scores, estimates, sets = session.run(None, {"inputs": rows.features})
    predictions = done.predict(rows)
    np.testing.assert_allclose(estimates, predictions.probabilities, atol=2e-5)
    np.testing.assert_allclose(scores, predictions.scores, atol=1e-4)
    decided = done.decision.predict(predictions.probabilities)
    near = np.abs(predictions.probabilities - done.decision.threshold) < 1e-4
    assert ((sets == decided) | near).all()
    labels = json.loads(session.get_modelmeta().custom_metadata_map["credibly"])["labels"]
    assert labels == rows.labels


def test_an_onnx_file_with_other_label_sets_is_not_written(tmp_path):
    pytest.importorskip("onnxruntime", reason="needs the extra `export`")

    class Other(cr.decide.Threshold):
        def to_module(self):
            return cr.decide.Threshold(0.2).to_module()

    done = fit(awkward(), LINEAR, folder=tmp_path / "run")
    done.pipeline.decision = Other(0.5)
    with pytest.raises(InputError, match=r"label sets .* differ from those of the run in \d+ of"):
        export(done, tmp_path / "model.onnx")
    assert not (tmp_path / "model.onnx").exists()


def test_an_onnx_file_that_differs_is_not_written(tmp_path, monkeypatch, run):
    pytest.importorskip("onnxruntime", reason="needs the extra `export`")
    monkeypatch.setattr("credibly.train.onnx._difference", lambda *_: 0.5)
    with pytest.raises(InputError, match=r"differ from torch by 0\.5"):
        export(run, tmp_path / "model.onnx")
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("loss", ["bce", "twl"])
def test_lbfgs_trains_the_last_layer_of_any_network_on_its_features(loss, tmp_path):
    scenes = cr.data.digits(200)
    settings = cr.train.Probe(loss=loss, model="cnn", hidden=4, l2=(100.0, 1.0, 0.01))
    done = fit(scenes, settings, folder=tmp_path / "run")
    assert len((tmp_path / "run" / "log.jsonl").read_text().splitlines()) == 3
    alone = fit(scenes, settings).predict(scenes.part("test"))
    np.testing.assert_array_equal(
        alone.probabilities, done.predict(scenes.part("test")).probabilities
    )
    again = cr.load(tmp_path / "run").predict(scenes.part("test"))
    np.testing.assert_array_equal(
        again.probabilities, done.predict(scenes.part("test")).probabilities
    )
    # The head is at the optimum of the penalised loss, so it beats its own start.
    assert done.metrics["mAP@y"] > 0.2


def test_the_transfer_preset_takes_a_backbone(tmp_path):
    scenes = cr.data.digits(120)
    arrays = {"images": scenes.images, "targets": scenes.targets, "split": scenes.split}
    np.savez(tmp_path / "scenes.npz", labels=np.array(scenes.labels), **arrays)
    command = "train DATA --preset twl-probe --model resnet20-32 --quiet --out"
    files = {"DATA": str(tmp_path / "scenes.npz")}
    argv = [files.get(word, word) for word in command.split()]
    assert main([*argv, str(tmp_path / "run")]) == 0
    assert isinstance(cr.load(tmp_path / "run").recipe, cr.train.Probe)


@pytest.mark.parametrize("head", ["ml", "ml-softmax", "sccp"])
def test_the_head_of_average_k_reaches_probabilities_selection_and_sets(head, tmp_path):
    scenes = cr.data.digits(200, counts=(0, 1))
    settings = recipe(
        loss=f"avgk(head={head})",
        model="linear",
        epochs=2,
        average_size=2.0,
        select="average-k",
        calibrate="none",
    )
    done = fit(scenes, settings, folder=tmp_path / "run")
    scores = done.scores(scenes.part("test"))
    with torch.no_grad():
        expected = done.criterion.probabilities(scores).double().numpy()
    found = done.predict(scenes.part("test")).probabilities
    np.testing.assert_allclose(found, expected, atol=1e-6)
    sums = found.sum(axis=1)
    assert np.allclose(sums, 1, atol=1e-5) == (head != "ml")
    held_out = done.scores(scenes.part("calibration"))
    fitted = cr.decide.AverageSize(2.0).fit(done.pipeline.probabilities(held_out.numpy()))
    assert done.decision.state() == fitted.state()


def test_many_labels_train_with_last_layer_and_loss_in_one(tmp_path, monkeypatch):
    rows = cr.data.synthetic(120, num_labels=12, num_features=6)
    settings = recipe(loss="spa", model="mlp", hidden=8, epochs=2, dropout=0.2)
    plain = fit(rows, settings, folder=tmp_path / "plain")
    monkeypatch.setattr("credibly.train.training_loop.MANY_LABELS", 10)
    calls = []
    monkeypatch.setattr(
        "credibly.train.training_loop.fused_linear",
        lambda *parts: calls.append(1) or cr.losses.fused_linear(*parts),
    )
    fused = fit(rows, settings, folder=tmp_path / "fused")
    assert calls
    for name, weights in plain.model.state_dict().items():
        torch.testing.assert_close(weights, fused.model.state_dict()[name], rtol=1e-3, atol=1e-5)
