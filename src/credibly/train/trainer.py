"""The training loop, from the first step or the newest checkpoint to the last step.

The loop does not depend on what happened before the checkpoint. The order of rows derives from
(seed, epoch), dropout from (seed, update), augmentation from (seed, epoch, row), and the learning
rate from the number of the update. Everything that depends on history is in the checkpoint.
"""

from __future__ import annotations

import copy
import dataclasses
import math
import time
import warnings
from contextlib import nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor, nn

from credibly.checks import InputError
from credibly.data.torch_datasets import RowSource, stream
from credibly.losses import fused_linear
from credibly.memory_limits import free_memory
from credibly.models.network import HeadedModule, NetworkModule
from credibly.pipeline import Pipeline
from credibly.runtime import sigmoid
from credibly.targets import MANY_LABELS, Targets
from credibly.train import checkpoint as checkpoints
from credibly.train.callbacks import Callback
from credibly.train.checkpoint import Checkpoint, prefixed
from credibly.train.distributed import (
    SingleProcess,
    WholeLoss,
    epoch_batches,
    full_precision,
    mixed,
    number_of_batches,
    rows_per_step,
    score,
    share,
)
from credibly.train.optimizer import Average, average_gradients, build_optimizer, learning_rate
from credibly.train.recipes import Network, Recipe
from credibly.types import Array

if TYPE_CHECKING:
    from accelerate import Accelerator

    from credibly.losses import Loss
    from credibly.train.distributed import SingleProcess


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
        from credibly import metrics
        from credibly.metrics.summaries import MIN_COUNT

        if self.recipe.calibrate != "none":
            odds = self._calibrated(odds)
        estimates = sigmoid(odds)
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
            figures["average-k"] = self._coverage(estimates)
        return {**figures, "selection": self._selection(figures)}

    def _calibrated(self, odds: Array) -> Array:
        from credibly import calibrate

        # Two parameters need far fewer than a million entries, and every epoch pays for this fit.
        known = np.flatnonzero((self.targets.matrix >= 0).any(axis=1))
        rows = known[:: max(1, len(known) * odds.shape[1] // ENTRIES_TO_FIT)]
        # After the first epoch, scores may rank backwards. Only the finished run should warn about
        # it.
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UserWarning)
            weights = None if self.weights is None else self.weights[rows]
            return calibrate.Affine().fit(odds[rows], self.targets[rows], weights).transform(odds)

    def _log_loss(self, estimates: Array) -> float:
        from credibly.metrics import log_loss
        from credibly.metrics.calibration import COUNT, LOG_LOSS, row_scores

        if self.weights is None:
            return float(log_loss(estimates, self.targets))
        totals = self.weights @ row_scores(estimates, self.targets.matrix)
        return float(totals[LOG_LOSS] / totals[COUNT])

    def _coverage(self, estimates: Array) -> float:
        from credibly import decide, metrics

        assert self.recipe.average_size is not None
        sets = decide.AverageSize(self.recipe.average_size).fit(estimates).predict(estimates)
        return float(metrics.set_coverage(sets, self.targets))

    def _selection(self, figures: dict[str, float]) -> float:
        chosen = self.recipe.select
        if chosen == "last":
            return 0.0
        return figures["nll"] if chosen == "nll" else -figures[chosen]


# The loop ---------------------------------------------------------------------------------------

State = dict[str, Tensor]


@dataclasses.dataclass
class Progress:
    """The progress of training as plain numbers, which the checkpoint stores."""

    epoch: int = 0
    batch: int = 0  # finished batches of this epoch
    updates: int = 0
    loss_sum: float = 0.0  # over the batches of this epoch
    best: float = math.inf  # lower is better
    best_epoch: int = -1
    stopped: bool = False


def fuses(model: nn.Module, criterion: Loss, processes: int, *, sparse: bool = False) -> bool:
    """Return whether last layer and loss are computed together, without storing all scores.

    This needs one process and a loss that can be computed in chunks of labels. It is used for
    sparse targets, and for other targets from ``MANY_LABELS`` labels.

    Example:
        >>> from credibly.losses import SPA
        >>> from credibly.models import build
        >>> [fuses(build("linear", (3,), labels), SPA(), 1) for labels in (80, 10_000)]
        [False, True]
    """
    if processes > 1 or not isinstance(model, HeadedModule) or criterion.linear_form() is None:
        return False
    if not isinstance(model.head, nn.Linear):
        return False
    return sparse or model.head.out_features >= MANY_LABELS


def estimated(
    recipe: Network, network: nn.Module, criterion: Loss, rows: RowSource, num_held_out: int
) -> dict[str, float]:
    """Estimate the time and memory of training from a step on a few rows.

    The step uses copies of model and loss, so it changes nothing.
    """
    model, loss = copy.deepcopy(network).train(), WholeLoss(copy.deepcopy(criterion).train())
    few = torch.arange(min(len(rows), 8))
    weights = {each.untyped_storage().data_ptr(): each.nbytes for each in model.parameters()}
    took, kept = math.inf, 0
    for _ in range(2):  # the first pass warms up
        storages: dict[int, int] = {}

        def keep(tensor: Tensor, storages: dict[int, int] = storages) -> Tensor:
            storage = tensor.untyped_storage()
            storages[storage.data_ptr()] = storage.nbytes()
            return tensor

        begin = time.perf_counter()
        inputs, targets, index = rows.batch(few)
        with torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
            value = loss(full_precision(model(inputs)), targets, index)
        value.backward()
        took = min(took, time.perf_counter() - begin)
        kept = sum(size for place, size in storages.items() if place not in weights)
    at_once = min(rows_per_step(recipe.batch_size, len(rows)), len(rows))
    passes = recipe.num_epochs * (len(rows) + num_held_out / 3)  # a third: no gradient
    if recipe.probe_first:
        passes += (len(rows) + num_held_out) / 3
    return {
        "seconds": passes * took / len(few),
        "epochs": recipe.num_epochs,
        # Weights, gradient, two moments and the best weights.
        "bytes": kept / len(few) * at_once + 5 * sum(weights.values()),
        "free": free_memory(),
    }


class Trainer:
    """Train ``model`` under ``criterion``. At the end, both have the weights of the best epoch.

    Args:
        recipe: how to train.
        model: returns the scores of a batch of rows.
        criterion: the loss.
        rows: the training rows.
        evaluator: computes the metrics of held-out rows after each epoch.
        weights: (n,) the weight of each row. None: 1.
        seed: of order, dropout and augmentation.
        accelerator: device, processes and precision. None: one process on the CPU.
        folder: where checkpoints are written. None: no checkpoints.
        callback: called after each update and each epoch.
    """

    def __init__(
        self,
        recipe: Network,
        model: nn.Module,
        criterion: Loss,
        rows: RowSource,
        evaluator: EpochEvaluator,
        *,
        weights: Array | None = None,
        seed: int = 0,
        accelerator: Accelerator | SingleProcess | None = None,
        folder: Path | None = None,
        callback: Callback | None = None,
    ) -> None:
        self.recipe, self.seed, self.criterion = recipe, seed, criterion
        self.rows, self.evaluator, self.folder = rows, evaluator, folder
        self.callback = callback or Callback()
        self.accelerator = accelerator = accelerator or SingleProcess()
        self.criterion.to(accelerator.device)
        alone = isinstance(accelerator, SingleProcess) and accelerator.device.type == "cpu"
        self.optimizer: Any = build_optimizer(recipe, model, criterion, on_cpu=alone)
        self.model: Any = accelerator.prepare(model)
        # Only scaled (fp16) gradients need the optimizer of accelerate. Its bookkeeping in every
        # step costs a quarter of the throughput of a small model.
        if accelerator.scaler is not None:
            self.optimizer = accelerator.prepare(self.optimizer)
        self.plain: Any = accelerator.unwrap_model(self.model)
        self.whole_loss = WholeLoss(criterion, weights)
        self.fused = weights is None and fuses(
            self.plain, criterion, accelerator.num_processes, sparse=evaluator.sparse
        )
        self.average = Average(self.plain, recipe.ema) if recipe.ema else None
        self.progress = Progress()
        self.best: State = {}
        self.saved_at = time.monotonic()
        self.batch_size = rows_per_step(recipe.batch_size, len(rows))
        batches = number_of_batches(len(rows), self.batch_size)
        per_epoch = -(-batches // recipe.accumulate)
        self.total = recipe.num_epochs * per_epoch
        self.scheduled = (recipe.schedule_epochs or recipe.num_epochs) * per_epoch

    def run(self) -> None:
        """Train to the end, from the newest checkpoint if there is one."""
        self._restore()
        while self.progress.epoch < self.recipe.num_epochs and not self.progress.stopped:
            self._train_epoch()
            self._evaluate()
            self.progress = dataclasses.replace(
                self.progress, epoch=self.progress.epoch + 1, batch=0, loss_sum=0.0
            )
            if self._checkpoint_due():
                self._checkpoint()
        self._checkpoint()
        best = Checkpoint(self.best)
        self.plain.load_state_dict(best.group("model"))
        self.criterion.load_state_dict(best.group("loss"))

    # Steps -----------------------------------------------------------------------------------

    def _train_epoch(self) -> None:
        recipe, progress = self.recipe, self.progress
        batches = epoch_batches(
            *(len(self.rows), self.batch_size, self.seed, progress.epoch, self.rows.lengths)
        )
        left = share(batches, self.accelerator.process_index, self.accelerator.num_processes)
        self.rows.set_epoch(progress.epoch)
        if recipe.frozen_epochs and isinstance(self.plain, NetworkModule):
            self.plain.freeze(progress.epoch < recipe.frozen_epochs)
        self.model.train()
        self.criterion.train()
        total = torch.zeros((), dtype=torch.float64, device=self.accelerator.device)
        total += progress.loss_sum
        for inputs, targets, rows in stream(self.rows, left[progress.batch :], recipe.workers):
            done = progress.batch + 1
            last = done % recipe.accumulate == 0 or done == len(batches)
            total += self._backward(inputs, targets, rows, last)
            progress.batch = done
            if last:
                self._update()
                if self._checkpoint_due():
                    progress.loss_sum = self._finite(total)
                    self._checkpoint()
        progress.loss_sum = self._finite(total)

    def _backward(self, inputs: Tensor, targets: Any, rows: Tensor, last: bool) -> Tensor:
        device, accelerator = self.accelerator.device, self.accelerator
        self._seed()
        full = self.recipe.precision == "float32"
        with nullcontext() if last else accelerator.no_sync(self.model):
            with nullcontext() if full else accelerator.autocast():
                inputs = inputs.to(device, non_blocking=True)
                outputs = self.plain.hidden(inputs) if self.fused else self.model(inputs)
            outputs = full_precision(outputs)
            if self.fused:
                head = self.plain.head
                loss = fused_linear(self.criterion, outputs, head.weight, head.bias, targets)
            else:
                targets = targets.to(device, non_blocking=True)
                loss = self.whole_loss(outputs, targets, rows.to(device))
            share = loss if self.recipe.accumulate == 1 else loss / self.recipe.accumulate
            if accelerator.scaler is None:
                share.backward()
            else:
                accelerator.scaler.scale(share).backward()
        return loss.detach()

    def _seed(self) -> None:
        """Make dropout and noise of this step independent of earlier draws."""
        epoch, batch = self.progress.epoch, self.progress.batch
        seed = mixed(self.seed, epoch, batch, self.accelerator.process_index)
        torch.default_generator.manual_seed(seed)
        if self.accelerator.device.type == "cuda":
            torch.cuda.manual_seed(seed)

    def _update(self) -> None:
        average_gradients(self.criterion.parameters(), self.accelerator.num_processes)
        if self.recipe.clip:
            self.accelerator.clip_grad_norm_(self.model.parameters(), self.recipe.clip)
        rate = learning_rate(self.recipe, self.progress.updates, self.scheduled)
        for group in self.optimizer.param_groups:
            group["lr"] = rate * group["scale"]
        self.optimizer.step()
        self.optimizer.zero_grad()
        self.progress.updates += 1
        self.callback.on_update(self.progress.updates, self.total)
        if self.average is not None:
            self.average.update(self.plain, self.progress.updates)

    def _finite(self, total: Tensor) -> float:
        value = float(total)
        if not math.isfinite(value):
            raise InputError(
                f"the loss is no longer a finite number (epoch {self.progress.epoch + 1}). Lower "
                "`learning_rate` or set `clip`; the last good checkpoint is kept."
            )
        return value

    # Epochs ----------------------------------------------------------------------------------

    def _evaluate(self) -> None:
        """Compute the held-out metrics of this epoch; keep its weights if none were better."""
        own = None
        if self.average is not None:
            own = {name: tensor.clone() for name, tensor in self.plain.state_dict().items()}
            self.plain.load_state_dict(self.average.state)
        self.criterion.eval()
        figures = self.evaluator.measure(self.plain, self.criterion, self.accelerator)
        progress, cost = self.progress, figures.pop("selection")
        if cost < progress.best or progress.best_epoch < 0 or self.recipe.select == "last":
            progress.best, progress.best_epoch = cost, progress.epoch
            loss_state = {k: v.clone() for k, v in self.criterion.state_dict().items()}
            kept = {k: v.clone() for k, v in self.plain.state_dict().items()}
            self.best = {**prefixed("model", kept), **prefixed("loss", loss_state)}
        if own is not None:
            self.plain.load_state_dict(own)
        patience = self.recipe.patience
        progress.stopped = bool(patience) and progress.epoch - progress.best_epoch >= patience
        batches = number_of_batches(len(self.rows), self.batch_size)
        rate = learning_rate(self.recipe, progress.updates - 1, self.scheduled)
        figures = {"loss": progress.loss_sum / batches, **figures, "learning_rate": rate}
        figures = {"epoch": progress.epoch + 1, **figures, "best_epoch": progress.best_epoch + 1}
        self.callback.on_epoch(figures)

    # Checkpoints -----------------------------------------------------------------------------

    def _checkpoint_due(self) -> bool:
        return time.monotonic() - self.saved_at >= self.recipe.checkpoint_seconds

    def _checkpoint(self) -> None:
        """Write a checkpoint from the main process. All processes have the same state."""
        self.saved_at = time.monotonic()
        if self.folder is None or not self.accelerator.is_main_process:
            return
        optimizer, numbers = checkpoints.flatten_optimizer(self.optimizer)
        tensors = {
            **prefixed("model", self.plain.state_dict()),
            **prefixed("loss", self.criterion.state_dict()),
            **prefixed("optimizer", optimizer),
            **prefixed("average", self.average.state if self.average else {}),
            **prefixed("best", self.best),
        }
        progress = dataclasses.asdict(self.progress)
        progress["best"] = repr(self.progress.best)  # JSON has no infinity
        values = {"progress": progress, "optimizer": numbers}
        if self.accelerator.scaler is not None:
            values["scaler"] = self.accelerator.scaler.state_dict()
        order = self.progress.epoch * number_of_batches(len(self.rows), self.batch_size)
        checkpoints.write(self.folder, order + self.progress.batch, Checkpoint(tensors, values))

    def _restore(self) -> None:
        if self.folder is None:
            return
        with checkpoints.restoring(self.folder) as saved:
            if saved is not None:
                self._load(saved)
        self.accelerator.wait_for_everyone()

    def _load(self, saved: Checkpoint) -> None:
        self.plain.load_state_dict(saved.group("model"))
        self.criterion.load_state_dict(saved.group("loss"))
        if self.average is not None:
            self.average.state = saved.group("average")
        checkpoints.restore_optimizer(
            self.optimizer, saved.group("optimizer"), saved.values["optimizer"]
        )
        if self.accelerator.scaler is not None:
            self.accelerator.scaler.load_state_dict(saved.values["scaler"])
        progress = saved.values["progress"]
        self.progress = Progress(**{**progress, "best": float(progress["best"])})
        self.best = saved.group("best")
