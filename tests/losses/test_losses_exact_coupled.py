"""Losses whose labels are coupled, here with one present a row, against 60-digit arithmetic."""

from __future__ import annotations

import loss_references as reference
import mpmath as mp
import pytest
import torch
from loss_references import sigmoid, softplus

from credibly.losses import (
    AssumeNegative,
    AverageK,
    BalancedTopK,
    ExpectedPositive,
    OnlineEstimation,
    RobustMultiLabel,
    Softmax,
    Warp,
)

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
    ) / len(scores)


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


def hinge(threshold, t):
    return max(threshold - t, mp.mpf(0))


def rank_weight(row, j):
    above = sum(1 - row[j] + v > 0 for k, v in enumerate(row) if k != j)
    return mp.harmonic(above)


def warp_row(row, j):
    gaps = [row[j] - v for k, v in enumerate(row) if k != j]
    return rank_weight(row, j) * mp.fsum(hinge(1, gap) for gap in gaps) / LABELS


def robust_row(row, j):
    """A leak of 1/8."""

    def ramp(t):
        return hinge(1, t) - (1 - mp.mpf(1) / 8) * hinge(mp.mpf(-0.8), t)

    single = mp.fsum(ramp(v if k == j else -v) for k, v in enumerate(row))
    pairs = mp.fsum(ramp(row[j] - v) for k, v in enumerate(row) if k != j)
    return (rank_weight(row, j) * pairs + 5 * single) / LABELS


def online(scores, targets, estimates=None):
    """K = 1.5; the side that is learned, given estimates of the other side or none."""
    rows = len(scores)
    size = mp.fsum(sigmoid(v) for row in scores for v in row) / rows
    cost = mp.fsum(softplus(-r[observed(y)]) for r, y in zip(scores, targets, strict=True))
    if estimates is not None:
        cost += mp.fsum(
            p * softplus(-v) + (1 - p) * softplus(v)
            for row, known in zip(scores, estimates, strict=True)
            for v, p in zip(row, known, strict=True)
        )
    return cost / (rows * LABELS) + ((size - mp.mpf(3) / 2) / LABELS) ** 2


CASES = [
    (Softmax(), mean_of_rows(softmax_row)),
    (BalancedTopK(2, noise=0.0), mean_of_rows(topk_row)),
    (AssumeNegative(), assume_negative),
    (ExpectedPositive(1.5), expected_positive),
    (AverageK(2.0, alpha=0.5), average_k),
    (Warp(), mean_of_rows(warp_row)),
    (RobustMultiLabel(leak=0.125), mean_of_rows(robust_row)),
    (OnlineEstimation(3, LABELS, 1.5).eval(), online),
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


@pytest.mark.parametrize("size", [1.0, 20.0])
def test_scores_and_estimates_learn_from_each_other(size):
    """In training each side's slope takes the other for known."""
    generator = torch.Generator().manual_seed(5)
    scores = size * torch.randn((3, LABELS), generator=generator, dtype=torch.float64)
    targets = torch.eye(LABELS, dtype=torch.float64)[[2, 0, 1]]
    loss = OnlineEstimation(3, LABELS, 1.5).double()
    scores.requires_grad_()
    value = loss(scores, targets)
    value.backward()
    sides = scores.detach(), loss.estimate_log_odds.detach()
    total = mp.mpf(0)
    for learned, known, slopes in (
        (*sides, scores.grad),
        (*sides[::-1], loss.estimate_log_odds.grad),
    ):
        given = [[sigmoid(mp.mpf(v)) for v in row] for row in known.tolist()]

        def half(v, y, given=given):
            return online(v, y, given) / 2

        total += reference.value_of(half, learned, targets)
        exact = reference.gradient_of(half, learned, targets)
        assert (slopes - exact).abs().max() <= 1e-12 * exact.abs().max()
    assert value.item() == pytest.approx(float(total), rel=1e-12)
