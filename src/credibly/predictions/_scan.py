"""A predictions file opened but not read: what it holds, and ways to read parts of it."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Literal

import numpy as np

from credibly.checks import InputError, fits_memory, nearest
from credibly.predictions import _layout, _values
from credibly.predictions._part import Part, Piece
from credibly.predictions._record import Predictions, Rows, label_mismatch, row_index
from credibly.types import Array


class Scan:
    """A predictions file, or a folder of them (parts of one whole), read piece by piece.

    Attributes:
        path, files: as given, and the Parquet files behind it in order.
        labels, metadata: as in ``Predictions``; those of the first file.
        num_rows: rows of all files together.
        has_targets, has_scores: whether the optional columns are there.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = Path(path)
        self._parts = [Part(file) for file in parquet_files(self.path)]
        first = self._parts[0]
        self.files = [part.path for part in self._parts]
        self.labels, self.metadata = first.labels, first.metadata
        for part in self._parts:
            if set(part.labels) != set(self.labels):
                raise InputError(label_mismatch(str(part.path), part.labels, self.labels))
        self.num_rows = sum(part.num_rows for part in self._parts)
        self.has_targets = any(part.has_targets for part in self._parts)
        self.has_scores = all(part.has_scores for part in self._parts)
        self.soft = any(part.soft for part in self._parts)
        if self.num_rows == 0:
            raise InputError(f"{self.path} must have at least one row; it is empty.")

    def read(self, labels: Sequence[str] | None = None, rows: Rows | None = None) -> Predictions:
        """All of it in memory, or some labels and rows, in the order asked for."""
        names, kinds = self._chosen(labels), self._kinds()
        if rows is None:
            whole = self._predictions(names, self._gather(names, kinds, None))
            _values.check_unique(whole.ids, f"{self.path}: ")
            return whole
        ordered, back = np.unique(self._row_numbers(rows), return_inverse=True)
        keep = np.zeros(self.num_rows, dtype=bool)
        keep[ordered] = True
        picked = self._predictions(names, self._gather(names, kinds, keep))
        return picked if len(back) == len(ordered) and (np.diff(back) == 1).all() else picked[back]

    def batches(
        self, rows: int | None = None, labels: Sequence[str] | None = None
    ) -> Iterator[Predictions]:
        """Pieces of at most ``rows`` rows, in order. Ids are not compared between pieces.

        By default 65,536 rows, or fewer where a row has many labels: 32 MB of probabilities.
        """
        names, kinds = self._chosen(labels), self._kinds()
        if rows is None:
            rows = self._usual_rows(names)
        if rows < 1:
            raise InputError(f"`rows` must be at least 1; got {rows!r}.")
        for piece in self._pieces(names, rows, kinds, None):
            yield self._predictions(names, piece)

    def matrices(
        self, labels: Sequence[str] | None = None, keep: Array | None = None
    ) -> Iterator[Array]:
        """Probabilities alone, (rows, labels) at a time; ``keep`` is a mask over all rows."""
        names = self._chosen(labels)
        for piece in self._pieces(names, self._usual_rows(names), [_layout.PROBABILITY], keep):
            assert piece.probabilities is not None
            yield piece.probabilities

    def columns(
        self, labels: Sequence[str], what: Literal["probabilities", "scores"] = "probabilities"
    ) -> tuple[Array, Array | None]:
        """Values and targets of some labels over all rows, each (rows, labels); no ids are read."""
        kind = _layout.SCORE if what == "scores" else _layout.PROBABILITY
        if kind not in self._kinds():
            raise InputError(f"{self.path} has no scores; read its probabilities.")
        kinds = [kind, _layout.TRUTH] if self.has_targets else [kind]
        piece = self._gather(self._chosen(labels), kinds, None)
        values = piece.scores if what == "scores" else piece.probabilities
        assert values is not None
        return values, piece.targets

    def column(
        self, label: str, what: Literal["probabilities", "scores"] = "probabilities"
    ) -> tuple[Array, Array | None]:
        """Values and targets of one label over all rows, each (rows,)."""
        values, targets = self.columns([label], what)
        return values[:, 0], None if targets is None else targets[:, 0]

    def ids(self) -> Array:
        """All ids, in order."""
        ids = self._gather([], [_layout.ID], None).ids
        assert ids is not None
        return ids

    def hashed_ids(self) -> Array:
        """A 64-bit hash of each id, in order: eight bytes a row, good within this process."""
        hashes = [
            np.fromiter(map(hash, ids), np.int64, len(ids))
            for _, ids, *_ in self._pieces([], 65_536, [_layout.ID], None)
            if ids is not None
        ]
        return np.concatenate(hashes)

    def check_ids(self) -> None:
        """Raise if two ids are alike, in little memory."""
        hashes = self.hashed_ids()
        hashes.sort()
        if (hashes[1:] == hashes[:-1]).any():  # alike ids, or (hardly ever) alike hashes only
            _values.check_unique(self.ids(), f"{self.path}: ")

    def _chosen(self, labels: Sequence[str] | None) -> list[str]:
        for name in labels or []:
            if name not in self.labels:
                raise InputError(f"{self.path} has no label {name!r}. {nearest(name, self.labels)}")
        return self.labels if labels is None else _values.as_labels(labels)

    def _usual_rows(self, names: list[str]) -> int:
        return max(1, min(65_536, 2**23 // len(names)))

    def _kinds(self) -> list[str]:
        kinds = [_layout.ID, _layout.PROBABILITY]
        kinds += [_layout.SCORE] if self.has_scores else []
        return [*kinds, _layout.TRUTH] if self.has_targets else kinds

    def _row_numbers(self, rows: Rows) -> Array:
        try:
            numbers = np.arange(self.num_rows)[row_index(rows)]
        except IndexError as error:
            raise InputError(f"{self.path} has {self.num_rows} rows; {error}.") from error
        if not len(numbers):
            raise InputError(f"`rows` must pick at least one row of {self.path}; got none.")
        return numbers

    def _pieces(
        self, names: list[str], rows: int, kinds: list[str], keep: Array | None
    ) -> Iterator[Piece]:
        first = 0
        for part in self._parts:
            mask = None if keep is None else keep[first : first + part.num_rows]
            missing = _layout.TRUTH in kinds and not part.has_targets
            wanted = [kind for kind in kinds if not (missing and kind == _layout.TRUTH)]
            for piece in part.pieces(names, rows, wanted, mask):
                yield _with_unknown(piece) if missing else piece
            first += part.num_rows

    def _gather(self, names: list[str], kinds: list[str], keep: Array | None) -> Piece:
        """All pieces in one, filled in place: no second copy at any time."""
        rows = self.num_rows if keep is None else int(keep.sum())
        fits_memory(f"{self.path}", rows, max(1, len(names)))
        whole: dict[str, Array] = {}
        at = size = 0
        # Pieces of a few MB: turning columns into rows then happens in cache.
        for piece in self._pieces(names, max(1024, 2**20 // max(1, len(names))), kinds, keep):
            for name in Piece._fields[1:]:
                cells = getattr(piece, name)
                if cells is None:
                    continue
                if name not in whole:
                    kind = np.float32 if name == "targets" and self.soft else cells.dtype
                    whole[name] = np.empty((rows, *cells.shape[1:]), dtype=kind)
                size = len(cells)
                whole[name][at : at + size] = cells
            at += size
        if at != rows:
            raise InputError(f"{self.path} must hold {rows} rows, as it claims; it holds {at}.")
        return Piece(0, *(whole.get(name) for name in Piece._fields[1:]))

    def _predictions(self, names: list[str], piece: Piece) -> Predictions:
        assert piece.ids is not None
        assert piece.probabilities is not None
        targets = piece.targets
        if targets is not None and self.soft:
            targets = targets.astype(np.float32, copy=False)
        return Predictions(
            piece.probabilities, names, piece.ids, targets, piece.scores, self.metadata
        )


def parquet_files(path: Path) -> list[Path]:
    """The file itself, or the finished Parquet files of a folder in order of their names."""
    if not path.is_dir():
        return [path]
    files = sorted(
        file
        for file in path.iterdir()
        if file.suffix == ".parquet" and not file.name.startswith((".", "_"))
    )
    if not files:
        raise InputError(f"the folder {path} must hold Parquet files (*.parquet); it has none.")
    return files


def _with_unknown(piece: Piece) -> Piece:
    values = piece.scores if piece.probabilities is None else piece.probabilities
    assert values is not None
    unknown = np.full(values.shape, _values.UNKNOWN, dtype=np.int8)
    return piece._replace(targets=unknown)
