"""Losses for one observed label against 60-digit arithmetic."""

from __future__ import annotations

import loss_references as reference
import mpmath as mp
import pytest
import torch
from loss_references import sigmoid, softplus

from credibly.losses import AssumeNegative, AverageK, BalancedTopK, ExpectedPositive, Softmax

LABELS = 4


def observed(row):
    return next(j for j, y in enumerate(row) if y == 1)


def log_softmax(row, j):
    top = max(row)
    return row[j] - top - mp.log(mp.fsum(mp.exp(v - top) for v in row))


def mean_of_rows(entry):
    def value(scores, targets):
        pairs = zip(scores, targets, strict=True)
        return mp.fsum(entry(row, observed(y)) for row, y in pairs) / len(scores)

    return value


def softmax_row(row, j):
    return -log_softmax(row, j)


def topk_row(row, j):
    hinge = 1 + sorted(row, reverse=True)[2] - row[j]
    return hinge if hinge > 0 else mp.mpf(0)


def assume_negative(scores, targets):
    return mp.fsum(
        softplus(-v) if y == 1 else softplus(v) / (LABELS - 1)
        for row, ys in zip(scores, targets, strict=True)
        for v, y in zip(row, ys, strict=True)
    ) / (len(scores) * LABELS)


def expected_positive(scores, targets):
    rows = len(scores)
    seen = mp.fsum(softplus(-r[observed(y)]) for r, y in zip(scores, targets, strict=True)) / rows
    size = mp.fsum(sigmoid(v) for row in scores for v in row) / rows
    return seen + (size - mp.mpf(3) / 2) ** 2 / LABELS


def average_k(scores, targets):
    """K = 2, α = 1/2."""
    rows = len(scores)
    ml, sccp = [r[:LABELS] for r in scores], [r[LABELS:] for r in scores]
    found = [observed(y) for y in targets]
    places = [(i, j) for i in range(rows) for j in range(LABELS) if j != found[i]]
    chosen = sorted(places, key=lambda p: -log_softmax(sccp[p[0]], p[1]))[:rows]
    rest = [place for place in places if place not in chosen]
    value = -mp.fsum(log_softmax(sccp[i], found[i]) for i in range(rows)) / rows
    value += mp.fsum(softplus(-ml[i][found[i]]) for i in range(rows)) / rows
    value += mp.fsum(softplus(-ml[i][j]) for i, j in chosen) / (2 * len(chosen))
    return value + mp.fsum(softplus(ml[i][j]) for i, j in rest) / (2 * len(rest))


CASES = [
    (Softmax(), mean_of_rows(softmax_row)),
    (BalancedTopK(2, noise=0.0), mean_of_rows(topk_row)),
    (AssumeNegative(), assume_negative),
    (ExpectedPositive(1.5), expected_positive),
    (AverageK(2.0, alpha=0.5), average_k),
]


@pytest.mark.parametrize(("loss", "exact"), CASES, ids=[str(loss) for loss, _ in CASES])
@pytest.mark.parametrize("size", [1.0, 20.0, 1e4])
def test_value_and_gradient_have_twelve_digits(loss, exact, size):
    generator = torch.Generator().manual_seed(4)
    shape = (3, LABELS * loss.scores_per_label)
    scores = size * torch.randn(shape, generator=generator, dtype=torch.float64)
    targets = torch.eye(LABELS, dtype=torch.float64)[[0, 3, 1]]
    scores.requires_grad_()
    value = loss(scores, targets)
    value.backward()
    assert value.item() == pytest.approx(
        reference.value_of(exact, scores.detach(), targets), rel=1e-12
    )
    slopes = reference.gradient_of(exact, scores.detach(), targets)
    assert (scores.grad - slopes).abs().max() <= 1e-12 * slopes.abs().max()
    single = scores.detach().float().requires_grad_()
    loss(single, targets.float()).backward()
    slopes = reference.gradient_of(exact, single.detach(), targets)
    assert (single.grad.double() - slopes).abs().max() <= 1e-6 * slopes.abs().max()
