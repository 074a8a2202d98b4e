"""Seeded splits into train, calibration and test rows, stratified by rare labels."""

from __future__ import annotations

import numpy as np

from credibly import checks
from credibly.targets import MANY_LABELS, SparseTargets
from credibly.types import Array

TRAIN = 0
"""In ``split``: a training row."""
TEST = 1
"""In ``split``: a test row."""
CALIBRATION = 2
"""In ``split``: a row that is held out for calibration and model choice."""
FEW_ROWS = 10
"""Of very many labels, those that are the rarest of fewer rows are dealt together."""
PARTS = {"train": TRAIN, "test": TEST, "calibration": CALIBRATION}


def split_rows(
    targets: Array | SparseTargets, *, test: float = 0.2, calibration: float = 0.2, seed: int = 0
) -> Array:
    """Return the part of each row: 0 train, 1 test, 2 calibration (a share of non-test rows).

    Rows are grouped by their rarest label; rows without labels are a group too. Each group is
    shuffled and divided in proportion. The only row of a label is a training row. The result
    depends only on ``targets`` and ``seed``.

    Example:
        >>> targets = np.eye(4)[np.arange(100) % 4]
        >>> np.bincount(split_rows(targets, test=0.2, calibration=0.25))
        array([60, 20, 20])
    """
    test = checks.fraction("test", test, high_open=True)
    calibration = checks.fraction("calibration", calibration, high_open=True)
    shares = np.zeros(3)
    shares[[TEST, CALIBRATION]] = test, (1 - test) * calibration
    shares[TRAIN] = 1 - shares.sum()
    groups = rarest_label(targets)
    if targets.shape[1] >= MANY_LABELS:
        # If most labels have a handful of rows, nearly every row would be alone in its group and
        # become a training row.
        counts = np.bincount(groups + 1)
        groups = np.where(counts[groups + 1] < FEW_ROWS, -1, groups)
    return _deal(groups, shares, seed)


def as_often_as_weighted(rows: Array, weights: Array | None) -> Array:
    """Return as many rows as given, each repeated in proportion to its weight.

    Example:
        >>> as_often_as_weighted(np.array([[0.1], [0.2], [0.3]]), np.array([2, 0, 1])).tolist()
        [[0.1], [0.1], [0.3]]
    """
    if weights is None:
        return rows
    upto = np.cumsum(weights) / np.sum(weights)
    return rows[np.searchsorted(upto, (np.arange(len(rows)) + 0.5) / len(rows))]


def uniforms(seed: int, epoch: int, rows: Array, count: int) -> Array:
    """Return (rows, count) numbers in [0, 1) that depend only on seed, epoch, row and column.

    They are SplitMix64 of a counter. There is no state, so rows can be drawn in any order and
    process.

    Example:
        >>> a = uniforms(0, 3, np.array([5, 7]), 2)
        >>> bool((a[1] == uniforms(0, 3, np.array([7]), 2)[0]).all())
        True
    """
    with np.errstate(over="ignore"):
        state = _mix(np.uint64(seed & 0xFFFFFFFFFFFFFFFF))
        state = _mix(state ^ np.uint64(epoch))
        state = _mix(state ^ rows.astype(np.uint64))
        columns = np.arange(1, count + 1, dtype=np.uint64) * np.uint64(0x9E3779B97F4A7C15)
        bits = _mix(state[:, None] + columns[None, :])
    return (bits >> np.uint64(11)).astype(np.float64) * 2.0**-53


def _mix(bits: object) -> Array:
    bits = np.asarray(bits) + np.uint64(0x9E3779B97F4A7C15)
    bits = (bits ^ (bits >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    bits = (bits ^ (bits >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return bits ^ (bits >> np.uint64(31))


def hold_out(targets: Array | SparseTargets, split: Array, calibration: float, seed: int) -> Array:
    """Return ``split`` with a share of its training rows held out for calibration."""
    train = np.flatnonzero(split == TRAIN)
    inner = split_rows(targets[train], test=0.0, calibration=calibration, seed=seed)
    result = np.array(split, dtype=np.int8)
    result[train] = inner
    return result


def rarest_label(targets: Array | SparseTargets) -> Array:
    """Return the least frequent label of each row; −1 for rows without labels.

    A soft target counts as present from 0.5.
    """
    if not isinstance(targets, SparseTargets):
        targets = SparseTargets.from_dense(targets >= 0.5)
    present = targets.entry_values() >= 0.5
    rows, labels = targets.entry_rows()[present], targets.indices[present]
    counts = np.bincount(labels, minlength=targets.num_labels)
    rarest = np.full(len(targets), -1, dtype=np.int64)
    # From the most frequent to the rarest, so that the rarest is written last.
    order = np.lexsort((-labels, -counts[labels]))
    rarest[rows[order]] = labels[order]
    return rarest


def _deal(groups: Array, shares: Array, seed: int) -> Array:
    """Divide each group over the parts in proportion; rounding errors carry over between groups."""
    generator = np.random.default_rng(seed)
    parts = np.zeros(len(groups), dtype=np.int8)
    owed = np.zeros(3)
    shuffled = generator.permutation(len(groups))
    order = shuffled[np.argsort(groups[shuffled], kind="stable")]
    starts = np.flatnonzero(np.diff(groups[order], prepend=-2))
    for rows in np.split(order, starts[1:]) if len(order) else []:
        owed += shares * len(rows)
        counts = np.floor(shares * len(rows)).astype(int)
        owed -= counts
        while counts.sum() < len(rows):
            labelled = groups[rows[0]] >= 0
            part = TRAIN if labelled and counts[TRAIN] == 0 else int(owed.argmax())
            counts[part] += 1
            owed[part] -= 1
        parts[rows] = np.repeat(np.arange(3, dtype=np.int8), counts)
    return parts
