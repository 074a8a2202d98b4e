"""One fit behind three doors: the command line, ``cr.train.fit`` and ``CredibleClassifier``."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from train_instances import save_npz

import credibly as cr
from credibly.cli import main
from credibly.data import Data
from credibly.train import Auto, Ensemble, Linear, Network, Trees, fit

TEST = 1  # what `split` says of a row

RECIPES = {
    "linear": (Linear(), ["--model", "linear"]),
    "linear, penalty": (
        Linear(l2=3.0, loss="spa"),
        ["--model", "linear", "--l2", "3", "--loss", "spa"],
    ),
    "linear, no folds": (Linear(folds=0), ["--model", "linear", "--folds", "0"]),
    "linear by steps": (
        Network(model="linear", optimizer="sgd", epochs=5),
        ["--model", "linear", "--optimizer", "sgd", "--epochs", "5"],
    ),
    "mlp": (
        Network(model="mlp", hidden=8, epochs=3, dropout=0.2),
        ["--model", "mlp", "--hidden", "8", "--epochs", "3", "--dropout", "0.2"],
    ),
    "forest": (Trees(), ["--model", "forest"]),
    "boosting": (Trees(model="boosting", folds=2), ["--model", "boosting", "--folds", "2"]),
    "ensemble": (
        Ensemble(ensemble=2, hidden=8, epochs=2, dropout=0.0),
        ["--ensemble", "2", "--hidden", "8", "--epochs", "2", "--dropout", "0"],
    ),
    "auto": (Auto(folds=2, budget="3s"), ["--folds", "2", "--budget", "3s"]),
}


def many(rows: int = 110) -> Data:
    """Zero to three labels per row, some unknown, some features missing; a third of rows test."""
    noise = np.random.default_rng(0)
    features = noise.normal(size=(rows, 4)).astype(np.float32)
    targets = (features[:, :3] + noise.normal(size=(rows, 3)) > 0.5).astype(np.float32)
    targets[noise.random(targets.shape) < 0.05] = -1
    features[noise.random(features.shape) < 0.05] = np.nan
    return Data(list("abc"), targets, features=features, split=np.arange(rows) % 3 == 0)


def one(rows: int = 110) -> Data:
    """Exactly one label per row."""
    features = np.random.default_rng(1).normal(size=(rows, 4)).astype(np.float32)
    index = np.digitize(features[:, 0] + 0.3 * features[:, 1], [-0.5, 0.5])
    targets = np.eye(3, dtype=np.float32)[index]
    return Data(list("abc"), targets, features=features, split=np.arange(rows) % 3 == 1)


DATA = {"many": many, "one": one}


@pytest.fixture(scope="module", params=list(DATA))
def file(request, tmp_path_factory) -> Path:
    rows = DATA[request.param]()
    assert set(rows.split) == {0, 1}
    return save_npz(tmp_path_factory.mktemp("rows") / "rows.npz", rows)


@pytest.mark.parametrize(("name", "seed"), [*((name, 0) for name in RECIPES), ("mlp", 3)])
def test_three_doors_give_one_model(name, seed, file, tmp_path):
    recipe, flags = RECIPES[name]
    command = ["train", str(file), *flags, "--seed", str(seed), "--out", str(tmp_path / "run")]
    assert main([*command, "--quiet"]) == 0
    by_command = cr.load(tmp_path / "run")
    rows = cr.data.load(str(file))
    in_memory = fit(rows, recipe, seed=seed)
    given = rows.take(np.flatnonzero(rows.split != TEST))
    classifier = cr.CredibleClassifier(model=recipe, random_state=seed)
    classifier.fit(given.features, given.targets)
    runs = [by_command, in_memory, classifier.run_]
    assert {type(run.recipe) for run in runs} == {type(by_command.recipe)}
    test = rows.part("test")
    same = [Data(run.labels, test.targets, features=test.features) for run in runs]
    odds = [
        run.pipeline.log_odds(run.scores(each).numpy())
        for run, each in zip(runs, same, strict=True)
    ]
    np.testing.assert_allclose(odds[1], odds[0], rtol=0, atol=1e-12)
    np.testing.assert_allclose(odds[2], odds[0], rtol=0, atol=1e-12)
    stored = cr.Predictions.read(tmp_path / "run" / "predictions.parquet").probabilities
    np.testing.assert_array_equal(in_memory.predict(test).probabilities, stored)
    np.testing.assert_array_equal(classifier.run_.probabilities(test.features).astype("f4"), stored)
    assert in_memory.metrics == by_command.metrics
    np.testing.assert_array_equal(in_memory.held_out, classifier.held_out_probabilities_)


def test_rows_are_held_out_by_one_function(file, tmp_path, monkeypatch):
    """Without it, each door fails."""

    def refuse(*_, **__):
        raise ZeroDivisionError("split")

    rows = cr.data.load(str(file))
    monkeypatch.setattr("credibly.data.splits.split_rows", refuse)
    monkeypatch.setattr("credibly.data.loading.split_rows", refuse)
    recipe = Network(model="mlp", epochs=1)
    with pytest.raises(ZeroDivisionError, match="split"):
        cr.CredibleClassifier(model=recipe).fit(rows.features, rows.targets)
    with pytest.raises(ZeroDivisionError, match="split"):
        fit(cr.data.load(str(file)), recipe)
    with pytest.raises(ZeroDivisionError, match="split"):
        main(["train", str(file), "--model", "mlp", "--epochs", "1", "--out", str(tmp_path / "r")])


@pytest.mark.parametrize("name", ["linear", "mlp", "forest", None])
def test_a_name_stands_for_its_recipe(name):
    kinds = {"linear": Linear, "mlp": Network, "forest": Trees, None: Auto}
    assert type(cr.train.recipe(name or "auto")) is kinds[name]


@pytest.mark.parametrize("name", ["linear", "linear by steps"])
def test_overwrite_replaces_a_run_and_nothing_else(name, tmp_path):
    rows, (recipe, _) = cr.data.synthetic(120), RECIPES[name]
    folder = tmp_path / "run"
    fit(rows, recipe, folder=folder)
    (folder / "notes.txt").write_text("mine")
    with pytest.raises(cr.InputError, match=r"already holds a run.*overwrite"):
        fit(rows, recipe, folder=folder, seed=1)
    again = fit(rows, Trees(), folder=folder, overwrite=True)
    assert (folder / "notes.txt").read_text() == "mine"
    assert type(cr.load(folder).recipe) is Trees
    assert not (folder / "log.jsonl").exists()
    assert again.metrics == fit(rows, Trees()).metrics
    with pytest.raises(cr.InputError, match="Give only one"):
        fit(rows, recipe, folder=folder, overwrite=True, resume=True)


@pytest.mark.parametrize("data", ["rows.csv", np.zeros((3, 2))], ids=["a name", "an array"])
def test_data_that_were_not_loaded_are_refused(data):
    with pytest.raises(cr.InputError, match=r"`data` must come from `cr\.data\.load`.*Load it"):
        fit(data, "linear")


@pytest.mark.parametrize("rows", [2, 7, 19])
def test_few_rows_all_train_and_nothing_is_calibrated(rows):
    data = cr.data.synthetic(200).take(np.arange(rows))
    data = cr.data.from_arrays(features=data.features, targets=data.targets, test=0.0)
    for recipe in (Linear(), Network(model="mlp", epochs=1), Auto()):
        run = fit(data, recipe)
        assert run.data["train_rows"] == rows
        assert run.calibrator is None
        assert run.held_out.shape == (rows, data.num_labels)


STRAYS = {
    "forest": ("--model forest --epochs 3", "--epochs belongs to the recipe Network or Ensemble"),
    "linear": ("--model linear --terms 9 --l2 1", "--terms belongs to the recipe TextLinear or"),
    "network": ("--model mlp --budget 5s", "--budget belongs to the recipe Auto"),
    "auto": ("--ensemble 2 --views flip", "--ensemble belongs to the recipe Ensemble"),
}


@pytest.mark.parametrize("name", STRAYS)
def test_an_option_of_another_recipe_is_refused_by_its_name(name, tmp_path, capsys):
    flags, message = STRAYS[name]
    assert main(["train", "synthetic", *flags.split(), "--out", str(tmp_path / "run")]) == 2
    assert message in " ".join(capsys.readouterr().err.split())
    assert not (tmp_path / "run").exists()


def test_the_help_groups_flags_by_recipe(capsys):
    with pytest.raises(SystemExit):
        main(["train", "--help"])
    shown = capsys.readouterr().out
    groups = ["every recipe:", "recipe Linear, TextLinear, Probe:", "recipe Network:"]
    places = [shown.index(f"\n{group}") for group in groups]
    assert places == sorted(places)
    assert shown.index("--l2 ", places[1]) > places[1]
