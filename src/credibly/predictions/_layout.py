"""How a predictions file is laid out: names of columns, types, metadata, and its version."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from credibly.checks import InputError
from credibly.predictions._values import UNKNOWN
from credibly.types import Array

if TYPE_CHECKING:
    import pyarrow as pa

VERSION = "1.0"
ID, PROBABILITY, SCORE, TRUTH = "id", "p:", "s:", "y:"
KEY = b"credibly"
RESERVED = ("version", "labels")

ROW_GROUP_ROWS = 100_000
# Past this a row group of many labels would not fit comfortably into memory.
ROW_GROUP_CELLS = 2**25


def row_group_rows(num_columns: int) -> int:
    """Rows of a row group: about 100k, fewer where there are hundreds of columns.

    Example:
        >>> row_group_rows(161), row_group_rows(2001)
        (100000, 16768)
    """
    return max(1, min(ROW_GROUP_ROWS, ROW_GROUP_CELLS // num_columns))


def schema(labels: Sequence[str], *, scores: bool, targets: str | None) -> pa.Schema:
    """The Arrow schema; ``targets`` is None, ``"hard"`` or ``"soft"``."""
    import pyarrow as pa

    fields = [pa.field(ID, pa.string(), nullable=False)]
    fields += [pa.field(PROBABILITY + label, pa.float32(), nullable=False) for label in labels]
    if scores:
        fields += [pa.field(SCORE + label, pa.float32(), nullable=False) for label in labels]
    if targets is not None:
        kind = pa.int8() if targets == "hard" else pa.float32()
        fields += [pa.field(TRUTH + label, kind) for label in labels]
    return pa.schema(fields)


def to_table(
    layout: pa.Schema, ids: Array, probabilities: Array, scores: Array | None, targets: Array | None
) -> pa.Table:
    """Arrays as a table of ``layout``; unknown targets become nulls."""
    import pyarrow as pa

    columns: list[Any] = [pa.array(ids, pa.string())]
    # One transpose each: a strided column would be copied element by element.
    columns += [pa.array(column) for column in np.ascontiguousarray(probabilities.T)]
    if scores is not None:
        columns += [pa.array(column) for column in np.ascontiguousarray(scores.T)]
    if targets is not None:
        kind = layout.field(len(columns)).type
        for column in np.ascontiguousarray(targets.T):
            columns.append(pa.array(column, mask=column == UNKNOWN).cast(kind))
    return pa.Table.from_arrays(columns, schema=layout)


def encode_metadata(metadata: Mapping[str, Any], labels: Sequence[str]) -> str:
    """The JSON document of a file."""
    for key in RESERVED:
        if key in metadata:
            raise InputError(
                f"`metadata` must not have the key {key!r}: the file's own. Rename it."
            )
    try:
        return json.dumps({"version": VERSION, "labels": list(labels), **metadata}, allow_nan=False)
    except (TypeError, ValueError) as error:
        raise InputError(
            f"`metadata` must be JSON: dicts, lists, strings, finite numbers; {error}."
        ) from error


def decode_metadata(raw: bytes | None, where: str) -> dict[str, Any]:
    """The JSON document of a file, its version checked; ``{}`` where another program wrote it."""
    if raw is None:
        return {}
    try:
        document = json.loads(raw)
        major = int(str(document.get("version", "")).split(".")[0])
    except (ValueError, AttributeError, RecursionError) as error:
        raise InputError(
            f"{where}the metadata under 'credibly' must be a JSON object with a version; {error}."
        ) from error
    names = document.get("labels", [])
    if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
        raise InputError(f"{where}the metadata's 'labels' must be a list of names; {names!r:.80}.")
    ours = int(VERSION.split(".")[0])
    if major > ours:
        raise InputError(
            f"{where}layout version {document['version']} is newer than {VERSION}, the newest this "
            "credibly reads. Upgrade credibly."
        )
    return document


def label_columns(names: Sequence[str], prefix: str) -> list[str]:
    """Labels that have a column with ``prefix``, in the order of the file."""
    return [name[len(prefix) :] for name in names if name.startswith(prefix)]
