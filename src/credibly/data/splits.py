"""Deterministic train, calibration and test rows that keep rare labels in each part."""

from __future__ import annotations

import numpy as np

from credibly import checks
from credibly.targets import MANY_LABELS, SparseTargets
from credibly.types import Array

TRAIN = 0
"""In ``split``: a row to train on."""
TEST = 1
"""In ``split``: a row to judge by."""
CALIBRATION = 2
"""In ``split``: a row held out to calibrate and to choose by."""
FEW_ROWS = 10
"""Of very many labels, those that are the rarest of fewer rows are dealt together."""
PARTS = {"train": TRAIN, "test": TEST, "calibration": CALIBRATION}


def split_rows(
    targets: Array | SparseTargets, *, test: float = 0.2, calibration: float = 0.2, seed: int = 0
) -> Array:
    """Return one part per row: 0 train, 1 test, 2 calibration (that share of what test leaves).

    Rows are grouped by their rarest label (rows without one together), shuffled within the group,
    and each group is dealt in proportion. A label's only row goes to training. The result depends
    on ``targets`` and ``seed`` alone.

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
        groups = _pooled(groups)
    return _deal(groups, shares, seed)


def _pooled(groups: Array) -> Array:
    """Return groups with those of fewer than ``FEW_ROWS`` rows in one.

    Where most labels have a handful of rows, nearly every row would be the only one of its group
    and go to training.
    """
    counts = np.bincount(groups + 1)
    return np.where(counts[groups + 1] < FEW_ROWS, -1, groups)


def as_often_as_weighted(rows: Array, weights: Array | None) -> Array:
    """Return as many rows as came, each as often as its share of the weights says.

    Example:
        >>> as_often_as_weighted(np.array([[0.1], [0.2], [0.3]]), np.array([2, 0, 1])).tolist()
        [[0.1], [0.1], [0.3]]
    """
    if weights is None:
        return rows
    upto = np.cumsum(weights) / np.sum(weights)
    return rows[np.searchsorted(upto, (np.arange(len(rows)) + 0.5) / len(rows))]


def hold_out(targets: Array | SparseTargets, split: Array, calibration: float, seed: int) -> Array:
    """Return ``split`` with that share of its training rows held out for calibration."""
    train = np.flatnonzero(split == TRAIN)
    inner = split_rows(targets[train], test=0.0, calibration=calibration, seed=seed)
    result = np.array(split, dtype=np.int8)
    result[train] = inner
    return result


def rarest_label(targets: Array | SparseTargets) -> Array:
    """Return for each row the label it has that fewest rows have; −1 where it has none.

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
    """Give each group's rows to the parts in proportion, carrying what rounding leaves over."""
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
