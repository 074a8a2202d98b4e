"""Calibrators by name and from a stored state."""

from __future__ import annotations

from typing import Any

import numpy as np

from credibly import checks
from credibly.calibrate.affine import Affine
from credibly.calibrate.base import Calibrator
from credibly.calibrate.beta import Beta
from credibly.calibrate.identity import Identity
from credibly.calibrate.isotonic import Isotonic
from credibly.calibrate.per_label import PerLabel
from credibly.calibrate.softmax import SoftmaxTemperature, VectorScaling
from credibly.calibrate.temperature import Temperature

CALIBRATORS: dict[str, type[Calibrator]] = {
    kind.name: kind for kind in (Identity, Temperature, Affine, Beta, PerLabel, Isotonic)
}
"""Calibrators of labels on their own, by the name that ``--calibrate`` takes."""

SOFTMAX_CALIBRATORS: dict[str, type[Calibrator]] = {
    kind.name: kind for kind in (SoftmaxTemperature, VectorScaling)
}
"""Calibrators of labels that exclude each other, which keep rows summing to one, by name."""

_KNOWN = {**CALIBRATORS, **SOFTMAX_CALIBRATORS}


def from_name(name: str) -> Calibrator:
    """Return the unfitted calibrator that has this ``name``; ``CALIBRATORS`` and
    ``SOFTMAX_CALIBRATORS`` list them.

    Example:
        >>> from_name("per-label")
        PerLabel()
    """
    if name not in _KNOWN:
        raise checks.InputError(f"unknown calibrator {name!r}. {checks.nearest(name, _KNOWN)}")
    return _KNOWN[name]()


def from_state(state: dict[str, Any]) -> Calibrator:
    """Return the fitted calibrator that ``state`` (from ``.state()``, perhaps through JSON) holds.

    Example:
        >>> state = {"calibrator": "affine", "slope": 0.5, "intercept": -1.0,
        ...          "floor": -16.0, "ceiling": 16.0}
        >>> from_state(state)
        Affine(slope=0.5, intercept=-1, floor=-16, ceiling=16)
    """
    if not isinstance(state, dict) or "calibrator" not in state:
        raise checks.InputError(
            f"a calibrator's state must be a dict with the key 'calibrator'; got {state!r:.80}."
        )
    calibrator = from_name(str(state["calibrator"]))
    calibrator._load(state)
    try:  # one row of zeros: lists of unequal lengths, or none where one belongs, show here
        calibrator._map(np.zeros((1, calibrator._width())))
    except (TypeError, ValueError) as error:
        raise checks.InputError(
            f"the state of a {calibrator.name!r} calibrator must be whole; {error}."
        ) from error
    return calibrator
