"""A loss around another loss: it keeps the link and everything else of the one inside."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Self

from torch import Tensor

from credibly import checks
from credibly.losses.base import Formula, Loss, Reduction
from credibly.types import LogOdds, Probabilities, Scores, Targets, Values


class WrappedLoss(Loss):
    """A loss plus a term of its own. The link, the outputs and the state are the inner loss's.

    A subclass gives ``forward`` and ``values``, ``suffix`` and, where its term moves the minimiser,
    ``biases``.

    Args:
        loss: the inner loss; its ``reduction`` must be ``"mean"`` or ``"rows"``.
        reduction: ``"mean"``, ``"rows"``, ``"sum"`` or ``"none"``; see `Loss`.
    """

    name = ""
    suffix = ""
    from_text = False

    def __init__(self, loss: Loss, *, reduction: Reduction = "mean") -> None:
        super().__init__(reduction=reduction)
        if loss.reduction not in ("mean", "rows"):
            raise checks.InputError(
                f'`loss` must have reduction="mean" or "rows"; got {loss.reduction!r}. Give '
                f"`reduction=` to `{type(self).__name__}` instead."
            )
        self.loss = loss

    def _inherit(self, *, biased: bool) -> None:
        """Declare of itself what the inner loss declares; ``biased``: the minimiser moves."""
        loss = self.loss
        vars(self).update(
            name=f"{loss.name}+{self.suffix}",
            properness="none" if biased else loss.properness,
            scores_per_label=loss.scores_per_label,
            single_label=loss.single_label,
            needs_indices=loss.needs_indices,
            spans_processes=loss.spans_processes,
            has_state=loss.has_state,
            has_link=loss.has_link,
            labelwise=loss.labelwise,
            detached=loss.detached,
            exclusive=loss.exclusive,
            published=loss.published,
        )

    def log_odds(self, scores: Scores) -> LogOdds:
        return self.loss.log_odds(scores)

    def known_log_odds(self, scores: Scores, known: Tensor) -> LogOdds:
        return self.loss.known_log_odds(scores, known)

    def probabilities(self, scores: Scores) -> Probabilities:
        return self.loss.probabilities(scores)

    def ranking_scores(self, scores: Scores) -> Scores:
        return self.loss.ranking_scores(scores)

    def formula(self) -> Formula | None:
        return self.loss.numpy_link()

    def ranking_formula(self) -> Formula | None:
        return self.loss.numpy_link(ranking=True)

    def initial_scores(self, label_rates: Tensor) -> Scores:
        return self.loss.initial_scores(label_rates)

    def fit_state(self, batches: Iterable[tuple[Scores, Targets]]) -> Self:
        self.loss.fit_state(batches)
        return self

    def state_summary(self) -> dict[str, float]:
        return self.loss.state_summary()

    def _row_values(
        self, scores: Scores, targets: Targets, weight: Tensor | None, details: dict[str, Any]
    ) -> Values:
        """Return one value of the inner loss per row, reduced over labels as it says."""
        values = self.loss.values(scores, targets, weight, **details)
        if values.ndim < scores.ndim:
            return values
        values, known = values.sum(-1), (targets >= 0).sum(-1).clamp(min=1)
        return values if self.loss.reduction == "rows" else values / known

    def extra_repr(self) -> str:
        return f"{self.loss}, {super().extra_repr()}"
