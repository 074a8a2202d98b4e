"""Cheng & Vasconcelos, "Towards Calibrated Multi-label Deep Neural Networks": equation by equation.

The right-hand sides are typed from the paper in plain tensor arithmetic, without stable forms, and
compared with the public call. Where the print is wrong, the test shows both.
"""

from __future__ import annotations

import numpy as np
import pytest
import torch

import credibly as cr

V = torch.linspace(-4, 4, 33, dtype=torch.float64)[:, None]
P = torch.sigmoid(V)
PRESENT, ABSENT = torch.ones_like(V), torch.zeros_like(V)
RATES = [0.03, 0.2, 0.5, 0.9]


def partial(loss) -> tuple[torch.Tensor, torch.Tensor]:
    return loss.values(V, PRESENT), loss.values(V, ABSENT)


def equal(ours: torch.Tensor, printed: torch.Tensor, **tolerance) -> None:
    torch.testing.assert_close(ours, printed, **({"rtol": 1e-9, "atol": 1e-12} | tolerance))


def test_equations_2_and_3_the_logistic_inverse_link():
    equal(cr.losses.BCE().probabilities(V), 1 / (1 + torch.exp(-V)))


def test_equations_4_and_5_the_risk_sums_over_labels_and_averages_over_rows():
    scores, targets = torch.randn(6, 3).double(), (torch.rand(6, 3) < 0.4).double()
    values = cr.losses.SPA().values(scores, targets)
    equal(values.sum(1).mean(), 3 * cr.losses.SPA()(scores, targets))


def test_equation_6_binary_cross_entropy():
    present, absent = partial(cr.losses.BCE())
    equal(present, -torch.log(P))
    equal(absent, -torch.log(1 - P))


@pytest.mark.parametrize(("gamma_pos", "gamma_neg"), [(1.0, 4.0), (2.0, 2.0), (0.5, 3.0)])
def test_equation_7_asymmetric_focal_loss(gamma_pos, gamma_neg):
    present, absent = partial(cr.losses.Focal(gamma_pos=gamma_pos, gamma_neg=gamma_neg))
    equal(present, -((1 - P) ** gamma_pos) * torch.log(P))
    equal(absent, -(P**gamma_neg) * torch.log(1 - P))


@pytest.mark.parametrize("detach_weight", [False, True])
def test_equation_8_the_asymmetric_loss_with_its_margin(detach_weight):
    loss = cr.losses.Asymmetric(
        gamma_neg=4.0, gamma_pos=1.0, margin=0.05, detach_weight=detach_weight
    )
    shifted = (P - 0.05).clamp(min=0)
    present, absent = partial(loss)
    equal(present, -(1 - P) * torch.log(P))
    equal(absent, -(shifted**4) * torch.log(1 - shifted))


@pytest.mark.parametrize("rate", RATES)
def test_equation_11_the_conditional_risk_is_the_loss_of_a_soft_target(rate):
    for loss in (cr.losses.BCE(), cr.losses.Focal(), cr.losses.Asymmetric(), cr.losses.SPA()):
        present, absent = partial(loss)
        equal(loss.values(V, torch.full_like(V, rate)), rate * present + (1 - rate) * absent)


TABLE_1 = {"bce": (True, True), "focal": (False, True), "asl": (False, False), "spa": (True, True)}
"""Strictly proper, and whether a bijection recovers η, as Table 1 prints them."""


@pytest.mark.parametrize("name", TABLE_1)
def test_definition_1_theorem_1_and_table_1(name):
    """Strictly proper: the minimiser of the risk, as the paper reads scores, is the rate itself."""
    loss, (strict, recovers) = cr.losses.from_name(name), TABLE_1[name]
    scores = torch.linspace(-12, 12, 24_001, dtype=torch.float64)[:, None]
    published, link = loss.published_log_odds(scores), loss.log_odds(scores)
    for rate in (0.01, 0.3, 0.8):
        best = loss.values(scores, torch.full_like(scores, rate)).argmin()
        as_read = torch.sigmoid(published[best]).item()
        assert (abs(as_read - rate) < 1e-3) == strict, (name, rate, as_read)
        if recovers:
            assert torch.sigmoid(link[best]).item() == pytest.approx(rate, abs=1e-3)
    increasing = bool((link.diff(dim=0) > 0).all())
    assert increasing == recovers


def phi(z, gamma_neg, gamma_pos, margin):
    """Equations 14 and 15."""

    def h(z, gamma):
        return (z**gamma - gamma * z ** (gamma - 1) * (1 - z) * torch.log(1 - z)) / (1 - z)

    up = h((z - margin).clamp(min=0), gamma_neg)
    return up / (up + h(1 - z, gamma_pos))


@pytest.mark.parametrize("margin", [0.0, 0.05, 0.2])
def test_theorem_2_and_equations_12_to_15_recover_the_rate(margin):
    loss = cr.losses.Asymmetric(gamma_neg=4.0, gamma_pos=1.0, margin=margin)
    equal(loss.probabilities(V), phi(P, 4.0, 1.0, margin))
    plateau = loss.probabilities(V)[margin >= P]
    assert bool((plateau == 0).all()), "every estimate up to the margin is mapped to 0"
    fine = torch.linspace(-9, 9, 18_001, dtype=torch.float64)[:, None]
    for rate in RATES:
        best = fine[loss.values(fine, torch.full_like(fine, rate)).argmin()]
        assert loss.probabilities(best).item() == pytest.approx(rate, abs=2e-3)


SHAPES = [(1.0, 1.0, 0.0, 5.0, 3.0, 1.0), (2.0, 0.7, -0.5, 3.0, 1.5, 0.4)]


def spa(shape):
    names = ("scale_pos", "slope_pos", "shift_pos", "scale_neg", "slope_neg", "shift_neg")
    return cr.losses.SPA(**dict(zip(names, shape, strict=True)))


@pytest.mark.parametrize("shape", SHAPES)
def test_equation_16_the_partial_losses_of_spa(shape):
    zeta_pos, k_pos, b_pos, zeta_neg, k_neg, b_neg = shape
    present, absent = partial(spa(shape))
    equal(present, -torch.log(1 / (1 + torch.exp(-k_pos * (V - b_pos)))) / zeta_pos)
    equal(absent, -torch.log(1 / (1 + torch.exp(k_neg * (V - b_neg)))) / zeta_neg)


@pytest.mark.parametrize("shape", SHAPES)
def test_equation_17_has_both_signs_turned_round(shape):
    zeta_pos, k_pos, b_pos, zeta_neg, k_neg, b_neg = shape

    def inverse_link(sign):
        up = k_neg / zeta_neg * torch.sigmoid(-sign * k_neg * (V - b_neg))
        return up / (up + k_pos / zeta_pos * torch.sigmoid(sign * k_pos * (V - b_pos)))

    as_printed, corrected = inverse_link(1), inverse_link(-1)
    assert bool((as_printed.diff(dim=0) < 0).all()), "as printed it falls with the score"
    equal(spa(shape).probabilities(V), corrected)


def test_equation_17_as_printed_gives_the_wrong_side_for_binary_cross_entropy():
    bce = spa((1.0, 1.0, 0.0, 1.0, 1.0, 0.0))
    up = torch.sigmoid(-V)
    as_printed = up / (up + torch.sigmoid(V))
    equal(as_printed, torch.sigmoid(-V))
    equal(bce.probabilities(V), torch.sigmoid(V))


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("rate", RATES)
def test_theorem_3_spa_is_strictly_proper(shape, rate):
    fine = torch.linspace(-12, 12, 24_001, dtype=torch.float64)[:, None]
    loss = spa(shape)
    best = fine[loss.values(fine, torch.full_like(fine, rate)).argmin()]
    assert loss.probabilities(best).item() == pytest.approx(rate, abs=2e-3)


def test_figure_2_draws_the_losses_and_the_inverse_link():
    axes = cr.plot.link(cr.losses.SPA())
    assert axes.get_ylabel() == "probability"


SCORES = torch.tensor([[0.3, -1.2, 2.0, 0.1], [1.0, 0.4, -0.3, -2.0]], dtype=torch.float64)
TARGETS = torch.tensor([[1.0, 0.0, 1.0, 0.0], [0.0, 0.0, 1.0, 0.0]], dtype=torch.float64)


def beta(rate, other):
    """Equation 19, the plug-in estimator of equation 18."""
    return rate * (1 - other) / (rate * (1 - other) + other * (1 - rate))


def label_pair_regularizer(estimates, targets):
    """Equation 20, one value per row."""
    rows = []
    for row, truth in zip(estimates, targets, strict=True):
        labels = len(truth)
        total = sum(
            -torch.log(beta(row[t], row[u]))
            for t in range(labels)
            for u in range(labels)
            if truth[t] == 1 and truth[u] == 0
        )
        rows.append(2 / (labels * (labels - 1)) * total)
    return torch.stack(rows)


def test_equation_18_conditions_on_labels_that_differ():
    """The print says y(t') ≠ y(t'), which never holds; y(t) ≠ y(t') gives its result."""
    rate, other = 0.7, 0.2
    joint = {
        (a, b): (rate if a else 1 - rate) * (other if b else 1 - other)
        for a in (0, 1)
        for b in (0, 1)
    }
    assert joint[1, 0] / (joint[1, 0] + joint[0, 1]) == pytest.approx(beta(rate, other))


def test_lemma_1_true_rates_give_the_true_pair_probability():
    estimates = torch.tensor(RATES, dtype=torch.float64)
    log_odds = torch.logit(estimates)
    for t in range(len(RATES)):
        for u in range(len(RATES)):
            equal(torch.sigmoid(log_odds[t] - log_odds[u]), beta(estimates[t], estimates[u]))


@pytest.mark.parametrize("weight", [0.5, 1.0, 3.0])
@pytest.mark.parametrize("name", ["bce", "spa"])
def test_equations_20_and_21_add_the_label_pairs_to_the_mean_over_labels(name, weight):
    loss = cr.losses.from_name(name)
    pairs = label_pair_regularizer(loss.probabilities(SCORES), TARGETS)
    printed = loss.values(SCORES, TARGETS).mean(1) + weight * pairs
    both = cr.losses.LabelPairs(loss, weight=weight)
    equal(both.values(SCORES, TARGETS), printed)
    equal(both(SCORES, TARGETS), printed.mean())


@pytest.mark.parametrize("name", ["focal", "asl", "asl(detach_weight=true)"])
def test_table_4_regularizes_what_the_paper_calls_the_estimate_of_focal_and_asy(name):
    """η̂ = σ(v) there, not the link: ``on="published"``."""
    loss = cr.losses.from_name(name)
    pairs = label_pair_regularizer(torch.sigmoid(SCORES), TARGETS)
    printed = loss.values(SCORES, TARGETS).mean(1) + pairs
    equal(cr.losses.LabelPairs(loss, on="published").values(SCORES, TARGETS), printed)


def test_equations_22_and_23_multiply_the_probabilities_of_a_query(tmp_path):
    probabilities = np.array([[0.9, 0.5, 0.1], [0.2, 0.9, 0.3]], np.float32)
    predictions = cr.Predictions.from_arrays(
        probabilities=probabilities, labels=["fork", "apple", "knife"]
    )
    predictions.write(tmp_path / "p.parquet")
    answer = cr.retrieve.search(tmp_path / "p.parquet", "+fork +apple -knife", top=2)
    wide = probabilities.astype(float)
    printed = wide[:, 0] * wide[:, 1] * (1 - wide[:, 2])
    assert [hit.probability for hit in answer.hits] == pytest.approx(sorted(printed)[::-1])


def rows_with_truth():
    rng = np.random.default_rng(0)
    probabilities = rng.random((40, 5))
    return probabilities, (rng.random((40, 5)) < probabilities).astype(np.int8)


def average_precision(scores, truth):
    order = np.argsort(-scores, kind="stable")
    hits = np.cumsum(truth[order])
    return (hits / np.arange(1, len(truth) + 1))[truth[order] == 1].mean()


def test_map_by_label_and_by_example():
    scores, truth = rows_with_truth()
    by_label = [average_precision(scores[:, t], truth[:, t]) for t in range(5)]
    by_row = [average_precision(s, y) for s, y in zip(scores, truth, strict=True) if y.any()]
    assert np.mean(cr.metrics.average_precision(scores, truth)) == pytest.approx(np.mean(by_label))
    ours = cr.metrics.sample_average_precision(scores, truth)
    assert np.nanmean(ours) == pytest.approx(np.mean(by_row))


def test_ace_and_mce_are_mean_and_maximum_over_bins():
    probabilities, truth = rows_with_truth()
    bins = np.minimum((probabilities.ravel() * 15).astype(int), 14)
    gaps = [
        abs(probabilities.ravel()[bins == b].mean() - truth.ravel()[bins == b].mean())
        for b in np.unique(bins)
    ]
    for kind, printed in (("ace", np.mean(gaps)), ("mce", np.max(gaps))):
        ours = cr.metrics.calibration_error(probabilities, truth, kind=kind, min_count=0)
        assert float(ours) == pytest.approx(printed), kind


def test_section_5_3_every_query_of_up_to_five_conditions_with_one_wanted_label():
    from itertools import combinations, product

    probabilities, truth = rows_with_truth()
    ours = cr.metrics.retrieval_map(probabilities, truth, max_conditions=3)
    for size in (1, 2, 3):
        precisions = []
        for labels in combinations(range(5), size):
            for wanted in product((True, False), repeat=size):
                if not any(wanted):
                    continue
                score, real = np.ones(40), np.ones(40, bool)
                for label, want in zip(labels, wanted, strict=True):
                    column = probabilities[:, label]
                    score *= column if want else 1 - column
                    real &= truth[:, label] == want
                if real.any():
                    precisions.append(average_precision(score, real.astype(int)))
        assert ours.by_conditions[size] == pytest.approx(np.mean(precisions)), size
