"""Ranking losses and losses for one observed label, against loops over their formulas."""

from __future__ import annotations

import math

import pytest
import torch

import credibly as cr
from credibly.losses import (
    AssumeNegative,
    BalancedTopK,
    ExpectedPositive,
    OnlineEstimation,
    RobustMultiLabel,
    Warp,
)


def batch(size=1.5, rows=7, labels=6):
    generator = torch.Generator().manual_seed(1)
    scores = size * torch.randn(rows, labels, generator=generator, dtype=torch.float64)
    targets = (torch.rand(rows, labels, generator=generator) < 0.4).double()
    targets[0], targets[1], targets[2] = 0, -1, 1
    targets[3, ::2] = -1
    targets[:, 5] = torch.where(targets[:, 5] > 0, 0.0, targets[:, 5])
    targets[2, 5] = -1
    return scores, targets


def sides(row, marks):
    positive = [v for v, y in zip(row, marks, strict=True) if y > 0.5]
    negative = [v for v, y in zip(row, marks, strict=True) if 0 <= y <= 0.5]
    return positive, negative


def harmonic(rank):
    return math.fsum(1 / k for k in range(1, rank + 1))


def hinge(a, t):
    return max(0.0, a - t)


def warp_by_hand(scores, targets):
    terms = []
    for row, marks in zip(scores.tolist(), targets.tolist(), strict=True):
        positive, negative = sides(row, marks)
        if positive and negative:
            total = 0.0
            for p in positive:
                rank = sum(1 - p + n > 0 for n in negative)
                total += harmonic(rank) * math.fsum(hinge(1, p - n) for n in negative)
            terms.append(total / len(positive + negative))
    return math.fsum(terms) / len(terms)


def robust_by_hand(loss, scores, targets):
    def ramp(t):
        return hinge(1, t) - (1 - loss.leak) * hinge(loss.ramp, t)

    terms = []
    for row, marks in zip(scores.tolist(), targets.tolist(), strict=True):
        positive, negative = sides(row, marks)
        if positive or negative:
            total = loss.single_weight * math.fsum(map(ramp, [*positive, *(-n for n in negative)]))
            for p in positive:
                rank = sum(1 - p + n > 0 for n in negative)
                total += harmonic(rank) * math.fsum(ramp(p - n) for n in negative)
            terms.append(total / len(positive + negative))
    return math.fsum(terms) / len(terms)


@pytest.mark.parametrize("size", [0.1, 1.5, 40.0, 1e4])
def test_warp_is_that_of_the_loops(size):
    scores, targets = batch(size)
    expected = warp_by_hand(scores, targets)
    assert Warp()(scores, targets).item() == pytest.approx(expected, rel=1e-12)
    single = Warp()(scores.float(), targets.float()).item()
    assert single == pytest.approx(expected, rel=1e-6)


@pytest.mark.parametrize("size", [0.1, 1.5, 40.0, 1e4])
@pytest.mark.parametrize("leak", [0.0, 0.1, 1.0])
def test_robust_loss_is_that_of_the_loops(size, leak):
    scores, targets = batch(size)
    loss = RobustMultiLabel(leak=leak)
    expected = robust_by_hand(loss, scores, targets)
    assert loss(scores, targets).item() == pytest.approx(expected, rel=1e-12)


@pytest.mark.parametrize("loss", [Warp(), RobustMultiLabel(leak=0.1)], ids=str)
def test_gradient_of_ranking_losses_is_that_of_pairs(loss):
    scores, targets = batch()
    scores.requires_grad_()
    loss(scores, targets).backward()
    by_hand = warp_by_hand if isinstance(loss, Warp) else lambda s, y: robust_by_hand(loss, s, y)
    with torch.no_grad():
        for i, j in ((3, 1), (4, 0), (4, 3), (5, 2), (6, 4), (2, 1), (0, 0)):
            above, below = scores.clone(), scores.clone()
            above[i, j] += 1e-7
            below[i, j] -= 1e-7
            slope = (by_hand(above, targets) - by_hand(below, targets)) / 2e-7
            assert scores.grad[i, j].item() == pytest.approx(slope, abs=1e-6)


def test_an_outlier_is_charged_by_warp_and_not_by_the_robust_loss():
    targets = torch.tensor([[1.0, 0.0]])
    for loss, moves in ((Warp(), True), (RobustMultiLabel(), False)):
        scores = torch.tensor([[-9.0, 9.0]], requires_grad=True)
        loss(scores, targets).backward()
        assert bool(scores.grad.abs().max() > 0) is moves


def test_weights_are_harmonic_numbers():
    """Not 1/k + 1, a precedence slip in public code."""
    for rank in (1, 4, 30):
        targets = torch.zeros(1, 31).double()
        targets[0, 0] = 1
        scores = torch.full((1, 31), -9.0).double()
        scores[0, : rank + 1] = 0  # as high as the positive: each hinge is 1
        found = Warp()(scores, targets).item()
        assert found == pytest.approx(harmonic(rank) * rank / 31)


@pytest.mark.parametrize("loss", [Warp(), RobustMultiLabel()], ids=str)
def test_nan_stays_in_its_row(loss):
    scores, targets = batch()
    targets[4] = torch.tensor([1.0, 0, 0, 1, 0, 0])
    for column in (0, 1):
        strange = scores.clone()
        strange[4, column] = torch.nan
        assert torch.isnan(loss.values(strange, targets)).tolist() == [False] * 4 + [
            True,
            False,
            False,
        ]


# Top-K ---------------------------------------------------------------------------------------


def topk_by_hand(loss, scores, targets, noises):
    terms = []
    for i, (row, marks) in enumerate(zip(scores.tolist(), targets.tolist(), strict=True)):
        labels = [j for j, y in enumerate(marks) if y == 1]
        if not labels:
            continue
        known = [j for j, y in enumerate(marks) if y >= 0]
        value = 0.0
        if len(known) > loss.average_size:
            nexts = [
                sorted((row[j] + z[i, j].item() for j in known), reverse=True)[loss.average_size]
                for z in noises
            ]
            nearest = math.fsum(nexts) / len(nexts)
            value = math.fsum(max(0.0, loss.margin + nearest - row[j]) for j in labels) / len(
                labels
            )
        terms.append(value)
    return math.fsum(terms) / len(terms)


@pytest.mark.parametrize("size", [1, 3, 5])
@pytest.mark.parametrize("noise", [0.0, 0.7])
def test_topk_is_that_of_the_loops(size, noise):
    scores, targets = batch()
    generator = torch.Generator().manual_seed(9)
    loss = BalancedTopK(size, noise=noise, num_samples=3, margin=1.3, generator=generator)
    again = torch.Generator().manual_seed(9)
    noises = [
        noise * torch.randn(7, 6, generator=again, dtype=torch.float64) if noise else 0 * scores
        for _ in range(3)
    ]
    expected = topk_by_hand(loss, scores, targets, noises)
    assert loss(scores, targets).item() == pytest.approx(expected, rel=1e-12)
    quiet = topk_by_hand(loss, scores, targets, [0 * scores])
    assert loss.eval()(scores, targets).item() == pytest.approx(quiet, rel=1e-12)


def test_topk_moves_the_label_and_the_selected_places_only():
    scores = torch.tensor([[0.0, 3.0, 2.0, 1.0, -1.0]], requires_grad=True)
    BalancedTopK(2, noise=0.0)(scores, torch.tensor([0])).backward()
    assert scores.grad.tolist() == [[-1.0, 0.0, 0.0, 1.0, 0.0]]


def test_topk_follows_the_global_seed_and_costs_nothing_when_all_are_returned():
    scores, targets = batch()
    loss = BalancedTopK(2)
    torch.manual_seed(4)
    first = loss(scores, targets)
    torch.manual_seed(4)
    assert loss(scores, targets).equal(first)
    assert BalancedTopK(6)(scores, targets) == 0


@pytest.mark.parametrize("arguments", [{"average_size": 0}, {"average_size": 2.5}])
def test_topk_needs_a_whole_size(arguments):
    with pytest.raises(cr.InputError, match="`average_size` must be a whole number"):
        BalancedTopK(**arguments)


# One observed label ----------------------------------------------------------------------------


def log_sigmoid(v):
    return -math.log1p(math.exp(-v))


def test_assume_negative_reads_the_rate_of_observation():
    scores, _ = batch()
    observed = torch.arange(7) % 6
    total = 0.0
    for i, row in enumerate(scores.tolist()):
        for j, v in enumerate(row):
            total -= log_sigmoid(v) if j == observed[i] else log_sigmoid(-v) / 5
    assert AssumeNegative()(scores, observed).item() == pytest.approx(total / 7, rel=1e-12)
    torch.testing.assert_close(AssumeNegative().log_odds(scores), scores - math.log(5))
    torch.testing.assert_close(AssumeNegative().log_odds(scores[:, :1]), scores[:, :1])


@pytest.mark.parametrize("weight", [None, 0.5])
def test_expected_positive_is_that_of_the_loops(weight):
    scores, targets = batch()
    rows = [i for i in range(7) if (targets[i] >= 0).any()]
    known = [(i, j) for i in rows for j in range(6) if targets[i, j] >= 0]
    mean = math.fsum(1 / (1 + math.exp(-scores[k].item())) for k in known) / len(rows)
    value = -math.fsum(log_sigmoid(scores[k].item()) for k in known if targets[k] == 1) / len(rows)
    value += (1 / 6 if weight is None else weight) * (mean - 2.5) ** 2
    loss = ExpectedPositive(2.5, weight)
    assert loss(scores, targets).item() == pytest.approx(value, rel=1e-12)
    values = loss.values(scores, targets)
    assert (values.sum() / len(rows)).item() == pytest.approx(value, rel=1e-12)


def role_by_hand(scores, estimates, targets, size):
    """Both halves as Cole et al. write them, on probabilities; the first argument learns."""
    f, y = torch.sigmoid(scores), torch.sigmoid(estimates)

    def half(p, given):
        cross = -(given * p.log() + (1 - given) * (1 - p).log())
        positive = torch.where(targets == 1, -p.log(), 0.0)
        return (cross + positive).mean() + ((p.sum(1).mean() - size) / p.shape[1]) ** 2

    return (half(f, y.detach()) + half(y, f.detach())) / 2


def test_online_estimation_is_that_of_its_source():
    scores, _ = batch()
    observed = torch.tensor([0, 1, 2, 3, 4, 5, 1])
    targets = torch.nn.functional.one_hot(observed, 6).double()
    loss = OnlineEstimation(num_rows=20, num_labels=6, average_size=2.0)
    rows = torch.tensor([19, 3, 4, 0, 7, 8, 11])
    start = loss.estimate_log_odds.detach().clone()
    scores.requires_grad_()
    value = loss(scores, observed, indices=rows)
    grads = torch.autograd.grad(value, [scores, loss.estimate_log_odds])
    mine = start[rows].double()
    mine[torch.arange(7), observed] = torch.logit(torch.tensor(0.995)).double()
    mine.requires_grad_()
    other = scores.detach().clone().requires_grad_()
    expected = role_by_hand(other, mine, targets, 2.0)
    slopes = torch.autograd.grad(expected, [other, mine])
    assert value.item() == pytest.approx(expected.item(), rel=1e-6)
    torch.testing.assert_close(grads[0], slopes[0], rtol=1e-5, atol=1e-8)
    torch.testing.assert_close(grads[1][rows].double(), slopes[1], rtol=1e-5, atol=1e-8)
    assert grads[1].abs().sum(1).count_nonzero() == 7


def test_estimates_start_sure_of_observed_labels_once_and_then_learn():
    loss = OnlineEstimation(4, 3, 1.0)
    scores, observed, rows = torch.zeros(2, 3), torch.tensor([1, 2]), torch.tensor([3, 0])
    loss(scores, observed, indices=rows)
    assert loss.estimates(rows)[[0, 1], observed].tolist() == [pytest.approx(0.995)] * 2
    assert ((loss.estimates(torch.tensor([1, 2])) - 0.5).abs() <= 0.1 + 1e-6).all()
    with torch.no_grad():
        loss.estimate_log_odds.zero_()
    loss(scores, observed, indices=rows)
    assert loss.estimates(rows).tolist() == [[0.5] * 3] * 2


def test_evaluation_needs_no_rows_and_the_whole_training_set_no_numbers():
    scores, targets = batch()
    loss = OnlineEstimation(7, 6, 2.0)
    loss(scores, targets)
    assert loss.seen.all()
    other = OnlineEstimation(500, 6, 2.0).eval()
    half = other(scores, targets)
    per_row = ExpectedPositive(2.0, weight=1 / 6)(scores, targets)
    assert half.item() == pytest.approx(per_row.item() / 6, rel=1e-6)


def test_online_estimation_says_which_rows_it_needs():
    loss = OnlineEstimation(50, 3, 1.0)
    scores, observed = torch.zeros(2, 3), torch.tensor([1, 2])
    with pytest.raises(cr.InputError, match="`indices` must say which of the 50 training rows"):
        loss(scores, observed)
    with pytest.raises(cr.InputError, match=r"`indices` must say .* got shape \(3,\)"):
        loss(scores, observed, indices=torch.arange(3))
    with pytest.raises(cr.InputError, match=r"`indices` must lie in \[0, 49\]; got \[0, 50\]"):
        loss(scores, observed, indices=torch.tensor([0, 50]))
    with pytest.raises(cr.InputError, match="`scores` must have 3 columns"):
        loss(torch.zeros(2, 4), observed, indices=torch.tensor([0, 1]))


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (lambda: ExpectedPositive(0.5), "`average_size` must"),
        (lambda: ExpectedPositive(2, weight=0), "`weight` must be a finite number above 0"),
        (lambda: OnlineEstimation(5, 3, 4), "the number of labels, 3; got 4"),
        (lambda: OnlineEstimation(5, 3, 2, spread=0.5), "`spread`"),
        (lambda: RobustMultiLabel(ramp=1.0), "`ramp` must lie below 1"),
        (lambda: RobustMultiLabel(leak=2.0), "`leak` must lie in"),
        (lambda: BalancedTopK(2, noise=-1.0), "`noise` must be a finite number of at least 0"),
    ],
)
def test_arguments_out_of_range_are_refused(build, message):
    with pytest.raises(cr.InputError, match=message):
        build()
