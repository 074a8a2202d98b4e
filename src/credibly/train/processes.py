"""One loss over the batches of all processes, and rows scored by all of them."""

from __future__ import annotations

import inspect
import sys
from typing import TYPE_CHECKING, Any

import torch
import torch.distributed as dist
from torch import Tensor, nn

from credibly.train.batches import stream

if TYPE_CHECKING:
    from accelerate import Accelerator

    from credibly.losses import Loss

SCORING_ROWS = 1024


class _Gather(torch.autograd.Function):
    """Concatenate rows over processes; backward hands each process the gradient of its own."""

    @staticmethod
    def forward(ctx: Any, rows: Tensor) -> Tensor:  # type: ignore[override]
        ctx.rank, ctx.rows = dist.get_rank(), len(rows)
        parts = _gather_rows(rows)
        ctx.start = sum(len(part) for part in parts[: ctx.rank])
        return torch.cat(parts)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Tensor:  # type: ignore[override]
        # DDP will average over processes; the whole loss is the same on each, so no sum is due.
        own = gradient[ctx.start : ctx.start + ctx.rows]
        return own * dist.get_world_size()


def _gather_rows(rows: Tensor) -> list[Tensor]:
    """The tensors of all processes, which may differ in length."""
    lengths = [torch.zeros((), dtype=torch.int64, device=rows.device) for _ in range(_size())]
    dist.all_gather(lengths, torch.tensor(len(rows), device=rows.device))
    longest = max(int(length) for length in lengths)
    padded = torch.zeros((longest, *rows.shape[1:]), dtype=rows.dtype, device=rows.device)
    padded[: len(rows)] = rows
    parts = [torch.empty_like(padded) for _ in range(_size())]
    dist.all_gather(parts, padded)
    return [part[: int(length)] for part, length in zip(parts, lengths, strict=True)]


def _size() -> int:
    return dist.get_world_size() if dist.is_available() and dist.is_initialized() else 1


def gather(rows: Tensor) -> Tensor:
    """Rows of all processes, in the order of the processes; differentiable."""
    return _Gather.apply(rows) if _size() > 1 else rows  # type: ignore[return-value]


def spans_processes(criterion: nn.Module) -> bool:
    """Whether the loss, or one inside it, sums over processes by itself (`losses._processes`)."""
    return any(
        hasattr(sys.modules[type(module).__module__], "_processes")
        for module in criterion.modules()
    )


class WholeLoss:
    """A loss over the batches of all processes at once, as one process on their union has it.

    Scores and targets are gathered, and every process computes the same loss: exact for any
    criterion, a user's own too, whatever rows and unknown labels each process happens to have.
    Losses that reach over processes by themselves are left to do so.
    """

    def __init__(self, criterion: Loss) -> None:
        self.criterion = criterion
        self.indexed = "indices" in inspect.signature(criterion.forward).parameters
        self.gathers = _size() > 1 and not spans_processes(criterion)

    def __call__(self, scores: Tensor, targets: Tensor, rows: Tensor) -> Tensor:
        if self.gathers:
            scores, targets = gather(scores), torch.cat(_gather_rows(targets))
            rows = torch.cat(_gather_rows(rows)) if self.indexed else rows
        if self.indexed:
            return self.criterion(scores, targets, indices=rows)
        return self.criterion(scores, targets)


@torch.no_grad()
def score(
    model: nn.Module, dataset: Any, accelerator: Accelerator | None, workers: int = 0
) -> Tensor:
    """Scores of every row of ``dataset`` on every process, in order, float32 on the CPU."""
    rank, processes = (
        (0, 1) if accelerator is None else (accelerator.process_index, accelerator.num_processes)
    )
    device = next(model.parameters()).device if accelerator is None else accelerator.device
    own = torch.arange(len(dataset)).tensor_split(processes)[rank]
    was_training = model.training
    model.eval()
    try:
        parts = [
            model(batch[0].to(device)).float()
            for batch in stream(dataset, own.split(SCORING_ROWS), workers)
        ]
    finally:
        model.train(was_training)
    local = torch.cat(parts)
    return (torch.cat(_gather_rows(local)) if processes > 1 else local).cpu()
