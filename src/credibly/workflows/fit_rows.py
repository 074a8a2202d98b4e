"""Which rows a calibrator or a decision is fitted on; the others are held out to judge it."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from credibly import checks
from credibly.checks import InputError
from credibly.types import Array


@dataclass(frozen=True)
class FitRows:
    """A seeded share, or number, of the rows to fit on.

    Attributes:
        fraction: share of the rows, in (0, 1).
        rows: number of rows, instead of a share.
        seed: seed of the draw.

    Example:
        >>> FitRows(fraction=0.25).draw(np.arange(8), "rows of x.csv")
        (array([2, 4]), array([0, 1, 3, 5, 6, 7]))
    """

    fraction: float = 0.5
    rows: int | None = None
    seed: int = 0

    def draw(self, usable: Array, where: str) -> tuple[Array, Array]:
        """Split the row numbers ``usable`` into sorted rows to fit on and rows held out.

        Raises:
            InputError: if either part would be empty. ``where`` names the rows in the message.
        """
        checks.fraction("fraction", self.fraction, low_open=True, high_open=True)
        checks.at_least("seed", self.seed, 0)
        if len(usable) < 2:
            raise InputError(
                f"{where} must number at least 2, one to fit on and one to judge by; "
                f"got {len(usable)}."
            )
        count = round(self.fraction * len(usable)) if self.rows is None else self.rows
        if not 1 <= count < len(usable):
            raise InputError(
                f"the number of rows to fit on must lie between 1 and {len(usable) - 1}, so that "
                f"some of the {where} are left to judge by; got {count}. Change `fraction` or "
                "`rows`."
            )
        order = np.random.default_rng(self.seed).permutation(usable)
        return np.sort(order[:count]), np.sort(order[count:])
