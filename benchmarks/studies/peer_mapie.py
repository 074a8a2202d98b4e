"""Thresholds of MAPIE on the draws of ``guarantees``: ``PYTHON -m benchmarks.studies.peer_mapie``.

Run by ``guarantees`` with a Python that has MAPIE; prints one JSON object.
"""

from __future__ import annotations

import json
import sys
import warnings

import mapie
import numpy as np
from mapie.risk_control import MultiLabelClassificationController as Controller

from benchmarks.studies.guarantee_draws import DELTA, LEVEL, PRECISION, ROWS, draw

# Finer at the low end than its own hundred steps of 0.01, which would be too coarse here.
THRESHOLDS = np.concatenate([np.geomspace(1e-4, 0.01, 50, endpoint=False), np.arange(1, 100) / 100])

RULES = {
    "recall, expected": {"risk": "recall", "method": "crc", "target_level": LEVEL},
    "recall, probability (hoeffding)": {
        "risk": "recall",
        "method": "rcps",
        "target_level": LEVEL,
        "confidence_level": 1 - DELTA,
        "rcps_bound": "hoeffding",
    },
    "recall, probability (bernstein)": {
        "risk": "recall",
        "method": "rcps",
        "target_level": LEVEL,
        "confidence_level": 1 - DELTA,
        "rcps_bound": "bernstein",
    },
    "precision, probability": {
        "risk": "precision",
        "target_level": PRECISION,
        "confidence_level": 1 - DELTA,
    },
}


def thresholds(name: str, trials: int, *, zero_labels: bool) -> list[float] | str:
    """Return the threshold of each draw, or what MAPIE says about the rows."""
    found = []
    for seed in range(trials):
        probabilities, truth = draw(ROWS, seed, zero_labels=zero_labels)
        controller = Controller(
            predict_function=np.asarray, predict_params=THRESHOLDS, **RULES[name]
        )
        try:
            controller.calibrate(probabilities, truth)
        except (ValueError, IndexError) as error:
            return f"{type(error).__name__}: {error}"
        best = np.ravel(controller.best_predict_param)[0]
        found.append(1.0 if best is None or np.isnan(float(best)) else float(best))
    return found


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    count = int(sys.argv[1])
    answer = {
        f"{name}|{zero}": thresholds(name, count, zero_labels=zero)
        for name in RULES
        for zero in (False, True)
    }
    print(json.dumps({"version": mapie.__version__, "thresholds": answer}))
