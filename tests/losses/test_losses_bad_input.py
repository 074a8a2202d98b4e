"""Bad input is answered with what must hold, what came and what to do."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.nn.functional import softplus

from credibly import InputError
from credibly import losses as cl

ARGUMENTS = [
    (lambda: cl.SPA(scale_neg=0.0), "`scale_neg` must be a finite number above 0; got 0.0"),
    (lambda: cl.SPA(slope_pos=-1.0), "`slope_pos` must be a finite number above 0"),
    (lambda: cl.SPA(shift_neg=float("nan")), "`shift_neg` must be a finite number"),
    (lambda: cl.Asymmetric(margin=1.0), "`margin` must lie in"),
    (lambda: cl.Asymmetric(gamma_neg=-1.0), "`gamma_neg` must be"),
    (lambda: cl.TwoWay(temperature_pos=0.0), "`temperature_pos` must be"),
    (lambda: cl.TwoWay(ways="rows"), "`ways` must be one of"),
    (lambda: cl.Softmax(zero_label="none"), "`zero_label` must be one of"),
    (lambda: cl.Quasibinary(momentum=1.0), "`momentum` must lie in"),
    (lambda: cl.AverageK(0.5), "`average_size` must be at least 1"),
    (lambda: cl.LabelPairs(cl.TwoWay()), "must have a link"),
    (lambda: cl.LabelPairs(cl.BCE(), weight=-1.0), "`weight` must be"),
    (lambda: cl.from_name("fokal"), "Did you mean 'focal'"),
    (lambda: cl.from_name("spa(scale=3)"), "Did you mean 'scale_"),
    (lambda: cl.from_name("spa+lrp"), "only lpr or twl or published can stand"),
    (lambda: cl.from_name("spa(3)"), "arguments are written `key=value`"),
    (lambda: cl.from_name("avgk"), "needs average_size"),
    (lambda: cl.from_name("spa(scale_neg=big)"), "spa"),
    (lambda: cl.Composite(lambda v: -v, lambda v: -v), "decrease as scores grow"),
    (lambda: cl.Composite(lambda v: v.mean(), softplus), "same shape"),
    (lambda: cl.Composite(lambda v: torch.log(-v), softplus), "finite"),
    (lambda: cl.Composite(lambda v: torch.zeros_like(v), softplus), "differentiable"),
]


@pytest.mark.parametrize(("build", "says"), ARGUMENTS, ids=[says[:30] for _, says in ARGUMENTS])
def test_impossible_arguments_are_named(build, says):
    with pytest.raises(InputError, match=says.replace("(", r"\(").replace("+", r"\+")):
        build()


SCORES = torch.zeros(3, 4)
CALLS = [
    (cl.BCE(), SCORES, torch.zeros(3, 5), "must have the shape of the scores"),
    (cl.SPA(), SCORES, torch.zeros(3), "must have the shape of the scores"),
    (cl.SPA(), SCORES.long(), torch.zeros(3, 4), "must be floating point"),
    (cl.SPA(), SCORES, torch.tensor([0, 4, 1]), r"class indices must lie in \[0, 3\]"),
    (cl.SPA(), SCORES, torch.tensor([0, -2, 1]), "class indices must lie in"),
    (cl.TwoWay(), torch.zeros(4), torch.zeros(4), "shape"),
    (cl.Quasibinary(), torch.zeros(2, 3, 4), torch.zeros(2, 3, 4), "shape"),
    (cl.AverageK(2.0), torch.zeros(3, 5), torch.tensor([0, 1, 1]), "columns per label"),
    (cl.AverageK(9.0), torch.zeros(3, 8), torch.tensor([0, 1, 1]), "at most the number of labels"),
    (cl.LabelPairs(cl.SPA()), SCORES, torch.zeros(2, 4), "must have the shape of the scores"),
    # Kernels read memory by address, so what has none must never reach them.
    (cl.SPA(), SCORES, SCORES.to("meta"), "must be on the device of the scores, cpu; got meta"),
    (cl.TwoWay(), SCORES, SCORES.to("meta"), "must be on the device of the scores"),
    (cl.SPA(), SCORES, torch._efficientzerotensor((3, 4)), "must hold values"),
]


@pytest.mark.parametrize(("loss", "scores", "targets", "says"), CALLS, ids=range(len(CALLS)))
def test_wrong_shapes_and_dtypes_are_explained(loss, scores, targets, says):
    with pytest.raises(InputError, match=says):
        loss(scores, targets)


def test_arrays_that_are_not_tensors_are_explained():
    with pytest.raises(InputError, match="torch tensor"):
        cl.SPA()(np.zeros((2, 2)), torch.zeros(2, 2))


BAD_TARGETS = [
    (np.array([[1, -1], [-1, 1]]), "got only −1 and"),
    (np.array([[0.0, 1.5]]), "must be 0, 1"),
    (np.array([[0.0, -0.5]]), "must be 0, 1"),
    (np.array([["cat", "dog"]]), "numbers or booleans"),
    (np.array([0.5, 1.0]), "integer class indices"),
    (np.array([0, 7]), "class indices"),
    (np.array([0, -2]), "class indices"),
    (np.zeros((2, 2, 2)), "shape"),
    (np.zeros((2, 3)), "one column per label, 4"),
]


@pytest.mark.parametrize(("targets", "says"), BAD_TARGETS, ids=range(len(BAD_TARGETS)))
def test_targets_are_checked_when_asked(targets, says):
    with pytest.raises(InputError, match=says):
        cl.check_targets(
            targets, num_labels=4 if targets.ndim != 2 or targets.shape[1] == 3 else None
        )


@pytest.mark.parametrize(
    "targets",
    [
        torch.tensor([[1, 0, -1]]),
        torch.tensor([[True, False]]),
        torch.tensor([[0.25, 1.0]]),
        torch.tensor([0, 3, -1]),
        torch.full((2, 2), -1),
        torch.tensor([[float("nan"), 0.0, -100.0]]),
        torch.tensor([0, -100]),
        torch.zeros(0, 3),
        np.array([[1, 0]], dtype=np.uint8),
    ],
    ids=str,
)
def test_good_targets_pass(targets):
    cl.check_targets(targets)


@pytest.mark.parametrize("loss", [cl.SPA(), cl.TwoWay(), cl.LabelPairs(cl.SPA())], ids=str)
def test_fake_tensors_take_the_plain_formula(loss):
    with FakeTensorMode():
        scores = torch.zeros(3, 4, requires_grad=True)
        loss(scores, torch.ones(3, 4)).backward()
    assert scores.grad.shape == (3, 4)
