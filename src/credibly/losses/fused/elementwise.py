"""Closed forms of losses of single entries in pure torch, from those of the two partial losses."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TypeAlias

import torch
from torch import Tensor

from credibly.losses.fused.form import ValueAndGradient
from credibly.types import Scores, Targets

Side: TypeAlias = Callable[[Tensor, bool], tuple[Tensor, Tensor | None]]
"""Values and, where needed, slopes of one partial loss, as new tensors."""

IN_CACHE = 1 << 15
"""Entries worked on at once on the CPU, so that intermediate results stay in its cache."""

EXACT_FROM = 50.0
"""Where softplus(x) is x to the last digit of float64, and exp(x) still fits float32."""


def all_hard(targets: Targets) -> bool:
    """Return whether targets are seen to be all 0 or 1. Only the CPU looks: a GPU would wait."""
    if not targets.is_cpu:
        return False
    rest = torch.addcmul(targets, targets, targets, value=-1).view(-1)
    return torch.dot(rest, rest).item() == 0.0


def weights_of(targets: Targets) -> tuple[Tensor, Tensor, Tensor]:
    """Return weights of the positive and the negative side, and the number of known entries."""
    known = (targets >= 0).to(targets.dtype)
    present = targets * known
    return present, known - present, known.sum().clamp_(min=1)


def blend_sides(
    scores: Scores, targets: Targets, needs_grad: bool, positive: Side, negative: Side
) -> ValueAndGradient:
    """Return the mean over known entries and its gradient from closed forms of both sides.

    For a score of −∞ the negative side must be 0. Targets seen to be 0 or 1 spare the positive
    side for absent labels.
    """
    targets = targets.contiguous()
    if all_hard(targets):
        return _hard_sides(scores, targets, needs_grad, positive, negative)
    scores = torch.where(targets >= 0, scores, 0.0)
    present, absent, count = weights_of(targets)
    values, slopes = negative(scores, needs_grad)
    values_pos, slopes_pos = positive(scores, needs_grad)
    value = (values.mul_(absent).sum() + values_pos.mul_(present).sum()) / count
    if slopes is None or slopes_pos is None:
        return value, None
    return value, slopes.mul_(absent).addcmul_(slopes_pos, present).div_(count)


def _hard_sides(
    scores: Scores, targets: Targets, needs_grad: bool, positive: Side, negative: Side
) -> ValueAndGradient:
    count = max(scores.numel(), 1)
    marked = targets.view(-1).nonzero().squeeze(1)
    out = scores.clone(memory_format=torch.contiguous_format)
    flat = out.view(-1)
    values, slopes_pos = positive(flat.index_select(0, marked), needs_grad)
    total = values.sum().item()
    flat.index_fill_(0, marked, -torch.inf)
    for (chunk,) in chunks(flat):
        values, slopes = negative(chunk, needs_grad)
        total += values.sum().item()
        if slopes is not None:
            torch.mul(slopes, 1 / count, out=chunk)
    value = torch.scalar_tensor(total / count, dtype=scores.dtype)
    if slopes_pos is None:
        return value, None
    flat.index_copy_(0, marked, slopes_pos.mul_(1 / count))
    return value, out


def chunks(*flat: Tensor) -> Iterator[tuple[Tensor, ...]]:
    """Yield flat tensors of one size piece by piece, each piece small enough for the cache."""
    size = flat[0].numel()
    if size <= IN_CACHE:
        yield flat
        return
    for start in range(0, size, IN_CACHE):
        yield tuple(tensor[start : start + IN_CACHE] for tensor in flat)
