"""Collectives over all processes of a torch.distributed job, with gradients.

Losses that couple rows need the union of all batches. The convention, here and in every such loss:
each process returns the loss of the union, and the gradient that reaches its own scores is that of
the union times the number of processes. `DistributedDataParallel` averages gradients over
processes, so parameters get exactly the gradient of the union, whatever the sizes of the batches.

Every process must take part in each call, forward and backward; that is why losses reach across
processes in training mode only (``across``), and ``loss.eval()`` stays local. Without an
initialised process group, or with a group of one, everything here is the identity.
"""

from __future__ import annotations

from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor


def process_count() -> int:
    """Return how many processes share the batch: 1 unless torch.distributed is initialised.

    Example:
        >>> process_count()
        1
    """
    if not (dist.is_available() and dist.is_initialized()):
        return 1
    return dist.get_world_size()


def process_rank() -> int:
    """Return which of the processes this one is; 0 without torch.distributed."""
    return dist.get_rank() if process_count() > 1 else 0


def all_reduce_sum(local: Tensor, across: bool = True) -> Tensor:
    """The sum of ``local`` over all processes; the gradient is all_reduce_sum over them too."""
    if not across or process_count() == 1:
        return local
    return _Sum.apply(local)  # pyright: ignore[reportReturnType]


def all_reduce_max(local: Tensor, across: bool = True) -> Tensor:
    """Return the elementwise maximum of ``local`` over all processes, without gradient."""
    local = local.detach()
    if not across or process_count() == 1:
        return local
    result = local.clone()
    dist.all_reduce(result, op=dist.ReduceOp.MAX)
    return result


def logsumexp(values: Tensor, dim: int | tuple[int, ...], across: bool = True) -> Tensor:
    """Return the log of the sum of ``exp(values)`` along ``dim`` and over all processes.

    Entries at −inf take no part. Where nothing does, the result is −inf with gradient 0, not NaN.

    Example:
        >>> logsumexp(torch.tensor([[0.0, 0.0], [-torch.inf, -torch.inf]]), 1)
        tensor([0.6931,   -inf])
    """
    nothing = torch.full_like(values.detach().sum(dim), -torch.inf)
    top = all_reduce_max(values.detach().amax(dim) if values.numel() else nothing, across)
    empty = torch.isneginf(top)
    shift = torch.where(empty, 0.0, top)
    total = torch.exp(values - _restore_dims(shift, dim)).sum(dim)
    total = torch.where(empty, 1.0, all_reduce_sum(total, across))
    return torch.where(empty, -torch.inf, shift + torch.log(total))


def _restore_dims(reduced: Tensor, dim: int | tuple[int, ...]) -> Tensor:
    for each in sorted((dim,) if isinstance(dim, int) else dim):
        reduced = reduced.unsqueeze(each)
    return reduced


def all_gather(local: Tensor, across: bool = True) -> list[Tensor]:
    """Return ``local`` of every process in rank order, without gradient; lengths may differ."""
    local = local.detach().contiguous()
    if not across or process_count() == 1:
        return [local]
    size = torch.tensor([local.shape[0]], device=local.device)
    sizes = [torch.empty_like(size) for _ in range(process_count())]
    dist.all_gather(sizes, size)
    longest = max(int(each) for each in sizes)
    padded = local.new_zeros(longest, *local.shape[1:])
    padded[: local.shape[0]] = local
    parts = [torch.empty_like(padded) for _ in sizes]
    dist.all_gather(parts, padded)
    return [part[: int(each)] for part, each in zip(parts, sizes, strict=True)]


class _Sum(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, local: Tensor) -> Tensor:
        result = local.detach().clone()
        dist.all_reduce(result)
        return result

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Tensor:  # pyright: ignore[reportIncompatibleMethodOverride]
        return _Sum.apply(grad.contiguous())  # pyright: ignore[reportReturnType]
