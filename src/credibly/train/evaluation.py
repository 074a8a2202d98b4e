"""Which epoch was best: metrics of held-out rows, as the finished run would have them."""

from __future__ import annotations

import warnings
from typing import TYPE_CHECKING

import numpy as np
from torch import Tensor, nn

from credibly.pipeline import Pipeline
from credibly.runtime import sigmoid
from credibly.targets import Targets
from credibly.train.distributed import score
from credibly.train.recipes import Recipe
from credibly.types import Array

if TYPE_CHECKING:
    from accelerate import Accelerator

    from credibly.losses import Loss
    from credibly.train.distributed import SingleProcess


ENTRIES_TO_FIT = 100_000
"""Number of held-out entries, evenly chosen, that the evaluator's affine map is fitted on."""


class EpochEvaluator:
    """Turns held-out scores into figures and one number to select by; lower is better.

    The number is the log loss after an affine calibration of those same rows: a proper score, and
    the one the finished run will have, since calibration follows. Without it an epoch whose
    scores rank well but are too steep would lose to a worse one, and losses without a link could
    not be judged at all. ``select`` may ask for mAP, for the accuracy of the first label
    or for average-K accuracy instead.
    """

    sparse = False
    """Whether targets are sparse: rows are then not scored for all labels."""

    def __init__(self, recipe: Recipe, rows: object, targets: Array) -> None:
        self.recipe, self.rows = recipe, rows
        self.targets = Targets.of(targets, coding="unknown")  # int8 where they are whole

    def measure(
        self, model: nn.Module, criterion: Loss, accelerator: Accelerator | SingleProcess
    ) -> dict[str, float]:
        """Return the figures of the held-out rows under ``model``; none where there are none."""
        if not len(self.targets.matrix):
            return {"selection": 0.0}
        return self(criterion, score(model, self.rows, accelerator, self.recipe.workers))

    def __call__(self, criterion: Loss, scores: Tensor) -> dict[str, float]:
        pipeline, array = Pipeline(criterion), scores.numpy()
        return self.figures(pipeline.link_log_odds(array), pipeline.ranking_scores(array))

    def figures(self, odds: Array, ranked: Array) -> dict[str, float]:
        """Return the figures of log-odds, and of the scores that rows are ranked by."""
        from credibly import metrics
        from credibly.metrics.summaries import MIN_COUNT

        if self.recipe.calibrate != "none":
            odds = self._calibrated(odds)
        estimates = sigmoid(odds)
        precision = metrics.average_precision(ranked, self.targets)
        figures = {
            "nll": float(metrics.log_loss(estimates, self.targets)),
            "map": float(np.nanmean(precision)) if not np.isnan(precision).all() else 0.0,
            "ace": float(
                metrics.calibration_error(estimates, self.targets, "ace", min_count=MIN_COUNT)
            ),
        }
        if self.recipe.select == "accuracy":
            first = np.take_along_axis(self.targets.matrix, ranked.argmax(1)[:, None], axis=1)
            figures["accuracy"] = float((first == 1).mean())
        if self.recipe.select == "average-k":
            figures["average-k"] = self._coverage(estimates)
        return {**figures, "selection": self._selection(figures)}

    def _calibrated(self, odds: Array) -> Array:
        from credibly import calibrate

        # Two numbers are settled long before a million entries; every epoch pays for this fit.
        known = np.flatnonzero((self.targets.matrix >= 0).any(axis=1))
        rows = known[:: max(1, len(known) * odds.shape[1] // ENTRIES_TO_FIT)]
        # After a first epoch scores may still rank backwards; only the finished run need warn.
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UserWarning)
            return calibrate.Affine().fit(odds[rows], self.targets[rows]).transform(odds)

    def _coverage(self, estimates: Array) -> float:
        from credibly import decide, metrics

        assert self.recipe.average_size is not None
        sets = decide.AverageSize(self.recipe.average_size).fit(estimates).predict(estimates)
        return float(metrics.set_coverage(sets, self.targets))

    def _selection(self, figures: dict[str, float]) -> float:
        chosen = self.recipe.select
        if chosen == "last":
            return 0.0
        return figures["nll"] if chosen == "nll" else -figures[chosen]
