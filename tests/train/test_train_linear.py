"""One solver for every linear model: the optimum, the choice of the penalty, its users."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from scipy import sparse
from sklearn.linear_model import LogisticRegression
from train_instances import awkward, pictures, pretrained_weights

import credibly as cr
from credibly.cli import main
from credibly.data import Data
from credibly.models.network import NetworkModule
from credibly.train import fit, recipe
from credibly.train.linear import Folds, loss_terms, solve

SHAPES = [(200, 12), (30, 50), (40, 40)]
LOSSES = ["bce", "spa", "asl", "spa+lpr", "softmax", "twl"]
WAYS = {
    "axes": {},
    "columns": {"max_axes": 1},
    "sparse": {},
    "label by label": {"block": 1},
    "sparse, two labels at a time": {"block": 100},
}
"""How the same optimum is found; sparse ones take a CSR matrix."""


def rows_of(count, width, seed=0):
    """Features of very different scales, many of them 0, and targets of which some are unknown."""
    noise = np.random.default_rng(seed)
    mixing = noise.normal(size=(width, width)) * np.logspace(0, -2, width)
    inputs = noise.normal(size=(count, width)) @ mixing * (noise.random((count, width)) < 0.6)
    rates = 1 / (1 + np.exp(-inputs[:, :3] @ noise.normal(size=(3, 3))))
    targets = (noise.random((count, 3)) < rates * [1, 0.5, 0.2]).astype(np.float64)
    targets[::7, 1] = -1
    targets[3] = [0, 0.25, 0.75]
    return inputs, targets


def alone(count):
    """All rows train and none is scored."""
    return Folds([(np.arange(count), np.arange(0))])


def solved(way, inputs, targets, loss="bce", l2=3.0, **options):
    criterion = cr.losses.from_name(loss, num_labels=targets.shape[1], num_rows=len(targets))
    rows = sparse.csr_matrix(inputs) if way.startswith("sparse") else inputs
    options = {"penalties": [l2], "max_iterations": 3000, "tolerance": 1e-11, **options}
    bias = np.zeros(targets.shape[1])
    found = solve(
        *(rows, targets, criterion, alone(len(targets)), None), bias=bias, **WAYS[way], **options
    )
    return found.layer, criterion


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize(("count", "width"), SHAPES)
@pytest.mark.parametrize("loss", LOSSES)
def test_the_slope_of_the_penalised_loss_vanishes_however_it_is_solved(loss, count, width, way):
    inputs, targets = rows_of(count, width)
    layer, criterion = solved(way, inputs, targets, loss)
    weight = torch.from_numpy(layer.weight).requires_grad_()
    bias = torch.from_numpy(layer.bias).requires_grad_()
    scores = torch.from_numpy(inputs) @ weight + bias
    terms = loss_terms(criterion, targets)
    value = criterion.train()(scores, torch.from_numpy(targets))
    (value + 1.5 / terms * weight.square().sum()).backward()
    for parameter in (weight, bias):
        assert parameter.grad is not None
        assert parameter.grad.abs().max() < 2e-5


@pytest.mark.parametrize("way", WAYS)
def test_the_optimum_of_bce_is_that_of_scikit_learn(way):
    inputs, targets = rows_of(200, 12)
    targets = np.where((targets > 0) & (targets < 1), 0, targets)
    layer, _ = solved(way, inputs, targets, l2=0.5)
    for label in range(3):
        known = targets[:, label] >= 0
        model = LogisticRegression(C=2.0, tol=1e-10, max_iter=5000)
        model.fit(inputs[known], targets[known, label])
        np.testing.assert_allclose(layer.weight[:, label], model.coef_[0], atol=1e-3)
        np.testing.assert_allclose(
            layer.bias[label], float(np.ravel(model.intercept_)[0]), atol=1e-3
        )


def test_the_optimum_of_softmax_is_that_of_scikit_learn():
    inputs, _ = rows_of(200, 12)
    best = np.random.default_rng(1).integers(0, 3, 200)
    layer, _ = solved("axes", inputs, np.eye(3)[best], "softmax", l2=0.5)
    model = LogisticRegression(C=2.0, tol=1e-10, max_iter=5000).fit(inputs, best)
    np.testing.assert_allclose(layer.weight.T, model.coef_, atol=1e-3)


def chosen_among(inputs, targets, folds, **options):
    def measure(scores, odds):
        known = targets[folds.scored] >= 0
        losses = np.logaddexp(0, odds) - targets[folds.scored] * odds
        return {"selection": float(losses[known].mean())}

    bias = np.zeros(targets.shape[1])
    return solve(inputs, targets, cr.losses.BCE(), folds, measure, bias=bias, **options)


@pytest.mark.parametrize("scale", [0.01, 1.0, 100.0])
@pytest.mark.parametrize("count", [60, 400])
def test_unseen_rows_choose_the_penalty_at_any_scale_of_the_inputs(count, scale):
    inputs, targets = rows_of(count, 12, seed=3)
    inputs, folds = inputs * scale, Folds.crossed(targets, 4, seed=0)
    found = chosen_among(inputs, targets, folds)
    costs = {row["l2"]: row["selection"] for row in found.tried}
    grid = sorted(
        float(f"{m}e{e}") for e in range(-9, 10) for m in (1, 3) if 1e-9 < scale * 10.0**e < 1e9
    )
    every = chosen_among(inputs, targets, folds, penalties=grid)
    lowest = min(row["selection"] for row in every.tried)
    assert costs[found.l2] == pytest.approx(lowest, rel=3e-3)
    assert len(found.tried) < len(grid) / 3
    at = grid.index(found.l2)
    beside = [grid[at - 1], grid[at + 1]]
    assert set(beside) <= set(costs)
    assert costs[beside[1]] >= costs[found.l2]
    assert costs[beside[0]] >= costs[found.l2]


def test_of_listed_penalties_all_are_tried_in_their_order_and_the_best_is_kept():
    inputs, targets = rows_of(100, 12)
    listed = [100.0, 1.0, 10.0, 0.01]
    found = chosen_among(inputs, targets, Folds.crossed(targets, 3, 0), penalties=listed)
    assert [row["l2"] for row in found.tried] == listed
    assert found.l2 == min(found.tried, key=lambda row: row["selection"])["l2"]


@pytest.mark.parametrize("loss", ["bce", "softmax"])
def test_scores_are_by_layers_that_did_not_train_on_the_row(loss):
    inputs, targets = rows_of(90, 8)
    targets = np.eye(3)[targets.argmax(axis=1)] if loss == "softmax" else targets
    folds = Folds.crossed(targets, 3, seed=0)
    criterion = cr.losses.from_name(loss, num_labels=3).eval()
    options = {"bias": np.zeros(3), "penalties": [2.0], "tolerance": 1e-12, "max_iterations": 5000}
    measured = []

    def measure(scores, odds):
        measured.append(odds)
        return {"selection": 0.0}

    found = solve(inputs, targets, criterion, folds, measure, **options)
    for inside, outside in folds.parts:
        own = cr.losses.from_name(loss, num_labels=3).eval()
        fold = alone(len(inside))
        layer = solve(inputs[inside], targets[inside], own, fold, None, **options).layer
        scores = layer.scores(inputs[outside])
        odds = cr.Pipeline(own).link_log_odds(scores)
        np.testing.assert_allclose(measured[0][outside], odds, atol=1e-4)
    whole = solve(inputs, targets, criterion, alone(90), None, **options).layer
    shift = 0 if loss == "bce" else (found.layer.bias - whole.bias).mean()  # same for all classes
    np.testing.assert_allclose(found.layer.weight, whole.weight, atol=1e-4)
    np.testing.assert_allclose(found.layer.bias - shift, whole.bias, atol=1e-4)


def test_an_interrupted_search_goes_on_to_the_same_bits(tmp_path):
    inputs, targets = rows_of(100, 12)
    folds = Folds.crossed(targets, 3, 0)
    whole = chosen_among(inputs, targets, folds)

    class Stop(cr.train.Callback):
        def on_update(self, done, total):
            raise KeyboardInterrupt

    for _ in whole.tried:
        with pytest.raises(KeyboardInterrupt):
            chosen_among(inputs, targets, folds, state=tmp_path, callback=Stop())
    again = chosen_among(inputs, targets, folds, state=tmp_path)
    assert again.tried == whole.tried
    assert np.array_equal(again.layer.weight, whole.layer.weight)
    assert np.array_equal(again.scores, whole.scores)


def texts():
    names = [["a red car"], ["a dog"], ["the red dog"], ["nothing"]] * 10
    targets = [[float("red" in name), float("dog" in name)] for (name,) in names]
    split = np.array([0, 0, 0, 1, 2])[np.arange(40) % 5]
    return Data(["red", "dog"], np.array(targets), texts=names, split=split)


USERS = {
    "linear": lambda to: fit(awkward(), recipe(model="linear"), folder=to),
    "auto": lambda to: fit(awkward(), folder=to),
    "texts": lambda to: fit(texts(), folder=to),
    "probe": lambda to: fit(
        pictures(),
        cr.train.Probe(model="cnn"),
        folder=to,
    ),
    "fine-tuning": lambda to: fit(
        pictures(), recipe(model="resnet20-32", weights=pretrained_weights(to.parent)), folder=to
    ),
    "estimator": lambda to: cr.CredibleClassifier(model="linear").fit(*rows_of(60, 4)),
    "estimator, auto": lambda to: cr.CredibleClassifier().fit(*rows_of(60, 4)),
    "estimator, sparse rows": lambda to: cr.CredibleClassifier(model="linear").fit(
        sparse.csr_matrix(rows_of(60, 4)[0]), rows_of(60, 4)[1]
    ),
}


@pytest.mark.parametrize("user", USERS)
def test_every_linear_layer_is_solved_by_the_one_solver(user, tmp_path, monkeypatch):
    def refuse(*_, **__):
        raise ZeroDivisionError("solve")

    monkeypatch.setattr("credibly.train.linear.solve", refuse)
    with pytest.raises(ZeroDivisionError, match="solve"):
        USERS[user](tmp_path / "run")


@pytest.fixture(scope="module")
def table(tmp_path_factory):
    """Write 300 rows whose one label is known from the features."""
    noise = np.random.default_rng(0)
    features = noise.normal(size=(300, 4))
    kinds = np.where(features @ [2, -1, 1, 0] > 0, "yes", "no")
    lines = [",".join([*map(str, row), kind]) for row, kind in zip(features, kinds, strict=True)]
    path = tmp_path_factory.mktemp("table") / "t.csv"
    path.write_text("\n".join(["a,b,c,d,kind", *lines]))
    return path


BY_STEPS = {
    "epochs": (["--epochs", "5"], "trained by AdamW for 5 epochs"),
    "the usual epochs": (["--epochs", "30"], "trained by AdamW for 30 epochs"),
    "sgd": (["--optimizer", "sgd", "--epochs", "1"], "trained by SGD for 1 epoch"),
    "preset": (
        ["--preset", "avgk-cifar100", "--epochs", "5", "--average-size", "1"],
        "trained by SGD for 5 epochs",
    ),
}


def trained(table, out, capsys, *flags):
    command = ["train", str(table), "--label-column", "kind", "--model", "linear", "--quiet"]
    assert main([*command, "--out", str(out), *flags]) == 0, capsys.readouterr().err
    return " ".join(capsys.readouterr().out.split())


def test_linear_is_solved_to_the_optimum_by_every_door(table, tmp_path, capsys):
    assert "linear, solved to the optimum" in trained(table, tmp_path / "run", capsys)
    run = cr.load(tmp_path / "run")
    rows = cr.data.load(table, label_column="kind")
    assert isinstance(run.recipe, cr.train.Linear)
    assert run.metrics["NLL"] < 0.1
    again = fit(rows, recipe(model="linear"), folder=tmp_path / "again")
    test = rows.part("test")
    np.testing.assert_array_equal(
        again.predict(test).probabilities, run.predict(test).probabilities
    )


@pytest.mark.parametrize("name", BY_STEPS)
def test_an_option_of_networks_trains_a_linear_layer_by_steps_and_says_so(
    name, table, tmp_path, capsys
):
    flags, words = BY_STEPS[name]
    shown = trained(table, tmp_path / "run", capsys, *flags)
    assert f"linear layer, {words}" in shown
    assert isinstance(cr.load(tmp_path / "run").recipe, cr.train.Network)


def test_a_given_penalty_is_the_one_that_is_solved(tmp_path):
    given = recipe(model="linear", l2=7.0, calibrate="none")
    run = fit(awkward(), given, folder=tmp_path / "run")
    train, network = awkward().part("train"), run.model
    assert isinstance(network, NetworkModule)
    inputs, targets = network.standardize.applied(train.features), train.dense_targets
    for label in range(4):
        known = targets[:, label] >= 0
        model = LogisticRegression(C=1 / 7, tol=1e-10)
        model.fit(inputs[known], targets[known, label])
        weight = network.head.weight[label].detach().numpy()
        np.testing.assert_allclose(weight, model.coef_[0], atol=1e-3)


REFUSED = {
    "steps": ({"epochs": 3}, "`epochs` belongs to the recipe Network or Ensemble.* with `l2`"),
    "another model": ({"model": "mlp"}, "`l2` belongs to the recipe Linear, TextLinear or Probe"),
    "negative": ({"l2": -1.0}, "`l2` must lie in"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_a_penalty_that_nothing_takes_is_refused(name):
    given, message = REFUSED[name]
    with pytest.raises(cr.InputError, match=message):
        recipe(**{"model": "linear", "l2": 1.0, **given})


UNSOLVABLE = {
    "images": (pictures(), {}, "solved on features; pictures holds images"),
    "a loss that learns": (
        awkward(),
        {"loss": "role", "average_size": 1.5},
        "last layer cannot be solved for",
    ),
}


@pytest.mark.parametrize("name", UNSOLVABLE)
def test_linear_is_never_trained_by_steps_unasked(name):
    rows, options, message = UNSOLVABLE[name]
    with pytest.raises(cr.InputError, match=f"{message}.*--model linear --epochs 30"):
        fit(rows, cr.train.Linear(**options))
