"""Label quality by cleanlab: ``PYTHON -m benchmarks.studies.peer_cleanlab FILE.npz OUT.npy``.

Run by ``label_errors`` with a Python that has cleanlab: probabilities and noisy truth in, one
quality per entry out (low is suspicious).
"""

from __future__ import annotations

import sys

import numpy as np
from cleanlab.multilabel_classification.rank import get_label_quality_scores_per_class

if __name__ == "__main__":
    source, out, method = sys.argv[1:]
    arrays = np.load(source)
    labels = [np.flatnonzero(row).tolist() for row in arrays["targets"]]
    scores = get_label_quality_scores_per_class(labels, arrays["probabilities"], method=method)
    np.save(out, np.asarray(scores))
