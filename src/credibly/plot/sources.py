"""Sources of a plot: arrays, predictions, a predictions file or the folder of a run."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

from credibly.checks import InputError
from credibly.metrics.accumulators import probability_pair
from credibly.predictions import Predictions
from credibly.targets import Targets, TargetsLike
from credibly.types import Array, ArrayLike

Source = ArrayLike | Predictions | str | os.PathLike[str]


class Drawn(NamedTuple):
    """Probabilities, decoded targets, and the names of the labels if they are known."""

    probabilities: Array
    targets: Targets
    labels: list[str] | None


def drawn_from(
    source: Source,
    targets: TargetsLike | None = None,
    decode: Callable[[Any, TargetsLike, str], Targets] = Targets.beside,
) -> Drawn:
    """Return the rows to draw. Arrays need ``targets``; predictions contain them.

    ``decode`` decodes the targets that are given with an array.

    Example:
        >>> one = Predictions.from_arrays(probabilities=[[0.9]], targets=[[1]], labels=["cat"])
        >>> drawn_from(one).labels
        ['cat']
    """
    if isinstance(source, (str, os.PathLike)):
        inside = Path(source) / "predictions.parquet"
        source = Predictions.read(inside if inside.is_file() else source)
    if isinstance(source, Predictions):
        if targets is not None or source.targets is None:
            raise InputError(
                "predictions must hold the truth, and `targets` must not be given with them; "
                f"{'both were given' if targets is not None else 'these hold none'}."
            )
        return Drawn(source.probabilities, Targets(source.targets), list(source.labels))
    if targets is None:
        raise InputError(
            "an array of probabilities needs `targets`. Pass them, or pass predictions, a "
            "predictions file or the folder of a run."
        )
    targets = decode(source, targets, "probabilities")
    p, y = probability_pair(source, targets)
    return Drawn(p, Targets(y), None)
