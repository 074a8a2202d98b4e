"""Bootstrap draws of every number of a summary, from one pass over the rows.

A number that is smooth in the weights of the rows is replaced by its first-order expansion (the
infinitesimal jackknife): estimate + Σ (weight − 1) · influence. Calibration errors are not smooth,
but functions of sums over bins, which are reweighted exactly. So a resample costs one product of
its weights with a few columns per row, and no sorting. Weights are Poisson(1), independent for each
row, and the same for every prediction of as many rows: differences between predictions are paired.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from credibly.arrays import to_numpy
from credibly.metrics import binning, kernels, label_sets, ranking, row_terms, scoring, top_k
from credibly.metrics.inputs import by_blocks, is_soft
from credibly.metrics.running import TOP
from credibly.targets import Targets
from credibly.types import Array

_ROWS_AT_ONCE = 8192

BINNED = {"ACE": "ace", "MCE": "mce", "ECE": "ece"}
TOP_BINNED = {"ECE-top-4": "ece"}


@dataclass(frozen=True, repr=False)
class Draws:
    """Numbers of a summary, and their values on resamples of the rows."""

    estimates: dict[str, float]
    draws: dict[str, Array]

    def __repr__(self) -> str:
        return f"Draws({', '.join(self.estimates)})"


def draw(
    estimates: dict[str, float],
    values: Array,
    truth: Array,
    ranked: Array,
    sets: Array | None,
    *,
    bins: int,
    min_count: int,
    resamples: int,
    seed: int,
) -> Draws:
    """Return draws of ``estimates``, the summary of these checked arrays."""
    influence = {
        name: column
        for name, column in _influences(values, truth, ranked, sets, estimates).items()
        if name in estimates
    }
    columns = np.stack([*influence.values()], axis=1)
    top = by_blocks(_top_truth, values, truth) if "ECE-top-4" in estimates else None
    linear = np.zeros((resamples, columns.shape[1]))
    sums, top_sums = (np.zeros((resamples, bins, 3)) for _ in range(2))
    plain, top_plain = (np.zeros((bins, 3)) for _ in range(2))
    for number, first in enumerate(range(0, len(values), _ROWS_AT_ONCE)):
        rows = slice(first, first + _ROWS_AT_ONCE)
        some = values[rows]
        weights = np.random.default_rng((seed, number)).poisson(1.0, (resamples, len(some)))
        weights = weights.astype(np.float64)
        linear += (weights - 1.0) @ columns[rows]
        for truths, total, whole in ((truth, sums, plain), (top, top_sums, top_plain)):
            if truths is not None:
                each = binning.sums(some.T, truths[rows].T, bins)
                whole += each.sum(0)
                total += (weights @ each.reshape(len(some), -1)).reshape(total.shape)
    draws = {name: estimates[name] + linear[:, place] for place, name in enumerate(influence)}
    for kinds, total, whole in ((BINNED, sums, plain), (TOP_BINNED, top_sums, top_plain)):
        for name, kind in kinds.items():
            if name in estimates:
                draws[name] = binned_draws(total, whole, kind, min_count)
    return Draws(estimates, draws)


def binned_draws(total: Array, whole: Array, kind: str, min_count: int) -> Array:
    """Calibration errors by the bins that count in the whole, centred on its error.

    A resample looks worse calibrated than the data it came from. Its spread is right; its centre
    is moved to the error of the data, so that estimate and interval are of one quantity.
    """
    kept = whole[:, binning.COUNT] >= binning.least_count(kind, min_count)
    if not kept.any():
        return np.full(len(total), np.nan)
    errors = binning.calibration_error(total[:, kept], kind, 1)
    error = binning.calibration_error(whole[kept], kind, 1)
    return error + errors - np.nanmean(errors)


def _influences(
    values: Array, truth: Array, ranked: Array, sets: Array | None, estimates: dict[str, float]
) -> dict[str, Array]:
    """What each row adds to each smooth number, to first order."""
    ones = np.ones(len(values))
    targets = Targets(truth)
    precision = to_numpy(ranking.sample_average_precision(ranked, targets))
    found = {
        "mAP@y": _label_precision(ranked, truth),
        "mAP@x": _ratio(np.nan_to_num(precision), ~np.isnan(precision)),
        "NLL": _ratio(*row_terms.row_terms(scoring.log_loss, [values, targets])),
        "Brier": _ratio(*row_terms.row_terms(scoring.brier, [values, targets])),
        "expected size": _ratio(by_blocks(_known_sum, values, truth), ones),
        "true size": _ratio(by_blocks(_known_sum, truth, truth), ones),
    }
    if "F1-top-4" in estimates:
        found["F1-top-4"] = _top_f1(by_blocks(_top_sets, ranked, truth), truth)
    if "zero-label AUROC" in estimates:
        found |= _zero_labels(values, truth)
    if sets is not None:
        hits, returned, present = top_k.set_counts(sets, truth, 1)
        found |= {
            "set size": _ratio(sets.sum(1), ones),
            "set coverage": _ratio(hits, present),
            "precision": _ratio(hits, returned),
            "F1": _ratio(2 * hits, returned + present),
        }
        if not is_soft(truth):
            terms = row_terms.row_terms(label_sets.exact_match, [sets, targets])
            found["exact match"] = _ratio(*terms)
    return found


def _known_sum(values: Array, truth: Array) -> Array:
    return np.where(truth >= 0, values, 0).sum(1, dtype=np.float64)


def _top_sets(ranked: Array, truth: Array) -> Array:
    return top_k.top_k_sets(ranked, truth, TOP)


def _top_truth(values: Array, truth: Array) -> Array:
    return top_k.unknown_below_top(values, truth, TOP)


def _ratio(part: object, whole: object) -> Array:
    """Influence of each row on Σ part / Σ whole."""
    part, whole = np.asarray(part, np.float64), np.asarray(whole, np.float64)
    total = whole.sum()
    if not total:
        return np.zeros(len(part))
    return (part - part.sum() / total * whole) / total


def _label_precision(ranked: Array, truth: Array) -> Array:
    """Influence on the mean average precision over labels that have a positive."""
    result, labels = np.zeros(len(ranked)), 0
    for t in range(ranked.shape[1]):
        rows = np.flatnonzero(truth[:, t] >= 0)
        weights = truth[rows, t].astype(np.float64)
        if not weights.any():
            continue
        scores = ranked[rows, t]
        order = np.argsort(-scores)
        part = np.empty(len(rows))
        kernels.precision_influence(scores[order], weights[order], part)
        result[rows[order]] += part
        labels += 1
    return result / max(labels, 1)


def _top_f1(chosen: Array, truth: Array) -> Array:
    """Influence on the mean over labels of F1."""
    hits, returned, present = top_k.set_counts(chosen, truth, 0)
    total = returned + present
    labels = max(int((truth >= 0).any(0).sum()), 1)
    inverse = np.divide(1.0, total, out=np.zeros_like(total), where=total > 0)
    scale, each = inverse / labels, 2 * hits * inverse

    def influence(chosen: Array, truth: Array) -> Array:
        known = truth >= 0
        present = np.where(known, truth, 0)
        part = np.where(chosen, present, 0) @ (2 * scale)
        return part - ((chosen & known) + present) @ (each * scale)

    return by_blocks(influence, chosen, truth)


def _zero_labels(values: Array, truth: Array) -> dict[str, Array]:
    """Influences on the zero-label numbers; both kinds of rows exist."""
    used = (truth >= 0).any(0)

    def of_rows(values: Array, truth: Array) -> Array:
        known = np.where(truth >= 0, values.astype(np.float64), -np.inf)
        confidence = known.max(1)
        top = known == confidence[:, None]
        share = (top & (truth > 0)).sum(1) / np.maximum(top.sum(1), 1)
        outside = (truth[:, used] == 0).all(1)
        return np.stack([(truth > 0).any(1), outside, confidence, share], axis=1)

    inside, outside, confidence, share = by_blocks(of_rows, values, truth).T
    inside, outside = inside > 0, outside > 0
    auroc = np.zeros(len(values))
    for mine, theirs, sign in ((inside, outside, 1), (outside, inside, -1)):
        ordered = np.sort(confidence[theirs])
        below = np.searchsorted(ordered, confidence[mine], "left")
        below = (below + np.searchsorted(ordered, confidence[mine], "right")) / 2 / len(ordered)
        auroc[mine] = sign * (below - below.mean()) / mine.sum()
    return {
        "IN accuracy": _ratio(np.where(inside, share, 0), inside),
        "OUT MMC": _ratio(np.where(outside, confidence, 0), outside),
        "zero-label AUROC": auroc,
    }
