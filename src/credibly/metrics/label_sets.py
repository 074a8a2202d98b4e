"""Metrics of label sets: precision, recall, F1, coverage and size."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal

import numpy as np

from credibly import checks
from credibly.arrays import like, to_numpy
from credibly.compiled import compiled
from credibly.metrics.accumulators import (
    Accumulator,
    hard,
    label_sets,
    mean_known,
    score_pair,
    set_pair,
)
from credibly.targets import Targets, TargetsLike
from credibly.types import Array, ArrayLike

Average = Literal["micro", "macro", "samples"] | None
F1Average = Literal["micro", "mean_of_f1s", "f1_of_means", "samples"] | None


class SetCounts(Accumulator):
    """Counts by label of known entries that are selected, present, and both.

    Args:
        num_labels: number of labels.

    Example:
        >>> counts = SetCounts(2)
        >>> counts.update(np.array([[True, False], [True, True]]), np.array([[1, 0], [0, 1]]))
        >>> round(float(counts.precision("micro")), 4)
        0.6667
    """

    def __init__(self, num_labels: int) -> None:
        self.sums = {"counts": np.zeros((4, num_labels))}  # hits, returned, present, known

    def update(self, sets: Array, targets: Array) -> None:
        """Add checked rows, (rows, labels)."""
        self.sums["counts"][:3] += set_counts(sets, targets, 0)
        self.sums["counts"][3] += (targets >= 0).sum(0)

    def precision(self, average: Average) -> Array:
        """Return ``metrics.precision`` of all rows; micro, macro or one per label."""
        hits, returned, _, _ = self._counts(average)
        return _mean(_ratio(hits, returned), average)

    def recall(self, average: Average, undefined: float = 0.0) -> Array:
        """Return ``metrics.recall`` of all rows; micro, macro or one per label."""
        hits, _, present, _ = self._counts(average)
        return _mean(_ratio(hits, present, undefined), average)

    def f1(self, average: F1Average) -> Array:
        """Return ``metrics.f1`` of all rows; ``"samples"`` is not supported."""
        if average == "f1_of_means":
            p, r = self.precision("macro"), self.recall("macro")
            return _ratio(2 * p * r, p + r)[()]
        hits, returned, present, _ = self._counts(average)
        return _mean(_ratio(2 * hits, returned + present), average)

    def jaccard(self, average: Average) -> Array:
        """Return ``metrics.jaccard`` of all rows; micro, macro or one per label."""
        hits, returned, present, _ = self._counts(average)
        return _mean(_ratio(hits, returned + present - hits), average)

    def mcc(self, average: Average) -> Array:
        """Return ``metrics.mcc`` of all rows; micro, macro or one per label."""
        hits, returned, present, known = self._counts(average)
        spread = returned * (known - returned) * present * (known - present)
        part = known * hits - returned * present
        return _mean(_ratio(part, np.sqrt(spread)), average)

    def hamming(self) -> Array:
        """Return ``metrics.hamming`` of all rows."""
        hits, returned, present, known = self._counts("micro")
        return (returned + present - 2 * hits) / known

    def confusion(self) -> Array:
        """Return ``metrics.confusion`` of all rows, (labels, 2, 2)."""
        hits, returned, present, known = self.sums["counts"]
        absent = known - returned - present + hits
        return np.stack([absent, returned - hits, present - hits, hits], axis=1).reshape(-1, 2, 2)

    def macro_f1_influence(self, sets: Array, targets: Array) -> Array:
        """Return the first-order effect of each row on the mean F1 of the labels."""
        hits, returned, present, known = self.sums["counts"]
        total, labels = returned + present, max(int((known > 0).sum()), 1)
        scale = np.divide(1.0, total, out=np.zeros_like(total), where=total > 0) / labels
        known, there = targets >= 0, np.where(targets >= 0, targets, 0)
        part = np.where(sets, there, 0) @ (2 * scale)
        return part - ((sets & known) + there) @ (2 * hits * scale * scale * labels)

    def _counts(self, average: str | None) -> Array:
        """Return the counts in total or by label; NaN for labels without a known entry."""
        counts = self.sums["counts"]
        counts = counts.sum(1) if average == "micro" else counts
        return counts + np.where(counts[3] > 0, 0.0, np.nan)


def precision(sets: ArrayLike, targets: TargetsLike, average: Average = "micro") -> ArrayLike:
    """Return the share of selected labels that are present, over known entries.

    ``"micro"`` pools all entries, ``"macro"`` is the mean over labels, ``"samples"`` the mean over
    rows, and ``None`` returns one value per label. The value is 0 if nothing is selected. Labels
    and rows without a known entry do not count.

    Example:
        >>> sets = np.array([[True, False], [True, True]])
        >>> float(precision(sets, np.array([[1, 0], [0, 1]])))
        0.6666666666666666
    """
    return _measured(SetCounts.precision, sets, targets, average)


def recall(sets: ArrayLike, targets: TargetsLike, average: Average = "micro") -> ArrayLike:
    """Return the share of present labels that are selected; averages as in ``precision``.

    Example:
        >>> sets = np.array([[True, False], [True, False]])
        >>> float(recall(sets, np.array([[1, 0], [0, 1]])))
        0.5
    """
    return _measured(SetCounts.recall, sets, targets, average)


def f1(sets: ArrayLike, targets: TargetsLike, average: F1Average = "micro") -> ArrayLike:
    """Return the harmonic mean of precision and recall, over known entries.

    "Macro F1" has two meanings in the literature, so it has two names here: ``"mean_of_f1s"``
    averages the labels' F1 (scikit-learn's macro), ``"f1_of_means"`` is the F1 of mean precision
    and mean recall. ``"micro"`` pools all entries, ``"samples"`` averages rows, and ``None``
    returns one value per label.

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
            "`average='macro'` has two meanings for F1. Pass 'mean_of_f1s' (as in scikit-learn) "
            "or 'f1_of_means' (F1 of mean precision and mean recall)."
        )
    return _measured(SetCounts.f1, sets, targets, average)


def jaccard(sets: ArrayLike, targets: TargetsLike, average: Average = "micro") -> ArrayLike:
    """Return |selected and present| / |selected or present|; averages as in ``precision``.

    Example:
        >>> sets = np.array([[True, False], [True, True]])
        >>> float(jaccard(sets, np.array([[1, 0], [0, 1]])))
        0.6666666666666666
    """
    return _measured(SetCounts.jaccard, sets, targets, average)


def mcc(sets: ArrayLike, targets: TargetsLike, average: Average = "micro") -> ArrayLike:
    """Return the Matthews correlation of selected and present; averages as in ``precision``.

    It is 0 if all or no labels are selected, or if all or none are present.

    Example:
        >>> sets = np.array([[True, False], [True, True]])
        >>> round(float(mcc(sets, np.array([[1, 0], [0, 1]]))), 4)
        0.5774
    """
    return _measured(SetCounts.mcc, sets, targets, average)


def confusion(sets: ArrayLike, targets: TargetsLike) -> ArrayLike:
    """Return [[true negatives, false positives], [false negatives, true positives]] per label.

    The layout is that of scikit-learn's ``multilabel_confusion_matrix``, over known entries.

    Example:
        >>> confusion(np.array([[True, False], [True, True]]), np.array([[1, 0], [0, 1]])).tolist()
        [[[0.0, 1.0], [0.0, 1.0]], [[1.0, 0.0], [0.0, 1.0]]]
    """
    return like(_counts(sets, targets, None).confusion(), sets, targets)


def top_k_f1(
    scores: ArrayLike, targets: TargetsLike, k: int = 4, average: F1Average = "mean_of_f1s"
) -> ArrayLike:
    """Return the F1 of each row's ``k`` highest (known) labels; of tied labels the first wins.

    Example:
        >>> float(top_k_f1(np.array([[0.9, 0.2], [0.1, 0.3]]), np.array([[1, 0], [1, 0]]), k=1))
        0.3333333333333333
    """
    values, truth = score_pair(scores, targets)
    chosen = top_k_sets(values, truth, k)
    return like(f1(chosen, Targets(truth), average), scores, targets)


def hamming(sets: ArrayLike, targets: TargetsLike) -> ArrayLike:
    """Return the share of known entries whose set and target differ.

    Example:
        >>> float(hamming(np.array([[True, False]]), np.array([[1, 1]])))
        0.5
    """
    return like(_counts(sets, targets, "micro").hamming(), sets, targets)


def exact_match(sets: ArrayLike, targets: TargetsLike) -> ArrayLike:
    """Return the share of rows whose known labels are all right, over rows with a known label.

    Example:
        >>> sets = np.array([[True, False], [False, True]])
        >>> float(exact_match(sets, np.array([[1, -1], [1, 0]])))
        0.5
    """
    right, rows = exact_match_terms(*set_pair(sets, targets))
    return like(_ratio(right.sum(), rows.sum(), np.nan)[()], sets, targets)


def set_coverage(
    sets: ArrayLike, targets: TargetsLike, average: Literal["pooled", "macro"] | None = "pooled"
) -> ArrayLike:
    """Return the share of present labels that are in their row's set (average-K accuracy).

    With one label per row, it is the share of rows whose set contains the label. ``"pooled"``
    counts each present label once, ``None`` returns one share per label (NaN without a positive),
    and ``"macro"`` their mean. ``targets`` may be class indices.

    Example:
        >>> sets = np.array([[True, True, False], [False, True, False]])
        >>> float(set_coverage(sets, np.array([0, 2])))
        0.5
    """
    checks.choice("average", average, ("pooled", "macro", None))
    counts = _counts(sets, targets, average)
    return like(counts.recall("micro" if average == "pooled" else average, np.nan), sets, targets)


def coverage_by_frequency(
    sets: ArrayLike, targets: TargetsLike, train_counts: ArrayLike, few: int = 20, many: int = 100
) -> dict[str, float]:
    """Return the mean coverage of labels with < ``few``, medium and > ``many`` training rows.

    Example:
        >>> sets = np.array([[True, True, False], [False, True, False]])
        >>> coverage_by_frequency(sets, np.array([0, 2]), np.array([500, 50, 5]))
        {'few': 0.0, 'medium': nan, 'many': 1.0}
    """
    counts = to_numpy(train_counts)
    each = to_numpy(set_coverage(sets, targets, average=None))
    if counts.shape != each.shape:
        raise checks.InputError(
            f"`train_counts` must have one count per label, {each.shape}; got {counts.shape}."
        )
    groups = by_frequency(counts, few, many)
    return {name: float(mean_known(each[group])) for name, group in groups.items()}


def by_frequency(counts: Array, few: int = 20, many: int = 100) -> dict[str, Array]:
    """Return a mask of the counts below ``few``, of those above ``many``, and of the others."""
    medium = (counts >= few) & (counts <= many)
    return {"few": counts < few, "medium": medium, "many": counts > many}


def set_size(sets: ArrayLike) -> ArrayLike:
    """Return the mean number of selected labels per row.

    Example:
        >>> float(set_size(np.array([[True, True], [False, True]])))
        1.5
    """
    sizes = label_sets(sets).sum(1)
    return like(sizes.mean() if len(sizes) else np.float64(np.nan), sets)


def top_k_sets(values: Array, truth: Array, k: int) -> Array:
    """Return each row's ``k`` highest known labels as a bool matrix; of ties the first wins."""
    if int(checks.at_least("k", k, 1)) != k or k > values.shape[1]:
        raise checks.InputError(
            f"`k` must be a whole number between 1 and the number of labels, {values.shape[1]}; "
            f"got {k!r}."
        )
    chosen: Array = np.zeros(values.shape, bool)
    _mark_top(np.ascontiguousarray(values), np.ascontiguousarray(truth), int(k), chosen)
    return chosen


@compiled(error_model="numpy")
def _mark_top(scores: Array, targets: Array, k: int, chosen: Array) -> None:
    """Set ``chosen`` for each row's ``k`` highest known labels; of tied labels the first wins."""
    best, labels = np.empty(k, scores.dtype), np.empty(k, np.int64)
    for row in range(scores.shape[0]):
        values, truth = scores[row], targets[row]
        count = 0
        for t in range(len(values)):
            if truth[t] < 0 or (count == k and not values[t] > best[k - 1]):
                continue
            at = min(count, k - 1)
            while at > 0 and values[t] > best[at - 1]:
                best[at], labels[at] = best[at - 1], labels[at - 1]
                at -= 1
            best[at], labels[at] = values[t], t
            count = min(count + 1, k)
        for label in labels[:count]:
            chosen[row, label] = True


def unknown_below_top(values: Array, truth: Array, k: int) -> Array:
    """Return ``truth`` with everything except each row's top k marked unknown."""
    return np.where(top_k_sets(values, truth, k), truth, truth.dtype.type(-1))


def set_counts(chosen: Array, truth: Array, axis: int | None) -> Array:
    """Return the numbers of hits, selected and present labels among known entries over ``axis``.

    A soft target counts as its value.
    """
    known = truth >= 0
    present = np.where(known, truth, 0)
    return np.stack(
        [
            np.where(chosen, present, 0).sum(axis, dtype=np.float64),
            (chosen & known).sum(axis, dtype=np.float64),
            present.sum(axis, dtype=np.float64),
        ]
    )


def exact_match_terms(chosen: Array, truth: Array) -> tuple[Array, Array]:
    """Return 1 for each row whose known labels are all right, and 1 for each with a known label."""
    known = hard(truth, "exact_match") >= 0
    rows = np.asarray(known.any(1))
    right = ((chosen == truth) | ~known).all(1) & rows
    return right.astype(np.float64), rows.astype(np.float64)


def _measured(
    number: Callable[[SetCounts, Any], Array],
    sets: ArrayLike,
    targets: TargetsLike,
    average: Average | F1Average,
) -> ArrayLike:
    f1 = number is SetCounts.f1
    means = ("mean_of_f1s", "f1_of_means") if f1 else ("macro",)
    checks.choice("average", average, ("micro", *means, "samples", None))
    counts = _counts(sets, targets, average)
    return like(number(counts, average), sets, targets)


def _counts(sets: ArrayLike, targets: TargetsLike, average: str | None) -> SetCounts:
    """Return the counts of each label, or of each row for the mean over samples."""
    chosen, truth = set_pair(sets, targets)
    if average == "samples":
        # The mean of a ratio over rows is not the ratio of expected counts.
        hard(truth, 'average="samples"')
        chosen, truth = chosen.T, truth.T
    counts = SetCounts(chosen.shape[1])
    counts.update(chosen, truth)
    return counts


def _ratio(part: Array, whole: Array, undefined: float = 0.0) -> Array:
    with np.errstate(invalid="ignore", divide="ignore"):
        return np.where(np.asarray(whole) == 0, undefined, np.divide(part, whole))


def _mean(each: Array, average: str | None) -> Array:
    return each if average is None else mean_known(each)
