"""Records that every test of a property of the predictions file uses."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np

from credibly import Predictions
from credibly.predictions import Writer
from credibly.targets import SparseTargets

ODD_LABELS = ["dog", "a", "a.b", 'say "hi", \n:', "p:y", "Ärger 狗", " ", "'; DROP TABLE x; --"]


def random_record(
    rows: int = 57,
    labels: list[str] | None = None,
    *,
    targets: str | None = "hard",
    scores: bool = True,
    seed: int = 0,
) -> Predictions:
    """Rows without a label, rows all unknown, a label without positives; exact 0 and 1."""
    labels = ODD_LABELS if labels is None else labels
    rng = np.random.default_rng(seed)
    shape = (rows, len(labels))
    probabilities = rng.random(shape, dtype=np.float32)
    probabilities[0, 0], probabilities[-1, -1] = 0.0, 1.0
    truth = None
    if targets is not None:
        truth = rng.integers(-1, 2, shape).astype(np.int8)
        truth[::5], truth[1::7] = 0, -1
        truth[:, -1] = np.minimum(truth[:, -1], 0)
        if targets == "soft":
            truth = np.where(truth == 1, rng.random(shape), truth).astype(np.float32)
    return Predictions.from_arrays(
        probabilities=probabilities,
        labels=labels,
        ids=[f"row {row}" for row in range(rows)],
        targets=truth,
        scores=rng.normal(size=shape).astype(np.float32) if scores else None,
        metadata={"loss": "spa", "seed": 3, "calibrator": {"kind": "affine", "slope": 1.25}},
    )


def top_record(rows: int = 57, labels: int = 40, k: int = 5) -> Predictions:
    """Rows that hold their most probable labels, some fewer than others; some rows unknown."""
    rng = np.random.default_rng(1)
    top = np.argsort(rng.random((rows, labels)), axis=1)[:, :k]
    values = -np.sort(-rng.random((rows, k)).astype(np.float32), axis=1)
    top[::9, 3:], values[::9, 3:] = -1, 0
    present = [sorted({int(row[0]), 39, 7}) if place % 3 else [] for place, row in enumerate(top)]
    return Predictions.from_arrays(
        top=top,
        probabilities=values,
        scores=np.where(top >= 0, rng.normal(size=top.shape), 0),
        targets=SparseTargets(
            np.cumsum([0, *map(len, present)]),
            [label for row in present for label in row],
            labels,
            known=np.arange(rows) % 6 > 0,
        ),
        labels=[f"label {place}" for place in range(labels)],
        ids=[f"row {row}" for row in range(rows)],
    )


RECORDS = {
    "whole": random_record(),
    "soft truth": random_record(targets="soft"),
    "no truth": random_record(targets=None),
    "no scores": random_record(scores=False),
    "probabilities only": random_record(targets=None, scores=False),
    "one row": random_record(rows=1),
    "one label": random_record(labels=["only"]),
    "top labels": top_record(),
}


def write_pieces(path: Path, pieces: Iterable[Predictions], **options: Any) -> None:
    """A file written piece by piece; an exception of ``pieces`` comes out as it would of a job."""
    pieces = iter(pieces)
    first = next(pieces)
    with Writer(path, first.labels, metadata=first.metadata, **options) as writer:
        writer.append(first)
        for piece in pieces:
            writer.append(piece)


def shard_name(index: int, count: int) -> str:
    """The file name of a shard, as docs/reference/files.md has it."""
    return f"part-{index:05d}-of-{count:05d}.parquet"


def shard_metadata(index: int, count: int, rows: int) -> dict[str, Any]:
    """What the metadata of a file say about its place among the shards."""
    return {"shard": {"index": index, "count": count, "rows": rows}}
