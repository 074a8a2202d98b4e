"""Models for features that are compared: linear, mlp, forest and boosting.

Each is trained on the rows of every part and scores the rows that the part leaves out, so that
candidates are compared, weighted and calibrated on rows that they did not see.
"""

from __future__ import annotations

import copy
import dataclasses
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor, nn

from credibly.models.network import LIMIT
from credibly.models.tree_growing import Booster, BoostingOptions, ForestOptions, grow_forest
from credibly.pipeline import Pipeline
from credibly.train import linear
from credibly.train.assembly import set_prior_bias
from credibly.train.batches import mixed
from credibly.train.configuration import Settings
from credibly.train.evaluation import EpochEvaluator
from credibly.train.folds import Folds
from credibly.train.in_memory import MatrixRows
from credibly.train.trainer import Trainer
from credibly.types import Array

if TYPE_CHECKING:
    from credibly.losses import Loss

DROPOUTS = (None, 0.0)
"""Of ``mlp``: the model's own, or none. Left-out rows choose."""

LEAVES = (1, 3)
"""Fewest rows of a leaf of ``forest``. Left-out rows choose."""

STAGES = (10, 20, 30, 45, 70, 100)
"""Iterations of ``boosting``. Left-out rows choose."""


@dataclasses.dataclass(frozen=True)
class Problem:
    """Rows to train on, and how they are divided.

    Attributes:
        features: (n, d), float32 or float64; for ``linear`` also a CSR matrix.
        targets: (n, L) of 0, 1, soft values and −1 for unknown, float64.
        criterion: the loss whose link makes log-odds of scores: ``bce`` or ``softmax``.
        folds: for each model to train, the rows it is trained on and the rows that it scores.
        seed: of everything random.
        steps: how networks are trained.
    """

    features: Any
    targets: Array
    criterion: Loss
    folds: Folds
    seed: int = 0
    steps: Settings = dataclasses.field(default_factory=Settings)

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
        return self.measured(scores, Pipeline(self.criterion).link_log_odds(scores), rows)

    def measured(self, scores: Array, odds: Array, rows: Array | None = None) -> dict[str, float]:
        """Return the same where the log-odds of the scores are known."""
        rows = self.folds.scored if rows is None else rows
        ranked = Pipeline(self.criterion).ranking_scores(scores)
        return EpochEvaluator(self.steps, None, self.targets[rows]).figures(odds, ranked)


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
        log_odds: of the scored rows, by the links of the models that scored them.
    """

    name: str
    members: list[nn.Module]
    scores: Array
    options: dict[str, Any]
    figures: dict[str, float]
    trials: list[dict[str, Any]]
    log_odds: Array | None = None


@torch.no_grad()
def scores_of(model: nn.Module, inputs: Tensor) -> Array:
    """Return the scores of rows, in blocks, as float64."""
    model.eval()
    return torch.cat([model(block) for block in inputs.split(4096)]).double().numpy()


# Linear ---------------------------------------------------------------------------------------


def fit_linear(problem: Problem, *, l2: float | None = None) -> Candidate:
    """Solve to the optimum; left-out rows choose the penalty unless it is given."""
    network, inputs = _linear(problem)
    criterion, folds = problem.criterion, problem.folds
    scored = len(folds.scored) > 0
    found = linear.solve(
        *(inputs, problem.targets, criterion, folds, problem.measured if scored else None),
        bias=network.head.bias.detach().double().numpy(),
        penalties=None if l2 is None else [l2],
    )
    found.layer.copy_to(network.head)
    figures = problem.measured(found.scores, found.log_odds) if scored else {}
    trials = [{"l2": row["l2"], "cost": row["selection"]} for row in found.tried]
    return Candidate(
        *("linear", [network.eval()], found.scores, {"l2": found.l2}, figures),
        *(trials, found.log_odds),
    )


def _linear(problem: Problem) -> tuple[Any, Any]:
    """Return a network, and its standardised rows in float64, dense or sparse."""
    from credibly import models

    count = problem.targets.shape[1]
    network = models.build(
        "linear",
        problem.features.shape[1:],
        count,
        num_outputs=problem.criterion.num_outputs(count),
    )
    network.standardize.fit(problem.features[problem.folds.trained], LIMIT)
    set_prior_bias(network.head, problem.criterion, problem.targets[problem.folds.trained])
    return network, network.standardize.applied(problem.features)


# Network --------------------------------------------------------------------------------------


def fit_mlp(problem: Problem) -> Candidate:
    """Train a network on each part, its epoch chosen by the rows left out; keep all of them.

    The first part is trained with and without dropout, unless it is given; the rest as the one of
    the two that is better on the rows that the first part leaves out.
    """
    given = problem.steps.dropout
    dropouts = DROPOUTS if given is None else (given,)
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


@dataclasses.dataclass
class _Trained:
    networks: list[nn.Module]
    scores: Array
    cost: float


def _trained_mlp(problem: Problem, number: int, dropout: float | None) -> _Trained:
    """Return the snapshots of a network of one part, and their scores of the rows it leaves out."""
    features, targets = problem.features.astype(np.float32), problem.targets.astype(np.float32)
    inside, outside = problem.folds.parts[number]
    seed, cycles = mixed(problem.seed, number) % 2**31, problem.steps.snapshots
    torch.manual_seed(mixed(seed))
    network = _mlp(problem, features[inside], targets[inside], dropout)
    rows = MatrixRows(features[inside], targets[inside])
    left_out = MatrixRows(features[outside], targets[outside])
    kept: list[nn.Module] = []
    for cycle in range(cycles):
        steps = dataclasses.replace(
            problem.steps,
            epochs=-(-problem.steps.epochs // cycles),
            snapshots=1,
            seed=mixed(seed, cycle) % 2**31 if cycle else seed,
        )
        evaluator = EpochEvaluator(steps, left_out, targets[outside])
        criterion = copy.deepcopy(problem.criterion)
        trainer = Trainer(steps, network, criterion, rows, evaluator)
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
        hidden=problem.steps.hidden,
        dropout=dropout,
    )
    network.standardize.fit(features, LIMIT)
    set_prior_bias(network.head, problem.criterion, targets)
    return network


# Trees ----------------------------------------------------------------------------------------


def fit_forest(problem: Problem) -> Candidate:
    """Grow a forest; rows that a tree did not see choose the size of the leaves."""

    rows, best, trials = problem.folds.trained, None, []
    for leaf in LEAVES:
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


def fit_boosting(problem: Problem) -> Candidate:
    """Boost on each part; left-out rows choose the iterations, then on all rows.

    The first part bounds the iterations of the others: one stage more than were best for it.
    """

    options = BoostingOptions(iterations=STAGES[-1])

    def booster(rows: Array, most: int) -> Booster:
        return Booster(
            problem.features[rows],
            problem.targets[rows],
            problem.seed,
            dataclasses.replace(options, iterations=most),
            exclusive=problem.exclusive,
        )

    stages, left_out = STAGES, []
    last = None
    for inside, outside in problem.folds.parts:
        last = booster(inside, stages[-1])
        left_out.append(last.staged(problem.features[outside], stages))
        if len(left_out) == 1:  # the other parts go one stage beyond the best of the first
            costs = [problem.figures(scores, outside)["selection"] for scores in left_out[0]]
            stages = STAGES[: int(np.argmin(costs)) + 2]
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
