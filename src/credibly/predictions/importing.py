"""Import predictions of other programs: values declared as logits or probabilities, and truth.

The user declares what the values mean; it is never guessed from their range. A declaration that
the values contradict is an error.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import pyarrow as pa

from credibly.arrays import is_tensor, to_numpy
from credibly.checks import InputError, nearest
from credibly.predictions import foreign_files, validation
from credibly.predictions.foreign_files import ImportedTable, Layout
from credibly.targets import as_decoded
from credibly.types import Array, ArrowTable, JsonObject

if TYPE_CHECKING:
    from credibly.losses import Loss

Values = Literal["logits", "probabilities"]
"""What imported numbers are: logits or probabilities."""
SEPARATORS = (" ", ",", ";", "|")
LIST_NAMES = ("labels", "label", "tags", "classes", "categories", "attributes", "attribute_ids")


def declared_arrays(
    table: ImportedTable, values: Values, loss: str | Loss | None, *, certain: bool
) -> JsonObject:
    """Return the arguments of ``Predictions.from_arrays``; values must match their declaration."""
    declared(table, values, loss, certain=certain)
    metadata: dict[str, object] = {"source_values": values}
    probabilities = table.probabilities
    if loss is not None:
        probabilities = foreign_files.through(loss, table)
        metadata["loss"] = str(loss)
    scores = table.scores
    if scores is not None and scores.shape[1] != len(table.labels):
        scores = None  # a predictions file cannot store two scores per label
    if table.where:
        metadata["source"] = Path(table.where.removesuffix(": ")).name
    return {
        "probabilities": probabilities,
        "targets": as_decoded(table.targets),
        "labels": table.labels,
        "ids": table.ids,
        "scores": scores,
        "metadata": metadata,
        "where": table.where,
    }


def read_values(
    source: object,
    values: Values,
    layout: Layout,
    *,
    ids: Sequence[object] | Array | None = None,
    partial: bool = False,
    apart: bool = False,
) -> ImportedTable:
    """Return the values, truth and names of ``source``, without mapping scores to probabilities.

    ``apart``: the truth comes from another source, and the layout describes its columns there.
    """
    plain = "scores" if values == "logits" else "probabilities"
    own = replace(layout, truth_columns=None) if apart else layout
    arrays, columns, where = _opened(source, own, plain, partial=partial)
    if columns is not None:
        table = foreign_files.from_columns(columns, where, plain, own)
    else:
        matrices = {name: as_matrix(each) for name, each in arrays.items()}
        table = foreign_files.from_arrays(matrices, where, own)
    if ids is not None:
        table = replace(table, ids=validation.as_ids(ids, _rows(table), table.where))
    return replace(table, ids=layout.without_suffix(table.ids))


def _opened(
    source: object, layout: Layout, plain: str, *, partial: bool = False
) -> tuple[dict[str, Any], pa.Table | None, str]:
    """Return the arrays of a file, data frame or array by name, its columns, and what it is called.

    A source has either arrays or columns.
    """
    if isinstance(source, (str, os.PathLike)):
        path = Path(source)
        arrays, columns = foreign_files.open_file(path, layout, plain=plain, partial=partial)
        return arrays or {}, columns, f"{path}: "
    if isinstance(source, ArrowTable):
        return {}, _arrow(source, layout), ""
    return {plain: source}, None, ""


def _rows(table: ImportedTable) -> int:
    values = table.scores if table.probabilities is None else table.probabilities
    return len(to_numpy(values))


def _arrow(frame: ArrowTable, layout: Layout) -> pa.Table:
    """Return a data frame as an Arrow table; a named index of pandas becomes the id."""
    table = pa.table(frame)
    index = "__index_level_0__"
    if index not in table.column_names:
        return table
    if layout.id_column is None and not {"id"} & set(table.column_names):
        names = ["id" if name == index else name for name in table.column_names]
        return table.rename_columns(names)
    return table.drop_columns([index])


def as_matrix(source: object) -> Array:
    """Return an array, a tensor or a list with one array per label as a matrix (rows, labels).

    Forests of scikit-learn return one (rows, 2) array per label, whose second column is the
    probability of presence. Boosters that are trained per label return one vector per label.

    Example:
        >>> as_matrix([np.array([[0.1, 0.9]]), np.array([[0.6, 0.4]])])
        array([[0.9, 0.4]])
    """
    if is_tensor(source) or isinstance(source, np.ndarray):
        return to_numpy(source)
    if not isinstance(source, (list, tuple)):
        raise InputError(
            "values must be a file, an array, a tensor, a list with one array per label or a data "
            f"frame; got {type(source).__name__}."
        )
    parts = [to_numpy(part) for part in source]
    shapes = {part.shape for part in parts}
    if parts and all(part.ndim == 2 for part in parts):
        wrong = next((place for place, part in enumerate(parts) if part.shape[1] != 2), None)
        if wrong is not None:
            raise InputError(
                "a list with one array per label must hold arrays of shape (rows, 2): absent, "
                f"present; label {wrong} has {parts[wrong].shape}. A forest that saw only one "
                "class of a label gives one column: drop the label, or fill in its probability."
            )
        parts = [part[:, 1] for part in parts]
    if not parts or len({part.shape for part in parts}) > 1 or parts[0].ndim != 1:
        raise InputError(
            "a list of values must hold one array per label, all of one shape, (rows,) or "
            f"(rows, 2); got shapes {sorted(shapes)[:4]}. Pass a matrix as an array."
        )
    return np.stack(parts, axis=1)


def declared(
    table: ImportedTable, values: Values, loss: str | Loss | None, *, certain: bool
) -> ImportedTable:
    """Return the table with only the declared values; raise if they contradict the declaration."""
    if values == "logits":
        if table.scores is None:
            raise InputError(
                f"{table.where}holds probabilities by name, but its values are declared as logits. "
                'Declare them: `values="probabilities"`.'
            )
        scores = to_numpy(table.scores)
        inside = scores.size and np.nanmin(scores) >= 0 and np.nanmax(scores) <= 1
        if inside and not certain:
            raise InputError(
                f"{table.where}all values lie in [0, 1], as probabilities do, but are declared as "
                'logits. Give `values="probabilities"` if they are, or `certain=True` if they are '
                "logits all the same."
            )
        if loss is None:
            raise InputError(
                f"{table.where}logits need the `loss` that trained the model, because it defines "
                'the map to probabilities. Give `loss="bce"` for a plain sigmoid: models trained '
                "with binary cross-entropy, and margins of XGBoost and LightGBM."
            )
        return replace(table, probabilities=None)
    if table.probabilities is None:
        raise InputError(
            f"{table.where}holds scores by name, not probabilities. Import them with the loss that "
            'they were trained with: `Predictions.from_values(path, "logits", loss=…)`, or '
            "`credibly import FILE --as logits --loss LOSS`."
        )
    if loss is not None:
        raise InputError(
            f"{table.where}`loss` is for logits, but the values are declared as probabilities. "
            "Leave `loss` out, or declare logits."
        )
    return replace(table, scores=None)


# Truth -----------------------------------------------------------------------------------------


def with_truth(table: ImportedTable, truth: object, layout: Layout) -> ImportedTable:
    """Return the table with the truth of another source, matched by id and by label name.

    If one side has no ids, rows are matched by order, and the numbers of rows must agree.

    Args:
        table: values whose truth is in another source.
        truth: None, a file, a data frame or a matrix.
        layout: how the truth names rows and labels.

    Raises:
        InputError: if a row or a label has no truth, or an id appears twice.
    """
    if truth is None:
        return table
    ids, targets, where = _read_truth(truth, table.labels, layout)
    rows = _rows(table)
    if ids is None or table.ids is None:
        if len(targets) != rows:
            raise InputError(
                f"{where}the truth must have as many rows as the values, {rows}, because one of "
                f"them has no ids; got {len(targets)}. Give both an id column."
            )
        return replace(table, targets=targets, ids=ids if table.ids is None else table.ids)
    return replace(table, targets=targets[_matched(table, ids, where)])


def _matched(table: ImportedTable, ids: Array, where: str) -> Array:
    """Return the row index of the truth for each row of the table."""
    names = validation.as_ids(table.ids, len(to_numpy(table.ids)), table.where)
    given = validation.as_ids(ids, len(ids), where)
    row_of = {name: row for row, name in enumerate(given.tolist())}
    without = [name for name in names.tolist() if name not in row_of]
    if without:
        few = ", ".join(map(repr, without[:3]))
        hint = ""
        if len(without) == len(names):
            hint = (
                f" The truth has ids such as {given[0]!r}. If only an ending differs, remove it "
                'with `suffix=".jpg"`.'
            )
        raise InputError(
            f"{where}every row must have its truth; {len(without)} of {len(names)} ids have none: "
            f"{few}{', …' if len(without) > 3 else ''}.{hint}"
        )
    return np.array([row_of[name] for name in names.tolist()], dtype=np.intp)


def _read_truth(
    truth: object, labels: Sequence[str], layout: Layout
) -> tuple[Array | None, Array, str]:
    """Return ids (or None), targets in the order of ``labels``, and the beginning of errors."""
    arrays, columns, where = _opened(truth, replace(layout, value_columns=None), "targets")
    if columns is not None:
        return _truth_columns(columns, where, labels, layout)
    if "targets" not in arrays:
        held = ", ".join(arrays) or "nothing"
        raise InputError(f"{where}must hold an array `targets`; it holds {held}.")
    own = [str(name) for name in arrays["labels"].tolist()] if "labels" in arrays else labels
    targets = validation.as_targets(arrays["targets"], own, where, decoded=layout.decode)
    return arrays.get("ids"), targets[:, _places(labels, own, where)], where


def _places(labels: Sequence[str], known: Sequence[str], where: str) -> list[int]:
    place = {name: position for position, name in enumerate(known)}
    for name in labels:
        if name not in place:
            numbered = list(labels) == [str(number) for number in range(len(labels))]
            advice = "The scores have no label names: give them, in order: `labels=NAMES`."
            raise InputError(
                f"{where}the truth must have every label; {name!r} is missing. "
                f"{advice if numbered else nearest(str(name), known)}"
            )
    return [place[name] for name in labels]


def _truth_columns(
    table: pa.Table, where: str, labels: Sequence[str], layout: Layout
) -> tuple[Array | None, Array, str]:
    names = table.column_names
    id_column = foreign_files.id_name(names, layout.id_column, where)
    ids = None
    if id_column is not None:
        ids = layout.without_suffix(
            foreign_files.id_array(foreign_files.column(table, id_column), where)
        )
    listed = _list_column(names, labels, layout, id_column)
    if listed is not None:
        return ids, _from_lists(table, listed, where, labels, layout), where
    prefix = "y:" if any(name.startswith("y:") for name in names) else ""
    own = [name.removeprefix(prefix) for name in names if name.startswith(prefix)]
    _places(labels, own, where)
    columns = {prefix + name: foreign_files.column(table, prefix + name) for name in labels}
    matrix = foreign_files.number_matrix(columns, where, nulls=True, fill=float("nan"))
    return ids, foreign_files.decoded(matrix, list(labels), where, layout), where


def _list_column(
    names: Sequence[str], labels: Sequence[str], layout: Layout, id_column: str | None
) -> str | None:
    """Return the column that lists the labels of a row, or None if each label has a column."""
    if layout.label_column is not None:
        return layout.label_column
    if any(name in names or f"y:{name}" in names for name in labels):
        return None
    small = {name.lower(): name for name in reversed(names) if name != id_column}
    return next((small[name] for name in LIST_NAMES if name in small), None)


def _from_lists(
    table: pa.Table, name: str, where: str, labels: Sequence[str], layout: Layout
) -> Array:
    """Return targets from cells such as ``cat dog``; an empty cell means no labels."""
    if name not in table.column_names:
        raise InputError(
            f"{where}there must be a column {name!r}. {nearest(name, table.column_names)}"
        )
    cells = foreign_files.column(table, name).to_pylist()
    place = {label: position for position, label in enumerate(labels)}
    separator = _separator(cells, place)
    targets = np.zeros((len(cells), len(labels)), dtype=np.int8)
    for row, cell in enumerate(cells):
        for part in _parts(cell, separator):
            if part not in place:
                raise InputError(
                    f"{where}row {row}, column {name!r} must list known labels, separated by "
                    f"{separator!r}; got {part!r}. {nearest(part, labels)}"
                )
            targets[row, place[part]] = 1
    return targets


def _parts(cell: object, separator: str) -> list[str]:
    if isinstance(cell, (list, tuple)):
        return [str(part) for part in cell]
    text = "" if cell is None else str(cell)
    return [part.strip() for part in text.split(separator) if part.strip()]


def _separator(cells: Sequence[object], known: Mapping[str, int]) -> str:
    """Return the separator that leaves the fewest unknown parts."""

    def unknown(separator: str) -> int:
        return sum(part not in known for cell in cells for part in _parts(cell, separator))

    return min(SEPARATORS, key=unknown)
