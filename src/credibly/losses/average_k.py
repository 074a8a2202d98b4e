"""Two-head loss for average-K classification: one head proposes labels, the other learns them."""

from __future__ import annotations

from typing import Literal

import torch
from torch import Tensor
from torch.nn.functional import logsigmoid

from credibly import checks
from credibly.losses import _processes
from credibly.losses._base import Loss, as_matrix_targets, working_precision
from credibly.losses.softmax import softmax_log_odds
from credibly.types import LogOdds, Scores, Targets, Values

_BLOCK = 64


class AverageK(Loss):
    r"""Two-head loss for sets of $K$ labels on average, from one observed label a row.

    $$\ell = -\frac1{|B|}\sum_i \log \varsigma_{y_i}(z'_i)
      - \frac1{|B|}\sum_i \log\sigma(z_{i y_i})
      - \frac{\alpha}{|S|}\sum_{(i,j) \in S} \log\sigma(z_{ij})
      - \frac{\alpha}{|R|}\sum_{(i,j) \in R} \log(1 - \sigma(z_{ij}))$$

    The second head $z'$ (SCCP, softmax) proposes: $S$ are its $\mathrm{round}((K-1)|B|)$ largest
    probabilities in the batch, observed labels excluded, ties to the lowest place; no gradient
    flows through the choice. The first head $z$ (ML, sigmoid) learns observed and proposed
    labels; $R$ is the rest. Garcin et al. (2023), Eqs. 14–15; $K$ may be fractional, $K = 1$
    empties $S$ and $K = L$ empties $R$, and an empty sum is left out.

    ``scores`` have two columns a label, (rows, $2L$): the ML head first, then the SCCP head. The
    link is that of the head asked for: a sigmoid for ``"ml"``, which estimates membership of the
    set, not a rate, so it is not proper; softmax for ``"sccp"``, strictly proper.

    Rows without an observed label take no part; unknown labels of a row are neither proposed nor
    rejected. With several labels in a row the softmax term spreads over them evenly. Across
    processes, in training mode, $S$ is chosen from the union of all batches.

    Args:
        average_size: $K$, between 1 and the number of labels.
        alpha: $\alpha > 0$, weight of what was proposed and rejected.
        head: which head ``log_odds``, ``probabilities`` and ``ranking_scores`` read.

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
    scores_per_label = 2
    single_label = True

    def __init__(
        self, average_size: float, alpha: float = 1.0, head: Literal["ml", "sccp"] = "ml"
    ) -> None:
        super().__init__()
        self.average_size = checks.average_size(average_size)
        self.alpha = checks.positive("alpha", alpha)
        self.head = checks.choice("head", head, ("ml", "sccp"))
        self.exclusive = head == "sccp"
        self.properness = "strict" if head == "sccp" else "none"

    def forward(self, scores: Scores, targets: Targets) -> Tensor:
        values, rows = self._rows(scores, targets)
        return _processes.summed(values.sum(), self.training) / rows.clamp(min=1)

    def values(self, scores: Scores, targets: Targets) -> Values:
        """One value a row, 0 without an observed label; their mean over the others is the loss."""
        return self._rows(scores, targets)[0]

    def log_odds(self, scores: Scores) -> LogOdds:
        """Logit of the probability by the chosen head."""
        head = self.ranking_scores(working_precision(scores))
        return softmax_log_odds(head) if self.head == "sccp" else head

    def ranking_scores(self, scores: Scores) -> Scores:
        """The scores of the chosen head."""
        checks.float_scores(scores)
        return scores.chunk(2, -1)[self.head == "sccp"]

    def initial_scores(self, label_rates: Tensor) -> Scores:
        """Logits of the rates for the ML head, logs of them for the SCCP head."""
        rates = torch.as_tensor(label_rates).double()
        return torch.cat([torch.logit(rates), torch.log(rates)]).to(torch.get_default_dtype())

    def extra_repr(self) -> str:
        return f"average_size={self.average_size:g}, alpha={self.alpha:g}, head={self.head!r}"

    def _rows(self, scores: Scores, targets: Targets) -> tuple[Values, Tensor]:
        checks.matrix_scores(scores, self.scores_per_label)
        ml, sccp = working_precision(scores).chunk(2, 1)
        checks.average_size(self.average_size, ml.shape[1])
        targets = as_matrix_targets(ml, targets)
        observed = targets > 0
        labelled = observed.any(1)
        open_ = (targets == 0) & labelled[:, None]
        rows = _processes.summed(labelled.sum(), self.training)

        shares = torch.where(observed, targets, 0.0)
        shares = shares / torch.where(labelled, shares.sum(1), 1.0)[:, None]
        inside = torch.where(observed | open_, sccp, -torch.inf)
        log_shares = torch.log_softmax(torch.where(labelled[:, None], inside, 0.0), 1)
        with torch.no_grad():
            # By log-probability: where probabilities round to 0 it still tells them apart.
            candidates = torch.where(open_ & ~log_shares.isnan(), log_shares, -torch.inf)
            proposed = _propose(
                candidates, round((self.average_size - 1) * int(rows)), self.training
            )
            rejected = open_ & ~proposed

        ml = torch.where(observed | open_, ml, 0.0)
        up, down = -logsigmoid(ml), -logsigmoid(-ml)
        values = torch.where(observed, shares * (up - log_shares), 0.0).sum(1)
        for chosen, cost in ((proposed, up), (rejected, down)):
            count = _processes.summed(chosen.sum(), self.training).clamp(min=1)
            weight = self.alpha * rows.double() / count
            values = values + torch.where(chosen, cost, 0.0).sum(1) * weight
        return torch.where(labelled, values, 0.0), rows


def _propose(candidates: Tensor, count: int, across: bool) -> Tensor:
    """Mark the ``count`` largest entries over all processes; −inf is no candidate."""
    flat = candidates.reshape(-1)
    places = largest_entries(flat, count)
    if across and _processes.process_count() > 1:
        places = places[_among_all(flat[places], count)]
    marked = torch.zeros_like(flat, dtype=torch.bool)
    marked[places] = True
    return marked.view_as(candidates)


def _among_all(values: Tensor, count: int) -> Tensor:
    """Which of this process's best entries are among the best of all; earlier ranks win ties."""
    # Every part is in ascending order of place, so all of them together are, by rank, too.
    parts = _processes.gathered(values)
    before = sum(len(part) for part in parts[: _processes.process_rank()])
    best = largest_entries(torch.cat(parts), count) - before
    return best[(best >= 0) & (best < len(values))]


def largest_entries(values: Tensor, count: int) -> Tensor:
    """Places of the ``count`` largest entries of a vector, ascending; ties to the lowest place.

    Entries at −inf are never taken. The k-th largest of the maxima of blocks is a lower bound of
    the k-th largest entry, so one pass for the maxima leaves only a few blocks to look into.

    Example:
        >>> largest_entries(torch.tensor([0.1, 0.7, 0.3, 0.7, 0.3]), 3)
        tensor([1, 2, 3])
    """
    block = min(_BLOCK, values.numel() // (4 * count)) if count > 0 else 0
    if block < 4:
        return _largest_of_few(values, count)
    whole = values.numel() // block * block
    tops = values[:whole].view(-1, block).amax(1)
    bound = tops.topk(count, sorted=False).values.min()
    ties = tops == bound
    # Of blocks that only reach the bound, the first ``count`` hold all ties that can be needed.
    kept = ((tops > bound) | (ties & (ties.cumsum(0) <= count))).nonzero()
    inside = (kept * block + torch.arange(block, device=values.device)).view(-1)
    tail = torch.arange(whole, values.numel(), device=values.device)
    places = torch.cat([inside, tail])
    return places[_largest_of_few(values[places], count)]


def _largest_of_few(values: Tensor, count: int) -> Tensor:
    count = min(max(count, 0), values.numel())
    if count == 0:
        return torch.zeros(0, dtype=torch.long, device=values.device)
    bound = values.topk(count, sorted=False).values.min()
    above, ties = values > bound, (values == bound) & (bound > -torch.inf)
    return (above | (ties & (ties.cumsum(0) <= count - above.sum()))).nonzero().squeeze(1)
