"""The predictions file, which every other package reads: Parquet, one column per label.

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
``Predictions.from_values`` imports predictions of other programs; a ``Layout``
says how they name rows and labels.
"""

from credibly.predictions.dataset import Dataset
from credibly.predictions.file_formats import Layout
from credibly.predictions.table import Predictions
from credibly.predictions.writer import Writer

__all__ = ["Dataset", "Layout", "Predictions", "Writer"]
