"""Properties of every loss. A new loss is tested by adding it to LOSSES."""

from __future__ import annotations

import copy
import math

import pytest
import torch
from loss_instances import (
    call,
    call_method,
    each_labelwise,
    each_loss,
    each_named,
    each_smooth,
    each_symmetric,
    example,
    with_link,
    without_link,
)
from torch.nn.functional import softplus

import credibly as cr
from credibly.losses import BCE, Composite


def gradient(loss, scores, targets):
    scores = scores.detach().clone().requires_grad_()
    value = call(loss, scores, targets)
    value.backward()
    return value.detach(), scores.grad


@each_loss
def test_value_and_gradient_are_finite_on_ordinary_targets(loss):
    value, grad = gradient(loss, *example(loss))
    assert value.ndim == 0
    assert torch.isfinite(value)
    assert torch.isfinite(grad).all()
    assert grad.abs().sum() > 0


@each_loss
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("size", [30.0, 1e3, 1e4])
def test_value_and_gradient_are_finite_at_extreme_scores(loss, size, dtype):
    scores, targets = example(loss, dtype=dtype)
    for extreme in (
        scores.sign() * size,
        torch.full_like(scores, size),
        torch.full_like(scores, -size),
    ):
        value, grad = gradient(loss, extreme, targets)
        assert torch.isfinite(value)
        assert torch.isfinite(grad).all()
        assert grad.dtype == dtype


@each_loss
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_precision_is_computed_in_single(loss, dtype):
    scores, targets = example(loss)
    scores = scores.to(dtype)
    value, grad = gradient(loss, scores, targets)
    single, single_grad = gradient(loss, scores.float(), targets)
    assert value.dtype == torch.float32
    assert grad.dtype == dtype
    assert value == pytest.approx(single.item(), rel=1e-6)
    torch.testing.assert_close(grad.float(), single_grad, rtol=1e-2, atol=1e-4)
    value, grad = gradient(loss, scores.sign() * 6e4, targets)
    assert torch.isfinite(value)
    assert torch.isfinite(grad).all()


HARD_CASES = {
    "a row of unknowns": lambda y: y.index_fill(0, torch.tensor([1]), -1),
    "a row of zeros": lambda y: y.index_fill(0, torch.tensor([1]), 0),
    "a batch of zeros": torch.zeros_like,
    "a batch of unknowns": lambda y: torch.full_like(y, -1),
    "a label without positives": lambda y: y.index_fill(1, torch.tensor([2]), 0),
}


@each_loss
@pytest.mark.parametrize("case", HARD_CASES)
def test_hard_cases_give_finite_loss_and_gradient(loss, case):
    scores, targets = example(loss)
    value, grad = gradient(loss, scores, HARD_CASES[case](targets))
    assert torch.isfinite(value)
    assert torch.isfinite(grad).all()


@each_loss
def test_an_empty_batch_gives_zero(loss):
    scores, targets = example(loss)
    value, grad = gradient(loss, scores[:0], targets[:0])
    assert torch.isfinite(value)
    assert grad.shape == scores[:0].shape


@each_loss
def test_an_unknown_entry_changes_nothing(loss):
    scores, targets = example(loss)
    targets[1] = -1  # a whole row, so that losses with one observed label can take part
    before, grad_before = gradient(copy.deepcopy(loss), scores, targets)
    scores[1] += 3.0
    after, grad_after = gradient(copy.deepcopy(loss), scores, targets)
    assert after == pytest.approx(before.item(), rel=1e-6)
    assert grad_after[1].abs().max() == 0
    torch.testing.assert_close(grad_before, grad_after)


@each_loss
def test_dtype_of_hard_targets_does_not_matter(loss):
    scores, targets = example(loss)
    targets = targets.round().clamp(min=0)
    expected, expected_grad = gradient(copy.deepcopy(loss), scores, targets)
    for dtype in (torch.bool, torch.uint8, torch.int64, torch.float16, torch.float64):
        value, grad = gradient(copy.deepcopy(loss), scores, targets.to(dtype))
        assert value == pytest.approx(expected.item(), rel=1e-6)
        torch.testing.assert_close(grad, expected_grad)


@each_loss
def test_class_indices_are_rows_with_one_label(loss):
    scores, targets = example(loss)
    indices = torch.arange(len(scores)) % targets.shape[1]
    rows = torch.nn.functional.one_hot(indices, targets.shape[1])
    expected, _ = gradient(copy.deepcopy(loss), scores, rows)
    value, _ = gradient(copy.deepcopy(loss), scores, indices)
    assert value == pytest.approx(expected.item(), rel=1e-6)


@each_symmetric
def test_permuting_rows_permutes_the_gradient(loss):
    scores, targets = example(loss)
    order = torch.tensor([3, 0, 5, 1, 4, 2])
    value, grad = gradient(copy.deepcopy(loss), scores, targets)
    permuted, permuted_grad = gradient(copy.deepcopy(loss), scores[order], targets[order])
    assert permuted == pytest.approx(value.item(), rel=1e-5)
    torch.testing.assert_close(permuted_grad, grad[order], rtol=1e-4, atol=1e-6)


@each_symmetric
def test_permuting_labels_permutes_the_gradient(loss):
    scores, targets = example(loss)
    labels = targets.shape[1]
    order = torch.randperm(labels, generator=torch.Generator().manual_seed(1))
    heads = torch.cat([order + head * labels for head in range(loss.scores_per_label)])
    value, grad = gradient(copy.deepcopy(loss), scores, targets)
    permuted, permuted_grad = gradient(copy.deepcopy(loss), scores[:, heads], targets[:, order])
    assert permuted == pytest.approx(value.item(), rel=1e-5)
    torch.testing.assert_close(permuted_grad, grad[:, heads], rtol=1e-4, atol=1e-6)


@each_loss
def test_non_contiguous_scores_give_the_same(loss):
    scores, targets = example(loss)
    expected, _ = gradient(copy.deepcopy(loss), scores, targets)
    value, _ = gradient(copy.deepcopy(loss), scores.T.contiguous().T, targets.T.contiguous().T)
    assert value == pytest.approx(expected.item(), rel=1e-6)


@each_smooth
def test_gradient_is_that_of_finite_differences(loss):
    scores, targets = example(loss, dtype=torch.float64)
    call(loss, scores, targets)  # a running state starts as a constant of its first batch
    _, grad = gradient(copy.deepcopy(loss), scores, targets)
    for i, j in ((0, 0), (2, 3), (5, 1), (3, 2)):
        above, below = scores.clone(), scores.clone()
        above[i, j] += 1e-6
        below[i, j] -= 1e-6
        slope = call(copy.deepcopy(loss), above, targets) - call(
            copy.deepcopy(loss), below, targets
        )
        assert grad[i, j].item() == pytest.approx(slope.item() / 2e-6, rel=1e-5, abs=1e-8)


@each_loss
def test_gradient_can_be_taken_twice_from_one_graph(loss):
    scores, targets = example(loss)
    scores.requires_grad_()
    value = call(loss, scores, targets)
    (first,) = torch.autograd.grad(value, scores, retain_graph=True)
    (second,) = torch.autograd.grad(3 * value, scores)
    torch.testing.assert_close(second, 3 * first)


@each_loss
def test_gradient_scales_with_what_comes_from_above(loss):
    scores, targets = example(loss)
    _, grad = gradient(copy.deepcopy(loss), scores, targets)
    scores.requires_grad_()
    (0.25 * call(loss, scores, targets)).backward()
    torch.testing.assert_close(scores.grad, 0.25 * grad)


@each_smooth
def test_second_derivatives_are_those_of_the_gradient(loss):
    scores, targets = example(loss, dtype=torch.float64)
    scores.requires_grad_()
    value = call(copy.deepcopy(loss), scores, targets)
    (first,) = torch.autograd.grad(value, scores, create_graph=True)
    direction = torch.linspace(-1, 1, scores.numel(), dtype=torch.float64).view_as(scores)
    second = torch.zeros_like(scores)  # of a piecewise linear loss
    if first.requires_grad:
        (second,) = torch.autograd.grad((first * direction).sum(), scores)
    _, above = gradient(copy.deepcopy(loss), scores + 1e-5 * direction, targets)
    _, below = gradient(copy.deepcopy(loss), scores - 1e-5 * direction, targets)
    torch.testing.assert_close(second, (above - below) / 2e-5, rtol=1e-5, atol=1e-7)


@each_loss
def test_values_have_rows_and_unknown_rows_are_zero(loss):
    scores, targets = example(loss)
    targets[1] = -1
    values = call_method(loss, loss.values, scores, targets)
    assert values.shape[0] == len(scores)
    assert torch.isfinite(values).all()
    assert (values[1] == 0).all()


@each_loss
def test_nan_in_one_row_never_crashes_and_is_not_hidden(loss):
    scores, targets = example(loss)
    scores[2, 1] = math.nan
    value, grad = gradient(loss, scores, targets)
    assert torch.isnan(value) or torch.isnan(grad).any()
    if isinstance(loss, cr.losses.BinaryLoss):
        clean = torch.arange(len(scores)) != 2
        assert torch.isfinite(grad[clean]).all()
        assert torch.isnan(grad[2, 1])


@each_loss
def test_state_survives_a_copy(loss):
    scores, targets = example(loss)
    trained = copy.deepcopy(loss)
    call(trained, scores, targets)
    fresh = copy.deepcopy(loss)
    fresh.load_state_dict(trained.state_dict())
    assert call(fresh.eval(), scores, targets) == pytest.approx(
        call(trained.eval(), scores, targets).item()
    )


@without_link
def test_without_a_link_probabilities_are_refused(loss):
    with pytest.raises(cr.InputError, match="has no link"):
        loss.probabilities(example(loss)[0])


@with_link
def test_probabilities_lie_between_zero_and_one_for_any_score(loss):
    scores, targets = example(loss)
    call(loss, scores, targets)  # some links need a batch to settle
    for size in (1.0, 50.0, 1e4):
        probabilities = loss.probabilities(scores * size)
        assert probabilities.shape == targets.shape
        assert ((probabilities >= 0) & (probabilities <= 1)).all()
        assert not torch.isnan(loss.log_odds(scores.half() * size)).any()


@with_link
def test_a_higher_score_never_has_a_lower_probability(loss):
    scores, targets = example(loss, dtype=torch.float64)
    call(loss, scores, targets)
    raised = scores.clone()
    raised[:, 1] += 0.5
    assert (loss.log_odds(raised)[:, 1] >= loss.log_odds(scores)[:, 1]).all()


@each_labelwise
def test_initial_scores_have_the_label_rates(loss):
    rates = torch.tensor([0.001, 0.02, 0.3, 0.6])
    start = loss.initial_scores(rates)
    probabilities = loss.probabilities(start.repeat(2, 1))[0]
    torch.testing.assert_close(probabilities, rates, rtol=1e-4, atol=1e-7)


@each_labelwise
@pytest.mark.parametrize("rate", [0.02, 0.3, 0.9])
def test_link_of_the_risk_minimiser_is_the_rate(loss, rate):
    stop = cr.losses.audit(loss)
    probe = (
        torch.linspace(-12, 12, 24_001, dtype=torch.float64)[:, None].repeat(1, 2).requires_grad_()
    )
    (slope,) = torch.autograd.grad(loss(probe, torch.full_like(probe, rate)), probe)
    crossing = int((slope[:, 0] > 0).nonzero()[0])
    assert loss.probabilities(probe.detach())[crossing, 0].item() == pytest.approx(rate, abs=1e-3)
    assert stop.worst < 1e-6


@with_link
def test_audit_agrees_with_what_the_loss_says(loss):
    assert cr.losses.audit(loss).properness == loss.properness


@each_named
def test_the_name_builds_the_same_kind(loss):
    built = cr.losses.from_name(loss.name, num_labels=5, num_rows=10, average_size=2)
    assert type(built) is type(loss)


def test_the_properties_can_fail():
    """A loss with a wrong sign, and one with a wrong link, do not pass."""
    with pytest.raises(cr.InputError, match="must not increase"):
        Composite(softplus, softplus)

    class Wrong(BCE):
        def log_odds(self, scores):
            return scores + 0.3

    assert cr.losses.audit(Wrong()).properness == "none"
