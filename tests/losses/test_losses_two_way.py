"""The two-way loss against both ways computed by hand, on every path it can take."""

from __future__ import annotations

import math

import mpmath as mp
import pytest
import torch
from loss_instances import PATHS

import credibly as cr
from credibly import losses as cl
from credibly.losses import TwoWay

mp.mp.dps = 50
SETTINGS = [
    TwoWay(),
    TwoWay(ways="samples"),
    TwoWay(ways="labels"),
    TwoWay(temperature_pos=2.0, temperature_neg=0.7, margin=0.4),
]
each_setting = pytest.mark.parametrize("loss", SETTINGS, ids=str)


def batch(size=2.0, dtype=torch.float64, rows=7, labels=6):
    """Zero-label, all-positive, unknown and soft rows; a label without positives."""
    generator = torch.Generator().manual_seed(3)
    scores = size * torch.randn(rows, labels, generator=generator, dtype=torch.float64)
    targets = (torch.rand(rows, labels, generator=generator) < 0.4).double()
    targets[0] = 0
    targets[1] = 1
    targets[2] = -1
    targets[3, ::2] = -1
    targets[4] = torch.rand(labels, generator=generator)
    targets[:, 2] = torch.where(targets[:, 2] > 0, 0.0, targets[:, 2])
    targets[1, 2] = -1
    # Kept exactly in float32, so that both precisions see the same numbers.
    return scores.float().to(dtype), targets.float().to(dtype)


def by_hand(loss, scores, targets):
    """The loss and its gradient, set by set, in 50 digits."""
    rows, labels = scores.shape
    across = [[(i, j) for j in range(labels)] for i in range(rows)]
    down = [[(i, j) for i in range(rows)] for j in range(labels)]
    value, gradient = mp.mpf(0), {}
    for used, sets in ((loss.ways != "labels", across), (loss.ways != "samples", down)):
        terms = [term for term in (one_set(loss, scores, targets, s) for s in sets) if term]
        for inner, slopes in terms if used else ():
            value += (mp.log1p(mp.exp(-abs(inner))) + max(inner, 0)) / len(terms)
            push = 1 / (1 + mp.exp(-inner)) / len(terms)
            for place, slope in slopes.items():
                gradient[place] = gradient.get(place, mp.mpf(0)) + push * slope
    dense = torch.zeros_like(scores, dtype=torch.float64)
    for place, slope in gradient.items():
        dense[place] = float(slope)
    return float(value), dense


def one_set(loss, scores, targets, places):
    t_pos, t_neg = mp.mpf(loss.temperature_pos), mp.mpf(loss.temperature_neg)
    known = [place for place in places if targets[place] >= 0]
    weak = {k: targets[k].item() * mp.exp(-scores[k].item() / t_pos) for k in known}
    hard = {k: (1 - targets[k].item()) * mp.exp(scores[k].item() / t_neg) for k in known}
    total_weak, total_hard = mp.fsum(weak.values()), mp.fsum(hard.values())
    if total_weak == 0 or total_hard == 0:
        return None
    inner = t_neg * mp.log(total_hard) + t_pos * mp.log(total_weak) + mp.mpf(loss.margin)
    return inner, {k: hard[k] / total_hard - weak[k] / total_weak for k in known}


def run(loss, scores, targets):
    scores = scores.clone().requires_grad_()
    value = loss(scores, targets)
    value.backward()
    return value.item(), scores.grad


@each_setting
@pytest.mark.parametrize("size", [0.01, 2.0, 30.0, 300.0, 1e4])
@pytest.mark.parametrize("pure_torch", [False, True], ids=["kernel", "torch"])
def test_value_and_gradient_are_those_computed_by_hand(loss, size, pure_torch):
    scores, targets = batch(size)
    expected, slopes = by_hand(loss, scores, targets)
    for dtype, digits in ((torch.float64, 1e-12), (torch.float32, 1e-6)):
        if pure_torch:
            with PATHS["torch"]():
                value, grad = run(loss, scores.to(dtype), targets.to(dtype))
        else:
            value, grad = run(loss, scores.to(dtype), targets.to(dtype))
        assert value == pytest.approx(expected, rel=digits)
        error = (grad.double() - slopes).abs().max() / slopes.abs().max()
        assert error.item() <= digits


@each_setting
@pytest.mark.parametrize("shape", [(40, 700), (300, 33)])
def test_kernel_and_torch_form_agree_with_the_formula_on_larger_batches(loss, shape):
    scores, targets = batch(3.0, torch.float32, *shape)
    exact = scores.double().requires_grad_()
    loss.plain_mean(exact, targets.double()).backward()
    _, kernel = run(loss, scores, targets)
    with PATHS["torch"]():
        _, closed = run(loss, scores, targets)
    for grad in (kernel, closed):
        assert (grad - exact.grad).abs().max() <= 1e-6 * exact.grad.abs().max()


@each_setting
def test_shifting_all_scores_changes_nothing(loss):
    scores, targets = batch()
    value, grad = run(loss, scores, targets)
    shifted, shifted_grad = run(loss, scores + 7, targets)
    assert shifted == pytest.approx(value, rel=1e-12)
    torch.testing.assert_close(shifted_grad, grad, rtol=1e-10, atol=1e-14)


def test_a_margin_adds_inside_the_softplus():
    scores, targets = torch.tensor([[1.0, 0.5, -1.0]]), torch.tensor([[1.0, 0.0, 0.0]])
    inner = math.log(math.exp(0.5) + math.exp(-1.0)) - 1.0
    for margin in (-2.0, 0.0, 1.5):
        value = TwoWay(margin=margin, ways="samples")(scores, targets).item()
        assert value == pytest.approx(math.log1p(math.exp(inner + margin)), rel=1e-6)


@each_setting
@pytest.mark.parametrize("fill", [0.0, 1.0, -1.0])
@pytest.mark.parametrize("size", [1.0, 1e4])
def test_sets_without_positives_or_negatives_drop_out(loss, fill, size):
    scores, targets = batch(size, torch.float32)
    value, grad = run(loss, scores, torch.full_like(targets, fill))
    assert value == 0
    assert grad.abs().max() == 0


def test_dropped_rows_do_not_dilute_the_mean():
    scores, targets = batch(dtype=torch.float32)
    loss = TwoWay(ways="samples")
    kept = torch.tensor([3, 4, 5, 6])
    assert loss(scores, targets).item() == pytest.approx(loss(scores[kept], targets[kept]).item())


def test_a_gap_of_scores_beyond_a_hundred_does_not_leak():
    scores = torch.tensor([[-300.0, 0.0, 5.0]])
    targets = torch.tensor([[0.0, 1.0, 1.0]])
    value, grad = run(TwoWay(ways="samples", temperature_pos=1.0), scores, targets)
    assert value == pytest.approx(0, abs=1e-12)
    assert torch.isfinite(grad).all()


@each_setting
def test_mean_of_values_over_known_rows_is_the_loss(loss):
    scores, targets = batch()
    known = (targets >= 0).any(1).sum()
    total = loss.values(scores, targets).sum() / known
    assert total.item() == pytest.approx(loss(scores, targets).item(), rel=1e-12)


@pytest.mark.parametrize("pure_torch", [False, True])
def test_nan_stays_in_its_row_and_column(pure_torch):
    scores, targets = batch(dtype=torch.float32)
    targets[5] = torch.tensor([1.0, 0, 0, 1, 0, 0])
    scores[5, 3] = torch.nan
    rows = torch.arange(7) != 5
    for ways, clean in (
        ("samples", rows[:, None]),
        ("both", rows[:, None] & (torch.arange(6) != 3)),
    ):
        if pure_torch:
            with PATHS["torch"]():
                value, grad = run(TwoWay(ways=ways), scores, targets)
        else:
            value, grad = run(TwoWay(ways=ways), scores, targets)
        assert math.isnan(value)
        assert torch.isnan(grad[5, 3])
        assert torch.isfinite(grad[clean.expand(7, 6)]).all()


@pytest.mark.parametrize("pure_torch", [False, True])
def test_an_unknown_score_may_be_anything(pure_torch):
    scores, targets = batch(dtype=torch.float32)
    expected, slopes = run(TwoWay(), scores, targets)
    for odd in (torch.nan, 3e38, torch.inf):
        strange = torch.where(targets < 0, odd, scores)
        if pure_torch:
            with PATHS["torch"]():
                value, grad = run(TwoWay(), strange, targets)
        else:
            value, grad = run(TwoWay(), strange, targets)
        assert value == pytest.approx(expected, rel=1e-6)
        torch.testing.assert_close(grad, slopes)


def test_targets_may_carry_a_gradient_of_their_own():
    """As those of a teacher do: then the formula is differentiated, in targets and scores."""
    scores, targets = batch()
    targets = torch.where(targets >= 0, 0.1 + 0.8 * targets, targets)  # soft, or unknown
    value, grad = run(TwoWay(), scores, targets)
    teacher = targets.clone().requires_grad_()
    again, again_grad = run(TwoWay(), scores, teacher)
    assert again == pytest.approx(value, rel=1e-12)
    torch.testing.assert_close(again_grad, grad)
    for i, j in (targets >= 0).nonzero()[:4].tolist():
        step = torch.zeros_like(targets)
        step[i, j] = 1e-6
        rise = TwoWay()(scores, targets + step) - TwoWay()(scores, targets - step)
        assert teacher.grad[i, j].item() == pytest.approx(rise.item() / 2e-6, rel=1e-5, abs=1e-8)


def test_sparse_and_dense_targets_take_the_same_formula():
    """More positives than a block of the kernel holds, and blocks that hold none."""
    generator = torch.Generator().manual_seed(0)
    scores = torch.randn(3, 400, generator=generator)
    for rate in (0.002, 0.5, 0.98):
        targets = (torch.rand(3, 400, generator=generator) < rate).float()
        value, grad = run(TwoWay(), scores, targets)
        exact = scores.double().requires_grad_()
        expected = TwoWay().plain_mean(exact, targets.double())
        expected.backward()
        assert value == pytest.approx(expected.item(), rel=1e-6)
        assert (grad - exact.grad).abs().max() <= 1e-6 * exact.grad.abs().max()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"temperature_pos": 0.0}, "`temperature_pos` must be a finite number above 0"),
        ({"temperature_neg": -1.0}, "`temperature_neg` must be a finite number above 0"),
        ({"margin": math.inf}, "`margin` must be a finite number"),
        ({"ways": "rows"}, "`ways` must be one of"),
    ],
)
def test_arguments_out_of_range_are_refused(arguments, message):
    with pytest.raises(cr.InputError, match=message):
        TwoWay(**arguments)


# As a term beside another loss ---------------------------------------------------------------

INNER = [cl.BCE(), cl.SPA(), cl.Focal(), cl.Quasibinary(), cl.AverageK(2.0), cl.Asymmetric()]


@pytest.mark.parametrize("inner", INNER, ids=str)
@pytest.mark.parametrize("weight", [0.0, 0.1, 3.0])
def test_the_term_adds_the_two_way_loss_of_the_scores_ranked_by(inner, weight):
    scores = torch.randn(6, 5 * inner.scores_per_label, dtype=torch.float64).requires_grad_()
    targets = torch.eye(5, dtype=torch.float64)[torch.tensor([0, 3, 1, 4, 1, 2])]
    loss = cl.TwoWayTerm(inner, weight=weight, temperature_pos=2.0)
    value = loss(scores, targets)
    (found,) = torch.autograd.grad(value, scores)
    term = cl.TwoWay(temperature_pos=2.0)(inner.ranking_scores(scores), targets)
    expected = inner(scores, targets) + weight / 5 * term
    (gradient,) = torch.autograd.grad(expected, scores)
    torch.testing.assert_close(value, expected)
    torch.testing.assert_close(found, gradient)
    assert loss.properness == (inner.properness if weight == 0 else "none")


@pytest.mark.parametrize("inner", INNER[:2], ids=str)
def test_the_values_of_the_term_average_to_the_loss(inner):
    scores = torch.randn(7, 5, dtype=torch.float64)
    targets = (torch.rand(7, 5) < 0.5).double()
    loss, rows = cl.TwoWayTerm(inner), torch.arange(7)
    assert loss.values(scores, targets).shape == rows.shape
    torch.testing.assert_close(loss.values(scores, targets).mean(), loss(scores, targets))


def test_the_term_by_name():
    loss = cl.from_name("spa+twl(weight=0.3)")
    assert isinstance(loss, cl.TwoWayTerm)
    assert (loss.name, loss.weight, str(loss.loss)) == ("spa+twl", 0.3, str(cl.SPA()))
    scores = torch.randn(3, 4)
    torch.testing.assert_close(loss.log_odds(scores), cl.SPA().log_odds(scores))
    with pytest.raises(cr.InputError, match="no argument 'wieght'"):
        cl.from_name("spa+twl(wieght=0.3)")


@pytest.mark.parametrize("ways", ["labels", "both"])
def test_with_the_rest_of_a_large_batch_in_memory_columns_are_those_of_the_large_batch(ways):
    scores, targets = batch()
    small = scores[4:].clone().requires_grad_()
    large = scores.clone().requires_grad_()
    loss = TwoWay(ways=ways, memory=4)
    for old in (slice(5, 7), slice(0, 1), slice(1, 4)):  # six rows: the oldest two are forgotten
        loss(scores[old], targets[old])
    found = loss(small, targets[4:])
    expected = TwoWay(ways="labels")(large, targets)
    if ways == "both":
        expected = expected + TwoWay(ways="samples")(large[4:], targets[4:])
    torch.testing.assert_close(found, expected)
    found.backward()
    expected.backward()
    torch.testing.assert_close(small.grad, large.grad[4:])
    alone = TwoWay(ways=ways)(small, targets[4:])
    torch.testing.assert_close(loss.eval()(small, targets[4:]), alone)
    assert not loss.state_dict()
    with pytest.raises(cr.InputError, match="`memory` needs"):
        loss.train()(small, targets[4:], torch.ones(3))
