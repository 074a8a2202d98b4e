"""Label sets against targets: precision, recall, F1, coverage and size."""

from __future__ import annotations

from typing import Any, Literal

import numpy as np

from credibly import checks
from credibly.arrays import like, to_numpy
from credibly.metrics.inputs import hard, label_sets, mean_known, score_pair, set_pair
from credibly.metrics.top_k import set_counts, top_k_sets
from credibly.targets import Coding, Targets, TargetsLike
from credibly.types import Array, ArrayLike

Average = Literal["micro", "macro", "samples"] | None
F1Average = Literal["micro", "mean_of_f1s", "f1_of_means", "samples"] | None


def precision(
    sets: ArrayLike,
    targets: TargetsLike,
    average: Average = "micro",
    undefined: float = 0.0,
    *,
    coding: Coding | None = None,
) -> Any:
    """Share of returned labels that are present, over known entries.

    ``"micro"`` pools all entries, ``"macro"`` is the mean over labels, ``"samples"`` the mean over
    rows, ``None`` one value per label. ``undefined`` stands where nothing was returned; labels and
    rows of which nothing is known drop out.

    Example:
        >>> sets = np.array([[True, False], [True, True]])
        >>> float(precision(sets, np.array([[1, 0], [0, 1]])))
        0.6666666666666666
    """
    checks.choice("average", average, ("micro", "macro", "samples", None))
    hits, returned, _ = _counts(sets, targets, average, coding)
    return like(_mean(_ratio(hits, returned, undefined), average), sets, targets)


def recall(
    sets: ArrayLike,
    targets: TargetsLike,
    average: Average = "micro",
    undefined: float = 0.0,
    *,
    coding: Coding | None = None,
) -> Any:
    """Share of present labels that are returned, over known entries; averages as ``precision``.

    Example:
        >>> sets = np.array([[True, False], [True, False]])
        >>> float(recall(sets, np.array([[1, 0], [0, 1]])))
        0.5
    """
    checks.choice("average", average, ("micro", "macro", "samples", None))
    hits, _, present = _counts(sets, targets, average, coding)
    return like(_mean(_ratio(hits, present, undefined), average), sets, targets)


def f1(
    sets: ArrayLike,
    targets: TargetsLike,
    average: F1Average = "micro",
    undefined: float = 0.0,
    *,
    coding: Coding | None = None,
) -> Any:
    """Harmonic mean of precision and recall, over known entries.

    "Macro F1" has two meanings in print, so it has two names here: ``"mean_of_f1s"`` averages
    the labels' F1 (scikit-learn's macro), ``"f1_of_means"`` is the F1 of mean precision and mean
    recall. ``"micro"`` pools all entries, ``"samples"`` averages rows, ``None`` returns one
    value per label.

    Example:
        >>> sets = np.array([[True, False], [True, True], [False, True]])
        >>> targets = np.array([[1, 0], [0, 1], [1, 0]])
        >>> round(float(f1(sets, targets, average="mean_of_f1s")), 4)
        0.5833
        >>> round(float(f1(sets, targets, average="f1_of_means")), 4)
        0.6
    """
    if average == "macro":
        raise checks.InputError(
            "`average='macro'` has two meanings for F1; pass 'mean_of_f1s' (scikit-learn's) or "
            "'f1_of_means' (F1 of mean precision and mean recall)."
        )
    known = ("micro", "mean_of_f1s", "f1_of_means", "samples", None)
    checks.choice("average", average, known)
    hits, returned, present = _counts(sets, targets, average, coding)
    if average == "f1_of_means":
        p = mean_known(_ratio(hits, returned, undefined))
        r = mean_known(_ratio(hits, present, undefined))
        return like(_ratio(2 * p * r, p + r, undefined)[()], sets, targets)
    return like(_mean(_ratio(2 * hits, returned + present, undefined), average), sets, targets)


def top_k_f1(
    scores: ArrayLike,
    targets: TargetsLike,
    k: int = 4,
    average: F1Average = "mean_of_f1s",
    undefined: float = 0.0,
    *,
    coding: Coding | None = None,
) -> Any:
    """F1 of returning each row's ``k`` highest (known) labels; ties go to the label first.

    Example:
        >>> float(top_k_f1(np.array([[0.9, 0.2], [0.1, 0.3]]), np.array([[1, 0], [1, 0]]), k=1))
        0.3333333333333333
    """
    values, truth = score_pair(scores, targets, coding)
    chosen = top_k_sets(values, truth, k)
    return like(f1(chosen, Targets(truth), average, undefined), scores, targets)


def hamming(sets: ArrayLike, targets: TargetsLike, *, coding: Coding | None = None) -> Any:
    """Share of known entries where set and target differ.

    Example:
        >>> float(hamming(np.array([[True, False]]), np.array([[1, 1]])))
        0.5
    """
    chosen, truth = set_pair(sets, targets, coding)
    known = truth >= 0
    wrong = np.where(known, np.abs(chosen - truth), 0).sum()
    return like(_ratio(wrong, known.sum(), np.nan)[()], sets, targets)


def exact_match(sets: ArrayLike, targets: TargetsLike, *, coding: Coding | None = None) -> Any:
    """Share of rows whose known labels are all right; rows without a known label drop out.

    Example:
        >>> sets = np.array([[True, False], [False, True]])
        >>> float(exact_match(sets, np.array([[1, -1], [1, 0]])))
        0.5
    """
    chosen, truth = set_pair(sets, targets, coding)
    known = hard(truth, "exact_match") >= 0
    right = ((chosen == truth) | ~known).all(1)
    rows = known.any(1)
    return like(_ratio((right & rows).sum(), rows.sum(), np.nan)[()], sets, targets)


def set_coverage(
    sets: ArrayLike,
    targets: TargetsLike,
    average: Literal["pooled", "macro"] | None = "pooled",
    *,
    coding: Coding | None = None,
) -> Any:
    """Share of present labels that are in their row's set: average-K accuracy.

    With one label per row it is the share of rows whose set holds the label. ``"pooled"`` counts
    each present label once, ``None`` gives one share a label (NaN without a positive) and
    ``"macro"`` their mean. ``targets`` may be class indices.

    Example:
        >>> sets = np.array([[True, True, False], [False, True, False]])
        >>> float(set_coverage(sets, np.array([0, 2])))
        0.5
    """
    checks.choice("average", average, ("pooled", "macro", None))
    hits, _, present = _counts(sets, targets, "micro" if average == "pooled" else None, coding)
    each = _ratio(hits, present, np.nan)
    return like(mean_known(each) if average == "macro" else each[()], sets, targets)


def coverage_by_frequency(
    sets: ArrayLike,
    targets: TargetsLike,
    train_counts: ArrayLike,
    few: int = 20,
    many: int = 100,
    *,
    coding: Coding | None = None,
) -> dict[str, Any]:
    """Mean coverage of labels with few (< ``few``), medium and many (> ``many``) training rows.

    Example:
        >>> sets = np.array([[True, True, False], [False, True, False]])
        >>> coverage_by_frequency(sets, np.array([0, 2]), np.array([500, 50, 5]))
        {'few': 0.0, 'medium': nan, 'many': 1.0}
    """
    counts = to_numpy(train_counts)
    each = to_numpy(set_coverage(sets, targets, average=None, coding=coding))
    if counts.shape != each.shape:
        raise checks.InputError(
            f"`train_counts` must have one count a label, {each.shape}; got {counts.shape}."
        )
    groups = {"few": counts < few, "medium": (counts >= few) & (counts <= many)}
    groups["many"] = counts > many
    return {name: float(mean_known(each[group])) for name, group in groups.items()}


def set_size(sets: ArrayLike) -> Any:
    """Mean number of labels returned a row.

    Example:
        >>> float(set_size(np.array([[True, True], [False, True]])))
        1.5
    """
    sizes = label_sets(sets).sum(1)
    return like(sizes.mean() if len(sizes) else np.float64(np.nan), sets)


def size_histogram(sets: ArrayLike) -> Any:
    """How many rows have a set of 0, 1, 2, …, up to all labels.

    Example:
        >>> size_histogram(np.array([[True, True], [False, True], [False, True]]))
        array([0, 2, 1])
    """
    chosen = label_sets(sets)
    return like(np.bincount(chosen.sum(1), minlength=chosen.shape[1] + 1), sets)


def _counts(
    sets: ArrayLike, targets: TargetsLike, average: str | None, coding: Coding | None
) -> tuple[Array, Array, Array]:
    """Return hits, returned and present labels: in total, per row or per label, as ``average``.

    A soft target counts by its value. Rows and labels of which nothing is known are NaN, so that
    means leave them out.
    """
    chosen, truth = set_pair(sets, targets, coding)
    if average == "samples":
        # The mean over rows of a ratio is not that ratio of expected counts.
        hard(truth, 'average="samples"')
    axis = {"micro": None, "samples": 1}.get(average or "", 0)
    hits, returned, present = set_counts(chosen, truth, axis)
    nothing = np.where((truth >= 0).any(axis), 0.0, np.nan)
    return hits + nothing, returned + nothing, present + nothing


def _ratio(part: Any, whole: Any, undefined: float) -> Array:
    with np.errstate(invalid="ignore", divide="ignore"):
        return np.where(np.asarray(whole) == 0, undefined, np.divide(part, whole))


def _mean(each: Array, average: str | None) -> Any:
    return each if average is None else mean_known(each)
