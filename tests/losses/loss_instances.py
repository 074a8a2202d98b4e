"""The list of instances that goes through every property of the losses."""

from __future__ import annotations

from contextlib import nullcontext

import pytest
import torch
from torch.nn.functional import softplus
from torch.overrides import TorchFunctionMode

from credibly import losses as cl


class Elsewhere(TorchFunctionMode):
    """Tensors seem to be on another device than the CPU, so losses compute their formulas."""

    def __torch_function__(self, func, types, args=(), kwargs=None):
        if func == torch.Tensor.is_cpu.__get__:
            return False
        return func(*args, **(kwargs or {}))


PATHS = {"kernels": nullcontext, "torch": Elsewhere}
"""How the same loss is computed: by compiled loops, or by the formulas in torch."""

LOSSES = [
    cl.BCE(),
    cl.BCE(pos_weight=3.0),
    cl.Focal(),
    cl.Focal(gamma_pos=0.0, gamma_neg=3.0),
    cl.Asymmetric(),
    cl.Asymmetric(gamma_pos=0.0),
    cl.Asymmetric(detach_weight=True),
    cl.SPA(),
    cl.SPA(scale_neg=10.0, slope_neg=2.0),
    cl.Composite(positive=lambda v: softplus(-2 * v), negative=lambda v: softplus(v + 1)),
    cl.AssumeNegative(),
    cl.Softmax(),
    cl.Softmax(zero_label="uniform"),
    cl.Softmax(zero_label="max_confidence"),
    cl.Softmax(zero_label="uniform", zero_weight=0.5),
    cl.Softmax(zero_label="none_class"),
    cl.AsymmetricSingleLabel(),
    cl.AsymmetricSingleLabel(gamma_pos=1.0, smoothing=0.0),
    cl.Quasibinary(),
    cl.Quasibinary(penalty="running"),
    cl.TwoWay(),
    cl.TwoWay(temperature_pos=1.0, margin=0.3, ways="samples"),
    cl.TwoWay(ways="labels"),
    cl.AverageK(2.0),
    cl.AverageK(1.5, alpha=0.3, head="sccp"),
    cl.AverageK(2.0, head="ml-softmax"),
    cl.ExpectedPositive(2.0),
    cl.OnlineEstimation(num_rows=6, num_labels=5, average_size=2.0),
    cl.BalancedTopK(2),
    cl.BalancedTopK(2, noise=0.0),
    cl.Warp(),
    cl.RobustMultiLabel(),
    cl.LabelPairs(cl.SPA()),
    cl.LabelPairs(cl.BCE(), weight=0.5),
    cl.LabelPairs(cl.Softmax()),
    cl.LabelPairs(cl.Focal(), on="published"),
    cl.Published(cl.AssumeNegative()),
    cl.Published(cl.Asymmetric()),
    cl.TwoWayTerm(cl.BCE()),
    cl.TwoWayTerm(cl.SPA(), weight=0.5, temperature_pos=2.0),
    cl.TwoWayTerm(cl.Softmax()),
]


def example(loss, dtype=torch.float32):
    """Six rows, five labels; a zero-label row and a soft one where the method allows them."""
    generator = torch.Generator().manual_seed(0)
    scores = 2 * torch.randn(6, 5 * loss.scores_per_label, generator=generator, dtype=torch.float64)
    targets = (torch.rand(6, 5, generator=generator) < 0.4).double()
    if loss.single_label:
        targets = torch.eye(5, dtype=torch.float64)[torch.tensor([0, 3, 1, 4, 1, 2])]
    else:
        targets[0] = 0
        targets[2] = torch.tensor([1.0, 0.0, 0.0, 1.0, 0.0])
    return scores.to(dtype), targets.to(dtype)


def call(loss, scores, targets):
    """``loss(scores, targets)``, with row numbers for the losses that keep an estimate per row."""
    return call_method(loss, loss, scores, targets)


def call_method(loss, method, scores, targets, **arguments):
    torch.manual_seed(0)  # some losses draw noise
    if loss.needs_indices:
        arguments["indices"] = torch.arange(len(scores))
    return method(scores, targets, **arguments)


def _over(chosen):
    return pytest.mark.parametrize("loss", chosen, ids=str, indirect=True)


each_loss = _over(LOSSES)
with_link = _over([loss for loss in LOSSES if loss.has_link])
without_link = _over([loss for loss in LOSSES if not loss.has_link])
each_labelwise = _over([loss for loss in LOSSES if isinstance(loss, cl.BinaryLoss)])
# Noise and estimates belong to places in the matrix: permuting it changes what they meet.
each_symmetric = _over(
    [
        loss
        for loss in LOSSES
        if not (loss.needs_indices or (isinstance(loss, cl.BalancedTopK) and loss.noise > 0))
    ]
)
each_smooth = _over([loss for loss in LOSSES if not loss.detached])
each_named = _over([loss for loss in LOSSES if loss.name in cl.names()])
