"""Zero-label numbers of predictions too large for memory: counts by confidence."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from credibly.metrics.zero_labels import zero_label
from credibly.targets import Targets
from credibly.types import Array

State = Mapping[str, Array]


class ZeroLabelCounts:
    """``zero_label`` from counts in place of rows, which can be added.

    Confidences that agree in 14 bits of their mantissa, to about 6e-5 of their value, count as ties
    in the AUROC; the other numbers are exact.

    Example:
        >>> counts = ZeroLabelCounts()
        >>> counts.update(np.float32([[0.9, 0.1], [0.1, 0.3]]), np.array([[1, 0], [0, 0]]))
        >>> counts.numbers(labels_with_truth=2)["zero-label AUROC"]
        1.0
    """

    BINS = 2**21

    def __init__(self) -> None:
        self._sums = np.zeros(3)  # hits of rows with a label, their number, confidence without one
        self._known = 0
        self._inside, self._outside = (np.zeros(self.BINS) for _ in range(2))

    def update(self, probabilities: Array, targets: Array) -> None:
        """Add rows."""
        part = zero_label(probabilities, Targets(targets))
        known = targets >= 0
        confidence = np.where(known, probabilities, np.float32(0)).max(axis=1)
        inside, counts = targets.max(axis=1) > 0, known.sum(axis=1)
        bins = self._bins(confidence)
        hits = part.rows_in * float(part.accuracy) if part.rows_in else 0.0
        self._sums[:2] += hits, inside.sum()
        self._inside += np.bincount(bins[inside], minlength=self.BINS)
        # Only rows all of whose labels are known are certain to have none; which labels have any
        # truth is known at the end, and is at least the largest count.
        self._raise_known(int(counts[~inside].max(initial=0)))
        outside = ~inside & (counts == self._known)
        self._outside += np.bincount(bins[outside], minlength=self.BINS)
        self._sums[2] += float(confidence[outside].sum(dtype=np.float64))

    @staticmethod
    def _bins(confidence: Array) -> Array:
        # Bits of a float32 in [0, 1] are in the order of its values; the highest two are 0.
        return confidence.astype(np.float32).view(np.uint32) >> 9

    def _raise_known(self, known: int) -> None:
        if known > self._known:
            self._known, self._sums[2] = known, 0.0
            self._outside[:] = 0

    def state(self) -> dict[str, Array]:
        """Return the counts that are not 0."""
        inside, outside = np.flatnonzero(self._inside), np.flatnonzero(self._outside)
        return {
            "sums": self._sums,
            "known": np.array(self._known),
            "inside": np.stack([inside, self._inside[inside]]),
            "outside": np.stack([outside, self._outside[outside]]),
        }

    def add(self, state: State) -> None:
        """Add the counts of other rows."""
        known = int(state["known"])
        self._raise_known(known)
        self._sums[:2] += state["sums"][:2]
        places, counts = state["inside"]
        self._inside[places.astype(np.int64)] += counts
        if known == self._known:
            places, counts = state["outside"]
            self._outside[places.astype(np.int64)] += counts
            self._sums[2] += state["sums"][2]

    def row_terms(self, probabilities: Array, targets: Array) -> dict[str, Array]:
        """Return what each row adds to the numbers: (rows, 2) of part and whole of each ratio.

        For the AUROC, the influence of the row on it and 0.
        """
        known = targets >= 0
        values = np.where(known, probabilities, np.float32(0))
        confidence = values.max(axis=1)
        inside = targets.max(axis=1) > 0
        outside = ~inside & (known.sum(axis=1) == self._known)
        top = known & (values == confidence[:, None])
        share = (top & (targets > 0)).sum(axis=1) / np.maximum(top.sum(axis=1), 1)
        bins, rows_in, rows_out = self._bins(confidence), self._sums[1], self._outside.sum()
        auroc = np.zeros(len(confidence))
        for mine, theirs, own, other, sign in (
            (inside, self._outside, rows_in, rows_out, 1),
            (outside, self._inside, rows_out, rows_in, -1),
        ):
            shares = (np.cumsum(theirs) - theirs / 2) / max(other, 1)
            mean = (shares * (self._inside if sign == 1 else self._outside)).sum() / max(own, 1)
            auroc[mine] = sign * (shares[bins[mine]] - mean) / max(own, 1)
        return {
            "IN accuracy": np.stack([np.where(inside, share, 0.0), inside], axis=1),
            "OUT MMC": np.stack([np.where(outside, confidence, 0.0), outside], axis=1),
            "zero-label AUROC": np.stack([auroc, np.zeros(len(auroc))], axis=1),
        }

    def numbers(self, labels_with_truth: int) -> dict[str, float]:
        """Return the zero-label numbers; none where a kind of row is missing."""
        hits, rows_in, confidence = self._sums
        rows_out = self._outside.sum()
        if not rows_in or not rows_out or self._known != labels_with_truth:
            return {}
        below = np.cumsum(self._outside) - self._outside
        wins = (self._inside * (below + self._outside / 2)).sum()
        return {
            "IN accuracy": hits / rows_in,
            "OUT MMC": confidence / rows_out,
            "zero-label AUROC": float(wins / (rows_in * rows_out)),
        }
