"""Which model for features: candidates within a budget, compared on rows they did not see.

What is tried follows from the number of rows, features and labels, never from the clock, so that
the same data and seed give the same run on any machine.
"""

from __future__ import annotations

import dataclasses
import math
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import nn

from credibly.checks import InputError
from credibly.models.network import Stack
from credibly.models.tree_growing import ForestOptions
from credibly.models.trees import TREES, Trees
from credibly.pipeline import Pipeline
from credibly.train.batches import mixed, number_of_batches, rows_per_step
from credibly.train.callbacks import Callback
from credibly.train.candidates import FIT, LEAVES, STAGES, Candidate, Problem
from credibly.train.configuration import MOST_MEMBERS, Settings, seconds
from credibly.train.distributed import threads_for
from credibly.train.folds import Folds
from credibly.types import Array

if TYPE_CHECKING:
    from credibly.data import Data
    from credibly.losses import Loss

FOLDS = 5
MAX_AXES = 4096
"""Above this number of rows and features, a linear model takes more steps."""

LARGEST_FOREST = 25_000_000
"""Most numbers in the leaves of a forest: 200 MB."""

LEAST_WEIGHT = 0.05
"""Share of the sum of weights below which a candidate is left out of the sum."""


@dataclasses.dataclass(frozen=True)
class Size:
    """What the cost of a candidate depends on."""

    rows: int
    features: int
    labels: int
    parts: int
    sparse: int = 0
    """Of the features, those that have one value in nine rows of ten."""

    @property
    def fits(self) -> int:
        """Return how often a model is trained that is trained on each part and then on all rows."""
        return self.parts + (self.parts > 1)

    @property
    def inside(self) -> int:
        """Return the rows that a part is trained on; one part alone has them all."""
        return self.rows if self.parts == 1 else self.rows * (self.parts - 1) // self.parts


def estimated_seconds(name: str, size: Size, steps: Settings) -> float:
    """Return about how long a candidate takes on one core, from 330 rows to 66,000.

    Example:
        >>> size = Size(rows=1000, features=100, labels=6, parts=5)
        >>> estimated_seconds("forest", size, Settings()) < 10
        True
    """
    n, d, labels = size.rows, size.features, size.labels
    if name == "linear":
        axes = min(n, d)
        step = n * (2e-7 + 2.8e-8 * labels)
        if axes > MAX_AXES:  # three times as many steps
            return size.fits * 3 * d * step
        return size.fits * (0.05 + axes * step) + 1e-9 * axes**3
    if name == "mlp":
        width = steps.hidden or 512
        inside = size.inside
        updates = number_of_batches(inside, rows_per_step(steps.batch_size, inside))
        weights = width * (d + labels)
        trained = size.parts + (steps.dropout is None)  # the first part with and without dropout
        epoch = updates * (7e-4 + 3.5e-9 * weights) + 6 * inside * weights / 5e10
        return trained * steps.epochs * epoch
    if name == "forest":
        columns = max(1.0, 0.3 * (d - 0.9 * size.sparse))  # trees pass over constant columns
        trees = len(LEAVES) * ForestOptions().trees
        return trees * n * math.log2(n + 1) * columns * (4e-9 + 6e-10 * labels) + 0.5
    trees = STAGES[-1] * labels * size.fits
    columns = d - 0.7 * size.sparse  # which have few bins
    return trees * (3e-4 + columns * (6.2e-6 + 2e-9 * size.inside))


def _forest_numbers(size: Size) -> int:
    return ForestOptions().trees * max(size.rows // 2, 1) * size.labels


def candidates(size: Size, settings: Settings) -> list[dict[str, Any]]:
    """Return the candidates with their estimated seconds, and the reason for those left out.

    ``mlp`` is always tried, and ``linear`` where it alone is within the budget. The others follow
    from the cheapest on, while the sum is within the budget.
    """
    budget = seconds(settings.budget)
    costs = {name: estimated_seconds(name, size, settings) for name in FIT}
    always = ("mlp", "linear") if costs["linear"] <= budget else ("mlp",)
    left = budget - sum(costs[name] for name in always)
    rows: list[dict[str, Any]] = [
        {"model": name, "seconds": float(f"{cost:.2g}")} for name, cost in costs.items()
    ]
    for row in sorted(rows, key=lambda row: costs[row["model"]]):
        if row["model"] in always:
            continue
        if row["model"] == "forest" and _forest_numbers(size) > LARGEST_FOREST:
            row["left_out"] = "its leaves would hold more than 200 MB"
        elif row["seconds"] > left:
            row["left_out"] = f"it would exceed the budget of {settings.budget}"
        else:
            left -= row["seconds"]
    return rows


def folds_for(settings: Settings, data: Data) -> int:
    """Return the number of folds: 5 where every row can be left out once within the budget, else 0.

    Data that name held-out rows keep them.
    """
    from credibly.data import TEST

    rows = int((data.split != TEST).sum())
    if not data.drawn or rows < 4 * FOLDS or data.features is None:
        return 0
    if settings.ensemble:  # every row is left out by some member
        return min(FOLDS, settings.ensemble)
    if settings.model == "forest":  # out-of-bag rows, whatever the number of folds
        return FOLDS
    size = Size(rows, data.features.shape[1], len(data.labels), FOLDS)
    if settings.model == "boosting":
        return FOLDS
    afford = sum(estimated_seconds(name, size, settings) for name in ("mlp", "linear"))
    return FOLDS if afford <= seconds(settings.budget) else 0


# Training -------------------------------------------------------------------------------------


def problem_of(rows: Data, criterion: Loss, settings: Settings) -> Problem:
    """Return the rows and parts of data as they are trained on."""
    from credibly.data import CALIBRATION, TEST, TRAIN

    assert rows.features is not None
    kept = np.flatnonzero(rows.split != TEST)
    split, targets = rows.split[kept], rows.dense_targets[kept].astype(np.float64)
    models = settings.ensemble or settings.folds or 1
    if settings.folds:
        folds = Folds.crossed(targets, settings.folds, settings.split_seed, models)
    else:
        part = np.flatnonzero(split == TRAIN), np.flatnonzero(split == CALIBRATION)
        folds = Folds([part] * models)
    return Problem(rows.features[kept], targets, criterion, folds, settings.seed, settings)


@dataclasses.dataclass
class Choice:
    """What was chosen.

    Attributes:
        model: the chosen model, or a weighted sum of several.
        members: name of each member of the model, in order.
        scores: of the scored rows, by models that were not trained on them.
        table: candidates with their figures and weights.
        tried: the candidates that were trained.
    """

    model: nn.Module
    members: list[str]
    scores: Array
    table: list[dict[str, Any]]
    tried: list[Candidate]

    def document(self, settings: Settings) -> dict[str, Any]:
        """Return what the run stores of it."""
        return {
            "version": 1,
            "budget": settings.budget,
            "folds": settings.folds,
            "candidates": self.table,
            "members": self.members,
        }


def choose(problem: Problem, settings: Settings, callback: Callback | None = None) -> Choice:
    """Train every candidate within the budget; return the best one, or their sum where it pays."""
    names = [settings.model] if settings.model in FIT else list(FIT)
    size = Size(len(problem.folds.trained), *_shape(problem), len(problem.folds), _sparse(problem))
    table = [row for row in candidates(size, settings) if row["model"] in names]
    tried: list[Candidate] = []
    import sklearn.ensemble  # noqa: F401 - its threads are limited only once it is loaded

    with torch.random.fork_rng(devices=[]), threads_for(problem.features.size):
        for done, row in enumerate(table):
            if callback is not None:
                callback.on_update(done, len(table))
            if "left_out" in row and len(names) > 1:
                continue
            row.pop("left_out", None)
            torch.manual_seed(mixed(problem.seed))
            candidate = FIT[row["model"]](problem)
            tried.append(candidate)
            figures = {key: _number(candidate.figures[key]) for key in ("nll", "map", "ace")}
            trials = [{**each, "cost": _number(each["cost"])} for each in candidate.trials]
            row.update(figures, **candidate.options, trials=trials)
    if callback is not None:
        callback.on_update(len(table), len(table))
    weights, scores = _weights(problem, tried)
    for row in table:
        row["weight"] = sum(
            weight
            for weight, candidate in zip(weights, tried, strict=True)
            if candidate.name == row["model"]
        )
    model, members = _combined(tried, weights)
    return Choice(model, members, scores, table, tried)


def _number(figure: float) -> float | None:
    """Return a figure as JSON can hold it; too few rows leave some undefined."""
    return figure if math.isfinite(figure) else None


def _shape(problem: Problem) -> tuple[int, int]:
    return problem.features.shape[1], problem.targets.shape[1]


def _sparse(problem: Problem) -> int:
    """Return how many columns have one value in nine rows of ten, of about a thousand rows."""
    rows = problem.folds.trained[:: -(-len(problem.folds.trained) // 1024)]
    ordered = np.sort(problem.features[rows], axis=0)
    return int((ordered[len(rows) // 20] == ordered[-1 - len(rows) // 20]).sum())


def _combined(tried: list[Candidate], weights: list[float]) -> tuple[nn.Module, list[str]]:

    members, shares, names = [], [], []
    for candidate, weight in zip(tried, weights, strict=True):
        if weight > 0:
            members += candidate.members
            shares += [weight / len(candidate.members)] * len(candidate.members)
            names += [candidate.name] * len(candidate.members)
    return Stack(members, shares), names


def _weights(problem: Problem, tried: list[Candidate]) -> tuple[list[float], Array]:
    """Return the weight of each candidate, and the weighted sum of their scores.

    The sum is taken where its log loss over the scored rows is lower than that of the best
    candidate by more than one standard error, both with a slope and a shift of their own; else the
    best candidate alone.
    """
    best = min(range(len(tried)), key=lambda place: tried[place].figures["selection"])
    alone = [float(place == best) for place in range(len(tried))]
    if len(tried) == 1:
        return alone, tried[0].scores
    stack = np.stack([candidate.scores for candidate in tried])
    weights, _ = fitted_sum(problem, stack)
    weights = np.where(weights < LEAST_WEIGHT * weights.sum(), 0.0, weights)
    if (weights > 0).sum() < 2:
        return alone, tried[best].scores
    scores = np.tensordot(weights, stack, axes=1)
    gain = _row_losses(problem, tried[best].scores) - _row_losses(problem, scores)
    if gain.mean() > gain.std(ddof=1) / math.sqrt(len(gain)):
        return weights.tolist(), scores
    return alone, tried[best].scores


def fitted_sum(problem: Problem, stack: Array) -> tuple[Array, float]:
    """Return weights of at least 0, one for each score of ``stack``, and the shift of their sum.

    They have the lowest loss of the scored rows. The shift is 0 without a calibrator that could
    make up for it.
    """
    from scipy.optimize import minimize

    each, shifts = torch.from_numpy(stack), problem.steps.calibrate not in ("none", "temperature")
    targets = torch.from_numpy(problem.targets[problem.folds.scored])

    def value_and_slope(vector: Array) -> tuple[float, Array]:
        place = torch.from_numpy(vector.copy()).requires_grad_()
        scores = torch.tensordot(place[:-1], each, dims=1) + place[-1] * shifts
        loss = problem.criterion(scores, targets)
        (slope,) = torch.autograd.grad(loss, place)
        return float(loss.detach()), slope.numpy()

    start = np.append(np.full(len(stack), 1 / len(stack)), 0.0)
    bounds = [*[(0.0, None)] * len(stack), (None, None)]
    how: dict[str, Any] = {"method": "L-BFGS-B", "options": {"gtol": 1e-8, "ftol": 1e-13}}
    found = minimize(value_and_slope, start, jac=True, bounds=bounds, **how).x
    return found[:-1], float(found[-1])


def _row_losses(problem: Problem, scores: Array) -> Array:
    """Return the mean log loss of each scored row with known labels, with slope and shift fitted.

    A calibrator also bounds log-odds by those seen; that helps most where one model left out the
    only rows of a label, and would decide the comparison.
    """
    targets = problem.targets[problem.folds.scored]
    if problem.steps.calibrate != "none":
        weights, shift = fitted_sum(problem, scores[None])
        scores = weights[0] * scores + shift
    odds = Pipeline(problem.criterion).link_log_odds(scores)
    known = targets >= 0
    losses = np.logaddexp(0, odds) - np.where(known, targets, 0) * odds
    counts = known.sum(axis=1)
    return (np.where(known, losses, 0).sum(axis=1) / np.maximum(counts, 1))[counts > 0]


# Storage --------------------------------------------------------------------------------------


def members_of(document: dict[str, Any], path: Path) -> list[str]:
    """Return the names of the members of a run's model, checked."""
    members = document.get("members")
    named = isinstance(members, list) and all(isinstance(name, str) for name in members)
    if not named or not members or not set(members) <= set(FIT):
        known = ", ".join(FIT)
        raise InputError(f"{path} must hold `members`, a list of {known}; got {members!r:.80}.")
    if len(members) > MOST_MEMBERS:
        raise InputError(
            f"{path} must hold at most {MOST_MEMBERS:,} `members`; got {len(members):,}."
        )
    return members


def empty_members(
    members: list[str], num_features: int, num_labels: int, settings: Settings
) -> nn.Module:
    """Return a model of these members with fresh weights of the right shapes."""
    from credibly import models

    built: list[nn.Module] = []
    for name in members:
        if name in TREES:
            built.append(Trees(name, num_features, num_labels))
        else:
            hidden = settings.hidden if name == "mlp" else None
            built.append(models.build(name, (num_features,), num_labels, hidden=hidden))
    return Stack(built)
