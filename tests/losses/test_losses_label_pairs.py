"""Label pairs against a sum over all pairs, in every form the sum takes."""

from __future__ import annotations

import pytest
import torch
from loss_instances import PATHS

import credibly as cr
from credibly.losses import BCE, SPA, Asymmetric, Composite, Focal, LabelPairs, TwoWay

each_path = pytest.mark.parametrize("path", PATHS.values(), ids=PATHS)
each_dtype = pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
TOLERANCE = {torch.float32: 1e-6, torch.float64: 1e-13}


def every_pair(log_odds, targets):
    """The definition: all pairs of all rows at once, in float64."""
    u, y = log_odds.double(), targets.double()
    known = y >= 0
    u = torch.where(known, u, 0.0)
    present, absent = torch.where(known, y, 0.0), torch.where(known, 1 - y, 0.0)
    labels = y.shape[1]
    known_labels = known.sum(1).double()
    share = torch.where(known_labels > 1, 2 / (known_labels * (known_labels - 1)).clamp(min=1), 0.0)
    weights = present[:, :, None] * absent[:, None, :] * (1 - torch.eye(labels))
    losses = -torch.nn.functional.logsigmoid(u[:, :, None] - u[:, None, :])
    rows = known.any(1).sum().clamp(min=1)
    return ((weights * losses).sum((1, 2)) * share).sum() / rows


def batch(rate, dtype=torch.float64, labels=70, spread=3.0, soft=False):
    """Ten rows, one without positives, one all unknown, one all positive, one with gaps."""
    generator = torch.Generator().manual_seed(3)
    scores = spread * torch.randn(10, labels, generator=generator, dtype=torch.float64) - 1
    targets = (torch.rand(10, labels, generator=generator) < rate).double()
    if soft:
        targets[:, ::3] = torch.rand(10, len(targets[0, ::3]), generator=generator).double()
    targets[0], targets[1], targets[2] = 0, -1, 1
    targets[3, ::4] = -1
    targets[:, 5] = torch.where(targets[:, 5] > 0, 0.0, targets[:, 5])
    return scores.to(dtype), targets.to(dtype)


def with_gradient(function, scores, targets):
    scores = scores.clone().requires_grad_()
    value = function(scores, targets)
    value.backward()
    return value.detach().double(), scores.grad.double()


def assert_same(found, expected, tolerance):
    value, gradient = found
    assert value.item() == pytest.approx(expected[0].item(), rel=tolerance)
    assert (gradient - expected[1]).abs().max() <= tolerance * expected[1].abs().max()


CASES = [
    {"rate": 0.05},
    {"rate": 0.5},
    {"rate": 0.5, "soft": True},
    {"rate": 0.1, "spread": 30.0, "soft": True},
    {"rate": 0.4, "spread": 3e3},
    {"rate": 0.3, "labels": 600},
]


@each_path
@each_dtype
@pytest.mark.parametrize("case", CASES, ids=str)
def test_the_regularizer_is_the_sum_over_pairs(case, dtype, path):
    log_odds, targets = batch(dtype=dtype, **case)
    weight = 1e4  # scores are log-odds for BCE, next to whose pairs it is then nothing

    def by_definition(u, y):
        return BCE()(u, y) + weight * every_pair(u, y)

    expected = with_gradient(by_definition, log_odds.double(), targets.double())
    with path():
        found = with_gradient(LabelPairs(BCE(), weight), log_odds, targets)
    assert_same(found, expected, TOLERANCE[dtype])


WRAPPED = [BCE(), SPA(), SPA(scale_neg=10.0, slope_neg=2.0, shift_pos=-1.0), Focal(), Asymmetric()]
each_wrapped = pytest.mark.parametrize("inner", WRAPPED, ids=str)


def bounded(log_odds):
    return log_odds.clamp(-50, 50) if torch.isinf(log_odds).any() else log_odds


@each_wrapped
@each_path
@each_dtype
@pytest.mark.parametrize("case", CASES[:3], ids=str)
def test_a_wrapped_loss_is_the_loss_plus_the_pairs_of_its_log_odds(inner, case, dtype, path):
    scores, targets = batch(dtype=dtype, **case)

    def by_parts(v, y):
        return inner(v, y) + 0.7 * every_pair(bounded(inner.log_odds(v)), y)

    expected = with_gradient(by_parts, scores.double(), targets.double())
    with path():
        found = with_gradient(LabelPairs(inner, weight=0.7), scores, targets)
    # A link steepens towards its plateau, so there the scores' rounding shows in float32.
    loose = 30 if isinstance(inner, Asymmetric) else 1
    assert_same(found, expected, loose * TOLERANCE[dtype])


ROWS = [
    {"rate": 0.05, "labels": 600},
    {"rate": 0.02, "labels": 600, "spread": 40.0},
    {"rate": 0.1, "spread": 8.0},
    {"rate": 0.1, "spread": 60.0},
]


@each_path
@each_dtype
@pytest.mark.parametrize("case", ROWS, ids=str)
def test_spa_and_its_pairs_agree_with_their_parts_in_long_and_in_wide_rows(case, dtype, path):
    """Rows longer than a chunk, and scores beyond what the tables of exponentials hold."""
    inner = SPA()
    scores, targets = batch(dtype=dtype, **case)
    scores[4, targets[4] == 0] -= 80  # far below every positive: these still fit

    def by_parts(v, y):
        return inner(v, y) + every_pair(inner.log_odds(v), y)

    expected = with_gradient(by_parts, scores.double(), targets.double())
    with path():
        found = with_gradient(LabelPairs(inner), scores, targets)
        value = LabelPairs(inner)(scores, targets)
    assert_same(found, expected, 2 * TOLERANCE[dtype])
    assert value.item() == found[0].item()


@each_path
@each_dtype
@pytest.mark.parametrize("wide", [slice(0, 300), slice(600, 900)], ids=["start", "middle"])
def test_pairs_are_right_if_scores_are_far_apart_in_a_part_of_a_long_row(wide, dtype, path):
    scores, targets = batch(0.05, labels=1300, dtype=dtype)
    targets = targets.clamp(min=0)
    scores[:, wide] += 60 * (1 - targets[:, wide])

    def by_parts(v, y):
        return BCE()(v, y) + 100 * every_pair(v, y)

    expected = with_gradient(by_parts, scores.double(), targets.double())
    with path():
        found = with_gradient(LabelPairs(BCE(), weight=100), scores, targets)
    # In float32, the formula differs by 1.2e-5 here; the kernels stay below 2e-6.
    assert_same(found, expected, 20 * TOLERANCE[dtype])


def own_pair():
    """A user's own loss: its link comes from autograd, whose logarithms reach −∞."""
    logsigmoid = torch.nn.functional.logsigmoid
    return Composite(positive=lambda v: -logsigmoid(2 * v), negative=lambda v: -logsigmoid(-v - 1))


@pytest.mark.parametrize("inner", [*WRAPPED, own_pair()], ids=str)
@each_path
@each_dtype
def test_extreme_scores_and_plateaus_stay_finite(inner, dtype, path):
    scores, targets = batch(0.3, dtype=dtype, soft=True)
    loss = LabelPairs(inner)
    with path():
        for extreme in (scores.sign() * 1e4, torch.full_like(scores, -1e4), scores * 30):
            value, gradient = with_gradient(loss, extreme, targets)
            assert torch.isfinite(value)
            assert torch.isfinite(gradient).all()


@each_wrapped
@each_path
def test_values_average_to_the_loss_where_everything_is_known(inner, path):
    scores, targets = batch(0.2)
    targets = targets.clamp(min=0)
    loss = LabelPairs(inner, weight=2.0)
    with path():
        values = loss.values(scores, targets)
        assert values.mean().item() == pytest.approx(loss(scores, targets).item(), rel=1e-12)


@each_wrapped
@each_path
def test_second_derivatives_are_those_of_the_gradient(inner, path):
    scores, targets = batch(0.2, labels=12)
    scores[scores < -1] += 4  # off Asymmetric's plateau and its edge
    loss = LabelPairs(inner)
    direction = torch.linspace(-1, 1, scores.numel(), dtype=torch.float64).view_as(scores)
    with path():
        leaf = scores.clone().requires_grad_()
        (first,) = torch.autograd.grad(loss(leaf, targets), leaf, create_graph=True)
        (second,) = torch.autograd.grad((first * direction).sum(), leaf)
        _, above = with_gradient(loss, scores + 1e-5 * direction, targets)
        _, below = with_gradient(loss, scores - 1e-5 * direction, targets)
    torch.testing.assert_close(second, (above - below) / 2e-5, rtol=1e-5, atol=1e-7)


@each_path
@pytest.mark.parametrize("inner", [BCE(), SPA()], ids=str)
def test_nan_stays_in_its_row(inner, path):
    scores, targets = batch(0.2, dtype=torch.float32)
    scores[4, 7] = torch.nan
    scores[1, 0] = scores[3, 0] = torch.nan  # unknown: nobody looks
    with path():
        value, gradient = with_gradient(LabelPairs(inner), scores, targets)
    assert torch.isnan(value)
    assert torch.isnan(gradient[4]).any()
    assert torch.isfinite(gradient[torch.arange(10) != 4]).all()


@each_path
def test_a_single_label_has_no_pairs(path):
    scores, targets = torch.randn(4, 1), torch.tensor([[1.0], [0.0], [1.0], [0.0]])
    with path():
        torch.testing.assert_close(LabelPairs(BCE())(scores, targets), BCE()(scores, targets))


def test_the_wrapper_keeps_what_the_loss_is():
    inner = SPA()
    loss = LabelPairs(inner, weight=3.0)
    scores = torch.randn(2, 5)
    assert loss.name == "spa+lpr"
    assert loss.properness == "strict"
    assert loss.scores_per_label == 1
    assert torch.equal(loss.log_odds(scores), inner.log_odds(scores))
    assert torch.equal(
        loss.initial_scores(torch.tensor([0.2])), inner.initial_scores(torch.tensor([0.2]))
    )
    assert "weight=3" in str(loss)


def test_a_loss_without_a_link_is_refused():
    with pytest.raises(cr.InputError, match="must have a link"):
        LabelPairs(TwoWay())


def test_a_negative_weight_is_refused():
    with pytest.raises(cr.InputError, match="at least 0"):
        LabelPairs(SPA(), weight=-1.0)


@each_path
def test_memory_stays_linear_in_the_labels(path):
    """32 rows × 4000 labels: a matrix of all pairs would take 2 GB."""
    generator = torch.Generator().manual_seed(0)
    targets = (torch.rand(32, 4000, generator=generator) < 0.001).float()
    scores = torch.randn(32, 4000, generator=generator, requires_grad=True)
    loss = LabelPairs(SPA())
    with path():
        loss(scores, targets).backward()
        with torch.profiler.profile(profile_memory=True) as profile:
            loss(scores, targets).backward()
    largest = max((event.cpu_memory_usage for event in profile.key_averages()), default=0)
    assert largest <= 40 * scores.numel() * 4


@each_path
@pytest.mark.parametrize("inner", [SPA, BCE], ids=["SPA", "BCE"])
def test_label_weights_of_the_wrapped_loss_count(inner, path):
    scores, targets = batch(dtype=torch.float64, **CASES[0])
    weighted = inner(label_weight=torch.arange(scores.shape[1]).double())
    with path():
        extra = LabelPairs(weighted)(scores, targets) - weighted(scores, targets)
        expected = LabelPairs(inner())(scores, targets) - inner()(scores, targets)
    assert extra.item() == pytest.approx(expected.item(), rel=1e-10)
