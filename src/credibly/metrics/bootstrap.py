"""Bootstrap draws of every number of a summary, from sums over groups of rows.

Row i belongs to group i modulo their number; with as many groups as rows, every row is resampled.
A resample gives each group a Poisson(1) weight. A number that is smooth in the weights is replaced
by its first-order expansion (the infinitesimal jackknife): estimate + Σ (weight − 1) · influence.
Calibration errors are not smooth, but functions of sums over bins, which are reweighted exactly. So
a resample costs one product of its weights with a few columns, and no sorting. Weights depend on
the seed and the groups alone: differences between predictions of the same rows are paired. The
spread over resamples of 2000 groups differs from that over single rows by about 1.6 %.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np

from credibly.arrays import to_numpy
from credibly.metrics.accumulators import Accumulator
from credibly.metrics.calibration import COUNT, bin_error, least_count, row_bins
from credibly.metrics.inputs import is_soft
from credibly.metrics.intervals import Interval, quantiles
from credibly.metrics.label_sets import (
    exact_match_terms,
    set_counts,
    top_k_sets,
    unknown_below_top,
)
from credibly.metrics.proper import row_scores
from credibly.metrics.ranking import sample_average_precision
from credibly.metrics.summaries import TOP, Summary
from credibly.metrics.top_labels import HELD, TopLabels
from credibly.targets import SparseTargets, Targets
from credibly.types import Array

GROUPS = 2000
ROWS_RESAMPLED = 2**14
"""Up to so many rows, each of them is resampled."""
_ROWS_AT_ONCE = 4096
_GROUPS_AT_ONCE = 8192
_ERRORS = {"ACE": "ace", "MCE": "mce", "ECE": "ece"}

Influence = Callable[[Array, Array, int], Array]


@dataclass(frozen=True, repr=False)
class Draws:
    """Numbers of a summary, and their values on resamples of the rows."""

    estimates: dict[str, float]
    draws: dict[str, Array]

    def __repr__(self) -> str:
        return f"Draws({', '.join(self.estimates)})"


def groups_of(rows: int, resampled: int = ROWS_RESAMPLED) -> int:
    """Return the number of groups: one per row, as long as there are not too many rows."""
    return rows if rows <= resampled else GROUPS


class _GroupSums(Accumulator):
    """Terms and calibration bins by group.

    Args:
        names: of the numbers, in the order of the terms.
        errors: by name of a number, its calibration error and the sums that it is of.
        bins: number of bins.
        groups: number of groups.
    """

    def __init__(
        self, names: list[str], errors: dict[str, tuple[str, str]], bins: int, groups: int
    ) -> None:
        self.names, self.errors, self.bins, self.groups = names, errors, bins, groups
        self.sums = {"terms": np.zeros((groups, len(names), 2))}
        for _, of in errors.values():
            self.sums[of] = np.zeros((groups, bins, 3))

    def _add(self, name: str, rows: Array, first_row: int) -> None:
        """Add rows to their groups: the first row's, the next one, and so on."""
        total, start, place = self.sums[name], 0, first_row % self.groups
        while start < len(rows):
            size = min(self.groups - place, len(rows) - start)
            total[place : place + size] += rows[start : start + size]
            start, place = start + size, 0

    def draws(
        self,
        estimates: Mapping[str, float],
        min_count: int = 30,
        resamples: int = 200,
        seed: int = 0,
    ) -> dict[str, Array]:
        """Return each of the ``estimates`` that this knows on resamples of the groups.

        Args:
            estimates: numbers of all rows, by their names in tables.
            min_count: as in ``summary``.
            resamples: number of resamples.
            seed: of the weights.
        """
        influence = self._influence()
        linear = np.zeros((resamples, len(self.names)))
        binned = {of: np.zeros((resamples, self.bins, 3)) for _, of in self.errors.values()}
        for number, first in enumerate(range(0, self.groups, _GROUPS_AT_ONCE)):
            some = slice(first, min(first + _GROUPS_AT_ONCE, self.groups))
            shape = resamples, some.stop - first
            weights = np.random.default_rng((seed, number)).poisson(1.0, shape).astype(np.float64)
            linear += (weights - 1.0) @ influence[some]
            for of, total in binned.items():
                total += np.tensordot(weights, self.sums[of][some], axes=1)
        draws = {
            name: estimates[name] + linear[:, place]
            for place, name in enumerate(self.names)
            if name in estimates
        }
        for name, (kind, of) in self.errors.items():
            if name in estimates:
                draws[name] = _error_draws(binned[of], self.sums[of].sum(0), kind, min_count)
        return draws

    def intervals(
        self,
        estimates: Mapping[str, float],
        min_count: int = 30,
        level: float = 0.95,
        resamples: int = 1000,
        seed: int = 0,
    ) -> dict[str, Interval]:
        """Return an interval for each of the ``estimates`` that this knows, as ``draws``."""
        draws = self.draws(estimates, min_count, resamples, seed)
        return {
            name: quantiles(estimates[name], draws[name], level, "bootstrap")
            for name in estimates
            if name in draws
        }

    def _influence(self) -> Array:
        """Return the influence of each group on each ratio, (groups, numbers).

        A number whose terms have no whole has its influence as its part.
        """
        part, whole = np.moveaxis(self.sums["terms"], 2, 0)
        total = whole.sum(0)
        scale = np.where(total > 0, total, 1.0)
        return (part - part.sum(0) / scale * whole) / scale

    @abstractmethod
    def update(self, *rows: object, first_row: int) -> None:
        """Add rows; the first has this number."""


class GroupSums(_GroupSums):
    """Sums over groups of rows, from which intervals of every number of a summary are drawn.

    Args:
        summary: the same rows, accumulated before.
        influence: what rows (values that rank them, targets, number of the first) add to mAP@y;
            without it mAP@y has no interval.
        groups: number of groups.
        sets: whether rows come with label sets.

    Example:
        >>> rng = np.random.default_rng(0)
        >>> probabilities = rng.random((500, 3)).astype(np.float32)
        >>> targets = (rng.random((500, 3)) < probabilities).astype(np.int8)
        >>> summary = Summary(3)
        >>> summary.update(probabilities, targets)
        >>> sums = GroupSums(summary)
        >>> sums.update(probabilities, targets, first_row=0)
        >>> estimate, low, high = sums.intervals(summary.numbers())["Brier"]
        >>> low < estimate < high
        True
    """

    def __init__(
        self,
        summary: Summary,
        influence: Influence | None = None,
        groups: int = GROUPS,
        *,
        sets: bool = False,
    ) -> None:
        self.summary, self.influence, self.with_sets = summary, influence, sets
        names = ["mAP@x", "NLL", "Brier", "expected size", "true size"]
        names += [] if influence is None else ["mAP@y"]
        errors = {name: (kind, "bins") for name, kind in _ERRORS.items()}
        if summary.top is not None:
            names.append("F1-top-4")
            errors["ECE-top-4"] = ("ece", "top bins")
        if summary.zero is not None:
            names += ["IN accuracy", "OUT MMC", "zero-label AUROC"]
        if sets:
            names += ["set size", "set coverage", "precision", "F1", "exact match"]
        super().__init__(names, errors, summary.num_bins, groups)

    def update(
        self,
        probabilities: Array,
        targets: Array | Targets,
        scores: Array | None = None,
        sets: Array | None = None,
        *,
        first_row: int,
    ) -> None:
        """Add rows with decoded targets; the first has this number."""
        ranked, targets = probabilities if scores is None else scores, to_numpy(targets)
        for start in range(0, len(probabilities), _ROWS_AT_ONCE):
            rows, first = slice(start, start + _ROWS_AT_ONCE), first_row + start
            values, truth = probabilities[rows], targets[rows]
            found = self._terms(values, truth, ranked[rows], first)
            if sets is not None:
                found |= _set_terms(sets[rows], truth)
            terms = [np.stack(found[name], axis=1) for name in self.names]
            self._add("terms", np.stack(terms, axis=1), first)
            self._add("bins", row_bins(values, truth, self.bins), first)
            if self.summary.top is not None:
                top = unknown_below_top(values, truth, TOP)
                self._add("top bins", row_bins(values, top, self.bins), first)

    def _terms(self, values: Array, truth: Array, ranked: Array, first: int) -> dict[str, tuple]:
        """Return (part, whole) of each number and row: a ratio; an influence where whole is 0."""
        known, ones, nothing = truth >= 0, np.ones(len(values)), np.zeros(len(values))
        precision = to_numpy(sample_average_precision(ranked, Targets(truth)))
        count, log_loss, squared = row_scores(values, truth).T
        found = {
            "mAP@x": (np.nan_to_num(precision), ~np.isnan(precision)),
            "NLL": (log_loss, count),
            "Brier": (squared, count),
            "expected size": (np.where(known, values, 0).sum(1, dtype=np.float64), ones),
            "true size": (np.where(known, truth, 0).sum(1, dtype=np.float64), ones),
        }
        if self.influence is not None:
            found["mAP@y"] = (self.influence(ranked, truth, first), nothing)
        if self.summary.top is not None:
            found["F1-top-4"] = (self._top_f1(ranked, truth), nothing)
        if self.summary.zero is not None:
            terms = self.summary.zero.row_terms(values, truth)
            found |= {name: tuple(each.T) for name, each in terms.items()}
        return found

    def _top_f1(self, ranked: Array, truth: Array) -> Array:
        assert self.summary.top is not None
        scale, each = self.summary.top.f1_terms()
        known = truth >= 0
        chosen, present = top_k_sets(ranked, truth, TOP), np.where(known, truth, 0)
        part = np.where(chosen, present, 0) @ (2 * scale)
        return part - ((chosen & known) + present) @ (each * scale)


def _set_terms(sets: Array, truth: Array) -> dict[str, tuple]:
    hits, returned, present = set_counts(sets, truth, 1)
    ones = np.ones(len(sets))
    return {
        "set size": (sets.sum(1), ones),
        "set coverage": (hits, present),
        "precision": (hits, returned),
        "F1": (2 * hits, returned + present),
        "exact match": (0 * ones, ones) if is_soft(truth) else exact_match_terms(sets, truth),
    }


class TopGroupSums(_GroupSums):
    """The same for the most probable labels of each row.

    Args:
        k: how many places of the ranking.
        bins: bins of the calibration errors.
        groups: number of groups.

    Example:
        >>> sums = TopGroupSums(1)
        >>> truth = SparseTargets.from_lists([[3], [1]] * 100, num_labels=9)
        >>> top, probabilities = np.array([[3], [0]] * 100), np.full((200, 1), 0.5, np.float32)
        >>> sums.update(top, probabilities, truth.at(top), truth, first_row=0)
        >>> estimate, low, high = sums.intervals({"precision@1": 0.5})["precision@1"]
        >>> 0.4 < low < estimate < high < 0.6
        True
    """

    def __init__(self, k: int, bins: int = 15, groups: int = GROUPS) -> None:
        self.ranking = TopLabels(k)
        figures = ("precision", "nDCG", "recall")
        names = [f"{name}@{place}" for name in figures for place in range(1, k + 1)]
        errors = {f"{name}{HELD}": (kind, "bins") for name, kind in _ERRORS.items()}
        super().__init__([*names, f"NLL{HELD}", f"Brier{HELD}"], errors, bins, groups)

    def update(
        self,
        top: Array,
        probabilities: Array,
        hits: Array,
        targets: SparseTargets,
        *,
        first_row: int,
    ) -> None:
        """Add rows.

        Args:
            top: (rows, labels held) label numbers, most probable first; −1 where there are fewer.
            probabilities: of these labels.
            hits: whether these labels are present: 1, 0, or −1 for unknown.
            targets: all labels that are present.
            first_row: number of the first row.
        """
        figures = self.ranking.row_figures(top, targets).reshape(len(top), -1)
        count, *scores = row_scores(probabilities, hits).T
        terms = [np.stack([np.nan_to_num(figures), ~np.isnan(figures)], axis=2)]
        terms += [np.stack([each, count], axis=1)[:, None] for each in scores]
        self._add("terms", np.concatenate(terms, axis=1), first_row)
        self._add("bins", row_bins(probabilities, hits, self.bins), first_row)


def _error_draws(total: Array, whole: Array, kind: str, min_count: int) -> Array:
    """Calibration errors by the bins that count in the whole, centred on its error.

    A resample looks worse calibrated than the data it came from. Its spread is right; its centre
    is moved to the error of the data, so that estimate and interval are of one quantity.
    """
    kept = whole[:, COUNT] >= least_count(kind, min_count)
    if not kept.any():
        return np.full(len(total), np.nan)
    errors = bin_error(total[:, kept], kind, 1)
    return bin_error(whole[kept], kind, 1) + errors - np.nanmean(errors)
