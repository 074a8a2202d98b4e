"""The predictions table in memory: probabilities of labels for rows, with ids and truth.

A table has one column per label. With very many labels, it stores only the most probable labels of
each row; ``top`` then contains the label index of each entry.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from credibly import __version__
from credibly.arrays import aligned, in_order, to_numpy
from credibly.checks import InputError, choice, nearest
from credibly.notebook import COLUMNS, ROWS, draw, html_table
from credibly.predictions import file_schema, validation
from credibly.targets import UNKNOWN, Coding, SparseTargets, Targets, decode
from credibly.types import Array, ArrayLike

if TYPE_CHECKING:
    import pandas as pd

    from credibly.losses import Loss
    from credibly.predictions.dataset import Dataset
    from credibly.predictions.foreign_files import Layout
    from credibly.predictions.importing import Values


Path = str | os.PathLike[str]
Rows = slice | Sequence[int] | Array
NOTHING = -1
"""The label index that fills up rows which hold fewer labels than others."""


@dataclass(frozen=True, eq=False, repr=False)
class Predictions:
    """Probabilities of labels for every row; made by ``from_arrays`` or ``read``.

    There are two layouts. A table with one column per label has ``top`` None and as many columns
    as labels. A table for very many labels stores the most probable labels of each row: column
    ``j`` of row ``i`` belongs to label ``top[i, j]``, and every other label is less probable.
    ``probabilities``, ``targets`` and ``scores`` have the same shape in both layouts, so code for
    single entries is the same. ``select`` returns the given labels with one column each.

    Attributes:
        probabilities: (rows, columns) float32 in [0, 1].
        labels: the names of all labels, in order.
        ids: (rows,) array of distinct str.
        targets: None, or (rows, columns) int8: 1 present, 0 absent, −1 unknown; float32 if some
            truth is soft (a share of votes).
        scores: None, or (rows, columns) float32: the output of the model.
        metadata: any JSON values: loss, link, calibrator, decision, seed, created_by.
        top: None, or (rows, columns) int32 label indices, the most probable first; −1 pads rows
            with fewer labels.
        all_targets: None without ``top``; with ``top``, the truth of all labels. ``targets`` is the
            truth of the labels that the rows store.
            of the labels that the rows hold.

    Example:
        >>> predictions = Predictions.from_arrays(
        ...     probabilities=[[0.9, 0.2], [0.4, 0.6]], targets=[[1, 0], [-1, 1]],
        ...     labels=["dog", "dining table"], ids=["a", "b"])
        >>> predictions
        Predictions(2 rows × 2 labels, with targets)
        >>> predictions.select(["dining table"])[1:].probabilities
        array([[0.6]], dtype=float32)

        >>> many = Predictions.from_arrays(
        ...     top=[[7, 3], [999, 0]], probabilities=[[0.9, 0.2], [0.5, 0.4]],
        ...     labels=[f"label-{i}" for i in range(1000)],
        ...     targets=SparseTargets.from_lists([[7], []], 1000))
        >>> many
        Predictions(2 rows, the 2 most probable of 1,000 labels, with targets)
        >>> many.targets
        array([[1, 0],
               [0, 0]], dtype=int8)
        >>> many.select(["label-3"]).probabilities
        array([[0.2],
               [0. ]], dtype=float32)
    """

    probabilities: Array
    labels: list[str]
    ids: Array
    targets: Array | None = None
    scores: Array | None = None
    metadata: dict[str, Any] = field(default_factory=dict)
    top: Array | None = None
    all_targets: SparseTargets | None = None

    @classmethod
    def from_arrays(
        cls,
        *,
        probabilities: ArrayLike | object,
        labels: Sequence[str] | Array,
        targets: ArrayLike | object = None,
        ids: Sequence[object] | Array | None = None,
        scores: ArrayLike | object = None,
        metadata: Mapping[str, object] | None = None,
        top: ArrayLike | object = None,
        coding: Coding | None = None,
        where: str = "",
    ) -> Predictions:
        """Return checked predictions from arrays or tensors, which are not modified.

        Columns of data frames are matched with ``labels`` by name, and rows by index. With ``top``,
        the entries of each row are sorted by probability.

        Args:
            probabilities: (rows, labels) in [0, 1]; with ``top``, (rows, k).
            labels: the names of all labels, in the order of the columns.
            targets: (rows, labels) coded as ``credibly.targets`` says, integer class indices
                (rows,), −1 unknown, or ``SparseTargets``.
            ids: one per row, all different; by default the row indices.
            scores: the model's output, of the shape of ``probabilities``.
            metadata: any JSON values.
            top: (rows, k) label indices, for rows that store their most probable labels; −1 pads
                rows with fewer labels.
            coding: how to read targets that are only −1 and +1: ``"signed"`` or ``"unknown"``.
            where: the beginning of errors, such as a file name.

        Raises:
            InputError: if shapes disagree or a value is out of range; it says which row and label.
        """
        names, decoded = validation.as_labels(labels, where), partial(decode, coding=coding)
        about = {"created_by": f"credibly {__version__}", **(metadata or {})}
        if top is not None:
            if not isinstance(targets, SparseTargets) and targets is not None:
                dense = validation.as_targets(targets, names, where, decoded=decoded)
                targets = SparseTargets.from_dense(dense)
            return checked_top(
                Predictions(
                    probabilities=to_numpy(probabilities).astype(np.float32),
                    labels=names,
                    ids=validation.as_ids(ids, len(to_numpy(top)), where),
                    scores=None if scores is None else to_numpy(scores).astype(np.float32),
                    metadata=about,
                    top=to_numpy(top),
                    all_targets=targets,
                ),
                where,
            )
        if isinstance(targets, SparseTargets):
            targets, decoded = targets.dense(), partial(decode, coding="unknown")
        probabilities = in_order(probabilities, names, "probabilities")
        targets, scores = (
            aligned(probabilities, in_order(each, names, what), "probabilities", what)
            for each, what in ((targets, "targets"), (scores, "scores"))
        )
        matrix = validation.as_matrix("probabilities", probabilities, len(names), where)
        rows = len(matrix)
        truth = None
        if targets is not None:
            truth = validation.as_targets(targets, names, where, decoded=decoded)
        raw = None if scores is None else validation.as_matrix("scores", scores, len(names), where)
        for name, other in (("targets", truth), ("scores", raw)):
            if other is not None and len(other) != rows:
                raise InputError(
                    f"{where}`{name}` must have as many rows as the probabilities, {rows}; "
                    f"got {len(other)}."
                )
        return cls(
            probabilities=validation.as_probabilities(matrix, names, where),
            labels=names,
            ids=validation.as_ids(ids, rows, where),
            targets=truth,
            scores=None if raw is None else validation.as_scores(raw, names, where),
            metadata=about,
        )

    # Files -----------------------------------------------------------------------------------

    @classmethod
    def read(
        cls,
        path: Path,
        labels: Sequence[str] | None = None,
        rows: Rows | None = None,
        *,
        partial: bool = False,
    ) -> Predictions:
        """Read a predictions file, or a folder of shards, completely or only some labels and rows.

        A folder that lacks shards is an error unless ``partial``.
        """
        return cls.scan(path, partial=partial).read(labels=labels, rows=rows)

    @classmethod
    def scan(cls, path: Path, *, partial: bool = False, **limits: int) -> Dataset:
        """Open a dataset without reading rows: labels, number of rows, metadata, and batches.

        ``limits`` are the options of ``Dataset``.
        """
        from credibly.predictions.dataset import Dataset

        return Dataset(path, partial=partial, **limits)

    def write(self, path: Path) -> None:
        """Write one Parquet file; ``path`` holds either its old content or all of the new one."""
        from credibly.predictions.writer import Writer

        with Writer(path, self.labels, metadata=self.metadata) as writer:
            writer.append(self)

    @classmethod
    def from_values(
        cls,
        source: object,
        values: Values,
        *,
        loss: str | Loss | None = None,
        truth: object = None,
        layout: Layout | None = None,
        ids: Sequence[object] | Array | None = None,
        certain: bool = False,
    ) -> Predictions:
        """Import values of another program, declared as logits or as probabilities.

        The columns of a file or data frame are ``p:<label>`` or ``s:<label>``, ``y:<label>`` and
        ``id``. Plain label names also work: then all columns except ``id`` and ``split`` are
        labels. The arrays of a file are ``probabilities`` or ``scores``, and optionally ``labels``,
        ``targets`` and ``ids``. An empty cell of truth is unknown.

        Args:
            source: an ``.npy``, ``.npz``, ``.pt`` (tensors only, nothing is executed), ``.csv``,
                ``.parquet``, ``.arrow`` or ``.feather`` file; a matrix (array or tensor); a list
                with one array per label, (rows, 2) as forests of scikit-learn return them or
                (rows,) as boosters trained per label do; a data frame of pandas, polars or pyarrow.
            values: ``"logits"`` (the output of a model before any sigmoid: margins, scores) or
                ``"probabilities"``.
            loss: for logits, the loss that they were trained with, or its name; its link maps them
                to probabilities. Use ``"bce"`` if a plain sigmoid is right.
            truth: a file, a data frame or a matrix with the truth. It is matched by id and label
                name if both sides have ids, otherwise by order. A file has one column per label, or
                one column that lists the labels of a row (``cat dog``).
            layout: how rows and labels are named, and how the truth is coded.
            ids: one per row; by default the id column or the named index of a data frame.
            certain: whether to accept logits that all lie in [0, 1].

        Raises:
            InputError: if the values contradict the declaration, or a row or label has no truth.

        Example:
            >>> forest = [np.array([[0.1, 0.9]]), np.array([[0.6, 0.4]])]  # predict_proba
            >>> from credibly.predictions import Layout
            >>> layout = Layout(labels=["cat", "dog"])
            >>> Predictions.from_values(forest, "probabilities", layout=layout).probabilities
            array([[0.9, 0.4]], dtype=float32)
        """
        from credibly.predictions.foreign_files import Layout
        from credibly.predictions.importing import as_predictions, read_values, with_truth

        choice("values", values, ("logits", "probabilities"))
        layout = layout or Layout()
        table = read_values(source, values, layout, ids=ids, apart=truth is not None)
        return as_predictions(with_truth(table, truth, layout), values, loss, certain=certain)

    # Selections and combinations -------------------------------------------------------------

    def __len__(self) -> int:
        return len(self.probabilities)

    @property
    def num_labels(self) -> int:
        return len(self.labels)

    @property
    def every_label(self) -> bool:
        """Whether every row has a probability for every label."""
        return self.top is None

    @property
    def label_indices(self) -> Array:
        """Return the label of each entry, (rows, columns); −1 pads rows with fewer labels."""
        if self.top is not None:
            return self.top
        columns = np.arange(self.num_labels, dtype=np.int32)
        return np.broadcast_to(columns, self.probabilities.shape)

    @property
    def held(self) -> Array:
        """Return whether each entry belongs to a label, (rows, columns); False in padding."""
        if self.top is not None:
            return self.top >= 0
        return np.broadcast_to(np.True_, self.probabilities.shape)

    def measured(self) -> tuple[Any, ...]:
        """Return the arguments for ``update`` of the accumulators of ``Dataset.summary``."""
        assert self.targets is not None
        if self.top is not None:
            return self.top, self.probabilities, self.targets, self.all_targets
        return self.probabilities, Targets(self.targets), self.scores

    def mapped(self, function: Callable[[Array], Array], *, scores: bool = False) -> Predictions:
        """Return the rows with other probabilities and without metadata.

        Args:
            function: maps probabilities, (rows, labels) or one column of the stored ones, to
                probabilities of the same shape.
            scores: whether the function maps the scores instead.
        """
        values = self.scores if scores else self.probabilities
        assert values is not None
        if self.top is None:
            changed = function(values).astype(np.float32)
            return replace(self, probabilities=changed, metadata={})
        changed = self.probabilities.copy()
        changed[self.held] = function(values[self.held][:, None])[:, 0]
        return replace(self.with_probabilities(changed), metadata={})

    def present_counts(self) -> Array:
        """Return the number of labels known to be present in each row, stored or not."""
        if self.all_targets is not None:
            return self.all_targets.row_counts()
        if self.targets is None:
            return np.zeros(len(self))
        return (self.targets == 1).sum(axis=1, dtype=float)

    def check_dense(self, purpose: str) -> None:
        """Raise unless there is one column per label; the error says that ``purpose`` needs it."""
        if self.top is not None:
            raise InputError(needs_columns("the predictions hold", self.num_labels, purpose))

    def __getitem__(self, rows: Rows) -> Predictions:
        """Return some rows: a slice, indices or a bool mask."""
        chosen = row_index(rows)
        taken = ("probabilities", "ids", "targets", "scores", "top", "all_targets")
        given = {name: getattr(self, name) for name in taken}
        return replace(
            self, **{name: None if x is None else x[chosen] for name, x in given.items()}
        )

    def select(self, labels: Sequence[str]) -> Predictions:
        """Return the given labels, in the given order, with one column each.

        If rows store only their most probable labels, every other label has probability 0, and
        scores are omitted.
        """
        columns = positions(labels, self.labels)
        names = validation.as_labels(labels)
        if self.top is not None:
            return self._columns_of(names, columns)
        return replace(
            self,
            labels=names,
            probabilities=self.probabilities[:, columns],
            targets=None if self.targets is None else self.targets[:, columns],
            scores=None if self.scores is None else self.scores[:, columns],
        )

    def _columns_of(self, labels: list[str], indices: Sequence[int]) -> Predictions:
        assert self.top is not None
        column_of = np.full(self.num_labels + 1, -1)  # the last index is for padding
        column_of[indices] = np.arange(len(indices))
        columns = column_of[self.top]
        rows, entries = np.nonzero(columns >= 0)
        values = np.zeros((len(self), len(indices)), np.float32)
        values[rows, columns[rows, entries]] = self.probabilities[rows, entries]
        targets = None
        if self.all_targets is not None:
            asked = np.broadcast_to(np.asarray(indices), values.shape)
            targets = _smallest(self.all_targets.at(asked))
        return Predictions(values, labels, self.ids, targets, None, self.metadata)

    def reordered(self, labels: Sequence[str]) -> Predictions:
        """Return the same rows with their labels in another order."""
        if list(labels) == self.labels:
            return self
        if set(labels) != set(self.labels) or len(labels) != self.num_labels:
            raise InputError(label_mismatch("this table", self.labels, labels))
        if self.top is None:
            return self.select(labels)
        index_of = {name: index for index, name in enumerate(labels)}
        moved = np.array([*(index_of[name] for name in self.labels), NOTHING], np.int32)
        truth = self.all_targets
        return replace(
            self,
            labels=list(labels),
            top=moved[self.top],
            all_targets=None if truth is None else truth.relabelled(moved[:-1]),
        )

    def with_probabilities(self, probabilities: Array) -> Predictions:
        """Return the same rows with other probabilities, which are checked."""
        if self.top is None:
            values = validation.as_probabilities(probabilities, self.labels)
            return replace(self, probabilities=values)
        return checked_top(replace(self, probabilities=probabilities))

    def join_truth(
        self,
        truth: Predictions | ArrayLike | object,
        *,
        ids: Sequence[object] | Array | None = None,
        labels: Sequence[str] | None = None,
        coding: Coding | None = None,
    ) -> Predictions:
        """Return the same predictions with the truth of another table, matched by id and label.

        Args:
            truth: ``Predictions`` with targets, or a target matrix. Rows and labels that it lacks
                become unknown.
            ids, labels: those of the matrix; by default those of these predictions.
            coding: how to read a matrix of only −1 and +1.
        """
        self.check_dense("`join_truth`")
        if isinstance(truth, Predictions):
            truth.check_dense("`join_truth`")
            if truth.targets is None:
                raise InputError("`truth` must have targets; got predictions without any.")
            matrix, ids, names = truth.targets, truth.ids, truth.labels
        else:
            names = self.labels if labels is None else validation.as_labels(labels)
            matrix = validation.as_targets(truth, names, decoded=partial(decode, coding=coding))
        columns = positions(names, self.labels)
        given = self.ids if ids is None else validation.as_ids(ids, len(matrix))
        if len(given) != len(matrix):
            raise InputError(f"`truth` must have one row per id, {len(given)}; got {len(matrix)}.")
        row_of = {name: row for row, name in enumerate(given.tolist())}
        source = np.array([row_of.get(name, -1) for name in self.ids.tolist()], dtype=np.intp)
        if len(self) and (source < 0).all():
            raise InputError(
                f"no id of the truth is one of the predictions';"
                f" it has {given[:1].tolist()}, "
                f"the predictions {self.ids[:1].tolist()}. Use the same ids in both."
            )
        targets = np.full(self.probabilities.shape, UNKNOWN, dtype=matrix.dtype)
        found = np.flatnonzero(source >= 0)
        targets[found[:, None], columns] = matrix[source[found]]
        return replace(self, targets=targets)

    @classmethod
    def concat(cls, parts: Sequence[Predictions]) -> Predictions:
        """Return the rows of several tables in order; labels must agree and ids must differ.

        Truth that a table lacks becomes unknown. Scores are kept if every table has them. The
        metadata is that of the first table.
        """
        if not parts:
            raise InputError("`parts` must hold at least one table; got none.")
        first = parts[0]
        for number, part in enumerate(parts):
            if set(part.labels) != set(first.labels):
                raise InputError(label_mismatch(f"part {number}", part.labels, first.labels))
        aligned = [part.reordered(first.labels) for part in parts]
        ids = np.concatenate([part.ids for part in aligned])
        validation.check_unique(ids)
        if len({part.top is None for part in parts}) > 1:
            raise InputError(
                "`parts` must all have a column per label, or all hold the most probable labels of "
                "each row; these differ."
            )
        known = any(part.targets is not None for part in aligned)
        scored = all(part.scores is not None for part in aligned)
        many = first.top is not None
        return replace(
            first,
            probabilities=_below([part.probabilities for part in aligned]),
            ids=ids,
            targets=_below([_targets_or_unknown(part) for part in aligned], -1) if known else None,
            scores=_below([part.scores for part in aligned]) if scored else None,
            top=_below([part.top for part in aligned], NOTHING) if many else None,
            all_targets=_sparse_below(aligned) if many and known else None,
        )

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Predictions):
            return NotImplemented
        pairs = (
            (self.probabilities, other.probabilities),
            (self.ids, other.ids),
            (self.targets, other.targets),
            (self.scores, other.scores),
            (self.top, other.top),
            *(
                (getattr(self.all_targets, name, None), getattr(other.all_targets, name, None))
                for name in ("offsets", "indices", "values", "known")
            ),
        )
        return (
            self.labels == other.labels
            and self.metadata == other.metadata
            and all(_same(one, two) for one, two in pairs)
        )

    __hash__ = None  # pyright: ignore[reportAssignmentType]

    # Conversion ------------------------------------------------------------------------------

    def to_arrow(self) -> pa.Table:
        """Return an Arrow table with the columns of the file: ``id``, ``p:…``, ``s:…``, ``y:…``."""
        return file_schema.to_arrow(file_schema.arrow_schema(self), self)

    def to_pandas(self) -> pd.DataFrame:
        """Return a data frame with the columns of the file; ``id`` is the index.

        Unknown truth is NaN.
        """
        return self.to_arrow().to_pandas().set_index("id")

    def _repr_html_(self) -> str:
        """Return the verdict with its charts and the first rows, for notebooks."""
        first = self[:ROWS]
        columns = ["id", *(self.labels if self.top is None else range(1, self.top.shape[1] + 1))]
        rows = []
        for row, (name, values) in enumerate(zip(first.ids, first.probabilities, strict=True)):
            cells = _marked(values, None if first.targets is None else first.targets[row])
            if first.top is not None:
                names = [self.labels[label] if label >= 0 else "" for label in first.top[row]]
                cells = [f"{name} {cell}" for name, cell in zip(names, cells, strict=False)]
            rows.append([name, *cells])
        note = "" if self.targets is None else "✓ present, ? unknown, by the truth."
        table = html_table(repr(self), columns, rows, note=note, total=len(self))
        return table if self.top is not None or not len(self) else draw("predictions", self, table)

    def __repr__(self) -> str:
        known = [name for name in ("targets", "scores") if getattr(self, name) is not None]
        extra = f", with {' and '.join(known)}" if known else ""
        if self.top is not None:
            return (
                f"Predictions({len(self):,} rows, the {self.top.shape[1]} most probable of "
                f"{self.num_labels:,} labels{extra})"
            )
        return f"Predictions({len(self)} rows × {self.num_labels} labels{extra})"


def row_index(rows: Rows) -> slice | Array:
    """Return ``rows`` as a numpy index: a slice, indices or a mask."""
    if isinstance(rows, slice):
        return rows
    if isinstance(rows, (int, np.integer)):
        raise InputError(f"rows must be a slice, indices or a mask; got {rows!r}. Use [{rows}].")
    chosen = to_numpy(rows)
    return chosen if chosen.size else chosen.astype(np.intp)  # numpy reads [] as floats


def positions(labels: Sequence[str], known: Sequence[str]) -> list[int]:
    """Return the index in ``known`` of each of ``labels``."""
    place = {name: position for position, name in enumerate(known)}
    for name in labels:
        if name not in place:
            raise InputError(f"no label {name!r} in the predictions. {nearest(str(name), known)}")
    return [place[name] for name in labels]


def label_mismatch(what: str, labels: Sequence[str], expected: Sequence[str]) -> str:
    """Return a message with the first few labels in which two tables differ."""
    missing = [name for name in expected if name not in set(labels)][:3]
    extra = [name for name in labels if name not in set(expected)][:3]
    parts = [f"lacks {missing}"] if missing else []
    parts += [f"has {extra} besides"] if extra else []
    return f"labels must agree; {what} {' and '.join(parts)}. Use `select` on the labels you want."


def _marked(values: Array, truth: Array | None) -> list[str]:
    """Return probabilities as text, with a mark if the label is present or unknown."""
    columns = values[: COLUMNS + 1]
    if truth is None:
        return [f"{value:.3f}" for value in columns]
    marks = ["✓" if y >= 0.5 else "?" if y < 0 else "" for y in truth[: COLUMNS + 1]]
    return [f"{value:.3f} {mark}".strip() for value, mark in zip(columns, marks, strict=True)]


def _targets_or_unknown(part: Predictions) -> Array:
    if part.targets is not None:
        return part.targets
    return np.full(part.probabilities.shape, UNKNOWN, dtype=np.int8)


def _below(parts: Sequence[Any], fill: float = 0) -> Array:
    """Return the rows of all parts; rows with fewer entries are padded."""
    width = max(part.shape[1] for part in parts)
    return np.concatenate(
        [
            part
            if part.shape[1] == width
            else np.pad(part, ((0, 0), (0, width - part.shape[1])), constant_values=fill)
            for part in parts
        ]
    )


def _sparse_below(parts: Sequence[Predictions]) -> SparseTargets:
    count = parts[0].num_labels
    each = [
        SparseTargets.unknown(len(part), count) if part.all_targets is None else part.all_targets
        for part in parts
    ]
    sizes = np.concatenate([np.diff(targets.offsets) for targets in each])
    soft = any(targets.values is not None for targets in each)
    return SparseTargets(
        np.concatenate([[0], np.cumsum(sizes)]),
        np.concatenate([targets.indices for targets in each]),
        count,
        np.concatenate([targets.entry_values() for targets in each]) if soft else None,
        np.concatenate([np.ones(len(t), bool) if t.known is None else t.known for t in each]),
    )


def needs_columns(subject: str, num_labels: int, purpose: str) -> str:
    """Return the error message for work that needs one column per label."""
    return (
        f"{purpose} needs one column per label; {subject} the most probable labels of each row, of "
        f"{num_labels:,}. Select the labels you need: `Predictions.read(path, labels=[…])`."
    )


# Rows with their most probable labels ----------------------------------------------------------


def checked_top(rows: Predictions, where: str = "") -> Predictions:
    """Return rows with their most probable labels, checked, sorted, and with their targets.

    The names of the labels, which can be a million, are not checked again for every batch.
    """
    assert rows.top is not None
    _check_top(rows, rows.top, where)
    indices, raw = rows.top.astype(np.int32), rows.scores
    values = np.where(indices >= 0, rows.probabilities, np.float32(0))
    if not (np.diff(values, axis=1) <= 0).all():
        order = np.argsort(-values, axis=1, kind="stable")
        indices, values = (np.take_along_axis(each, order, 1) for each in (indices, values))
        raw = None if raw is None else np.take_along_axis(raw, order, 1)
    found = None
    if rows.all_targets is not None:
        at = rows.all_targets.at(np.maximum(indices, 0))
        found = _smallest(np.where(indices >= 0, at, np.float32(UNKNOWN)))
    return replace(rows, probabilities=values, targets=found, scores=raw, top=indices)


def _smallest(targets: Array) -> Array:
    """Return targets as int8 unless some are soft."""
    whole = targets.astype(np.int8)
    return whole if np.array_equal(whole, targets) else targets


def _check_top(rows: Predictions, indices: Array, where: str) -> None:
    values, num_labels, targets = rows.probabilities, rows.num_labels, rows.all_targets
    if indices.ndim != 2 or indices.dtype.kind not in "iu" or not indices.size:
        raise InputError(
            f"{where}`top` must hold label indices of shape (rows, k); got {indices.dtype} of "
            f"shape {indices.shape}."
        )
    for name, other in (("probabilities", values), ("scores", rows.scores)):
        if other is not None and other.shape != indices.shape:
            raise InputError(
                f"{where}`{name}` must have the shape of `top`, {indices.shape}; got {other.shape}."
            )
    outside = (indices < NOTHING) | (indices >= num_labels)
    if outside.any():
        row, entry = (int(i) for i in np.argwhere(outside)[0])
        raise InputError(
            f"{where}label indices must lie in [0, {num_labels - 1}]; got {indices[row, entry]} in "
            f"row {row}."
        )
    ordered = np.sort(indices, axis=1)
    twice = ((np.diff(ordered, axis=1) == 0) & (ordered[:, 1:] >= 0)).any(axis=1)
    if twice.any():
        raise InputError(
            f"{where}a row must hold each label once; row {int(twice.argmax())} holds one twice."
        )
    bad = ~((values >= 0) & (values <= 1)) & (indices >= 0)
    if bad.any():
        row, entry = (int(i) for i in np.argwhere(bad)[0])
        raise InputError(
            f"{where}probabilities must lie in [0, 1]; got {values[row, entry]:.6g} in row {row}. "
            "If these are scores, map them by the link of their loss first."
        )
    if targets is not None and targets.shape != (len(indices), num_labels):
        raise InputError(
            f"{where}`targets` must have shape {(len(indices), num_labels)}; got {targets.shape}."
        )


def _same(one: Array | None, two: Array | None) -> bool:
    if one is None or two is None:
        return one is two
    return one.dtype == two.dtype and np.array_equal(one, two)
