"""Scorers for scikit-learn: ``cross_val_score(model, X, Y, scoring=cr.metrics.scorer("nll"))``."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, Self

import numpy as np

from credibly.arrays import in_order, label_columns
from credibly.checks import InputError, nearest
from credibly.metrics.accumulators import floating
from credibly.metrics.calibration import (
    COUNT,
    LOG_LOSS,
    SQUARED_ERROR,
    brier,
    calibration_error,
    log_loss,
    row_scores,
)
from credibly.metrics.ranking import mean_average_precision
from credibly.targets import Coding, Targets, TargetsLike
from credibly.types import ArrayLike

if TYPE_CHECKING:
    from sklearn.utils.metadata_routing import MetadataRequest


@dataclass(frozen=True)
class _Number:
    """One metric of targets and probabilities (or of scores, if only their order counts)."""

    metric: Callable[..., Any]
    ranks: bool = False
    row_sum: int | None = None
    """Which of ``row_scores``, for numbers that are means of entries and so take weights."""


NUMBERS = {
    "nll": _Number(log_loss, row_sum=LOG_LOSS),
    "brier": _Number(brier, row_sum=SQUARED_ERROR),
    "ace": _Number(partial(calibration_error, kind="ace")),
    "mce": _Number(partial(calibration_error, kind="mce")),
    "ece": _Number(partial(calibration_error, kind="ece")),
    "map": _Number(mean_average_precision, ranks=True),
    "map_rows": _Number(partial(mean_average_precision, over="samples"), ranks=True),
}


def measure(
    scores: ArrayLike, probabilities: ArrayLike | None, targets: TargetsLike
) -> dict[str, float]:
    """Return the metrics of ``scorer`` by name; without probabilities, only ranking metrics.

    Args:
        scores: (rows, labels), the values to rank by.
        probabilities: (rows, labels) in [0, 1], or None.
        targets: coded as ``credibly.targets`` says.

    Example:
        >>> p = np.array([[0.9, 0.2], [0.3, 0.8]])
        >>> list(measure(p, None, np.array([[1, 0], [0, 1]])))
        ['map', 'map_rows']
    """
    numbers = {}
    for name, number in NUMBERS.items():
        values = scores if number.ranks else probabilities
        if values is not None:
            numbers[name] = float(number.metric(values, targets))
    return numbers


class Scorer:
    """Score a classifier's ``predict_proba`` on rows. Greater is better, so losses are negative.

    Make one with ``scorer``. It works with every form of ``predict_proba`` that scikit-learn has
    for several labels: a matrix, or a list with one array per label.
    """

    def __init__(self, name: str, decode: Callable[..., Targets]) -> None:
        self.name, self._decode = name, decode
        self._weighted: bool | None = None

    def __call__(self, estimator: Any, X: Any, y: Any, sample_weight: Any = None) -> float:
        number = NUMBERS[self.name]
        estimates = label_columns(estimator.predict_proba(X), estimator.classes_)
        targets = self._targets(y, estimator.classes_, estimates.shape[1])
        sign = 1 if number.ranks else -1
        if sample_weight is None:
            return sign * float(number.metric(estimates, targets))
        if number.row_sum is None:
            usable = ", ".join(name for name, known in NUMBERS.items() if known.row_sum is not None)
            raise InputError(
                f"`sample_weight` needs a number that is a mean over entries: {usable}; got "
                f"{self.name!r}."
            )
        totals = np.asarray(sample_weight, float) @ row_scores(floating(estimates), targets.matrix)
        return sign * float(totals[number.row_sum] / totals[COUNT])

    def _targets(self, y: Any, classes: Any, num_labels: int) -> Targets:
        """Return targets of a matrix, a data frame, a sparse matrix or class labels."""
        from scipy import sparse

        named = np.ndim(classes) == 1 and isinstance(classes[0], str)
        y = in_order(y, list(classes) if named else None, "y")
        array = y.toarray() if sparse.issparse(y) else np.asarray(y)
        if array.ndim == 2:
            return self._decode(array, num_labels=num_labels, name="y")
        known = {label: place for place, label in enumerate(np.asarray(classes).tolist())}
        places = np.array([known.get(label, -2) for label in array.tolist()])
        if (places < 0).any():
            label = array[int((places < 0).argmax())]
            raise InputError(f"`y` must hold classes that the estimator knows; got {label!r}.")
        return Targets.of(places, num_labels=num_labels)

    def set_score_request(self, *, sample_weight: bool | None = None) -> Self:
        """Request ``sample_weight`` from scikit-learn's metadata routing."""
        self._weighted = sample_weight
        return self

    def get_metadata_routing(self) -> MetadataRequest:
        """Return the requests of the scorer, for scikit-learn's metadata routing."""
        from sklearn.utils.metadata_routing import MetadataRequest

        request = MetadataRequest(owner=str(self))
        request.score.add_request(param="sample_weight", alias=self._weighted)
        return request

    def __repr__(self) -> str:
        return f"scorer({self.name!r})"


def scorer(name: str, *, coding: Coding | None = None) -> Scorer:
    """Return a scorer for scikit-learn's ``scoring=`` arguments.

    Args:
        name: ``nll``, ``brier``, ``ace``, ``mce``, ``ece`` (all negative, since greater is better),
            ``map`` or ``map_rows``.
        coding: how to read truth of only −1 and +1; see ``credibly.targets``.

    Example:
        >>> from sklearn.linear_model import LogisticRegression
        >>> from sklearn.datasets import load_iris
        >>> X, y = load_iris(return_X_y=True)
        >>> scorer("nll")(LogisticRegression(max_iter=1000).fit(X, y), X, y) > -0.2
        True
    """
    if name not in NUMBERS:
        raise InputError(f"unknown score {name!r}. {nearest(name, NUMBERS)}")
    return Scorer(name, partial(Targets.of, coding=coding))
