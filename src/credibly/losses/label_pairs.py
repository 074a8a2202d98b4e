"""Label pair regularizer around any loss that has a link."""

from __future__ import annotations

from typing import Literal

import torch
from torch import Tensor

from credibly import checks
from credibly import targets as coding
from credibly.losses.base import Loss, Reduction, working_precision
from credibly.losses.collectives import all_reduce_sum, process_count
from credibly.losses.fused.pairs import PairsForm, row_pairs
from credibly.losses.wrapped import WrappedLoss
from credibly.types import LogOdds, Scores

PLATEAU = 50.0
"""Log-odds of links with a plateau are taken within ± this: a probability of 2e-22."""


class LabelPairs(WrappedLoss):
    r"""A loss plus the label pair regularizer, which ranks present labels above absent ones.

    $$\ell + \lambda\, \frac{2}{T(T-1)} \sum_{t:\,y_t = 1} \; \sum_{t':\,y_{t'} = 0}
      \mathrm{softplus}(g_{t'} - g_t)$$

    on log-odds $g$, not on scores, averaged over the rows that have a known label. $T$ counts the
    known labels of the row, so an unknown label changes nothing. Cheng & Vasconcelos (2024), Eq. 20
    (the condition of Eq. 18 taken as $y_t \ne y_{t'}$). Rows without present or without absent
    labels add nothing. With soft targets, the pair $(t, t')$ has the weight $y_t (1 - y_{t'})$.

    The link is that of the wrapped loss. If labels are independent given the input, the minimiser
    does not change. If they depend on each other, it is biased: in one case with $\lambda = 1$,
    true rates of .50 and .35 became .551 and .266. The likelihood of `JointMixture` contains the
    pairs already, so that loss is refused. The labels of a softmax depend on each other, because
    exactly one is present: there ``properness`` is ``"none"``. It is also ``"none"`` with
    ``on="published"`` if the published log-odds differ from those of the link: pairs then move the
    minimiser even of independent labels.

    Where a link is flat, it has no gradient (`Asymmetric` with a margin has log-odds of −∞ for p ≤
    m). The log-odds of such a link are clipped to ±50, without gradient beyond, so value and
    gradient remain finite.

    Time is O(positives × labels) per row, and memory is that of the scores. Under ``torch.compile``
    and ``torch.func.vmap``, the number of positives is unknown, so both are O(labels²) per row.

    Args:
        loss: any loss with a link; its ``reduction`` must be ``"mean"`` or ``"rows"``.
        weight: $\lambda \ge 0$. The paper gives no value. Held-out log loss selected the
            smallest weights tried, 0 to 0.1 (benchmarks/results/spa.md).
        on: the log-odds to compare. ``"link"``: those of the loss's link. ``"published"``:
            those of the paper's tables, $\hat\eta = \sigma(v)$ for `Focal` and `Asymmetric`.
            The two differ only for these losses.
        reduction: ``"mean"``, ``"rows"``, ``"sum"`` or ``"none"``; see `Loss`.

    Example:
        >>> from credibly.losses.spa import SPA
        >>> loss = LabelPairs(SPA())
        >>> loss(torch.tensor([[0.0, 2.0]]), torch.tensor([[1.0, 0.0]]))
        tensor(5.0970)
        >>> loss.name
        'spa+lpr'
    """

    suffix = "lpr"

    def __init__(
        self,
        loss: Loss,
        weight: float = 1.0,
        on: Literal["link", "published"] = "link",
        *,
        reduction: Reduction = "mean",
    ) -> None:
        super().__init__(loss, reduction=reduction)
        if not loss.has_link:
            raise checks.InputError(
                f"`loss` must have a link, since pairs are compared on log-odds; {loss} has none. "
                "Wrap one with a link, such as `SPA()` or `BCE()`."
            )
        if loss.models_pairs:
            raise checks.InputError(
                f"`loss` must not be a joint likelihood of labels, as {loss} is. Use it without "
                "label pairs."
            )
        self.weight = checks.at_least("weight", weight, 0.0)
        self.on = checks.choice("on", on, ("link", "published"))
        self._inherit(biased=self._biases(loss))
        self._limit = None if self._reaches_every_probability() else PLATEAU
        # A score inside the bounds. Finding it takes a search, so it is done once.
        even = self._limit is not None and loss.labelwise
        self._even_score = float(loss.initial_scores(torch.tensor(0.5))) if even else 0.0

    def _biases(self, loss: Loss) -> bool:
        """Return whether pairs move the minimiser even if labels are independent."""
        # With exactly one label per row, labels depend on each other. Published log-odds that
        # differ from those of the link order labels differently than their rates.
        other_log_odds = self.on == "published" and loss.properness == "recoverable"
        return self.weight > 0 and (loss.exclusive or other_log_odds)

    def _mean(
        self, scores: Scores, targets: Tensor, weight: Tensor | None, **details: Tensor
    ) -> Tensor:
        across = self.spans_processes and self.training
        if weight is None and not (across and process_count() > 1):
            together = self.loss.pairs_loop(self.weight) if self.on == "link" else None
            if together is not None:
                scores = working_precision(scores)
                return together(scores, coding.tensor_matrix(scores, targets))
            log_odds, matrix = self._compared(scores, targets)
            return self.loss(scores, targets, **details) + PairsForm(self.weight)(log_odds, matrix)
        log_odds, matrix = self._compared(scores, targets)
        # A process without pairs must still take part in the backward pass of the sum.
        in_graph = 0.0 * torch.where(matrix >= 0, log_odds, 0.0).sum()
        pairs = self._weighted_pairs(log_odds, matrix, weight).sum() + in_graph
        rows = all_reduce_sum((matrix >= 0).any(-1).sum(), across).clamp(min=1)
        return self.loss(scores, targets, weight, **details) + all_reduce_sum(pairs, across) / rows

    def values(
        self, scores: Scores, targets: Tensor, weight: Tensor | None = None, **details: Tensor
    ) -> Tensor:
        """Return one value per row: the wrapped loss's mean over known entries, and the pairs."""
        log_odds, matrix = self._compared(scores, targets)
        values = self._row_values(scores, matrix, weight, details)
        return values + self._weighted_pairs(log_odds, matrix, weight)

    def _weighted_pairs(self, log_odds: LogOdds, matrix: Tensor, weight: Tensor | None) -> Tensor:
        pairs = self.weight * row_pairs(log_odds, matrix)
        if weight is None:
            return pairs
        return pairs * checks.row_weight(weight, log_odds).to(pairs.dtype)

    def _compared(self, scores: Scores, targets: Tensor) -> tuple[LogOdds, Tensor]:
        """Return the log-odds to compare, and targets as a matrix with −1 for unknown."""
        scores = working_precision(scores)
        one_head = scores[..., : scores.shape[-1] // self.scores_per_label]
        matrix = coding.unknown_to_minus_one(coding.tensor_matrix(one_head, targets))
        return self._bounded_log_odds(scores, matrix >= 0), matrix

    def _estimate(self, scores: Scores, known: Tensor) -> LogOdds:
        if self.on == "published":
            return self.loss.published_log_odds(scores)
        return self.loss.known_log_odds(scores, known)

    def _bounded_log_odds(self, scores: Scores, known: Tensor) -> LogOdds:
        if self.loss.labelwise:  # a NaN at an unknown label would propagate as 0 × NaN
            scores = torch.where(known, scores, self._even_score)
        if self._limit is None:
            return self._estimate(scores, known)
        with torch.set_grad_enabled(torch.is_grad_enabled() and not self.loss.labelwise):
            log_odds = self._estimate(scores, known)
        if self.loss.labelwise:
            # Scores out of bounds are replaced before the link. After it, the infinite slope at the
            # edge of a plateau would propagate as 0 × ∞.
            inside = log_odds.abs() < self._limit
            calm = self._estimate(torch.where(inside, scores, self._even_score), known)
            log_odds = torch.where(inside, calm, log_odds)
        return log_odds.clamp(-self._limit, self._limit)

    def _reaches_every_probability(self) -> bool:
        if not self.loss.labelwise and self.loss.has_state:  # the link needs the state of a batch
            return False
        columns = 2 * self.loss.scores_per_label
        ends = torch.tensor([[-1e4], [1e4]], dtype=torch.float64).repeat(1, columns)
        known = torch.ones(2, 2, dtype=torch.bool)
        return bool(torch.isfinite(self._estimate(ends, known)).all())
