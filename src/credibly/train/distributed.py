"""Batches, processes and threads: the loss over all processes, the scoring of rows, and metrics.

Seed and epoch determine the batches. The number of processes does not change them.
"""

from __future__ import annotations

import hashlib
import math
import os
import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from itertools import chain
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor, nn

from credibly.checks import InputError
from credibly.data.torch_datasets import Batch, RowSource, stream
from credibly.losses.collectives import all_gather, process_count, process_rank
from credibly.pipeline import Pipeline
from credibly.runtime import in_blocks, sigmoid
from credibly.targets import Targets
from credibly.types import Array

if TYPE_CHECKING:
    from accelerate import Accelerator

    from credibly.calibrate import Calibrator
    from credibly.data import Data
    from credibly.data.torch_datasets import TorchRows
    from credibly.losses import Loss
    from credibly.train.recipes import Recipe


def mixed(*numbers: int) -> int:
    """Derive one seed from several numbers. Similar numbers give unrelated seeds.

    Example:
        >>> mixed(0, 1) == mixed(0, 1), mixed(0, 1) == mixed(1, 0)
        (True, False)
    """
    digest = hashlib.blake2b(repr(numbers).encode(), digest_size=7)
    return int.from_bytes(digest.digest(), "little")


BUCKET = 50
"""Batches whose rows are sorted by length together: enough to pad little, few enough to mix."""

TOKENS = 16_384
"""Most tokens of a batch that is scored, padding included."""


def epoch_batches(
    num_rows: int, batch_size: int, seed: int, epoch: int, lengths: Array | None = None
) -> list[Tensor]:
    """Return the rows of one epoch in order, in batches of nearly equal size.

    Batches have equal sizes of at most ``batch_size``, instead of a small batch at the end: a last
    batch of one row would break batch norm, and its row would weigh as much as a whole batch. With
    ``lengths``, rows of similar length share a batch, which reduces padding. The batches come in
    random order.

    Example:
        >>> [len(batch) for batch in epoch_batches(10, 4, seed=0, epoch=0)]
        [4, 3, 3]
        >>> buckets = epoch_batches(6, 2, seed=0, epoch=0, lengths=np.array([9, 1, 8, 2, 5, 5]))
        >>> sorted(sorted(batch.tolist()) for batch in buckets)
        [[0, 2], [1, 3], [4, 5]]
    """
    generator = torch.Generator().manual_seed(mixed(seed, epoch))
    order = torch.randperm(num_rows, generator=generator)
    count = number_of_batches(num_rows, batch_size)
    if lengths is None:
        return list(order.tensor_split(count))
    sizes = [len(batch) for batch in order.tensor_split(count)]
    batches: list[Tensor] = []
    for start in range(0, count, BUCKET):
        inside = sizes[start : start + BUCKET]
        first = sum(sizes[:start])
        rows = order[first : first + sum(inside)]
        by_length = np.argsort(lengths[rows.numpy()], kind="stable")
        batches += rows[torch.from_numpy(by_length)].split(inside)
    return [batches[int(place)] for place in torch.randperm(count, generator=generator)]


def scoring_batches(rows: Tensor, most_rows: int, lengths: Array | None) -> list[Tensor]:
    """Return the rows to score in batches; with ``lengths``, sorted and limited in tokens.

    Example:
        >>> rows = torch.arange(4)
        >>> [b.tolist() for b in scoring_batches(rows, 1024, np.array([9000, 1, 9000, 2]))]
        [[1, 3], [0], [2]]
    """
    if lengths is None:
        return list(rows.split(most_rows))
    own = lengths[rows.numpy()]
    batches: list[list[int]] = [[]]
    # Sorted by length: the last row of a batch is its longest.
    for place in np.argsort(own, kind="stable").tolist():
        size = len(batches[-1])
        if size and (size >= most_rows or (size + 1) * own[place] > TOKENS):
            batches.append([])
        batches[-1].append(place)
    return [rows[torch.tensor(batch)] for batch in batches if batch]


def rows_per_step(given: int | None, num_rows: int) -> int:
    """Return ``given``, or a power of two from 32 to 128 that gives about 25 steps per epoch.

    With a few hundred rows, batches of 128 leave too few steps. With thousands of rows, batches of
    32 are slower and no better (benchmarks/results/defaults.md).

    Example:
        >>> [rows_per_step(None, rows) for rows in (200, 1600, 5000)], rows_per_step(7, 5000)
        ([32, 64, 128], 7)
    """
    if given is not None:
        return given
    return min(128, max(32, 2 ** ((num_rows // 25).bit_length() - 1)))


def number_of_batches(num_rows: int, batch_size: int) -> int:
    """Return the number of batches per epoch; every process takes part in each batch."""
    return max(1, -(-num_rows // batch_size))


def share(batches: Sequence[Tensor], rank: int, processes: int) -> list[Tensor]:
    """Return the rows of each batch for this process. Together, the processes have all rows."""
    return [batch.tensor_split(processes)[rank] for batch in batches]


# Processes --------------------------------------------------------------------------------------

SCORING_ROWS = 1024
CPU_BYTES, OTHER_BYTES = 2**25, 2**29
"""Activations of a batch of images that is scored. On a CPU, the C library returns larger arrays to
the system after each layer, which takes longer than the layer itself."""


class SingleProcess:
    """One process in full precision, with the part of the ``accelerate.Accelerator`` API in use.

    It does not import accelerate and has no global state, so many small models can be trained in
    one interpreter.
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
        """Return ``model``, which is not wrapped."""
        return model

    def no_sync(self, model: nn.Module) -> AbstractContextManager[None]:
        """Return a context that does nothing: there are no gradients to synchronise."""
        return nullcontext()

    def autocast(self) -> AbstractContextManager[None]:
        """Return a context that does nothing: the precision of the model is used."""
        return nullcontext()

    def clip_grad_norm_(self, parameters: Iterable[Tensor], largest: float) -> Tensor:
        """Scale the gradients so that their norm is at most ``largest``."""
        return torch.nn.utils.clip_grad_norm_(parameters, largest)

    def wait_for_everyone(self) -> None:
        """Return immediately: there is only one process."""


def num_processes() -> int:
    """Return the number of processes that torchrun started, or 1 without torchrun."""
    return int(os.environ.get("WORLD_SIZE", "1"))


def build_accelerator(precision: str) -> Accelerator | SingleProcess:
    """Return device, processes (from the environment of torchrun) and precision."""
    if precision == "fp16" and not torch.cuda.is_available():
        raise InputError("`precision` fp16 needs a GPU; got none. Use bf16 or float32.")
    no_gpu = not (torch.cuda.is_available() or torch.backends.mps.is_available())
    processes = num_processes()
    if no_gpu and processes == 1 and precision == "float32":
        return SingleProcess()  # accelerate is slow to import
    from accelerate import Accelerator
    from accelerate.state import AcceleratorState

    # Two runs in one interpreter may differ in precision, but accelerate keeps the first precision.
    AcceleratorState._reset_state()
    kind = "no" if precision == "float32" else precision
    # Without cpu=True, accelerate ignores the other processes of torchrun on a machine without a
    # GPU.
    return Accelerator(mixed_precision=kind, cpu=no_gpu)


def full_precision(scores: Tensor) -> Tensor:
    """Return half-precision scores as float32, and other scores unchanged."""
    return scores.float() if scores.dtype.itemsize < 4 else scores


class _Gather(torch.autograd.Function):
    """Concatenate rows over processes; backward gives each process the gradient of its rows."""

    @staticmethod
    def forward(ctx: Any, rows: Tensor) -> Tensor:  # type: ignore[override]
        ctx.rank, ctx.rows = process_rank(), len(rows)
        parts = all_gather(rows)
        ctx.start = sum(len(part) for part in parts[: ctx.rank])
        return torch.cat(parts)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Tensor:  # type: ignore[override]
        # DDP averages over processes, and the loss is the same on each, so the gradient is not
        # summed.
        own = gradient[ctx.start : ctx.start + ctx.rows]
        return own * process_count()


def gather(rows: Tensor) -> Tensor:
    """Return the rows of all processes, in the order of the processes. Differentiable."""
    return _Gather.apply(rows) if process_count() > 1 else rows  # type: ignore[return-value]


class WholeLoss:
    """A loss over the batches of all processes, equal to the loss of one process on all rows.

    Scores and targets are gathered, and every process computes the same loss. This is exact for any
    criterion, including the user's own, however rows and unknown labels are distributed. Losses
    that sum over processes themselves are called with the rows of this process.
    """

    def __init__(self, criterion: Loss, weights: Array | None = None) -> None:
        self.criterion = criterion
        self.weights = None if weights is None else torch.from_numpy(weights)
        self.indexed = criterion.needs_indices
        self.gathers = process_count() > 1 and not criterion.spans_processes

    def __call__(self, scores: Tensor, targets: Tensor, rows: Tensor) -> Tensor:
        if self.gathers:
            scores, targets = gather(scores), torch.cat(all_gather(targets))
            alone = self.weights is None and not self.indexed
            rows = rows if alone else torch.cat(all_gather(rows))
        given = {"indices": rows} if self.indexed else {}
        if self.weights is not None:
            given["weight"] = self.weights[rows.cpu()].to(scores)
        return self.criterion(scores, targets, **given)


def to_score(rows: Data, recipe: Recipe) -> TorchRows:
    """Return rows as a recipe scores them: without augmentation."""
    size = recipe.image_size if rows.kind == "images" else None
    return rows.torch_dataset(train=False, image_size=size, eval_crop=recipe.eval_crop)


def _first_dtype(model: nn.Module) -> torch.dtype | None:
    tensors = chain(model.parameters(), model.buffers())
    return next((each.dtype for each in tensors if each.is_floating_point()), None)


@torch.no_grad()
def score(
    model: nn.Module,
    dataset: RowSource,
    accelerator: Accelerator | SingleProcess,
    workers: int = 0,
    max_bytes: int | None = None,
    forward: Callable[[Any], Tensor] | None = None,
    progress: Callable[[int, int], None] | None = None,
) -> Tensor:
    """Return the scores of every row of ``dataset``, in order, on the CPU of every process.

    Scores are float32, or float64 if the model computes in float64. For images, the batch size is
    the number of images whose activations take ``max_bytes`` (default: 32 MB on a CPU, else 512
    MB). This number is fixed, because the batch size changes the last bits. ``forward`` may be a
    method of the model that returns something else than scores. ``progress`` receives the rows
    scored so far and all rows of this process.
    """
    rank, processes = accelerator.process_index, accelerator.num_processes
    own, forward = torch.arange(len(dataset)).tensor_split(processes)[rank], forward or model
    was_training = model.training
    model.eval()
    double = _first_dtype(model) == torch.float64

    def inputs(batch: Batch) -> Tensor:
        given = batch[0].to(accelerator.device)
        return given.double() if double and isinstance(given, Tensor) else given

    rows_at_once = SCORING_ROWS
    if len(dataset) and dataset.lengths is None:
        limit = max_bytes or (CPU_BYTES if accelerator.device.type == "cpu" else OTHER_BYTES)
        rows_at_once = _rows_within(limit, model, forward, inputs(dataset.batch([0])))
    batches = scoring_batches(own, rows_at_once, dataset.lengths)
    parts: list[Tensor] = []
    try:
        for batch in stream(dataset, batches, workers):
            parts.append(full_precision(forward(inputs(batch))))
            if progress is not None:
                progress(sum(map(len, parts)), len(own))
    finally:
        model.train(was_training)
    local = torch.cat(parts)
    if dataset.lengths is not None:
        local = local[torch.argsort(torch.cat(batches))]
    return (torch.cat(all_gather(local)) if processes > 1 else local).cpu()


def _rows_within(
    max_bytes: int, model: nn.Module, forward: Callable[[Any], Tensor], row: Any
) -> int:
    """Return the number of images whose activations fit ``max_bytes`` in the largest layer."""
    if not isinstance(row, Tensor) or row.ndim != 4:
        return SCORING_ROWS
    sizes = [row.nbytes]

    def measure(layer: nn.Module, given: Any, output: Any) -> None:
        tensors = [each for each in (*given, output) if isinstance(each, Tensor)]
        sizes.append(sum(each.nbytes for each in tensors))

    hooks = [each.register_forward_hook(measure) for each in model.modules()]
    try:
        forward(row)
    finally:
        for hook in hooks:
            hook.remove()
    # A layer holds its inputs and outputs; a residual block keeps a second pair.
    return max(1, min(SCORING_ROWS, max_bytes // (2 * max(sizes))))


# Held-out rows --------------------------------------------------------------------------------

ENTRIES_TO_FIT = 100_000
"""Number of held-out entries, evenly chosen, that the evaluator's affine map is fitted on."""


class EpochEvaluator:
    """Compute the metrics of held-out scores, and one number to select epochs by; lower is better.

    The number is the log loss after an affine calibration on the same rows. It is a proper score,
    and close to the log loss of the finished run, which is calibrated too. Without this
    calibration, an epoch with good but overconfident scores would lose to a worse epoch, and losses
    without a link could not be evaluated. ``select`` can replace it by mAP, by the accuracy of the
    first label, or by average-K accuracy.
    """

    sparse = False
    """Whether targets are sparse: rows are then not scored for all labels."""

    def __init__(
        self, recipe: Recipe, rows: RowSource | None, targets: Array, weights: Array | None = None
    ) -> None:
        self.recipe, self.rows, self.weights = recipe, rows, weights
        self.targets = Targets.of(targets, coding="unknown")  # int8 if all values are whole

    def measure(
        self, model: nn.Module, criterion: Loss, accelerator: Accelerator | SingleProcess
    ) -> dict[str, float]:
        """Return the metrics of the held-out rows under ``model``; empty if there are none."""
        if not len(self.targets.matrix):
            return {"selection": 0.0}
        assert self.rows is not None
        return self(criterion, score(model, self.rows, accelerator, self.recipe.workers))

    def __call__(self, criterion: Loss, scores: Tensor) -> dict[str, float]:
        pipeline, array = Pipeline(criterion), scores.numpy()
        figures = self.figures(pipeline.link_log_odds(array), pipeline.ranking_scores(array))
        if criterion.name == "softmax":
            figures["log_normalizer"] = float(scores.double().logsumexp(-1).mean())
        elif state := criterion.state_summary():
            figures |= {f"log_{name}": math.log(value) for name, value in state.items()}
        return figures

    def figures(self, odds: Array, ranked: Array) -> dict[str, float]:
        """Return the metrics of log-odds, and of the scores that rank the rows."""
        from credibly import decide, metrics
        from credibly.metrics.summaries import MIN_COUNT

        calibrator = self._calibrator(odds)
        # Another array of log-odds would be as large as the scores.
        estimates = in_blocks(lambda block: sigmoid(calibrator.transform(block)), odds)
        precision = metrics.average_precision(ranked, self.targets)
        figures = {
            "nll": self._log_loss(estimates),
            "map": float(np.nanmean(precision)) if not np.isnan(precision).all() else 0.0,
            "ace": float(
                metrics.calibration_error(estimates, self.targets, "ace", min_count=MIN_COUNT)
            ),
        }
        if self.recipe.select == "accuracy":
            first = np.take_along_axis(self.targets.matrix, ranked.argmax(1)[:, None], axis=1)
            figures["accuracy"] = float((first == 1).mean())
        if self.recipe.select == "average-k":
            assert self.recipe.average_size is not None
            sets = decide.AverageSize(self.recipe.average_size).fit(estimates).predict(estimates)
            figures["average-k"] = float(metrics.set_coverage(sets, self.targets))
        costs = {"last": 0.0, "nll": figures["nll"]}
        chosen = self.recipe.select
        return {**figures, "selection": costs[chosen] if chosen in costs else -figures[chosen]}

    def _calibrator(self, odds: Array) -> Calibrator:
        from credibly import calibrate

        if self.recipe.calibrate == "none":
            return calibrate.Identity()
        # Two parameters need far fewer than a million entries, and every epoch pays for this fit.
        known = np.flatnonzero((self.targets.matrix >= 0).any(axis=1))
        rows = known[:: max(1, len(known) * odds.shape[1] // ENTRIES_TO_FIT)]
        # After the first epoch, scores may rank backwards. Only the finished run should warn about
        # it.
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UserWarning)
            weights = None if self.weights is None else self.weights[rows]
            return calibrate.Affine().fit(odds[rows], self.targets[rows], weights)

    def _log_loss(self, estimates: Array) -> float:
        from credibly.metrics import log_loss
        from credibly.metrics.calibration import COUNT, LOG_LOSS, row_scores

        if self.weights is None:
            return float(log_loss(estimates, self.targets))
        totals = self.weights @ row_scores(estimates, self.targets.matrix)
        return float(totals[LOG_LOSS] / totals[COUNT])


# Threads ------------------------------------------------------------------------------------------

SMALL = 1_000_000
"""Entries of a feature matrix up to which one thread is at least as quick as several."""


@contextmanager
def threads_for(entries: int) -> Iterator[None]:
    """Use one thread if a feature matrix has few entries.

    With small operations, threads spend more time waiting for each other than they save, especially
    if other programs keep the cores busy. The limit applies to torch and to the libraries that are
    loaded at the start. It is lifted at the end.

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
