"""Rows in several files, for tests of sums over parts of them."""

from __future__ import annotations

import dataclasses

import numpy as np

import credibly as cr
from credibly.targets import SparseTargets

LABELS = ["fork", "apple", "knife", "table", "dog", "never"]
ROWS = 230


def rows(*, soft=False, scores=False, seed=0):
    """Ties, exact zeros and ones, unknown rows and entries, rows and a label without positives."""
    rng = np.random.default_rng(seed)
    odds = rng.normal(-1, 2, (ROWS, len(LABELS)))
    truth = (rng.random(odds.shape) < 1 / (1 + np.exp(-0.7 * odds))).astype(np.float32)
    if soft:
        truth = np.where(truth == 1, np.float32(0.75), truth)
    truth[::6], truth[:, -1] = 0, 0
    truth[rng.random(truth.shape) < 0.1], truth[1::29] = -1, -1
    chances = np.round(1 / (1 + np.exp(-odds)), 2).astype(np.float32)
    return cr.Predictions.from_arrays(
        probabilities=chances,
        scores=odds if scores else None,
        targets=truth if soft else truth.astype(np.int8),
        labels=LABELS,
        ids=[f"row {row}" for row in range(ROWS)],
    )


def top_rows(seed=0):
    """The most probable labels of each row, with ties, rows without truth and places left empty."""
    rng = np.random.default_rng(seed)
    top = np.argsort(rng.random((ROWS, 40)), axis=1)[:, :7]
    chances = -np.sort(-rng.random((ROWS, 7)), axis=1).round(2)
    present = [row[rng.random(7) < p] for row, p in zip(top, chances, strict=True)]
    present = [np.union1d(each, 39) if i % 4 == 0 else each for i, each in enumerate(present)]
    present = [each if i % 11 else each[:0] for i, each in enumerate(present)]
    top[::9, 5:], chances[::9, 5:] = -1, 0
    return cr.Predictions.from_arrays(
        top=top,
        probabilities=chances,
        labels=[f"label {i}" for i in range(40)],
        targets=SparseTargets(
            np.cumsum([0, *map(len, present)]),
            np.concatenate(present),
            num_labels=40,
            known=np.arange(ROWS) % 11 > 0,
        ),
        ids=[f"row {row}" for row in range(ROWS)],
    )


def splits(parts):
    """Unequal parts of the rows."""
    ends = np.sort(
        np.random.default_rng(parts).choice(np.arange(1, ROWS), parts - 1, replace=False)
    )
    return [slice(*pair) for pair in zip([0, *ends], [*ends, ROWS], strict=True)]


def write(record, folder, parts):
    """Write a folder of shards."""
    folder.mkdir()
    for index, part in enumerate(splits(parts)):
        shard = {"origin": "one", "shard": {"index": index, "count": parts, "rows": ROWS}}
        some = dataclasses.replace(record[part], metadata=shard)
        some.write(folder / f"part-{index:05d}-of-{parts:05d}.parquet")
    return folder


RECORDS = {
    "plain": rows,
    "scores": lambda: rows(scores=True),
    "soft": lambda: rows(soft=True),
    "top labels": top_rows,
}
