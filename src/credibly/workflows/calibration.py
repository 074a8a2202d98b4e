"""Turn the scores of a model trained elsewhere into calibrated predictions."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from credibly import calibrate, losses, metrics
from credibly.arrays import to_numpy
from credibly.checks import InputError
from credibly.predictions import ImportedTable, Predictions, read_table
from credibly.targets import Coding, decode
from credibly.types import Array
from credibly.workflows.fit_rows import FitRows

if TYPE_CHECKING:
    from credibly.calibrate import Calibrator
    from credibly.losses import Loss
    from credibly.metrics import Interval

TEST, CALIBRATION = 1, 2
_VALUES_AT_ONCE = 2**22


@dataclass(frozen=True)
class CalibratedScores:
    """Calibrated predictions, and the numbers of every stage on held-out rows.

    Attributes:
        predictions: all rows, with scores, truth and calibrated probabilities.
        loss: name of the loss whose link was applied.
        calibrator: the fitted calibrator.
        fitted: row numbers that the calibrator was fitted on.
        held_out: row numbers that the stages are measured on.
        stages: ``cr.metrics.summary`` by stage: sigmoid of the scores, link of the loss (if it has
            one), and with the calibrator.
        compared: name of the stage before the calibrator.
        change: by how much the calibrator changes the log loss of that stage, with a 95 % interval.
    """

    predictions: Predictions
    loss: str
    calibrator: Calibrator
    fitted: Array
    held_out: Array
    stages: dict[str, dict[str, float]]
    compared: str
    change: Interval

    def to_dict(self) -> dict[str, Any]:
        """Return the result, without the predictions, as a plain document."""
        return {
            "loss": self.loss,
            "calibrator": self.calibrator.state(),
            "fitted_rows": len(self.fitted),
            "judged_rows": len(self.held_out),
            "stages": self.stages,
            "nll_change": {"against": self.compared, **self.change._asdict()},
        }

    def __repr__(self) -> str:
        change, low, high = self.change
        return (
            f"{self.calibrator!r}, fitted on {len(self.fitted):,} rows, changes NLL by "
            f"{change:+.4f} [{low:+.4f}, {high:+.4f}] (95 %) against {self.compared}, "
            f"on {len(self.held_out):,} other rows"
        )


def calibrate_scores(
    scores: Any,
    targets: Any,
    loss: str | Loss,
    *,
    labels: Sequence[str] | None = None,
    method: str = "affine",
    fit_rows: FitRows | None = None,
    coding: Coding | None = None,
) -> CalibratedScores:
    """Calibrate scores with known truth: link of the loss, then a calibrator fitted on some rows.

    Args:
        scores: outputs of the model, shape (rows, labels), before any sigmoid.
        targets: 1 present, 0 absent, −1 unknown, or soft in [0, 1]; or class indices (rows,).
        loss: the loss the model was trained with, or its name, such as ``"asl"``.
        labels: names of the labels; by default "0", "1", ….
        method: name of a calibrator, or ``"choose"`` for the best one in cross-validation.
        fit_rows: the rows to fit on; by default half of those with known truth, seed 0.
        coding: what −1 means in ``targets``, as for ``cr.targets.decode``.

    Returns:
        The calibrated predictions and what each stage does to the numbers, on the other rows.

    Raises:
        InputError: if shapes disagree, scores hold NaN, or no rows are left to judge by.

    Example:
        >>> rng = np.random.default_rng(0)
        >>> scores = rng.normal(size=(400, 3))
        >>> targets = rng.random((400, 3)) < 1 / (1 + np.exp(-2 * scores))
        >>> result = calibrate_scores(scores, targets, loss="bce")
        >>> result.change.estimate < 0
        True
    """
    values = to_numpy(scores)
    if values.ndim != 2:
        raise InputError(f"`scores` must have shape (rows, labels); got {values.shape}.")
    owner = loss if not isinstance(loss, str) else _loss_for(loss, values, labels)
    count = values.shape[1] // owner.scores_per_label
    names = [str(place) for place in range(count)] if labels is None else list(labels)
    truth = decode(targets, coding=coding, num_labels=count)
    table = ImportedTable("", names, None, None, values, truth, None)
    return _calibrate_table(table, owner, str(loss), method, fit_rows or FitRows())


def calibrate_file(
    path: str | os.PathLike[str],
    loss: str,
    *,
    method: str = "affine",
    fit_rows: FitRows | None = None,
    coding: Coding | None = None,
    partial: bool = False,
) -> CalibratedScores:
    """Calibrate a file of scores and truth: .npz, .csv or .parquet.

    If the file's ``split`` marks calibration rows (2), those are fitted on and the test rows (1)
    are judged. If it marks test rows only, both parts are drawn from those, because the model has
    seen the others.

    Args:
        path: the file.
        loss: name of the loss the model was trained with.
        method: as for ``calibrate_scores``.
        fit_rows: as for ``calibrate_scores``; unused where ``split`` marks calibration rows.
        coding: what −1 means in targets of only −1 and +1: ``"signed"`` or ``"unknown"``.
        partial: whether a folder may lack shards; otherwise that is an error.

    Raises:
        InputError: as for ``calibrate_scores``, and if the file lacks scores or truth.
    """
    table = read_table(path, plain="scores", coding=coding, partial=partial)
    if table.scores is None or table.targets is None:
        lacking = "scores" if table.scores is None else "targets (columns 'y:<label>')"
        raise InputError(f"{table.where}must hold scores and targets; it has no {lacking}.")
    owner = losses.from_name(loss, num_labels=len(table.labels), num_rows=len(table.scores))
    result = _calibrate_table(table, owner, loss, method, fit_rows or FitRows())
    metadata = {**result.predictions.metadata, "source": Path(path).name}
    return replace(result, predictions=replace(result.predictions, metadata=metadata))


def _loss_for(name: str, scores: Array, labels: Sequence[str] | None) -> Loss:
    if labels is not None:
        return losses.from_name(name, num_labels=len(labels), num_rows=len(scores))
    first = losses.from_name(name, num_labels=scores.shape[1], num_rows=len(scores))
    if first.scores_per_label == 1:
        return first
    count = scores.shape[1] // first.scores_per_label
    return losses.from_name(name, num_labels=count, num_rows=len(scores))


def _calibrate_table(
    table: ImportedTable, loss: Loss, loss_name: str, method: str, fit_rows: FitRows
) -> CalibratedScores:
    scores = _checked_scores(loss, table)
    ranking = _in_batches(loss.ranking_scores, scores, len(table.labels))
    bare = Predictions.from_arrays(  # checks ids, truth and scores before any work is done
        probabilities=_sigmoid(ranking),
        targets=table.targets,
        labels=table.labels,
        ids=table.ids,
        scores=ranking,
        metadata={"loss": loss_name, "seed": fit_rows.seed},
        coding="unknown",  # decoded when they were read
        where=table.where,
    )
    assert bare.targets is not None
    fitted, held_out = _split(bare.targets, table, fit_rows)
    link = _fit_link(loss, scores[fitted], bare.targets[fitted])
    log_odds = _in_batches(loss.log_odds, scores, len(bare.labels)) if loss.has_link else ranking
    calibrator = _fit_calibrator(method, log_odds[fitted], bare.targets[fitted], fit_rows.seed)
    stages = {"sigmoid of the scores": bare.probabilities}
    if loss.has_link:
        stages["link of the loss"] = _sigmoid(log_odds)
    stages[f"+ {calibrator.name}"] = _sigmoid(calibrator.transform(log_odds))
    metadata = {
        **bare.metadata,
        "link": link,
        "calibrator": calibrator.state(),
        "calibration": {"fitted_rows": len(fitted), "judged_rows": len(held_out)},
    }
    *_, compared, last = stages
    truth, held_out_scores = bare.targets[held_out], ranking[held_out]
    return CalibratedScores(
        predictions=replace(bare, probabilities=stages[last], metadata=metadata),
        loss=loss_name,
        calibrator=calibrator,
        fitted=fitted,
        held_out=held_out,
        stages={
            name: metrics.summary(probabilities[held_out], truth, held_out_scores, coding="unknown")
            for name, probabilities in stages.items()
        },
        compared=compared,
        change=metrics.paired_interval(
            metrics.log_loss,
            stages[last][held_out],
            stages[compared][held_out],
            truth,
            method="analytic",
            coding="unknown",
        ),
    )


def _split(targets: Array, table: ImportedTable, fit_rows: FitRows) -> tuple[Array, Array]:
    """Return rows to fit on and rows to judge by; both have some known truth."""
    known = (targets >= 0).any(axis=1)
    split = table.split
    if split is not None and (split == CALIBRATION).any():
        fitted, held_out = known & (split == CALIBRATION), known & (split == TEST)
        if not (fitted.any() and held_out.any()):
            raise InputError(
                f"{table.where}`split` must mark rows with truth for calibration (2) and for test "
                f"(1); got {int(fitted.sum())} and {int(held_out.sum())}."
            )
        return np.flatnonzero(fitted), np.flatnonzero(held_out)
    if split is not None and (split == TEST).any():
        known &= split == TEST  # the model has seen the rest
    return fit_rows.draw(np.flatnonzero(known), f"{table.where}rows with known truth")


def _checked_scores(loss: Loss, table: ImportedTable) -> Array:
    scores = np.asarray(table.scores, dtype=np.float32)
    width = len(table.labels) * loss.scores_per_label
    if scores.shape[1] != width:
        raise InputError(
            f"{table.where}`scores` must have {loss.scores_per_label} columns per label, {width}; "
            f"got {scores.shape[1]}. Does `labels` name every label once?"
        )
    bad = np.isnan(scores).any(axis=1)
    if bad.any():
        raise InputError(
            f"{table.where}scores must not be NaN; {int(bad.sum())} rows have some, the first is "
            f"row {int(bad.argmax())}. Drop those rows or score them again."
        )
    return scores


def _fit_link(loss: Loss, scores: Array, targets: Array) -> dict[str, Any] | None:
    """Return what the file says about the link; fit a normalizer that only training knew."""
    import torch

    if not loss.has_link:
        return None
    loss.eval()
    loss.fit_state([(torch.from_numpy(scores), torch.from_numpy(targets))])
    return {"loss": str(loss), **loss.state_summary()}


def _in_batches(link: Callable[[Any], Any], scores: Array, num_labels: int) -> Array:
    """Apply ``link`` to all scores, a few MB at a time."""
    import torch

    result = np.empty((len(scores), num_labels), dtype=np.float32)
    step = max(1, _VALUES_AT_ONCE // scores.shape[1])
    with torch.no_grad():
        for start in range(0, len(scores), step):
            batch = torch.from_numpy(scores[start : start + step])
            result[start : start + step] = link(batch).numpy()
    return result


def _fit_calibrator(method: str, log_odds: Array, targets: Array, seed: int) -> Calibrator:
    if method == "choose":
        return calibrate.choose(log_odds, targets, seed=seed, coding="unknown")
    return calibrate.from_name(method).fit(log_odds, targets, coding="unknown")


def _sigmoid(log_odds: Any) -> Array:
    from scipy.special import expit

    return expit(np.asarray(log_odds, dtype=np.float32))
