r"""Find the largest sets that a betting test certifies to hold at most K labels on average.

Let $x_i$ be the share of all labels that row i's set holds and $\kappa = K/L$. If the mean of x
were $\kappa$ or more, the capital $\prod_i (1 + \nu(\kappa - x_i))$ of a gambler who stakes a fixed
$\nu \in [0, 1/(1-\kappa)]$ would have expectation at most 1, so it reaches 1/δ with probability at
most δ (Markov; Waudby-Smith & Ramdas, 2024, bet the same way). Two things make it fit here:

- With a fixed stake the capital falls whenever any set grows. So among nested sets there is one
  point where it drops below 1/δ, bisection finds it, and no correction for trying many
  thresholds is needed: too large a set would have to win at the one threshold where the mean is K.
- The first rows are bet on with a stake for sets of Poisson spread, the others with one for the
  spread seen on the first rows: a stake only has to be fixed before the rows it is placed on.
"""

from __future__ import annotations

import math

import numpy as np

from credibly import checks
from credibly.compiled import compiled
from credibly.decide.batches import MatrixSource
from credibly.decide.rounding import just_above, just_below
from credibly.types import Array

PROBES = 15  # thresholds tested per pass over the rows: each pass determines four bits
LARGEST_STAKE = 0.999  # share of the stake with which one full set would lose all capital


def largest_sets(source: MatrixSource, rows: int, size: float, delta: float) -> tuple[float, int]:
    """Return threshold and number of tied labels of the largest certified sets."""
    if size == source.num_labels:
        return -1.0, 0
    first = min(rows, max(20, min(rows // 20, 200, (1 << 18) // source.num_labels)))
    variances = size, _variance(source.head(first), size)
    rewards = np.stack(
        [_rewards(source.num_labels, size, rows, delta, variance) for variance in variances]
    )
    needed = math.log(1 / delta)
    if first * rewards[0, 0] + (rows - first) * rewards[1, 0] < needed:
        raise _too_few(rows, source.num_labels, size, delta)

    def certified(above: Array, at: Array, tied_labels: Array) -> Array:
        counts = _size_counts(source, first, above, at, tied_labels)
        return (counts * rewards[:, None]).sum(axis=(0, 2)) >= needed

    unsigned = np.uint32 if source.dtype == np.float32 else np.uint64
    # Sets above 1 are empty, hence certified; sets from 0 on, without ties, are the first to fail.
    low, high = -1, int(np.ones(1, source.dtype).view(unsigned)[0])
    while high - low > 1:
        probes = _between(low, high)
        values = np.array(probes, dtype=unsigned).view(source.dtype)
        passed = certified(values, values, np.zeros(len(values), dtype=np.int64))
        low, high = _narrow(low, high, probes, passed)
    value = np.array([high], dtype=unsigned).view(source.dtype)
    low, tied = source.num_labels + 1, 0  # here more labels are harder to certify
    while low - tied > 1:
        probes = _between(tied, low)
        edges = (
            np.repeat(edge(value.astype(float)), len(probes)) for edge in (just_above, just_below)
        )
        passed = certified(*edges, np.array(probes, dtype=np.int64))
        tied, low = _narrow(tied, low, probes, ~passed)
    return float(value[0]), tied


def _variance(head: Array, size: float) -> float:
    """Return the variance of set sizes on ``head`` at its own threshold.

    One row of Poisson spread is added, so that it is never 0.
    """
    rank = min(head.size, max(1, round(size * len(head))))
    threshold = np.partition(head.reshape(-1), head.size - rank)[head.size - rank]
    sizes = (head >= threshold).sum(axis=1)
    return float((size + ((sizes - sizes.mean()) ** 2).sum()) / (len(head) + 1))


def _rewards(num_labels: int, size: float, rows: int, delta: float, variance: float) -> Array:
    """Return the log of the factor on the capital by set size, at the best fixed stake."""
    share = size / num_labels
    stake = math.sqrt(2 * math.log(1 / delta) / (rows * variance)) * num_labels
    stake = min(stake, LARGEST_STAKE / (1 - share))
    return np.log1p(stake * (share - np.arange(num_labels + 1) / num_labels))


def _between(low: int, high: int) -> list[int]:
    """Return up to ``PROBES`` whole numbers strictly between, evenly spaced."""
    count = min(PROBES, high - low - 1)
    return [low + (high - low) * (i + 1) // (count + 1) for i in range(count)]


def _narrow(low: int, high: int, probes: list[int], passed: Array) -> tuple[int, int]:
    """Return the neighbours between which ``passed`` turns from False to True."""
    turn = int(np.argmax(passed)) if passed.any() else len(probes)
    return (
        probes[turn - 1] if turn else low,
        probes[turn] if turn < len(probes) else high,
    )


def _size_counts(
    source: MatrixSource, first: int, above: Array, at: Array, tied_labels: Array
) -> Array:
    """Count rows by set size for each threshold: the ``first`` rows, and the others."""
    counts = np.zeros((2, len(above), source.num_labels + 1), dtype=np.int64)
    for batch in source:
        for group, rows in enumerate((batch[:first], batch[first:])):
            if len(rows):
                _add_sizes(rows, above, at, tied_labels, counts[group])
        first = max(0, first - len(batch))
    return counts


@compiled(error_model="numpy")
def _add_sizes(probabilities, above, at, tied_labels, counts):
    lowest = at.min()
    sizes = np.zeros(above.size, dtype=np.int64)
    for row in range(probabilities.shape[0]):
        sizes[:] = 0
        for label in range(probabilities.shape[1]):
            value = probabilities[row, label]
            if value > lowest:
                for i in range(above.size):
                    if value > above[i] or (value > at[i] and label < tied_labels[i]):
                        sizes[i] += 1
        for i in range(above.size):
            counts[i, sizes[i]] += 1


def _too_few(rows: int, num_labels: int, size: float, delta: float) -> checks.InputError:
    share = size / num_labels
    needed = math.ceil(math.log(1 / delta) / math.log1p(LARGEST_STAKE * share / (1 - share)))
    return checks.InputError(
        f'`guarantee=("probability", {delta:g})` with an average size of {size:g} and {num_labels} '
        f"labels needs at least {needed} held-out rows to certify anything; got {rows}."
    )
