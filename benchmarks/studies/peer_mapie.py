"""Thresholds of MAPIE on the draws of ``guarantees``: ``PYTHON -m benchmarks.studies.peer_mapie``.

Run by ``guarantees`` and ``headline`` with a Python that has MAPIE; prints one JSON object.
"""

from __future__ import annotations

import json
import sys
import warnings

import mapie
import numpy as np
from mapie.risk_control import MultiLabelClassificationController as Controller
from mapie.risk_control import precision

from benchmarks.studies.guarantee_draws import DELTA, LEVEL, PRECISION, ROWS, draw

# Steps of 3 % around the thresholds that reach the recall; its own, of 0.01, are too coarse there.
RECALL_THRESHOLDS = np.geomspace(0.008, 0.2, 100)
# Its own: a finer grid would only divide δ by more.
PRECISION_THRESHOLDS = np.arange(0, 1, 0.01)

RULES = {
    "recall, expected": {
        "risk": "recall",
        "method": "crc",
        "target_level": LEVEL,
        "predict_params": RECALL_THRESHOLDS,
    },
    # Without `rcps_bound`: its default, the betting bound of Waudby-Smith and Ramdas.
    "recall, probability": {
        "risk": "recall",
        "method": "rcps",
        "target_level": LEVEL,
        "confidence_level": 1 - DELTA,
        "predict_params": RECALL_THRESHOLDS,
    },
    "precision, probability": {
        "risk": "precision",
        "target_level": PRECISION,
        "confidence_level": 1 - DELTA,
        "predict_params": PRECISION_THRESHOLDS,
    },
}


class Vectorised(Controller):
    """MAPIE's controller with the same risks, computed for all rows at once."""

    def compute_risks(self, X, y, _refit=False):
        self._check_all_labelled(y)
        self.n_samples_ = len(X)
        selected = X[:, :, None] > self.predict_params
        right = (selected & (y == 1)[:, :, None]).sum(axis=1)
        of = selected.sum(axis=1) if self._risk == precision else y.sum(axis=1)[:, None]
        self._risks = np.where(of > 0, 1 - right / np.maximum(of, 1), 1.0)
        return self


def check_risks(name: str) -> None:
    """Compare the risks with MAPIE's own on one draw."""
    kinds = (Controller, Vectorised)
    own, ours = (kind(predict_function=np.asarray, **RULES[name]) for kind in kinds)
    rows = draw(60, 10**6, zero_labels=False)
    for each in (own, ours):
        each.compute_risks(*rows, _refit=True)
    np.testing.assert_allclose(own._risks, ours._risks, atol=1e-12)


def thresholds(name: str, trials: int, *, zero_labels: bool) -> list[float] | str:
    """Return the threshold of each draw, or what MAPIE says about the rows."""
    check_risks(name)
    found = []
    for seed in range(trials):
        probabilities, truth = draw(ROWS, seed, zero_labels=zero_labels)
        controller = Vectorised(predict_function=np.asarray, **RULES[name])
        try:
            controller.calibrate(probabilities, truth)
        except (ValueError, IndexError) as error:
            return f"{type(error).__name__}: {error}"
        best = np.ravel(controller.best_predict_param)[0]
        found.append(1.0 if best is None or np.isnan(float(best)) else float(best))
    return found


def of_rows(path: str) -> list[float]:
    """Return the threshold of the expected recall on each draw of rows in a file of arrays."""
    name = "recall, expected"
    check_risks(name)
    stored = np.load(path)
    found = []
    for few in stored["draws"]:
        controller = Vectorised(predict_function=np.asarray, **RULES[name])
        controller.calibrate(stored["probabilities"][few], stored["truth"][few])
        found.append(float(np.ravel(controller.best_predict_param)[0]))
    return found


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    answer: object
    if sys.argv[1].endswith(".npz"):
        answer = of_rows(sys.argv[1])
    else:
        answer = {
            f"{name}|{zero}": thresholds(name, int(sys.argv[1]), zero_labels=zero)
            for name in RULES
            for zero in (False, True)
        }
    print(json.dumps({"version": mapie.__version__, "thresholds": answer}))
