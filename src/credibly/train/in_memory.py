"""Train a model on a feature matrix in memory, without a run folder; the estimator uses this."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from scipy import sparse
from torch import Tensor, nn

from credibly.checks import InputError
from credibly.data import SparseFeatures
from credibly.models.network import LIMIT
from credibly.pipeline import Pipeline
from credibly.targets import Targets
from credibly.train.assembly import set_prior_bias
from credibly.train.batches import mixed
from credibly.train.configuration import HEADS, Settings
from credibly.train.distributed import threads_for
from credibly.train.evaluation import EpochEvaluator
from credibly.train.folds import Folds
from credibly.train.trainer import Trainer
from credibly.types import Array

if TYPE_CHECKING:
    from credibly.losses import Loss

FEW_ROWS = 20
"""Below this, no rows are set aside to calibrate on; for an MLP, below twice this."""

FEW_ROWS_L2 = 30.0
"""Penalty where there are too few rows to choose it."""

LARGEST = 3e38
"""Of a feature, where networks and trees are trained in float32."""


@dataclasses.dataclass
class FittedModel:
    """A trained model with its pipeline, and the probabilities of its held-out rows."""

    model: nn.Module
    pipeline: Pipeline
    held_out: Array
    candidates: list[dict[str, Any]] = dataclasses.field(default_factory=list)

    def probabilities(self, rows: Any) -> Array:
        """Return the probability of each label for rows of a matrix, dense or CSR."""
        return self.pipeline.probabilities(scores(self.model, rows))


@torch.no_grad()
def scores(model: nn.Module, rows: Any) -> Array:
    """Return float64 scores; blocks of fixed size keep memory small."""
    model.eval()
    pieces = [rows[start : start + 4096] for start in range(0, rows.shape[0], 4096)]
    return torch.cat([model(_inputs(piece)) for piece in pieces]).numpy()


def _inputs(rows: Any) -> Any:
    """Return rows as a network in float64 takes them."""
    if sparse.issparse(rows):
        return SparseFeatures(rows).batch(np.arange(rows.shape[0]))
    return torch.from_numpy(np.require(rows, np.float64, ["C", "W"]))


def fit_matrix(
    rows: Any,
    targets: Array,
    seed: int,
    *,
    loss: str,
    model: str,
    l2: float | None,
    calibrate: str,
    held_out: float,
    **steps: Any,
) -> FittedModel:
    """Train on ``rows`` (n, features), dense or CSR; calibrate on rows not trained on.

    ``model`` auto compares candidates where ``rows`` are dense, at least four per fold, and the
    loss is ``bce`` or ``softmax``; else it is ``linear``. Without ``l2``, left-out rows choose it.
    The caller's random numbers go on as if nothing had been drawn here.
    """
    if not (targets >= 0).any():
        raise InputError(
            f"`y` must hold known labels; all {targets.size:,} are −1 (unknown). If −1 means "
            'absent, give `coding="signed"`.'
        )
    settings = Settings(loss=loss, model=model, calibrate=calibrate, seed=seed, **steps)
    folds = max(2, round(1 / held_out))
    entries = rows.nnz if sparse.issparse(rows) else rows.size
    with torch.random.fork_rng(devices=[]), threads_for(entries):
        if model in HEADS or (model == "auto" and _comparable(rows, targets, loss, folds)):
            return _compared(rows, targets, settings, folds)
        if model in ("linear", "auto"):
            return _cross_fitted(rows, targets, seed, loss, l2, calibrate, folds)
        return _held_out(rows, targets, settings, held_out)


def _comparable(rows: Any, targets: Array, loss: str, folds: int) -> bool:
    if sparse.issparse(rows) or len(rows) < 4 * folds:
        return False
    return loss == "bce" or (loss == "softmax" and _one_each(targets))


def _one_each(targets: Array) -> bool:
    return bool(np.isin(targets, (0, 1)).all() and (targets.sum(axis=1) == 1).all())


def _compared(rows: Any, targets: Array, settings: Settings, folds: int) -> FittedModel:
    """Compare candidates on folds, calibrate on the scores of rows left out."""
    from credibly.train.candidates import Problem
    from credibly.train.choice import choose

    if not (settings.loss == "bce" or (settings.loss == "softmax" and _one_each(targets))):
        raise InputError(
            f"`model` {settings.model} is trained by log loss: `loss` bce, or softmax where each "
            f"row has exactly one label; got {settings.loss!r}."
        )
    dense = rows.toarray() if sparse.issparse(rows) else rows
    dense = dense.clip(-LARGEST, LARGEST)
    parts = Folds.crossed(targets, min(folds, len(targets)), settings.seed)
    if len(targets) == 1:
        parts = Folds([(np.zeros(1, np.int64), np.zeros(1, np.int64))])
    criterion = _criterion(settings.loss, targets)
    problem = Problem(dense, targets, criterion.eval(), parts, settings.seed, settings)
    choice = choose(problem, settings)
    stages = Pipeline(criterion).stages(choice.scores)
    model = choice.model.double()
    fitted = _calibrated(model, criterion, settings.calibrate, stages, targets)
    fitted.candidates = choice.table
    return fitted


def _criterion(loss: str, targets: Array) -> Loss:
    from credibly import losses

    criterion = losses.from_name(loss, num_labels=targets.shape[1], num_rows=len(targets))
    if any(True for _ in criterion.parameters()):
        raise InputError(
            f"loss {loss!r} has parameters of its own to learn; train it with `cr.train.fit`, "
            "which optimises them with the model."
        )
    return criterion


def _calibrated(
    model: nn.Module, criterion: Loss, calibrate: str, stages: dict[str, Array], targets: Array
) -> FittedModel:
    """Return the model with a calibrator fitted on the ``stages`` of rows it was not trained on."""
    if calibrate == "none" and not criterion.has_link:
        raise InputError("a loss without a link needs a calibrator; got calibrate='none'.")
    pipeline = Pipeline(criterion.eval())
    if calibrate != "none" and (len(targets) >= FEW_ROWS or not criterion.has_link):
        pipeline.calibrate_stages(stages, Targets(targets), calibrate)
    odds = stages.get(pipeline.link, stages[next(iter(stages))])
    held_out = Pipeline(None, pipeline.calibrator).probabilities(odds)
    return FittedModel(model.eval(), pipeline, held_out)


# Linear: to the optimum, cross-fitted ---------------------------------------------------------


def _cross_fitted(
    rows: Any, targets: Array, seed: int, loss: str, l2: float | None, calibrate: str, folds: int
) -> FittedModel:
    from credibly.train.candidates import Problem, fit_linear

    criterion = _criterion(loss, targets)
    everything = np.arange(len(targets))
    if len(targets) < FEW_ROWS or (calibrate == "none" and l2 is not None):
        parts = Folds([(everything, everything[:0])])
        l2 = FEW_ROWS_L2 if l2 is None else l2
    else:
        parts = Folds.crossed(targets, folds, seed)
    settings = Settings(loss=loss, model="linear", calibrate=calibrate, seed=seed)
    problem = Problem(rows, targets, criterion.eval(), parts, seed, settings)
    found = fit_linear(problem, l2=l2)
    model = found.members[0].double()
    if found.log_odds is None or not len(parts.scored):
        stages = Pipeline(criterion).stages(scores(model, rows))
    else:
        stages = Pipeline(criterion).stages(found.scores)
        if "own" in stages:
            stages["own"] = found.log_odds  # by the link of the model that scored the row
    fitted = _calibrated(model, criterion, calibrate, stages, targets)
    fitted.candidates = [
        {"model": "linear", "l2": row["l2"], "nll": row["cost"]} for row in found.trials
    ]
    return fitted


# MLP: steps, the best epoch on held-out rows --------------------------------------------------


def _held_out(rows: Any, targets: Array, settings: Settings, share: float) -> FittedModel:
    from credibly.data import split_rows

    part = split_rows(targets, test=0.0, calibration=share, seed=settings.seed)
    known = np.any(targets >= 0, axis=1)
    enough = len(targets) >= 2 * FEW_ROWS and known[part == 2].any() and known[part != 2].any()
    train = np.flatnonzero(part != 2) if enough else np.arange(len(targets))
    held_out = np.flatnonzero(part == 2) if enough else train
    criterion = _criterion(settings.loss, targets)
    model = _mlp(rows[train], targets[train], criterion, settings)
    evaluator = EpochEvaluator(
        settings, MatrixRows(rows[held_out], targets[held_out]), targets[held_out]
    )
    trainer = Trainer(
        settings, model, criterion, MatrixRows(rows[train], targets[train]), evaluator
    )
    trainer.run()
    trainer.finish()
    stages = Pipeline(criterion.eval()).stages(scores(model, rows[held_out]))
    return _calibrated(model, criterion, settings.calibrate, stages, targets[held_out])


class MatrixRows:
    """Rows of a matrix, dense or CSR, in the precision of the targets."""

    lengths: Array | None = None

    def __init__(self, rows: Any, targets: Array) -> None:
        self.rows, self.targets, self.dtype = rows, torch.from_numpy(targets), targets.dtype

    def __len__(self) -> int:
        return self.rows.shape[0]

    def set_epoch(self, epoch: int) -> None:
        """Do nothing: features are not augmented."""

    def batch(self, index: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Return inputs, targets and row numbers."""
        chosen = self.rows[index.numpy()]
        dense = chosen.toarray() if sparse.issparse(chosen) else chosen
        return (
            torch.from_numpy(np.require(dense, self.dtype, ["C", "W"])),
            self.targets[index],
            index,
        )


def _mlp(rows: Any, targets: Array, criterion: Loss, settings: Settings) -> nn.Module:
    from credibly import models

    torch.manual_seed(mixed(settings.seed))
    model = models.build(
        "mlp",
        rows.shape[1:],
        targets.shape[1],
        num_outputs=criterion.num_outputs(targets.shape[1]),
        hidden=settings.hidden,
        dropout=settings.dropout,
    )
    model.standardize.fit(rows, LIMIT)
    set_prior_bias(model.head, criterion, targets)
    return model.double()
