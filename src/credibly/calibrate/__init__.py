"""Fit maps of log-odds so that probabilities match the rates on held-out rows.

    log_odds = loss.log_odds(held_out_scores)
    calibrator = Affine().fit(log_odds, held_out_targets)
    probabilities = sigmoid(calibrator.transform(loss.log_odds(new_scores)))

Fit on rows that were not used for training, and report results on other rows.
"""

from credibly.calibrate.auto import choose, from_name, from_state
from credibly.calibrate.base import Calibrator
from credibly.calibrate.calibrators import (
    Affine,
    Beta,
    Identity,
    Isotonic,
    PerLabel,
    Temperature,
    shift_rates,
)
from credibly.calibrate.softmax import SoftmaxTemperature

__all__ = [
    "Affine",
    "Beta",
    "Calibrator",
    "Identity",
    "Isotonic",
    "PerLabel",
    "SoftmaxTemperature",
    "Temperature",
    "choose",
    "from_name",
    "from_state",
    "shift_rates",
]
