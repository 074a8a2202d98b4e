"""Where a fit chooses among settings, it keeps their costs, and takes the one of least cost."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import sparse

import credibly as cr

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
    fitted = cr.CredibleClassifier(epochs=2, budget="60s").fit(*rows(request.param))
    return {row["model"]: row for row in fitted.candidates_}


@pytest.mark.parametrize("model", SETTING)
def test_the_cheapest_setting_is_chosen_and_its_figures_are_kept(table, model):
    row, name = table[model], SETTING[model]
    costs = [each["cost"] for each in row["trials"]]
    settings = [each[name] for each in row["trials"]]
    assert len(set(settings)) == len(settings) > 1
    assert row[name] == settings[int(np.argmin(costs))]
    assert row["nll"] == pytest.approx(min(costs), rel=1e-12)


def test_a_ladder_of_penalties_ends_two_steps_past_the_best(table):
    costs = [each["cost"] for each in table["linear"]["trials"]]
    strengths = [each["l2"] for each in table["linear"]["trials"]]
    assert strengths == sorted(strengths, reverse=True)
    after = len(costs) - 1 - int(np.argmin(costs))
    assert after == 2 or strengths[-1] == min(strengths)
    assert after <= 2


def test_the_candidate_of_least_loss_has_the_largest_weight_alone_or_in_the_sum(table):
    losses = {name: row["nll"] for name, row in table.items()}
    alone = [name for name, row in table.items() if row["weight"] == 1.0]
    assert sum(row["weight"] > 0 for row in table.values()) >= 1
    if alone:
        assert losses[alone[0]] == min(losses.values())


def test_sparse_rows_try_penalties_until_the_loss_rises():
    features, targets = rows(0.3)
    fitted = cr.CredibleClassifier().fit(sparse.csr_matrix(features), targets)
    costs = [row["nll"] for row in fitted.candidates_]
    strengths = [row["l2"] for row in fitted.candidates_]
    assert strengths == sorted(strengths, reverse=True)
    best = int(np.argmin(costs))
    assert best >= len(costs) - 2
    # The model kept is the one of the best strength: fitted alone, it predicts the same.
    again = cr.CredibleClassifier(model="linear", l2=strengths[best], calibrate="none")
    again.fit(sparse.csr_matrix(features), targets)
    plain = cr.CredibleClassifier(calibrate="none").fit(sparse.csr_matrix(features), targets)
    np.testing.assert_allclose(
        plain.predict_proba(features[:9]), again.predict_proba(features[:9]), rtol=1e-6
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
