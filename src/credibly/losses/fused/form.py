"""A loss in two forms: its formula, and a compiled loop on the CPU that also gives the gradient.

``run_loop`` calls a compiled loop on CPU tensors.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any, TypeAlias

import numpy as np
import torch
from numba import njit, types
from numba.core import cgutils
from numba.extending import intrinsic
from numba.np.numpy_support import carray
from torch import Tensor

from credibly import checks
from credibly.types import Scores
from credibly.vectormath import INNER, THIN

ValueAndGradient: TypeAlias = tuple[Tensor, Tensor | None]
"""A scalar, and a new tensor like the scores, or None where no gradient is needed."""


class FusedForm(ABC):
    """A scalar loss in two equal forms. Calling it selects the form.

    ``on_cpu`` is a compiled loop for CPU tensors. ``plain`` is the formula, differentiable any
    number of times. It is used on other devices, for gradients of targets, in ``torch.compile`` and
    ``torch.func``, and on the meta device.
    """

    @abstractmethod
    def on_cpu(self, scores: Tensor, targets: Tensor, needs_grad: bool) -> ValueAndGradient:
        """Return value and gradient by a loop. Targets may use any coding of unknown."""

    @abstractmethod
    def plain(self, scores: Tensor, targets: Tensor) -> Tensor:
        """Return the value by the formula. Targets may use any coding of unknown."""

    def __call__(self, scores: Scores, targets: Tensor) -> Tensor:
        """Return the loss. Its gradient is stored for ``backward``."""
        if targets.requires_grad or not takes_loops(scores) or not checks.can_read_values(scores):
            return self.plain(scores, targets)
        if scores.requires_grad and torch.is_grad_enabled():
            return _apply(scores, targets, self)
        return self.value_and_gradient(scores.detach(), targets, False)[0]

    def value_and_gradient(
        self, scores: Tensor, targets: Tensor, needs_grad: bool
    ) -> ValueAndGradient:
        """Return value and gradient by the form for the device of ``scores``."""
        if not takes_loops(scores):
            return by_autograd(self.plain, scores, targets, needs_grad)
        if not targets.is_cpu:  # a loop would read invalid memory
            raise checks.InputError(
                f"`targets` must be on the device of the scores, cpu; got {targets.device}. "
                "Move them with `targets.to(scores.device)`."
            )
        return self.on_cpu(scores, targets, needs_grad)


def by_autograd(
    formula: Callable[[Tensor, Tensor], Tensor], scores: Tensor, targets: Tensor, needs_grad: bool
) -> ValueAndGradient:
    """Return value and gradient of a formula."""
    with torch.set_grad_enabled(needs_grad):
        inner = scores.detach().requires_grad_(needs_grad)
        value = formula(inner, targets)
        gradient = torch.autograd.grad(value, inner)[0] if needs_grad else None
    return value.detach(), gradient


class _Fused(torch.autograd.Function):
    """Backward in three ways: stored gradient, recomputed (retained graph), double backward."""

    @staticmethod
    def forward(ctx: Any, scores: Tensor, targets: Tensor, form: FusedForm) -> Tensor:
        value, ctx.gradient = form.value_and_gradient(scores, targets, True)
        ctx.save_for_backward(scores, targets)
        ctx.form = form
        return value

    @staticmethod
    def backward(ctx: Any, *outer: Tensor) -> tuple[Tensor | None, None, None]:
        if torch.is_grad_enabled():  # create_graph=True
            scores, targets = ctx.saved_tensors
            value = ctx.form.plain(scores, targets)
            (gradient,) = torch.autograd.grad(value, scores, create_graph=True)
            return gradient * outer[0], None, None
        gradient, ctx.gradient = ctx.gradient, None
        if gradient is None:  # used by an earlier backward
            scores, targets = ctx.saved_tensors
            gradient = ctx.form.value_and_gradient(scores.detach(), targets, True)[1]
        # Reading the factor would stall a GPU. On the CPU, it saves a pass over the gradient.
        if not (outer[0].is_cpu and outer[0].item() == 1.0):
            gradient.mul_(outer[0])
        return gradient, None, None


# `Function.apply` without its check for functorch, which `can_read_values` has excluded. The check
# takes a tenth of the step of a small batch.
_apply: Any = super(torch.autograd.Function, _Fused).apply  # pyright: ignore

ZEROS = {torch.float32: np.float32(0), torch.float64: np.float64(0)}
"""A number of each dtype that loops take."""


def takes_loops(scores: Tensor) -> bool:
    """Return whether compiled loops run on tensors like ``scores``."""
    return scores.is_cpu and scores.dtype in ZEROS


def rows_and_labels(scores: Tensor) -> tuple[int, int]:
    """Return the shape of ``scores`` with all leading dimensions as rows."""
    return math.prod(scores.shape[:-1]), scores.shape[-1]


def run_loop(
    loop: Callable[..., float],
    shape: int | tuple[int, int],
    scores: Scores,
    targets: Tensor,
    needs_grad: bool,
    *arguments: object,
    space: int = 0,
) -> ValueAndGradient:
    """Run ``loop(pointers, shape, zero, needs_grad, *arguments)`` on arrays of this shape.

    ``pointers`` are the addresses of scores, targets, gradient, and of work space for ``space``
    float64 numbers.
    """
    scores, targets = scores.contiguous(), targets.contiguous()
    gradient = torch.empty_like(scores) if needs_grad else None
    out = scores if gradient is None else gradient
    pointers = scores.data_ptr(), targets.data_ptr(), out.data_ptr()
    if 0 in pointers and scores.numel():
        raise checks.InputError(
            "`scores` and `targets` must hold values; got a tensor without memory, such as a fake "
            "one. Pass both as real tensors, or both as fake ones in their mode."
        )
    work = torch.empty(space, dtype=torch.float64)
    addresses = *pointers, work.data_ptr()
    value = loop(addresses, shape, ZEROS[scores.dtype], needs_grad, *arguments)
    return torch.scalar_tensor(value, dtype=scores.dtype), gradient


# Access to tensors -------------------------------------------------------------------------------
#
# Loops access tensors by address. Converting three small tensors to numpy takes longer than the
# loss of a small batch, and views that own no memory need no reference counts when they are sliced.
# Sums use the precision of the scores inside a chunk, and float64 across chunks.

CHUNK = 512


def _to_pointer(_typing, address, zero):
    result = types.CPointer(zero)

    def generate(context, builder, _signature, arguments):
        return builder.inttoptr(arguments[0], context.get_value_type(result))

    return result(address, zero), generate


_pointer: Any = intrinsic(_to_pointer)


def _to_type(_typing, value, like):
    several = isinstance(value, types.BaseTuple)
    given = [*value] if several else [value]  # pyright: ignore
    result = types.UniTuple(like, len(given)) if several else like

    def generate(context, builder, _signature, arguments):
        parts = cgutils.unpack_tuple(builder, arguments[0]) if several else [arguments[0]]
        cast = [
            context.cast(builder, part, kind, like) for part, kind in zip(parts, given, strict=True)
        ]
        return context.make_tuple(builder, result, cast) if several else cast[0]

    return result(value, like), generate


as_type: Any = intrinsic(_to_type)
"""``as_type(value, like)``: a number, or each of a tuple, in the type of the number ``like``."""


@njit(**THIN)
def tensors_at(pointers, shape, zero):
    """Return arrays over the memory of scores, targets and gradient.

    The caller keeps the tensors alive. All three are contiguous, of one shape and one dtype.

    Args:
        pointers: addresses that begin with those of the three tensors.
        shape: their shape.
        zero: a number of their dtype.
    """
    return (
        carray(_pointer(pointers[0], zero), shape),
        carray(_pointer(pointers[1], zero), shape),
        carray(_pointer(pointers[2], zero), shape),
    )


@njit(**THIN)
def array_at(address, size, zero):
    """Return an array of the type of ``zero`` over memory that the caller keeps alive."""
    return carray(_pointer(address, zero), size)


@njit(**INNER)
def all_hard(targets):
    """Return whether every target is exactly 0 or 1: none soft, none unknown."""
    off = targets.dtype.type(0)
    one = targets.dtype.type(1)
    for i in range(targets.size):
        off += abs(targets[i] * (targets[i] - one))
    return off == 0
