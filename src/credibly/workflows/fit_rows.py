"""Which rows a calibrator or a decision is fitted on; the others are held out to judge it."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from credibly import checks
from credibly.checks import InputError
from credibly.types import Array

MOST_DRAWN = 2**24
"""Up to so many rows, exactly the number asked for is drawn."""


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

    def choose(self, num_rows: int, where: str, most: int | None = None) -> RowChoice:
        """Choose among all rows, as ``draw`` does up to 16.8 million rows.

        With more, each row is chosen by a hash of its number, so that nothing is kept per row and
        their number is only about as asked.

        Args:
            num_rows: number of rows.
            where: names the rows in messages.
            most: choose at most about so many rows.
        """
        asked = self
        if most is not None and self._count(num_rows) > most:
            asked = replace(self, rows=max(1, most))
        if num_rows <= MOST_DRAWN:
            fitted, _ = asked.draw(np.arange(num_rows), where)
            mask = np.zeros(num_rows, dtype=bool)
            mask[fitted] = True
            return RowChoice(num_rows, mask=np.packbits(mask))
        return RowChoice(num_rows, share=asked._count(num_rows) / num_rows, seed=self.seed)

    def _count(self, num_rows: int) -> int:
        return round(self.fraction * num_rows) if self.rows is None else self.rows


@dataclass(frozen=True)
class RowChoice:
    """Which rows of a dataset to fit on, for any stretch of them; the same on every worker.

    Example:
        >>> choice = FitRows(fraction=0.25).choose(8, "rows of x.csv")
        >>> choice.mask_of(2, 4)
        array([ True, False,  True, False])
    """

    num_rows: int
    mask: Array | None = None
    share: float = 0.0
    seed: int = 0

    def mask_of(self, first_row: int, count: int) -> Array:
        """Return whether each of ``count`` rows from ``first_row`` on is one to fit on."""
        if self.mask is not None:
            first_byte, last = first_row // 8, first_row + count
            bits = np.unpackbits(self.mask[first_byte : -(-last // 8)])
            return bits[first_row - 8 * first_byte :][:count].astype(bool)
        rows = np.arange(first_row, first_row + count, dtype=np.uint64)
        return _hashed(rows, self.seed) < self.share


def _hashed(numbers: Array, seed: int) -> Array:
    """Return a number in [0, 1) per row number: splitmix64."""
    with np.errstate(over="ignore"):
        step = np.uint64(0x9E3779B97F4A7C15)
        z = (numbers + np.uint64(1)) * step + np.uint64(seed) * np.uint64(0xD1342543DE82EF95)
        z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        z ^= z >> np.uint64(31)
    return (z >> np.uint64(11)).astype(np.float64) * 2.0**-53
