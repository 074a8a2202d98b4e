"""Scores or probabilities that another program wrote: npz, CSV or Parquet."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from credibly.arrays import to_numpy
from credibly.checks import InputError, fits_memory, nearest
from credibly.predictions import _layout, _values
from credibly.predictions._cells import id_cells, number_cells
from credibly.predictions._npz import read_arrays
from credibly.predictions._part import open_parquet
from credibly.predictions._record import Predictions
from credibly.predictions._scan import parquet_files
from credibly.types import Array

if TYPE_CHECKING:
    import pyarrow as pa

    from credibly.losses._base import Loss

Kind = Literal["npz", "csv", "parquet"]
Meaning = Literal["probabilities", "scores"]
_ARRAYS = ("probabilities", "scores", "targets", "labels", "ids", "split")
_NOT_LABELS = (_layout.ID, "split")


@dataclass(frozen=True)
class ForeignTable:
    """What a foreign file held. ``split`` is 0 train, 1 test, 2 calibration, where given."""

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
) -> ForeignTable:
    """Read a file by its ending (or ``kind``); columns with plain label names hold ``plain``."""
    path = Path(path)
    if not path.exists():
        raise FileNotFoundError(f"there is no file {path}")
    kind = kind or _kind(path)
    if kind == "npz":
        return _from_npz(path)
    columns = _csv(path) if kind == "csv" else _parquet(path)
    return _from_columns(columns, f"{path}: ", plain, labels)


def from_file(
    path: str | os.PathLike[str],
    kind: Kind,
    *,
    loss: str | Loss | None = None,
    labels: Sequence[str] | None = None,
) -> Predictions:
    """Predictions from a foreign file; its scores, if it has only those, go through ``loss``."""
    table = read_table(
        path, kind=kind, plain="probabilities" if loss is None else "scores", labels=labels
    )
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
        where=table.where,
    )


def _through(loss: str | Loss, table: ForeignTable) -> Array:
    import torch

    from credibly import losses

    owner = losses.from_name(loss, num_labels=len(table.labels)) if isinstance(loss, str) else loss
    scores = _values.as_scores(to_numpy(table.scores), table.labels, table.where)
    with torch.no_grad():
        return to_numpy(owner.probabilities(torch.from_numpy(scores)))


def _kind(path: Path) -> Kind:
    kinds: dict[str, Kind] = {".npz": "npz", ".csv": "csv", ".parquet": "parquet"}
    if path.is_dir():
        return "parquet"
    if path.suffix.lower() not in kinds:
        raise InputError(f"{path} must end in .npz, .csv or .parquet; it ends in {path.suffix!r}.")
    return kinds[path.suffix.lower()]


def _from_npz(path: Path) -> ForeignTable:
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
    labels = _values.as_labels(range(main.shape[1]) if names is None else names.tolist(), where)
    targets = arrays.get("targets")
    if targets is not None and targets.ndim == 1:
        targets = _values.class_matrix(targets, labels, where)
    for name in ("scores", "probabilities", "targets", "ids", "split"):
        if name in arrays and len(arrays[name]) != len(main):
            raise InputError(
                f"{where}`{name}` must have {len(main)} rows, as the others; "
                f"got {len(arrays[name])}."
            )
    return ForeignTable(
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
    options = csv.ConvertOptions(column_types={_layout.ID: pa.string()})
    try:
        table = csv.read_csv(path, convert_options=options)
        _ = table.column_names  # decoded here: names may be no text at all
        return table
    except (pa.ArrowException, OSError, UnicodeDecodeError) as error:
        raise InputError(f"{path} must be a CSV file with a header; {error}.") from error


def _parquet(path: Path) -> pa.Table:
    import pyarrow as pa

    try:
        files = [open_parquet(file) for file in parquet_files(path)]
        rows = sum(file.metadata.num_rows for file in files)
        fits_memory(f"{path}", rows, max(file.metadata.num_columns for file in files))
        return pa.concat_tables([file.read() for file in files])
    except (pa.ArrowException, OSError, UnicodeDecodeError) as error:
        if isinstance(error, (FileNotFoundError, InputError)):
            raise
        raise InputError(f"{path} must be whole Parquet of one schema; {error}.") from error


def _from_columns(
    table: pa.Table, where: str, plain: Meaning, labels: Sequence[str] | None
) -> ForeignTable:
    names = table.column_names
    if len(set(names)) < len(names):
        twice = next(name for name in names if names.count(name) > 1)
        raise InputError(f"{where}columns must differ; {twice!r} is there twice.")
    if table.num_rows == 0:
        raise InputError(f"{where}must have at least one row; it is empty.")
    found = {
        kind: _layout.label_columns(names, kind)
        for kind in (_layout.PROBABILITY, _layout.SCORE, _layout.TRUTH)
    }
    prefixed = found[_layout.PROBABILITY] or found[_layout.SCORE]
    used = {prefix + name for prefix, group in found.items() for name in group}
    chosen = _values.as_labels(
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
        return number_cells(columns, where, nulls=nulls)

    bare = None if prefixed else cells("")
    return ForeignTable(
        where=where,
        labels=chosen,
        ids=_optional(table, _layout.ID, where),
        probabilities=bare if plain == "probabilities" and not prefixed else cells("p:"),
        scores=bare if plain == "scores" and not prefixed else cells("s:"),
        targets=cells("y:", nulls=True),
        split=_optional(table, "split", where),
    )


def _optional(table: pa.Table, name: str, where: str) -> Array | Any:
    if name not in table.column_names:
        return None
    column: Any = table.column(name).combine_chunks()
    if name == _layout.ID:
        return id_cells(column, where)
    return number_cells({name: column}, where)[:, 0]
