"""One Parquet file of predictions, as pieces of arrays; its errors name file, row and column."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from credibly.checks import InputError
from credibly.predictions import _layout, _values
from credibly.predictions._cells import id_cells, number_cells
from credibly.types import Array

if TYPE_CHECKING:
    import pyarrow as pa
    import pyarrow.parquet as pq


class Piece(NamedTuple):
    """Some rows of a file; ``first_row`` counts from the start of the file."""

    first_row: int
    ids: Array | None = None
    probabilities: Array | None = None
    scores: Array | None = None
    targets: Array | None = None


class Part:
    """One file, open only while it is read: a folder may have thousands.

    ``soft`` tells whether its truth has room for values between 0 and 1.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.where = f"{path}: "
        with open_parquet(path) as file:
            schema = file.schema_arrow
            self._footer = file.metadata
        self._identity = _identity(path)
        self.num_rows: int = self._footer.num_rows
        groups = range(self._footer.num_row_groups)
        held = sum(self._footer.row_group(group).num_rows for group in groups)
        if held != self.num_rows or self.num_rows < 0:
            raise InputError(
                _damaged(path, ValueError(f"it claims {self.num_rows} rows; its parts, {held}"))
            )
        self._columns = set(schema.names)
        if len(self._columns) < len(schema.names):
            twice = next(name for name in schema.names if schema.names.count(name) > 1)
            raise InputError(f"{self.where}columns must differ; {twice!r} is there twice.")
        raw = (self._footer.metadata or {}).get(_layout.KEY)
        document = _layout.decode_metadata(raw, self.where)
        found = _layout.label_columns(schema.names, _layout.PROBABILITY)
        self.labels = _values.as_labels(
            document.get("labels", found) or self._foreign(), self.where
        )
        self.metadata = {k: v for k, v in document.items() if k not in _layout.RESERVED}
        self._require([_layout.ID, *(_layout.PROBABILITY + name for name in self.labels)])
        self.has_scores = self._all_or_none(_layout.SCORE)
        self.has_targets = self._all_or_none(_layout.TRUTH)
        self.soft = self.has_targets and any(
            str(schema.field(_layout.TRUTH + name).type) in ("halffloat", "float", "double")
            for name in self.labels
        )

    def pieces(
        self, labels: Sequence[str], rows: int, kinds: Sequence[str], keep: Array | None = None
    ) -> Iterator[Piece]:
        """At most ``rows`` rows at a time, only the ``kinds`` of columns asked for.

        ``keep`` is a mask over the rows; row groups without any are not read.
        """
        columns = [_layout.ID] if _layout.ID in kinds else []
        columns += [kind + name for kind in kinds if kind != _layout.ID for name in labels]
        if _identity(self.path) != self._identity:
            raise InputError(f"{self.path} has changed since it was opened. Open it again.")
        first = 0
        with open_parquet(self.path, self._footer) as file:
            for group in range(self._footer.num_row_groups):
                size = self._footer.row_group(group).num_rows
                if keep is None or keep[first : first + size].any():
                    yield from self._group(file, group, first, labels, rows, kinds, columns, keep)
                first += size

    def _group(
        self,
        file: pq.ParquetFile,
        group: int,
        first: int,
        labels: Sequence[str],
        rows: int,
        kinds: Sequence[str],
        columns: list[str],
        keep: Array | None,
    ) -> Iterator[Piece]:
        try:
            # Selecting a column named "p:a" also selects "p:a.b": cells are taken by name below.
            for batch in file.iter_batches(rows, row_groups=[group], columns=columns):
                piece = self._piece(batch, first, labels, kinds)
                last = first + batch.num_rows
                yield piece if keep is None else _masked(piece, keep[first:last])
                first = last
        except (OSError, ValueError) as error:
            if isinstance(error, InputError):
                raise
            raise InputError(_damaged(self.path, error)) from error

    def _piece(
        self, batch: pa.RecordBatch, first: int, labels: Sequence[str], kinds: Sequence[str]
    ) -> Piece:
        ids = probabilities = scores = targets = None
        if _layout.ID in kinds:
            ids = id_cells(batch.column(_layout.ID), self.where, first)
        if _layout.PROBABILITY in kinds:
            cells = self._cells(batch, _layout.PROBABILITY, labels, first)
            probabilities = _values.as_probabilities(cells, labels, self.where, first)
        if _layout.SCORE in kinds:
            cells = self._cells(batch, _layout.SCORE, labels, first)
            scores = _values.as_scores(cells, labels, self.where, first)
        if _layout.TRUTH in kinds:
            cells = self._cells(batch, _layout.TRUTH, labels, first)
            targets = _values.as_targets(cells, labels, self.where, first)
        return Piece(first, ids, probabilities, scores, targets)

    def _cells(
        self, batch: pa.RecordBatch, prefix: str, labels: Sequence[str], first: int
    ) -> Array:
        columns = {prefix + name: batch.column(prefix + name) for name in labels}
        return number_cells(columns, self.where, first, nulls=prefix == _layout.TRUTH)

    def _foreign(self) -> list[str]:
        listed = ", ".join(sorted(self._columns)[:8]) or "none"
        raise InputError(
            f"{self.where}not a predictions file: it has no columns 'p:<label>'. Its columns: "
            f"{listed}. If these are labels, use `Predictions.from_parquet`."
        )

    def _require(self, columns: Sequence[str]) -> None:
        for name in columns:
            if name not in self._columns:
                raise InputError(f"{self.where}a predictions file must have a column {name!r}.")

    def _all_or_none(self, prefix: str) -> bool:
        wanted = [prefix + name for name in self.labels]
        there = [name in self._columns for name in wanted]
        if any(there):
            self._require(wanted)
        return any(there)


def open_parquet(path: Path, footer: pq.FileMetaData | None = None) -> pq.ParquetFile:
    """A Parquet file, or an error that says what is wrong with it."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    if not path.exists():
        raise FileNotFoundError(f"there is no file {path}")
    if path.stat().st_size == 0:
        raise InputError(f"{path} is an empty file, 0 bytes; it must be Parquet. Write it again.")
    try:
        return pq.ParquetFile(path, metadata=footer)
    except (pa.ArrowException, OSError, UnicodeDecodeError) as error:
        raise InputError(_damaged(path, error)) from error


def _identity(path: Path) -> tuple[int, int, int]:
    """Changes when another file takes this one's name."""
    status = path.stat()
    return status.st_ino, status.st_size, status.st_mtime_ns


def _damaged(path: Path, error: Exception) -> str:
    reason = str(error).strip().splitlines()[0].rstrip(".")
    return (
        f"{path} must be a whole Parquet file; reading it failed: {reason}. It may be cut off or "
        "of another kind; write it again."
    )


def _masked(piece: Piece, keep: Array) -> Piece:
    chosen = (None if cells is None else cells[keep] for cells in piece[1:])
    return Piece(piece.first_row, *chosen)
