"""Metrics of the most probable labels of each row, for very many labels.

The definitions are those of the extreme classification repository (``pyxclib``): means over all
rows, in which rows without labels count as 0.
"""

from __future__ import annotations

import numpy as np

from credibly import checks
from credibly.arrays import like, to_numpy
from credibly.metrics.accumulators import Accumulator, Accumulators, Terms
from credibly.metrics.calibration import (
    ERRORS,
    CalibrationBins,
    ProperScores,
    row_bins,
    row_scores,
    table_numbers,
)
from credibly.targets import SparseTargets, decode
from credibly.types import Array, ArrayLike

PLACES = (1, 3, 5)
"""Numbers of most probable labels that are reported."""
FIGURES = ("precision", "nDCG", "recall")
"""Names of the metrics of ``TopLabels``."""
HELD = ", held labels"
"""Ends the names of numbers over the labels that rows hold."""


def inverse_propensities(
    label_counts: ArrayLike, num_rows: int, a: float = 0.55, b: float = 1.5
) -> ArrayLike:
    r"""Return one weight per label: the inverse of the probability that a true label is recorded.

    $1 + C\,(n_l + B)^{-A}$ with $C = (\log N - 1)\,(B + 1)^A$. Jain et al. (2016), Eq. 2.

    Args:
        label_counts: $n_l$, the number of training rows with each label.
        num_rows: $N$, the number of training rows.
        a: $A$; 0.5 for Wikipedia, 0.6 for Amazon.
        b: $B$; 0.4 for Wikipedia, 2.6 for Amazon.

    Example:
        >>> inverse_propensities([1000, 1], 10_000).round(2)
        array([1.3 , 9.21])
    """
    counts = to_numpy(label_counts).astype(np.float64)
    scale = (np.log(checks.at_least("num_rows", num_rows, 1)) - 1) * (b + 1) ** a
    return like(1 + scale * (counts + b) ** -a, label_counts)


def precision_at_k(
    top: ArrayLike, targets: SparseTargets | ArrayLike, k: int = 5, weights: ArrayLike | None = None
) -> ArrayLike:
    """Return precision@1 … precision@k: the share of true labels among the most probable ones.

    Args:
        top: (rows, at least k) label indices, most probable first; −1 pads shorter rows.
        targets: ``SparseTargets``, or a (rows, labels) matrix of 0 and 1.
        k: number of ranks.
        weights: one per label, from ``inverse_propensities``. The result is then divided by its
            maximum over all rankings (propensity-scored precision).

    Example:
        >>> truth = SparseTargets.from_lists([[3, 7], [1]], num_labels=10)
        >>> precision_at_k([[3, 2, 7], [0, 1, 4]], truth, k=3)
        array([0.5, 0.5, 0.5])
    """
    return _figure(0, top, targets, k, weights)


def ndcg_at_k(
    top: ArrayLike, targets: SparseTargets | ArrayLike, k: int = 5, weights: ArrayLike | None = None
) -> ArrayLike:
    """Return nDCG@1 … nDCG@k: true labels, discounted by the logarithm of their rank.

    Arguments are those of ``precision_at_k``.

    Example:
        >>> truth = SparseTargets.from_lists([[3, 7], [1]], num_labels=10)
        >>> ndcg_at_k([[3, 2, 7], [0, 1, 4]], truth, k=3).round(4)
        array([0.5   , 0.622 , 0.7753])
    """
    return _figure(1, top, targets, k, weights)


def recall_at_k(
    top: ArrayLike, targets: SparseTargets | ArrayLike, k: int = 5, weights: ArrayLike | None = None
) -> ArrayLike:
    """Return recall@1 … recall@k: the share of a row's true labels among its top k labels.

    Arguments are those of ``precision_at_k``.

    Example:
        >>> truth = SparseTargets.from_lists([[3, 7], [1]], num_labels=10)
        >>> recall_at_k([[3, 2, 7], [0, 1, 4]], truth, k=3)
        array([0.25, 0.75, 1.  ])
    """
    return _figure(2, top, targets, k, weights)


def _figure(
    which: int,
    top: ArrayLike,
    targets: SparseTargets | ArrayLike,
    k: int,
    weights: ArrayLike | None,
) -> ArrayLike:
    ranking = TopLabels(k, weights)
    ranking.update(top, targets)
    return like(ranking.figures()[which], top, targets, weights)


class TopLabels(Accumulator):
    """Precision, nDCG and recall of the k most probable labels, over batches of rows.

    Args:
        k: number of ranks.
        weights: as for ``precision_at_k``.

    Example:
        >>> truth = SparseTargets.from_lists([[3, 7], [1]], num_labels=10)
        >>> ranking = TopLabels(1)
        >>> ranking.update([[3]], truth[:1])
        >>> ranking.update([[0]], truth[1:])
        >>> ranking.figures()[0]
        array([0.5])
    """

    def __init__(self, k: int = 5, weights: ArrayLike | None = None) -> None:
        self.k = int(checks.at_least("k", k, 1))
        self.weights = None if weights is None else to_numpy(weights).astype(np.float64)
        # Sums over rows of precision, nDCG and recall at 1 … k: ours, and of the best ranking.
        super().__init__(figures=np.zeros((2, 3, self.k)), rows=np.zeros(1))

    def update(self, top: ArrayLike, targets: SparseTargets | ArrayLike) -> None:
        """Add rows; rows with unknown truth are left out."""
        numbers, truth, weights = self._checked(top, targets)
        if truth.known is not None:
            numbers, truth = numbers[truth.known], truth[truth.known]
        if not len(truth):
            return
        each = _flags(numbers, truth, weights), _best_flags(truth, weights, self.k)
        for total, flags in zip(self.sums["figures"], each, strict=True):
            total += _row_figures(flags, truth.row_counts()).sum(axis=0)
        self.sums["rows"] += len(truth)

    def row_figures(self, top: ArrayLike, targets: SparseTargets | ArrayLike) -> Array:
        """Return precision, nDCG and recall of each row, (rows, 3, k); NaN for unknown rows.

        With weights, they are not yet divided by the values of the best ranking.
        """
        numbers, truth, weights = self._checked(top, targets)
        figures = _row_figures(_flags(numbers, truth, weights), truth.row_counts())
        if truth.known is not None:
            figures[~truth.known] = np.nan
        return figures

    def _checked(
        self, top: ArrayLike, targets: SparseTargets | ArrayLike
    ) -> tuple[Array, SparseTargets, Array]:
        """Return the first k label indices, the truth and one weight per label."""
        truth = _sparse(targets)
        numbers = to_numpy(top)
        if numbers.ndim != 2 or len(numbers) != len(truth) or numbers.dtype.kind not in "iu":
            raise checks.InputError(
                f"`top` must hold label numbers for each of the {len(truth)} rows of `targets`; "
                f"got {numbers.dtype} of shape {numbers.shape}."
            )
        weights = np.ones(truth.num_labels) if self.weights is None else self.weights
        numbers = _padded(numbers, self.k)
        if len(weights) != truth.num_labels or numbers.max(initial=-1) >= truth.num_labels:
            raise checks.InputError(
                f"`top` and `weights` must be of the {truth.num_labels:,} labels of `targets`; got "
                f"label {numbers.max(initial=-1):,} and {len(weights):,} weights."
            )
        return numbers, truth, weights

    def figures(self) -> Array:
        """Return the rows precision, nDCG and recall @1 … @k; propensity-scored with weights."""
        found, best = self.sums["figures"]
        with np.errstate(invalid="ignore", divide="ignore"):
            return found / (self.sums["rows"] if self.weights is None else best)


class HeldLabels(Accumulators):
    """Metrics of rows that store their most probable labels, over batches of rows.

    Args:
        bins: number of bins of the calibration errors.
        k: number of ranks.
    """

    ranks = None
    """No ranking of rows by label, which needs all labels of a row."""

    def __init__(self, bins: int = 15, k: int = max(PLACES)) -> None:
        self.ranking = TopLabels(k)
        self.bins, self.proper = CalibrationBins(1, bins), ProperScores(1)
        self.errors = {f"{name}{HELD}": (kind, "bins") for name, kind in ERRORS.items()}

    def update(self, top: Array, probabilities: Array, hits: Array, targets: SparseTargets) -> None:
        """Add rows.

        Args:
            top: (rows, labels) label indices, most probable first; −1 pads shorter rows.
            probabilities: the probabilities of these labels.
            hits: whether these labels are present: 1, 0, or −1 for unknown.
            targets: all labels that are present.
        """
        self.ranking.update(top, targets)
        held = top >= 0
        column, truth = probabilities[held][:, None], hits[held][:, None]
        self.bins.update(column, truth)
        self.proper.update(column, truth)

    def row_terms(
        self, top: Array, probabilities: Array, hits: Array, targets: SparseTargets
    ) -> dict[str, Terms]:
        """Return (part, whole) of each metric and row, with the arguments of ``update``."""
        figures = self.ranking.row_figures(top, targets)
        parts, wholes = np.nan_to_num(figures), ~np.isnan(figures)
        count, costs, squared = row_scores(probabilities, hits).T
        found = {
            f"{name}@{place + 1}": (parts[:, i, place], wholes[:, i, place])
            for i, name in enumerate(FIGURES)
            for place in range(self.ranking.k)
        }
        return found | {f"NLL{HELD}": (costs, count), f"Brier{HELD}": (squared, count)}

    def row_bins(
        self, top: Array, probabilities: Array, hits: Array, targets: SparseTargets
    ) -> dict[str, Array]:
        """Return the bins of the calibration errors of each row, (rows, bins, 3)."""
        return {"bins": row_bins(probabilities, hits, self.bins.num_bins)}

    @property
    def known(self) -> int:
        """Return the number of entries with a known target."""
        return self.proper.known

    def numbers(self, min_count: int = 30) -> dict[str, float]:
        """Return the metrics of all rows by their names in tables.

        Calibration and proper scores are over the stored labels; their names say so.
        """
        figures = self.ranking.figures()
        numbers = {
            f"{name}@{k}": figures[i, k - 1] for i, name in enumerate(FIGURES) for k in PLACES
        }
        numbers |= table_numbers(self.bins, self.proper, min_count, HELD)
        return {name: float(number) for name, number in numbers.items()}


def _sparse(targets: SparseTargets | ArrayLike) -> SparseTargets:
    if isinstance(targets, SparseTargets):
        return targets
    return SparseTargets.from_dense(decode(targets, coding="unknown", soft=False))


def _padded(numbers: Array, k: int) -> Array:
    """Return the first k label indices of each row; −1 pads shorter rows."""
    missing = max(0, k - numbers.shape[1])
    return np.pad(numbers[:, :k], ((0, 0), (0, missing)), constant_values=-1)


def _flags(numbers: Array, truth: SparseTargets, weights: Array) -> Array:
    """Return the weight of each present label, and 0 for the others."""
    held = np.maximum(numbers, 0)
    return np.clip(truth.at(held) * (numbers >= 0), 0, None) * weights[held]


def _row_figures(flags: Array, counts: Array) -> Array:
    """Return precision, nDCG and recall at 1 … k of each row, (rows, 3, k)."""
    places = np.arange(1, flags.shape[1] + 1)
    discount = 1 / np.log2(places + 1)
    ideal = np.cumsum(discount)
    reached = ideal[np.clip(counts, 1, len(places)).astype(int) - 1]
    sums = np.cumsum(flags, axis=1)
    gains = np.cumsum(flags * discount, axis=1) / np.minimum(reached[:, None], ideal)
    return np.stack([sums / places, gains, sums / np.maximum(counts, 1)[:, None]], axis=1)


def _best_flags(truth: SparseTargets, weights: Array, k: int) -> Array:
    """Return the k largest weights of each row's true labels, descending."""
    rows, values = truth.entry_rows(), np.maximum(truth.entry_values(), 0) * weights[truth.indices]
    order = np.lexsort((-values, rows))
    place = np.arange(len(rows)) - truth.offsets[rows]
    best = np.zeros((len(truth), k))
    inside = place < k
    best[rows[inside], place[inside]] = values[order][inside]
    return best
