"""Bootstrap intervals of predictions too large for memory: sums over groups of rows.

Row i belongs to group i modulo their number. Every number of a summary is a function of sums over
rows, or is expanded to first order around its value (average precision, F1), so a pass over the
rows leaves one line of sums per group. A resample gives each group a Poisson(1) weight. Rows being
independent, groups are too, and the spread over resamples of 2000 groups differs from that over
resamples of single rows by about 1.6 %.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping

import numpy as np

from credibly.arrays import to_numpy
from credibly.metrics import binning, ranking, row_terms, scoring, top_k
from credibly.metrics.bootstrap import BINNED, TOP_BINNED, binned_draws
from credibly.metrics.intervals import Interval, quantiles
from credibly.metrics.rank_plan import RankInfluence
from credibly.metrics.running import TOP, Running
from credibly.metrics.top_labels import TopLabels
from credibly.metrics.zero_label_counts import ZeroLabelCounts
from credibly.targets import SparseTargets, Targets
from credibly.types import Array

GROUPS = 2000
HELD = ", held labels"
"""Ends the names of numbers over the labels that rows hold."""
_FIGURES = ("precision", "nDCG", "recall")
_ROWS = 4096


class _Sums(ABC):
    """Sums of ratios and of calibration bins by group, and the intervals drawn from them."""

    groups: int
    _ratios: Array
    _binned: Array

    def state(self) -> dict[str, Array]:
        """Return the sums; ``add`` takes them back."""
        return {"ratios": self._ratios, "binned": self._binned}

    def add(self, state: Mapping[str, Array]) -> None:
        """Add the sums of other rows."""
        self._ratios += state["ratios"]
        self._binned += state["binned"]

    def intervals(
        self,
        estimates: Mapping[str, float],
        min_count: int = 30,
        level: float = 0.95,
        resamples: int = 1000,
        seed: int = 0,
    ) -> dict[str, Interval]:
        """Return an interval for each of the ``estimates`` that this knows.

        Args:
            estimates: numbers of all rows, by their names in tables.
            min_count: as in ``summary``.
            level: of confidence.
            resamples: number of resamples.
            seed: of the weights.
        """
        weights = np.random.default_rng(seed).poisson(1.0, (resamples, self.groups)).astype(float)
        draws = self._draws(estimates, weights, min_count)
        return {
            name: quantiles(estimates[name], draws[name], level, "bootstrap")
            for name in estimates
            if name in draws
        }

    @abstractmethod
    def _draws(
        self, estimates: Mapping[str, float], weights: Array, min_count: int
    ) -> dict[str, Array]:
        """Return each number with the groups weighted by each row of ``weights``."""


class GroupSums(_Sums):
    """Sums over groups of rows, from which intervals of every number are drawn.

    Args:
        running: the same rows, accumulated before.
        ranks: what a row adds to mAP@y; without it mAP@y has no interval.
        zero: zero-label counts of the same rows; without them those numbers have no interval.
        groups: number of groups.

    Example:
        >>> rng = np.random.default_rng(0)
        >>> probabilities = rng.random((500, 3)).astype(np.float32)
        >>> targets = (rng.random((500, 3)) < probabilities).astype(int)
        >>> running = Running(3)
        >>> running.update(probabilities, targets)
        >>> sums = GroupSums(running)
        >>> sums.update(probabilities, targets, first_row=0)
        >>> estimate, low, high = sums.intervals(running.summary())["Brier"]
        >>> low < estimate < high
        True
    """

    def __init__(
        self,
        running: Running,
        ranks: RankInfluence | None = None,
        zero: ZeroLabelCounts | None = None,
        groups: int = GROUPS,
    ) -> None:
        self.bins, self.groups = running.num_bins, groups
        self.ranks, self.zero = ranks, zero
        self.top_terms = running.top_k_f1_terms()
        self.names = ["mAP@x", "NLL", "Brier", "expected size", "true size", "mAP@y", "F1-top-4"]
        self.names += [] if zero is None else ["IN accuracy", "OUT MMC", "zero-label AUROC"]
        self._ratios = np.zeros((groups, len(self.names), 2))
        self._binned = np.zeros((2, groups, self.bins, 3))

    def update(
        self,
        probabilities: Array,
        targets: Array,
        scores: Array | None = None,
        *,
        first_row: int,
    ) -> None:
        """Add rows; the first has this number."""
        ranked = probabilities if scores is None else scores
        for start in range(0, len(probabilities), _ROWS):
            rows = slice(start, start + _ROWS)
            self._add(probabilities[rows], targets[rows], ranked[rows], first_row + start)

    def _add(self, values: Array, truth: Array, ranked: Array, first_row: int) -> None:
        place = first_row % self.groups
        self._ratios += _by_group(self._terms(values, truth, ranked), place, self.groups)
        each = binning.sums(values.T, truth.T, self.bins)
        self._binned[0] += _by_group(each, place, self.groups)
        if self.top_terms is not None:
            top = top_k.unknown_below_top(values, truth, TOP)
            each = binning.sums(values.T, top.T, self.bins)
            self._binned[1] += _by_group(each, place, self.groups)

    def _terms(self, values: Array, truth: Array, ranked: Array) -> Array:
        """Return (rows, numbers, 2): part and whole of each ratio; an influence and 0 otherwise."""
        targets = Targets(truth)
        known, ones = truth >= 0, np.ones(len(values))
        precision = to_numpy(ranking.sample_average_precision(ranked, targets))
        nothing = np.zeros(len(values))
        found: dict[str, tuple[Array, Array]] = {
            "mAP@x": (np.nan_to_num(precision), ~np.isnan(precision)),
            "NLL": row_terms.row_terms(scoring.log_loss, [values, targets]),
            "Brier": row_terms.row_terms(scoring.brier, [values, targets]),
            "expected size": (np.where(known, values, 0).sum(1, dtype=np.float64), ones),
            "true size": (np.where(known, truth, 0).sum(1, dtype=np.float64), ones),
            "mAP@y": (
                nothing if self.ranks is None else self.ranks.of_rows(ranked, truth),
                nothing,
            ),
            "F1-top-4": (self._top_f1(ranked, truth), nothing),
        }
        terms = [np.stack(found[name], axis=1) for name in found]
        if self.zero is not None:
            terms += list(self.zero.row_terms(values, truth).values())
        return np.stack(terms, axis=1)

    def _top_f1(self, ranked: Array, truth: Array) -> Array:
        if self.top_terms is None:
            return np.zeros(len(truth))
        scale, each = self.top_terms
        known = truth >= 0
        chosen, present = top_k.top_k_sets(ranked, truth, TOP), np.where(known, truth, 0)
        part = np.where(chosen, present, 0) @ (2 * scale)
        return part - ((chosen & known) + present) @ (each * scale)

    def _draws(
        self, estimates: Mapping[str, float], weights: Array, min_count: int
    ) -> dict[str, Array]:
        draws = self._drawn_ratios(estimates, weights)
        for kinds, sums in ((BINNED, self._binned[0]), (TOP_BINNED, self._binned[1])):
            total = np.tensordot(weights, sums, axes=1)
            for name, kind in kinds.items():
                if name in estimates:
                    draws[name] = binned_draws(total, sums.sum(axis=0), kind, min_count)
        return draws

    def _drawn_ratios(self, estimates: Mapping[str, float], weights: Array) -> dict[str, Array]:
        draws = {}
        for place, name in enumerate(self.names):
            part, whole = self._ratios[:, place].T
            if name not in estimates or (name == "mAP@y" and self.ranks is None):
                continue
            if whole.any():
                with np.errstate(invalid="ignore"):
                    draws[name] = (weights @ part) / (weights @ whole)
            else:
                draws[name] = estimates[name] + (weights - 1.0) @ part
        return draws


class TopGroupSums(_Sums):
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
        self.ranking, self.bins, self.groups = TopLabels(k), bins, groups
        figures = [f"{name}@{place}" for name in _FIGURES for place in range(1, k + 1)]
        self.names = [*figures, f"NLL{HELD}", f"Brier{HELD}"]
        self._ratios = np.zeros((groups, len(self.names), 2))
        self._binned = np.zeros((groups, bins, 3))

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
        place = first_row % self.groups
        figures = self.ranking.row_figures(top, targets).reshape(len(top), -1)
        known = ~np.isnan(figures)
        terms = [np.stack([np.nan_to_num(figures), known], axis=2)]
        for metric in (scoring.log_loss, scoring.brier):
            pair = row_terms.row_terms(metric, [probabilities, Targets(hits)])
            terms.append(np.stack(pair, axis=1)[:, None])
        self._ratios += _by_group(np.concatenate(terms, axis=1), place, self.groups)
        binned = binning.sums(probabilities.T, hits.T, self.bins)
        self._binned += _by_group(binned, place, self.groups)

    def _draws(
        self, estimates: Mapping[str, float], weights: Array, min_count: int
    ) -> dict[str, Array]:
        with np.errstate(invalid="ignore"):
            part, whole = np.moveaxis(np.tensordot(weights, self._ratios, axes=1), 2, 0)
            draws = dict(zip(self.names, (part / whole).T, strict=True))
        total, plain = np.tensordot(weights, self._binned, axes=1), self._binned.sum(axis=0)
        for name, kind in BINNED.items():
            draws[f"{name}{HELD}"] = binned_draws(total, plain, kind, min_count)
        return draws


def _by_group(rows: Array, place: int, groups: int) -> Array:
    """Sum rows whose first belongs to group ``place``, and the next to the next group."""
    total = np.zeros((groups, *rows.shape[1:]))
    start = 0
    while start < len(rows):
        size = min(groups - place, len(rows) - start)
        total[place : place + size] += rows[start : start + size]
        start, place = start + size, 0
    return total
