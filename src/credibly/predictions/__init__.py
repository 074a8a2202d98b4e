"""The record on disk that everything downstream reads: one Parquet file, one column a label.

    id          string, no two alike
    p:<label>   float32, probability that the label is present
    s:<label>   float32, the model's score (optional)
    y:<label>   int8: 1 present, 0 absent, null unknown; float32 where the truth is soft (optional)

and, under the key ``credibly`` of the file's metadata, a JSON object with the version of this
layout, the labels in order, and whatever the writer knew: loss, link, calibrator, decision, seed.

``Predictions`` holds a whole file (or some rows or labels of it) in memory; ``Predictions.scan``
and ``Predictions.batches`` read a file of any size in pieces; ``Writer`` writes one in pieces.
"""

from credibly.predictions._foreign import ForeignTable, read_table
from credibly.predictions._record import Predictions, label_mismatch
from credibly.predictions._scan import Scan
from credibly.predictions._writer import Writer

__all__ = ["ForeignTable", "Predictions", "Scan", "Writer", "label_mismatch", "read_table"]
