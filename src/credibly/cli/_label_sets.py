"""Fit a rule on held-out rows, write the label sets of a predictions file, count how they fare."""

from __future__ import annotations

import csv
import json
import math
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from credibly.decide import AverageSize, BestF, Coverage, Decision
from credibly.files import atomic_path
from credibly.predictions import Predictions, Scan
from credibly.types import Array

# Above this many probabilities a rule is fitted in pieces, where it can be.
_WHOLE = 2**26


def fit_rule(rule: Decision, scan: Scan, labels: list[str], keep: Array | None) -> Decision:
    """``rule`` fitted on the rows ``keep`` (all if None) of a file, its columns as ``labels``."""
    if isinstance(rule, (BestF, Coverage)):
        part = scan.read(labels, None if keep is None else keep)
        return rule.fit(part.probabilities, part.targets)
    if not isinstance(rule, AverageSize):
        return rule.fit(None)
    rows = scan.num_rows if keep is None else int(keep.sum())
    if rows * len(labels) > _WHOLE:
        return rule.fit(lambda: scan.matrices(labels, keep))
    return rule.fit(np.concatenate(list(scan.matrices(labels, keep))))


@dataclass
class Tally:
    """What the sets of some rows come to; truth counts where it is known."""

    rows: int = 0
    sizes: Array = field(default_factory=lambda: np.zeros(1, dtype=np.int64))
    hits: int = 0
    returned: int = 0
    present: int = 0

    def add(self, sets: Array, targets: Array | None) -> None:
        sizes = np.bincount(sets.sum(axis=1), minlength=sets.shape[1] + 1)
        self.sizes = self.sizes + sizes if self.rows else sizes
        self.rows += len(sets)
        if targets is not None:
            self.hits += int((sets & (targets == 1)).sum())
            self.returned += int((sets & (targets >= 0)).sum())
            self.present += int((targets == 1).sum())

    def numbers(self) -> dict[str, float]:
        """Average size and its error; coverage, precision and F1 where truth is known."""
        if not self.rows:
            return {}
        places = np.arange(len(self.sizes))
        mean = float(self.sizes @ places) / self.rows
        spread = float(self.sizes @ (places - mean) ** 2) / self.rows
        numbers = {"average size": mean, "its standard error": math.sqrt(spread / self.rows)}
        if self.present:
            numbers["coverage"] = self.hits / self.present
            numbers["precision"] = self.hits / self.returned if self.returned else float("nan")
            numbers["F1"] = 2 * self.hits / (self.returned + self.present)
        return numbers

    def histogram(self) -> dict[int, int]:
        """Rows by size of their set, sizes that occur."""
        return {int(size): int(self.sizes[size]) for size in np.flatnonzero(self.sizes)}


class _Sink(Protocol):
    def write(self, piece: Predictions, sets: Array, held_out: Array) -> None: ...


@contextmanager
def sets_file(path: Path, document: dict[str, Any]) -> Iterator[_Sink]:
    """A file of label sets, Parquet or CSV by its ending, there only when it is whole."""
    with atomic_path(path) as beside:
        if path.suffix == ".csv":
            with beside.open("w", newline="", encoding="utf-8") as file:
                yield _Csv(file)
            return
        sink = _Parquet(beside, document)
        try:
            yield sink
        finally:
            sink.close()


class _Parquet:
    def __init__(self, path: Path, document: dict[str, Any]) -> None:
        import pyarrow as pa
        import pyarrow.parquet as pq

        fields: dict[str, Any] = {
            "id": pa.string(),
            "labels": pa.list_(pa.string()),
            "probabilities": pa.list_(pa.float32()),
            "held_out": pa.bool_(),
        }
        self._schema = pa.schema(fields, metadata={"credibly": json.dumps(document)})
        self._file = pq.ParquetWriter(path, self._schema, compression="zstd")

    def write(self, piece: Predictions, sets: Array, held_out: Array) -> None:
        import pyarrow as pa

        columns, values, offsets = _members(sets, piece.probabilities)
        names = pa.array(piece.labels).take(pa.array(columns))
        cells = [
            pa.array(piece.ids, pa.string()),
            pa.ListArray.from_arrays(pa.array(offsets, pa.int32()), names),
            pa.ListArray.from_arrays(pa.array(offsets, pa.int32()), pa.array(values)),
            pa.array(held_out),
        ]
        self._file.write_table(pa.Table.from_arrays(cells, schema=self._schema))

    def close(self) -> None:
        self._file.close()


class _Csv:
    def __init__(self, file: Any) -> None:
        self._writer = csv.writer(file)
        self._writer.writerow(["id", "labels", "probabilities", "held_out"])

    def write(self, piece: Predictions, sets: Array, held_out: Array) -> None:
        columns, values, offsets = _members(sets, piece.probabilities)
        for row, name in enumerate(piece.ids):
            part = slice(offsets[row], offsets[row + 1])
            labels = [piece.labels[column] for column in columns[part]]
            shown = [round(float(value), 6) for value in values[part]]
            cells = [json.dumps(labels, ensure_ascii=False), json.dumps(shown)]
            self._writer.writerow([name, *cells, str(bool(held_out[row])).lower()])


def _members(sets: Array, probabilities: Array) -> tuple[Array, Array, Array]:
    """Columns and probabilities of all sets in one list, likeliest first; where each set begins."""
    rows, columns = np.nonzero(sets)
    values = probabilities[rows, columns]
    order = np.lexsort((columns, -values, rows))
    offsets = np.concatenate([[0], np.cumsum(sets.sum(axis=1))])
    return columns[order], values[order], offsets
