"""What a pass over predictions adds up, on any engine: arrays in, arrays out, sums of pieces."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from credibly import metrics
from credibly.engines import Tally
from credibly.predictions import Predictions, TopPredictions
from credibly.types import Array

State = Mapping[str, Array]


class Tallies:
    """Several tallies of the same rows as one.

    Example:
        >>> tallies = Tallies(evaluation=EvaluationTally(2))
        >>> "evaluation:rows" in tallies.state()
        True
    """

    def __init__(self, **parts: Tally) -> None:
        self.parts: dict[str, Any] = parts

    def update(self, batch: Any, first_row: int) -> None:
        """Add rows to every part."""
        for part in self.parts.values():
            part.update(batch, first_row)

    def state(self) -> dict[str, Array]:
        """Return the states of all parts."""
        return joined({name: part.state() for name, part in self.parts.items()})

    def add(self, state: State) -> None:
        """Add the sums of other rows to every part."""
        for name, part in self.parts.items():
            part.add(part_of(state, name))


def joined(states: Mapping[str, State]) -> dict[str, Array]:
    """Return states under one name each, ``part:array``."""
    return {f"{part}:{key}": each for part, state in states.items() for key, each in state.items()}


def part_of(state: State, name: str) -> dict[str, Array]:
    """Return one of the states that ``joined`` put together."""
    start = f"{name}:"
    return {key.removeprefix(start): each for key, each in state.items() if key.startswith(start)}


class EvaluationTally:
    """Calibration, proper scores and mAP@x; zero-label numbers where truth is not soft.

    Args:
        num_labels: number of labels.
        bins: bins of the calibration errors.
        soft: whether the truth may be soft.
    """

    def __init__(self, num_labels: int, bins: int = 15, *, soft: bool = False) -> None:
        self.running = metrics.Running(num_labels, bins, coding="unknown")
        self.zero = None if soft else ZeroLabelHistogram()

    def update(self, batch: Predictions, first_row: int) -> None:
        """Add rows; which they are does not matter."""
        assert batch.targets is not None
        self.running.update(batch.probabilities, batch.targets, batch.scores)
        if self.zero is not None:
            self.zero.update(batch.probabilities, batch.targets)

    def state(self) -> dict[str, Array]:
        """Return the sums."""
        zero = {} if self.zero is None else joined({"zero": self.zero.state()})
        return {**self.running.state(), **zero}

    def add(self, state: State) -> None:
        """Add the sums of other rows."""
        self.running.add(state)
        if self.zero is not None:
            self.zero.add(part_of(state, "zero"))


class RankTally:
    """``metrics.RankCounts`` of what ranks rows: scores where there are some."""

    def __init__(self, num_labels: int) -> None:
        self.counts = metrics.RankCounts(num_labels)

    def update(self, batch: Predictions, first_row: int) -> None:
        """Add rows; which they are does not matter."""
        assert batch.targets is not None
        ranked = batch.probabilities if batch.scores is None else batch.scores
        self.counts.update(ranked, batch.targets)

    def state(self) -> dict[str, Array]:
        """Return the counts."""
        return self.counts.state()

    def add(self, state: State) -> None:
        """Add the counts of other rows."""
        self.counts.add(state)


class ZeroLabelHistogram:
    """``metrics.zero_label`` from counts in place of rows.

    Confidences that agree in 14 bits of their mantissa, to about 6e-5 of their value, count as ties
    in the AUROC; the other numbers are exact.
    """

    BINS = 2**21

    def __init__(self) -> None:
        self._sums = np.zeros(3)  # hits of rows with a label, their number, confidence without one
        self._known = 0
        self._inside, self._outside = (np.zeros(self.BINS) for _ in range(2))

    def update(self, probabilities: Array, targets: Array) -> None:
        """Add rows."""
        part = metrics.zero_label(probabilities, targets, coding="unknown")
        known = targets >= 0
        confidence = np.where(known, probabilities, np.float32(0)).max(axis=1)
        inside, counts = targets.max(axis=1) > 0, known.sum(axis=1)
        # Bits of a float32 in [0, 1] are in the order of its values; the highest two are 0.
        bins = confidence.astype(np.float32).view(np.uint32) >> 9
        hits = part.rows_in * float(part.accuracy) if part.rows_in else 0.0
        self._sums[:2] += hits, inside.sum()
        self._inside += np.bincount(bins[inside], minlength=self.BINS)
        # Only rows all of whose labels are known are certain to have none; which labels have any
        # truth is known at the end, and is at least the largest count.
        self._raise_known(int(counts[~inside].max(initial=0)))
        outside = ~inside & (counts == self._known)
        self._outside += np.bincount(bins[outside], minlength=self.BINS)
        self._sums[2] += float(confidence[outside].sum(dtype=np.float64))

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


class TopTally:
    """Metrics of files with the most probable labels of each row.

    Args:
        places: how many places of the ranking.
        bins: bins of the calibration errors.
        weights: inverse propensities of the labels, for propensity-scored metrics too.
    """

    def __init__(self, places: int, bins: int = 15, weights: Array | None = None) -> None:
        self.rankings = {"": metrics.TopLabels(places)}
        if weights is not None:
            self.rankings["PS "] = metrics.TopLabels(places, weights)
        self.held = metrics.Running(1, bins, coding="unknown")  # all entries as one column

    def update(self, batch: TopPredictions, first_row: int) -> None:
        """Add rows; which they are does not matter."""
        assert batch.targets is not None
        for ranking in self.rankings.values():
            ranking.update(batch.top, batch.targets)
        held, hits = batch.top >= 0, batch.hits()
        self.held.update(batch.probabilities[held][:, None], hits[held][:, None])

    def state(self) -> dict[str, Array]:
        """Return the sums."""
        rankings = {f"top{name}": each.state() for name, each in self.rankings.items()}
        return joined({"held": self.held.state(), **rankings})

    def add(self, state: State) -> None:
        """Add the sums of other rows."""
        self.held.add(part_of(state, "held"))
        for name, ranking in self.rankings.items():
            ranking.add(part_of(state, f"top{name}"))
