"""Label quality by cleanlab: ``PYTHON -m benchmarks.studies.peer_cleanlab IN.npz OUT.npz METHOD…``.

Run by ``label_errors`` with a Python that has cleanlab: probabilities and noisy truth in, one
quality per entry out (low is suspicious).
"""

from __future__ import annotations

import sys

import numpy as np
from cleanlab.multilabel_classification.rank import get_label_quality_scores_per_class

if __name__ == "__main__":
    source, out, *methods = sys.argv[1:]
    arrays = np.load(source)
    labels = [np.flatnonzero(row).tolist() for row in arrays["targets"]]
    scores = {
        method: np.asarray(
            get_label_quality_scores_per_class(labels, arrays["probabilities"], method=method)
        )
        for method in methods
    }
    np.savez(out, **scores)
