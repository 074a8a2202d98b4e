"""Fitted maps from log-odds to log-odds, so that probabilities match rates on held-out rows.

    log_odds = loss.log_odds(held_out_scores)
    calibrator = Affine().fit(log_odds, held_out_targets)
    probabilities = sigmoid(calibrator.transform(loss.log_odds(new_scores)))

Fit on rows the model was not trained on, and never on the rows a result is reported on.
"""

from credibly.calibrate.affine import Affine
from credibly.calibrate.auto import EXCLUSIVE, LABELWISE, Candidate, Choice, choose, fit
from credibly.calibrate.base import Calibrator
from credibly.calibrate.beta import Beta
from credibly.calibrate.histogram import LogOddsHistogram
from credibly.calibrate.identity import Identity
from credibly.calibrate.isotonic import Isotonic
from credibly.calibrate.per_label import PerLabel
from credibly.calibrate.rate_shift import shift_rates
from credibly.calibrate.registry import CALIBRATORS, SOFTMAX_CALIBRATORS, from_name, from_state
from credibly.calibrate.softmax import SoftmaxTemperature, VectorScaling
from credibly.calibrate.temperature import Temperature

__all__ = [
    "CALIBRATORS",
    "EXCLUSIVE",
    "LABELWISE",
    "SOFTMAX_CALIBRATORS",
    "Affine",
    "Beta",
    "Calibrator",
    "Candidate",
    "Choice",
    "Identity",
    "Isotonic",
    "LogOddsHistogram",
    "PerLabel",
    "SoftmaxTemperature",
    "Temperature",
    "VectorScaling",
    "choose",
    "fit",
    "from_name",
    "from_state",
    "shift_rates",
]
