"""Label pair regularizer around any loss that has a link."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import logsigmoid, softplus

from credibly import checks
from credibly.losses._base import Loss, as_matrix_targets, working_precision
from credibly.losses._fused import EXACT_FROM, IN_CACHE, fused, run_rows
from credibly.losses._kernels.chebyshev import tables
from credibly.losses._kernels.pairs import pairs_at
from credibly.types import LogOdds, Probabilities, Scores, Targets, Values

PLATEAU = 50.0
"""Log-odds of links with a plateau are taken within ± this: a probability of 2e-22."""


class LabelPairs(Loss):
    r"""A loss plus the label pair regularizer: present labels should come out above absent ones.

    $$\ell + \lambda\, \frac{2}{T(T-1)} \sum_{t:\,y_t = 1} \; \sum_{t':\,y_{t'} = 0}
      \mathrm{softplus}(g_{t'} - g_t)$$

    on log-odds $g$, not on scores, with $T$ the number of labels; averaged over the rows that have
    a known label. Cheng & Vasconcelos (2024), Eq. 20 (the condition of Eq. 18 read as
    $y_t \ne y_{t'}$). Unknown labels take no part; a row without present or without absent labels
    adds nothing. A soft target $y$ weighs its pairs with its expectation: the pair $(t, t')$ counts
    $y_t (1 - y_{t'})$ times.

    The wrapped loss keeps its link and everything else. Where labels are independent given the
    input the minimiser stays where it was; where they depend on each other it is biased (true
    rates .50 and .35 came out as .551 and .266 in one such case at $\lambda = 1$).

    Where a link is flat (`Asymmetric` with a margin has log-odds of −∞ for p ≤ m) there is no
    gradient to give: log-odds of such a link count as at most ±50, without gradient beyond, so
    that value and gradient stay finite.

    Time is O(positives × labels) a row, or O(labels) where positives are many; memory is that of
    the scores.

    Args:
        loss: any loss with a link.
        weight: $\lambda \ge 0$. The paper gives none; 1 to 3 worked in trials.

    Example:
        >>> from credibly.losses.spa import SPA
        >>> loss = LabelPairs(SPA())
        >>> loss(torch.tensor([[0.0, 2.0]]), torch.tensor([[1.0, 0.0]]))
        tensor(5.0970)
        >>> loss.name
        'spa+lpr'
    """

    from_text = False

    def __init__(self, loss: Loss, weight: float = 1.0) -> None:
        super().__init__()
        if not loss.has_link:
            raise checks.InputError(
                f"`loss` must have a link, since pairs are compared on log-odds; {loss} has none. "
                "Wrap one with a link, such as `SPA()` or `BCE()`."
            )
        self.loss = loss
        self.weight = checks.at_least("weight", weight, 0.0)
        facts = {fact: getattr(loss, fact) for fact in _FACTS}
        for fact, value in {**facts, "name": f"{loss.name}+lpr"}.items():
            setattr(self, fact, value)
        self._limit = None if _reaches_every_probability(loss) else PLATEAU
        # A score inside the bounds, found once: it takes a search.
        even = self._limit is not None and loss.labelwise
        self._even_score = float(loss.initial_scores(torch.tensor(0.5))) if even else 0.0

    def forward(self, scores: Scores, targets: Targets, **arguments: Any) -> Tensor:
        checks.float_scores(scores)
        together = getattr(self.loss, "with_label_pairs", None)
        if together is not None:
            scores = working_precision(scores)
            return together(scores, as_matrix_targets(scores, targets), self.weight)
        log_odds = self._bounded_log_odds(scores)
        pairs = label_pairs(log_odds, as_matrix_targets(log_odds, targets), self.weight)
        return self.loss(scores, targets, **arguments) + pairs

    def values(self, scores: Scores, targets: Targets, **arguments: Any) -> Values:
        """One value a row: the mean of the wrapped loss's over known entries, and the pairs."""
        log_odds = self._bounded_log_odds(scores)
        matrix = as_matrix_targets(log_odds, targets)
        values = self.loss.values(scores, targets, **arguments)
        if values.shape == matrix.shape:
            values = values.sum(-1) / (matrix >= 0).sum(-1).clamp(min=1)
        return values + self.weight * plain_row_pairs(log_odds, matrix)

    def log_odds(self, scores: Scores) -> LogOdds:
        return self.loss.log_odds(scores)

    def probabilities(self, scores: Scores) -> Probabilities:
        return self.loss.probabilities(scores)

    def ranking_scores(self, scores: Scores) -> Scores:
        return self.loss.ranking_scores(scores)

    def initial_scores(self, label_rates: Tensor) -> Scores:
        return self.loss.initial_scores(label_rates)

    def _bounded_log_odds(self, scores: Scores) -> LogOdds:
        log_odds = self.loss.log_odds(scores)
        if self._limit is None:
            return log_odds
        if self.loss.labelwise:
            # What is out of bounds is replaced before the link: after it, the infinite slope at
            # the edge of a plateau would come through as 0 × ∞.
            inside = log_odds.detach().abs() < self._limit
            calm = self.loss.log_odds(torch.where(inside, scores, self._even_score))
            log_odds = torch.where(inside, calm, log_odds.detach())
        return log_odds.clamp(-self._limit, self._limit)

    def extra_repr(self) -> str:
        return f"{self.loss}, weight={self.weight:g}"


_FACTS = (
    "properness",
    "scores_per_label",
    "single_label",
    "needs_rows",
    "labelwise",
    "detached",
    "exclusive",
)


def _reaches_every_probability(loss: Loss) -> bool:
    ends = torch.tensor([[-1e4], [1e4]], dtype=torch.float64).repeat(1, 2 * loss.scores_per_label)
    try:
        return bool(torch.isfinite(loss.log_odds(ends)).all())
    except checks.InputError:  # a link that needs a batch first
        return False


def label_pairs(log_odds: LogOdds, targets: Targets, weight: float) -> Tensor:
    """The regularizer alone: ``weight`` × its mean over rows with a known label.

    Example:
        >>> log_odds = torch.tensor([[2.0, 0.0, 1.0], [0.0, 0.0, 0.0]])
        >>> label_pairs(log_odds, torch.tensor([[1, 0, 0], [0, 0, 0]]).float(), 1.0)
        tensor(0.0734)
    """

    def on_cpu(u: Tensor, y: Tensor, wanted: bool) -> tuple[Tensor, Tensor | None]:
        return run_rows(pairs_at, u, y, wanted, weight, tables(u.dtype == torch.float64))

    def in_torch(u: Tensor, y: Tensor, wanted: bool) -> tuple[Tensor, Tensor | None]:
        return pairs_in_torch(u, y, wanted, weight)

    def plain(u: Tensor, y: Tensor) -> Tensor:
        return plain_label_pairs(u, y, weight)

    return fused(log_odds, targets, cpu=on_cpu, anywhere=in_torch, plain=plain)


def plain_label_pairs(log_odds: LogOdds, targets: Targets, weight: float) -> Tensor:
    """The same by the formula, for autograd."""
    rows = (targets >= 0).any(-1).sum().clamp(min=1)
    return weight * plain_row_pairs(log_odds, targets).sum() / rows


def plain_row_pairs(log_odds: LogOdds, targets: Targets) -> Values:
    """The regularizer of each row, one positive of every row at a time."""
    u, absent, share, index, factor = _ranked(log_odds, targets)
    total = -math.log(2) * (torch.where(targets > 0, targets, 0.0) * absent).sum(-1)
    for k in range(share.shape[-1]):
        gaps = u - u.gather(-1, index[..., k : k + 1])
        total = total - share[..., k] * (absent * logsigmoid(-gaps)).sum(-1)
    return factor * total


def pairs_in_torch(
    log_odds: LogOdds, targets: Targets, wanted: bool, weight: float
) -> tuple[Tensor, Tensor | None]:
    """Value and gradient in closed form: every positive against its row, some at a time."""
    labels = targets.shape[-1]
    y = targets.reshape(-1, labels)
    u = torch.where(y >= 0, log_odds.reshape(y.shape), 0.0)
    absent = 1 - y.abs()  # 0 where unknown
    row, column = (y > 0).nonzero(as_tuple=True)
    level, share = u[row, column], y[row, column]
    total = torch.dot(share, absent[row, column]) * -math.log(2)  # a soft label meets itself
    gradient = torch.zeros_like(u)
    some = max(1, (IN_CACHE if u.is_cpu else u.numel()) // max(labels, 1))
    for start in range(0, len(row), some):
        part = slice(start, start + some)
        gaps = u[row[part]].sub_(level[part, None])
        weights = absent[row[part]].mul_(share[part, None])
        values = softplus(gaps, threshold=EXACT_FROM)
        total = total + torch.dot(values.view(-1), weights.view(-1))
        if wanted:
            slopes = gaps.sigmoid_().mul_(weights)
            gradient.index_add_(0, row[part], slopes)
            level[part] = slopes.sum(1)  # which is not needed any more
    factor = weight * 2 / (labels * (labels - 1)) if labels > 1 else 0.0
    factor = factor / (y >= 0).any(1).sum().clamp_(min=1).to(u.dtype)
    if not wanted:
        return total * factor, None
    gradient.index_put_((row, column), level.neg_(), accumulate=True)
    return total * factor, gradient.mul_(factor).view(log_odds.shape)


def _ranked(log_odds: LogOdds, targets: Targets) -> tuple[Tensor, Tensor, Tensor, Tensor, float]:
    """Log-odds (0 if unknown), weights 1 − y, the positives' weights and places, and 2/(T(T−1)).

    Places stand in as many columns as the row with most positives has; weights are 0 elsewhere.
    """
    known = targets >= 0
    present = torch.where(known, targets, 0.0)
    absent = torch.where(known, 1 - targets, 0.0)
    labels = targets.shape[-1]
    most = int((present > 0).sum(-1).max()) if present.numel() else 0
    share, index = present.topk(most, dim=-1)
    factor = 2 / (labels * (labels - 1)) if labels > 1 else 0.0
    return torch.where(known, log_odds, 0.0), absent, share, index, factor
