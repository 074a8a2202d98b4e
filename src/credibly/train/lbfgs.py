"""The linear probe: a last layer trained to the optimum by L-BFGS, its L2 weight chosen.

Protocol of the two-way loss's supplement: 45 weights, evenly spaced on a log scale from 1e-6 to
1e5. There the best on test is reported; here held-out rows choose.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor, nn

from credibly.train import checkpoint as checkpoints
from credibly.train.callbacks import Callback
from credibly.train.checkpoint import Checkpoint
from credibly.train.configuration import Settings
from credibly.train.distributed import SingleProcess, score
from credibly.train.evaluation import EpochEvaluator
from credibly.types import Array

if TYPE_CHECKING:
    from credibly.data import Data, SparseRows
    from credibly.losses import Loss
    from credibly.models import Tfidf

SWEEP = np.logspace(-6, 5, 45)
SPARSE_SWEEP = (3.0, 1.0, 0.3, 0.1, 0.03, 0.01, 0.003)
"""L2 weights for sparse rows of norm 1, strongest first: scikit-learn's 1/C."""

SPARSE_ITERATIONS = 30
BLOCK = 32
"""Labels that are solved together where the loss takes them one by one."""

ROWS_AT_ONCE = 4096
"""Rows that are scored together."""

HISTORY = 5
"""Pairs of vectors that L-BFGS keeps for sparse models, each as large as the model."""


def minimise(
    model: nn.Module,
    criterion: Loss,
    inputs: object,
    targets: Tensor,
    decay: float,
    *,
    max_iterations: int = 200,
    tolerance: float | None = None,
    units: Array | None = None,
) -> float:
    """Move ``model`` to the minimum of loss + decay/2·‖weights‖² over all rows at once.

    Full batch, float64, deterministic; the model's parameters hold the result. Biases are not
    decayed. ``inputs``, whatever the model takes, and ``targets`` are float64. It ends where a step
    gains less than ``tolerance``, as a share (SciPy's if None). ``units`` are those in which the
    parameters are searched; about one over the root of the curvature is quickest.

    Example:
        >>> from credibly.losses import BCE
        >>> layer = nn.Linear(1, 1)
        >>> targets = torch.tensor([[1.0], [0], [0], [0]]).double()
        >>> _ = minimise(layer, BCE(), torch.zeros(4, 1).double(), targets, decay=0.1)
        >>> round(torch.sigmoid(layer.bias).item(), 4)
        0.25
    """
    from scipy.optimize import minimize

    kind = next(model.parameters()).dtype
    model.double()
    trained = [parameter for parameter in model.parameters() if parameter.requires_grad]

    def value_and_slope(vector: Array) -> tuple[float, Array]:
        _set(trained, vector * unit)
        for parameter in trained:
            parameter.grad = None
        loss = criterion(model(inputs), targets)
        decayed = sum((p.square().sum() for p in trained if p.ndim > 1), start=torch.zeros(()))
        total = loss + decay / 2 * decayed
        total.backward()
        slopes = [torch.zeros_like(p) if p.grad is None else p.grad for p in trained]
        slope = torch.cat([slope.flatten() for slope in slopes]).numpy()
        return float(total.detach()), slope * unit

    unit = 1.0 if units is None else units
    start = torch.cat([p.detach().flatten() for p in trained]).numpy() / unit
    options = {"maxiter": max_iterations, "maxfun": 2 * max_iterations}
    options |= {} if tolerance is None else {"ftol": tolerance}
    found = minimize(value_and_slope, start, jac=True, method="L-BFGS-B", options=options)
    _set(trained, found.x * unit)
    for parameter in trained:
        parameter.grad = None
    model.to(kind)
    return float(found.fun)


def loss_terms(criterion: Loss, targets: Tensor) -> int:
    """Return how many terms the loss is a mean of, so that scikit-learn's 1/C is penalty/terms.

    They are the known entries, or the rows where labels are not taken one by one.
    """
    return max(int((targets >= 0).sum()), 1) if criterion.labelwise else len(targets)


def minimise_sparse(
    model: Tfidf, criterion: Loss, inputs: object, targets: Tensor, decay: float
) -> float:
    """Do what ``minimise`` does in float32 and with little memory, for models with many weights.

    Where the loss takes labels one by one, some labels are solved after others: L-BFGS keeps some
    fifteen vectors as large as what it solves.
    """
    from credibly.losses import BinaryLoss

    head, count = model.head, targets.shape[1]
    # The family of losses of single entries; `labelwise` is about links, and pairs have one too.
    separate = isinstance(criterion, BinaryLoss) and head.bias.numel() == count
    separate = separate and not any(True for _ in criterion.buffers())  # weights per label
    if not separate or count <= BLOCK:
        return decay * _minimum(model, criterion, inputs, targets, 1 / decay)
    known, total = max(int((targets >= 0).sum()), 1), 0.0
    for labels in torch.arange(count).split(BLOCK):
        own = targets[:, labels].contiguous()
        share = int((own >= 0).sum()) / known
        if share == 0:
            continue  # nothing is known of these labels
        part = head.columns(labels)
        total += decay * _minimum(part, criterion, inputs, own, share / decay)
        head.set_columns(labels, part)
    return total


def _minimum(
    model: nn.Module, criterion: Loss, inputs: object, targets: Tensor, weight: float
) -> float:
    """Move ``model`` to the minimum of weight · loss + ½‖weights‖², and return that.

    With the weight on the loss the slopes are neither tiny nor huge.
    """
    trained = [parameter for parameter in model.parameters() if parameter.requires_grad]

    def closure() -> Tensor:
        for parameter in trained:
            parameter.grad = None
        loss = criterion(model(inputs), targets)
        decayed = sum((p.square().sum() for p in trained if p.ndim > 1), start=torch.zeros(()))
        total = loss * weight + decayed / 2
        total.backward()
        return total.detach()

    optimizer = torch.optim.LBFGS(
        trained,
        max_iter=SPARSE_ITERATIONS,
        history_size=HISTORY,
        tolerance_grad=0.0,
        tolerance_change=0.0,
        line_search_fn="strong_wolfe",
    )
    optimizer.step(closure)
    value = float(closure())
    for parameter in trained:
        parameter.grad = None
    return value


@torch.no_grad()
def _set(parameters: list[nn.Parameter], vector: Array) -> None:
    start = 0
    for parameter in parameters:
        stop = start + parameter.numel()
        parameter.copy_(torch.from_numpy(vector[start:stop]).view_as(parameter))
        start = stop


def solve(
    settings: Settings,
    model: Any,
    criterion: Loss,
    train: Data,
    evaluator: EpochEvaluator,
    folder: Path,
    callback: Callback,
) -> Tensor | None:
    """Train ``model`` for each L2 weight, strongest first; leave it at the best one.

    Each start is the last result. A checkpoint follows each weight, so an interrupted sweep goes
    on where it was, to the same end.

    With ``settings.folds``, models that each leave one fold out choose the weight by their scores
    of that fold; ``model`` is then trained on all rows, from the mean of these models. Returns
    their scores, one row for each training row; None without folds.
    """
    problems = _problems(settings, model, criterion, train)
    steps = len(problems[0].decays)
    done, best, best_at = 0, math.inf, -1
    kept: dict[str, Tensor] = {}
    with checkpoints.restoring(folder) as saved:
        if saved is not None:
            done, best_at = int(saved.values["done"]), int(saved.values["best_at"])
            best = float(saved.values["best"])
            _load(problems, criterion, saved)
            kept = saved.group("best")
    for at in range(done, steps):
        criterion.train()
        if settings.patience and at - best_at > settings.patience and best_at >= 0:
            break
        loss = sum(problem.minimise(criterion, at) for problem in problems) / len(problems)
        criterion.eval()
        figures = evaluator(criterion, _scores(problems, evaluator))
        lower = figures.pop("selection")
        if lower < best or best_at < 0:
            best, best_at = lower, at
            kept = {name: each.clone() for name, each in _state(problems, criterion).items()}
        tensors = {**_state(problems, criterion), **checkpoints.prefixed("best", kept)}
        values = {"done": at + 1, "best": repr(best), "best_at": best_at}
        l2 = float(problems[0].decays[at]) * len(problems[0].rows)
        row = {"epoch": at + 1, "l2": l2, "loss": loss}
        callback.on_epoch({**row, **figures, "best_epoch": best_at + 1})
        checkpoints.write(folder, at + 1, Checkpoint(tensors, values))
        callback.on_update(at + 1, steps)
    _load(problems, criterion, Checkpoint(kept))
    if not settings.folds:
        return None
    crossed = _scores(problems, evaluator)
    set_mean(model, [problem.model for problem in problems])
    del problems, kept
    criterion.train()
    _Problem(model, train, None, _decays(settings, criterion, train)).minimise(criterion, best_at)
    criterion.eval()
    return crossed


class _Problem:
    """A model, the rows it is trained on, the L2 weights, and the places of the rows to score."""

    def __init__(self, model: Any, rows: Data, left_out: Array | None, decays: Array) -> None:
        self.model, self.rows, self.left_out, self.decays = model, rows, left_out, decays
        self.sparse = rows.features is None
        targets = torch.from_numpy(rows.dense_targets)
        self.inputs: Any = (
            _sparse(rows).whole() if self.sparse else torch.from_numpy(rows.features).double()
        )
        self.targets = targets if self.sparse else targets.double()

    def minimise(self, criterion: Loss, at: int) -> float:
        """Train the model on its rows with the L2 weight at this place; return the minimum."""
        self.model.train()
        reduce = minimise_sparse if self.sparse else minimise
        return reduce(self.model, criterion, self.inputs, self.targets, float(self.decays[at]))


def _problems(settings: Settings, model: Any, criterion: Loss, train: Data) -> list[_Problem]:
    """Return the models to choose the L2 weight by: ``model``, or a copy for each fold."""
    if not settings.folds:
        return [_Problem(model, train, None, _decays(settings, criterion, train))]
    fold = _folds(train.dense_targets, settings.folds, settings.split_seed)
    problems = []
    for number in range(settings.folds):
        rows = train.take(np.flatnonzero(fold != number))
        left_out, decays = np.flatnonzero(fold == number), _decays(settings, criterion, rows)
        problems.append(_Problem(copy.deepcopy(model), rows, left_out, decays))
    return problems


def _folds(targets: Array, count: int, seed: int) -> Array:
    """Return the fold of each row; rows of the same rarest label are dealt evenly."""
    from credibly.data import rarest_label

    shuffled = np.random.default_rng(seed).permutation(len(targets))
    order = shuffled[np.argsort(rarest_label(targets)[shuffled], kind="stable")]
    folds = np.empty(len(targets), dtype=np.int64)
    folds[order] = np.arange(len(targets)) % count
    return folds


@torch.no_grad()
def _scores(problems: list[_Problem], evaluator: EpochEvaluator) -> Tensor:
    """Return the scores of the evaluator's rows, each by the model that left it out."""
    dataset: Any = evaluator.rows
    if problems[0].left_out is None:
        return score(problems[0].model, dataset, SingleProcess())
    parts, places = [], []
    for problem in problems:
        assert problem.left_out is not None  # all have folds, or none has
        problem.model.eval()
        for rows in torch.from_numpy(problem.left_out).split(ROWS_AT_ONCE):
            parts.append(problem.model(dataset.batch(rows)[0]))
            places.append(rows)
    return torch.cat(parts)[torch.argsort(torch.cat(places))]


@torch.no_grad()
def set_mean(model: nn.Module, others: Sequence[nn.Module]) -> None:
    """Set the parameters of ``model`` to the mean of those of others."""
    for parameter, *theirs in zip(
        model.parameters(), *(other.parameters() for other in others), strict=True
    ):
        parameter.copy_(sum(theirs, start=torch.zeros_like(parameter)) / len(theirs))


def _decays(settings: Settings, criterion: Loss, train: Data) -> Array:
    """Return the factors on ½‖weights‖² beside the mean loss, strongest first."""
    if not settings.sweep:
        return np.array([settings.weight_decay])
    if train.features is not None:
        return SWEEP[::-1] / len(train)
    # A mean over entries where the loss takes labels one by one, else over rows.
    summed = int((train.dense_targets >= 0).sum()) if criterion.labelwise else len(train)
    return np.array(SPARSE_SWEEP) / max(summed, 1)


def _sparse(train: Data) -> SparseRows:
    from credibly.data import SparseRows

    assert isinstance(train.encoded, SparseRows)  # resolve_settings refuses others
    return train.encoded


def _state(problems: list[_Problem], criterion: Loss) -> dict[str, Tensor]:
    own = checkpoints.prefixed("loss", criterion.state_dict())
    for name, problem in zip(_names(problems), problems, strict=True):
        own |= checkpoints.prefixed(name, problem.model.state_dict())
    return own


def _load(problems: list[_Problem], criterion: Loss, saved: Checkpoint) -> None:
    criterion.load_state_dict(saved.group("loss"))
    for name, problem in zip(_names(problems), problems, strict=True):
        problem.model.load_state_dict(saved.group(name))


def _names(problems: list[_Problem]) -> list[str]:
    return ["model", *(f"fold{number}" for number in range(1, len(problems)))]
