"""The predictions table in memory (``Predictions``) and in files (``Dataset``).

A table has one column per label. With very many labels, it stores only the most probable labels of
each row; ``top`` then contains the label index of each entry.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from credibly import __version__
from credibly.arrays import aligned, in_order, to_numpy
from credibly.checks import InputError, choice, fits_memory, whole_number
from credibly.metrics.summaries import Summary
from credibly.metrics.top_labels import HeldLabels
from credibly.notebook import COLUMNS, ROWS, draw, html_table
from credibly.predictions import file_schema, validation
from credibly.predictions.dataset import (
    ROW_CELLS,
    DatasetFiles,
    Rows,
    joined,
    needs_columns,
    present,
    row_index,
)
from credibly.predictions.shard import Piece, Selection, Shard, rows_at_once
from credibly.predictions.validation import (
    NOTHING,
    Batch,
    as_top,
    label_mismatch,
    positions,
    smallest,
)
from credibly.predictions.writer import Writer
from credibly.targets import Coding, SparseTargets, Targets, decode
from credibly.types import Array, ArrayLike, FilePath, JsonObject

if TYPE_CHECKING:
    import pandas as pd

    from credibly.losses import Loss
    from credibly.predictions.foreign_files import Layout
    from credibly.predictions.importing import Values


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
        return Dataset(path, partial=partial).read(labels=labels, rows=rows)

    def write(self, path: FilePath) -> None:
        """Write one Parquet file; ``path`` holds either its old content or all of the new one."""
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
            raise needs_columns("the predictions hold", self.num_labels, purpose)

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
            for label, value, known in np.stack(row, axis=1)[: COLUMNS + 1]:
                mark = " ✓" if known >= 0.5 else " ?" if known < 0 else ""
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


def _of_batch(
    batch: Batch, labels: list[str], metadata: JsonObject | None = None, *, soft: bool = False
) -> Predictions:
    """Return ids and values as predictions; with ``soft``, truth is float32 in every batch."""
    _, ids, probabilities, scores, targets, top, all_targets = batch
    if targets is not None and soft:
        targets = targets.astype(np.float32, copy=False)
    return Predictions(
        present(probabilities),
        labels,
        present(ids),
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


class Dataset(DatasetFiles):
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
        table = joined(parts)
        validation.check_unique(table.ids, f"{self.path}: ")
        return table

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

    @property
    def piece_reader(self) -> PieceReader:
        """Return an object that reads a piece on another machine without opening other files."""
        limits = self.batch_rows, self.labels_at_once
        return PieceReader(self.labels, self._kinds(), *limits, self.soft, self.top)

    def summary(self, bins: int, *, ranks: bool = False) -> Summary | HeldLabels:
        """Return the accumulator whose updates are the ``Predictions.measured`` of the rows.

        Args:
            bins: the number of bins of the calibration errors.
            ranks: whether to keep the exact ranking in memory.
        """
        if self.top:
            return HeldLabels(bins)
        return Summary(len(self.labels), bins, zero=not self.soft, ranks=ranks)


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
