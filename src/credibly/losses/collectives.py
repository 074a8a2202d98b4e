"""Collectives over all processes of a torch.distributed job, with gradients.

Losses that couple rows need the union of all batches. Every such loss follows one convention: each
process returns the loss of the union, and the gradient of its own scores is that of the union times
the number of processes. `DistributedDataParallel` averages gradients over processes, so parameters
get exactly the gradient of the union, whatever the sizes of the batches.

Every process must take part in each call, forward and backward. Losses therefore communicate only
in training mode (``across``); after ``loss.eval()`` they are local. Without an initialised process
group, or with a group of one, everything here is the identity.
"""

from __future__ import annotations

from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor


def process_count() -> int:
    """Return the number of processes that share the batch: 1 without torch.distributed.

    Example:
        >>> process_count()
        1
    """
    if not (dist.is_available() and dist.is_initialized()):
        return 1
    return dist.get_world_size()


def process_rank() -> int:
    """Return the rank of this process; 0 without torch.distributed."""
    return dist.get_rank() if process_count() > 1 else 0


def all_reduce_sum(local: Tensor, across: bool = True) -> Tensor:
    """Return the sum of ``local`` over all processes. The gradient is summed over them too."""
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

    Entries of −inf are ignored. If all are −inf, the result is −inf with gradient 0, not NaN.

    Example:
        >>> logsumexp(torch.tensor([[0.0, 0.0], [-torch.inf, -torch.inf]]), 1)
        tensor([0.6931,   -inf])
    """
    nothing = torch.full_like(values.detach().sum(dim, keepdim=True), -torch.inf)
    largest = values.detach().amax(dim, keepdim=True) if values.numel() else nothing
    top = all_reduce_max(largest, across)
    empty = torch.isneginf(top)
    shift = torch.where(empty, 0.0, top)
    total = torch.exp(values - shift).sum(dim, keepdim=True)
    total = torch.where(empty, 1.0, all_reduce_sum(total, across))
    return torch.where(empty, -torch.inf, shift + torch.log(total)).squeeze(dim)


def all_gather(local: Tensor, across: bool = True) -> list[Tensor]:
    """Return ``local`` of every process in rank order, without gradient. Lengths may differ."""
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
