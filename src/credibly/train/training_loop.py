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
from contextlib import nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from credibly.checks import InputError
from credibly.data.torch_datasets import RowSource, stream
from credibly.losses import fused_linear
from credibly.memory_limits import free_memory
from credibly.models.network import HeadedModule, NetworkModule
from credibly.targets import MANY_LABELS
from credibly.train.callbacks import Callback
from credibly.train.distributed import (
    EpochEvaluator,
    SingleProcess,
    WholeLoss,
    epoch_batches,
    full_precision,
    mixed,
    number_of_batches,
    rows_per_step,
    share,
)
from credibly.train.optimizer import (
    Average,
    average_gradients,
    build_optimizer,
    flatten_optimizer,
    learning_rate,
    restore_optimizer,
)
from credibly.train.recipes import Network
from credibly.train.run_folder import Checkpoint, prefixed, restoring, write_checkpoint
from credibly.types import Array

if TYPE_CHECKING:
    from accelerate import Accelerator

    from credibly.losses import Loss


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
    recipe: Network,
    network: nn.Module,
    criterion: Loss,
    rows: RowSource,
    num_held_out: int,
    num_test: int,
) -> dict[str, float]:
    """Estimate the time and memory of training and of scoring test rows, from a step on few rows.

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
    before = (len(rows) + num_held_out) / 3 if recipe.probe_first else 0.0
    after = (num_held_out + num_test) / 3
    passes += before + after
    return {
        "seconds": passes * took / len(few),
        "before": before / passes,
        "after": after / passes,
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
        self.batches = number_of_batches(len(rows), self.batch_size)
        per_epoch = -(-self.batches // recipe.accumulate)
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
        self._load_states(Checkpoint(self.best, {}))

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

    def _backward(self, inputs: Tensor, targets: Tensor, rows: Tensor, last: bool) -> Tensor:
        device, accelerator = self.accelerator.device, self.accelerator
        self._seed()
        with nullcontext() if last else accelerator.no_sync(self.model):
            with accelerator.autocast():
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
            (share if accelerator.scaler is None else accelerator.scaler.scale(share)).backward()
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
            self.best = {name: each.clone() for name, each in self._states().items()}
        if own is not None:
            self.plain.load_state_dict(own)
        patience = self.recipe.patience
        progress.stopped = bool(patience) and progress.epoch - progress.best_epoch >= patience
        shown = {
            "epoch": progress.epoch + 1,
            "loss": progress.loss_sum / self.batches,
            **figures,
            "learning_rate": learning_rate(self.recipe, progress.updates - 1, self.scheduled),
            "best_epoch": progress.best_epoch + 1,
        }
        self.callback.on_epoch(shown)

    # Checkpoints -----------------------------------------------------------------------------

    def _states(self) -> State:
        model, loss = self.plain.state_dict(), self.criterion.state_dict()
        return {**prefixed("model", model), **prefixed("loss", loss)}

    def _checkpoint_due(self) -> bool:
        return time.monotonic() - self.saved_at >= self.recipe.checkpoint_seconds

    def _checkpoint(self) -> None:
        """Write a checkpoint from the main process. All processes have the same state."""
        self.saved_at = time.monotonic()
        if self.folder is None or not self.accelerator.is_main_process:
            return
        optimizer, numbers = flatten_optimizer(self.optimizer)
        tensors = {
            **self._states(),
            **prefixed("optimizer", optimizer),
            **prefixed("average", self.average.state if self.average else {}),
            **prefixed("best", self.best),
        }
        progress = dataclasses.asdict(self.progress)
        progress["best"] = repr(self.progress.best)  # JSON has no infinity
        values = {"progress": progress, "optimizer": numbers}
        if self.accelerator.scaler is not None:
            values["scaler"] = self.accelerator.scaler.state_dict()
        step = self.progress.epoch * self.batches + self.progress.batch
        write_checkpoint(self.folder, step, Checkpoint(tensors, values))

    def _restore(self) -> None:
        if self.folder is None:
            return
        with restoring(self.folder) as saved:
            if saved is not None:
                self._load(saved)
        self.accelerator.wait_for_everyone()

    def _load_states(self, saved: Checkpoint) -> None:
        self.plain.load_state_dict(saved.group("model"))
        self.criterion.load_state_dict(saved.group("loss"))

    def _load(self, saved: Checkpoint) -> None:
        self._load_states(saved)
        if self.average is not None:
            self.average.state = saved.group("average")
        restore_optimizer(self.optimizer, saved.group("optimizer"), saved.values["optimizer"])
        if self.accelerator.scaler is not None:
            self.accelerator.scaler.load_state_dict(saved.values["scaler"])
        progress = saved.values["progress"]
        self.progress = Progress(**{**progress, "best": float(progress["best"])})
        self.best = saved.group("best")
