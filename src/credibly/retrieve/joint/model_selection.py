"""Choose and fit a joint model on held-out predictions, by joint log score."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from credibly import checks
from credibly.checks import InputError
from credibly.predictions import Predictions
from credibly.retrieve.index import hard
from credibly.retrieve.joint.model import MAX_FITTED, SMALLEST, Joint, fitting_truth
from credibly.targets import Coding, Targets, TargetsLike
from credibly.types import Array, ArrayLike, FilePath

FEWEST_ROWS = 50
_LEAST_GAIN = 0.002  # nats per row; a richer model must gain more to be chosen
_MAX_COMPARED = 2000
_MAX_LOST = 0.01  # limit on the relative increase of the log loss of single labels
_MANY_CELLS = 100_000  # rows × labels; above it, three folds are enough


@dataclass(frozen=True)
class JointFit:
    """The chosen model, and the scores of all candidates.

    Attributes:
        model: the chosen model, fitted on all given rows (at most 10,000).
        chosen: its name in ``log_scores``.
        log_scores: mean joint log score per row of each candidate, on out-of-fold rows.
        log_losses: mean log loss of single labels, on the same rows.
        rows: number of rows with known truth.
    """

    model: Joint
    chosen: str
    log_scores: dict[str, float]
    log_losses: dict[str, float]
    rows: int


def fit_joint(
    probabilities: ArrayLike,
    targets: TargetsLike,
    labels: Sequence[str],
    *,
    coding: Coding | None = None,
    components: Sequence[int] = (1, 3),
    seed: int = 0,
) -> JointFit:
    """Fit joint models on held-out predictions and return the best one.

    Candidates, from simple to rich, are independence and ``Joint`` with each number of
    ``components``. A richer candidate must beat the best so far in cross-validated joint log score
    by more than one standard error and 0.002 per row, so little truth gives a simple model. A
    candidate is excluded if its log loss of single labels exceeds that of the predictions by more
    than 1 % plus one standard error. With fewer than 50 rows, labels stay independent.

    Args:
        probabilities: (rows, labels), of rows that the model was not trained on.
        targets: their truth; unknown labels are summed out.
        labels: names of the columns.
        coding: how ``targets`` are coded, if that is ambiguous.
        components: numbers of components to try; those above the number of rows are ignored.
        seed: seed of folds and starts.

    Example:
        >>> probabilities = np.full((400, 2), 0.5)   # a cat or a dog, never both
        >>> targets = np.tile([[1, 0], [0, 1]], (200, 1))
        >>> fit_joint(probabilities, targets, ["cat", "dog"]).chosen
        'mixture-1'
    """
    decoded = Targets.beside(probabilities, targets, "probabilities", coding=coding)
    chances, truth, names = fitting_truth(probabilities, decoded, labels)
    rows = len(chances)
    order = np.random.default_rng(seed).permutation(rows)
    compared = order[:_MAX_COMPARED]
    folds = 3 if chances[compared].size > _MANY_CELLS else 5
    candidates = _candidates(components, len(compared), folds, seed)
    if rows < FEWEST_ROWS:
        candidates = {}
    shown = chances[compared], truth[compared]
    scores = {"independent": _log_scores(*shown)}
    losses = {"independent": -scores["independent"]}
    chosen = "independent"
    for name, model in candidates.items():
        scores[name], losses[name] = _held_out(model, *shown, names, folds)
        gain = scores[name] - scores[chosen]
        if _keeps(losses[name], losses["independent"]) and gain.mean() > max(
            _LEAST_GAIN, gain.std() / np.sqrt(len(gain))
        ):
            chosen = name
    model = Joint.independent(names)
    if chosen != "independent":
        fitted = order[:MAX_FITTED]
        model = candidates[chosen].fit(chances[fitted], Targets(truth[fitted]), names)
    means = {name: float(values.mean()) for name, values in scores.items()}
    known = int((shown[1] >= 0).sum())
    means_of_labels = {name: float(values.sum()) / known for name, values in losses.items()}
    return JointFit(model, chosen, means, means_of_labels, rows)


def _candidates(components: Sequence[int], rows: int, folds: int, seed: int) -> dict[str, Joint]:
    numbers = sorted({int(checks.at_least("components", each, 1)) for each in components})
    fitted = rows - -(-rows // folds)
    return {f"mixture-{k}": Joint(k, 1.0, seed) for k in numbers if k <= fitted}


def _log_scores(chances: Array, truth: Array) -> Array:
    """Return the log-probability of each row's known labels if they are independent."""
    each = np.where(truth == 1, np.log(chances), np.log1p(-chances))
    return (each * (truth >= 0)).sum(axis=1)


def _keeps(losses: Array, independent: Array) -> bool:
    """Return whether log losses of single labels are within the limit plus one standard error."""
    excess = losses - (1 + _MAX_LOST) * independent
    return bool(excess.mean() <= excess.std() / np.sqrt(len(excess)))


def _held_out(
    model: Joint, chances: Array, truth: Array, names: Sequence[str], folds: int
) -> tuple[Array, Array]:
    """Return the out-of-fold joint log score and summed marginal log loss of each row."""
    scores, marginals = np.empty(len(chances)), np.empty_like(chances)
    for fold in range(folds):
        judged = np.arange(len(chances)) % folds == fold
        fitted = model.fit(chances[~judged], Targets(truth[~judged]), names)
        scores[judged] = fitted.log_likelihood(chances[judged], Targets(truth[judged]), names)
        marginals[judged] = fitted.marginals(chances[judged], names)
    if not np.isfinite(scores).all():
        raise InputError("a joint model gave a row of truth no probability; report this as a bug.")
    return scores, -_log_scores(np.clip(marginals, SMALLEST, 1 - SMALLEST), truth)


def joint_from(
    path: FilePath, *, others: Sequence[FilePath | None] = (), partial: bool = False
) -> Joint:
    """Return a joint model of labels, read from a file or fitted on predictions.

    Args:
        path: a .json file of ``credibly joint fit``, or held-out predictions to fit one on.
        others: the predictions that the model is for; it must not be fitted on them.
        partial: whether a folder may lack shards; by default that is an error.

    Raises:
        InputError: if there is no truth to fit on, or the file is not a joint model.
    """
    if path in others:
        raise InputError(f"`joint_from` must hold other rows than the predictions; got {path}.")
    if Path(path).suffix == ".json":
        return Joint.read(path)
    return fit_joint_file(path, partial=partial).model


def fit_joint_file(
    path: FilePath,
    *,
    components: tuple[int, ...] = (1, 3),
    seed: int = 0,
    partial: bool = False,
) -> JointFit:
    """Fit a joint model on held-out predictions with their truth; see ``retrieve.fit_joint``."""
    held_out = Predictions.read(path, partial=partial)
    held_out.check_dense("a joint model")
    if held_out.targets is None:
        raise InputError(
            f"a joint model is fitted on rows with known truth; {path} has none. Name held-out "
            "predictions with truth."
        )
    return fit_joint(
        held_out.probabilities,
        Targets(hard(held_out.targets)),
        held_out.labels,
        components=components,
        seed=seed,
    )
