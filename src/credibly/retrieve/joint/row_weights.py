"""Weights of rows under a joint model: computed once per dataset, kept in memory or in a file.

A query under a mixture needs its own labels and a few weights per row. The weights need all labels,
so they are what makes a search slow; they do not depend on the query.
"""

from __future__ import annotations

import hashlib
import json
import os
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from credibly.files import atomic_path
from credibly.predictions import Dataset
from credibly.predictions.dataset import identity
from credibly.retrieve.joint.model import Joint
from credibly.retrieve.sql import WEIGHTS_ID, weight_name

if TYPE_CHECKING:
    import pyarrow as pa

SUFFIX = ".joint-weights"  # a Parquet file, but no shard of the predictions beside it
_KEY = b"credibly.joint"


@dataclass(frozen=True)
class _Model:
    """A joint model as a key: two with the same parameters are the same."""

    digest: str
    joint: Joint = field(compare=False)


def write_row_weights(path: str | os.PathLike[str], joint: Joint, *, partial: bool = False) -> Path:
    """Write the weights of all rows beside the predictions, for ``search`` in any later process.

    The file is used as long as the predictions and the model are the same, and ignored otherwise.

    Args:
        path: predictions file, or folder of shards.
        joint: a fitted ``Joint``.
        partial: whether a folder may lack shards; otherwise that is an error.

    Returns:
        Where they are: ``<path>.joint-weights``, a Parquet file with one row per id.
    """
    import pyarrow.parquet as pq

    dataset = Dataset(path, partial=partial)
    dataset.check_dense("a joint model")
    joint.check(dataset.labels)
    files = identity(path)
    table = _computed(dataset, joint).add_column(0, WEIGHTS_ID, dataset.arrow_ids())
    table = table.replace_schema_metadata({_KEY: _key(files, joint.digest).encode()})
    out = _beside(path)
    with atomic_path(out) as beside:
        # Neither ids nor weights repeat, and plain values are the fastest to read.
        pq.write_table(table, beside, use_dictionary=False, compression="none")
    return out


def row_weights(path: str, joint: Joint, *, partial: bool) -> pa.Table:
    """Return the weights of all rows in order, as columns; computed at most once per process."""
    return _kept(path, partial, identity(path), _Model(joint.digest, joint))


def stored_row_weights(path: str, joint: Joint) -> Path | None:
    """Return the file of ``write_row_weights``, None where there is none that fits."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    stored = _beside(path)
    try:
        schema = pq.read_schema(stored)
    except (OSError, pa.ArrowInvalid):
        return None
    return stored if _has_key(schema, _key(identity(path), joint.digest)) else None


@lru_cache(maxsize=2)
def _kept(
    path: str, partial: bool, files: tuple[tuple[str, int, int, int], ...], model: _Model
) -> pa.Table:
    stored = _read(path, _key(files, model.digest))
    return _computed(Dataset(path, partial=partial), model.joint) if stored is None else stored


def _beside(path: str | os.PathLike[str]) -> Path:
    return Path(str(Path(path)) + SUFFIX)


def _key(files: tuple[tuple[str, int, int, int], ...], digest: str) -> str:
    """Return a hash of the model and of what changes when a file of the dataset does."""
    known = [(Path(name).name, size, changed) for name, _, size, changed in files]
    return hashlib.sha256(json.dumps([digest, known]).encode()).hexdigest()


def _read(path: str, key: str) -> pa.Table | None:
    """Return the stored weights, None where there are none that fit."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        with pq.ParquetFile(_beside(path), memory_map=True) as file:
            if not _has_key(file.schema_arrow, key):
                return None
            names = [name for name in file.schema_arrow.names if name != WEIGHTS_ID]
            return file.read(names)
    except (OSError, pa.ArrowInvalid):
        return None


def _has_key(schema: pa.Schema, key: str) -> bool:
    return (schema.metadata or {}).get(_KEY) == key.encode()


def _computed(dataset: Dataset, joint: Joint) -> pa.Table:
    import pyarrow as pa

    places = {name: place for place, name in enumerate(dataset.labels)}
    weights = np.empty((joint.num_weights, dataset.num_rows))
    start = 0
    for chances in dataset.matrices():
        stop = start + len(chances)
        prepared: Any = joint.prepare(places, np.ascontiguousarray(chances.T, np.float32))
        weights[:, start:stop] = prepared
        start = stop
    columns = {weight_name(place): column for place, column in enumerate(weights)}
    return pa.table(columns)
