"""The predictions table in memory (``Predictions``) and in files (``Dataset``).

A table has one column per label. With very many labels, it stores only the most probable labels of
each row; ``top`` then contains the label index of each entry.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import pyarrow as pa

from credibly import __version__
from credibly.arrays import aligned, in_order, to_numpy
from credibly.checks import InputError, choice, fits_memory, nearest, whole_number
from credibly.metrics.summaries import Summary
from credibly.metrics.top_labels import HeldLabels
from credibly.notebook import COLUMNS, ROWS, draw, html_table
from credibly.predictions import file_schema, validation
from credibly.predictions.file_schema import ID, PROBABILITY, SCORE, TRUTH
from credibly.predictions.shard import (
    BATCH_ROWS,
    IDS,
    LABELS_AT_ONCE,
    Piece,
    Selection,
    Shard,
    check_complete,
    parquet_files,
    pieces_of,
    place_of,
    rows_at_once,
)
from credibly.predictions.validation import (
    NOTHING,
    Batch,
    as_top,
    id_hashes,
    label_mismatch,
    positions,
    smallest,
)
from credibly.predictions.writer import RowWriter
from credibly.targets import UNKNOWN, Coding, SparseTargets, Targets, decode
from credibly.types import Array, ArrayLike, FilePath, JsonObject

if TYPE_CHECKING:
    import pandas as pd

    from credibly.losses import Loss
    from credibly.predictions.foreign_files import Layout
    from credibly.predictions.importing import Values


Rows = slice | Sequence[int] | Array
ROW_CELLS = 64
"""About as many probabilities as a row stores of its most probable labels."""
What = Literal["probabilities", "scores"]
_KINDS = {"probabilities": PROBABILITY, "scores": SCORE}


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
    metadata: JsonObject = field(default_factory=dict)
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
            if targets is not None and not isinstance(targets, SparseTargets):
                dense = validation.as_targets(targets, names, where, decoded=decoded)
                targets = SparseTargets.from_dense(dense)
            given = Batch(
                ids=validation.as_ids(ids, len(to_numpy(top)), where),
                probabilities=to_numpy(probabilities).astype(np.float32),
                scores=None if scores is None else to_numpy(scores).astype(np.float32),
                top=to_numpy(top),
                all_targets=targets,
            )
            return _of_batch(as_top(given, len(names), where), names, about)
        if isinstance(targets, SparseTargets):
            targets = Targets(targets.dense())
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
        path: FilePath,
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
    def scan(cls, path: FilePath, *, partial: bool = False, **limits: int) -> Dataset:
        """Open a dataset without reading rows: labels, number of rows, metadata, and batches.

        ``limits`` are the options of ``Dataset``.
        """
        return Dataset(path, partial=partial, **limits)

    def write(self, path: FilePath) -> None:
        """Write one Parquet file; ``path`` holds either its old content or all of the new one."""
        with RowWriter(path, self.labels, metadata=self.metadata) as writer:
            writer.append_rows(self)

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
        from credibly.predictions.importing import declared_arrays, read_values, with_truth

        choice("values", values, ("logits", "probabilities"))
        layout = layout or Layout()
        table = read_values(source, values, layout, ids=ids, apart=truth is not None)
        table = with_truth(table, truth, layout)
        return cls.from_arrays(**declared_arrays(table, values, loss, certain=certain))

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

    def ranked(self) -> tuple[Array, Array]:
        """Return the values that rank rows (scores if available, else probabilities) and truth."""
        assert self.targets is not None
        return self.probabilities if self.scores is None else self.scores, self.targets

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
        rows = Batch(0, self.ids, changed, self.scores, None, self.top, self.all_targets)
        return _of_batch(as_top(rows, self.num_labels), self.labels)

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
            raise InputError(_needs_columns("the predictions hold", self.num_labels, purpose))

    def __getitem__(self, rows: Rows) -> Predictions:
        """Return some rows: a slice, indices or a bool mask."""
        chosen = _row_index(rows)
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
        columns, names = positions(labels, self.labels), validation.as_labels(labels)
        if self.top is None:
            return replace(
                self,
                labels=names,
                probabilities=self.probabilities[:, columns],
                targets=None if self.targets is None else self.targets[:, columns],
                scores=None if self.scores is None else self.scores[:, columns],
            )
        column_of = np.full(self.num_labels + 1, -1)  # the last index is for padding
        column_of[columns] = np.arange(len(columns))
        column = column_of[self.top]
        rows, entries = np.nonzero(column >= 0)
        values = np.zeros((len(self), len(columns)), np.float32)
        values[rows, column[rows, entries]] = self.probabilities[rows, entries]
        targets = None
        if self.all_targets is not None:
            targets = smallest(self.all_targets.at(np.broadcast_to(columns, values.shape)))
        return Predictions(values, names, self.ids, targets, None, self.metadata)

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
            targets=_below([part._known_targets() for part in aligned], -1) if known else None,
            scores=_below([part.scores for part in aligned]) if scored else None,
            top=_below([part.top for part in aligned], NOTHING) if many else None,
            all_targets=_sparse_below(aligned) if many and known else None,
        )

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Predictions):
            return NotImplemented
        return (
            self.labels == other.labels
            and self.metadata == other.metadata
            and all(map(_same, self._arrays(), other._arrays()))
        )

    def _arrays(self) -> list[Array | None]:
        sparse = ("offsets", "indices", "values", "known")
        truth = [getattr(self.all_targets, name, None) for name in sparse]
        return [self.probabilities, self.ids, self.targets, self.scores, self.top, *truth]

    def _known_targets(self) -> Array:
        """Return the targets; without any, all are unknown."""
        if self.targets is not None:
            return self.targets
        return np.full(self.probabilities.shape, UNKNOWN, dtype=np.int8)

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
        truth = np.zeros(first.probabilities.shape) if first.targets is None else first.targets
        rows = []
        for name, *row in zip(
            first.ids, first.label_indices, first.probabilities, truth, strict=True
        ):
            cells = []
            for label, value, present in np.stack(row, axis=1)[: COLUMNS + 1]:
                mark = " ✓" if present >= 0.5 else " ?" if present < 0 else ""
                held = "" if label < 0 or self.top is None else self.labels[int(label)]
                cells.append(f"{held} {value:.3f}{mark}".strip())
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


def _row_index(rows: Rows) -> slice | Array:
    """Return ``rows`` as a numpy index: a slice, indices or a mask."""
    if isinstance(rows, slice):
        return rows
    if isinstance(rows, (int, np.integer)):
        raise InputError(f"rows must be a slice, indices or a mask; got {rows!r}. Use [{rows}].")
    chosen = to_numpy(rows)
    return chosen if chosen.size else chosen.astype(np.intp)  # numpy reads [] as floats


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


def _needs_columns(subject: str, num_labels: int, purpose: str) -> str:
    """Return the error message for work that needs one column per label."""
    return (
        f"{purpose} needs one column per label; {subject} the most probable labels of each row, of "
        f"{num_labels:,}. Select the labels you need: `Predictions.read(path, labels=[…])`."
    )


def _of_batch(
    batch: Batch, labels: list[str], metadata: JsonObject | None = None, *, soft: bool = False
) -> Predictions:
    """Return ids and values as predictions; with ``soft``, truth is float32 in every batch."""
    _, ids, probabilities, scores, targets, top, all_targets = batch
    if targets is not None and soft:
        targets = targets.astype(np.float32, copy=False)
    return Predictions(
        _present(probabilities),
        labels,
        _present(ids),
        targets,
        scores,
        metadata or {},
        top,
        all_targets,
    )


def _same(one: Array | None, two: Array | None) -> bool:
    if one is None or two is None:
        return one is two
    return one.dtype == two.dtype and np.array_equal(one, two)


# Files -----------------------------------------------------------------------------------------

_CHECKED: dict[object, None] = {}
"""Files whose ids were compared in this process, the latest last."""
_MAX_CHECKED = 64


class Dataset:
    """A predictions file, or a folder of them (shards of one dataset), read in batches.

    Opening a dataset reads only footers and checks columns, types and versions. Reading checks
    every value that it returns.

    Args:
        path: a Parquet file, or a folder of Parquet files.
        partial: whether a folder may lack shards; by default that is an error.
        batch_rows: the limit on rows to read at a time; it is lower if rows have many labels.
        labels_at_once: the number of label columns to read at a time from a file with very many.

    Attributes:
        path, files: the given path, and its Parquet files in order of their names.
        shards: one ``Shard`` per file: its path, its schema and its number of rows.
        labels, metadata: as in ``Predictions``; those of the first file.
        num_rows: rows of all files together.
        has_targets: whether at least one file has the truth; in other files it is unknown.
        has_scores: whether all files have scores.
        soft: whether the truth may lie between 0 and 1.
        top: whether the files store only the most probable labels of each row, the layout for very
            many labels. Its ``Predictions`` have a ``top``.

    Example:
        >>> import tempfile, pathlib
        >>> path = pathlib.Path(tempfile.mkdtemp()) / "predictions.parquet"
        >>> Predictions.from_arrays(probabilities=[[0.9, 0.1]], labels=["dog", "cat"]).write(path)
        >>> dataset = Dataset(path)
        >>> dataset.num_rows, dataset.labels, dataset.has_targets
        (1, ['dog', 'cat'], False)
    """

    def __init__(
        self,
        path: FilePath,
        *,
        partial: bool = False,
        batch_rows: int = BATCH_ROWS,
        labels_at_once: int = LABELS_AT_ONCE,
    ) -> None:
        self.path = Path(path)
        self.batch_rows = whole_number("batch_rows", batch_rows, 1)
        self.labels_at_once = whole_number("labels_at_once", labels_at_once, 1)
        self.shards = [Shard(file) for file in parquet_files(self.path)]
        if self.path.is_dir():
            names = {shard.path.name: shard.schema.metadata for shard in self.shards}
            check_complete(self.path, names, partial=partial)
        self.files = [shard.path for shard in self.shards]
        first = self.shards[0].schema
        self.labels, self.metadata = first.labels, first.metadata
        self.top, expected = first.top, set(first.labels)
        for shard in self.shards:
            if set(shard.schema.labels) != expected:
                raise InputError(label_mismatch(str(shard.path), shard.schema.labels, first.labels))
            if shard.schema.top != first.top:
                raise InputError(
                    f"{self.path} must hold files of one layout, but {self.files[0].name} and "
                    f"{shard.path.name} differ: one has a column per label, the other lists the "
                    "most probable labels of each row. Put them into different folders."
                )
        self.num_rows = sum(shard.num_rows for shard in self.shards)
        self.has_targets = any(shard.schema.has_targets for shard in self.shards)
        self.has_scores = all(shard.schema.has_scores for shard in self.shards)
        self.soft = any(shard.schema.soft for shard in self.shards)
        if self.num_rows == 0:
            raise InputError(f"{self.path} must have at least one row; it is empty.")

    def read(self, labels: Sequence[str] | None = None, rows: Rows | None = None) -> Predictions:
        """Return all rows in memory, or the given labels and rows in the given order."""
        names, kinds = self.check_labels(labels), self._kinds()
        if self.top:
            table = self._read_top(labels)
            return table if rows is None else table[self._row_numbers(rows)]
        keep = back = None
        if rows is not None:
            ordered, back = np.unique(self._row_numbers(rows), return_inverse=True)
            keep = np.zeros(self.num_rows, dtype=bool)
            keep[ordered] = True
        found = self._gather(names, kinds, keep)
        table = _of_batch(found, names, self.metadata, soft=self.soft)
        if back is None:
            validation.check_unique(table.ids, f"{self.path}: ")
            return table
        return table if np.array_equal(back, np.arange(len(table))) else table[back]

    def _read_top(self, labels: Sequence[str] | None) -> Predictions:
        parts: list[Predictions] = []
        for part in self.batches(labels=labels):
            fits_memory(f"{self.path}", self.num_rows, part.probabilities.shape[1], itemsize=12)
            parts.append(part)
        try:
            return Predictions.concat(parts)
        except InputError as error:
            raise InputError(f"{self.path}: {error}") from error

    def batches(
        self, rows: int | None = None, labels: Sequence[str] | None = None
    ) -> Iterator[Predictions]:
        """Yield batches of at most ``rows`` rows, in order. Ids are not compared between batches.

        The default is ``batch_rows``, or fewer rows if a row has many labels: 32 MB of
        probabilities. Files with the most probable labels of each row yield these labels. With
        ``labels``, they yield one column per label.
        """
        names = self.check_labels(labels)
        rows = self.batch_rows if rows is None else whole_number("rows", rows, 1)
        reader = replace(self.piece_reader, rows=rows)
        reader = reader if self.top else reader.of_labels(names)
        for shard in self.shards:
            for batch in reader.read(shard):
                chosen = batch.select(names) if self.top and labels is not None else batch
                yield replace(chosen, metadata=self.metadata)

    def pieces(self, cells: int = 2**24) -> list[Piece]:
        """Return the dataset as pieces of a few row groups each, which workers read separately.

        Args:
            cells: approximate number of probabilities per piece, which has at least one row group.
        """
        files = [(shard.path, shard.group_rows) for shard in self.shards]
        return pieces_of(files, cells / self.row_cells)

    @property
    def piece_reader(self) -> PieceReader:
        """Return an object that reads a piece on another machine without opening other files."""
        limits = self.batch_rows, self.labels_at_once
        return PieceReader(self.labels, self._kinds(), *limits, self.soft, self.top)

    @property
    def every_label(self) -> bool:
        """Whether every row has a probability for every label."""
        return not self.top

    @property
    def row_cells(self) -> int:
        """Return the approximate number of probabilities per row."""
        return ROW_CELLS if self.top else len(self.labels)

    def summary(self, bins: int, *, ranks: bool = False) -> Summary | HeldLabels:
        """Return the accumulator whose updates are the ``Predictions.measured`` of the rows.

        Args:
            bins: the number of bins of the calibration errors.
            ranks: whether to keep the exact ranking in memory.
        """
        if self.top:
            return HeldLabels(bins)
        return Summary(len(self.labels), bins, zero=not self.soft, ranks=ranks)

    @property
    def ids_compared(self) -> bool:
        """Whether the writers of all files compared all ids with each other."""
        if not all(each.ids_checked and not each.ids_may_be_missing() for each in self.shards):
            return False
        metadata = [(shard.path.name, shard.schema.metadata) for shard in self.shards]
        origins = [about.get("origin") for _, about in metadata]
        placed = all(place_of(*each) is not None for each in metadata)
        together = placed and origins[0] is not None and all(x == origins[0] for x in origins)
        return together or len(self.shards) == 1

    def check_dense(self, purpose: str) -> None:
        """Raise unless there is one column per label; the error says that ``purpose`` needs it."""
        if self.top:
            raise InputError(_needs_columns(f"{self.path} holds", len(self.labels), purpose))

    def columns(
        self, labels: Sequence[str], what: What = "probabilities", *, label_major: bool = False
    ) -> tuple[Array, Array | None]:
        """Return values and targets of some labels over all rows, each (rows, labels).

        Ids are not read.

        Args:
            labels: names of the labels to read.
            what: ``"probabilities"`` or ``"scores"``.
            label_major: whether to store the values of each label contiguously.
        """
        kind = _KINDS[what]
        if kind not in self._kinds():
            raise InputError(f"{self.path} has no scores; read its probabilities.")
        if self.top and kind == PROBABILITY:
            table = self.read(labels)
            return table.probabilities, table.targets
        kinds = [kind, TRUTH] if self.has_targets else [kind]
        batch = self._gather(self.check_labels(labels), kinds, order="F" if label_major else "C")
        return _present(getattr(batch, what)), batch.targets

    def column_batches(
        self, label: str, what: What = "probabilities"
    ) -> Iterator[tuple[Array, Array]]:
        """Yield values and targets of one label in batches, each (rows,).

        In files without truth, all targets are −1 (unknown).
        """
        wanted = Selection(self.check_labels([label]), [_KINDS[what], TRUTH], self.batch_rows)
        for batch in self._batches(wanted):
            yield _present(getattr(batch, what))[:, 0], _present(batch.targets)[:, 0]

    def column(self, label: str, what: What = "probabilities") -> tuple[Array, Array | None]:
        """Return values and targets of one label over all rows, each (rows,)."""
        values, targets = self.columns([label], what)
        return values[:, 0], None if targets is None else targets[:, 0]

    def ids(self) -> Array:
        """Return all ids, in order."""
        return _present(self._gather([], [ID]).ids)

    def arrow_ids(self) -> pa.Array:
        """Return all ids, in order, as one Arrow array of strings."""
        return pa.concat_arrays([ids for shard in self.shards for ids in shard.id_batches()])

    def hashed_ids(self) -> Array:
        """Return a 64-bit hash per id, in order; equal ids have equal hashes in this process."""
        return np.concatenate([id_hashes(_present(batch.ids)) for batch in self._batches(IDS)])

    def check_ids(self, *, trust_writer: bool = False) -> None:
        """Raise if an id is missing or appears twice; uses eight bytes of memory per row.

        Args:
            trust_writer: whether to skip ids that are known to be distinct. ``Writer`` compares the
                ids of each file and stores their number. Shards of one prediction come from rows
                with distinct ids. A file that was checked in this process counts as checked until
                it changes.
        """
        fingerprint = tuple((str(shard.path), shard.identity) for shard in self.shards)
        if trust_writer and (self.ids_compared or fingerprint in _CHECKED):
            return
        hashes = self.hashed_ids()
        hashes.sort()
        if (hashes[1:] == hashes[:-1]).any():  # equal ids, or (very rarely) only equal hashes
            validation.check_unique(self.ids(), f"{self.path}: ")
        _CHECKED[fingerprint] = None
        while len(_CHECKED) > _MAX_CHECKED:
            del _CHECKED[next(iter(_CHECKED))]

    def check_labels(self, labels: Sequence[str] | None) -> list[str]:
        """Return ``labels``, or all labels if None; each must be a label of this dataset."""
        known = set(self.labels)
        for name in labels or []:
            if name not in known:
                raise InputError(f"{self.path} has no label {name!r}. {nearest(name, self.labels)}")
        return self.labels if labels is None else validation.as_labels(labels)

    def _kinds(self) -> list[str]:
        kinds = [ID, PROBABILITY]
        kinds += [SCORE] if self.has_scores else []
        return [*kinds, TRUTH] if self.has_targets else kinds

    def _row_numbers(self, rows: Rows) -> Array:
        try:
            numbers = np.arange(self.num_rows)[_row_index(rows)]
        except IndexError as error:
            raise InputError(f"{self.path} has {self.num_rows} rows; {error}.") from error
        if not len(numbers):
            raise InputError(f"`rows` must pick at least one row of {self.path}; got none.")
        return numbers

    def _batches(self, wanted: Selection, keep: Array | None = None) -> Iterator[Batch]:
        if any(kind != ID for kind in wanted.kinds):
            self.check_dense("reading values of all labels")
        wanted, first = replace(wanted, labels_at_once=self.labels_at_once), 0
        for shard in self.shards:
            mask = None if keep is None else keep[first : first + shard.num_rows]
            yield from shard.batches(wanted, mask)
            first += shard.num_rows

    def _gather(
        self,
        names: list[str],
        kinds: list[str],
        keep: Array | None = None,
        order: Literal["C", "F"] = "C",
    ) -> Batch:
        """Return all batches as one table, which is filled in place to avoid a second copy."""
        rows = self.num_rows if keep is None else int(keep.sum())
        fits_memory(f"{self.path}", rows, max(1, len(names)))
        arrays: dict[str, Array] = {}
        start = size = 0
        # In batches of a few MB, columns are transposed into rows within the cache.
        wanted = Selection(names, kinds, max(1024, 2**20 // max(1, len(names))))
        for batch in self._batches(wanted, keep):
            for name, values in batch.arrays().items():
                if name not in arrays:
                    kind = np.float32 if name == "targets" and self.soft else values.dtype
                    arrays[name] = np.empty((rows, *values.shape[1:]), dtype=kind, order=order)
                size = len(values)
                arrays[name][start : start + size] = values
            start += size
        if start != rows:
            raise InputError(f"{self.path} must hold {rows} rows, as it claims; it holds {start}.")
        return Batch()._replace(**arrays)


def _present(values: Array | None) -> Array:
    """Return ``values``, which cannot be None because the column was selected."""
    assert values is not None
    return values


@dataclass(frozen=True)
class PieceReader(Selection):
    """Read pieces of a dataset and check every value; small enough to send to a worker.

    Attributes:
        soft: whether the truth of the dataset may lie between 0 and 1.
        top: whether the files hold the most probable labels of each row.

    Example:
        >>> import tempfile
        >>> path = f"{tempfile.mkdtemp()}/predictions.parquet"
        >>> Predictions.from_arrays(probabilities=[[0.9, 0.1]], labels=["dog", "cat"]).write(path)
        >>> dataset = Dataset(path)
        >>> [len(batch) for _, batch in dataset.piece_reader.batches(dataset.pieces()[0])]
        [1]
    """

    soft: bool = False
    top: bool = False

    def of_labels(self, labels: Sequence[str]) -> PieceReader:
        """Return a reader of some of the labels."""
        return replace(self, labels=list(labels))

    def batches(self, piece: Piece) -> Iterator[tuple[int, Predictions]]:
        """Yield (index of the first row in the dataset, rows)."""
        first, groups = piece.first_row, range(piece.first_group, piece.last_group)
        for rows in self.read(piece.opened(), groups):
            yield first, rows
            first += len(rows)

    def read(self, shard: Shard, groups: range | None = None) -> Iterator[Predictions]:
        """Yield batches of a file, or of some of its row groups."""
        labels = shard.schema.labels if self.top else self.labels
        rows = rows_at_once(self.rows, ROW_CELLS if self.top else len(labels))
        for batch in shard.batches(replace(self, rows=rows), groups=groups):
            yield _of_batch(batch, labels, soft=self.soft).reordered(self.labels)


class Writer(RowWriter):
    """Write batches; the end of the ``with`` block completes the file, an exception discards it.

    The first batch decides whether the file has scores and truth.

    Args:
        path: the file to write.
        labels: names of the labels.
        metadata: any JSON values; they may be changed until the file is complete.
        soft: whether later batches may have soft truth if the first batch has none.
        row_group_rows: limit on rows per row group; it is lower if a row has many labels.

    Example:
        >>> import tempfile, pathlib
        >>> path = pathlib.Path(tempfile.mkdtemp()) / "predictions.parquet"
        >>> with Writer(path, ["dog", "cat"]) as writer:
        ...     writer.append(probabilities=[[0.9, 0.1]], ids=["a"])
        ...     writer.append(probabilities=[[0.2, 0.3]], ids=["b"])
        >>> Predictions.read(path)
        Predictions(2 rows × 2 labels)
    """

    def append(self, predictions: Predictions | None = None, **arrays: Any) -> None:
        """Add rows: a ``Predictions``, or the arrays that ``Predictions.from_arrays`` takes.

        All rows of a file have one layout: a column per label, or the most probable labels.
        """
        if predictions is None:
            predictions = Predictions.from_arrays(labels=self.labels, **arrays)
            if arrays.get("ids") is None:
                numbers = [str(self.num_rows + row) for row in range(len(predictions))]
                predictions.ids[:] = numbers
        self.append_rows(predictions)
