"""The training loop: from the first step, or from the newest checkpoint, to the last.

Nothing in it depends on what happened before the checkpoint: the order of rows comes from (seed,
epoch), dropout from (seed, update), augmentation from (seed, epoch, row), the learning rate from
the update's number. What does depend on history is in the checkpoint.
"""

from __future__ import annotations

import dataclasses
import math
import time
from contextlib import nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from credibly.checks import InputError
from credibly.train import checkpoint as checkpoints
from credibly.train.batches import (
    epoch_batches,
    mixed,
    number_of_batches,
    rows_a_step,
    share,
    stream,
)
from credibly.train.checkpoint import Checkpoint, prefixed
from credibly.train.judge import Judge
from credibly.train.optim import Average, average_gradients, build_optimizer, learning_rate
from credibly.train.processes import WholeLoss, score
from credibly.train.settings import Settings

if TYPE_CHECKING:
    from accelerate import Accelerator

    from credibly.losses import Loss

State = dict[str, Tensor]


class Watcher:
    """Told how a run gets on; this one keeps it to itself."""

    def update(self, done: int, total: int) -> None:
        """After each update of the weights."""

    def epoch(self, figures: dict[str, Any]) -> None:
        """After each epoch, with its figures on held-out rows."""


@dataclasses.dataclass
class Progress:
    """Where a run stands; plain numbers, all of them in the checkpoint."""

    epoch: int = 0
    batch: int = 0  # batches of this epoch that are done
    updates: int = 0
    loss_sum: float = 0.0  # over the batches of this epoch
    best: float = math.inf  # lower is better
    best_epoch: int = -1
    stopped: bool = False


class Loop:
    """Train ``model`` under ``criterion``; ``finished()`` gives the weights that were best.

    Args:
        settings: how to train.
        model: scores of rows.
        criterion: the loss.
        rows: the training rows, as ``data.torch_dataset(train=True)`` gives them.
        judge: what tells one epoch's held-out scores from another's.
        accelerator: where and in which precision.
        folder: where checkpoints go.
        watcher: told of each update and each epoch's figures.
    """

    def __init__(
        self,
        settings: Settings,
        model: nn.Module,
        criterion: Loss,
        rows: Any,
        judge: Judge,
        accelerator: Accelerator,
        folder: Path,
        watcher: Watcher,
    ) -> None:
        self.settings, self.criterion, self.rows, self.judge = settings, criterion, rows, judge
        self.accelerator, self.folder, self.watcher = accelerator, folder, watcher
        self.criterion.to(accelerator.device)
        self.optimizer: Any = build_optimizer(settings, model, criterion)
        self.model: Any = accelerator.prepare(model)
        # Accelerate's optimizer serves scaled (fp16) gradients; else its bookkeeping, once a step,
        # would cost a quarter of the throughput of a small model.
        if accelerator.scaler is not None:
            self.optimizer = accelerator.prepare(self.optimizer)
        self.plain = accelerator.unwrap_model(self.model)
        self.whole_loss = WholeLoss(criterion)
        self.average = Average(self.plain, settings.ema) if settings.ema else None
        self.at = Progress()
        self.best: State = {}
        self.saved_at = time.monotonic()
        self.batch_size = rows_a_step(settings.batch_size, len(rows))
        batches = number_of_batches(len(rows), self.batch_size)
        self.total = settings.epochs * -(-batches // settings.accumulate)

    def run(self) -> None:
        """To the end, whatever of it is already done."""
        self._restore()
        while self.at.epoch < self.settings.epochs and not self.at.stopped:
            self._epoch()
            self._judge()
            self.at = dataclasses.replace(self.at, epoch=self.at.epoch + 1, batch=0, loss_sum=0.0)
            self._checkpoint_if_due()
        self._checkpoint()

    def finished(self) -> tuple[nn.Module, Loss]:
        """The model and the loss with the weights of the best epoch."""
        best = Checkpoint(self.best)
        self.plain.load_state_dict(best.group("model"))
        self.criterion.load_state_dict(best.group("loss"))
        return self.plain, self.criterion

    # Steps -----------------------------------------------------------------------------------

    def _epoch(self) -> None:
        settings, at = self.settings, self.at
        batches = epoch_batches(len(self.rows), self.batch_size, settings.seed, at.epoch)
        left = share(batches, self.accelerator.process_index, self.accelerator.num_processes)
        self.rows.set_epoch(at.epoch)
        self.model.train()
        self.criterion.train()
        total = torch.zeros((), dtype=torch.float64, device=self.accelerator.device)
        total += at.loss_sum
        for inputs, targets, rows in stream(self.rows, left[at.batch :], settings.workers):
            last = (at.batch + 1) % settings.accumulate == 0 or at.batch + 1 == len(batches)
            total += self._backward(inputs, targets, rows, last)
            at.batch += 1
            if last:
                self._update()
                if self._due():
                    at.loss_sum = self._finite(total)
                    self._checkpoint()
        at.loss_sum = self._finite(total)

    def _backward(self, inputs: Tensor, targets: Tensor, rows: Tensor, last: bool) -> Tensor:
        place, accelerator = self.accelerator.device, self.accelerator
        self._seed()
        full = self.settings.precision == "float32"
        with nullcontext() if last else accelerator.no_sync(self.model):
            with nullcontext() if full else accelerator.autocast():
                scores = self.model(inputs.to(place, non_blocking=True))
            targets = targets.to(place, non_blocking=True)
            loss = self.whole_loss(scores.float(), targets, rows.to(place))
            share = loss if self.settings.accumulate == 1 else loss / self.settings.accumulate
            if accelerator.scaler is None:
                share.backward()
            else:
                accelerator.scaler.scale(share).backward()
        return loss.detach()

    def _seed(self) -> None:
        """Dropout and noise of this step, apart from anything drawn before it."""
        at = self.at
        seed = mixed(self.settings.seed, at.epoch, at.batch, self.accelerator.process_index)
        torch.default_generator.manual_seed(seed)
        if self.accelerator.device.type == "cuda":
            torch.cuda.manual_seed(seed)

    def _update(self) -> None:
        average_gradients(self.criterion.parameters(), self.accelerator.num_processes)
        if self.settings.clip:
            self.accelerator.clip_grad_norm_(self.model.parameters(), self.settings.clip)
        rate = learning_rate(self.settings, self.at.updates, self.total)
        for group in self.optimizer.param_groups:
            group["lr"] = rate
        self.optimizer.step()
        self.optimizer.zero_grad()
        self.at.updates += 1
        self.watcher.update(self.at.updates, self.total)
        if self.average is not None:
            self.average.update(self.plain, self.at.updates)

    def _finite(self, total: Tensor) -> float:
        value = float(total)
        if not math.isfinite(value):
            raise InputError(
                f"the loss is no longer a finite number (epoch {self.at.epoch + 1}). Lower "
                "`learning_rate` or set `clip`; the last good checkpoint is kept."
            )
        return value

    # Epochs ----------------------------------------------------------------------------------

    def _judge(self) -> None:
        """Figures of this epoch on held-out rows; keep its weights if none were better."""
        own = None
        if self.average is not None:
            own = {name: tensor.clone() for name, tensor in self.plain.state_dict().items()}
            self.plain.load_state_dict(self.average.state)
        self.criterion.eval()
        scores = score(self.plain, self.judge.rows, self.accelerator, self.settings.workers)
        figures = self.judge(self.criterion, scores)
        at, lower = self.at, figures.pop("selection")
        if lower < at.best or at.best_epoch < 0 or self.settings.select == "last":
            at.best, at.best_epoch = lower, at.epoch
            loss_state = {k: v.clone() for k, v in self.criterion.state_dict().items()}
            kept = {k: v.clone() for k, v in self.plain.state_dict().items()}
            self.best = {**prefixed("model", kept), **prefixed("loss", loss_state)}
        if own is not None:
            self.plain.load_state_dict(own)
        patience = self.settings.patience
        at.stopped = bool(patience) and at.epoch - at.best_epoch >= patience
        batches = number_of_batches(len(self.rows), self.batch_size)
        rate = learning_rate(self.settings, at.updates - 1, self.total)
        figures = {"loss": at.loss_sum / batches, **figures, "learning_rate": rate}
        self.watcher.epoch({"epoch": at.epoch + 1, **figures, "best_epoch": at.best_epoch + 1})

    # Checkpoints -----------------------------------------------------------------------------

    def _due(self) -> bool:
        return time.monotonic() - self.saved_at >= self.settings.checkpoint_seconds

    def _checkpoint_if_due(self) -> None:
        if self._due():
            self._checkpoint()

    def _checkpoint(self) -> None:
        """Only the main process writes: all hold the same state."""
        self.saved_at = time.monotonic()
        if not self.accelerator.is_main_process:
            return
        optimizer, numbers = checkpoints.flatten_optimizer(self.optimizer)
        tensors = {
            **prefixed("model", self.plain.state_dict()),
            **prefixed("loss", self.criterion.state_dict()),
            **prefixed("optimizer", optimizer),
            **prefixed("average", self.average.state if self.average else {}),
            **prefixed("best", self.best),
        }
        progress = dataclasses.asdict(self.at)
        progress["best"] = repr(self.at.best)  # JSON has no infinity
        values = {"progress": progress, "optimizer": numbers}
        if self.accelerator.scaler is not None:
            values["scaler"] = self.accelerator.scaler.state_dict()
        order = self.at.epoch * number_of_batches(len(self.rows), self.batch_size)
        checkpoints.write(self.folder, order + self.at.batch, Checkpoint(tensors, values))

    def _restore(self) -> None:
        with checkpoints.restoring(self.folder) as saved:
            if saved is not None:
                self._take(saved)
        self.accelerator.wait_for_everyone()

    def _take(self, saved: Checkpoint) -> None:
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
        self.at = Progress(**{**progress, "best": float(progress["best"])})
        self.best = saved.group("best")
