"""Import scores or probabilities that another program wrote: npz, CSV or Parquet."""

from __future__ import annotations

import math
import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from credibly.arrays import to_numpy
from credibly.checks import InputError, fits_memory, nearest
from credibly.predictions import _schema, _validation
from credibly.predictions._arrow import id_array, number_matrix
from credibly.predictions._completeness import check_names
from credibly.predictions._dataset import parquet_files
from credibly.predictions._npz import read_arrays
from credibly.predictions._shard import open_parquet
from credibly.predictions._table import Predictions
from credibly.targets import UNKNOWN, Coding
from credibly.types import Array

if TYPE_CHECKING:
    import pyarrow as pa

    from credibly.losses import Loss

Kind = Literal["npz", "csv", "parquet"]
Meaning = Literal["probabilities", "scores"]
_ARRAYS = ("probabilities", "scores", "targets", "labels", "ids", "split")
_NOT_LABELS = (_schema.ID, "split")


@dataclass(frozen=True)
class ImportedTable:
    """What an imported file held.

    Attributes:
        where: what errors begin with: the path and a colon.
        labels: names of the labels.
        ids: (rows,), None where the file has none.
        probabilities, scores: (rows, labels); scores may have two columns per label.
        targets: (rows, labels) of 1, 0, soft values and −1 for unknown.
        split: (rows,), 0 train, 1 test, 2 calibration.
    """

    where: str
    labels: list[str]
    ids: Array | None
    probabilities: Array | None
    scores: Array | None
    targets: Array | None
    split: Array | None


def read_table(
    path: str | os.PathLike[str],
    *,
    kind: Kind | None = None,
    plain: Meaning = "probabilities",
    labels: Sequence[str] | None = None,
    coding: Coding | None = None,
    partial: bool = False,
) -> ImportedTable:
    """Read a file by its ending, or as ``kind``.

    Args:
        path: an ``.npz``, ``.csv`` or ``.parquet`` file, or a folder of Parquet files.
        kind: of the file, where its ending does not say.
        plain: what columns with plain label names hold.
        labels: which columns are labels; all but ``id`` and ``split`` if not given.
        coding: how to read targets of only −1 and +1.
        partial: whether a folder may lack shards of a prediction; otherwise that is an error.
    """
    path = Path(path)
    if not path.exists():
        raise FileNotFoundError(f"there is no file {path}")
    kind = kind or _kind(path)
    if kind == "npz":
        return _from_npz(path, coding)
    columns = _csv(path) if kind == "csv" else _parquet(path, partial)
    return _from_columns(columns, f"{path}: ", plain, labels, coding)


def from_file(
    path: str | os.PathLike[str],
    kind: Kind,
    *,
    loss: str | Loss | None = None,
    labels: Sequence[str] | None = None,
    coding: Coding | None = None,
) -> Predictions:
    """Return the predictions of a file; its scores, if it has only those, go through ``loss``."""
    plain: Meaning = "probabilities" if loss is None else "scores"
    table = read_table(path, kind=kind, plain=plain, labels=labels, coding=coding)
    probabilities, metadata = table.probabilities, {}
    if probabilities is None:
        if loss is None:
            raise InputError(
                f"{table.where}holds scores only; give the `loss` they were trained with: "
                "it owns the map from scores to probabilities."
            )
        probabilities = _through(loss, table)
        metadata = {"loss": str(loss)}
    return Predictions.from_arrays(
        probabilities=probabilities,
        targets=table.targets,
        labels=table.labels,
        ids=table.ids,
        scores=table.scores,
        metadata=metadata,
        coding="unknown",
        where=table.where,
    )


def _through(loss: str | Loss, table: ImportedTable) -> Array:
    import torch

    from credibly import losses

    owner = losses.from_name(loss, num_labels=len(table.labels)) if isinstance(loss, str) else loss
    scores = _validation.as_scores(to_numpy(table.scores), table.labels, table.where)
    with torch.no_grad():
        return to_numpy(owner.probabilities(torch.from_numpy(scores)))


def _kind(path: Path) -> Kind:
    kinds: dict[str, Kind] = {".npz": "npz", ".csv": "csv", ".parquet": "parquet"}
    if path.is_dir():
        return "parquet"
    if path.suffix.lower() not in kinds:
        raise InputError(f"{path} must end in .npz, .csv or .parquet; it ends in {path.suffix!r}.")
    return kinds[path.suffix.lower()]


def _from_npz(path: Path, coding: Coding | None) -> ImportedTable:
    arrays = read_arrays(path, _ARRAYS)
    where = f"{path}: "
    main = arrays.get("probabilities", arrays.get("scores"))
    if main is None or main.ndim != 2:
        found = ", ".join(f"{name} {array.shape}" for name, array in arrays.items()) or "nothing"
        raise InputError(
            f"{where}must hold an array `scores` or `probabilities` of shape (rows, labels); "
            f"it holds {found}."
        )
    if main.shape[0] == 0:
        raise InputError(f"{where}must have at least one row; it is empty.")
    names = arrays.get("labels")
    labels = _validation.as_labels(range(main.shape[1]) if names is None else names.tolist(), where)
    targets = arrays.get("targets")
    if targets is not None:
        targets = _validation.as_targets(targets, labels, where, coding=coding)
    for name in ("scores", "probabilities", "targets", "ids", "split"):
        if name in arrays and len(arrays[name]) != len(main):
            raise InputError(
                f"{where}`{name}` must have {len(main)} rows, as the others; "
                f"got {len(arrays[name])}."
            )
    return ImportedTable(
        where,
        labels,
        arrays.get("ids"),
        arrays.get("probabilities"),
        arrays.get("scores"),
        targets,
        arrays.get("split"),
    )


def _csv(path: Path) -> pa.Table:
    import pyarrow as pa
    from pyarrow import csv

    # Ids keep their leading zeros.
    options = csv.ConvertOptions(column_types={_schema.ID: pa.string()})
    try:
        table = csv.read_csv(path, convert_options=options)
        _ = table.column_names  # decoded here: names may not be text
        return table
    except (pa.ArrowException, OSError, UnicodeDecodeError) as error:
        raise InputError(f"{path} must be a CSV file with a header; {error}.") from error


def _parquet(path: Path, partial: bool) -> pa.Table:
    import pyarrow as pa

    try:
        names = parquet_files(path)
        if path.is_dir():
            check_names(path, names, partial=partial)
        files = [open_parquet(file) for file in names]
        rows = sum(file.metadata.num_rows for file in files)
        fits_memory(f"{path}", rows, max(file.metadata.num_columns for file in files))
        return pa.concat_tables([file.read() for file in files])
    except (pa.ArrowException, OSError, UnicodeDecodeError) as error:
        if isinstance(error, (FileNotFoundError, InputError)):
            raise
        raise InputError(f"{path} must be complete Parquet of one schema; {error}.") from error


def _from_columns(
    table: pa.Table,
    where: str,
    plain: Meaning,
    labels: Sequence[str] | None,
    coding: Coding | None,
) -> ImportedTable:
    names = table.column_names
    if len(set(names)) < len(names):
        twice = next(name for name in names if names.count(name) > 1)
        raise InputError(f"{where}columns must differ; {twice!r} is there twice.")
    if table.num_rows == 0:
        raise InputError(f"{where}must have at least one row; it is empty.")
    found = {
        kind: _schema.label_columns(names, kind)
        for kind in (_schema.PROBABILITY, _schema.SCORE, _schema.TRUTH)
    }
    prefixed = found[_schema.PROBABILITY] or found[_schema.SCORE]
    used = {prefix + name for prefix, group in found.items() for name in group}
    chosen = _validation.as_labels(
        labels or prefixed or [n for n in names if n not in used and n not in _NOT_LABELS], where
    )

    def cells(prefix: str, *, nulls: bool = False) -> Array | None:
        if not found.get(prefix) and prefix != "":
            return None
        columns = {}
        for name in chosen:
            if prefix + name not in names:
                hint = nearest(prefix + name, names)
                raise InputError(f"{where}there must be a column {prefix + name!r}. {hint}")
            columns[prefix + name] = table.column(prefix + name).combine_chunks()
        return number_matrix(columns, where, nulls=nulls, fill=math.nan)

    bare = None if prefixed else cells("")
    truth = cells("y:", nulls=True)
    return ImportedTable(
        where=where,
        labels=chosen,
        ids=_optional(table, _schema.ID, where),
        probabilities=bare if plain == "probabilities" and not prefixed else cells("p:"),
        scores=bare if plain == "scores" and not prefixed else cells("s:"),
        targets=None if truth is None else _decoded(truth, chosen, where, coding),
        split=_optional(table, "split", where),
    )


def _decoded(truth: Array, labels: list[str], where: str, coding: Coding | None) -> Array:
    """Return targets; where no cell holds −1, unknown ones are the empty cells and nothing else."""
    if coding is None and not (truth == UNKNOWN).any():
        coding = "unknown"
    return _validation.as_targets(truth, labels, where, coding=coding)


def _optional(table: pa.Table, name: str, where: str) -> Array | Any:
    if name not in table.column_names:
        return None
    column: Any = table.column(name).combine_chunks()
    if name == _schema.ID:
        return id_array(column, where)
    return number_matrix({name: column}, where)[:, 0]
