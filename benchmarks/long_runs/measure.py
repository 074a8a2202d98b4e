"""Scores of held-out and test rows → every metric of every map from scores to probabilities."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from scipy.special import expit

from benchmarks.claims.measure import (
    CALIBRATORS,
    fitted,
    of_sets,
    plain,
    retrieved,
    sure_of_labels,
    top1_error,
)
from benchmarks.claims.measure import readings as links
from credibly import calibrate, decide, metrics
from credibly.data import Data
from credibly.losses import Loss
from credibly.types import Array

ROWS_TO_FIT = 4000
"""Held-out rows, evenly chosen, that calibrators are fitted on."""

LOG_LOSS_FLOOR = 1e-7
"""Of a probability, as in the other records of the claims, so that a plateau at 0 costs 16."""


def readings(criterion: Loss, scores: torch.Tensor) -> dict[str, Array]:
    """Log-odds by how scores are read: ``raw`` (their sigmoid), and ``link`` where it differs."""
    found = {"raw": criterion.ranking_scores(scores.double()).numpy()}
    for name, odds in links(criterion, scores).items():
        if name != "sigmoid" and not np.array_equal(odds, found["raw"]):
            found[name] = odds
    return found


def held_out(criterion: Loss, scores: torch.Tensor, rows: Data, average_size: float | None) -> Any:
    """Metrics that choose among trials: after Platt scaling, of the better reading."""
    truth, some = rows.targets, _some(rows)
    found: dict[str, float] = {}
    estimates: dict[str, Array] = {}
    for name, odds in readings(criterion, scores).items():
        estimates[name] = expit(fitted("affine", odds[some], truth[some]).transform(odds))
        found[name] = float(metrics.log_loss(estimates[name], truth, floor=LOG_LOSS_FLOOR))
    best = min(found, key=lambda name: found[name])
    ranked = criterion.ranking_scores(scores.double()).numpy()
    figures: dict[str, Any] = {
        "nll": found[best],
        "nll by reading": found,
        "map": metrics.mean_average_precision(ranked, truth),
        "top1": -top1_error(ranked, truth),
    }
    if average_size is not None:
        sets = decide.AverageSize(average_size).fit(estimates[best]).predict(estimates[best])
        figures["average-k"] = metrics.set_coverage(sets, truth)
    return plain(figures)


def tested(
    criterion: Loss,
    scores: tuple[torch.Tensor, torch.Tensor],
    held: Data,
    test: Data,
    train_counts: Array,
) -> Any:
    """Metrics of test rows by map; ``scores`` are those of the held-out and of the test rows."""
    some, one_label = _some(held), bool(((test.targets > 0.5).sum(axis=1) == 1).all())
    fitting, judged = (readings(criterion, part) for part in scores)
    figures: dict[str, Any] = {"maps": {}, "plateau": {}}
    for name, odds in judged.items():
        if np.isinf(odds).any():
            figures["plateau"][name] = np.isinf(odds)[test.targets >= 0].mean()
        maps: dict[str, Any] = {name: calibrate.Identity()}
        for method in CALIBRATORS if name in ("raw", "link") else ():
            maps[f"{name} + {method}"] = fitted(method, fitting[name][some], held.targets[some])
        for label, fit in maps.items():
            estimates = expit(fit.transform(odds))
            figures["maps"][label] = _of_probabilities(estimates, test)
            if one_label:
                own = expit(fit.transform(fitting[name]))
                figures["maps"][label]["sets"] = _of_sets(own, estimates, test, train_counts)
    if one_label:
        ranked = criterion.ranking_scores(scores[1]).numpy()
        figures["top-1 error"] = top1_error(ranked, test.targets)
    return plain(figures)


def _some(rows: Data) -> Array:
    return np.arange(0, len(rows), -(-len(rows) // ROWS_TO_FIT))


def _of_probabilities(estimates: Array, test: Data) -> dict[str, Any]:
    figures: dict[str, Any] = dict(metrics.summary(estimates, test.targets))
    figures["NLL"] = metrics.log_loss(estimates, test.targets, floor=LOG_LOSS_FLOOR)
    if ((test.targets > 0.5).sum(axis=1) > 1).any():
        figures |= sure_of_labels(estimates, test.targets)
        figures |= retrieved(estimates, test.targets)
    return figures


def _of_sets(held: Array, estimates: Array, test: Data, train_counts: Array) -> dict[str, Any]:
    """Sets of an average size: one threshold from held-out rows, judged on test rows."""
    found: dict[str, Any] = {}
    for size in (2, 3, 5, 10):
        if size < test.num_labels:
            sets = decide.AverageSize(size).fit(held).predict(estimates)
            found[str(size)] = of_sets(sets, test, train_counts)
    return found
