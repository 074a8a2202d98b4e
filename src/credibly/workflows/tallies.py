"""What a pass over predictions adds up, on any engine: arrays in, arrays out, sums of pieces."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from credibly import metrics
from credibly.engines import Tally
from credibly.predictions import Predictions
from credibly.targets import Targets
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
        self.running = metrics.Running(num_labels, bins)
        self.zero = None if soft else metrics.ZeroLabelCounts()

    def update(self, batch: Predictions, first_row: int) -> None:
        """Add rows; which they are does not matter."""
        assert batch.targets is not None
        self.running.update(batch.probabilities, Targets(batch.targets), batch.scores)
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


class IntervalTally:
    """``metrics.GroupSums`` of the rows, for intervals.

    Args:
        sums: the sums, still empty.
    """

    def __init__(self, sums: metrics.GroupSums) -> None:
        self.sums = sums

    def update(self, batch: Predictions, first_row: int) -> None:
        """Add rows; the first has this number."""
        assert batch.targets is not None
        self.sums.update(batch.probabilities, batch.targets, batch.scores, first_row=first_row)

    def state(self) -> dict[str, Array]:
        """Return the sums."""
        return self.sums.state()

    def add(self, state: State) -> None:
        """Add the sums of other rows."""
        self.sums.add(state)


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
        self.held = metrics.Running(1, bins)  # all entries as one column

    def update(self, batch: Predictions, first_row: int) -> None:
        """Add rows; which they are does not matter."""
        assert batch.targets is not None
        assert batch.all_targets is not None
        for ranking in self.rankings.values():
            ranking.update(batch.label_indices, batch.all_targets)
        held = batch.held
        self.held.update(batch.probabilities[held][:, None], Targets(batch.targets[held][:, None]))

    def state(self) -> dict[str, Array]:
        """Return the sums."""
        rankings = {f"top{name}": each.state() for name, each in self.rankings.items()}
        return joined({"held": self.held.state(), **rankings})

    def add(self, state: State) -> None:
        """Add the sums of other rows."""
        self.held.add(part_of(state, "held"))
        for name, ranking in self.rankings.items():
            ranking.add(part_of(state, f"top{name}"))


class TopIntervalTally:
    """``metrics.TopGroupSums`` of the rows, for intervals.

    Args:
        sums: the sums, still empty.
    """

    def __init__(self, sums: metrics.TopGroupSums) -> None:
        self.sums = sums

    def update(self, batch: Predictions, first_row: int) -> None:
        """Add rows; the first has this number."""
        assert batch.targets is not None
        assert batch.all_targets is not None
        self.sums.update(
            batch.label_indices,
            batch.probabilities,
            batch.targets,
            batch.all_targets,
            first_row=first_row,
        )

    def state(self) -> dict[str, Array]:
        """Return the sums."""
        return self.sums.state()

    def add(self, state: State) -> None:
        """Add the sums of other rows."""
        self.sums.add(state)
