"""Metrics of the most probable labels of each row, for very many labels.

Definitions are those of the extreme classification repository (``pyxclib``): means over all rows,
rows without labels included, where they count as 0.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from credibly import checks
from credibly.arrays import like, to_numpy
from credibly.targets import SparseTargets, decode
from credibly.types import Array, ArrayLike


def inverse_propensities(
    label_counts: ArrayLike, num_rows: int, a: float = 0.55, b: float = 1.5
) -> Any:
    r"""Return one weight per label: the inverse of the probability that a true label is recorded.

    $1 + C\,(n_l + B)^{-A}$ with $C = (\log N - 1)\,(B + 1)^A$. Jain et al. (2016), Eq. 2.

    Args:
        label_counts: $n_l$, in how many training rows each label is.
        num_rows: $N$, number of training rows.
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
) -> Any:
    """Return precision@1 … precision@k: the share of true labels among the most probable ones.

    Args:
        top: (rows, at least k) label numbers, most probable first; −1 where a row has no more.
        targets: ``SparseTargets``, or a (rows, labels) matrix of 0 and 1.
        k: how many places.
        weights: one per label, from ``inverse_propensities``; the result is then divided by the
            largest that any ranking can have (propensity-scored precision).

    Example:
        >>> truth = SparseTargets.from_lists([[3, 7], [1]], num_labels=10)
        >>> precision_at_k([[3, 2, 7], [0, 1, 4]], truth, k=3)
        array([0.5, 0.5, 0.5])
    """
    tally = TopLabels(k, weights)
    tally.update(top, targets)
    return like(tally.precision(), top, targets, weights)


def ndcg_at_k(
    top: ArrayLike, targets: SparseTargets | ArrayLike, k: int = 5, weights: ArrayLike | None = None
) -> Any:
    """Return nDCG@1 … nDCG@k: true labels, discounted by the logarithm of their place.

    Arguments are those of ``precision_at_k``.

    Example:
        >>> truth = SparseTargets.from_lists([[3, 7], [1]], num_labels=10)
        >>> ndcg_at_k([[3, 2, 7], [0, 1, 4]], truth, k=3).round(4)
        array([0.5   , 0.622 , 0.7753])
    """
    tally = TopLabels(k, weights)
    tally.update(top, targets)
    return like(tally.ndcg(), top, targets, weights)


def recall_at_k(
    top: ArrayLike, targets: SparseTargets | ArrayLike, k: int = 5, weights: ArrayLike | None = None
) -> Any:
    """Return recall@1 … recall@k: the share of a row's true labels that are among the k.

    Arguments are those of ``precision_at_k``.

    Example:
        >>> truth = SparseTargets.from_lists([[3, 7], [1]], num_labels=10)
        >>> recall_at_k([[3, 2, 7], [0, 1, 4]], truth, k=3)
        array([0.25, 0.75, 1.  ])
    """
    tally = TopLabels(k, weights)
    tally.update(top, targets)
    return like(tally.recall(), top, targets, weights)


class TopLabels:
    """Precision, nDCG and recall of the k most probable labels, over batches of rows.

    Sums only: tallies of parts of the rows can be added (``merge``).

    Args:
        k: how many places.
        weights: as for ``precision_at_k``.

    Example:
        >>> truth = SparseTargets.from_lists([[3, 7], [1]], num_labels=10)
        >>> tally = TopLabels(1)
        >>> tally.update([[3]], truth[:1])
        >>> tally.update([[0]], truth[1:])
        >>> tally.precision()
        array([0.5])
    """

    def __init__(self, k: int = 5, weights: ArrayLike | None = None) -> None:
        self.k = int(checks.at_least("k", k, 1))
        self.weights = None if weights is None else to_numpy(weights).astype(np.float64)
        self.rows = 0
        # Sums over rows of each figure at 1 … k; the second row holds those of the best ranking.
        self.hits, self.gains, self.found = (np.zeros((2, self.k)) for _ in range(3))

    def update(self, top: ArrayLike, targets: SparseTargets | ArrayLike) -> None:
        """Add rows; rows of which nothing is known are left out."""
        numbers, truth, weights = self._checked(top, targets)
        if truth.known is not None:
            numbers, truth = numbers[truth.known], truth[truth.known]
        if not len(truth):
            return
        counts = truth.row_counts()
        for place, flags in enumerate(
            (_flags(numbers, truth, weights), _best_flags(truth, weights, self.k))
        ):
            figures = _row_figures(flags, counts).sum(axis=0)
            for sums, each in zip((self.hits, self.gains, self.found), figures, strict=True):
                sums[place] += each
        self.rows += len(truth)

    def row_figures(self, top: ArrayLike, targets: SparseTargets | ArrayLike) -> Array:
        """Return precision, nDCG and recall of each row, (rows, 3, k); NaN for unknown rows.

        With weights they are not yet divided by what the best ranking has.
        """
        numbers, truth, weights = self._checked(top, targets)
        figures = _row_figures(_flags(numbers, truth, weights), truth.row_counts())
        if truth.known is not None:
            figures[~truth.known] = np.nan
        return figures

    def _checked(
        self, top: ArrayLike, targets: SparseTargets | ArrayLike
    ) -> tuple[Array, SparseTargets, Array]:
        """Return the first k label numbers, the truth and one weight per label."""
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

    def merge(self, other: TopLabels) -> TopLabels:
        """Return the tally of both together."""
        both = TopLabels(self.k, self.weights)
        both.rows = self.rows + other.rows
        for name in ("hits", "gains", "found"):
            vars(both)[name] = vars(self)[name] + vars(other)[name]
        return both

    def state(self) -> dict[str, Array]:
        """Return the sums as arrays; ``add`` takes them back."""
        sums = {name: vars(self)[name] for name in ("hits", "gains", "found")}
        return {**sums, "rows": np.array(self.rows)}

    def add(self, state: Mapping[str, Array]) -> None:
        """Add the ``state`` of another tally with the same places and weights."""
        self.rows += int(state["rows"])
        for name in ("hits", "gains", "found"):
            vars(self)[name] += state[name]

    def precision(self) -> Array:
        """Return precision@1 … @k; propensity-scored where weights were given."""
        return self._mean(self.hits)

    def ndcg(self) -> Array:
        """Return nDCG@1 … @k; propensity-scored where weights were given."""
        return self._mean(self.gains)

    def recall(self) -> Array:
        """Return recall@1 … @k; propensity-scored where weights were given."""
        return self._mean(self.found)

    def _mean(self, sums: Array) -> Array:
        with np.errstate(invalid="ignore", divide="ignore"):
            return sums[0] / (self.rows if self.weights is None else sums[1])


def _sparse(targets: SparseTargets | ArrayLike) -> SparseTargets:
    if isinstance(targets, SparseTargets):
        return targets
    return SparseTargets.from_dense(decode(targets, coding="unknown", soft=False))


def _padded(numbers: Array, k: int) -> Array:
    """Return the first k label numbers of each row; −1 where there are fewer."""
    missing = max(0, k - numbers.shape[1])
    return np.pad(numbers[:, :k], ((0, 0), (0, missing)), constant_values=-1)


def _flags(numbers: Array, truth: SparseTargets, weights: Array) -> Array:
    """Return the weight of each label that is present, 0 for the others."""
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
    """Return the k largest weights of each row's true labels, in falling order."""
    rows, values = truth.entry_rows(), np.maximum(truth.entry_values(), 0) * weights[truth.indices]
    order = np.lexsort((-values, rows))
    place = np.arange(len(rows)) - truth.offsets[rows]
    best = np.zeros((len(truth), k))
    inside = place < k
    best[rows[inside], place[inside]] = values[order][inside]
    return best
