"""Losses are used as torch users expect: reduction, weights, transformations, unknown targets."""

from __future__ import annotations

import copy
import math

import pytest
import torch
from loss_instances import LOSSES, PATHS, call_method, each_labelwise, each_loss, example

import credibly as cr
from credibly import losses as cl

each_path = pytest.mark.parametrize("path", PATHS.values(), ids=PATHS)


def over(chosen):
    return pytest.mark.parametrize("loss", chosen, ids=str, indirect=True)


# A state that changes with each batch, and noise, have no meaning under a transformation.
each_pure = over([loss for loss in LOSSES if not loss.needs_indices])


def quiet(loss):
    """The loss in the mode in which it is a function of scores and targets only."""
    return loss.eval() if loss.has_state or vars(loss).get("noise", 0) else loss


def with_unknowns(loss):
    scores, targets = example(loss, torch.float64)
    if loss.single_label:
        targets[1] = -1
    else:
        targets[1, 1:4], targets[4, 0] = -1, -1
    return scores, targets


def value_and_grad(loss, scores, targets, **arguments):
    leaf = scores.detach().clone().requires_grad_()
    value = call_method(loss, copy.deepcopy(loss), leaf, targets, **arguments)
    value.sum().backward()
    return value.detach(), leaf.grad


# Reduction ---------------------------------------------------------------------------------------


@each_loss
def test_reductions_are_those_of_the_values(loss):
    scores, targets = with_unknowns(loss)
    values = call_method(loss, copy.deepcopy(loss).values, scores, targets)
    cases = {"none": values, "sum": values.sum()}
    if isinstance(loss, cl.BinaryLoss):
        cases["rows"] = values.sum() / (targets >= 0).any(-1).sum()
    for reduction, expected in cases.items():
        other = copy.deepcopy(loss)
        other.reduction = reduction
        found, gradient = value_and_grad(other, scores, targets)
        torch.testing.assert_close(found, expected.detach(), rtol=1e-6, atol=1e-9)
        assert torch.isfinite(gradient).all()


@each_loss
def test_an_unknown_reduction_is_refused(loss):
    with pytest.raises(
        cr.InputError, match="`reduction` must be one of 'mean', 'rows', 'sum', 'none'"
    ):
        cl.BCE(reduction="average")


def test_reduction_is_given_to_the_constructor_and_shown():
    assert cl.SPA(reduction="sum").reduction == "sum"
    assert "reduction='sum'" in repr(cl.TwoWay(reduction="sum"))
    assert cl.from_name("softmax(reduction='none')").reduction == "none"


# Weights -----------------------------------------------------------------------------------------


@each_pure
@pytest.mark.parametrize("shape", [(6,), (6, 1)])
def test_weights_of_one_change_nothing(loss, shape):
    scores, targets = with_unknowns(loss)
    plain = value_and_grad(loss, scores, targets)
    weighted = value_and_grad(loss, scores, targets, weight=torch.ones(shape))
    torch.testing.assert_close(weighted, plain, rtol=1e-6, atol=1e-9)


ROWS_ALONE = [
    loss
    for loss in LOSSES
    if isinstance(loss, cl.BinaryLoss | cl.RowLoss) and not vars(loss).get("noise", 0)
]


@over(ROWS_ALONE)
def test_a_weight_of_two_is_the_row_given_twice(loss):
    scores, targets = with_unknowns(loss)
    loss.reduction = "sum"
    weight = torch.tensor([1.0, 1, 2, 1, 0, 1])
    rows = torch.tensor([0, 1, 2, 2, 3, 5])
    twice, _ = value_and_grad(loss, scores[rows], targets[rows])
    weighted, gradient = value_and_grad(loss, scores, targets, weight=weight)
    torch.testing.assert_close(weighted, twice)
    assert gradient[4].abs().max() == 0


@pytest.mark.parametrize("penalty", ["batch", "running"])
def test_a_weight_of_two_is_the_row_given_twice_in_the_normalizer(penalty):
    loss = cl.Quasibinary(penalty=penalty, reduction="sum")
    check_weight_of_two(loss)


def test_a_weight_of_two_is_the_row_given_twice_down_the_columns():
    check_weight_of_two(cl.TwoWay(ways="labels"))


def check_weight_of_two(loss):
    scores, targets = with_unknowns(loss)
    weight = torch.tensor([1.0, 1, 2, 1, 0, 1])
    rows = torch.tensor([0, 1, 2, 2, 3, 5])
    twice, twice_grad = value_and_grad(loss, scores[rows], targets[rows])
    weighted, gradient = value_and_grad(loss, scores, targets, weight=weight)
    torch.testing.assert_close(weighted, twice)
    torch.testing.assert_close(gradient[2], twice_grad[2] + twice_grad[3])


@each_labelwise
def test_weights_of_entries_and_labels_multiply_the_values(loss):
    scores, targets = with_unknowns(loss)
    entry = torch.rand(6, 5, dtype=torch.float64)
    label = torch.rand(5, dtype=torch.float64)
    plain = loss.values(scores, targets)
    known = (targets >= 0).sum()
    loss.reduction, known = "mean", (targets >= 0).sum()
    mean = loss(scores, targets, weight=entry)
    torch.testing.assert_close(mean, (plain * entry).sum() / known)
    loss.label_weight = label
    torch.testing.assert_close(loss(scores, targets), (plain * label).sum() / known)
    assert loss.probabilities(scores).isfinite().all()


@each_labelwise
def test_weights_leave_the_minimiser_where_it_is(loss):
    grid = torch.linspace(-6, 6, 4001, dtype=torch.float64)[:, None].repeat(1, 2)
    rate = torch.full_like(grid, 0.3)
    plain = loss.values(grid, rate)[:, 0]
    loss.label_weight = torch.tensor([0.2, 5.0], dtype=torch.float64)
    assert loss.values(grid, rate)[:, 0].argmin() == plain.argmin()


def test_the_mean_divides_as_torch_does():
    scores, targets = torch.randn(6, 5), (torch.rand(6, 5) < 0.4).float()
    entry, label, positive = torch.rand(6, 5), torch.rand(5), torch.rand(5) + 0.5
    functional = torch.nn.functional.binary_cross_entropy_with_logits
    for reduction in ("mean", "sum", "none"):
        ours = cl.BCE(reduction=reduction)(scores, targets, weight=entry)
        torch.testing.assert_close(ours, functional(scores, targets, entry, reduction=reduction))
        ours = cl.BCE(pos_weight=positive, label_weight=label, reduction=reduction)
        theirs = torch.nn.BCEWithLogitsLoss(label, pos_weight=positive, reduction=reduction)
        torch.testing.assert_close(ours(scores, targets), theirs(scores, targets))


def test_pos_weight_shifts_the_link():
    loss = cl.BCE(pos_weight=torch.tensor([4.0, 0.5]))
    rates = torch.tensor([0.1, 0.7])
    torch.testing.assert_close(loss.probabilities(loss.initial_scores(rates)), rates)
    torch.testing.assert_close(
        loss.derived_log_odds(torch.ones(1, 2)), loss.log_odds(torch.ones(1, 2))
    )
    assert cl.audit(cl.BCE(pos_weight=4.0)).properness == "strict"


BAD_WEIGHTS = [
    (cl.BCE(), torch.tensor([1.0, -1.0, 1.0]), "must not hold negative numbers or NaN; got -1"),
    (cl.BCE(), torch.tensor([1.0, math.nan, 1.0]), "must not hold negative numbers or NaN"),
    (cl.BCE(), torch.ones(4), r"one number per row, shape \(3,\), or per entry, \(3, 4\)"),
    (cl.Softmax(), torch.ones(3, 4), r"one number per row, shape \(3,\) or \(3, 1\)"),
    (cl.TwoWay(), torch.ones(3, 4), "one number per row"),
    (cl.LabelPairs(cl.SPA()), torch.ones(3, 4), "one number per row"),
    (cl.Quasibinary(), -torch.ones(3), "must not hold negative"),
]


@pytest.mark.parametrize(("loss", "weight", "says"), BAD_WEIGHTS, ids=range(len(BAD_WEIGHTS)))
def test_bad_weights_are_explained(loss, weight, says):
    with pytest.raises(cr.InputError, match=says):
        loss(torch.zeros(3, 4), torch.zeros(3, 4), weight=weight)


def test_bad_weights_of_labels_are_explained():
    with pytest.raises(cr.InputError, match="`label_weight` must not hold negative"):
        cl.SPA(label_weight=torch.tensor([1.0, -2.0]))
    with pytest.raises(cr.InputError, match=r"`label_weight` must have one number per label"):
        cl.SPA(label_weight=torch.ones(3))(torch.zeros(2, 4), torch.zeros(2, 4))
    with pytest.raises(cr.InputError, match="`pos_weight` must be a finite number above 0"):
        cl.BCE(pos_weight=0.0)


# Unknown targets ---------------------------------------------------------------------------------


@each_loss
@each_path
@pytest.mark.parametrize("code", [-100.0, math.nan, -7.0])
def test_every_code_of_unknown_is_the_same(loss, path, code):
    scores, targets = with_unknowns(loss)
    if loss.single_label:
        targets[3] = -1
    for dtype in (torch.float64, torch.float32):
        v, y = scores.to(dtype), targets.to(dtype)
        coded = torch.where(y < 0, torch.full_like(y, code), y)
        with path():
            expected = value_and_grad(loss, v, y)
            found = value_and_grad(loss, v, coded)
            values = call_method(loss, loss.values, v, coded)
        torch.testing.assert_close(found, expected, rtol=1e-6, atol=1e-7)
        assert torch.isfinite(found[1]).all()
        assert torch.isfinite(values).all()


@each_path
@over([loss for loss in LOSSES if not loss.single_label and not loss.needs_indices])
def test_the_score_of_an_unknown_label_changes_nothing(loss, path):
    scores, targets = with_unknowns(quiet(loss))
    moved = torch.where(targets < 0, scores + 3.0, scores)
    wild = torch.where(targets < 0, math.nan, scores)
    with path():
        value, gradient = value_and_grad(loss, scores, targets)
        for other in (moved, wild):
            found, grad = value_and_grad(loss, other, targets)
            torch.testing.assert_close(found, value)
            torch.testing.assert_close(grad, gradient)
    assert gradient[targets < 0].abs().max() == 0


@each_path
@pytest.mark.parametrize(
    "loss",
    [
        cl.AssumeNegative(),
        cl.LabelPairs(cl.SPA()),
        cl.LabelPairs(cl.BCE()),
        cl.LabelPairs(cl.Softmax()),
    ],
    ids=str,
)
def test_a_label_that_nobody_knows_changes_no_normalisation(loss, path):
    scores, targets = example(loss, torch.float64)
    wider_scores = torch.cat([scores, torch.randn(6, 1, dtype=torch.float64)], 1)
    wider_targets = torch.cat([targets, torch.full((6, 1), -1.0, dtype=torch.float64)], 1)
    with path():
        value, gradient = value_and_grad(loss, scores, targets)
        wider, wider_gradient = value_and_grad(loss, wider_scores, wider_targets)
    torch.testing.assert_close(wider, value)
    torch.testing.assert_close(wider_gradient[:, :5], gradient)


# Transformations ---------------------------------------------------------------------------------


# Ranking losses only ask whether a target is above one half.
@over(
    [
        loss
        for loss in LOSSES
        if not (loss.single_label or loss.needs_indices)
        and not isinstance(loss, cl.Warp | cl.RobustMultiLabel)
    ]
)
def test_gradients_reach_soft_targets(loss):
    loss = quiet(loss)
    scores, targets = example(loss, torch.float64)
    targets = (0.2 + 0.6 * targets).requires_grad_()
    (slope,) = torch.autograd.grad(loss(scores, targets), targets)
    step = 1e-6
    for i, j in ((1, 2), (4, 0)):
        above, below = targets.detach().clone(), targets.detach().clone()
        above[i, j] += step
        below[i, j] -= step
        expected = (loss(scores, above) - loss(scores, below)).item() / (2 * step)
        assert slope[i, j].item() == pytest.approx(expected, rel=1e-5, abs=1e-8)


@each_pure
def test_func_grad_is_the_gradient(loss):
    loss = quiet(loss)
    scores, targets = with_unknowns(loss)
    _, expected = value_and_grad(loss, scores, targets)
    found = torch.func.grad(lambda v: loss(v, targets))(scores)
    torch.testing.assert_close(found, expected)


@each_pure
def test_vmap_over_scores_and_targets_is_a_loop(loss):
    loss = quiet(loss)
    scores, targets = with_unknowns(loss)
    many = torch.stack([scores, scores.flip(0), 2 * scores])
    coded = torch.stack([targets, targets.flip(0), targets.roll(1, 0)])
    found = torch.func.vmap(loss)(many, coded)
    expected = torch.stack([loss(v, y) for v, y in zip(many, coded, strict=True)])
    torch.testing.assert_close(found, expected)
    each = torch.func.vmap(torch.func.grad(lambda v, y: loss(v, y)))(many, coded)
    for gradient, v, y in zip(each, many, coded, strict=True):
        torch.testing.assert_close(gradient, value_and_grad(loss, v, y)[1])


@each_pure
def test_compiled_in_one_graph_gives_the_same(loss):
    scores, targets = with_unknowns(loss)
    expected = value_and_grad(loss, scores, targets)
    torch._dynamo.reset()
    compiled = torch.compile(copy.deepcopy(loss), backend="eager", fullgraph=True)
    leaf = scores.clone().requires_grad_()
    torch.manual_seed(0)
    value = compiled(leaf, targets)
    value.backward()
    torch.testing.assert_close((value.detach(), leaf.grad), expected)


@each_pure
def test_shapes_on_the_meta_device(loss):
    scores, targets = example(loss)
    loss = loss.to("meta")
    value = loss(scores.to("meta").requires_grad_(), targets.to("meta"))
    assert value.is_meta
    assert value.shape == ()


@each_loss
@pytest.mark.parametrize("convert", ["half", "bfloat16"])
def test_state_keeps_its_precision(loss, convert):
    scores, targets = example(loss)
    call_method(loss, loss, scores, targets)
    before = {name: buffer.clone() for name, buffer in loss.named_buffers()}
    loss = getattr(loss, convert)()
    for name, buffer in loss.named_buffers():
        assert buffer.dtype == before[name].dtype
        assert torch.equal(buffer, before[name])
