"""The predictions file that connects all packages: Parquet with one column per label.

    id          string, no two alike
    p:<label>   float32, probability that the label is present
    s:<label>   float32, the model's score (optional)
    y:<label>   int8: 1 present, 0 absent, null unknown; float32 where the truth is soft (optional)

The key ``credibly`` of the file's metadata has a JSON object: the version of this layout, the
labels in order, and what the writer knew (loss, link, calibrator, decision, seed).

Files with very many labels store only the most probable labels of each row. Their columns are
lists: ``top`` of label indices, ``p`` of probabilities, ``s`` of scores, ``y`` of the labels that
are present (null if unknown).

``Predictions`` is the table in memory. ``Dataset`` is an open file or folder of shards; every
reader of predictions uses it. ``Writer`` writes a file in batches. ``Predictions.from_values``
imports predictions of other programs; a ``Layout`` describes how they name rows and labels.
"""

from credibly.predictions.foreign_files import Layout
from credibly.predictions.table import Dataset, Predictions
from credibly.predictions.writer import Writer

__all__ = ["Dataset", "Layout", "Predictions", "Writer"]
