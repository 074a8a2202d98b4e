"""Kobayashi, "Two-way Multi-Label Loss", the supplement: equation by equation."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch.nn.functional import softplus

import credibly as cr

X = torch.tensor(
    [[2.0, -1.0, 0.3, 0.0], [0.5, 1.0, -3.0, 0.7], [-1.0, -0.5, 0.2, 0.1]], dtype=torch.float64
)
Y = torch.tensor([[1, 0, 1, 0], [0, 1, 0, 0], [1, 0, 0, 1]], dtype=torch.float64)


def hard_logits(x, y, positive, negative):
    above = negative * torch.log(torch.exp(x[y == 0] / negative).sum())
    below = positive * torch.log(torch.exp(-x[y == 1] / positive).sum())
    return above, below


def sample_wise(positive, negative, margin=0.0):
    """Equations 14 and 15, with the margin of equation iii."""
    rows = [sum(hard_logits(x, y, positive, negative)) for x, y in zip(X, Y, strict=True)]
    return softplus(torch.stack(rows) + margin).mean()


def class_wise(positive, negative, margin=0.0):
    columns = [sum(hard_logits(x, y, positive, negative)) for x, y in zip(X.T, Y.T, strict=True)]
    return softplus(torch.stack(columns) + margin).mean()


@pytest.mark.parametrize(("positive", "negative"), [(4.0, 1.0), (1.0, 1.0), (2.0, 0.5)])
def test_equations_14_to_17_rows_columns_and_both(positive, negative):
    printed = {"samples": sample_wise, "labels": class_wise}
    for ways, formula in printed.items():
        loss = cr.losses.TwoWay(temperature_pos=positive, temperature_neg=negative, ways=ways)
        torch.testing.assert_close(loss(X, Y), formula(positive, negative))
    both = cr.losses.TwoWay(temperature_pos=positive, temperature_neg=negative)
    expected = sample_wise(positive, negative) + class_wise(positive, negative)
    torch.testing.assert_close(both(X, Y), expected)


@pytest.mark.parametrize(("bias_pos", "bias_neg"), [(0.4, 0.4), (0.3, 1.0), (-1.0, 0.5)])
def test_equations_i_to_iii_biases_act_through_their_difference(bias_pos, bias_neg):
    shifted = torch.where(Y == 1, X + bias_pos, X + bias_neg)
    for x, s, y in zip(X, shifted, Y, strict=True):
        (above, below), (above_s, below_s) = hard_logits(x, y, 4, 1), hard_logits(s, y, 4, 1)
        assert below_s.item() == pytest.approx((below - bias_pos).item()), "equation i"
        assert above_s.item() == pytest.approx((above + bias_neg).item()), "equation ii"
    with_bias = cr.losses.TwoWay(ways="samples")(shifted, Y)
    as_margin = cr.losses.TwoWay(ways="samples", margin=bias_neg - bias_pos)(X, Y)
    torch.testing.assert_close(with_bias, as_margin)


def test_equation_iii_is_blind_to_a_shift_of_all_scores():
    loss = cr.losses.TwoWay()
    torch.testing.assert_close(loss(X, Y), loss(X + 3.0, Y))


@pytest.mark.parametrize(("temperature", "margin"), [(1.0, 0.5), (4.0, 0.0)])
def test_equations_iv_and_v_the_gradients_of_positive_scores(temperature, margin):
    scores = X.clone().requires_grad_()
    loss = cr.losses.TwoWay(
        temperature_pos=temperature, temperature_neg=1.0, margin=margin, ways="samples"
    )
    loss(scores, Y).backward()
    assert scores.grad is not None
    for x, y, gradient in zip(X, Y, scores.grad, strict=True):
        above, below = hard_logits(x, y, temperature, 1.0)
        shares = torch.softmax(-x[y == 1] / temperature, 0)
        printed = -torch.sigmoid(above + below + margin) * shares / len(X)
        torch.testing.assert_close(gradient[y == 1], printed)


def test_appendix_b_samples_45_penalties_on_a_log_scale():
    printed = [10 ** (-6 + 11 * step / 44) for step in range(45)]
    tried = cr.papers.preset("twl-probe").settings["l2"]
    np.testing.assert_allclose(sorted(tried), printed)


def test_appendix_c_1_the_text_means_the_smallest_positive():
    """Equation 14 is small where the smallest positive is above; the text says the largest."""
    loss = cr.losses.TwoWay(ways="samples")
    ordered = torch.tensor([[5.0, 4.0, -5.0]]), torch.tensor([[1.0, 1.0, 0.0]])
    largest_only = torch.tensor([[9.0, -9.0, -5.0]]), torch.tensor([[1.0, 1.0, 0.0]])
    assert loss(*ordered) < 0.1
    assert loss(*largest_only) > 1, "the largest positive is above, the smallest below"


def test_table_b_warp_weights_the_hinges_by_the_rank():
    row, truth = X[:1], Y[:1]
    total = 0.0
    for p in (0, 2):
        hinges = [max(0.0, 1 - row[0, p].item() + row[0, n].item()) for n in (1, 3)]
        rank = sum(h > 0 for h in hinges)
        total += sum(1 / i for i in range(1, rank + 1)) * sum(hinges)
    assert cr.losses.Warp()(row, truth).item() == pytest.approx(total / 4), "mean over labels: ours"
