"""A loss around an inner loss, with the link and all other properties of the inner loss."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterable
from typing import Self

import torch
from torch import Tensor

from credibly import checks
from credibly.losses.base import LinkFormula, Loss, Reduction
from credibly.losses.bce import BCE
from credibly.losses.linear.chunks import LinearForm
from credibly.losses.softmax import Softmax
from credibly.types import JsonObject, LogOdds, Probabilities, Scores

_INHERITED = (
    "scores_per_label",
    "single_label",
    "needs_indices",
    "spans_processes",
    "has_state",
    "has_link",
    "labelwise",
    "detached",
    "exclusive",
    "published",
)


class WrappedLoss(Loss):
    """A loss plus a further term. Link, outputs and state are those of the inner loss.

    A subclass defines ``_mean`` and ``values``, ``suffix`` and, if its term moves the minimiser,
    ``biases``.

    Args:
        loss: the inner loss; its ``reduction`` must be ``"mean"`` or ``"rows"``.
        reduction: ``"mean"``, ``"rows"``, ``"sum"`` or ``"none"``; see `Loss`.
    """

    name = ""
    suffix = ""

    def __init__(self, loss: Loss, *, reduction: Reduction = "mean") -> None:
        super().__init__(reduction=reduction)
        if loss.reduction not in ("mean", "rows"):
            raise checks.InputError(
                f'`loss` must have reduction="mean" or "rows"; got {loss.reduction!r}. Give '
                f"`reduction=` to `{type(self).__name__}` instead."
            )
        self.loss = loss

    def _inherit(self, *, biased: bool) -> None:
        """Copy the declarations of the inner loss; ``biased``: the term moves the minimiser."""
        for name in _INHERITED:
            setattr(self, name, getattr(self.loss, name))
        vars(self)["name"] = f"{self.loss.name}+{self.suffix}"
        self.properness = "none" if biased else self.loss.properness

    def forward(
        self, scores: Scores, targets: Tensor, weight: Tensor | None = None, **details: Tensor
    ) -> Tensor:
        checks.float_scores(scores)
        if self.reduction in ("mean", "rows"):
            return self._mean(scores, targets, weight, **details)
        return self.reduce(self.values(scores, targets, weight, **details), torch.ones(()))

    @abstractmethod
    def _mean(
        self, scores: Scores, targets: Tensor, weight: Tensor | None, **details: Tensor
    ) -> Tensor:
        """Return the mean of the inner loss, and of the term."""

    def log_odds(self, scores: Scores) -> LogOdds:
        return self.loss.log_odds(scores)

    def known_log_odds(self, scores: Scores, known: Tensor) -> LogOdds:
        return self.loss.known_log_odds(scores, known)

    def probabilities(self, scores: Scores) -> Probabilities:
        return self.loss.probabilities(scores)

    def ranking_scores(self, scores: Scores) -> Scores:
        return self.loss.ranking_scores(scores)

    def formula(self) -> LinkFormula | None:
        return self.loss.numpy_link()

    def ranking_formula(self) -> LinkFormula | None:
        return self.loss.numpy_link(ranking=True)

    def initial_scores(self, label_rates: Tensor) -> Scores:
        return self.loss.initial_scores(label_rates)

    def fit_state(self, batches: Iterable[tuple[Scores, Tensor]]) -> Self:
        self.loss.fit_state(batches)
        return self

    def state_summary(self) -> dict[str, float]:
        return self.loss.state_summary()

    def _row_values(
        self, scores: Scores, targets: Tensor, weight: Tensor | None, details: JsonObject
    ) -> Tensor:
        """Return one value of the inner loss per row, reduced over labels by its ``reduction``."""
        values = self.loss.values(scores, targets, weight, **details)
        if values.ndim < scores.ndim:
            return values
        values, known = values.sum(-1), (targets >= 0).sum(-1).clamp(min=1)
        return values if self.loss.reduction == "rows" else values / known

    def extra_repr(self) -> str:
        return f"{self.loss}, {super().extra_repr()}"


class Published(WrappedLoss):
    r"""A loss with the map from scores to probabilities that its paper prints.

    Training is that of the inner loss. Only the link differs, if the authors use another map than
    the link that belongs to the loss:

    * `AverageK`, `AssumeNegative`, `ExpectedPositive`, `OnlineEstimation` and `BalancedTopK`:
      softmax of the scores. Garcin et al. (2023), Algorithm 1 and Eqs. 16–17, apply it to any
      head that predicts.
    * `Focal`, `Asymmetric`, and the losses without a link `TwoWay`, `Warp` and `RobustMultiLabel`:
      sigmoid of the scores.

    Probabilities of such a map are not proper, so ``properness`` is ``"none"``. The presets of the
    average-K paper use it. Every other loss is unchanged.

    Args:
        loss: any loss; its ``reduction`` must be ``"mean"`` or ``"rows"``.
        reduction: ``"mean"``, ``"rows"``, ``"sum"`` or ``"none"``; see `Loss`.

    Example:
        >>> import torch
        >>> from credibly.losses.assume_negative import AssumeNegative
        >>> loss = Published(AssumeNegative())
        >>> loss.probabilities(torch.tensor([[2.0, -1.0, 0.0]]))
        tensor([[0.8438, 0.0420, 0.1142]])
        >>> loss.name
        'an+published'
    """

    suffix = "published"

    def __init__(self, loss: Loss, *, reduction: Reduction = "mean") -> None:
        super().__init__(loss, reduction=reduction)
        links: dict[str, Loss] = {"sigmoid": BCE(), "softmax": Softmax()}
        self.link = links.get(loss.published)
        self._inherit(biased=self.link is not None)
        if self.link is not None:
            self.labelwise, self.exclusive = self.link.labelwise, self.link.exclusive
            self.has_link = True

    def _mean(
        self, scores: Scores, targets: Tensor, weight: Tensor | None, **details: Tensor
    ) -> Tensor:
        return self.loss(scores, targets, weight, **details)

    def values(
        self, scores: Scores, targets: Tensor, weight: Tensor | None = None, **details: Tensor
    ) -> Tensor:
        """Return the values of the inner loss."""
        return self.loss.values(scores, targets, weight, **details)

    def linear_form(self) -> LinearForm | None:
        return self.loss.linear_form()

    def log_odds(self, scores: Scores) -> LogOdds:
        return self.loss.published_log_odds(scores)

    def formula(self) -> LinkFormula | None:
        if self.link is None:
            return super().formula()
        ranking, link = self.ranking_formula(), self.link.formula()
        return None if ranking is None or link is None else {**ranking, **link}

    def known_log_odds(self, scores: Scores, known: Tensor) -> LogOdds:
        return self._source().known_log_odds(self._read(scores), known)

    def top_log_odds(self, scores: Scores, log_sum: Tensor) -> LogOdds:
        return self._source().top_log_odds(scores, log_sum)

    def probabilities(self, scores: Scores) -> Probabilities:
        return torch.sigmoid(self.log_odds(scores))

    def _source(self) -> Loss:
        return self.loss if self.link is None else self.link

    def _read(self, scores: Scores) -> Scores:
        """Return the argument of the link: the scores, or those of the head that predicts."""
        return scores if self.link is None else self.loss.ranking_scores(scores)
