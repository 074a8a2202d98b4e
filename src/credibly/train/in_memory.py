"""Train a model on a feature matrix in memory, without a run folder; the estimator uses this."""

from __future__ import annotations

import dataclasses
import math
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from scipy import sparse
from torch import Tensor, nn

from credibly.checks import InputError
from credibly.models import LIMIT, column_moments
from credibly.pipeline import Pipeline
from credibly.train.assembly import set_prior_bias
from credibly.train.batches import mixed
from credibly.train.configuration import HEADS, L2, Settings
from credibly.train.evaluation import EpochEvaluator
from credibly.train.lbfgs import minimise
from credibly.train.threads import threads_for
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


class Columns(nn.Module):
    """A linear layer on scaled columns, dense or sparse; sparse rows are scaled, not centred."""

    mean: Tensor
    scale: Tensor

    def __init__(self, rows: Any, num_scores: int) -> None:
        super().__init__()
        mean, scale = _moments(rows)
        self.register_buffer("mean", torch.from_numpy(mean))
        self.register_buffer("scale", torch.from_numpy(scale))
        self.limit = math.inf if sparse.issparse(rows) else LIMIT
        self.head = nn.Linear(rows.shape[1], num_scores)
        # Zero, not random: the optimum does not depend on the start, and what noise there is in
        # directions the data do not see would stay.
        nn.init.zeros_(self.head.weight)

    def forward(self, rows: Any) -> Tensor:
        if sparse.issparse(rows):
            return _SparseProduct.apply(self.head.weight / self.scale, rows) + self.head.bias
        standard = ((rows - self.mean) / self.scale).clamp(-self.limit, self.limit)
        return self.head(torch.where(standard.isnan(), 0.0, standard))


class _SparseProduct(torch.autograd.Function):
    """rows · weightsᵀ for scipy rows; the gradient is gradientᵀ · rows."""

    @staticmethod
    def forward(ctx: Any, weights: Tensor, rows: Any) -> Tensor:  # type: ignore[override]
        ctx.rows = rows
        return torch.from_numpy(rows @ weights.detach().numpy().T)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None]:  # type: ignore[override]
        return torch.from_numpy((ctx.rows.T @ gradient.numpy()).T), None


def _moments(rows: Any) -> tuple[Array, Array]:
    """Return mean and deviation of the columns' values; a constant column keeps scale 1."""
    if sparse.issparse(rows):
        square = np.asarray(rows.multiply(rows).mean(axis=0)).ravel()
        scale = np.sqrt(square)
        return np.zeros(rows.shape[1]), np.where(scale > 0, scale, 1.0)
    return column_moments(rows, heavy_tails=True, tolerance=1e-9)


def as_inputs(rows: Any) -> Any:
    """Return float64 rows: a tensor, or a CSR matrix where ``rows`` is one."""
    if sparse.issparse(rows):
        return rows.astype(np.float64)
    return torch.from_numpy(np.require(rows, np.float64, ["C", "W"]))


@torch.no_grad()
def scores(model: nn.Module, rows: Any) -> Array:
    """Return float64 scores; blocks of fixed size keep memory small."""
    model.eval()
    pieces = [rows[start : start + 4096] for start in range(0, rows.shape[0], 4096)]
    if not isinstance(model, Columns):
        pieces = [p.toarray() if sparse.issparse(p) else p for p in pieces]
    return torch.cat([model(as_inputs(piece)) for piece in pieces]).numpy()


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
    fold = fold_numbers(targets, min(folds, len(targets)), settings.seed)
    numbers = range(int(fold.max()) + 1)
    parts = [(np.flatnonzero(fold != n), np.flatnonzero(fold == n)) for n in numbers]
    if len(targets) == 1:
        parts = [(np.zeros(1, np.int64), np.zeros(1, np.int64))]
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
        pipeline.calibrate_stages(stages, targets, calibrate, coding="unknown")
    odds = stages.get(pipeline.link, stages[next(iter(stages))])
    held_out = Pipeline(None, pipeline.calibrator).probabilities(odds)
    return FittedModel(model.eval(), pipeline, held_out)


# Linear: to the optimum, cross-fitted ---------------------------------------------------------


def _cross_fitted(
    rows: Any, targets: Array, seed: int, loss: str, l2: float | None, calibrate: str, folds: int
) -> FittedModel:
    few = len(targets) < FEW_ROWS
    if few or (calibrate == "none" and l2 is not None):
        model, criterion = _linear(rows, targets, loss, FEW_ROWS_L2 if l2 is None else l2)
        stages = Pipeline(criterion).stages(scores(model, rows))
        return _calibrated(model, criterion, calibrate, stages, targets)
    part = fold_numbers(targets, folds, seed)
    table: list[dict[str, Any]] = []
    best: tuple[float, float, dict[str, Array]] | None = None
    for strength in L2 if l2 is None else (l2,):
        stages: dict[str, Array] = {}
        for fold in range(folds):
            out = part == fold
            other, other_criterion = _linear(rows[~out], targets[~out], loss, strength)
            for name, odds in Pipeline(other_criterion).stages(scores(other, rows[out])).items():
                stages.setdefault(name, np.empty(targets.shape))[out] = odds
        first = stages[next(iter(stages))]
        cost = _log_loss(first, targets) if l2 is None else 0.0
        table.append({"model": "linear", "l2": strength, "nll": cost})
        if best is not None and cost > best[0]:
            break  # strongest first: beyond the best the loss rises
        best = (cost, strength, stages)
    assert best is not None
    _, strength, stages = best
    model, criterion = _linear(rows, targets, loss, strength)
    fitted = _calibrated(model, criterion, calibrate, stages, targets)
    fitted.candidates = table
    return fitted


def _log_loss(odds: Array, targets: Array) -> float:
    """Return the log loss of known entries after an affine map, which losses without link need."""
    from credibly import calibrate

    known = targets >= 0
    if not known.any():
        return 0.0
    odds = calibrate.Affine().fit(odds, targets, coding="unknown").transform(odds)
    return float((np.logaddexp(0, odds) - np.where(known, targets, 0) * odds)[known].mean())


def _linear(rows: Any, targets: Array, loss: str, l2: float) -> tuple[nn.Module, Loss]:
    criterion = _criterion(loss, targets)
    model = Columns(rows, criterion.num_outputs(targets.shape[1])).double()
    set_prior_bias(model.head, criterion, targets)
    inputs, matrix = as_inputs(rows), torch.from_numpy(targets)
    known = max(int((targets >= 0).sum()), 1)
    minimise(model, criterion.train(), inputs, matrix, l2 / known)
    return model, criterion.eval()


def fold_numbers(targets: Array, folds: int, seed: int) -> Array:
    """Return a fold for each row, with the rows of each label spread evenly.

    Example:
        >>> fold_numbers(np.eye(2)[[0, 0, 1, 1]], 2, seed=0).tolist()
        [0, 1, 0, 1]
    """
    from credibly.data import rarest_label

    order = np.random.default_rng(seed).permutation(len(targets))
    order = order[np.argsort(rarest_label(targets)[order], kind="stable")]
    part = np.empty(len(targets), dtype=np.int64)
    part[order] = np.arange(len(targets)) % folds
    return part


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
    model.standardize.set(*_moments(rows), LIMIT)
    set_prior_bias(model.head, criterion, targets)
    return model.double()
