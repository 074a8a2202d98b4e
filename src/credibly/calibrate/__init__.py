"""Fitted maps from log-odds to log-odds, so that probabilities match rates on held-out rows.

    log_odds = loss.log_odds(held_out_scores)
    calibrator = Affine().fit(log_odds, held_out_targets)
    probabilities = sigmoid(calibrator.transform(loss.log_odds(new_scores)))

Fit on rows the model was not trained on, and never on the rows a result is reported on.
"""

from credibly.calibrate.auto import choose, from_name, from_state
from credibly.calibrate.base import Calibrator
from credibly.calibrate.isotonic import Isotonic
from credibly.calibrate.parametric import Affine, Beta, Identity, Temperature, shift_rates
from credibly.calibrate.per_label import PerLabel
from credibly.calibrate.softmax import SoftmaxTemperature, VectorScaling

__all__ = [
    "Affine",
    "Beta",
    "Calibrator",
    "Identity",
    "Isotonic",
    "PerLabel",
    "SoftmaxTemperature",
    "Temperature",
    "VectorScaling",
    "choose",
    "from_name",
    "from_state",
    "shift_rates",
]
