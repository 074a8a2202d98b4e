"""Properties of ``model`` auto, forest and boosting: compared on rows they did not see."""

import dataclasses
import json
from functools import partial

import numpy as np
import pytest
import torch
from sklearn.linear_model import LogisticRegression
from train_instances import awkward

import credibly as cr
from credibly.checks import InputError
from credibly.cli import main
from credibly.data import Data
from credibly.models.network import Stack
from credibly.models.trees import Booster
from credibly.train import auto as choice
from credibly.train import auto as kinds
from credibly.train import fit, load, recipe
from credibly.train.auto import Size, candidates, choose, problem_of

pytest.importorskip("lightgbm")
MODELS = ("auto", "forest", "boosting")
each_model = pytest.mark.parametrize("model", MODELS)


@pytest.fixture(autouse=True)
def quick(monkeypatch):
    """Try fewer sizes, with fewer trees and epochs."""
    monkeypatch.setattr(kinds, "LEAVES", (3,))
    monkeypatch.setattr(kinds, "STAGES", (3, 6))
    monkeypatch.setitem(kinds.FIT, "mlp", _few_epochs)
    monkeypatch.setattr(kinds, "grow_forest", partial(kinds.grow_forest, trees=16))


def always(scores):
    return True


def _few_epochs(problem, worth=always):
    network = dataclasses.replace(problem.network, epochs=3)
    return kinds.fit_mlp(dataclasses.replace(problem, network=network), worth)


def drawn(rows: Data) -> Data:
    """Return rows whose held-out part was drawn, as ``cr.data.load`` draws it."""
    return dataclasses.replace(rows, drawn=True)


def settings(model: str, **others) -> cr.train.Recipe:
    """Return the recipe of a model, of two folds where it has folds."""
    folds = {"folds": 2} if model in MODELS or "ensemble" in others else {}
    return recipe(model, **{**folds, **others})


@pytest.fixture(scope="module")
def rows() -> Data:
    return drawn(awkward(120))


@each_model
def test_the_same_seed_gives_the_same_bytes_and_the_loaded_run_predicts_the_same(
    model, rows, tmp_path
):
    runs = [fit(rows, settings(model), folder=tmp_path / name) for name in ("one", "two")]
    for name in ("model.safetensors", "calibration.json", "candidates.json"):
        assert (tmp_path / "one" / name).read_bytes() == (tmp_path / "two" / name).read_bytes()
    test = rows.part("test")
    again = load(tmp_path / "one")
    assert np.array_equal(again.predict(test).probabilities, runs[0].predict(test).probabilities)
    assert again.candidates == json.loads(json.dumps(runs[0].candidates))
    tried = [row for row in again.candidates["candidates"] if "nll" in row]
    assert sum(row["weight"] > 0 for row in tried) >= 1
    assert set(again.candidates["members"]) == {r["model"] for r in tried if r["weight"] > 0}


def test_a_run_that_was_ended_is_trained_anew_to_the_same_bytes(rows, tmp_path, monkeypatch):
    whole = fit(rows, settings("forest"), folder=tmp_path / "whole")
    stopped = tmp_path / "stopped"
    with monkeypatch.context() as patch:
        patch.setattr("credibly.train.fitting.write_model", _end)
        with pytest.raises(KeyboardInterrupt):
            fit(rows, settings("forest"), folder=stopped)
    run = fit(rows, settings("forest"), folder=stopped, resume=True)
    assert run.metrics == whole.metrics
    same = (stopped / "model.safetensors").read_bytes()
    assert same == (tmp_path / "whole" / "model.safetensors").read_bytes()


def _end(run, folder):
    raise KeyboardInterrupt


def test_test_rows_have_no_influence_on_the_choice(rows):
    run = recipe(folds=2, loss="bce", model="auto")
    loss = cr.losses.BCE()
    changed = rows.targets.copy()
    changed[rows.split == 1] = 1 - changed[rows.split == 1]
    features = rows.features.copy()
    features[rows.split == 1] += 7
    other = dataclasses.replace(rows, targets=np.clip(changed, -1, 1), features=features)
    first, second = (choose(problem_of(data, loss, run, 0), run) for data in (rows, other))
    assert first.document == second.document
    assert np.array_equal(first.scores, second.scores)


def test_each_row_is_scored_by_models_that_were_not_trained_on_it():
    noise = np.random.default_rng(0)
    features = noise.normal(size=(100, 4)).astype(np.float32)
    targets = noise.integers(0, 2, (100, 2)).astype(np.float32)
    rows = Data(["a", "b"], targets, features=features, drawn=True)
    run = recipe(folds=2, loss="bce")
    problem = problem_of(rows, cr.losses.BCE(), run, 0)
    for inside, outside in problem.folds.parts:
        assert not set(inside) & set(outside)
    assert problem.crossed
    for name, train in kinds.FIT.items():
        found = train(problem, always)
        assert ((found.scores > 0) == targets).mean() < 0.68, name  # noise cannot be predicted


def test_a_table_that_trees_suit_is_given_to_trees(tmp_path):
    noise = np.random.default_rng(1)
    features = noise.normal(size=(300, 6)).astype(np.float32)
    targets = (np.abs(features[:, :2]) > 0.8).astype(np.float32) * (features[:, 2:4] > 0)
    rows = Data(["a", "b"], targets, features=features, split=noise.integers(0, 3, 300))
    run = fit(rows, "auto", folder=tmp_path / "run")
    table = {row["model"]: row for row in run.candidates["candidates"]}
    assert table["linear"]["nll"] > min(table["forest"]["nll"], table["boosting"]["nll"])
    assert run.candidates["folds"] == 0  # the data name held-out rows
    assert run.metrics["NLL"] < table["linear"]["nll"]


def planned(size, **options):
    """The models that are tried, in order."""
    return [row["model"] for row in candidates(size, recipe(**options)) if "left_out" not in row]


def test_the_budget_decides_by_the_size_of_the_data_alone(monkeypatch):
    monkeypatch.undo()
    assert set(planned(Size(500, 50, 6, 5))) == set(kinds.FIT)
    assert planned(Size(5_000, 200, 40, 1)) == ["linear", "mlp", "boosting"]
    assert planned(Size(100_000, 500, 80, 1)) == ["mlp"]
    assert planned(Size(500, 50, 6, 5), budget="0s") == ["mlp"]
    more = candidates(Size(100_000, 500, 80, 1), recipe(budget="1000h"))
    assert [row["model"] for row in more if "left_out" in row] == ["forest"]  # its memory
    assert [row["seconds"] for row in more] == sorted(row["seconds"] for row in more)


@pytest.mark.parametrize(("rows", "features", "labels"), [(66_225, 256, 80), (3_904, 1_836, 159)])
def test_a_large_table_is_not_left_with_a_network_alone(rows, features, labels, monkeypatch):
    monkeypatch.undo()
    assert {"linear", "mlp"} <= set(planned(Size(rows, features, labels, 1)))


def test_without_lightgbm_boosting_is_left_out_and_says_so(monkeypatch):
    monkeypatch.setattr(kinds, "find_spec", lambda name: None)
    left_out = {
        row["model"]: row.get("left_out") for row in candidates(Size(500, 50, 6, 5), recipe())
    }
    assert left_out["boosting"] == "lightgbm is not installed"
    assert left_out["forest"] is None


@pytest.mark.parametrize("adds", [False, True])
def test_a_candidate_is_trained_on_the_other_folds_if_it_adds_on_the_first(adds, monkeypatch):
    """Scores as those of the linear model add nothing to it; the truth in them does."""
    rows = dataclasses.replace(cr.data.synthetic(200), drawn=True)
    trained, parts = kinds._trained_mlp, []

    def watched(problem, number, dropout):
        parts.append(number)
        outside = problem.folds.parts[number][1]
        scores = kinds.fit_linear(problem, always).scores[outside] + adds * problem.targets[outside]
        return trained(problem, number, dropout)[0], scores

    monkeypatch.setattr(kinds, "_trained_mlp", watched)
    monkeypatch.setattr(kinds, "candidates", lambda size, recipe: plan)
    plan = [{"model": "linear", "seconds": 1.0}, {"model": "mlp", "seconds": 3.0}]
    heard = []
    callback = cr.train.Callback()
    monkeypatch.setattr(callback, "on_candidate", heard.append)
    run = fit(rows, recipe(folds=5), callback=callback)
    table = {row["model"]: row for row in run.candidates["candidates"]}
    assert (table["mlp"]["weight"] > 0) == adds == ("left_out" not in table["mlp"])
    assert parts == ([0, 0, 1, 2, 3, 4] if adds else [0])
    assert list(run.spent) == ["linear", "mlp"]
    assert [(each["model"], each["number"]) for each in heard] == [("linear", 1), ("mlp", 2)]
    assert heard[0]["left"] == 4
    assert heard[1]["left"] == pytest.approx(3 * heard[1]["spent"])


@pytest.mark.parametrize(
    "given", [{"epochs": 3}, {"hidden": 8}, {"dropout": 0.1}, {"loss": "asl"}], ids=str
)
def test_a_setting_of_networks_asks_for_a_network(given, rows):
    assert cr.train.resolve(recipe(**given), rows).model == "mlp"
    assert cr.train.resolve(recipe(), rows).model == "auto"


@each_model
def test_a_run_exports_to_onnx_and_serves_probabilities(model, rows, tmp_path):
    pytest.importorskip("onnxruntime")
    run = fit(rows, settings(model), folder=tmp_path / "run")
    assert cr.train.export(run, tmp_path / "model.onnx")["difference"] < 1e-5


def test_an_ensemble_averages_members_and_scores_rows_by_those_that_left_them_out(rows, tmp_path):
    given = settings("mlp", ensemble=4, hidden=8, epochs=2)
    run = fit(rows, given, folder=tmp_path / "run")
    assert run.candidates["members"] == ["mlp"] * 4
    test = rows.part("test")
    inputs = torch.from_numpy(test.features)
    assert isinstance(run.model, Stack)
    mean = torch.stack([member(inputs) for member in run.model.members]).mean(dim=0)
    torch.testing.assert_close(run.scores(test), mean)
    assert np.array_equal(
        load(tmp_path / "run").predict(test).probabilities, run.predict(test).probabilities
    )
    problem = problem_of(
        dataclasses.replace(rows, split=np.zeros(len(rows))), cr.losses.BCE(), run.recipe, 0
    )
    counts = np.bincount(np.concatenate([outside for _, outside in problem.folds.parts]))
    assert len(problem.folds.parts) == 4
    assert (counts >= 1).all()


def test_the_command_line_shows_what_was_compared(tmp_path, capsys):
    noise = np.random.default_rng(0)
    features = noise.normal(size=(80, 3)).astype(np.float32)
    names = np.array(["a", "b"])
    np.savez(tmp_path / "rows.npz", features=features, targets=features[:, :2] > 0, labels=names)
    source, out = str(tmp_path / "rows.npz"), str(tmp_path / "run")
    assert main(["train", source, "--out", out, "--budget", "20s"]) == 0
    shown = capsys.readouterr().out
    assert "models, compared on rows that they were not trained on" in shown
    assert all(name in shown for name in (*kinds.FIT, "estimate s", "spent s"))
    assert main(["train", source, "--out", out, "--budget", "20s", "--resume", "--json"]) == 0
    table = json.loads(capsys.readouterr().out)["candidates"]
    assert {row["model"] for row in table} == set(kinds.FIT)


def test_the_report_shows_what_was_compared(rows, tmp_path):
    run = fit(rows, settings("auto"), folder=tmp_path / "run")
    from credibly.app import report

    path = report.write([run.folder / "predictions.parquet"], tmp_path / "report.html", resamples=2)
    page = path.read_text(encoding="utf-8")
    assert "Models that were compared" in page
    assert "<td>forest</td>" in page


def test_one_label_per_row_is_compared_as_classes(tmp_path):
    noise = np.random.default_rng(0)
    features = noise.normal(size=(150, 4)).astype(np.float32)
    index = np.digitize(features[:, 0], [-0.5, 0.5])
    rows = drawn(Data(list("abc"), index, features=features, split=noise.integers(0, 2, 150)))
    run = fit(rows, settings("auto"), folder=tmp_path / "run")
    assert run.recipe.loss == "softmax"
    assert run.metrics["NLL"] < 0.4


UNFIT = {
    "budget": {"budget": "soon"},
    "one member": {"ensemble": 1},
}
REFUSED = {
    "loss": (settings("forest", loss="asl"), "is trained by log loss"),
    "budget": (None, "must be a time such as 60s"),
    "one member": (None, r"`ensemble` must lie in \[2, 1000\]; got 1"),
    "folds": (settings("forest", folds=10**6), "`folds` must be at most"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_cannot_be_done_is_refused_with_the_reason(name, rows, tmp_path):
    given, message = REFUSED[name]
    with pytest.raises(InputError, match=message):
        fit(rows, given or recipe(**UNFIT[name]), folder=tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_images_are_refused_by_trees(tmp_path):
    with pytest.raises(InputError, match="takes features"):
        fit(cr.data.digits(40), settings("forest"), folder=tmp_path / "run")


DAMAGED = {
    "missing": (None, "is missing"),
    "other members": ({"members": ["forest", "poetry"]}, "must hold `members`"),
    "fewer members": ({"members": ["linear"]}, "does not fit|must fit"),
}


@pytest.mark.parametrize("name", DAMAGED)
def test_a_damaged_table_of_candidates_is_refused(name, rows, tmp_path):
    document, message = DAMAGED[name]
    folder = fit(rows, settings("forest"), folder=tmp_path / "run").folder
    (folder / "manifest.json").unlink()  # which would name the file first
    path = folder / "candidates.json"
    path.unlink() if document is None else path.write_text(json.dumps(document))
    with pytest.raises(InputError, match=message):
        load(folder)


@pytest.mark.parametrize("given", [None, 0.25])
@pytest.mark.parametrize("better", [None, 0.0])
def test_left_out_rows_of_the_first_part_choose_the_dropout(given, better, monkeypatch):
    """Every other part is trained as the better of the two; a given dropout is not compared."""
    rows = cr.data.synthetic(60)
    run = recipe("mlp", ensemble=3, folds=3, loss="bce", epochs=1, dropout=given)
    problem = problem_of(rows, cr.losses.BCE().eval(), run, 0)
    trained, calls = kinds._trained_mlp, []

    def watched(problem, number, dropout):
        calls.append((number, dropout))
        truth = problem.targets[problem.folds.parts[number][1]]
        return trained(problem, number, dropout)[0], truth * float(dropout == better)

    monkeypatch.setattr(kinds, "_trained_mlp", watched)
    found = kinds.fit_mlp(problem, always)
    assert len(found.members) == 3
    if given is not None:
        assert calls == [(0, given), (1, given), (2, given)]
        assert found.options == {}
        return
    assert calls == [(0, None), (0, 0.0), (1, better), (2, better)]
    assert found.options == ({} if better is None else {"dropout": 0.0})


def test_the_first_part_bounds_the_iterations_of_boosting(monkeypatch):
    """Noise is predicted best by few trees, so the other parts need not grow many."""
    noise = np.random.default_rng(0)
    features = noise.normal(size=(120, 3)).astype(np.float32)
    targets = noise.integers(0, 2, (120, 2)).astype(np.float32)
    rows = Data(["a", "b"], targets, features=features, drawn=True)
    problem = problem_of(rows, cr.losses.BCE(), recipe(folds=3, loss="bce"), 0)
    grown = []

    def watched(features, targets, seed, iterations, **others):
        grown.append(iterations)
        return Booster(features, targets, seed, iterations, **others)

    monkeypatch.setattr(kinds, "Booster", watched)
    monkeypatch.setattr(kinds, "STAGES", (1, 2, 20, 40))
    found = kinds.fit_boosting(problem, always)
    assert grown[0] == 40
    assert grown[1] == grown[2] < 40
    assert found.options["iterations"] == grown[3] <= grown[1]
    assert found.scores.shape == targets.shape


def scored_problem(calibrate):
    """Scores of two models of 200 rows, of which neither is calibrated, and the rows."""
    rows = cr.data.synthetic(200)
    given = recipe(folds=2, loss="bce", calibrate=calibrate)
    problem = problem_of(rows, cr.losses.BCE().eval(), given, 0)
    truth = problem.targets[problem.folds.scored]
    noise = np.random.default_rng(0)
    stack = 2 * truth + noise.normal(size=(2, *truth.shape)) - 4
    return problem, truth, stack


def test_the_weights_of_a_sum_are_those_of_a_logistic_regression_on_its_scores():
    problem, truth, stack = scored_problem("auto")
    weights, shift = choice.fitted_sum(problem, stack)
    reference = LogisticRegression(C=np.inf, tol=1e-10).fit(stack.reshape(2, -1).T, truth.ravel())
    np.testing.assert_allclose(weights, reference.coef_[0], atol=1e-4)
    assert shift == pytest.approx(reference.intercept_[0], abs=1e-4)
    assert shift > 1


def test_without_a_calibrator_a_sum_has_no_shift():
    problem, truth, stack = scored_problem("none")
    stack += 3
    weights, shift = choice.fitted_sum(problem, stack)
    plain = LogisticRegression(C=np.inf, tol=1e-10, fit_intercept=False)
    reference = plain.fit(stack.reshape(2, -1).T, truth.ravel()).coef_[0]
    assert (reference > 0.1).all()
    np.testing.assert_allclose(weights, reference, atol=1e-4)
    assert shift == 0


def test_rare_features_cost_a_forest_little(monkeypatch):
    monkeypatch.undo()
    noise = np.random.default_rng(0)
    rows = cr.data.synthetic(300)
    rare = dataclasses.replace(rows, features=(noise.random((300, 800)) < 0.01) * 1.0)
    dense, sparse = (
        problem_of(each, cr.losses.BCE().eval(), recipe(folds=2, loss="bce"), 0)
        for each in (rows, rare)
    )
    assert choice._sparse(dense) == 0
    assert choice._sparse(sparse) == 800
    sizes = [Size(300, 800, 45, 5, number) for number in (0, 800)]
    few, many = (
        choice.estimated_seconds("forest", size, cr.train.Network()) for size in sizes[::-1]
    )
    assert few - 0.5 < (many - 0.5) / 4  # beside what every forest takes


MEASURED = [
    ("linear", Size(391, 72, 6, 5), 0.63),
    ("linear", Size(1211, 294, 6, 5), 0.6),
    ("linear", Size(333, 1449, 45, 5, 1396), 2.1),
    ("linear", Size(16000, 256, 10, 1), 1.6),
    ("linear", Size(4574, 1280, 20, 1), 6.7),
    ("linear", Size(16000, 256, 200, 1), 24.0),
    ("linear", Size(3904, 1836, 159, 1, 1800), 35.0),
    ("mlp", Size(391, 72, 6, 5), 2.0),
    ("mlp", Size(1500, 103, 14, 5), 7.6),
    ("mlp", Size(333, 1449, 45, 5, 1396), 12.4),
    ("mlp", Size(3904, 1836, 159, 1, 1800), 36.0),
    ("mlp", Size(66200, 256, 80, 1), 130.0),
    ("forest", Size(391, 72, 6, 5), 1.3),
    ("forest", Size(1500, 103, 14, 5), 5.9),
    ("forest", Size(333, 1449, 45, 5, 1396), 2.7),
    ("boosting", Size(129, 43, 7, 5, 8), 0.43),
    ("boosting", Size(326, 31, 12, 5, 3), 0.38),
    ("boosting", Size(391, 72, 6, 5), 0.53),
    ("boosting", Size(322, 271, 19, 5, 96), 2.5),
    ("boosting", Size(1500, 103, 14, 5), 2.9),
    ("boosting", Size(1211, 294, 6, 5), 2.2),
    ("boosting", Size(333, 1449, 45, 5, 1396), 3.0),
    ("boosting", Size(463, 1847, 27, 5, 1828), 1.4),
    ("boosting", Size(1123, 1001, 53, 5, 337), 39.0),
    ("boosting", Size(4573, 1280, 20, 1), 23.0),
    ("boosting", Size(16000, 256, 10, 1), 3.8),
    ("boosting", Size(17215, 500, 22, 1, 379), 12.0),
]
"""CPU seconds of candidates on shared sets, one thread."""


@pytest.mark.parametrize(("name", "size", "measured"), MEASURED)
def test_estimated_cost_is_near_the_measured(name, size, measured, monkeypatch):
    monkeypatch.undo()
    assert 0.5 < choice.estimated_seconds(name, size, cr.train.Network()) / measured < 2
