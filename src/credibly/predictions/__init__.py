"""The predictions file, which everything downstream reads: one Parquet file, one column per label.

    id          string, no two alike
    p:<label>   float32, probability that the label is present
    s:<label>   float32, the model's score (optional)
    y:<label>   int8: 1 present, 0 absent, null unknown; float32 where the truth is soft (optional)

and, under the key ``credibly`` of the file's metadata, a JSON object with the version of this
layout, the labels in order, and whatever the writer knew: loss, link, calibrator, decision, seed.

Files of very many labels hold the most probable ones of each row instead: lists ``top`` of label
indices, ``p`` of probabilities, ``s`` of scores, ``y`` of labels present (null where unknown).

``Predictions`` is the table in memory. ``Dataset`` is one file or a folder of shards, opened but
not read; every reader of predictions goes through it. ``Writer`` writes a file in batches.
``read_table`` reads what other programs wrote, ``Predictions.from_file`` and ``from_values`` import
it.
"""

import warnings
from typing import Any

from credibly.predictions.completeness import shard_metadata, shard_name
from credibly.predictions.dataset import Dataset, identity
from credibly.predictions.file_schema import ID, PATH, PROBABILITY, SCORE, TRUTH, Schema
from credibly.predictions.importers import ImportedTable, read_table
from credibly.predictions.importing import (
    Layout,
    Values,
    check_declared,
    with_truth,
)
from credibly.predictions.importing import read as read_values
from credibly.predictions.npz import parse_array, read_arrays
from credibly.predictions.preview_table import FilePreview, preview_file
from credibly.predictions.shard import BATCH_ROWS, Piece, PieceReader, Shard
from credibly.predictions.table import Predictions, label_mismatch
from credibly.predictions.writer import Writer

__all__ = [
    "BATCH_ROWS",
    "ID",
    "PATH",
    "PROBABILITY",
    "SCORE",
    "TRUTH",
    "Dataset",
    "FilePreview",
    "ImportedTable",
    "Layout",
    "Piece",
    "PieceReader",
    "Predictions",
    "Schema",
    "Shard",
    "Values",
    "Writer",
    "check_declared",
    "identity",
    "label_mismatch",
    "parse_array",
    "preview_file",
    "read_arrays",
    "read_table",
    "read_values",
    "shard_metadata",
    "shard_name",
    "with_truth",
]

_RENAMED: dict[str, Any] = {"Scan": Dataset, "ForeignTable": ImportedTable}


def __getattr__(name: str) -> Any:
    if name not in _RENAMED:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    new = _RENAMED[name]
    warnings.warn(
        f"credibly.predictions.{name} is now called {new.__name__}", DeprecationWarning, 2
    )
    return new
