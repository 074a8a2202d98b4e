"""Models for features, compared on rows they did not see: what ``Auto`` does.

Each candidate is trained on the rows of every fold and scores the rows that the fold leaves out;
these scores compare, weight and calibrate. What is tried follows from the number of rows, features
and labels, never from the clock, so that the same data and seed give the same run on any machine.
"""

from __future__ import annotations

import copy
import dataclasses
import math
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor, nn

from credibly.checks import InputError
from credibly.models.network import LIMIT, Stack
from credibly.models.tree_growing import Booster, BoostingOptions, ForestOptions, grow_forest
from credibly.models.trees import TREES, Trees
from credibly.pipeline import Pipeline
from credibly.train import linear
from credibly.train.assembly import set_prior_bias
from credibly.train.batches import mixed, number_of_batches, rows_per_step
from credibly.train.callbacks import Callback
from credibly.train.evaluation import EpochEvaluator
from credibly.train.folds import Folds
from credibly.train.recipes import MAX_MEMBERS, Auto, Ensemble, Network, Recipe, seconds
from credibly.train.run_folder import MIN_ROWS
from credibly.train.trainer import Trainer
from credibly.types import Array

if TYPE_CHECKING:
    from credibly.data import Data
    from credibly.losses import Loss

FOLDS = 5

LEAVES = (1, 3)
"""Fewest rows of a leaf of ``forest``. Left-out rows choose."""

STAGES = (10, 20, 30, 45, 70, 100)
"""Iterations of ``boosting``. Left-out rows choose."""

MAX_AXES = 4096
"""Above this number of rows and features, a linear model takes more network."""

LARGEST_FOREST = 25_000_000
"""Most numbers in the leaves of a forest: 200 MB."""

LEAST_WEIGHT = 0.05
"""Share of the sum of weights below which a candidate is left out of the sum."""


@dataclasses.dataclass(frozen=True)
class Problem:
    """Rows to train on, and how they are divided.

    Attributes:
        features: (n, d), float32.
        targets: (n, L) of 0, 1, soft values and −1 for unknown, float64.
        criterion: the loss whose link makes log-odds of scores: ``bce`` or ``softmax``.
        folds: for each model to train, the rows it is trained on and the rows that it scores.
        network: how networks are trained.
        seed: of everything random.
        snapshots: networks kept of each training.
    """

    features: Array
    targets: Array
    criterion: Loss
    folds: Folds
    network: Network
    seed: int = 0
    snapshots: int = 1

    @property
    def crossed(self) -> bool:
        """Return whether every row is left out by some model, so that all rows can train."""
        return len(self.folds.scored) == len(self.targets)

    @property
    def exclusive(self) -> bool:
        """Return whether exactly one label is present in each row."""
        return not self.criterion.labelwise

    def figures(self, scores: Array, rows: Array | None = None) -> dict[str, float]:
        """Return the metrics of scored rows after an affine calibration of them."""
        rows = self.folds.scored if rows is None else rows
        pipeline = Pipeline(self.criterion)
        evaluator = EpochEvaluator(self.network, None, self.targets[rows])
        return evaluator.figures(pipeline.link_log_odds(scores), pipeline.ranking_scores(scores))


@dataclasses.dataclass
class Candidate:
    """A trained candidate.

    Attributes:
        name: of the kind of model.
        members: trained models; their mean score is the candidate's.
        scores: of the scored rows, by models that were not trained on them.
        options: what left-out rows chose for it.
        figures: metrics of ``scores``.
        trials: every setting that was tried, in order, with its cost; the cheapest is chosen.
    """

    name: str
    members: list[nn.Module]
    scores: Array
    options: dict[str, Any]
    figures: dict[str, float]
    trials: list[dict[str, Any]]


@torch.no_grad()
def scores_of(model: nn.Module, inputs: Tensor) -> Array:
    """Return the scores of rows, in blocks, as float64."""
    model.eval()
    return torch.cat([model(block) for block in inputs.split(4096)]).double().numpy()


# Linear ---------------------------------------------------------------------------------------


def fit_linear(problem: Problem) -> Candidate:
    """Solve to the optimum; left-out rows choose the penalty."""
    from credibly import models

    rows, count = problem.folds.trained, problem.targets.shape[1]
    network = models.build("linear", problem.features.shape[1:], count)
    network.standardize.fit(problem.features[rows], LIMIT)
    set_prior_bias(network.head, problem.criterion, problem.targets[rows])
    found = linear.solve(
        *(network.standardize.applied(problem.features), problem.targets, problem.criterion),
        *(problem.folds, lambda scores, odds: problem.figures(scores)),
        bias=network.head.bias.detach().double().numpy(),
    )
    found.layer.copy_to(network.head)
    trials = [{"l2": row["l2"], "cost": row["selection"]} for row in found.tried]
    figures = problem.figures(found.scores)
    return Candidate("linear", [network.eval()], found.scores, {"l2": found.l2}, figures, trials)


# Network --------------------------------------------------------------------------------------


def fit_mlp(problem: Problem, dropouts: Sequence[float | None] = (None, 0.0)) -> Candidate:
    """Train a network on each part, its epoch chosen by the rows left out; keep all of them.

    The first part is trained with the model's own dropout and without any, unless it is given; the
    rest as the one of the two that is better on the rows that the first part leaves out.
    """
    if problem.network.dropout is not None:
        dropouts = (problem.network.dropout,)
    tried = [_trained_mlp(problem, 0, dropout) for dropout in dropouts]
    best = min(range(len(tried)), key=lambda place: tried[place].cost)
    parts = [tried[best]]
    parts += [_trained_mlp(problem, n, dropouts[best]) for n in range(1, len(problem.folds))]
    crossed = problem.folds.averaged([part.scores for part in parts])
    options = {"dropout": 0.0} if best else {}
    members = [network for part in parts for network in part.networks]
    trials = [
        {"dropout": dropout, "cost": part.cost}
        for dropout, part in zip(dropouts, tried, strict=True)
    ]
    return Candidate("mlp", members, crossed, options, problem.figures(crossed), trials)


class MatrixRows:
    """Rows of a matrix as the trainer takes them."""

    lengths: Array | None = None

    def __init__(self, rows: Array, targets: Array) -> None:
        self.rows, self.targets = torch.from_numpy(rows), torch.from_numpy(targets)

    def __len__(self) -> int:
        return len(self.rows)

    def set_epoch(self, epoch: int) -> None:
        """Do nothing: features are not augmented."""

    def batch(self, index: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Return inputs, targets and row numbers."""
        return self.rows[index], self.targets[index], index


@dataclasses.dataclass
class _Trained:
    networks: list[nn.Module]
    scores: Array
    cost: float


def _trained_mlp(problem: Problem, number: int, dropout: float | None) -> _Trained:
    """Return the snapshots of a network of one part, and their scores of the rows it leaves out."""
    features, targets = problem.features.astype(np.float32), problem.targets.astype(np.float32)
    inside, outside = problem.folds.parts[number]
    seed, cycles = mixed(problem.seed, number) % 2**31, problem.snapshots
    epochs = -(-problem.network.epochs // cycles)
    steps = dataclasses.replace(problem.network, epochs=epochs)
    torch.manual_seed(mixed(seed))
    network = _mlp(problem, features[inside], targets[inside], dropout)
    rows = MatrixRows(features[inside], targets[inside])
    left_out = MatrixRows(features[outside], targets[outside])
    kept: list[nn.Module] = []
    for cycle in range(cycles):
        evaluator = EpochEvaluator(steps, left_out, targets[outside])
        criterion = copy.deepcopy(problem.criterion)
        own = mixed(seed, cycle) % 2**31 if cycle else seed
        trainer = Trainer(steps, network, criterion, rows, evaluator, seed=own)
        trainer.run()
        trainer.finish()
        kept.append(copy.deepcopy(network).eval() if cycles > 1 else network.eval())
    inputs = torch.from_numpy(features[outside])
    scores = np.mean([scores_of(snapshot, inputs) for snapshot in kept], axis=0)
    return _Trained(kept, scores, problem.figures(scores, outside)["selection"])


def _mlp(problem: Problem, features: Array, targets: Array, dropout: float | None) -> Any:
    from credibly import models

    network = models.build(
        "mlp",
        features.shape[1:],
        targets.shape[1],
        hidden=problem.network.hidden,
        dropout=dropout,
    )
    network.standardize.fit(features, LIMIT)
    set_prior_bias(network.head, problem.criterion, targets)
    return network


# Trees ----------------------------------------------------------------------------------------


def fit_forest(problem: Problem, leaves: Sequence[int] = LEAVES) -> Candidate:
    """Grow a forest; rows that a tree did not see choose the size of the leaves."""

    rows, best, trials = problem.folds.trained, None, []
    for leaf in leaves:
        model, scores = grow_forest(
            problem.features[rows],
            problem.targets[rows],
            problem.seed,
            ForestOptions(leaf=leaf),
            exclusive=problem.exclusive,
        )
        if not problem.crossed:
            left_out = torch.from_numpy(problem.features[problem.folds.scored])
            scores = scores_of(model, left_out.double())
        figures = problem.figures(scores)
        trials.append({"leaf": leaf, "cost": figures["selection"]})
        if best is None or figures["selection"] < best.figures["selection"]:
            best = Candidate("forest", [model], scores, {"leaf": leaf}, figures, trials)
    assert best is not None
    return best


def fit_boosting(problem: Problem, all_stages: tuple[int, ...] = STAGES) -> Candidate:
    """Boost on each part; left-out rows choose the iterations, then on all rows.

    The first part bounds the iterations of the others: one stage more than were best for it.
    """

    options = BoostingOptions(iterations=all_stages[-1])

    def booster(rows: Array, most: int) -> Booster:
        return Booster(
            problem.features[rows],
            problem.targets[rows],
            problem.seed,
            dataclasses.replace(options, iterations=most),
            exclusive=problem.exclusive,
        )

    stages, left_out = all_stages, []
    last = None
    for inside, outside in problem.folds.parts:
        last = booster(inside, stages[-1])
        left_out.append(last.staged(problem.features[outside], stages))
        if len(left_out) == 1:  # the other parts go one stage beyond the best of the first
            costs = [problem.figures(scores, outside)["selection"] for scores in left_out[0]]
            stages = all_stages[: int(np.argmin(costs)) + 2]
    crossed = [problem.folds.averaged([part[at] for part in left_out]) for at in range(len(stages))]
    figures = [problem.figures(scores) for scores in crossed]
    trials = [
        {"iterations": stage, "cost": each["selection"]}
        for stage, each in zip(stages, figures, strict=True)
    ]
    at = int(np.argmin([each["cost"] for each in trials]))
    if last is None or len(problem.folds) > 1:
        last = booster(problem.folds.trained, stages[at])
    chosen = {"iterations": stages[at]}
    model = last.model(stages[at])
    return Candidate("boosting", [model], crossed[at], chosen, figures[at], trials)


FIT: dict[str, Callable[[Problem], Candidate]] = {
    "linear": fit_linear,
    "mlp": fit_mlp,
    "forest": fit_forest,
    "boosting": fit_boosting,
}
"""How each candidate is trained, by name."""


# What is tried -------------------------------------------------------------------------------


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


def estimated_seconds(name: str, size: Size, network: Network) -> float:
    """Return about how long a candidate takes on one core, from 330 rows to 66,000.

    Example:
        >>> size = Size(rows=1000, features=100, labels=6, parts=5)
        >>> estimated_seconds("forest", size, Network()) < 10
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
        width = network.hidden or 512
        inside = size.inside
        updates = number_of_batches(inside, rows_per_step(network.batch_size, inside))
        weights = width * (d + labels)
        trained = size.parts + (network.dropout is None)  # the first part with and without dropout
        epoch = updates * (7e-4 + 3.5e-9 * weights) + 6 * inside * weights / 5e10
        return trained * network.epochs * epoch
    if name == "forest":
        columns = max(1.0, 0.3 * (d - 0.9 * size.sparse))  # trees pass over constant columns
        trees = len(LEAVES) * ForestOptions().trees
        return trees * n * math.log2(n + 1) * columns * (4e-9 + 6e-10 * labels) + 0.5
    trees = STAGES[-1] * labels * size.fits
    columns = d - 0.7 * size.sparse  # which have few bins
    return trees * (3e-4 + columns * (6.2e-6 + 2e-9 * size.inside))


def _forest_numbers(size: Size) -> int:
    return ForestOptions().trees * max(size.rows // 2, 1) * size.labels


def candidates(size: Size, recipe: Recipe) -> list[dict[str, Any]]:
    """Return the candidates with their estimated seconds, and the reason for those left out.

    ``mlp`` is always tried, and ``linear`` where it alone is within the budget. The others follow
    from the cheapest on, while the sum is within the budget.
    """
    limit = recipe.budget if isinstance(recipe, Auto) else "60s"
    budget, network = seconds(limit), recipe.network()
    costs = {name: estimated_seconds(name, size, network) for name in FIT}
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
            row["left_out"] = f"it would exceed the budget of {limit}"
        else:
            left -= row["seconds"]
    return rows


def folds_for(recipe: Recipe, data: Data) -> int:
    """Return the number of folds: 5 where every row can be left out once within the budget, else 0.

    Data that name held-out rows keep them. Of few rows, trees leave out half.
    """
    from credibly.data.splits import TEST

    rows = int((data.split != TEST).sum())
    if data.features is None:
        return 0
    if rows < MIN_ROWS:
        if rows < 4:
            raise InputError(
                f"`model` {recipe.model} needs at least 4 rows to train and choose by; "
                f"{data.source} has {rows}. Use `model` linear."
            )
        return 2
    if isinstance(recipe, Ensemble):  # every row is left out by some member
        return min(FOLDS, recipe.ensemble)
    if not isinstance(recipe, Auto):
        return FOLDS
    size = Size(rows, data.features.shape[1], len(data.labels), FOLDS)
    network = recipe.network()
    afford = sum(estimated_seconds(name, size, network) for name in ("mlp", "linear"))
    return FOLDS if afford <= seconds(recipe.budget) else 0


# Training -------------------------------------------------------------------------------------


def problem_of(rows: Data, criterion: Loss, recipe: Recipe, seed: int) -> Problem:
    """Return the rows and parts of data as they are trained on."""
    from credibly.data.splits import CALIBRATION, TEST, TRAIN

    assert rows.features is not None
    kept = np.flatnonzero(rows.split != TEST)
    split, targets = rows.split[kept], rows.dense_targets[kept].astype(np.float64)
    members, snapshots = 0, 1
    if isinstance(recipe, Ensemble):
        members, snapshots = recipe.ensemble, recipe.snapshots
    models = members or recipe.folds or 1
    if recipe.folds:
        folds = Folds.crossed(targets, recipe.folds, recipe.split_seed, models)
    else:
        part = np.flatnonzero(split == TRAIN), np.flatnonzero(split == CALIBRATION)
        folds = Folds([part] * models)
    network = recipe.network()
    return Problem(rows.features[kept], targets, criterion, folds, network, seed, snapshots)


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

    def document(self, recipe: Recipe) -> dict[str, Any]:
        """Return what the run stores of it."""
        return {
            "version": 1,
            "folds": recipe.folds,
            "candidates": self.table,
            "members": self.members,
        }


def choose(problem: Problem, recipe: Recipe, callback: Callback | None = None) -> Choice:
    """Train every candidate within the budget; return the best one, or their sum where it pays."""
    names = [recipe.model] if recipe.model in FIT else list(FIT)
    size = Size(len(problem.folds.trained), *_shape(problem), len(problem.folds), _sparse(problem))
    table = [row for row in candidates(size, recipe) if row["model"] in names]
    tried: list[Candidate] = []
    with torch.random.fork_rng(devices=[]):
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

    each, shifts = torch.from_numpy(stack), problem.network.calibrate not in ("none", "temperature")
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
    if problem.network.calibrate != "none":
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
    if len(members) > MAX_MEMBERS:
        raise InputError(
            f"{path} must hold at most {MAX_MEMBERS:,} `members`; got {len(members):,}."
        )
    return members


def empty_members(
    members: list[str], num_features: int, num_labels: int, network: Network
) -> nn.Module:
    """Return a model of these members with fresh weights of the right shapes."""
    from credibly import models

    built: list[nn.Module] = []
    for name in members:
        if name in TREES:
            built.append(Trees(name, num_features, num_labels))
        else:
            hidden = network.hidden if name == "mlp" else None
            built.append(models.build(name, (num_features,), num_labels, hidden=hidden))
    return Stack(built)
