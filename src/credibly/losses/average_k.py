"""Two-head loss for average-K classification: one head proposes labels, the other learns them."""

from __future__ import annotations

from typing import Literal

import torch
from torch import Tensor
from torch.nn.functional import logsigmoid

from credibly import checks
from credibly.losses import collectives
from credibly.losses.base import LinkFormula, Reduction, softmax_log_odds, working_precision
from credibly.losses.families import BatchLoss
from credibly.types import LogOdds, Scores

ScoreHead = Literal["ml", "ml-softmax", "sccp"]


class AverageK(BatchLoss):
    r"""Two-head loss for sets of $K$ labels on average, from one observed label per row.

    $$\ell = -\frac1{|B|}\sum_i \log \varsigma_{y_i}(z'_i)
      - \frac1{|B|}\sum_i \log\sigma(z_{i y_i})
      - \frac{\alpha}{|S|}\sum_{(i,j) \in S} \log\sigma(z_{ij})
      - \frac{\alpha}{|R|}\sum_{(i,j) \in R} \log(1 - \sigma(z_{ij}))$$

    The second head $z'$ (SCCP, softmax) proposes labels: $S$ are its $\mathrm{round}((K-1)|B|)$
    largest probabilities in the batch, without observed labels, ties to the lowest index. The
    selection has no gradient. The first head $z$ (ML, sigmoid) learns observed and proposed labels;
    $R$ is the rest. Garcin et al. (2023), Eqs. 14–15; $K$ may be fractional. $S$ is empty for $K =
    1$, and $R$ for $K = L$; an empty sum is omitted.

    ``scores`` have two columns per label, (rows, $2L$): the ML head first, then the SCCP head.
    ``head`` selects the map from scores to probabilities:

    * ``"ml"``: sigmoid of the ML head, as in its training.
    * ``"ml-softmax"``: softmax of the ML head. Algorithm 1 as printed applies a softmax to the
      logits of any head that predicts. Its sets differ from those of ``"ml"``: a softmax compares a
      label with the rest of its row, a sigmoid does not.
    * ``"sccp"``: softmax of the SCCP head, strictly proper for the observed label.

    The ML head estimates whether a label belongs to the set, not its rate, so neither of its maps
    is proper.

    Rows without an observed label are ignored. Unknown labels of a row are neither proposed nor
    rejected. With several labels in a row, the softmax term is divided evenly among them. Across
    processes, in training mode, $S$ is selected from the union of all batches. A weight multiplies
    the terms of its row and does not affect the selection.

    Args:
        average_size: $K$, between 1 and the number of labels.
        alpha: $\alpha > 0$, weight of proposed and rejected labels.
        head: ``"ml"``, ``"ml-softmax"`` or ``"sccp"``: the map of ``log_odds`` and
            ``probabilities``. ``ranking_scores`` are those of the head.
        reduction: ``"mean"``, ``"rows"``, ``"sum"`` or ``"none"``; see `Loss`.

    Example:
        >>> loss = AverageK(average_size=2)
        >>> scores = torch.tensor([[2.0, 0.0, -1.0, 3.0, 2.0, 0.0], [0.0, 1.0, 0.0, 0.0, 4.0, 1.0]])
        >>> loss(scores, torch.tensor([0, 1]))
        tensor(1.6239)
        >>> loss.probabilities(scores)
        tensor([[0.8808, 0.5000, 0.2689],
                [0.5000, 0.7311, 0.5000]])
    """

    name = "avgk"
    spans_processes = True
    published = "softmax"
    scores_per_label = 2
    single_label = True

    def __init__(
        self,
        average_size: float,
        alpha: float = 1.0,
        head: ScoreHead = "ml",
        *,
        reduction: Reduction = "mean",
    ) -> None:
        super().__init__(reduction=reduction)
        self.average_size = checks.average_size(average_size)
        self.alpha = checks.positive("alpha", alpha)
        self.head = checks.choice("head", head, ("ml", "ml-softmax", "sccp"))
        self.exclusive = head != "ml"
        self.properness = "strict" if head == "sccp" else "none"

    def log_odds(self, scores: Scores) -> LogOdds:
        """Return the logit of the probability by the chosen head."""
        head = self.ranking_scores(working_precision(scores))
        return head if self.head == "ml" else softmax_log_odds(head)

    def ranking_scores(self, scores: Scores) -> Scores:
        """Return the scores of the chosen head."""
        checks.float_scores(scores)
        return scores.chunk(2, -1)[self.head == "sccp"]

    def ranking_formula(self) -> LinkFormula:
        return {"link": "shift", "head": int(self.head == "sccp")}

    def formula(self) -> LinkFormula:
        kind = "shift" if self.head == "ml" else "softmax"
        return {**self.ranking_formula(), "link": kind}

    def initial_scores(self, label_rates: Tensor) -> Scores:
        """Return logits of the rates for the ML head, and their logs for the SCCP head."""
        rates = torch.as_tensor(label_rates).double()
        return torch.cat([torch.logit(rates), torch.log(rates)]).to(torch.get_default_dtype())

    def batch_values(
        self, scores: Scores, targets: Tensor, weight: Tensor | None, *, update_state: bool
    ) -> tuple[Tensor, Tensor]:
        """Return one value per row, 0 without an observed label, and the number of others."""
        ml, sccp = scores.chunk(2, 1)
        checks.average_size(self.average_size, ml.shape[1])
        observed = targets > 0
        labelled = observed.any(1)
        open_ = (targets == 0) & labelled[:, None]
        rows = collectives.all_reduce_sum(labelled.sum(), self.training)

        shares = torch.where(observed, targets, 0.0)
        shares = shares / torch.where(labelled, shares.sum(1), 1.0)[:, None]
        inside = torch.where(observed | open_, sccp, -torch.inf)
        log_shares = torch.log_softmax(torch.where(labelled[:, None], inside, 0.0), 1)
        with torch.no_grad():
            # By log-probability, which still differs where probabilities round to 0.
            candidates = torch.where(open_ & ~log_shares.isnan(), log_shares, -torch.inf)
            proposed = self._proposed(candidates, rows)
            rejected = open_ & ~proposed

        ml = torch.where(observed | open_, ml, 0.0)
        up, down = -logsigmoid(ml), -logsigmoid(-ml)
        values = torch.where(observed, shares * (up - log_shares), 0.0).sum(1)
        for chosen, cost in ((proposed, up), (rejected, down)):
            count = collectives.all_reduce_sum(chosen.sum(), self.training).clamp(min=1)
            factor = self.alpha * rows.double() / count
            values = values + torch.where(chosen, cost, 0.0).sum(1) * factor
        values = torch.where(labelled, values, 0.0).to(scores.dtype)
        return values if weight is None else values * weight, rows

    def _proposed(self, candidates: Tensor, rows: Tensor) -> Tensor:
        """Mark the round((K − 1)·rows) largest candidates of all processes."""
        if not checks.can_read_values(candidates):
            return _ranks(candidates) < torch.round((self.average_size - 1) * rows.double())
        return _propose(candidates, round((self.average_size - 1) * int(rows)), self.training)


def _ranks(candidates: Tensor) -> Tensor:
    """Return the rank of each entry: 0 for the largest, ties to the lowest index, none for −inf."""
    flat = candidates.reshape(-1)
    order = torch.argsort(flat, descending=True, stable=True)
    ranks = torch.argsort(order, stable=True).to(torch.float64)
    return torch.where(flat > -torch.inf, ranks, torch.inf).view_as(candidates)


def _propose(candidates: Tensor, count: int, across: bool) -> Tensor:
    """Mark the ``count`` largest entries over all processes; −inf is never selected."""
    flat = candidates.reshape(-1)
    indices = largest_entries(flat, count)
    if across and collectives.process_count() > 1:
        indices = indices[_among_all(flat[indices], count)]
    marked = torch.zeros_like(flat, dtype=torch.bool)
    marked[indices] = True
    return marked.view_as(candidates)


def _among_all(values: Tensor, count: int) -> Tensor:
    """Return which of this process's best entries are among the best overall; ties by rank."""
    # Each part is in ascending order of index, so their concatenation by rank is too.
    parts = collectives.all_gather(values)
    before = sum(len(part) for part in parts[: collectives.process_rank()])
    best = largest_entries(torch.cat(parts), count) - before
    return best[(best >= 0) & (best < len(values))]


def largest_entries(values: Tensor, count: int) -> Tensor:
    """Return indices of the ``count`` largest entries, ascending; ties to the lowest index.

    Entries of −inf are never selected.

    Example:
        >>> largest_entries(torch.tensor([0.1, 0.7, 0.3, 0.7, 0.3]), 3)
        tensor([1, 2, 3])
    """
    count = min(max(count, 0), values.numel())
    if count == 0:
        return torch.zeros(0, dtype=torch.long, device=values.device)
    bound = values.topk(count, sorted=False).values.min()
    above, ties = values > bound, (values == bound) & (bound > -torch.inf)
    return (above | (ties & (ties.cumsum(0) <= count - above.sum()))).nonzero().squeeze(1)
