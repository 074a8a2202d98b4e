"""Where a fit chooses among settings, it keeps their costs, and takes the one of least cost."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import sparse

import credibly as cr

pytest.importorskip("lightgbm")
SETTING = {"linear": "l2", "forest": "leaf", "boosting": "iterations"}


def rows(noise, seed=0):
    """Features, and labels that follow them as far as the noise allows."""
    rng = np.random.default_rng(seed)
    features = rng.normal(size=(160, 5))
    odds = 3 * (1 - noise) * features[:, :3] - 0.5
    targets = (rng.random(odds.shape) < 1 / (1 + np.exp(-odds))).astype(float)
    targets[rng.random(targets.shape) < 0.05] = -1
    return features, targets


@pytest.fixture(scope="module", params=[0.0, 1.0], ids=["signal", "noise"])
def table(request):
    fitted = cr.CredibleClassifier().fit(*rows(request.param))
    return {row["model"]: row for row in fitted.candidates_}


@pytest.mark.parametrize("model", SETTING)
def test_the_cheapest_setting_is_chosen_and_its_figures_are_kept(table, model):
    row, name = table[model], SETTING[model]
    if "left_out" in row:
        assert row["weight"] == 0
        return
    costs = [each["cost"] for each in row["trials"]]
    settings = [each[name] for each in row["trials"]]
    assert len(set(settings)) == len(settings) > 1
    assert row[name] == settings[int(np.argmin(costs))]
    assert row["nll"] == pytest.approx(min(costs), rel=1e-12)


def test_a_search_of_penalties_ends_where_both_neighbours_of_the_best_are_worse(table):
    trials = sorted((each["l2"], each["cost"]) for each in table["linear"]["trials"])
    strengths = [l2 for l2, _ in trials]
    steps = np.diff(2 * np.log10(strengths))
    assert (steps.round() == 1).all()  # 1 and 3 times powers of ten, none left out
    best = int(np.argmin([cost for _, cost in trials]))
    assert 0 < best < len(trials) - 1 or len(trials) > 4


def test_the_candidate_of_least_loss_has_the_largest_weight_alone_or_in_the_sum(table):
    losses = {name: row["nll"] for name, row in table.items() if "nll" in row}
    alone = [name for name, row in table.items() if row["weight"] == 1.0]
    assert sum(row["weight"] > 0 for row in table.values()) >= 1
    if alone:
        assert losses[alone[0]] == min(losses.values())


def test_sparse_rows_try_penalties_until_the_loss_rises_on_both_sides():
    features, targets = rows(0.3)
    matrix = sparse.csr_matrix(features)
    fitted = cr.CredibleClassifier(model="linear", calibrate="none").fit(matrix, targets)
    trials = sorted((row["l2"], row["cost"]) for row in fitted.candidates_[0]["trials"])
    best = int(np.argmin([cost for _, cost in trials]))
    assert 0 < best < len(trials) - 1
    # The model kept is the one of the best strength: fitted alone, it predicts the same.
    again = cr.CredibleClassifier(model="linear", l2=trials[best][0], calibrate="none")
    again.fit(matrix, targets)
    np.testing.assert_allclose(
        fitted.predict_proba(features[:9]), again.predict_proba(features[:9]), rtol=1e-3
    )


def test_a_joint_model_that_is_richer_must_be_better():
    rng = np.random.default_rng(2)
    chances = np.full((400, 2), 0.5)
    together = np.repeat(rng.random((400, 1)) < 0.5, 2, axis=1).astype(float)
    apart = (rng.random((400, 2)) < 0.5).astype(float)
    for targets, independent in ((together, False), (apart, True)):
        fit = cr.retrieve.fit_joint(chances, targets, ["cat", "dog"])
        assert set(fit.log_scores) == {"independent", "mixture-1", "mixture-3"}
        assert (fit.chosen == "independent") == independent
        gain = fit.log_scores[fit.chosen] - fit.log_scores["independent"]
        assert gain >= 0
        known = -np.log(0.5) * 2
        assert fit.log_scores["independent"] == pytest.approx(-known)
