"""Read drawn rows of a dataset, and write a file per shard of it, on any executor.

Workers write into a folder that all of them see. A file is complete or not there, and a task that
is repeated writes the same one.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from copy import deepcopy
from pathlib import Path
from typing import Any

import numpy as np

from credibly.checks import InputError, out_can_be_written
from credibly.executors import Executor, is_remote
from credibly.executors.executor import Accumulator
from credibly.files import check_out
from credibly.predictions import Dataset
from credibly.predictions.completeness import shard_name
from credibly.predictions.shard import Piece, PieceReader
from credibly.types import Array

Batches = Iterator[tuple[int, Any]]


def check_paths(
    executor: Executor,
    out: str | os.PathLike[str],
    inputs: list[str | os.PathLike[str]],
    endings: tuple[str, ...],
) -> None:
    """Refuse what cannot be read or written before any work is done.

    Args:
        executor: who writes.
        out: a file with one of the ``endings``, or a new or empty folder.
        inputs: what is read.
        endings: of files that can be written; none where only a folder can.
    """
    for each in (*inputs, out):
        if is_remote(each):
            raise InputError(
                f"{each} is an address; give a path that every worker sees (a mounted file system)."
            )
    folder = Path(out)
    if executor.one_file and folder.suffix and endings:
        check_out(folder, endings, inputs=inputs)
        return
    if folder.suffix in endings:
        raise InputError(f"`out` must be a folder, for a file per shard; got {str(out)!r}.")
    out_can_be_written(folder, folder=True)
    if folder.is_dir() and any(folder.iterdir()):
        raise InputError(f"`out` must be a new or empty folder; {folder} holds files.")


def collect(
    dataset: Dataset,
    executor: Executor,
    arrays: Callable[[Any, int], dict[str, Array]],
    labels: list[str] | None = None,
) -> dict[str, Array]:
    """Return arrays of some rows of a dataset, which workers send here.

    Args:
        dataset: the predictions.
        executor: who reads.
        arrays: called with a batch and the number of its first row.
        labels: order of the labels; that of the dataset if None.
    """
    order = dataset.labels if labels is None else labels

    def work(shard: Piece, reader: PieceReader) -> dict[str, Array]:
        found = [arrays(rows, first) for first, rows in reader.of_labels(order).batches(shard)]
        return {name: _joined([each[name] for each in found]) for name in found[0]}

    states = executor.run(dataset, work)
    return {name: _joined([state[name] for state in states]) for name in states[0]}


def _joined(parts: list[Array]) -> Array:
    """Return rows of all parts; narrower ones are filled up with 0."""
    if parts[0].ndim == 2:
        width = max(each.shape[1] for each in parts)
        parts = [np.pad(each, ((0, 0), (0, width - each.shape[1]))) for each in parts]
    return np.concatenate(parts)


def write(
    dataset: Dataset,
    executor: Executor,
    out: Path,
    accumulator: Accumulator,
    work: Callable[[Path, int, int, Batches, Any], None],
    labels: list[str] | None = None,
) -> None:
    """Write the rows of a dataset, changed, as one file, or as a file per shard of it.

    Args:
        dataset: the predictions.
        executor: who writes.
        out: a file if it has an ending and the executor can write one, else a folder.
        accumulator: still empty; receives what ``work`` adds.
        work: called with a file to write, its index and their number, (number of the first row,
            batch) of its rows, and an accumulator of its own.
        labels: order of the labels; that of the dataset if None.
    """
    shards, reader = dataset.pieces(), dataset.piece_reader
    reader = reader if labels is None else reader.of_labels(labels)
    files = [(out, shards)]
    if not (executor.one_file and out.suffix):
        out.mkdir(parents=True, exist_ok=True)
        names = [shard_name(index, len(shards)) for index in range(len(shards))]
        files = [(out / name, [shard]) for name, shard in zip(names, shards, strict=True)]
    empty = deepcopy(accumulator)

    def task(index: int) -> dict[str, Array]:
        path, some = files[index]
        mine = deepcopy(empty)
        rows = (pair for shard in some for pair in reader.batches(shard))
        work(path, index, len(files), rows, mine)
        return mine.state()

    for state in executor.each(len(files), task, str(dataset.path)):
        accumulator.merge(state)


def holds_top_labels(path: str | Path) -> bool:
    """Return whether ``path`` is a predictions file with the most probable labels of each row.

    Example:
        >>> holds_top_labels("scores.npz")
        False
    """
    path = Path(path)
    shards = path.is_dir() and any(path.glob("*.parquet"))
    if not (shards or (path.suffix == ".parquet" and path.is_file())):
        return False
    import pyarrow.parquet as pq

    first = min(path.glob("*.parquet")) if shards else path
    try:
        names = pq.read_schema(first).names
    except (OSError, ValueError):
        return False  # damaged: whoever reads it says how
    return {"top", "p"} <= set(names)
