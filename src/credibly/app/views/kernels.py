"""Counting decisions over all entries in one pass; the formulas are those of ``_costs``."""

from __future__ import annotations

from credibly.compiled import compiled
from credibly.types import Array


@compiled(error_model="numpy")
def count_outcomes(
    probabilities: Array,
    targets: Array,
    limits: Array,
    costs: Array,
    block: Array,
    counts: Array,
    paid: Array,
) -> float:
    """Add what became of each known entry, and return the cost that the probabilities expect.

    Args:
        probabilities, targets: (rows, labels).
        limits: (2, labels) where review and acceptance begin, of the type of the probabilities.
        costs: (3, labels) of a miss, a false alarm and a look.
        block: (rows,) group of each row.
        counts: (3, 2) receives accepted, rejected and looked at, each present and absent.
        paid: (groups,) receives the cost of each group.
    """
    expected = 0.0
    for row in range(probabilities.shape[0]):
        cost, chance = 0.0, 0.0
        for t in range(probabilities.shape[1]):
            target = targets[row, t]
            if target == 1:
                absent = 0
            elif target == 0:
                absent = 1
            else:
                continue
            p = probabilities[row, t]
            if p >= limits[1, t]:
                counts[0, absent] += 1
                cost += absent * costs[1, t]
                chance += (1.0 - p) * costs[1, t]
            elif p >= limits[0, t]:
                counts[2, absent] += 1
                cost += costs[2, t]
                chance += costs[2, t]
            else:
                counts[1, absent] += 1
                cost += (1 - absent) * costs[0, t]
                chance += p * costs[0, t]
        paid[block[row]] += cost
        expected += chance
    return expected


@compiled(error_model="numpy")
def count_by_threshold(
    probabilities: Array, targets: Array, grid: Array, block: Array, present: Array, absent: Array
) -> None:
    """Add each known entry to the last point of ``grid`` that its probability reaches.

    Args:
        probabilities, targets: (rows, labels).
        grid: points from 0 to 1 at equal distances.
        block: (rows,) group of each row.
        present, absent: (groups, points) receive the counts.
    """
    steps = len(grid) - 1
    for row in range(probabilities.shape[0]):
        group = block[row]
        for t in range(probabilities.shape[1]):
            target = targets[row, t]
            if target != 0 and target != 1:
                continue
            p = probabilities[row, t]
            place = min(max(int(p * steps), 0), steps)
            while place < steps and grid[place + 1] <= p:
                place += 1
            while place > 0 and grid[place] > p:
                place -= 1
            if target == 1:
                present[group, place] += 1
            else:
                absent[group, place] += 1
