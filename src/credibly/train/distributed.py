"""Processes and threads: one loss over all processes, rows scored by all of them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from itertools import chain
from typing import TYPE_CHECKING, Any

import torch
import torch.distributed as dist
from torch import Tensor, nn

from credibly.train.batches import scoring_batches, stream

if TYPE_CHECKING:
    from accelerate import Accelerator

    from credibly.losses import Loss

SCORING_ROWS = 1024


class SingleProcess:
    """One process, full precision: the part of ``accelerate.Accelerator`` that training uses.

    It needs no import of accelerate and leaves no global state, so that many small models can be
    trained in one interpreter.
    """

    process_index = 0
    num_processes = 1
    is_main_process = True
    scaler = None

    def __init__(self, device: torch.device | str = "cpu") -> None:
        self.device = torch.device(device)

    def prepare(self, module: nn.Module) -> nn.Module:
        """Return ``module`` on the device."""
        return module.to(self.device)

    def unwrap_model(self, model: nn.Module) -> nn.Module:
        """Return ``model``: it was not wrapped."""
        return model

    def no_sync(self, model: nn.Module) -> AbstractContextManager[None]:
        """Return a context that does nothing: there are no gradients to synchronise."""
        return nullcontext()

    def autocast(self) -> AbstractContextManager[None]:
        """Return a context that does nothing: the precision is the model's own."""
        return nullcontext()

    def clip_grad_norm_(self, parameters: Iterable[Tensor], largest: float) -> Tensor:
        """Scale the gradients so that their norm is at most ``largest``."""
        return torch.nn.utils.clip_grad_norm_(parameters, largest)

    def wait_for_everyone(self) -> None:
        """Return at once: there is nobody else."""


def full_precision(scores: Tensor) -> Tensor:
    """Return half-precision scores as float32, and all others as they are."""
    return scores.float() if scores.dtype.itemsize < 4 else scores


class _Gather(torch.autograd.Function):
    """Concatenate rows over processes; backward returns to each process its rows' gradient."""

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
    """Return the tensors of all processes, which may differ in length."""
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
    """Return the rows of all processes, in the order of the processes; differentiable."""
    return _Gather.apply(rows) if _size() > 1 else rows  # type: ignore[return-value]


class WholeLoss:
    """A loss over the union of the batches of all processes, equal to that of one process.

    Scores and targets are gathered, and every process computes the same loss. That is exact for
    any criterion, including a user's own, whatever rows and unknown labels each process has.
    Losses that sum over processes by themselves are called with the process's own rows.
    """

    def __init__(self, criterion: Loss) -> None:
        self.criterion = criterion
        self.indexed = criterion.needs_indices
        self.gathers = _size() > 1 and not criterion.spans_processes

    def __call__(self, scores: Tensor, targets: Tensor, rows: Tensor) -> Tensor:
        if self.gathers:
            scores, targets = gather(scores), torch.cat(_gather_rows(targets))
            rows = torch.cat(_gather_rows(rows)) if self.indexed else rows
        if self.indexed:
            return self.criterion(scores, targets, indices=rows)
        return self.criterion(scores, targets)


def _first_dtype(model: nn.Module) -> torch.dtype | None:
    tensors = chain(model.parameters(), model.buffers())
    return next((each.dtype for each in tensors if each.is_floating_point()), None)


@torch.no_grad()
def score(
    model: nn.Module,
    dataset: Any,
    accelerator: Accelerator | SingleProcess,
    workers: int = 0,
) -> Tensor:
    """Return the scores of every row of ``dataset``, in order, on the CPU of every process.

    float32, or float64 where the model computes in it.
    """
    rank, processes = accelerator.process_index, accelerator.num_processes
    own = torch.arange(len(dataset)).tensor_split(processes)[rank]
    was_training = model.training
    model.eval()
    batches = scoring_batches(own, SCORING_ROWS, dataset.lengths)
    double = _first_dtype(model) == torch.float64

    def inputs(batch: tuple[Any, ...]) -> Any:
        given = batch[0].to(accelerator.device)
        return given.double() if double and isinstance(given, Tensor) else given

    try:
        parts = [
            full_precision(model(inputs(batch))) for batch in stream(dataset, batches, workers)
        ]
    finally:
        model.train(was_training)
    local = torch.cat(parts)
    if dataset.lengths is not None:
        local = local[torch.argsort(torch.cat(batches))]
    return (torch.cat(_gather_rows(local)) if processes > 1 else local).cpu()


SMALL = 1_000_000
"""Entries of a feature matrix up to which one thread is at least as quick as several."""


@contextmanager
def threads_for(entries: int) -> Iterator[None]:
    """Compute with one thread where a feature matrix has few entries.

    Threads that wait for each other after every small operation cost more than they save, many
    times more where other programs keep the cores busy. Limits torch and the libraries that are
    loaded when it begins; afterwards all have their threads again.

    Example:
        >>> before = torch.get_num_threads()
        >>> with threads_for(1000):
        ...     torch.get_num_threads()
        1
        >>> torch.get_num_threads() == before
        True
    """
    if entries > SMALL:
        yield
        return
    from threadpoolctl import threadpool_limits

    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        with threadpool_limits(1):
            yield
    finally:
        torch.set_num_threads(before)
