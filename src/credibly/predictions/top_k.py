"""The most probable labels of each row: the layout for very many labels.

id    string, no two alike
top   list of int32: numbers of the labels, most probable first
p     list of float32: their probabilities
s     list of float32: their scores (optional)
y     list of int32: numbers of the labels that are present; null where unknown (optional)
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from credibly import __version__
from credibly.arrays import to_numpy
from credibly.checks import InputError
from credibly.predictions import validation
from credibly.predictions.arrow import id_array
from credibly.targets import SparseTargets
from credibly.types import Array, ArrayLike

if TYPE_CHECKING:
    import pyarrow as pa

LAYOUT = "top"
TOP, TOP_PROBABILITY, TOP_SCORE, TOP_TRUTH = "top", "p", "s", "y"
NOTHING = -1
"""The label number that fills up rows which hold fewer labels than others."""


@dataclass(frozen=True, eq=False, repr=False)
class TopPredictions:
    """The k most probable labels of each row; what is not among them is less probable.

    For very many labels, where a probability per label and row would not fit. Made by
    ``from_arrays``; ``write`` and ``Dataset.top_batches`` are its file.

    Attributes:
        top: (rows, k) int32 label numbers, most probable first; −1 where a row holds fewer.
        probabilities: (rows, k) float32 in [0, 1]; 0 where ``top`` is −1.
        labels: names of all labels.
        ids: (rows,) array of str.
        targets: the labels that are present, or None.
        scores: (rows, k) float32, or None.
        metadata: anything JSON holds.

    Example:
        >>> names = [f"label-{i}" for i in range(1000)]
        >>> rows = TopPredictions.from_arrays(
        ...     top=[[7, 3], [999, 0]], probabilities=[[0.9, 0.2], [0.5, 0.4]], labels=names,
        ...     targets=SparseTargets.from_lists([[7], []], 1000))
        >>> rows
        TopPredictions(2 rows, the 2 most probable of 1,000 labels, with targets)
        >>> rows.hits()
        array([[1., 0.],
               [0., 0.]], dtype=float32)
    """

    top: Array
    probabilities: Array
    labels: list[str]
    ids: Array
    targets: SparseTargets | None = None
    scores: Array | None = None
    metadata: dict[str, Any] = field(default_factory=dict)

    @classmethod
    def from_arrays(
        cls,
        *,
        top: ArrayLike | object,
        probabilities: ArrayLike | object,
        labels: Sequence[str],
        targets: SparseTargets | None = None,
        ids: Sequence[object] | Array | None = None,
        scores: ArrayLike | object = None,
        metadata: Mapping[str, object] | None = None,
        where: str = "",
    ) -> TopPredictions:
        """Return checked predictions; places of each row are sorted by probability.

        Args:
            top: (rows, k) label numbers; −1 where a row holds fewer.
            probabilities: (rows, k) in [0, 1].
            labels: names of all labels.
            targets: of the same rows and labels.
            ids: one per row, all different; the row numbers if not given.
            scores: (rows, k).
            metadata: anything JSON can hold.
            where: goes in front of error messages: a file name.

        Raises:
            InputError: if shapes disagree, a label number is out of range or twice in a row, or a
                value is out of range.
        """
        return cls._of_checked_labels(
            validation.as_labels(labels, where),
            top=top,
            probabilities=probabilities,
            targets=targets,
            ids=ids,
            scores=scores,
            metadata={"created_by": f"credibly {__version__}", **(metadata or {})},
            where=where,
        )

    @classmethod
    def _of_checked_labels(
        cls,
        labels: list[str],
        *,
        top: ArrayLike | object,
        probabilities: ArrayLike | object,
        targets: SparseTargets | None,
        ids: Sequence[object] | Array | None,
        scores: ArrayLike | object,
        metadata: dict[str, Any],
        where: str = "",
    ) -> TopPredictions:
        """Return checked predictions; a million labels are not checked again for every batch."""
        numbers = to_numpy(top)
        values = to_numpy(probabilities).astype(np.float32)
        raw = None if scores is None else to_numpy(scores).astype(np.float32)
        _check_arrays(numbers, values, raw, targets, len(labels), where)
        numbers = numbers.astype(np.int32)
        values = np.where(numbers >= 0, values, np.float32(0))
        if not (np.diff(values, axis=1) <= 0).all():
            order = np.argsort(-values, axis=1, kind="stable")
            numbers, values = (np.take_along_axis(each, order, 1) for each in (numbers, values))
            raw = None if raw is None else np.take_along_axis(raw, order, 1)
        row_ids = validation.as_ids(ids, len(numbers), where)
        return cls(numbers, values, labels, row_ids, targets, raw, metadata)

    def __len__(self) -> int:
        return len(self.top)

    @property
    def k(self) -> int:
        """Return how many labels a row holds at most."""
        return self.top.shape[1]

    def hits(self) -> Array:
        """Return (rows, k): 1 where the label is present, 0 where absent, −1 where unknown."""
        if self.targets is None:
            raise InputError("the predictions must have targets to be compared with; got none.")
        held = self.top >= 0
        found = self.targets.at(np.maximum(self.top, 0))
        return np.where(held, found, np.float32(NOTHING))

    def with_probabilities(self, probabilities: Array) -> TopPredictions:
        """Return the same rows with other probabilities, sorted by them."""
        return TopPredictions._of_checked_labels(
            self.labels,
            top=self.top,
            probabilities=probabilities,
            targets=self.targets,
            ids=self.ids,
            scores=self.scores,
            metadata=self.metadata,
        )

    def with_metadata(self, metadata: Mapping[str, object]) -> TopPredictions:
        """Return the same rows with other metadata."""
        return replace(self, metadata=dict(metadata))

    def column(self, label: int) -> Array:
        """Return the probability of one label in each row; 0 where it is not held."""
        held = self.top == label
        return np.where(held, self.probabilities, np.float32(0)).max(axis=1, initial=0)

    def write(self, path: str | os.PathLike[str]) -> None:
        """Write one Parquet file; ``path`` holds its old content or all of the new one."""
        from credibly.predictions.writer import Writer

        with Writer(path, self.labels, metadata=self.metadata) as writer:
            writer.append(self)

    def __repr__(self) -> str:
        truth = "" if self.targets is None else ", with targets"
        return (
            f"TopPredictions({len(self):,} rows, the {self.k} most probable of "
            f"{len(self.labels):,} labels{truth})"
        )


def joined(parts: Sequence[TopPredictions]) -> TopPredictions:
    """Return rows of the same labels below each other; parts without truth are unknown."""
    width, first = max(part.k for part in parts), parts[0]
    truth = any(part.targets is not None for part in parts)
    scores = all(part.scores is not None for part in parts)

    def stacked(arrays: Sequence[Array | None], fill: float) -> Array:
        padded = [
            np.pad(each, ((0, 0), (0, width - each.shape[1])), constant_values=fill)
            for each in arrays
            if each is not None
        ]
        return np.concatenate(padded)

    return TopPredictions(
        stacked([part.top for part in parts], NOTHING),
        stacked([part.probabilities for part in parts], 0),
        first.labels,
        np.concatenate([part.ids for part in parts]),
        _joined_targets(parts) if truth else None,
        stacked([part.scores for part in parts], 0) if scores else None,
        first.metadata,
    )


def _joined_targets(parts: Sequence[TopPredictions]) -> SparseTargets:
    num_labels = len(parts[0].labels)
    each = [
        SparseTargets.unknown(len(part), num_labels) if part.targets is None else part.targets
        for part in parts
    ]
    sizes = np.concatenate([np.diff(targets.offsets) for targets in each])
    known = np.concatenate([_known_rows(targets) for targets in each])
    return SparseTargets(
        np.concatenate([[0], np.cumsum(sizes)]),
        np.concatenate([targets.indices for targets in each]),
        num_labels,
        known=None if known.all() else known,
    )


def _known_rows(targets: SparseTargets) -> Array:
    return np.ones(len(targets), dtype=bool) if targets.known is None else targets.known


def _check_arrays(
    numbers: Array,
    values: Array,
    scores: Array | None,
    targets: SparseTargets | None,
    num_labels: int,
    where: str,
) -> None:
    if numbers.ndim != 2 or numbers.dtype.kind not in "iu" or not numbers.size:
        raise InputError(
            f"{where}`top` must hold label numbers of shape (rows, k); got {numbers.dtype} of "
            f"shape {numbers.shape}."
        )
    for name, other in (("probabilities", values), ("scores", scores)):
        if other is not None and other.shape != numbers.shape:
            raise InputError(
                f"{where}`{name}` must have the shape of `top`, {numbers.shape}; got {other.shape}."
            )
    outside = (numbers < NOTHING) | (numbers >= num_labels)
    if outside.any():
        row, place = (int(i) for i in np.argwhere(outside)[0])
        raise InputError(
            f"{where}label numbers must lie in [0, {num_labels - 1}]; got {numbers[row, place]} in "
            f"row {row}."
        )
    ordered = np.sort(numbers, axis=1)
    twice = ((np.diff(ordered, axis=1) == 0) & (ordered[:, 1:] >= 0)).any(axis=1)
    if twice.any():
        raise InputError(
            f"{where}a row must hold each label once; row {int(twice.argmax())} holds one twice."
        )
    bad = ~((values >= 0) & (values <= 1)) & (numbers >= 0)
    if bad.any():
        row, place = (int(i) for i in np.argwhere(bad)[0])
        raise InputError(
            f"{where}probabilities must lie in [0, 1]; got {values[row, place]:.6g} in row {row}. "
            "If these are scores, map them by the link of their loss first."
        )
    if targets is not None and targets.shape != (len(numbers), num_labels):
        raise InputError(
            f"{where}`targets` must have shape {(len(numbers), num_labels)}; got {targets.shape}."
        )


# Arrow ----------------------------------------------------------------------------------------


def arrow_schema(*, scores: bool, targets: bool) -> pa.Schema:
    """Return the Arrow schema to write."""
    import pyarrow as pa

    numbers, values = pa.list_(pa.int32()), pa.list_(pa.float32())
    fields = [pa.field("id", pa.string(), nullable=False)]
    fields += [pa.field(TOP, numbers, nullable=False)]
    fields += [pa.field(TOP_PROBABILITY, values, nullable=False)]
    fields += [pa.field(TOP_SCORE, values, nullable=False)] if scores else []
    fields += [pa.field(TOP_TRUTH, numbers)] if targets else []
    return pa.schema(fields)


def to_arrow(schema: pa.Schema, rows: TopPredictions) -> pa.Table:
    """Return the rows as an Arrow table of ``schema``."""
    import pyarrow as pa

    held = rows.top >= 0
    ends = np.concatenate([[0], np.cumsum(held.sum(axis=1))]).astype(np.int32)

    def lists(values: Array) -> pa.Array:
        return pa.ListArray.from_arrays(pa.array(ends), pa.array(values[held]))

    columns: list[Any] = [pa.array(rows.ids, pa.string()), lists(rows.top)]
    columns += [lists(rows.probabilities)]
    columns += [] if rows.scores is None else [lists(rows.scores)]
    if rows.targets is not None:
        truth = rows.targets
        if truth.values is not None:
            raise InputError(
                "the layout for very many labels holds labels that are present or absent; got soft "
                "targets or labels unknown in some rows. Leave the targets out."
            )
        ends_of_truth = pa.array(truth.offsets.astype(np.int32))
        numbers = pa.array(truth.indices.astype(np.int32))
        unknown = None if truth.known is None else pa.array(~truth.known)
        columns += [pa.ListArray.from_arrays(ends_of_truth, numbers, mask=unknown)]
    return pa.Table.from_arrays(columns, schema=schema)


def from_arrow(
    record: pa.RecordBatch, labels: list[str], metadata: dict[str, Any], where: str, first: int
) -> TopPredictions:
    """Return the rows of a batch, every value checked."""
    names = set(record.schema.names)
    top, held = _padded(record.column(TOP), np.int32(NOTHING), where)
    values, same = _padded(record.column(TOP_PROBABILITY), np.float32(0), where)
    if not np.array_equal(held, same):
        raise InputError(f"{where}lists 'top' and 'p' must be equally long in every row.")
    scores = None
    if TOP_SCORE in names:
        scores, same = _padded(record.column(TOP_SCORE), np.float32(0), where)
        if not np.array_equal(held, same):
            raise InputError(f"{where}lists 'top' and 's' must be equally long in every row.")
    targets = None
    if TOP_TRUTH in names:
        targets = _truth(record.column(TOP_TRUTH), len(labels), where)
    return TopPredictions._of_checked_labels(
        labels,
        top=top,
        probabilities=values,
        targets=targets,
        scores=scores,
        ids=id_array(record.column("id"), where, first),
        metadata=metadata,
        where=where,
    )


def _padded(column: pa.Array, fill: Any, where: str) -> tuple[Array, Array]:
    """Return lists as a matrix, filled up behind the end of each list, and their lengths."""
    if column.null_count or column.flatten().null_count:
        raise InputError(f"{where}lists of labels must not be null; got some that are.")
    ends = np.asarray(column.offsets)
    sizes = np.diff(ends)
    width = max(int(sizes.max(initial=1)), 1)
    matrix = np.full((len(column), width), fill)
    inside = np.arange(width) < sizes[:, None]
    matrix[inside] = np.asarray(column.flatten())
    return matrix, sizes


def _truth(column: pa.Array, num_labels: int, where: str) -> SparseTargets:
    known = np.asarray(column.is_valid())
    sizes = np.where(known, np.diff(np.asarray(column.offsets)), 0)
    offsets = np.concatenate([[0], np.cumsum(sizes)])
    try:
        return SparseTargets(
            offsets,
            np.asarray(column.flatten()).astype(np.int64),
            num_labels,
            known=None if known.all() else known,
        )
    except InputError as error:
        raise InputError(f"{where}{error}") from error
