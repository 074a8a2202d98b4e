"""What every accumulator does: add batches, and add what was accumulated elsewhere."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from credibly.arrays import to_numpy
from credibly.checks import InputError
from credibly.targets import Coding, TargetsLike, check_tally, tally
from credibly.types import Array


class Accumulator:
    """Sums over rows, by name. A metric function feeds one batch to an accumulator.

    Files, processes and workers feed many. Each sends its ``state()``, and ``merge`` adds it, so
    that the metric of all rows does not depend on who read which.
    """

    sums: dict[str, Array]

    def state(self) -> dict[str, Array]:
        """Return everything that was accumulated, as arrays; ``merge`` takes it back."""
        return dict(self.sums)

    def merge(self, state: Mapping[str, Array]) -> None:
        """Add the ``state()`` of an accumulator of other rows."""
        for name, mine in self.sums.items():
            if mine.shape != np.shape(state[name]):
                raise InputError(
                    "only accumulators of the same labels and bins can be merged; got shapes "
                    f"{mine.shape} and {np.shape(state[name])}."
                )
            mine += state[name]


class Accumulators(Accumulator):
    """Several accumulators of the same rows as one; their sums carry their names."""

    parts: dict[str, Accumulator]

    def state(self) -> dict[str, Array]:
        """Return the states of all parts."""
        return {
            f"{part}:{name}": array
            for part, each in self.parts.items()
            for name, array in each.state().items()
        }

    def merge(self, state: Mapping[str, Array]) -> None:
        """Add the ``state()`` of accumulators of other rows."""
        for part, each in self.parts.items():
            start = f"{part}:"
            each.merge({k.removeprefix(start): v for k, v in state.items() if k.startswith(start)})


class Codes(Accumulator):
    """Which values targets had before they were decoded: one batch cannot tell their coding.

    Args:
        coding: how to read targets of only −1 and +1, where it is known.
    """

    def __init__(self, coding: Coding | None = None) -> None:
        self.coding: Coding | None = coding
        self.sums = {"codes": np.zeros(4)}

    def update(self, targets: TargetsLike, matrix: Array) -> None:
        """Add targets as they came; class indices count as their decoded ``matrix``."""
        array = to_numpy(targets)
        self.sums["codes"] += tally(array if array.size == matrix.size else matrix)

    def check(self) -> None:
        """Refuse targets that can be read in two ways."""
        check_tally(self.sums["codes"], self.coding)
