"""Do new rows look like the rows that probabilities and guarantees were fitted on?"""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import Any

import numpy as np

from credibly.checks import InputError, fraction, whole_number
from credibly.predictions import Predictions
from credibly.types import Array


@dataclass(frozen=True)
class LabelDrift:
    """One label in new rows and in reference rows.

    ``score_p`` is the p-value of a two-sample Kolmogorov–Smirnov test of its probabilities,
    ``rate_p`` that of Fisher's exact test of its rate; None where one side has no truth.
    """

    label: str
    mean_new: float
    mean_reference: float
    score_p: float
    rate_new: float | None
    rate_reference: float | None
    rate_p: float | None
    drifted: bool


@dataclass(frozen=True)
class Drift:
    """Whether new rows are exchangeable with reference rows, as far as the tests can see.

    If they are, ``drifted`` is True with a probability of at most ``false_alarms`` (Holm's method
    over all tests of all labels).
    """

    labels: tuple[LabelDrift, ...]
    rows_new: int
    rows_reference: int
    false_alarms: float

    @property
    def drifted(self) -> bool:
        """Whether any label differs."""
        return any(label.drifted for label in self.labels)

    def __str__(self) -> str:
        named = [label.label for label in self.labels if label.drifted]
        if not named:
            return (
                "No difference was found. Calibration and guarantees of the reference rows apply "
                "as far as these tests can see."
            )
        shown = ", ".join(named[:5]) + (f" and {len(named) - 5} more" if len(named) > 5 else "")
        return (
            f"The new rows differ from the reference rows in {len(named)} of {len(self.labels)} "
            f"labels: {shown}. Label some of the new rows, then calibrate and fit the rule anew."
        )


def drift(
    new: str | os.PathLike[str] | Predictions,
    against: str | os.PathLike[str] | Predictions,
    *,
    false_alarms: float = 0.01,
    max_rows: int = 200_000,
) -> Drift:
    """Test whether new rows look like the reference rows: their probabilities, and label rates.

    Every guarantee holds for rows that are exchangeable with the calibration rows. This test can
    show that they are not; it cannot show that they are.

    Args:
        new: a predictions file, or predictions.
        against: predictions of the rows that calibrator and rule were fitted on.
        false_alarms: probability of a false alarm over all labels together.
        max_rows: rows of each side that are compared, evenly spaced.

    Example:
        >>> rng = np.random.default_rng(1)
        >>> old = Predictions.from_arrays(probabilities=rng.random((500, 2)), labels=["a", "b"])
        >>> shifted = rng.random((500, 2)) * [1.0, 0.8]
        >>> found = drift(Predictions.from_arrays(probabilities=shifted, labels=["a", "b"]), old)
        >>> [label.label for label in found.labels if label.drifted]
        ['b']
    """
    from scipy.stats import fisher_exact, ks_2samp

    fraction("false_alarms", false_alarms, low_open=True, high_open=True)
    whole_number("max_rows", max_rows, 10)
    first, second = _predictions(new), _predictions(against)
    missing = [name for name in second.labels if name not in first.labels]
    if missing or len(first.labels) != len(second.labels):
        extra = [name for name in first.labels if name not in second.labels]
        raise InputError(
            f"both must have the same labels; the new rows lack {missing[:5]} and have "
            f"{extra[:5]} more."
        )
    rows_new, rows_reference = _rows(first, max_rows), _rows(second, max_rows)
    found = []
    for name in second.labels:
        a, y = _column(first, name, rows_new)
        b, z = _column(second, name, rows_reference)
        rates = None if y is None or z is None else (float(y.mean()), float(z.mean()))
        rate_p = None
        if rates is not None and y is not None and z is not None:
            table = [[int(y.sum()), len(y) - int(y.sum())], [int(z.sum()), len(z) - int(z.sum())]]
            rate_p = _p_value(fisher_exact(table))
        means = float(a.mean()), float(b.mean())
        found.append((name, *means, _p_value(ks_2samp(a, b)), rates, rate_p))
    rejected = _holm([p for each in found for p in (each[3], each[5])], false_alarms)
    return Drift(
        tuple(
            LabelDrift(
                name,
                mean_new,
                mean_reference,
                score_p,
                None if rates is None else rates[0],
                None if rates is None else rates[1],
                rate_p,
                rejected[2 * index] or rejected[2 * index + 1],
            )
            for index, (name, mean_new, mean_reference, score_p, rates, rate_p) in enumerate(found)
        ),
        len(rows_new),
        len(rows_reference),
        false_alarms,
    )


def _p_value(result: Any) -> float:
    return float(result.pvalue)


def _predictions(given: str | os.PathLike[str] | Predictions) -> Predictions:
    return given if isinstance(given, Predictions) else Predictions.read(given)


def _rows(predictions: Predictions, max_rows: int) -> Array:
    count = len(predictions.probabilities)
    if count < 2:
        raise InputError(f"drift needs at least 2 rows on either side; got {count}.")
    return np.unique(np.linspace(0, count - 1, min(count, max_rows)).astype(int))


def _column(predictions: Predictions, label: str, rows: Array) -> tuple[Array, Array | None]:
    """Return the probabilities of one label, and its known truth; None where there is none."""
    column = list(predictions.labels).index(label)
    probabilities = predictions.probabilities[rows, column]
    if predictions.targets is None:
        return probabilities, None
    truth = predictions.targets[rows, column]
    known = truth[truth >= 0] >= 0.5
    return probabilities, known if len(known) else None


def _holm(p_values: list[float | None], level: float) -> list[bool]:
    """Return which hypotheses Holm's method rejects; a test that was not made is not rejected."""
    order = sorted((p, index) for index, p in enumerate(p_values) if p is not None)
    rejected = [False] * len(p_values)
    for rank, (p, index) in enumerate(order):
        if p > level / (len(order) - rank):
            break
        rejected[index] = True
    return rejected
