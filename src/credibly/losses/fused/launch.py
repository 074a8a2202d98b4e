"""Call numba kernels on CPU tensors."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import torch

from credibly.losses.fused.form import ValueAndGradient
from credibly.types import Scores, Targets

_ZEROS = {torch.float32: np.float32(0), torch.float64: np.float64(0)}


def run_flat(
    kernel: Callable[..., float],
    scores: Scores,
    targets: Targets,
    needs_grad: bool,
    *arguments: Any,
) -> ValueAndGradient:
    """Run ``kernel(pointers, shape, zero, needs_grad, *arguments)`` on flat arrays."""
    return _run(kernel, scores, targets, needs_grad, arguments, scores.numel())


def run_rows(
    kernel: Callable[..., float],
    scores: Scores,
    targets: Targets,
    needs_grad: bool,
    *arguments: Any,
) -> ValueAndGradient:
    """Run the same on matrices: leading dimensions are flattened into rows."""
    rows = math.prod(scores.shape[:-1])
    return _run(kernel, scores, targets, needs_grad, arguments, (rows, scores.shape[-1]))


def _run(
    kernel: Callable[..., float],
    scores: Scores,
    targets: Targets,
    needs_grad: bool,
    arguments: tuple[Any, ...],
    shape: int | tuple[int, int],
) -> ValueAndGradient:
    scores, targets = scores.contiguous(), targets.contiguous()
    gradient = torch.empty_like(scores) if needs_grad else None
    out = scores if gradient is None else gradient
    pointers = scores.data_ptr(), targets.data_ptr(), out.data_ptr()
    value = kernel(pointers, shape, _ZEROS[scores.dtype], needs_grad, *arguments)
    return torch.scalar_tensor(value, dtype=scores.dtype), gradient
