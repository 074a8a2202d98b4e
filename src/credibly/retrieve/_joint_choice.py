"""Choose the joint model that held-out truth supports, by cross-validated joint log score."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from credibly import checks
from credibly.checks import InputError
from credibly.retrieve._joint import SIZES_VERSION, Joint
from credibly.retrieve._joint_model import JointModel, fitting_truth, read_state
from credibly.retrieve._mixture import MixtureJoint
from credibly.targets import Coding
from credibly.types import Array, ArrayLike

FEWEST_ROWS = 50
_LEAST_GAIN = 0.002  # nats per row: below this a richer model is not worth its time
_MOST_COMPARED = 2000
_MOST_FITTED = 10_000
_MOST_SIZES = 100_000  # cells (rows × labels) above which ``Joint`` is too slow to be a candidate


@dataclass(frozen=True)
class JointFit:
    """The chosen model, and the scores it was chosen by.

    Attributes:
        model: fitted on all rows given (at most 10,000).
        chosen: its name in ``log_scores``.
        log_scores: mean joint log score per row of each candidate, on rows it was not fitted on.
        rows: number of rows with known truth.
    """

    model: JointModel
    chosen: str
    log_scores: dict[str, float]
    rows: int


def fit_joint(
    probabilities: ArrayLike,
    targets: ArrayLike,
    labels: Sequence[str],
    *,
    coding: Coding | None = None,
    components: Sequence[int] = (1, 3),
    folds: int = 5,
    seed: int = 0,
) -> JointFit:
    """Fit joint models of labels on held-out predictions and return the best supported one.

    Candidates, from simple to rich: independence, ``MixtureJoint(1)``, ``Joint`` (one factor for
    each number of labels; left out for large data, where it is slow) and ``MixtureJoint`` with each
    number of ``components``. A richer one must beat the best so far in cross-validated joint
    log score by more than one standard error and 0.002 per row, so little truth gives a simple
    model; with fewer than 50 rows labels stay independent.

    Args:
        probabilities: (rows, labels), of rows that the model was not trained on.
        targets: their truth; unknown labels are summed out.
        labels: names of the columns.
        coding: how ``targets`` are coded, where that is ambiguous.
        components: numbers of components to try; those above the number of rows are left out.
        folds: of the cross-validation.
        seed: of folds and starts.

    Example:
        >>> probabilities = np.full((400, 2), 0.5)   # a cat or a dog, never both
        >>> targets = np.tile([[1, 0], [0, 1]], (200, 1))
        >>> fit_joint(probabilities, targets, ["cat", "dog"]).chosen
        'mixture-1'
    """
    chances, truth, names = fitting_truth(probabilities, targets, labels, coding)
    folds = int(checks.at_least("folds", folds, 2))
    rows = len(chances)
    order = np.random.default_rng(seed).permutation(rows)
    compared = order[:_MOST_COMPARED]
    candidates = _candidates(components, chances[compared].size, len(compared), folds, seed)
    if rows < FEWEST_ROWS:
        candidates = {}
    scores = {"independent": _independent(chances[compared], truth[compared])}
    for name, model in candidates.items():
        scores[name] = _held_out(model, chances[compared], truth[compared], names, folds)
    chosen = "independent"
    for name, values in scores.items():
        gain = values - scores[chosen]
        if gain.mean() > max(_LEAST_GAIN, gain.std() / np.sqrt(len(gain))):
            chosen = name
    model: JointModel = MixtureJoint.independent(names)
    if chosen != "independent":
        fitted = order[:_MOST_FITTED]
        model = candidates[chosen].fit(chances[fitted], truth[fitted], names, coding="unknown")
    means = {name: float(values.mean()) for name, values in scores.items()}
    return JointFit(model, chosen, means, rows)


def read_joint(path: str | os.PathLike[str]) -> JointModel:
    """Return the fitted joint model in a JSON file, of whichever kind it is."""
    state = read_state(path)
    try:
        kind = Joint if state.get("joint") == SIZES_VERSION else MixtureJoint
        return kind.from_state(state)
    except InputError as error:
        raise InputError(f"{path} must be written by `credibly joint fit`; {error}") from error


def _candidates(
    components: Sequence[int], cells: int, rows: int, folds: int, seed: int
) -> dict[str, Joint | MixtureJoint]:
    found: dict[str, Joint | MixtureJoint] = {}
    for number in sorted({int(checks.at_least("components", each, 1)) for each in components}):
        if number <= rows - -(-rows // folds):
            found[f"mixture-{number}"] = MixtureJoint(number, 1.0, seed)
    if cells > _MOST_SIZES:
        return found
    return {"mixture-1": MixtureJoint(1, 1.0, seed), "sizes": Joint(), **found}


def _independent(chances: Array, truth: Array) -> Array:
    known = np.where(truth == 1, np.log(chances), np.log1p(-chances))
    return (known * (truth >= 0)).sum(axis=1)


def _held_out(
    model: Joint | MixtureJoint, chances: Array, truth: Array, names: Sequence[str], folds: int
) -> Array:
    """Return the log score of each row under the model fitted on the other folds."""
    values = np.empty(len(chances))
    for fold in range(folds):
        judged = np.arange(len(chances)) % folds == fold
        fitted = model.fit(chances[~judged], truth[~judged], names, coding="unknown")
        values[judged] = fitted.log_likelihood(
            chances[judged], truth[judged], names, coding="unknown"
        )
    if not np.isfinite(values).all():
        raise InputError("a joint model gave a row of truth no probability; report this as a bug.")
    return values
