"""Liao et al., "Quasibinary Classifier for Images with Zero and Multiple Labels", by equation."""

from __future__ import annotations

import numpy as np
import pytest
import torch

import credibly as cr

Z = torch.tensor([[2.0, -1.0, 0.0], [0.5, 1.0, -3.0], [-1.0, -0.5, 0.2]], dtype=torch.float64)
Y = torch.tensor([[1.0, 0.0, 1.0], [0.0, 1.0, 0.0], [0.0, 0.0, 0.0]], dtype=torch.float64)


def test_equation_2_independent_sigmoids():
    torch.testing.assert_close(cr.losses.BCE().probabilities(Z), torch.exp(Z) / (1 + torch.exp(Z)))


def test_equation_3_softmax():
    printed = torch.exp(Z) / torch.exp(Z).sum(1, keepdim=True)
    torch.testing.assert_close(cr.losses.Softmax().probabilities(Z), printed)


def constant() -> torch.Tensor:
    """Equation 10."""
    return torch.exp(Z).sum() / Y.sum()


def test_equations_4_and_10_share_one_normalizer_which_meets_equation_6_over_the_batch():
    loss = cr.losses.Quasibinary(momentum=0.0)
    loss(Z, Y)
    assert loss.normalizer.item() == pytest.approx(constant().item())
    q = torch.exp(Z) / constant()
    assert q.sum().item() == pytest.approx(Y.sum().item()), "equation 6, summed over the batch"
    torch.testing.assert_close(loss.probabilities(Z), q.clamp(max=1), rtol=1e-6, atol=1e-7)


def objective() -> torch.Tensor:
    """Equations 11 and 12: an objective to maximise."""
    log_q = Z - torch.log(constant())
    return (Y * log_q - log_q.clamp(min=0)).sum() / len(Z)


def test_equations_11_and_12_are_maximised_so_the_loss_has_the_other_sign():
    loss = cr.losses.Quasibinary(penalty="batch")
    assert loss(Z, Y).item() == pytest.approx(-objective().item())


def test_equation_11_s_gradient_flows_through_the_normalizer():
    scores = Z.clone().requires_grad_()
    cr.losses.Quasibinary(penalty="batch")(scores, Y).backward()
    q = torch.exp(Z) / constant()
    above, positives = (q > 1).sum(), Y.sum()
    expected = (q * (1 - above / positives) - Y + (q > 1).double()) / len(Z)
    torch.testing.assert_close(scores.grad, expected)


def test_equation_13_as_printed_diverges_and_is_read_as_a_moving_average():
    """C ← C + αC(t) grows without end; with α = 0.1 an average keeps 0.9 of the past."""
    as_printed = 0.0
    for _ in range(50):
        as_printed += 0.1 * constant().item()
    assert as_printed > 4 * constant().item()
    loss = cr.losses.Quasibinary(momentum=0.9)
    for _ in range(200):
        loss(Z, Y)
    assert loss.normalizer.item() == pytest.approx(constant().item())


def test_probabilities_above_one_are_clipped_at_test_time():
    loss = cr.losses.Quasibinary(momentum=0.0)
    loss(Z, Y)
    assert torch.exp(Z).max() > constant()
    assert loss.eval().probabilities(Z).max().item() == pytest.approx(1.0)


def test_section_5_b_the_two_softmax_baselines_for_rows_without_labels():
    row, none = Z[2:], Y[2:]
    log_p = torch.log_softmax(row, 1)
    uniform = (1 / 3) * (np.log(1 / 3) - log_p)
    confident = log_p.amax(1)
    for name, printed in (("uniform", uniform.sum(1)), ("max_confidence", confident)):
        ours = cr.losses.Softmax(zero_label=name).values(row, none)
        torch.testing.assert_close(ours, printed)
        for beta in (0.25, 1.0, 3.0):
            loss = cr.losses.Softmax(zero_label=name, zero_weight=beta)
            labelled = cr.losses.Softmax()(Z[:2], Y[:2])
            torch.testing.assert_close(loss(Z, Y), labelled + beta * printed.mean())


def test_section_5_b_s_three_measures_of_rows_with_and_without_labels():
    from sklearn.metrics import roc_auc_score

    rng = np.random.default_rng(0)
    truth = np.zeros((60, 4), np.int8)
    truth[np.arange(40), rng.integers(4, size=40)] = 1
    probabilities = np.clip(rng.random((60, 4)) * 0.6 + 0.4 * truth, 0, 1)
    ours = cr.metrics.zero_label(probabilities, truth)
    inside = truth.any(1)
    accuracy = truth[inside, probabilities[inside].argmax(1)].mean()
    assert float(ours.accuracy) == pytest.approx(accuracy)
    assert float(ours.mean_confidence_out) == pytest.approx(probabilities[~inside].max(1).mean())
    assert float(ours.auroc) == pytest.approx(roc_auc_score(inside, probabilities.max(1)))


def test_mmc_of_a_uniform_softmax_is_one_over_the_classes_a_lower_bound():
    """The paper calls it an upper bound; no softmax can be below it."""
    scores = torch.randn(1000, 5)
    assert torch.softmax(scores, 1).amax(1).min().item() >= 1 / 5


def test_table_3_s_f1_and_ece_of_the_four_most_confident_labels():
    rng = np.random.default_rng(1)
    probabilities = rng.random((200, 7))
    truth = (rng.random((200, 7)) < probabilities).astype(np.int8)
    top = np.argsort(-probabilities, axis=1)[:, :4]
    sets = np.zeros_like(truth)
    np.put_along_axis(sets, top, 1, axis=1)
    hits = (sets * truth).sum(0)
    f1 = 2 * hits / (sets.sum(0) + truth.sum(0))
    ours = cr.metrics.top_k_f1(probabilities, truth, k=4, average="mean_of_f1s")
    assert float(ours) == pytest.approx(f1.mean())
    confidence = np.take_along_axis(probabilities, top, 1).ravel()
    right = np.take_along_axis(truth, top, 1).ravel()
    bins = np.minimum((confidence * 10).astype(int), 9)
    ece = sum(
        (bins == b).mean() * abs(confidence[bins == b].mean() - right[bins == b].mean())
        for b in np.unique(bins)
    )
    ours = cr.metrics.top_k_calibration_error(probabilities, truth, k=4, bins=10)
    assert float(ours) == pytest.approx(ece)
