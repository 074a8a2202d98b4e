"""Define the schema of a predictions file: columns, types, metadata and version.

This is the only module that knows the layout. It needs only the footer of a file and reads no
rows.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from credibly.checks import InputError
from credibly.predictions.validation import as_labels, number_column, text_column
from credibly.targets import UNKNOWN
from credibly.types import Array, JsonObject
from credibly.untrusted.budget import worded
from credibly.untrusted.documents import parse_json

if TYPE_CHECKING:
    from credibly.predictions.table import Predictions

VERSION = "1.0"
"""Version of files with one column per label."""
TOP_VERSION = "2.0"
"""Version of files with the most probable labels of each row; the newest that is read."""
ID = "id"
"""Column of row names."""
PROBABILITY = "p:"
"""What the name of a label's column of probabilities begins with."""
SCORE = "s:"
"""What the name of a label's column of scores begins with."""
TRUTH = "y:"
"""What the name of a label's column of truth begins with."""
KEY = b"credibly"
IDS_CHECKED = "ids_checked"
LAYOUT = "layout"
TOP_LAYOUT = "top"
TOP, TOP_PROBABILITY, TOP_SCORE, TOP_TRUTH = "top", "p", "s", "y"
"""Columns of files with the most probable labels: label indices, their values, labels present."""
RESERVED = ("version", "labels", IDS_CHECKED, LAYOUT)

ROW_GROUP_ROWS = 100_000
# A larger row group of many labels would take too much memory.
ROW_GROUP_CELLS = 2**25


@dataclass(frozen=True)
class Schema:
    """The content of a predictions file, as its footer describes it.

    Attributes:
        labels: names of the labels, in the order of the metadata if the file has any.
        has_scores, has_targets: whether the optional columns exist.
        soft: whether the truth may lie between 0 and 1.
        types: Arrow type of each column, in the order of the file.
        metadata: what the writer knew, without the keys of the layout itself.
        top: whether the file has the most probable labels of each row, not a column per label.
        checked_rows: number of rows whose ids the writer found distinct; 0 if not stored.
    """

    labels: list[str]
    has_scores: bool
    has_targets: bool
    soft: bool
    types: Mapping[str, pa.DataType]
    metadata: JsonObject
    checked_rows: int = 0
    top: bool = False

    @classmethod
    def from_arrow(cls, schema: pa.Schema, raw: bytes | None, where: str) -> Schema:
        """Return the schema of a file after checking the type of every column that is used.

        Args:
            schema: the columns.
            raw: the JSON document under the key ``credibly`` of the metadata, or None.
            where: the beginning of errors: the path and a colon.

        Raises:
            InputError: if a column is missing, appears twice or has an unsupported type.
        """
        names = schema.names
        types = dict(zip(names, schema.types, strict=True))
        if len(types) < len(names):
            twice = next(name for name in names if names.count(name) > 1)
            raise InputError(f"{where}columns must have different names; {twice!r} appears twice.")
        document = decode_metadata(raw, where)
        checked = document.get(IDS_CHECKED)
        about: JsonObject = {
            "types": types,
            "metadata": {key: value for key, value in document.items() if key not in RESERVED},
            "checked_rows": checked if isinstance(checked, int) else 0,
        }
        if document.get(LAYOUT) == TOP_LAYOUT:
            _check_top_types(types, where)
            return cls(
                labels=as_labels(document.get("labels") or [], where),
                has_scores=TOP_SCORE in types,
                has_targets=TOP_TRUTH in types,
                soft=False,
                top=True,
                **about,
            )
        labels = document.get("labels") or label_columns(names, PROBABILITY)
        if not labels:
            listed = ", ".join(sorted(names)[:8]) or "none"
            raise InputError(
                f"{where}not a predictions file: it has no columns 'p:<label>'. Its columns: "
                f"{listed}. If these are labels, import the file: credibly import FILE."
            )
        labels = as_labels(labels, where)
        _require(types, [ID, *(PROBABILITY + name for name in labels)], where)
        has_scores = _all_or_none(types, SCORE, labels, where)
        has_targets = _all_or_none(types, TRUTH, labels, where)
        _check_types(types, labels, where)
        return cls(
            labels=labels,
            has_scores=has_scores,
            has_targets=has_targets,
            soft=has_targets and any(pa.types.is_floating(types[TRUTH + name]) for name in labels),
            **about,
        )


def _check_top_types(types: Mapping[str, pa.DataType], where: str) -> None:
    """Check the columns of a file with the most probable labels of each row."""
    _require(types, [ID, TOP, TOP_PROBABILITY], where)
    expected = {TOP: "int32", TOP_PROBABILITY: "float", TOP_SCORE: "float", TOP_TRUTH: "int32"}
    for name, value in expected.items():
        found = types.get(name)
        if found is not None and not (pa.types.is_list(found) and str(found.value_type) == value):
            kind = value.replace("float", "float32")
            raise InputError(f"{where}column {name!r} must be a list of {kind}; it is {found}.")


def row_group_rows(num_columns: int, most: int = ROW_GROUP_ROWS) -> int:
    """Return the rows of a row group: ``most``, or fewer if there are hundreds of columns.

    Example:
        >>> row_group_rows(161), row_group_rows(2001)
        (100000, 16768)
    """
    return max(1, min(most, ROW_GROUP_CELLS // num_columns))


def arrow_schema(rows: Predictions, *, soft: bool = False) -> pa.Schema:
    """Return the Arrow schema of such rows; ``soft``: later rows may have soft truth."""
    scores, truth = rows.scores is not None, rows.targets is not None
    if rows.top is not None:
        indices, values = pa.list_(pa.int32()), pa.list_(pa.float32())
        fields = [(ID, pa.string()), (TOP, indices), (TOP_PROBABILITY, values)]
        fields += [(TOP_SCORE, values)] if scores else []
        schema = pa.schema([pa.field(name, kind, nullable=False) for name, kind in fields])
        return schema.append(pa.field(TOP_TRUTH, indices)) if truth else schema
    fields = [pa.field(ID, pa.string(), nullable=False)]
    for prefix in (PROBABILITY, SCORE) if scores else (PROBABILITY,):
        fields += [pa.field(prefix + label, pa.float32(), nullable=False) for label in rows.labels]
    if rows.targets is not None:
        kind = pa.float32() if soft or rows.targets.dtype.kind == "f" else pa.int8()
        fields += [pa.field(TRUTH + label, kind) for label in rows.labels]
    return pa.schema(fields)


def to_arrow(schema: pa.Schema, rows: Predictions) -> pa.Table:
    """Return rows as an Arrow table with ``schema``; unknown targets become nulls."""
    if rows.top is not None:
        return _top_to_arrow(schema, rows, rows.top)
    columns: list[pa.Array] = [text_column(rows.ids)]
    # Transpose each matrix once: Arrow copies a strided column element by element.
    for matrix in (rows.probabilities, rows.scores):
        if matrix is not None:
            columns += [number_column(x, pa.float32()) for x in np.ascontiguousarray(matrix.T)]
    if rows.targets is not None:
        kind = schema.field(len(columns)).type
        for column in np.ascontiguousarray(rows.targets.T):
            columns.append(number_column(column, kind, column != UNKNOWN))
    return pa.Table.from_arrays(columns, schema=schema)


def _top_to_arrow(schema: pa.Schema, rows: Predictions, top: Array) -> pa.Table:
    held = top >= 0
    ends = np.concatenate([[0], np.cumsum(held.sum(axis=1))]).astype(np.int32)
    given = (top, rows.probabilities, rows.scores)
    columns: list[pa.Array] = [text_column(rows.ids)]
    columns += [
        pa.ListArray.from_arrays(pa.array(ends), pa.array(values[held]))
        for values in given
        if values is not None
    ]
    truth = rows.all_targets
    if truth is not None:
        if truth.values is not None:
            raise InputError(
                "the layout for very many labels cannot hold soft targets or labels that are "
                "unknown in some rows. Leave the targets out."
            )
        unknown = None if truth.known is None else pa.array(~truth.known)
        ends, indices = (each.astype(np.int32) for each in (truth.offsets, truth.indices))
        columns += [pa.ListArray.from_arrays(pa.array(ends), pa.array(indices), mask=unknown)]
    return pa.Table.from_arrays(columns, schema=schema)


def encode_metadata(
    metadata: Mapping[str, object],
    labels: Sequence[str],
    checked_rows: int = 0,
    *,
    top: bool = False,
) -> str:
    """Return the JSON document for the metadata of a file."""
    for key in RESERVED:
        if key in metadata:
            raise InputError(
                f"`metadata` must not have the key {key!r}, which is reserved. Rename it."
            )
    own: JsonObject = {"version": TOP_VERSION if top else VERSION, "labels": list(labels)}
    own |= {LAYOUT: TOP_LAYOUT} if top else {}
    if checked_rows:
        own[IDS_CHECKED] = checked_rows
    try:
        return json.dumps({**own, **metadata}, allow_nan=False)
    except (TypeError, ValueError) as error:
        raise InputError(
            f"`metadata` must be JSON: dicts, lists, strings, finite numbers; {error}."
        ) from error


def decode_metadata(raw: bytes | None, where: str) -> JsonObject:
    """Return the JSON document of a file, or ``{}`` if another program wrote the file.

    Raises:
        InputError: if it is not a JSON object, or has a newer major version.
    """
    if raw is None:
        return {}
    must = f"{where}the metadata under 'credibly' must be a JSON object with a version"
    with worded(must):
        document = parse_json(raw.decode(), must)
        major = int(str(document.get("version", "")).split(".")[0])
    names = document.get("labels", [])
    if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
        raise InputError(f"{where}the metadata's 'labels' must be a list of names; {names!r:.80}.")
    ours = int(TOP_VERSION.split(".")[0])
    if major > ours:
        raise InputError(
            f"{where}layout version {document['version']} is newer than {TOP_VERSION}, the newest "
            "this credibly reads. Upgrade credibly."
        )
    return document


def label_columns(names: Sequence[str], prefix: str) -> list[str]:
    """Return the labels that have a column with ``prefix``, in the order of the file."""
    return [name[len(prefix) :] for name in names if name.startswith(prefix)]


@cache
def is_number(kind: pa.DataType, *, nulls: bool = False) -> bool:
    """Return whether this type is numeric; with ``nulls``, a column of nulls counts as numeric."""
    integer = pa.types.is_integer(kind) or pa.types.is_boolean(kind)
    return integer or pa.types.is_floating(kind) or (nulls and pa.types.is_null(kind))


def _is_text(kind: pa.DataType) -> bool:
    if isinstance(kind, pa.DictionaryType):
        kind = kind.value_type
    return any(
        same(kind)
        for same in (pa.types.is_string, pa.types.is_large_string, pa.types.is_string_view)
    )


def _check_types(types: Mapping[str, pa.DataType], labels: Sequence[str], where: str) -> None:
    if not (_is_text(types[ID]) or pa.types.is_integer(types[ID])):
        raise InputError(
            f"{where}column 'id' must hold text or whole numbers; it holds {types[ID]}."
        )
    for prefix in (PROBABILITY, SCORE, TRUTH):
        for name in labels:
            kind = types.get(prefix + name)
            if kind is not None and not is_number(kind, nulls=prefix == TRUTH):
                raise InputError(
                    f"{where}column {prefix + name!r} must hold numbers; it holds {kind}. "
                    "Convert it to float32 and write the file again."
                )


def _require(types: Mapping[str, object], columns: Sequence[str], where: str) -> None:
    for name in columns:
        if name not in types:
            raise InputError(f"{where}a predictions file must have a column {name!r}.")


def _all_or_none(
    types: Mapping[str, object], prefix: str, labels: Sequence[str], where: str
) -> bool:
    wanted = [prefix + name for name in labels]
    if not any(name in types for name in wanted):
        return False
    _require(types, wanted, where)
    return True
