"""Value and gradient of a loss in one pass, for autograd.

A loss with such a form gives three callables to ``fused``:

``cpu(scores, targets, wants_gradient)`` and ``anywhere(scores, targets, wants_gradient)``
    return ``(value, gradient)``: a scalar tensor and a tensor like ``scores`` (``None`` when not
    wanted) that nobody else holds. The first runs on CPU tensors (numba), the second is pure torch
    and runs everywhere.
``plain(scores, targets)``
    the formula itself, differentiable by autograd as often as one likes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, TypeAlias

import torch
from torch import Tensor

from credibly.types import Scores, Targets

Form: TypeAlias = Callable[[Tensor, Tensor, bool], tuple[Tensor, Tensor | None]]
Formula: TypeAlias = Callable[[Tensor, Tensor], Tensor]

_torch_everywhere = False


@contextmanager
def force_torch() -> Iterator[None]:
    """Inside, CPU tensors take the pure-torch forms too: what a GPU runs, to test and to time.

    Example:
        >>> from credibly.losses.spa import SPA
        >>> scores, targets = torch.zeros(1, 2), torch.tensor([[1.0, 0.0]])
        >>> with force_torch():
        ...     SPA()(scores, targets)
        tensor(0.3514)
    """
    global _torch_everywhere
    before, _torch_everywhere = _torch_everywhere, True
    try:
        yield
    finally:
        _torch_everywhere = before


def fused(scores: Scores, targets: Targets, *, cpu: Form, anywhere: Form, plain: Formula) -> Tensor:
    """A scalar loss whose gradient is computed with its value and handed over in ``backward``."""
    if torch.compiler.is_compiling():
        return plain(scores, targets)
    form = cpu if scores.is_cpu and not _torch_everywhere else anywhere
    if scores.requires_grad and torch.is_grad_enabled():
        return _Fused.apply(scores, targets, form, plain)  # pyright: ignore[reportReturnType]
    return form(scores.detach(), targets, False)[0]


class _Fused(torch.autograd.Function):
    """Three ways back: hand over, recompute (retained graph), differentiate (double backward)."""

    @staticmethod
    def forward(ctx: Any, scores: Tensor, targets: Tensor, form: Form, plain: Formula) -> Tensor:
        value, ctx.gradient = form(scores.detach(), targets, True)
        ctx.save_for_backward(scores, targets)
        ctx.form, ctx.plain = form, plain
        return value

    @staticmethod
    def backward(ctx: Any, *outer: Tensor) -> tuple[Tensor | None, None, None, None]:
        if torch.is_grad_enabled():  # create_graph=True
            scores, targets = ctx.saved_tensors
            (gradient,) = torch.autograd.grad(ctx.plain(scores, targets), scores, create_graph=True)
            return gradient * outer[0], None, None, None
        gradient, ctx.gradient = ctx.gradient, None
        if gradient is None:  # handed over in an earlier backward
            scores, targets = ctx.saved_tensors
            gradient = ctx.form(scores.detach(), targets, True)[1]
        # Reading the factor would stall a GPU; on the CPU it saves a pass over the gradient.
        if not (outer[0].is_cpu and outer[0].item() == 1.0):
            gradient.mul_(outer[0])
        return gradient, None, None, None
