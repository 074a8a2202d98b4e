"""Test whether new rows look like the rows that calibrator and rule were fitted on."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from credibly.checks import InputError, fraction
from credibly.predictions import Predictions
from credibly.types import Array, FilePath

MAX_ROWS = 200_000


@dataclass(frozen=True)
class LabelDrift:
    """One label in new rows and in reference rows.

    ``score_p`` is the p-value of a two-sample Kolmogorov–Smirnov test of its probabilities.
    ``rate_p`` is the p-value of Fisher's exact test of its rate, or None if one side has no truth.
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
    """The result of tests whether new rows are exchangeable with reference rows.

    If they are exchangeable, the probability that ``drifted`` is True is at most ``false_alarms``
    (Holm's method over all tests of all labels).
    """

    labels: tuple[LabelDrift, ...]
    rows_new: int
    rows_reference: int
    false_alarms: float

    @property
    def drifted(self) -> bool:
        """Return whether any label differs."""
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
            f"labels: {shown}. Label some of the new rows, then calibrate and fit the rule again."
        )


def drift(
    new: FilePath | Predictions,
    against: FilePath | Predictions,
    *,
    false_alarms: float = 0.01,
) -> Drift:
    """Test whether new rows resemble the reference rows in probabilities and label rates.

    Every guarantee requires rows that are exchangeable with the calibration rows. This test can
    show that they are not; it cannot show that they are. At most 200,000 rows are compared, evenly
    spaced if there are more.

    Args:
        new: a predictions file, or predictions.
        against: predictions of the rows that calibrator and rule were fitted on.
        false_alarms: probability of a false alarm over all labels together.

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
    second = _rows(against)
    first = _rows(new).reordered(second.labels)
    found = []
    for name in second.labels:
        sides = [side.select([name]) for side in (first, second)]
        a, b = (side.probabilities[:, 0] for side in sides)
        y, z = (_known(side) for side in sides)
        rates, rate_p = (None, None), None
        if len(y) and len(z):
            rates = float(y.mean()), float(z.mean())
            rate_p = _p_value(fisher_exact([[each.sum(), (~each).sum()] for each in (y, z)]))
        means, score_p = (float(a.mean()), float(b.mean())), _p_value(ks_2samp(a, b))
        found.append(LabelDrift(name, *means, score_p, *rates, rate_p, drifted=False))
    rejected = _holm([p for each in found for p in (each.score_p, each.rate_p)], false_alarms)
    either = zip(found, rejected[::2], rejected[1::2], strict=True)
    labels = [replace(each, drifted=score or rate) for each, score, rate in either]
    return Drift(tuple(labels), len(first), len(second), false_alarms)


def _p_value(result: Any) -> float:
    return float(result.pvalue)


def _rows(given: FilePath | Predictions) -> Predictions:
    """Return the rows to compare. There must be at least two."""
    rows = given if isinstance(given, Predictions) else Predictions.read(given)
    rows.check_dense("`drift`")
    if len(rows) < 2:
        raise InputError(f"drift needs at least 2 rows on either side; got {len(rows)}.")
    return (
        rows[np.linspace(0, len(rows) - 1, MAX_ROWS).astype(int)] if len(rows) > MAX_ROWS else rows
    )


def _known(rows: Predictions) -> Array:
    """Return the known truth of one label."""
    truth = np.empty(0) if rows.targets is None else rows.targets[:, 0]
    return truth[truth >= 0] >= 0.5


def _holm(p_values: list[float | None], level: float) -> list[bool]:
    """Return which hypotheses Holm's method rejects. A test that was not made is not rejected."""
    order = sorted((p, index) for index, p in enumerate(p_values) if p is not None)
    rejected = [False] * len(p_values)
    for rank, (p, index) in enumerate(order):
        if p > level / (len(order) - rank):
            break
        rejected[index] = True
    return rejected
