"""From scores of a model trained elsewhere to calibrated predictions, and what that changed."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from credibly import _checks, calibrate, losses, metrics
from credibly._checks import InputError
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
    ranking, log_odds = _through_link(loss, table)
    bare = Predictions.from_arrays(  # checks ids, truth and scores before any work is done
        probabilities=_sigmoid(ranking),
        targets=table.targets,
        labels=table.labels,
        ids=table.ids,
        scores=ranking,
        where=table.where,
    )
    assert bare.targets is not None
    fitted, judged = split_rows(bare.targets, table, fraction=fraction, rows=rows, seed=seed)
    calibrator = _fitted(method, log_odds[fitted], bare.targets[fitted], seed)
    stages = {"sigmoid of the scores": bare.probabilities}
    if loss.has_link:
        stages[f"link of {loss_name}"] = _sigmoid(log_odds)
    compared = list(stages)[-1]
    final = stages[f"+ {method}"] = _sigmoid(calibrator.transform(log_odds))
    truth = bare.targets[judged]
    return Rescued(
        predictions=Predictions.from_arrays(
            probabilities=final,
            targets=bare.targets,
            labels=bare.labels,
            ids=bare.ids,
            scores=bare.scores,
            metadata={
                "loss": loss_name,
                "link": loss_name if loss.has_link else None,
                "calibrator": calibrator.state(),
                "calibration": {"rows": len(fitted), "judged": len(judged)},
                "seed": seed,
                "source": Path(path).name,
            },
        ),
        calibrator=calibrator,
        fitted=fitted,
        judged=judged,
        stages={
            name: metrics.summary(probabilities[judged], truth, ranking[judged])
            for name, probabilities in stages.items()
        },
        compared=compared,
        change=metrics.paired_interval(
            metrics.log_loss, final[judged], stages[compared][judged], truth, method="analytic"
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
    _checks.fraction("fraction", fraction, low_open=True, high_open=True)
    count = round(fraction * len(usable)) if rows is None else rows
    if not 1 <= count < len(usable):
        raise InputError(
            f"{table.where}rows to fit on must lie between 1 and {len(usable) - 1}, so that some "
            f"of the {len(usable)} rows with known truth are left to judge; got {count}."
        )
    return np.sort(usable[:count]), np.sort(usable[count:])


def _through_link(loss: Loss, table: ForeignTable) -> tuple[Array, Array]:
    """What to rank by, and log-odds (the same where the loss has no link), in pieces."""
    import torch

    scores = np.asarray(table.scores, dtype=np.float32)
    width = len(table.labels) * loss.scores_per_label
    if scores.shape[1] != width:
        raise InputError(
            f"{table.where}`scores` must have {loss.scores_per_label} columns a label, {width}; "
            f"got {scores.shape[1]}. Does `labels` name every label once?"
        )
    _checks.no_nan(f"{table.where}scores", scores)
    ranking = np.empty((len(scores), len(table.labels)), dtype=np.float32)
    log_odds = np.empty_like(ranking)
    step = max(1, _PIECE // width)
    loss.eval()
    with torch.no_grad():
        for start in range(0, len(scores), step):
            piece = torch.from_numpy(scores[start : start + step])
            rank = loss.ranking_scores(piece)
            ranking[start : start + step] = rank.numpy()
            odds = loss.log_odds(piece) if loss.has_link else rank
            log_odds[start : start + step] = odds.numpy()
    return ranking, log_odds


def _fitted(method: str, log_odds: Array, targets: Array, seed: int) -> Calibrator:
    if method == "choose":
        return calibrate.choose(log_odds, targets, seed=seed)
    return calibrate.from_name(method).fit(log_odds, targets)


def _sigmoid(log_odds: Any) -> Array:
    from scipy.special import expit

    return expit(np.asarray(log_odds, dtype=np.float32))
