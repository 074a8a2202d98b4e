"""No calibration: the log-odds as they are."""

from __future__ import annotations

from typing import TYPE_CHECKING

from credibly.calibrate.base import Calibrator
from credibly.calibrate.entries import Entries
from credibly.types import Array

if TYPE_CHECKING:
    from torch import nn


class Identity(Calibrator):
    """Leaves log-odds as they are; named ``none``, to compare with and to switch off.

    Example:
        >>> import numpy as np
        >>> Identity().transform(np.array([[-1.5, 2.0]]))
        array([[-1.5,  2. ]])
    """

    name = "none"

    def _fit(self, entries: Entries) -> None:
        pass

    def _map(self, log_odds: Array) -> Array:
        return log_odds

    def to_module(self) -> nn.Module:
        from torch import nn

        return nn.Identity()
