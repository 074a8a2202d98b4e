"""Write a predictions file in batches; it gets its name only when it is complete."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Self

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from credibly import __version__, checksums
from credibly.checks import InputError, whole_number
from credibly.files import atomic_path
from credibly.predictions import file_schema, validation
from credibly.predictions.shard import IDS, Shard
from credibly.predictions.validation import label_mismatch
from credibly.types import FilePath, JsonObject

if TYPE_CHECKING:
    from credibly.predictions.table import Predictions

MAX_COLUMNS = 500_000
"""Opening so many takes a minute; a Parquet file of more than a million cannot be opened at all."""


class Writer:
    """Write batches; the end of the ``with`` block completes the file, an exception discards it.

    The first batch decides whether the file has scores and truth.

    Args:
        path: the file to write.
        labels: names of the labels.
        metadata: any JSON values; they may be changed until the file is complete.
        soft: whether later batches may have soft truth if the first batch has none.
        row_group_rows: limit on rows per row group; it is lower if a row has many labels.

    Example:
        >>> import tempfile
        >>> from credibly import Predictions
        >>> path, labels = f"{tempfile.mkdtemp()}/predictions.parquet", ["dog", "cat"]
        >>> with Writer(path, labels) as writer:
        ...     for name, values in {"a": [0.9, 0.1], "b": [0.2, 0.3]}.items():
        ...         rows = {"probabilities": [values], "ids": [name]}
        ...         writer.append(Predictions.from_arrays(labels=labels, **rows))
        >>> Predictions.read(path)
        Predictions(2 rows × 2 labels)
    """

    def __init__(
        self,
        path: FilePath,
        labels: Sequence[str],
        *,
        metadata: Mapping[str, object] | None = None,
        soft: bool = False,
        row_group_rows: int = file_schema.ROW_GROUP_ROWS,
    ) -> None:
        self.path = path
        self.row_group_rows = whole_number("row_group_rows", row_group_rows, 1)
        self.labels = validation.as_labels(labels)
        self.metadata: JsonObject = {"created_by": f"credibly {__version__}", **(metadata or {})}
        file_schema.encode_metadata(self.metadata, self.labels)
        self.num_rows = 0
        self._soft = soft
        self._schema: pa.Schema | None = None
        self._file: pq.ParquetWriter | None = None
        self._waiting: list[pa.Table] = []
        self._waiting_rows = 0
        self._top = False
        self._hashes: list[np.ndarray] = []
        self._atomic = atomic_path(path)

    def __enter__(self) -> Self:
        self._beside = self._atomic.__enter__()
        return self

    def append(self, predictions: Predictions) -> None:
        """Add rows, whose labels must be those of the file.

        All rows of a file have one layout: a column per label, or the most probable labels.
        """
        if predictions.labels != self.labels:
            if set(predictions.labels) != set(self.labels):
                raise InputError(label_mismatch("the batch", predictions.labels, self.labels))
            predictions = predictions.reordered(self.labels)
        schema = self._schema_for(predictions)
        self._hashes.append(validation.id_hashes(predictions.ids))
        self._waiting.append(file_schema.to_arrow(schema, predictions))
        self._waiting_rows += len(predictions)
        self.num_rows += len(predictions)
        columns = 1 if self._top else len(schema)
        self._flush(file_schema.row_group_rows(columns, self.row_group_rows))

    def _schema_for(self, predictions: Predictions) -> pa.Schema:
        targets, top = predictions.targets, predictions.top is not None
        soft = targets is not None and targets.dtype.kind == "f"
        has = (predictions.scores is not None, targets is not None)
        if self._schema is None:
            self._soft = targets is not None and (soft or self._soft)
            self._top, self._has = top, has
            columns = 1 + len(self.labels) * (1 + sum(has))
            if columns > MAX_COLUMNS and not top:
                raise InputError(
                    f"{self.path} must have at most {MAX_COLUMNS:,} columns; {len(self.labels):,} "
                    f"labels would take {columns:,}. Keep the most probable labels of each row "
                    "instead (`top`)."
                )
            self._schema = file_schema.arrow_schema(predictions, soft=self._soft)
        elif (self._top, self._has) != (top, has):
            raise InputError(
                "every batch must have the layout of the first batch, with scores and targets if "
                "the first has them; this one differs."
            )
        elif soft and not self._soft:
            raise InputError(
                "soft truth came after batches without soft truth. Open the file with "
                "`Writer(…, soft=True)`."
            )
        return self._schema

    def _flush(self, size: int) -> None:
        """Write complete row groups of ``size`` rows; keep the remaining rows in memory."""
        if self._file is None:
            self._file = pq.ParquetWriter(
                self._beside, self._schema, compression="zstd", use_dictionary=False
            )
        if self._waiting_rows < size:
            return
        table = pa.concat_tables(self._waiting)
        full = self._waiting_rows - self._waiting_rows % size
        self._file.write_table(table.slice(0, full), row_group_size=size)
        self._waiting = [table.slice(full)] if full < len(table) else []
        self._waiting_rows = len(table) - full

    def _finish(self) -> None:
        if self.num_rows == 0 or self._file is None:
            raise InputError(f"{self.path}: a predictions file needs at least one row; got none.")
        if self._waiting_rows:
            self._flush(self._waiting_rows)
        document = file_schema.encode_metadata(
            self.metadata, self.labels, self.num_rows, top=self._top
        )
        self._file.add_key_value_metadata({file_schema.KEY.decode(): document})
        self._file.add_key_value_metadata({checksums.KEY: checksums.PLACEHOLDER})
        self._close()
        checksums.seal(self._beside)
        hashes = np.concatenate(self._hashes)
        if len(np.unique(hashes)) < len(hashes):  # equal ids, or (very rarely) only equal hashes
            ids = [each.ids for each in Shard(self._beside).batches(IDS) if each.ids is not None]
            validation.check_unique(np.concatenate(ids), f"{self.path}: ")

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        try:
            if error is None:
                self._finish()
        except BaseException as failure:
            self._close()
            self._atomic.__exit__(type(failure), failure, failure.__traceback__)
            raise
        self._close()
        self._atomic.__exit__(kind, error, trace)

    def _close(self) -> None:
        if self._file is not None:
            self._file.close()
            self._file = None
