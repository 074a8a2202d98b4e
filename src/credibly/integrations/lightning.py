"""Lightning: a module around any network, and a callback that calibrates at the end of ``fit``.

    module = cr.integrations.lightning.Module(network, "spa+lpr")
    calibrate = cr.integrations.lightning.Calibrate(out="predictions.parquet")
    lightning.Trainer(…, callbacks=[calibrate]).fit(module, train_loader, held_out_loader)
    calibrate.result        # numbers before and after; calibrate.result.pipeline maps new scores

The callback works with any LightningModule: pass the loss that the module is trained with.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader, IterableDataset

from credibly.checks import InputError, out_can_be_written
from credibly.metrics.scorers import measure
from credibly.pipeline import Pipeline
from credibly.targets import Coding, Targets
from credibly.train.distributed import WholeLoss, gather
from credibly.types import JsonObject
from credibly.workflows import FitRows, calibrate_scores
from credibly.workflows.calibrated_scores import CalibratedScores

try:
    import lightning.pytorch as pl  # pyright: ignore[reportMissingImports]
except ImportError as error:
    raise ImportError(
        "credibly.integrations.lightning needs Lightning; install it with `pip install lightning`."
    ) from error

if TYPE_CHECKING:
    from credibly.losses import Loss

ScoresOf = Callable[[Any, Any], tuple[Tensor, Tensor]]
"""From a LightningModule and a batch to scores (rows, labels) and targets."""


Batch = tuple[object, Tensor]
"""Inputs and targets."""


class Module(pl.LightningModule):
    """A network and a loss of ``cr.losses``, for batches of (inputs, targets).

    With several processes, the loss is that of the union of their batches. ``val_nll`` and
    ``val_map`` are logged. ``predict_step`` returns the probabilities of the loss's link, and
    calibrated probabilities after ``Calibrate`` has run.

    Args:
        network: any module that returns ``loss.num_outputs(num_labels)`` scores per row.
        loss: a loss or its name.
        optimizer: a function from parameters to an optimizer; AdamW at 1e-3 by default.
        num_labels: required by some loss names.
    """

    def __init__(
        self,
        network: nn.Module,
        loss: Loss | str = "spa+lpr",
        optimizer: Callable[..., torch.optim.Optimizer] | None = None,
        *,
        num_labels: int | None = None,
    ) -> None:
        super().__init__()
        self.network = network
        self.pipeline = Pipeline(loss, context={"num_labels": num_labels})
        assert self.pipeline.loss is not None
        self.loss = self.pipeline.loss.train()
        if self.loss.needs_indices:
            raise InputError(
                f"`loss` must not need row numbers; {self.loss} keeps an estimate per training "
                "row. Write `training_step` yourself and pass `indices=`, or use `cr.train.fit`."
            )
        self._optimizer = optimizer
        self._held_out: list[tuple[Tensor, Tensor]] = []

    def forward(self, inputs: object) -> Tensor:
        return self.network(inputs)

    def training_step(self, batch: Batch, _index: int) -> Tensor:
        inputs, targets = batch
        value = WholeLoss(self.loss)(self(inputs), targets, torch.empty(0))
        self.log("train_loss", value.detach(), prog_bar=True)
        return value

    def validation_step(self, batch: Batch, _index: int) -> None:
        inputs, targets = batch
        self._held_out.append((self(inputs).detach().float().cpu(), targets.cpu()))

    def on_validation_epoch_end(self) -> None:
        scores, targets = (torch.cat(parts) for parts in zip(*self._held_out, strict=True))
        self._held_out = []
        device = self.device
        scores, targets = gather(scores.to(device)).cpu(), gather(targets.to(device)).cpu()
        link = Pipeline(self.loss)
        values = link.probabilities(scores) if self.loss.has_link else None
        ranked = link.ranking_scores(scores)
        truth = Targets.beside(ranked, targets, "scores", coding="unknown")
        numbers = measure(ranked, values, truth)
        for name in ("nll", "map"):
            if name in numbers:
                self.log(f"val_{name}", numbers[name], prog_bar=True)

    def predict_step(self, batch: object, _index: int) -> Tensor:
        inputs = batch[0] if isinstance(batch, (tuple, list)) else batch
        return self.pipeline.probabilities(self(inputs).float())

    def configure_optimizers(self) -> torch.optim.Optimizer:
        if self._optimizer is not None:
            return self._optimizer(self.parameters())
        return torch.optim.AdamW(self.parameters(), lr=1e-3)


class Calibrate(pl.Callback):
    """Score the validation rows at the end of ``fit``, calibrate, and write predictions.

    Every row is scored once, for any number of processes. Half of the rows with known truth
    (``fit_rows``) fit the calibrator, and the others measure it. The weights are those at the end
    of training. To calibrate other weights, load them and call ``run``.

    Args:
        loss: the loss that the module is trained with, or its name; by default that of
            ``Module``.
        out: the predictions file to write. If the loss was given by name, the pipeline is
            written next to it, with the ending ``.pipeline.json``. None: nothing is written.
        labels: names of the labels; by default "0", "1", ….
        ids: one per row of the validation data; by default row numbers.
        method: ``"auto"`` or the name of a calibrator, as for ``cr.calibrate_scores``.
        fit_rows: the rows to fit the calibrator on.
        coding: meaning of −1 in targets of only −1 and +1.
        scores: maps a module and a batch to scores and targets; by default the batch is
            (inputs, targets) and ``module(inputs)`` returns the scores.

    Attributes:
        result: the result of ``cr.calibrate_scores``; None before the end of ``fit``.
    """

    def __init__(
        self,
        loss: Loss | str | None = None,
        *,
        out: str | Path | None = "predictions.parquet",
        labels: Sequence[str] | None = None,
        ids: Sequence[object] | None = None,
        method: str = "auto",
        fit_rows: FitRows | None = None,
        coding: Coding | None = None,
        scores: ScoresOf | None = None,
    ) -> None:
        self.loss = loss
        self.out = None if out is None else Path(out)
        self.labels, self.ids = labels, ids
        self.options: JsonObject = {"method": method, "fit_rows": fit_rows, "coding": coding}
        self.scores = scores or _scores_and_targets
        self.result: CalibratedScores | None = None

    def on_fit_start(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        """Raise errors before training that would otherwise occur after it."""
        self._loss(pl_module)
        if self.out is not None:
            out_can_be_written(self.out)

    def on_train_end(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        loaders = trainer.val_dataloaders
        if loaders is None:
            raise InputError(
                "Calibrate needs held-out rows; `fit` got no validation data. Pass "
                "`val_dataloaders=…`, or call `callback.run(module, loader)` yourself."
            )
        self.run(pl_module, loaders[0] if isinstance(loaders, (list, tuple)) else loaders)

    def run(self, module: pl.LightningModule, loader: DataLoader[object]) -> CalibratedScores:
        """Calibrate ``module`` on the rows of ``loader``. Every process must call it."""
        scores, targets = self._score(module, loader)
        result = calibrate_scores(
            scores, targets, self._loss(module), labels=self.labels, ids=self.ids, **self.options
        )
        self.result = result
        if isinstance(module, Module):
            module.pipeline = result.pipeline
        if self.out is not None and module.global_rank == 0:
            self.out.parent.mkdir(parents=True, exist_ok=True)
            result.predictions.write(self.out)
            if result.pipeline.loss_name is not None:
                result.pipeline.write(self.out.with_suffix(".pipeline.json"))
        return result

    def _loss(self, module: pl.LightningModule) -> Loss | str:
        if self.loss is not None:
            return self.loss
        if isinstance(module, Module):
            return module.pipeline.loss_name or module.loss
        raise InputError(
            "Calibrate needs the loss that trains the module; got none. Write "
            '`Calibrate("asl")`, with the name of a loss or a loss of `cr.losses`.'
        )

    def _score(
        self, module: pl.LightningModule, loader: DataLoader[object]
    ) -> tuple[Tensor, Tensor]:
        """Return scores and targets of all rows, in order, on every process."""
        rank, processes = module.global_rank, module.trainer.world_size
        if isinstance(loader.dataset, IterableDataset):
            if processes > 1:
                raise InputError(
                    "on several processes the validation data must be indexable; got an "
                    "IterableDataset, whose rows cannot be shared out."
                )
            own, rows = loader, None
        else:
            size = len(loader.dataset)  # pyright: ignore[reportArgumentType]
            rows = [torch.arange(first, size, processes) for first in range(processes)]
            own = DataLoader(
                loader.dataset,
                batch_size=loader.batch_size or 64,
                sampler=rows[rank].tolist(),
                collate_fn=loader.collate_fn,
                num_workers=loader.num_workers,
            )
        was_training = module.training
        module.eval()
        with torch.no_grad():
            batches = (module.trainer.strategy.batch_to_device(batch) for batch in own)
            parts = [self.scores(module, batch) for batch in batches]
        module.train(was_training)
        scores = gather(torch.cat([scores.detach().float() for scores, _ in parts])).cpu()
        targets = gather(torch.cat([targets for _, targets in parts])).cpu()
        if rows is None:
            return scores, targets
        order = torch.cat(rows).argsort()
        return scores[order], targets[order]


def _scores_and_targets(module: Any, batch: Any) -> tuple[Tensor, Tensor]:
    if not (isinstance(batch, (tuple, list)) and len(batch) == 2):
        raise InputError(
            f"batches must be (inputs, targets); got {type(batch).__name__}. Pass "
            "`scores=lambda module, batch: (module(batch['pixels']), batch['labels'])`."
        )
    return module(batch[0]), batch[1]
