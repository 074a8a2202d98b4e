"""Compare models for features on out-of-fold scores: the implementation of ``Auto``.

Each candidate is trained once per fold, on the training rows of the fold, and scores the rows that
the fold leaves out. These out-of-fold scores select the candidates, weight them and fit the
calibrator. Candidates are tried from the cheapest to the most expensive. A candidate that does not
improve the first fold is not trained on the others. Data, options and seed determine what is
tried, never the clock, so two runs give the same bytes.
"""

from __future__ import annotations

import copy
import dataclasses
import math
import time
from collections.abc import Callable
from functools import cached_property, partial
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor, nn

from credibly import models
from credibly.checks import InputError
from credibly.data.splits import TEST
from credibly.models.network import NetworkModule, Stack
from credibly.models.trees import (
    COLUMN_SHARE,
    TREES,
    TREES_OF_FOREST,
    Booster,
    TreesModule,
    grow_forest,
)
from credibly.pipeline import Pipeline
from credibly.train.callbacks import Callback
from credibly.train.distributed import EpochEvaluator, mixed, number_of_batches, rows_per_step
from credibly.train.linear import Folds, solve_head
from credibly.train.recipes import MAX_MEMBERS, Auto, Ensemble, Network, Recipe, seconds
from credibly.train.run_folder import MIN_ROWS
from credibly.train.training_loop import Trainer
from credibly.types import Array, JsonObject

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
    """Rows to train on, and their folds.

    Attributes:
        rows: with features.
        criterion: the loss whose link turns scores into log-odds: ``bce`` or ``softmax``.
        folds: for each model to train, the rows that train it and the rows that it scores.
        network: how networks are trained.
        seed: of all randomness.
    """

    rows: Data
    criterion: Loss
    folds: Folds
    network: Network
    seed: int = 0

    @cached_property
    def features(self) -> Array:
        """Return the features of all rows."""
        assert self.rows.features is not None  # ensured when recipes are resolved
        return self.rows.features

    @cached_property
    def targets(self) -> Array:
        """Return the targets of all rows, in float64."""
        return self.rows.dense_targets.astype(np.float64)

    @property
    def crossed(self) -> bool:
        """Return whether every row is left out by some model, so that all rows can train."""
        return len(self.folds.scored) == len(self.targets)

    @property
    def exclusive(self) -> bool:
        """Return whether exactly one label is present in each row."""
        return not self.criterion.labelwise

    def weights_of(self, rows: Array) -> Array | None:
        """Return the weights of these rows, or None if rows have no weights."""
        return None if self.rows.weights is None else self.rows.weights[rows]

    def network_for(
        self, name: str, rows: Data, hidden: int | None = None, dropout: float | None = None
    ) -> NetworkModule:
        """Return a fresh network, standardised by these rows, with biases at their label rates."""
        network = models.build(name, rows, hidden=hidden, dropout=dropout)
        network.start_at_rates(self.criterion, rows.decoded)
        return network

    def figures(self, scores: Array, rows: Array | None = None) -> dict[str, float]:
        """Return the metrics of scored rows after an affine calibration on the same rows."""
        rows = self.folds.scored if rows is None else rows
        pipeline = Pipeline(self.criterion)
        evaluator = EpochEvaluator(self.network, None, self.targets[rows], self.weights_of(rows))
        return evaluator.figures(pipeline.link_log_odds(scores), pipeline.ranking_scores(scores))


@dataclasses.dataclass
class Candidate:
    """A trained candidate.

    Attributes:
        name: of the model type.
        members: trained models, whose scores are averaged.
        scores: out-of-fold scores of the scored rows.
        options: the options that were selected on out-of-fold rows.
        figures: metrics of ``scores``.
        trials: every setting that was tried, in order, with its cost. The lowest cost wins.
    """

    name: str
    members: list[nn.Module]
    scores: Array
    options: JsonObject
    figures: dict[str, float]
    trials: list[JsonObject]


Worth = Callable[[Array], bool]
"""Whether to train on the other folds too, from scores of the rows that the first leaves out."""


@torch.no_grad()
def scores_of(model: nn.Module, inputs: Tensor) -> Array:
    """Return the scores of rows as float64, computed in blocks."""
    model.eval()
    return torch.cat([model(block) for block in inputs.split(4096)]).double().numpy()


# Linear ---------------------------------------------------------------------------------------


def fit_linear(problem: Problem, worth: Worth) -> Candidate:
    """Solve a linear model to its optimum; out-of-fold rows select the penalty."""
    network = problem.network_for("linear", problem.rows.take(problem.folds.trained))
    found = solve_head(
        *(network, network.standardize.applied(problem.features), problem.targets),
        *(problem.criterion, problem.folds, problem.network),
        weights=problem.rows.weights,
    )
    trials = [{"l2": row["l2"], "cost": row["selection"]} for row in found.tried]
    figures = problem.figures(found.scores)
    return Candidate("linear", [network.eval()], found.scores, {"l2": found.l2}, figures, trials)


# Network --------------------------------------------------------------------------------------


def fit_mlp(problem: Problem, worth: Worth) -> Candidate | None:
    """Train one network per fold and keep all of them; left-out rows select the epoch.

    Unless dropout is given, the first fold is trained twice, with the default dropout of the model
    and without dropout. The better of the two on the left-out rows is used for the other folds.
    """
    given = problem.network.dropout
    dropouts = (None, 0.0) if given is None else (given,)
    tried: list[tuple[nn.Module, Array]] = []
    trials: list[JsonObject] = []
    for dropout in dropouts:
        tried.append(_trained_mlp(problem, 0, dropout))
        if not worth(tried[0][1]):
            return None
        figures = problem.figures(tried[-1][1], problem.folds.parts[0][1])
        trials.append({"dropout": dropout, "cost": figures["selection"]})
    best = min(range(len(tried)), key=lambda at: trials[at]["cost"])
    others = (_trained_mlp(problem, n, dropouts[best]) for n in range(1, len(problem.folds)))
    members, scores = map(list, zip(tried[best], *others, strict=True))
    crossed = problem.folds.averaged(scores)
    options = {"dropout": 0.0} if best else {}
    return Candidate("mlp", members, crossed, options, problem.figures(crossed), trials)


def _trained_mlp(problem: Problem, number: int, dropout: float | None) -> tuple[nn.Module, Array]:
    """Return the network of one fold, and its scores of the rows that the fold leaves out."""
    inside, outside = problem.folds.parts[number]
    rows, left_out = problem.rows.take(inside), problem.rows.take(outside)
    seed = mixed(problem.seed, number) % 2**31
    torch.manual_seed(mixed(seed))
    recipe = problem.network
    network = problem.network_for("mlp", rows, hidden=recipe.hidden, dropout=dropout)
    held_out = left_out.torch_dataset(train=False)
    evaluator = EpochEvaluator(recipe, held_out, left_out.dense_targets, left_out.weights)
    Trainer(
        *(recipe, network, copy.deepcopy(problem.criterion), rows.torch_dataset(train=True)),
        evaluator,
        weights=rows.weights,
        seed=seed,
    ).run()
    return network, scores_of(network, torch.from_numpy(problem.features[outside]))


# Trees ----------------------------------------------------------------------------------------


def fit_forest(problem: Problem, worth: Worth) -> Candidate:
    """Grow a forest; out-of-bag or held-out rows select the size of the leaves."""

    rows, best, trials = problem.folds.trained, None, []
    for leaf in LEAVES:
        model, scores = grow_forest(
            problem.features[rows],
            problem.targets[rows],
            problem.seed,
            leaf=leaf,
            weights=problem.weights_of(rows),
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


def fit_boosting(problem: Problem, worth: Worth) -> Candidate | None:
    """Boost on each fold; left-out rows select the iterations; then boost on all rows.

    The first fold limits the iterations of the others to one stage more than its own optimum.
    """

    def booster(rows: Array, iterations: int) -> Booster:
        return Booster(
            problem.features[rows],
            problem.targets[rows],
            problem.seed,
            iterations,
            weights=problem.weights_of(rows),
            exclusive=problem.exclusive,
        )

    stages, left_out = STAGES, []
    last = None
    for inside, outside in problem.folds.parts:
        last = booster(inside, stages[-1])
        left_out.append(last.staged(problem.features[outside], stages))
        if len(left_out) == 1:  # the other folds go one stage beyond the best of the first
            costs = [problem.figures(scores, outside)["selection"] for scores in left_out[0]]
            best = int(np.argmin(costs))
            if not worth(left_out[0][best]):
                return None
            stages = STAGES[: best + 2]
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


FIT: dict[str, Callable[[Problem, Worth], Candidate | None]] = {
    "linear": fit_linear,
    "mlp": fit_mlp,
    "forest": fit_forest,
    "boosting": fit_boosting,
}
"""How each candidate is trained, by name."""


# What is tried -------------------------------------------------------------------------------


@dataclasses.dataclass(frozen=True)
class Size:
    """The properties of a problem that determine the cost of a candidate."""

    rows: int
    features: int
    labels: int
    parts: int
    sparse: int = 0
    """Of the features, those that have one value in nine rows of ten."""

    @property
    def fits(self) -> int:
        """Return the number of fits if a model is trained on each fold and then on all rows."""
        return self.parts + (self.parts > 1)

    @property
    def inside(self) -> int:
        """Return the number of training rows of a fold, or of all rows if there is one fold."""
        return self.rows if self.parts == 1 else self.rows * (self.parts - 1) // self.parts


def estimated_seconds(name: str, size: Size, network: Network) -> float:
    """Return a rough estimate of the seconds on one core, valid from 330 rows to 66,000.

    Example:
        >>> size = Size(rows=1000, features=100, labels=6, parts=5)
        >>> estimated_seconds("forest", size, Network()) < 10
        True
    """
    n, d, labels = size.rows, size.features, size.labels
    if name == "linear":
        axes = min(n, d)
        if axes > MAX_AXES:
            return size.fits * 3 * d * n * (5e-8 + 2e-8 * labels)
        steps = axes * (1 + (n <= d))  # separable rows take more steps
        return 0.3 + size.fits * (0.01 + steps * n * (5e-8 + 2e-8 * labels)) + 1e-9 * axes**3
    if name == "mlp":
        weights = (network.hidden or 512) * (d + labels)
        updates = number_of_batches(size.inside, rows_per_step(network.batch_size, size.inside))
        trained = size.parts + (network.dropout is None)  # the first fold with and without dropout
        epoch = updates * (9e-4 + 1e-9 * weights) + 6 * size.inside * weights / 5e10
        return trained * network.num_epochs * epoch
    if name == "forest":
        columns = max(1.0, 0.3 * (d - 0.95 * size.sparse))  # trees skip constant columns
        trees = len(LEAVES) * TREES_OF_FOREST
        return trees * n * math.log2(n + 1) * columns * (4e-9 + 6e-10 * labels) + 0.5
    # Sparse columns have few bins, and LightGBM bundles some of them.
    columns = COLUMN_SHARE * (d - 0.97 * size.sparse)
    trees = STAGES[-1] * labels * size.fits
    return trees * (6.5e-5 + columns * (2e-6 + 5.5e-9 * size.inside))


def candidates(size: Size, recipe: Recipe) -> list[JsonObject]:
    """Return the candidates in order of cost, and the reason for each one that is skipped.

    ``mlp`` is always tried. ``linear`` is tried if it takes no more than the budget. The cheaper
    tree model is tried if it takes no more than half of the budget, and the other one if the sum
    stays within the budget.
    """
    limit = recipe.budget if isinstance(recipe, Auto) else "60s"
    budget, network = seconds(limit), recipe.network()
    costs = {name: estimated_seconds(name, size, network) for name in FIT}
    why: dict[str, str] = {}
    if TREES_OF_FOREST * max(size.rows // 2, 1) * size.labels > LARGEST_FOREST:
        why["forest"] = "its trees would take more than 200 MB"
    if find_spec("lightgbm") is None:
        why["boosting"] = "lightgbm is not installed"
    order = sorted(costs, key=lambda name: costs[name])
    trees = [name for name in order if name in TREES and name not in why]
    limits = {"mlp": math.inf, "linear": budget, **dict.fromkeys(trees[:1], budget / 2)}
    asked = {name for name in limits if costs[name] <= limits[name]}
    left = budget - sum(costs[name] for name in asked)
    for name in order:
        if name in asked or name in why:
            continue
        if costs[name] > left:
            why[name] = f"it would exceed the budget of {limit}"
        else:
            left -= costs[name]
    return [
        {"model": name, "seconds": float(f"{costs[name]:.2g}")}
        | ({"left_out": why[name]} if name in why else {})
        for name in order
    ]


def folds_for(recipe: Recipe, data: Data) -> int:
    """Return the number of folds: 5 if out-of-fold scores of all rows fit the budget, else 0.

    Data that name held-out rows keep them. With few rows, there are two folds.
    """
    rows = int((data.split != TEST).sum())
    if data.features is None:
        return 0
    if rows < MIN_ROWS:
        if rows < 4:
            raise InputError(
                f"`model` {recipe.model} needs at least 4 rows for training and model choice; "
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
    """Return the rows and folds to train on."""
    rows = rows.take(rows.split != TEST)
    count = recipe.ensemble if isinstance(recipe, Ensemble) else recipe.folds or 1
    return Problem(rows, criterion, Folds.of(rows, recipe, count), recipe.network(), seed)


@dataclasses.dataclass
class Choice:
    """The selected model.

    Attributes:
        model: the best candidate, or a weighted sum of several.
        scores: out-of-fold scores of the scored rows.
        document: what the run stores: the candidates with their metrics and weights, and the names
            of the members of the model, in order.
        spent: CPU seconds per candidate. They are not stored, because two runs must give the same
            bytes.
    """

    model: nn.Module
    scores: Array
    document: JsonObject
    spent: dict[str, float]


def choose(problem: Problem, recipe: Recipe, callback: Callback | None = None) -> Choice:
    """Train every candidate within the budget; return the best, or their sum if it is better."""
    names = [recipe.model] if recipe.model in FIT else list(FIT)
    columns = problem.features.shape[1], problem.targets.shape[1]
    size = Size(len(problem.folds.trained), *columns, len(problem.folds), _sparse(problem))
    table = [row for row in candidates(size, recipe) if row["model"] in names]
    if len(names) == 1:
        table[0].pop("left_out", None)
    plan = [row for row in table if "left_out" not in row]
    if "boosting" in (row["model"] for row in plan) and find_spec("lightgbm"):
        import lightgbm  # noqa: F401 - importing it must not count as time of the candidate
    tried: list[Candidate] = []
    spent: dict[str, float] = {}
    begun = time.monotonic()
    for number, row in enumerate(plan, start=1):
        if callback is not None:
            callback.on_candidate(_progress(plan, number, time.monotonic() - begun))
        started = time.process_time()
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(mixed(problem.seed))
            candidate = FIT[row["model"]](problem, partial(_adds, problem, list(tried)))
        spent[row["model"]] = time.process_time() - started
        if candidate is None:
            row["left_out"] = "no clear improvement on the first fold"
            continue
        tried.append(candidate)
        figures = {key: _number(candidate.figures[key]) for key in ("nll", "map", "ace")}
        trials = [{**each, "cost": _number(each["cost"])} for each in candidate.trials]
        row.update(figures, **candidate.options, trials=trials)
    if callback is not None:
        callback.on_update(len(plan), len(plan))
    weights, scores = _weights(problem, tried)
    shares = {each.name: weight for each, weight in zip(tried, weights, strict=True)}
    for row in table:
        row["weight"] = shares.get(row["model"], 0)
    model, members = _combined(tried, weights)
    about = {"version": 1, "folds": recipe.folds, "candidates": table, "members": members}
    return Choice(model, scores, about, spent)


def _progress(plan: list[JsonObject], number: int, spent: float) -> JsonObject:
    """Return the current candidate, and the time left from estimates and measured times."""
    costs = [row["seconds"] for row in plan]
    before, left = sum(costs[: number - 1]), sum(costs[number - 1 :])
    pace = spent / before if before and spent else 1.0
    row = {"model": plan[number - 1]["model"], "number": number, "total": len(plan)}
    return {**row, "spent": spent, "left": left * pace}


def _adds(problem: Problem, tried: list[Candidate], scores: Array) -> bool:
    """Return whether scores of the first fold improve the sum of the candidates so far.

    The gain must be larger than its expected standard error over all folds.
    """
    if not tried or not problem.crossed:
        return True
    outside = problem.folds.parts[0][1]
    first = dataclasses.replace(problem, folds=Folds([problem.folds.parts[0]]))
    at = np.searchsorted(problem.folds.scored, outside)
    known = [candidate.scores[at] for candidate in tried]
    gain, error = _gain(first, np.stack(known), np.stack([*known, scores]))
    return gain > error / math.sqrt(len(problem.folds))


def _number(figure: float) -> float | None:
    """Return a metric as JSON can store it: None if it is undefined."""
    return figure if math.isfinite(figure) else None


def _sparse(problem: Problem) -> int:
    """Count the columns with one value in nine rows of ten, on a sample of about 1,000 rows."""
    rows = problem.folds.trained[:: -(-len(problem.folds.trained) // 1024)]
    ordered = np.sort(problem.features[rows], axis=0)
    return int((ordered[len(rows) // 20] == ordered[-1 - len(rows) // 20]).sum())


def _combined(tried: list[Candidate], weights: list[float]) -> tuple[nn.Module, list[str]]:

    members, shares, names = [], [], []
    for candidate, weight in zip(tried, weights, strict=True):
        for member in candidate.members if weight > 0 else ():
            members.append(member)
            shares.append(weight / len(candidate.members))
            names.append(candidate.name)
    return Stack(members, shares), names


def _weights(problem: Problem, tried: list[Candidate]) -> tuple[list[float], Array]:
    """Return the weight of each candidate, and the weighted sum of their scores.

    The sum is used if its log loss on the scored rows is lower than that of the best candidate by
    more than one standard error. Otherwise the best candidate has weight 1. Both are compared after
    an affine calibration.
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
    gain, error = _gain(problem, tried[best].scores[None], scores[None])
    return (weights.tolist(), scores) if gain > error else (alone, tried[best].scores)


def fitted_sum(problem: Problem, stack: Array) -> tuple[Array, float]:
    """Return non-negative weights, one per score of ``stack``, and the shift of their sum.

    They minimise the log loss of the scored rows. Without a calibrator that could correct a shift,
    the shift is 0.
    """
    from scipy.optimize import minimize

    each, shifts = torch.from_numpy(stack), problem.network.calibrate not in ("none", "temperature")
    targets = torch.from_numpy(problem.targets[problem.folds.scored])
    own = problem.weights_of(problem.folds.scored)
    row_weights = None if own is None else torch.from_numpy(own)

    def value_and_slope(vector: Array) -> tuple[float, Array]:
        place = torch.from_numpy(vector.copy()).requires_grad_()
        scores = torch.tensordot(place[:-1], each, dims=1) + place[-1] * shifts
        loss = problem.criterion(scores, targets, row_weights)
        (slope,) = torch.autograd.grad(loss, place)
        return float(loss.detach()), slope.numpy()

    start = np.append(np.full(len(stack), 1 / len(stack)), 0.0)
    bounds = [*[(0.0, None)] * len(stack), (None, None)]
    how: JsonObject = {"method": "L-BFGS-B", "options": {"gtol": 1e-8, "ftol": 1e-13}}
    found = minimize(value_and_slope, start, jac=True, bounds=bounds, **how).x
    return found[:-1], float(found[-1])


def _gain(problem: Problem, before: Array, after: Array) -> tuple[float, float]:
    """Return the gain in log loss of the scored rows, and its standard error."""
    known = (problem.targets[problem.folds.scored] >= 0).any(axis=1)
    gains = (_sum_losses(problem, before) - _sum_losses(problem, after))[known]
    weights = problem.weights_of(problem.folds.scored)
    shares = np.ones(len(gains)) if weights is None else weights[known]
    shares = shares / shares.sum()
    gain = float(shares @ gains)
    return gain, float(np.linalg.norm(shares * (gains - gain)))


def _sum_losses(problem: Problem, stack: Array) -> Array:
    """Return the mean log loss of the known labels of each scored row, for the best sum of scores.

    The affine fit is used without the bounds of a calibrator, which clips log-odds to the range
    seen. Clipping helps most where one fold holds the only rows of a label, and would dominate the
    comparison.
    """
    targets = problem.targets[problem.folds.scored]
    weights, shift = np.ones(1), 0.0
    if problem.network.calibrate != "none" or len(stack) > 1:
        weights, shift = fitted_sum(problem, stack)
    odds = Pipeline(problem.criterion).link_log_odds(np.tensordot(weights, stack, axes=1) + shift)
    known = targets >= 0
    losses = np.logaddexp(0, odds) - np.where(known, targets, 0) * odds
    return np.where(known, losses, 0).sum(axis=1) / np.maximum(known.sum(axis=1), 1)


# Storage --------------------------------------------------------------------------------------


def members_of(document: JsonObject, path: Path) -> list[str]:
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

    def empty(name: str) -> nn.Module:
        if name in TREES:
            return TreesModule(name, num_features, num_labels)
        hidden = network.hidden if name == "mlp" else None
        return models.build(name, (num_features,), num_labels, hidden=hidden)

    return Stack([empty(name) for name in members])
