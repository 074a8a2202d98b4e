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

import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, TypeAlias

import numpy as np
import torch
from torch import Tensor

from credibly.types import Scores, Targets

Form: TypeAlias = Callable[[Tensor, Tensor, bool], tuple[Tensor, Tensor | None]]
Side: TypeAlias = Callable[[Tensor, bool], tuple[Tensor, Tensor | None]]
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


# Bricks for the forms -------------------------------------------------------------------------


def run_flat(
    kernel: Callable[..., float], scores: Scores, targets: Targets, wanted: bool, *arguments: Any
) -> tuple[Tensor, Tensor | None]:
    """A CPU form from ``kernel(places, shape, zero, wanted, *arguments)`` on flat arrays."""
    return _run(kernel, scores, targets, wanted, arguments, scores.numel())


def run_rows(
    kernel: Callable[..., float], scores: Scores, targets: Targets, wanted: bool, *arguments: Any
) -> tuple[Tensor, Tensor | None]:
    """The same on matrices: leading dimensions are flattened into rows."""
    rows = math.prod(scores.shape[:-1])
    return _run(kernel, scores, targets, wanted, arguments, (rows, scores.shape[-1]))


def _run(
    kernel: Callable[..., float],
    scores: Scores,
    targets: Targets,
    wanted: bool,
    arguments: tuple[Any, ...],
    shape: int | tuple[int, int],
) -> tuple[Tensor, Tensor | None]:
    scores, targets = scores.contiguous(), targets.contiguous()
    gradient = torch.empty_like(scores) if wanted else None
    out = scores if gradient is None else gradient
    places = scores.data_ptr(), targets.data_ptr(), out.data_ptr()
    value = kernel(places, shape, _ZEROS[scores.dtype], wanted, *arguments)
    return torch.scalar_tensor(value, dtype=scores.dtype), gradient


_ZEROS = {torch.float32: np.float32(0), torch.float64: np.float64(0)}


def all_hard(targets: Targets) -> bool:
    """Whether targets are seen to be all 0 or 1. Only the CPU looks: a GPU would have to wait."""
    if not targets.is_cpu:
        return False
    rest = torch.addcmul(targets, targets, targets, value=-1).view(-1)
    return torch.dot(rest, rest).item() == 0.0


def weights_of(targets: Targets) -> tuple[Tensor, Tensor, Tensor]:
    """Weights of the positive and the negative side, and the number of known entries."""
    known = (targets >= 0).to(targets.dtype)
    present = targets * known
    return present, known - present, known.sum().clamp_(min=1)


def blend_sides(
    scores: Scores, targets: Targets, wanted: bool, positive: Side, negative: Side
) -> tuple[Tensor, Tensor | None]:
    """A torch form for a loss of independent labels, from closed forms of its two partial losses.

    Each side takes scores and whether slopes are wanted, and gives new tensors; for a score of −∞
    the negative side is 0. Targets seen to be 0 or 1 spare the positive side for absent labels.
    """
    targets = targets.contiguous()
    if all_hard(targets):
        return _hard_sides(scores, targets, wanted, positive, negative)
    scores = torch.where(targets >= 0, scores, 0.0)
    present, absent, count = weights_of(targets)
    values, slopes = negative(scores, wanted)
    values_pos, slopes_pos = positive(scores, wanted)
    value = (values.mul_(absent).sum() + values_pos.mul_(present).sum()) / count
    if slopes is None or slopes_pos is None:
        return value, None
    return value, slopes.mul_(absent).addcmul_(slopes_pos, present).div_(count)


def _hard_sides(
    scores: Scores, targets: Targets, wanted: bool, positive: Side, negative: Side
) -> tuple[Tensor, Tensor | None]:
    count = max(scores.numel(), 1)
    marked = targets.view(-1).nonzero().squeeze(1)
    out = scores.clone(memory_format=torch.contiguous_format)
    flat = out.view(-1)
    values, slopes_pos = positive(flat.index_select(0, marked), wanted)
    total = values.sum().item()
    flat.index_fill_(0, marked, -torch.inf)
    for (chunk,) in chunks(flat):
        values, slopes = negative(chunk, wanted)
        total += values.sum().item()
        if slopes is not None:
            torch.mul(slopes, 1 / count, out=chunk)
    value = torch.scalar_tensor(total / count, dtype=scores.dtype)
    if slopes_pos is None:
        return value, None
    flat.index_copy_(0, marked, slopes_pos.mul_(1 / count))
    return value, out


IN_CACHE = 1 << 15
"""Entries worked on at once on the CPU, so that what comes between stays in its cache."""


EXACT_FROM = 50.0
"""Where softplus(x) is x to the last digit of float64, and exp(x) still fits float32."""


def chunks(*flat: Tensor) -> Iterator[tuple[Tensor, ...]]:
    """Flat tensors of one size, a stretch of each at a time."""
    size = flat[0].numel()
    if size <= IN_CACHE:
        yield flat
        return
    for start in range(0, size, IN_CACHE):
        yield tuple(tensor[start : start + IN_CACHE] for tensor in flat)
