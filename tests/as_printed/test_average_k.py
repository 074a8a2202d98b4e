"""Garcin et al., "A Two-Head Loss Function for Deep Average-K Classification", by equation."""

from __future__ import annotations

import numpy as np
import pytest
import torch

import credibly as cr

torch.manual_seed(0)
B, L = 6, 5
Z, Z_SCCP = torch.randn(B, L).double(), torch.randn(B, L).double()
OBSERVED = torch.tensor([0, 1, 2, 3, 4, 0])
ONE_HOT = torch.nn.functional.one_hot(OBSERVED, L).double()


def test_equations_1_and_2_threshold_probabilities_at_one_value():
    rng = np.random.default_rng(0)
    probabilities = rng.dirichlet(np.full(8, 0.4), size=500)
    sets = cr.decide.AverageSize(2).fit(probabilities).predict(probabilities)
    assert sets.sum(1).mean() <= 2
    assert probabilities[sets].min() >= probabilities[~sets].max()


def test_equation_3_cross_entropy():
    softmax = torch.exp(Z) / torch.exp(Z).sum(1, keepdim=True)
    printed = -torch.log(softmax[torch.arange(B), OBSERVED]).mean()
    torch.testing.assert_close(cr.losses.Softmax()(Z, OBSERVED), printed)


def test_equation_4_prints_the_derivative_of_the_softmax_not_of_the_loss():
    scores = Z.clone().requires_grad_()
    cr.losses.Softmax()(scores, OBSERVED).backward()
    assert scores.grad is not None
    softmax = torch.softmax(Z, 1)
    torch.testing.assert_close(B * scores.grad, softmax - ONE_HOT)
    chosen = softmax.gather(1, OBSERVED[:, None])
    as_printed = torch.where(ONE_HOT == 1, chosen * (1 - chosen), -chosen * softmax)
    torch.testing.assert_close(as_printed, -chosen * B * scores.grad)


def test_equation_5_assume_negative():
    p = torch.sigmoid(Z)
    rows = -(ONE_HOT * torch.log(p) + (1 - ONE_HOT) / (L - 1) * torch.log(1 - p)).sum(1)
    torch.testing.assert_close(cr.losses.AssumeNegative()(Z, OBSERVED), rows.mean())


@pytest.mark.parametrize(("size", "beta"), [(2.0, 1.0), (1.5, 0.3)])
def test_equations_6_to_8_expected_positives(size, beta):
    p = torch.sigmoid(Z)
    positive = -torch.log(p[torch.arange(B), OBSERVED]).mean()
    printed = positive + beta * (p.sum(1).mean() - size) ** 2
    ours = cr.losses.ExpectedPositive(average_size=size, weight=beta)(Z, OBSERVED)
    torch.testing.assert_close(ours, printed)


def pseudo_positives(size):
    """Equations 11 and 12: the (K − 1)|B| largest softmax entries without the observed labels."""
    table = torch.softmax(Z_SCCP, 1)
    table[torch.arange(B), OBSERVED] = -torch.inf
    chosen = torch.zeros(B * L, dtype=torch.bool)
    chosen[table.flatten().topk(int((size - 1) * B)).indices] = True
    return chosen.view(B, L)


@pytest.mark.parametrize(("size", "alpha"), [(2, 1.0), (3, 0.1), (4, 10.0)])
def test_equations_9_to_15_the_two_heads(size, alpha):
    chosen = pseudo_positives(size)
    assert (chosen.sum() + B) / B == size, "equation 13"
    p = torch.sigmoid(Z)
    rest = ~chosen & (ONE_HOT == 0)
    cross_entropy = -torch.log_softmax(Z_SCCP, 1)[torch.arange(B), OBSERVED].mean()
    printed = (
        cross_entropy
        - torch.log(p[torch.arange(B), OBSERVED]).mean()
        - alpha / ((size - 1) * B) * torch.log(p[chosen]).sum()
        - alpha / ((L - size) * B) * torch.log(1 - p[rest]).sum()
    )
    loss = cr.losses.AverageK(average_size=size, alpha=alpha)
    torch.testing.assert_close(loss(torch.cat([Z, Z_SCCP], 1), OBSERVED), printed)


def algorithm_1(probabilities: np.ndarray, size: int) -> float:
    flat = np.sort(probabilities.ravel())[::-1]
    place = size * len(probabilities)
    return float(flat[place - 1] + flat[place]) / 2


def test_algorithm_1_and_equations_16_and_17_by_the_printed_reading():
    """A softmax of the ML head's logits, a threshold midway, and the share of observed labels."""
    rng = np.random.default_rng(0)
    logits = torch.from_numpy(rng.normal(size=(400, 2 * 8)))
    observed = rng.integers(8, size=400)
    loss = cr.losses.AverageK(average_size=2, head="ml-softmax")
    probabilities = loss.probabilities(logits).numpy()
    np.testing.assert_allclose(probabilities, torch.softmax(logits[:, :8], 1).numpy(), rtol=1e-12)
    threshold = algorithm_1(probabilities[:200], 2)
    decision = cr.decide.AverageSize(2).fit(probabilities[:200])
    assert decision.threshold == pytest.approx(threshold)
    sets = decision.predict(probabilities[200:])
    printed = np.mean(probabilities[200:][np.arange(200), observed[200:]] >= threshold)
    truth = np.eye(8, dtype=np.int8)[observed[200:]]
    assert float(cr.metrics.set_coverage(sets, truth)) == pytest.approx(printed)


def test_table_2_s_few_medium_and_many_by_training_images():
    counts = np.array([5, 19, 20, 100, 101, 400])
    truth = np.eye(6, dtype=np.int8)[np.repeat(np.arange(6), 2)]
    sets = truth.astype(bool)
    sets[[0, 4, 8]] = False
    ours = cr.metrics.coverage_by_frequency(sets, truth, counts)
    assert [float(ours[name]) for name in ("few", "medium", "many")] == [0.75, 0.75, 0.75]


def test_figure_4_the_histogram_of_set_sizes():
    sets = np.array([[1, 0, 0], [1, 1, 0], [1, 1, 0], [1, 1, 1]], bool)
    bars = cr.plot.set_sizes(sets).patches
    assert [bar.get_height() for bar in bars] == [0, 1, 2, 1]
