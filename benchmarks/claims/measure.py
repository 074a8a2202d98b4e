"""From a finished run to figures: each map of its scores to probabilities in turn."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import torch
from scipy.special import expit, softmax

from credibly import calibrate, decide, metrics
from credibly.calibrate.auto import fit_by_name
from credibly.data import Data
from credibly.losses import Asymmetric, AverageK, Focal, Loss, Quasibinary, Softmax
from credibly.train import Run
from credibly.types import Array

Figures = dict[str, Any]
RETRIEVAL = ("voc2012", "scene", "yeast", "emotions", "digits", "coco80", "ucmerced")
SIZES = (2, 3, 5, 10)
CALIBRATORS = ("temperature", "affine", "beta", "per-label")
MANY_LABELS = 100
MOST_RETRIEVAL_SECONDS = 0.3


Scores = dict[str, torch.Tensor]
"""Of the parts ``calibration`` and ``test``."""


def held_out(run: Run, data: Data, found: Scores) -> Figures:
    """What a trial is judged by: held-out rows alone."""
    part, scores = data.part("calibration"), found["calibration"]
    odds = next(iter(readings(run.criterion, scores).values()))
    every = max(1, odds.size // 200_000)
    estimates = expit(fitted("affine", odds[::every], part.targets[::every]).transform(odds))
    figures = {
        "nll": metrics.log_loss(estimates, part.targets),
        "map": metrics.mean_average_precision(_ranked(run.criterion, scores), part.targets),
        "top1": -top1_error(_ranked(run.criterion, scores), part.targets),
    }
    if run.recipe.average_size is not None:
        sets = decide.AverageSize(run.recipe.average_size).fit(estimates).predict(estimates)
        figures["average-k"] = metrics.set_coverage(sets, part.targets)
    return plain(figures)


def tested(run: Run, data: Data, found: Scores) -> Figures:
    """Figures of test rows, by map; what fits the data: sets for one label per row, and so on."""
    held, test = data.part("calibration"), data.part("test")
    held_scores, test_scores = found["calibration"], found["test"]
    criterion, counts = run.criterion, (test.targets > 0.5).sum(axis=1)
    ranked = _ranked(criterion, test_scores)
    figures: Figures = {
        "mAP@y": metrics.mean_average_precision(ranked, test.targets),
        "mAP@x": np.nanmean(metrics.sample_average_precision(ranked, test.targets)),
    }
    fitting, judged = readings(criterion, held_scores), readings(criterion, test_scores)
    if isinstance(criterion, Quasibinary):
        over = ranked > float(criterion.log_normalizer)
        figures["log C"] = float(criterion.log_normalizer)
        figures["above one"] = over.mean()
        figures["above one, positives"] = over[test.targets > 0.5].mean()
    figures["readings"] = {}
    for name, odds in judged.items():
        maps: dict[str, Any] = {name: calibrate.Identity()}
        search = "@" in data.source and name == next(iter(judged))  # for defaults
        every = search or (name == "link" and data.num_labels < MANY_LABELS)
        for map_ in CALIBRATORS if every else CALIBRATORS[:2]:
            maps[f"{name} + {map_}"] = fitted(map_, fitting[name], held.targets)
        if search:
            maps[f"{name} + choose"] = fit_by_name("auto", fitting[name], held.targets)
        for reading, fit in maps.items():
            estimates = expit(fit.transform(odds))
            figures["readings"][reading] = _of_probabilities(estimates, test, reading)
            if isinstance(_inner(criterion), Asymmetric) and reading in ("link", "phi"):
                # The margin's plateau makes ties, which ranking by scores does not have.
                tied = metrics.mean_average_precision(estimates, test.targets)
                figures["readings"][reading]["mAP@y, probabilities"] = float(tied)
    if run.calibrator is not None:  # what `credibly train` itself hands out
        delivered = expit(run.pipeline.log_odds(test_scores.numpy()))
        figures["readings"]["delivered"] = _of_probabilities(delivered, test, "delivered")
    if (counts == 1).all():
        figures["top-1 error"] = top1_error(ranked, test.targets)
        figures["sets"] = _sets(run, data, held_scores, test_scores)
    return plain(figures)


# Maps from scores to probabilities -----------------------------------------------------------


def _inner(criterion: Loss) -> Loss:
    """The loss behind a regularizer."""
    return getattr(criterion, "loss", criterion)


def _ranked(criterion: Loss, scores: torch.Tensor) -> Array:
    with torch.no_grad():
        return criterion.ranking_scores(scores).double().numpy()


@torch.no_grad()
def readings(criterion: Loss, scores: torch.Tensor) -> dict[str, Array]:
    """Log-odds by the way scores are read: ``link`` is the loss's own, ``phi`` the paper's."""
    scores, inner = scores.double(), _inner(criterion)
    found: dict[str, torch.Tensor] = {}
    if criterion.has_link:
        found["link"] = criterion.log_odds(scores)
    if isinstance(inner, Asymmetric):
        found["sigmoid"] = scores
        if inner.detach_weight and isinstance(inner, Focal):
            found["phi"] = Focal(inner.gamma_pos, inner.gamma_neg).log_odds(scores)
        elif inner.detach_weight:
            own = Asymmetric(inner.gamma_neg, inner.gamma_pos, inner.margin)
            found["phi"] = own.log_odds(scores)
    if not criterion.has_link:
        found["sigmoid"] = criterion.ranking_scores(scores)
    if isinstance(criterion, AverageK):
        found["sccp"] = AverageK(criterion.average_size, head="sccp").log_odds(scores)
    return {name: odds.numpy() for name, odds in found.items()}


def fitted(name: str, odds: Array, targets: Array) -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        return calibrate.from_name(name).fit(odds, targets)


def _of_probabilities(estimates: Array, test: Data, reading: str) -> Figures:
    truth = test.targets
    figures: Figures = {
        "ACE": metrics.calibration_error(estimates, truth, "ace"),
        "MCE": metrics.calibration_error(estimates, truth, "mce", min_count=30),
        "ECE": metrics.calibration_error(estimates, truth, "ece"),
        "NLL": metrics.log_loss(estimates, truth, floor=1e-7),
        "Brier": metrics.brier(estimates, truth),
    }
    counts = (truth > 0.5).sum(axis=1)
    several = bool((counts > 1).any())
    if several and test.num_labels > 4:
        figures["F1-top-4"] = metrics.top_k_f1(estimates, truth, 4)
        figures["ECE-top-4"] = metrics.top_k_calibration_error(estimates, truth, 4)
    if several:
        figures |= sure_of_labels(estimates, truth)
    if not several and (counts == 0).any():
        found = metrics.zero_label(estimates, truth)
        figures["IN accuracy"], figures["AU-ROC"] = found.accuracy, found.auroc
        figures["MMC"], figures["MMC, IN"] = found.mean_confidence_out, found.mean_confidence_in
    if test.truth is not None and not np.isnan(test.truth).any():
        figures["KL"] = metrics.kl_to_truth(estimates, test.truth, floor=1e-7)
    searched = _file(test.source) in RETRIEVAL
    if several and searched and reading.endswith(("link", "sigmoid", "affine")):
        figures |= retrieved(estimates, truth)
    return figures


def sure_of_labels(estimates: Array, truth: Array) -> Figures:
    """Shares of the rows with several labels: every label above 0.5, a wrong one above 0.5."""
    rows, sure = (truth > 0.5).sum(axis=1) > 1, estimates > 0.5
    return {
        "every label sure": (sure | (truth < 0.5))[rows].all(axis=1).mean(),
        "a wrong label sure": (sure & (truth == 0))[rows].any(axis=1).mean(),
    }


def retrieved(estimates: Array, truth: Array) -> Figures:
    """mAP of queries by their number of conditions, on queries that do not depend on estimates."""
    most = min(5, truth.shape[1])
    found = metrics.retrieval_map(
        estimates, truth, max_conditions=most, budget_seconds=MOST_RETRIEVAL_SECONDS
    )
    return {
        "retrieval": [float(found.by_conditions[k]) for k in range(1, most + 1)],
        "mass": found.mass_ratio(2, 2),
    }


def _file(source: str) -> str:
    """``coco80`` of ``coco80-images:1500`` or ``coco80-features``."""
    return source.partition(":")[0].partition("-")[0]


# One label per row -----------------------------------------------------------------------------


def top1_error(ranked: Array, targets: Array) -> float:
    rows = np.flatnonzero((targets > 0.5).any(axis=1))
    return float((targets[rows, ranked[rows].argmax(axis=1)] < 0.5).mean())


def _sets(run: Run, data: Data, held_scores: Any, test_scores: Any) -> Figures:
    """Average-K accuracy by map and K: one threshold from held-out rows, judged on test."""
    held, test = data.part("calibration"), data.part("test")
    train_counts = data.part("train").targets.sum(axis=0) + held.targets.sum(axis=0)
    fitting, judged = readings(run.criterion, held_scores), readings(run.criterion, test_scores)
    chances = {name: (expit(fitting[name]), expit(odds)) for name, odds in judged.items()}
    alike = [softmax(_ranked(run.criterion, s), axis=1) for s in (held_scores, test_scores)]
    chances["softmax"] = (alike[0], alike[1])
    if "sccp" in chances:
        chances["both"] = tuple((chances["link"][k] + chances["sccp"][k]) / 2 for k in (0, 1))
    if isinstance(run.criterion, Softmax) and _uneven(train_counts):
        shares = train_counts / train_counts.sum()
        shifted = (
            expit(calibrate.shift_rates(odds["link"], shares, 1 / test.num_labels))
            for odds in (fitting, judged)
        )
        chances["alike"] = tuple(shifted)
    sizes = [k for k in SIZES if k < test.num_labels]
    if run.criterion.name in ("avgk", "epr", "role", "topk"):  # trained for one size
        sizes = [int(run.recipe.average_size or 0)]
    results: Figures = {}
    for name, (fit, judge) in chances.items():
        results[name] = {}
        for size in sizes:
            sets = decide.AverageSize(size).fit(fit).predict(judge)
            results[name][str(size)] = of_sets(sets, test, train_counts)
            promised = decide.AverageSize(size, "expected").fit(fit).predict(judge)
            results[name][str(size)]["size, promised"] = metrics.set_size(promised)
    return results


def of_sets(sets: Array, test: Data, train_counts: Array) -> Figures:
    sizes = sets.sum(axis=1)
    figures: Figures = {
        "accuracy": metrics.set_coverage(sets, test.targets),
        "size": sizes.mean(),
        "empty": (sizes == 0).mean(),
        "single": (sizes == 1).mean(),
        "two to four": ((sizes >= 2) & (sizes <= 4)).mean(),
        "largest": int(sizes.max()),
    }
    if _uneven(train_counts):
        groups = metrics.coverage_by_frequency(sets, test.targets, train_counts, few=10, many=50)
        figures |= groups
    if test.truth is not None and not np.isnan(test.truth).any():
        shares = test.truth / test.truth.sum(axis=1, keepdims=True)
        entropy = -(shares * np.log(np.maximum(shares, 1e-12))).sum(axis=1)
        figures["human votes inside"] = (shares * sets).sum(axis=1).mean()
        figures["size, where people agree"] = sizes[entropy <= np.median(entropy)].mean()
        figures["size, where they do not"] = sizes[entropy > np.quantile(entropy, 0.9)].mean()
    return figures


def _uneven(counts: Array) -> bool:
    """Some classes have more than twice the rows of others."""
    return bool(counts.max() > 2 * counts.min())


def plain(value: Any) -> Any:
    """Numbers with six digits, for JSON."""
    if isinstance(value, dict):
        return {name: plain(part) for name, part in value.items()}
    if isinstance(value, list):
        return [plain(part) for part in value]
    if isinstance(value, int):
        return value
    number = float(value)
    return float(f"{number:.6g}") if np.isfinite(number) else None
