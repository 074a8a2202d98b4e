"""From scores of a model trained elsewhere to calibrated predictions, and what that changed."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from credibly import calibrate, checks, losses, metrics
from credibly.checks import InputError
from credibly.predictions import ForeignTable, Predictions, read_table
from credibly.types import Array

if TYPE_CHECKING:
    from credibly.calibrate import Calibrator
    from credibly.losses import Loss
    from credibly.metrics import Interval

TEST, CALIBRATION = 1, 2
_PIECE = 2**22


@dataclass(frozen=True)
class Rescued:
    """Calibrated predictions, with the numbers of every stage on the rows ``judged``."""

    predictions: Predictions
    calibrator: Calibrator
    fitted: Array
    judged: Array
    stages: dict[str, dict[str, float]]
    compared: str
    """The stage before the calibrator."""
    change: Interval
    """By how much the calibrator changes the log loss of that stage."""


def rescue(
    path: str, loss_name: str, *, method: str, fraction: float, rows: int | None, seed: int
) -> Rescued:
    """Read scores, apply the link of the loss, fit a calibrator on some rows, judge on others."""
    table = read_table(path, plain="scores")
    if table.scores is None or table.targets is None:
        lacking = "scores" if table.scores is None else "targets (columns 'y:<label>')"
        raise InputError(f"{table.where}must hold scores and targets; it has no {lacking}.")
    loss = losses.from_name(loss_name, num_labels=len(table.labels), num_rows=len(table.scores))
    scores = _checked_scores(loss, table)
    ranking = _in_pieces(loss.ranking_scores, scores, len(table.labels))
    bare = Predictions.from_arrays(  # checks ids, truth and scores before any work is done
        probabilities=_sigmoid(ranking),
        targets=table.targets,
        labels=table.labels,
        ids=table.ids,
        scores=ranking,
        metadata={"loss": loss_name, "seed": seed, "source": Path(path).name},
        where=table.where,
    )
    assert bare.targets is not None
    fitted, judged = split_rows(bare.targets, table, fraction=fraction, rows=rows, seed=seed)
    link = _fit_link(loss, scores[fitted], bare.targets[fitted])
    log_odds = _in_pieces(loss.log_odds, scores, len(bare.labels)) if loss.has_link else ranking
    calibrator = _fitted(method, log_odds[fitted], bare.targets[fitted], seed)
    stages = {"sigmoid of the scores": bare.probabilities}
    if loss.has_link:
        stages["link of the loss"] = _sigmoid(log_odds)
    stages[f"+ {calibrator.name}"] = _sigmoid(calibrator.transform(log_odds))
    metadata = {
        **bare.metadata,
        "link": link,
        "calibrator": calibrator.state(),
        "calibration": {"fitted_rows": len(fitted), "judged_rows": len(judged)},
    }
    return _judged(bare, stages, fitted, judged, calibrator, metadata)


def _judged(
    bare: Predictions,
    stages: dict[str, Array],
    fitted: Array,
    judged: Array,
    calibrator: Calibrator,
    metadata: dict[str, Any],
) -> Rescued:
    """All stages measured on the rows ``judged``; the last one is the result."""
    assert bare.targets is not None
    assert bare.scores is not None
    truth, ranking = bare.targets[judged], bare.scores[judged]
    *_, compared, last = stages
    return Rescued(
        predictions=replace(bare, probabilities=stages[last], metadata=metadata),
        calibrator=calibrator,
        fitted=fitted,
        judged=judged,
        stages={
            name: metrics.summary(probabilities[judged], truth, ranking)
            for name, probabilities in stages.items()
        },
        compared=compared,
        change=metrics.paired_interval(
            metrics.log_loss,
            stages[last][judged],
            stages[compared][judged],
            truth,
            method="analytic",
        ),
    )


def split_rows(
    targets: Array, table: ForeignTable, *, fraction: float, rows: int | None, seed: int
) -> tuple[Array, Array]:
    """Rows to fit on and rows to judge on; only rows with some known truth are either."""
    known = (targets >= 0).any(axis=1)
    split = table.split
    if split is not None and (split == CALIBRATION).any():
        fitted, judged = known & (split == CALIBRATION), known & (split == TEST)
        if not (fitted.any() and judged.any()):
            raise InputError(
                f"{table.where}`split` must mark rows with truth for calibration (2) and for test "
                f"(1); got {int(fitted.sum())} and {int(judged.sum())}."
            )
        return np.flatnonzero(fitted), np.flatnonzero(judged)
    if split is not None and (split == TEST).any():
        known &= split == TEST  # the model has seen the rest
    usable = np.random.default_rng(seed).permutation(np.flatnonzero(known))
    checks.fraction("fraction", fraction, low_open=True, high_open=True)
    count = round(fraction * len(usable)) if rows is None else rows
    if not 1 <= count < len(usable):
        raise InputError(
            f"{table.where}rows to fit on must lie between 1 and {len(usable) - 1}, so that some "
            f"of the {len(usable)} rows with known truth are left to judge; got {count}."
        )
    return np.sort(usable[:count]), np.sort(usable[count:])


def _checked_scores(loss: Loss, table: ForeignTable) -> Array:
    scores = np.asarray(table.scores, dtype=np.float32)
    width = len(table.labels) * loss.scores_per_label
    if scores.shape[1] != width:
        raise InputError(
            f"{table.where}`scores` must have {loss.scores_per_label} columns a label, {width}; "
            f"got {scores.shape[1]}. Does `labels` name every label once?"
        )
    bad = np.isnan(scores).any(axis=1)
    if bad.any():
        raise InputError(
            f"{table.where}scores must not be NaN; {int(bad.sum())} rows have some, the first is "
            f"row {int(bad.argmax())}. Drop those rows or score them anew."
        )
    return scores


def _fit_link(loss: Loss, scores: Array, targets: Array) -> dict[str, Any] | None:
    """What the file says about the link; a normaliser that training left behind is found anew."""
    import torch

    if not loss.has_link:
        return None
    loss.eval()
    fit_normalizer: Any = getattr(loss, "fit_normalizer", None)
    if fit_normalizer is None:
        return {"loss": str(loss)}
    fit_normalizer([(torch.from_numpy(scores), torch.from_numpy(targets))])
    return {"loss": str(loss), "normalizer": float(loss.normalizer)}  # pyright: ignore


def _in_pieces(link: Callable[[Any], Any], scores: Array, num_labels: int) -> Array:
    """``link`` of all scores, a few MB at a time."""
    import torch

    result = np.empty((len(scores), num_labels), dtype=np.float32)
    step = max(1, _PIECE // scores.shape[1])
    with torch.no_grad():
        for start in range(0, len(scores), step):
            piece = torch.from_numpy(scores[start : start + step])
            result[start : start + step] = link(piece).numpy()
    return result


def _fitted(method: str, log_odds: Array, targets: Array, seed: int) -> Calibrator:
    if method == "choose":
        return calibrate.choose(log_odds, targets, seed=seed)
    return calibrate.from_name(method).fit(log_odds, targets)


def _sigmoid(log_odds: Any) -> Array:
    from scipy.special import expit

    return expit(np.asarray(log_odds, dtype=np.float32))
