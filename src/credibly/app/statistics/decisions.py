"""What a rule selects and what its mistakes cost, where the truth is known."""

from __future__ import annotations

from dataclasses import dataclass
from typing import SupportsFloat

import numpy as np

from credibly import metrics
from credibly.decide import AverageSize, Cost, Threshold
from credibly.targets import Targets
from credibly.types import Array


@dataclass(frozen=True)
class SetSizes:
    """Label sets of some rows under a rule with an average size; None where truth is missing."""

    average_size: float
    threshold: float
    mean_size: float
    rows: int
    coverage: float | None
    precision: float | None
    row_recall: float | None
    histogram: list[int]
    statement: str


def budget(
    decision: AverageSize | Threshold, probabilities: Array, targets: Array | None
) -> SetSizes:
    """Return the sizes of the sets of a fitted ``decision`` and, with truth, how right they are.

    Its threshold is one for all labels.

    Example:
        >>> p = np.array([[0.9, 0.2], [0.8, 0.7]])
        >>> budget(AverageSize(1.5).fit(p), p, np.array([[1, 0], [0, 1]])).coverage
        1.0
    """
    sets = decision.predict(probabilities)
    sizes = sets.sum(1)
    mean = float(sizes.mean())
    right: dict[str, float | None] = dict.fromkeys(("coverage", "precision", "row_recall"))
    if targets is not None:
        truth, some = Targets(targets), (targets >= 0.5).any(1)
        right["coverage"] = _finite(metrics.set_coverage(sets, truth))
        right["precision"] = _finite(metrics.precision(sets, truth))
        # Of the rows with labels, the share of a row's labels that are in its set, on average.
        recall = metrics.recall(sets[some], Targets(targets[some]), "samples")
        right["row_recall"] = _finite(recall)
    return SetSizes(
        average_size=decision.average_size if isinstance(decision, AverageSize) else mean,
        threshold=float(decision.selects_above.item()),
        mean_size=mean,
        rows=len(sizes),
        **right,
        histogram=np.bincount(sizes).tolist(),
        statement=decision.statement,
    )


def size_bars(counts: list[int], most: int = 16) -> list[tuple[str, int]]:
    """Return rows by number of labels as at most ``most`` bars with names; large sizes share one.

    Example:
        >>> size_bars([3, 5, 2])
        [('no label', 3), ('1', 5), ('2', 2)]
        >>> size_bars([1] * 100, most=5)[1:3]
        [('1–25', 25), ('26–50', 25)]
    """
    if len(counts) <= most:
        return [("no label" if not size else str(size), n) for size, n in enumerate(counts)]
    width = -(-(len(counts) - 1) // (most - 1))
    bars = [("no label", counts[0])]
    for first in range(1, len(counts), width):
        last = min(first + width, len(counts)) - 1
        name = str(first) if first == last else f"{first}–{last}"
        bars.append((name, sum(counts[first : last + 1])))
    return bars


def _finite(value: SupportsFloat) -> float | None:
    number = float(value)
    return number if np.isfinite(number) else None


STEPS = 200
BLOCKS = 40
"""Groups of rows whose spread gives the intervals."""

_T = 2.023  # 97.5 % quantile of Student's t with 39 degrees of freedom


@dataclass(frozen=True)
class CostCurve:
    """Mean cost per row over thresholds, with 95 % intervals from groups of rows."""

    thresholds: Array
    cost: Array
    low: Array
    high: Array

    @property
    def best(self) -> float:
        """Return the threshold with the lowest measured cost."""
        return float(self.thresholds[self.cost.argmin()])


@dataclass(frozen=True)
class Outcome:
    """What became of the entries with known truth under accept, review and reject.

    Attributes:
        rows: rows that were looked at.
        hits, false_alarms: entries accepted that are present, absent.
        misses, rejected: entries rejected that are present, absent.
        looked_present, looked_absent: entries that go to a person.
        cost, low, high: mean cost per row with a 95 % interval.
        expected: the same by the probabilities alone.
    """

    rows: int
    hits: int
    false_alarms: int
    misses: int
    rejected: int
    looked_present: int
    looked_absent: int
    cost: float
    low: float
    high: float
    expected: float

    @property
    def looked(self) -> int:
        """Return how many entries go to a person."""
        return self.looked_present + self.looked_absent

    @property
    def known(self) -> int:
        """Return how many entries have known truth."""
        return self.hits + self.false_alarms + self.misses + self.rejected + self.looked


def cost_curve(probabilities: Array, targets: Array, miss: float, false_alarm: float) -> CostCurve:
    """Return the mean cost per row where every label has one threshold, for each threshold.

    Args:
        probabilities: (rows, labels) in [0, 1].
        targets: decoded, same shape; −1 is unknown, soft ones are passed over.
        miss, false_alarm: the costs.

    Example:
        >>> curve = cost_curve(np.array([[0.9], [0.2]]), np.array([[1], [0]]), 5, 1)
        >>> curve.cost[[0, 100, 200]]
        array([0.5, 0. , 2.5])
    """
    block, grid = _blocks(len(probabilities)), np.linspace(0, 1, STEPS + 1)
    step = np.searchsorted(grid.astype(probabilities.dtype), probabilities, side="right") - 1
    place = step + (STEPS + 1) * block[:, None]

    def counted(value: int) -> Array:
        counts = np.bincount(place[targets == value], minlength=BLOCKS * (STEPS + 1))
        return counts.reshape(BLOCKS, STEPS + 1)

    present, absent = counted(1), counted(0)
    missed = np.cumsum(present, 1) - present
    alarms = absent.sum(1, keepdims=True) - np.cumsum(absent, 1) + absent
    rows = np.bincount(block, minlength=BLOCKS)
    cost, half = _mean(miss * missed + false_alarm * alarms, rows)
    return CostCurve(grid, cost, np.maximum(cost - half, 0), cost + half)


def _mean(total: Array, rows: Array) -> tuple[Array, Array]:
    """Return the mean per row of sums by group, and half the width of its 95 % interval."""
    used = rows > 0
    mean = total.sum(0) / max(1, rows.sum())
    if used.sum() < BLOCKS:
        return mean, np.full(np.shape(mean), np.nan)
    # The ratio of two sums: its spread is that of what each group has over its share.
    excess = total - mean * rows.reshape(-1, *[1] * (total.ndim - 1))
    spread = np.sqrt((excess**2).sum(0) * BLOCKS / (BLOCKS - 1)) / rows.sum()
    return mean, _T * spread


def _blocks(rows: int) -> Array:
    """Return a group for each row, by chance and always the same."""
    return np.random.default_rng(0).permutation(rows) % BLOCKS


def outcome(
    probabilities: Array,
    targets: Array,
    miss: float,
    false_alarm: float = 1.0,
    review: float | None = None,
) -> Outcome:
    """Return counts and cost of accept, review and reject on entries with known truth.

    Example:
        >>> p, y = np.array([[0.9, 0.3], [0.2, 0.6]]), np.array([[1, 0], [1, -1]])
        >>> found = outcome(p, y, miss=5, review=0.5)
        >>> found.hits, found.misses, found.looked, found.cost
        (1, 0, 2, 0.5)
    """
    cost, p, block = Cost(miss, false_alarm, review), probabilities, _blocks(len(probabilities))
    present, absent = targets == 1, targets == 0
    accepted, looked = cost.predict(p), cost.to_review(p)
    rejects, price = ~accepted & ~looked, cost.review or 0.0
    entries = {
        "hits": accepted & present,
        "false_alarms": accepted & absent,
        "misses": rejects & present,
        "rejected": rejects & absent,
        "looked_present": looked & present,
        "looked_absent": looked & absent,
    }
    paid = cost.false_alarm * entries["false_alarms"].sum(1) + cost.miss * entries["misses"].sum(1)
    paid += price * (looked & (present | absent)).sum(1)
    risk = np.where(accepted, (1 - p) * cost.false_alarm, p * cost.miss)
    risk = np.where(looked, price, risk)
    expected = float((risk * (present | absent)).sum(dtype=np.float64))
    by_block = np.bincount(block, weights=paid, minlength=BLOCKS)
    mean, half = _mean(by_block, np.bincount(block, minlength=BLOCKS))
    return Outcome(
        rows=len(probabilities),
        **{name: int(mask.sum()) for name, mask in entries.items()},
        cost=float(mean),
        low=float(max(mean - half, 0)),
        high=float(mean + half),
        expected=expected / max(1, len(probabilities)),
    )
