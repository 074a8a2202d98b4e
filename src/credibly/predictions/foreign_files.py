"""Read scores or probabilities that another program wrote: arrays and tables in files."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import numpy as np
import pyarrow as pa
from pyarrow import csv

from credibly.arrays import to_numpy
from credibly.checks import InputError, nearest
from credibly.memory_limits import not_for_lack_of_memory
from credibly.predictions import file_schema, validation
from credibly.predictions.shard import check_complete, parquet_files
from credibly.predictions.validation import id_array, number_matrix
from credibly.targets import UNKNOWN, Coding, Targets
from credibly.targets import decode as decode_targets
from credibly.types import Array, FilePath
from credibly.untrusted.arrays import array_headers, read_array, read_arrays
from credibly.untrusted.tables import read_arrow, read_parquet, unpacked
from credibly.untrusted.tensors import NAMES, read_tensors

if TYPE_CHECKING:
    from credibly.losses import Loss

Kind = Literal["npz", "npy", "pt", "csv", "parquet", "arrow"]
Meaning = Literal["probabilities", "scores"]
KINDS: dict[str, Kind] = {
    ".npz": "npz",
    ".npy": "npy",
    ".pt": "pt",
    ".pth": "pt",
    ".csv": "csv",
    ".parquet": "parquet",
    ".arrow": "arrow",
    ".feather": "arrow",
}
"""Kinds of files by their ending."""

ID_NAMES = ("id", "ids", "image_id", "imageid", "row_id", "filename", "file_name", "image_name")
"""Names of columns that hold ids, in small letters; the first that a table has is taken."""


@dataclass(frozen=True)
class ImportedTable:
    """The content of an imported file.

    Attributes:
        where: the beginning of errors: the path and a colon.
        labels: names of the labels.
        ids: (rows,), or None if the file has no ids.
        probabilities, scores: (rows, labels); scores may have two columns per label.
        targets: (rows, labels) of 1, 0, soft values and −1 for unknown.
        split: (rows,): 0 is train, 1 test, 2 calibration.
    """

    where: str
    labels: list[str]
    ids: Array | None = None
    probabilities: Array | None = None
    scores: Array | None = None
    targets: Array | None = None
    split: Array | None = None


@dataclass(frozen=True)
class Layout:
    """Names of rows and labels in an imported file or table.

    Attributes:
        labels: names of the labels: the columns to read, or the names of the columns of an array.
        id_column: the column of ids; by default ``id``, ``image_id`` or a similar name.
        suffix: removed from the end of ids, for example ``".jpg"``.
        label_column: a column of the truth that lists the labels of each row; by default
            ``labels``, ``tags`` or a similar name.
        value_columns: the columns of the values, with ``*`` for the label, such as ``pred_*``; in
            files of arrays, the name of the array. By default the usual names.
        truth_columns: the columns or the array of the truth, in the same form.
        coding: how to read targets of only −1 and +1: ``"signed"`` or ``"unknown"``.
    """

    labels: Sequence[str] | None = None
    id_column: str | None = None
    suffix: str = ""
    label_column: str | None = None
    value_columns: str | None = None
    truth_columns: str | None = None
    coding: Coding | None = None

    def decode(self, targets: Array | Targets, num_labels: int) -> Array:
        """Return targets decoded with this coding."""
        return decode_targets(targets, coding=self.coding, num_labels=num_labels)

    def without_suffix(self, ids: Array | None) -> Array | None:
        """Return the ids without the suffix."""
        if ids is None or not self.suffix:
            return ids
        return np.array([str(name).removesuffix(self.suffix) for name in ids.tolist()], object)

    def usual_names(self, names: Sequence[str], kept: Sequence[str], prefix: str) -> dict[str, str]:
        """Return the columns to read, each with its name in a predictions file.

        Args:
            names: the names of all columns.
            kept: columns that contain neither values nor truth, such as the id.
            prefix: the prefix of the values, ``s:`` or ``p:``.

        Example:
            >>> layout = Layout(value_columns="pred_*", truth_columns="true_*")
            >>> layout.usual_names(["id", "pred_a", "true_a"], ["id"], "p:")
            {'id': 'id', 'pred_a': 'p:a', 'true_a': 'y:a'}
        """
        others = [name for name in names if name not in kept]
        values, truth = _matching(self.value_columns, others), _matching(self.truth_columns, others)
        if self.value_columns == "*":  # "*" excludes the columns that the other pattern matches
            values = {name: label for name, label in values.items() if name not in truth}
        elif self.truth_columns == "*":
            truth = {name: label for name, label in truth.items() if name not in values}
        rest = [name for name in others if name not in truth]
        if self.value_columns is not None:
            if "*" not in self.value_columns + (self.truth_columns or ""):
                truth = dict.fromkeys(truth, self.value_columns)  # one label under two names
            usual = self.truth_columns is None
            rest = [name for name in rest if usual and name.startswith(file_schema.TRUTH)]
        return {
            **{name: name for name in (*kept, *rest)},
            **{name: prefix + label for name, label in values.items()},
            **{name: file_schema.TRUTH + label for name, label in truth.items()},
        }


def _matching(pattern: str | None, names: Sequence[str]) -> dict[str, str]:
    """Return the label of each column that a pattern matches.

    Example:
        >>> _matching("pred_*", ["id", "pred_cat", "pred_dog"])
        {'pred_cat': 'cat', 'pred_dog': 'dog'}
    """
    if pattern is None:
        return {}
    if pattern.count("*") > 1:
        raise InputError(f"a pattern of columns must have one '*' at most; got {pattern!r}.")
    before, star, after = pattern.partition("*")
    shortest = len(before) + len(after)
    found = {
        name: name[len(before) : len(name) - len(after)] if star else name
        for name in names
        if name == pattern
        or (star and len(name) > shortest and name.startswith(before) and name.endswith(after))
    }
    if not found:
        hint = nearest(pattern.replace("*", ""), list(names))
        raise InputError(f"there must be columns called {pattern!r}. {hint}")
    return found


def open_file(
    path: Path, layout: Layout, *, plain: str, partial: bool = False
) -> tuple[dict[str, Array] | None, pa.Table | None]:
    """Return the arrays of a file by name, or its columns; the other result is None.

    If the layout defines their names, they are renamed to the usual names.

    Args:
        path: an ``.npz``, ``.npy``, ``.pt`` (tensors only), ``.csv``, ``.parquet``, ``.arrow`` or
            ``.feather`` file, or a folder of Parquet files.
        layout: how the file names rows and labels.
        plain: the meaning of columns without a prefix, and of arrays without a name.
        partial: whether a folder may lack shards of a prediction; by default that is an error.
    """
    if not path.exists():
        raise FileNotFoundError(f"there is no file {path}")
    kind = file_kind(path)
    if kind in ("npz", "npy", "pt"):
        return _arrays(path, kind, plain, layout), None
    if kind == "parquet":
        table = _parquet(path, partial)
    else:
        table = _csv(path, layout.id_column) if kind == "csv" else read_arrow(path)
    return None, _with_usual_names(table, layout, plain, f"{path}: ")


def _with_usual_names(table: pa.Table, layout: Layout, plain: str, where: str) -> pa.Table:
    """Return the columns in the layout with their usual names, or all if the layout has none."""
    if layout.value_columns is None and layout.truth_columns is None:
        return table
    given: list[str] = table.column_names
    id_found = id_name(given, layout.id_column, where)
    kept = [name for name in given if name == "split" or name == id_found]
    prefix = file_schema.PROBABILITY if plain == "probabilities" else file_schema.SCORE
    try:
        usual = layout.usual_names(given, kept, prefix)
    except InputError as error:
        raise InputError(f"{where}{error}") from error
    return table.select(list(usual)).rename_columns(list(usual.values()))


def through(loss: str | Loss, table: ImportedTable) -> Array:
    """Return the probabilities of the table's scores by the link of their loss."""
    import torch

    from credibly import losses

    owner = losses.from_name(loss, num_labels=len(table.labels)) if isinstance(loss, str) else loss
    scores = validation.as_scores(to_numpy(table.scores), table.labels, table.where)
    with torch.no_grad():
        return to_numpy(owner.probabilities(torch.from_numpy(scores)))


def file_kind(path: Path) -> Kind:
    """Return the format of a file by its extension; a folder contains Parquet files."""
    if path.is_dir():
        return "parquet"
    if path.suffix.lower() not in KINDS:
        *endings, last = KINDS
        raise InputError(
            f"{path} must end in {', '.join(endings)} or {last}; it ends in {path.suffix!r}."
        )
    return KINDS[path.suffix.lower()]


def _arrays(path: Path, kind: Kind, plain: str, layout: Layout) -> dict[str, Array]:
    """Return the arrays of a file by name; an array without a name has the meaning ``plain``."""
    if kind == "npy":
        return {plain: read_array(path)}
    own = tuple(name for name in (layout.value_columns, layout.truth_columns) if name is not None)
    read = read_tensors(path, plain, own) if kind == "pt" else read_arrays(path, (*NAMES, *own))
    for name in own:
        if name not in read:
            hint = nearest(name, list(read))
            raise InputError(f"{path}: there must be an array called {name!r}. {hint}")
    kept = {name: array for name, array in read.items() if name not in own}
    if layout.value_columns is not None:
        kept = {n: array for n, array in kept.items() if n not in ("scores", "probabilities")}
        kept[plain] = read[layout.value_columns]
    return kept if layout.truth_columns is None else {**kept, "targets": read[layout.truth_columns]}


def from_arrays(arrays: dict[str, Array], where: str, layout: Layout) -> ImportedTable:
    """Return arrays by name (``scores`` or ``probabilities``, …) as a table with checked shapes."""
    main = arrays.get("probabilities", arrays.get("scores"))
    if main is None or main.ndim != 2:
        found = ", ".join(f"{name} {array.shape}" for name, array in arrays.items()) or "nothing"
        raise InputError(
            f"{where}must hold an array `scores` or `probabilities` of shape (rows, labels); "
            f"it holds {found}."
        )
    if main.dtype.kind not in "buif":
        raise InputError(f"{where}scores and probabilities must be numbers; got {main.dtype}.")
    if main.shape[0] == 0:
        raise InputError(f"{where}must have at least one row; it is empty.")
    names = _names(arrays, layout.labels, main, where)
    labels = validation.as_labels(range(main.shape[1]) if names is None else names, where)
    targets = arrays.get("targets")
    if targets is not None:
        targets = validation.as_targets(targets, labels, where, decoded=layout.decode)
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
        validation.imported_scores(arrays.get("scores"), labels, where),
        targets,
        arrays.get("split"),
    )


def _names(
    arrays: dict[str, Array], labels: Sequence[str] | None, main: Array, where: str
) -> Sequence[object] | None:
    """Return the column names; given names must equal the names in the file, if it has any."""
    own = None if "labels" not in arrays else arrays["labels"].tolist()
    if labels is None:
        return own
    if own is not None and [str(name) for name in own] != [str(name) for name in labels]:
        raise InputError(
            f"{where}`labels` must be those of the file, in its order, {str(own)[:80]}; got "
            f"{str(list(labels))[:80]}. Leave them out."
        )
    if main.shape[1] % len(labels):
        raise InputError(
            f"{where}`labels` must name every column, {main.shape[1]}; got {len(labels)} names."
        )
    return labels


def id_name(names: Sequence[str], id_column: str | None, where: str) -> str | None:
    """Return the name of the id column, or None."""
    if id_column is not None:
        if id_column not in names:
            raise InputError(
                f"{where}there must be a column {id_column!r}, as `id_column` says. "
                f"{nearest(id_column, names)}"
            )
        return id_column
    small = {name.lower(): name for name in reversed(names)}
    return next((small[name] for name in ID_NAMES if name in small), None)


def _csv(path: Path, id_column: str | None) -> pa.Table:
    content = pa.py_buffer(unpacked(path))
    # Arrow refuses a header that is longer than a block.
    header = bytes(memoryview(content)[: 2**28]).lstrip().partition(b"\n")[0]
    read = csv.ReadOptions(block_size=max(2**20, 4 * len(header)))
    try:
        with csv.open_csv(pa.BufferReader(content), read_options=read) as reader:
            name = id_name(reader.schema.names, id_column, f"{path}: ")
        # Reading ids as text keeps their leading zeros.
        kept: dict[str, pa.DataType] = {name or file_schema.ID: pa.string()}
        options = csv.ConvertOptions(column_types=kept)
        table = csv.read_csv(pa.BufferReader(content), read, convert_options=options)
        _ = table.column_names  # raises here if a name is not UTF-8
        return table
    except MemoryError:
        raise
    except (pa.ArrowException, OSError, UnicodeDecodeError) as error:
        not_for_lack_of_memory(error)
        raise InputError(f"{path} must be a CSV file with a header; {error}.") from error


def _parquet(path: Path, partial: bool) -> pa.Table:
    names = parquet_files(path)
    if path.is_dir():
        check_complete(path, {file.name: {} for file in names}, partial=partial)
    try:
        return pa.concat_tables([read_parquet(file) for file in names])
    except pa.ArrowException as error:
        raise InputError(f"{path} must be Parquet of one schema; {error}.") from error


def from_columns(table: pa.Table, where: str, plain: Meaning, layout: Layout) -> ImportedTable:
    """Return the columns of a table: ``p:<label>``, ``s:<label>``, ``y:<label>`` or plain ones."""
    names = table.column_names
    if len(set(names)) < len(names):
        twice = next(name for name in names if names.count(name) > 1)
        raise InputError(f"{where}columns must have different names; {twice!r} appears twice.")
    if table.num_rows == 0:
        raise InputError(f"{where}must have at least one row; it is empty.")
    found = {
        kind: file_schema.label_columns(names, kind)
        for kind in (file_schema.PROBABILITY, file_schema.SCORE, file_schema.TRUTH)
    }
    prefixed = found[file_schema.PROBABILITY] or found[file_schema.SCORE]
    used = {prefix + name for prefix, group in found.items() for name in group}
    id_column = id_name(names, layout.id_column, where)
    chosen = validation.as_labels(
        layout.labels
        or prefixed
        or [n for n in names if n not in used and n not in (id_column, "split")],
        where,
    )

    known = set(names)

    def cells(prefix: str, *, nulls: bool = False) -> Array | None:
        if not found.get(prefix) and prefix != "":
            return None
        columns = {}
        for name in chosen:
            if prefix + name not in known:
                hint = nearest(prefix + name, names)
                raise InputError(f"{where}there must be a column {prefix + name!r}. {hint}")
            columns[prefix + name] = column(table, prefix + name)
        return number_matrix(columns, where, nulls=nulls, fill=math.nan)

    truth = cells("y:", nulls=True)
    values = {"scores": cells("s:"), "probabilities": cells("p:")}
    if not prefixed:
        values[plain] = cells("")
    return ImportedTable(
        where=where,
        labels=chosen,
        ids=None if id_column is None else id_array(column(table, id_column), where),
        probabilities=values["probabilities"],
        scores=validation.imported_scores(values["scores"], chosen, where),
        targets=None if truth is None else decoded(truth, chosen, where, layout),
        split=_split(table, where),
    )


def decoded(truth: Array, labels: list[str], where: str, layout: Layout) -> Array:
    """Return decoded targets; without any −1, exactly the empty cells are unknown."""
    if layout.coding is None and not (truth == UNKNOWN).any():
        return validation.as_targets(truth, labels, where)
    return validation.as_targets(truth, labels, where, decoded=layout.decode)


def column(table: pa.Table, name: str) -> pa.Array:
    return table.column(name).combine_chunks()


def _split(table: pa.Table, where: str) -> Array | None:
    if "split" not in table.column_names:
        return None
    return number_matrix({"split": column(table, "split")}, where)[:, 0]


# Preview of a file -------------------------------------------------------------------------------

CELL = 40  # limit on the characters of a cell


@dataclass(frozen=True)
class FilePreview:
    """The names and the first rows of a file.

    Attributes:
        rows: the number of rows of its columns or of its first array.
        names: the names of the columns or of the arrays.
        kinds: the type of each, such as ``double`` or ``float32 (60, 3)``.
        cells: the first rows of the columns, as text; empty for arrays.
        tabular: whether it has columns instead of arrays.
    """

    rows: int
    names: list[str]
    kinds: list[str]
    cells: list[list[str]]
    tabular: bool


def preview_file(path: FilePath, rows: int = 5) -> FilePreview:
    """Return the names in a CSV, Parquet, Arrow, ``.npz`` or ``.npy`` file and its first rows.

    Raises:
        InputError: if the file is in another format, or damaged.

    Example:
        >>> import pathlib, tempfile
        >>> path = pathlib.Path(tempfile.mkdtemp()) / "scores.csv"
        >>> _ = path.write_text("id,cat\\n007,0.5\\n")
        >>> preview_file(path).names, preview_file(path).cells
        (['id', 'cat'], [['007', '0.5']])
    """
    path = Path(path)
    kind = file_kind(path)
    if kind == "pt":
        known = ", ".join(ending for ending, other in KINDS.items() if other != "pt")
        raise InputError(f"{path} must be one of {known}.")
    if kind in ("npz", "npy"):
        headers = array_headers(path)
        kinds = [f"{dtype} {shape}" for shape, dtype in headers.values()]
        first = next((shape for shape, _ in headers.values() if shape), (0,))
        return FilePreview(int(first[0]), list(headers), kinds, [], tabular=False)
    _, table = open_file(path, Layout(), plain="scores")
    assert table is not None
    head = table.slice(0, rows).to_pydict()
    cells = [
        [_short(column[row]) for column in head.values()] for row in range(min(rows, len(table)))
    ]
    kinds = [str(field.type) for field in table.schema]
    return FilePreview(table.num_rows, list(table.column_names), kinds, cells, tabular=True)


def _short(value: object) -> str:
    text = "" if value is None else str(value)
    return text if len(text) <= CELL else text[: CELL - 1] + "…"
