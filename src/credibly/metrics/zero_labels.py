"""Rows that carry no label at all: are they told apart, and left unconfident?"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from credibly.arrays import like
from credibly.metrics.accumulators import Accumulator
from credibly.metrics.inputs import hard, probability_pair
from credibly.targets import Coding, TargetsLike
from credibly.types import Array, ArrayLike


@dataclass(frozen=True)
class ZeroLabel:
    """IN rows have a known label, OUT rows are known to have none; NaN where there are no rows."""

    accuracy: Any
    """Share of IN rows whose most probable label is present (ties count by share)."""
    mean_confidence_in: Any
    """Mean over IN rows of the largest probability."""
    mean_confidence_out: Any
    """MMC: mean over OUT rows of the largest probability; best is 0."""
    auroc: Any
    """Chance that an IN row's largest probability exceeds an OUT row's, ties counted half."""
    rows_in: int
    rows_out: int


def zero_label(
    probabilities: ArrayLike, targets: TargetsLike, *, coding: Coding | None = None
) -> ZeroLabel:
    """Accuracy where labels exist, confidence where none does, and how well the two separate.

    Rows whose known labels are all absent while others are unknown belong to neither side; a
    label that is unknown in every row is left out.

    Example:
        >>> probabilities = np.array([[0.9, 0.1], [0.2, 0.6], [0.1, 0.3]])
        >>> result = zero_label(probabilities, np.array([[1, 0], [1, 0], [0, 0]]))
        >>> float(result.accuracy), float(result.mean_confidence_out), float(result.auroc)
        (0.5, 0.3, 1.0)
    """
    values, truth = probability_pair(probabilities, targets, coding)
    found = ZeroLabels(values.shape[1])
    found.update(values, hard(truth, "zero_label"))
    numbers = vars(found.compute())
    return ZeroLabel(
        **{
            name: value if name.startswith("rows") else like(np.float64(value), probabilities)
            for name, value in numbers.items()
        }
    )


class ZeroLabels(Accumulator):
    """``zero_label`` over batches of rows, from the number of rows by confidence.

    Past ``exact`` different confidences, those that agree in their leading bits (by default 14 or
    more of the mantissa) count as ties in the AUROC; everything else stays exact.

    Args:
        num_labels: number of labels.
        exact: how many different confidences are told apart.
    """

    def __init__(self, num_labels: int, exact: int = 2**20) -> None:
        self._exact = exact
        self.sums = {
            "inside": np.zeros(3),  # rows, hits and sum of confidences of rows with a label
            "seen": np.zeros(num_labels),  # how often each label is known
        }
        # Only a row all of whose labels are known is certain to have none. Which labels have any
        # truth is known at the end; they are at least as many as any such row has.
        self._known = 0
        self._confidence_out = 0.0
        self._bits = 64
        self._keys: Array = np.zeros(0, np.uint64)
        self._counts: Array = np.zeros((0, 2))  # rows with a label, rows without
        self._waiting: list[tuple[Array, Array]] = []

    def update(self, probabilities: Array, targets: Array) -> None:
        """Add checked rows of targets 0, 1 and −1."""
        inside, outside_known, confidence, share = _rows(probabilities, targets)
        if not len(inside):
            return
        known = int(outside_known.max())
        outside = (outside_known == known) & ~inside & (known > 0)
        self.sums["inside"] += inside.sum(), share[inside].sum(), confidence[inside].sum()
        self.sums["seen"] += (targets >= 0).sum(0)
        used = inside | outside
        counts = np.stack([inside, outside], axis=1)[used].astype(np.float64)
        keys = confidence[used].view(np.uint64)  # in the order of the values, none being negative
        self._add(known, float(confidence[outside].sum()), keys, counts)

    def _add(self, known: int, confidence: float, keys: Array, counts: Array) -> None:
        if known > self._known:
            self._compact()
            self._known, self._confidence_out = known, 0.0
            self._counts[:, 1] = 0
        if known < self._known:
            counts, confidence = counts * [1.0, 0.0], 0.0
        self._confidence_out += confidence
        self._waiting.append((keys, counts))
        if sum(len(each) for each, _ in self._waiting) >= self._exact:
            self._compact()

    def _compact(self) -> None:
        """Count rows of equal confidence together."""
        waiting, self._waiting = [(self._keys, self._counts), *self._waiting], []
        keys, counts = (np.concatenate(each) for each in zip(*waiting, strict=True))
        while True:
            shift = np.uint64(64 - self._bits)
            found, places = np.unique(keys >> shift << shift, return_inverse=True)
            if len(found) <= self._exact:
                break
            self._bits = min(self._bits, 27) - 1  # 12 bits of sign and exponent
        self._keys = found
        self._counts = np.stack([np.bincount(places, each, len(found)) for each in counts.T], 1)

    def state(self) -> dict[str, Array]:
        """Return the counts."""
        self._compact()
        about = np.array([self._known, self._confidence_out, self._bits])
        return {**self.sums, "about": about, "keys": self._keys, "counts": self._counts}

    def merge(self, state: Mapping[str, Array]) -> None:
        """Add the ``state()`` of other rows."""
        super().merge(state)
        known, confidence, bits = state["about"]
        self._bits = min(self._bits, int(bits))
        self._add(int(known), float(confidence), state["keys"], np.array(state["counts"]))

    def compute(self) -> ZeroLabel:
        """Return the numbers of all rows."""
        inside, outside = self._tables()
        rows_in, hits, confidence = self.sums["inside"]
        rows_out = outside.sum()
        below = np.cumsum(outside) - outside / 2
        with np.errstate(invalid="ignore"):
            return ZeroLabel(
                hits / rows_in,
                confidence / rows_in,
                np.float64(self._confidence_out if rows_out else 0.0) / rows_out,
                (inside * below).sum() / (rows_in * rows_out),
                int(rows_in),
                int(rows_out),
            )

    def numbers(self) -> dict[str, float]:
        """Return the numbers by their names in tables; none where a kind of row is missing."""
        found = self.compute()
        if not (found.rows_in and found.rows_out):
            return {}
        return {
            "IN accuracy": float(found.accuracy),
            "OUT MMC": float(found.mean_confidence_out),
            "zero-label AUROC": float(found.auroc),
        }

    def row_terms(self, probabilities: Array, targets: Array) -> dict[str, Array]:
        """Return what each row adds to ``numbers``: (rows, 2) of part and whole of each ratio.

        For the AUROC, the influence of the row on it and 0.
        """
        inside, outside_known, confidence, share = _rows(probabilities, targets)
        used = int((self.sums["seen"] > 0).sum())
        outside = (outside_known == used) & ~inside
        tables = self._tables()
        shift = np.uint64(64 - self._bits)
        places = np.searchsorted(self._keys, confidence.view(np.uint64) >> shift << shift)
        auroc = np.zeros(len(inside))
        for mine, own, other, sign in ((inside, *tables, 1), (outside, *tables[::-1], -1)):
            shares = (np.cumsum(other) - other / 2) / max(other.sum(), 1)
            rows = max(own.sum(), 1)
            auroc[mine] = sign * (shares[places[mine]] - (shares * own).sum() / rows) / rows
        return {
            "IN accuracy": np.stack([np.where(inside, share, 0.0), inside], axis=1),
            "OUT MMC": np.stack([np.where(outside, confidence, 0.0), outside], axis=1),
            "zero-label AUROC": np.stack([auroc, np.zeros(len(auroc))], axis=1),
        }

    def _tables(self) -> tuple[Array, Array]:
        """Return how many rows with a label, and without, have each confidence."""
        self._compact()
        certain = self._known == int((self.sums["seen"] > 0).sum())
        return self._counts[:, 0], self._counts[:, 1] * certain


def _rows(probabilities: Array, targets: Array) -> tuple[Array, Array, Array, Array]:
    """Return of each row: has it a label, its known labels if not, confidence, share of hits."""
    known = targets >= 0
    values = np.where(known, probabilities.astype(np.float64), 0.0)
    confidence = values.max(1, initial=0.0) + 0.0  # −0 and 0 are equal
    inside = np.asarray((targets > 0).any(1))
    top = known & (values == confidence[:, None])
    share = (top & (targets > 0)).sum(1) / np.maximum(top.sum(1), 1)
    return inside, np.where(inside, 0, known.sum(1)), confidence, share
