"""Quasibinary classifier: one normalizer shared by all labels and all rows."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Literal, Self

import torch
from torch import Tensor

from credibly import checks
from credibly.losses import collectives
from credibly.losses.base import LinkFormula, Reduction, working_precision
from credibly.losses.families import BatchLoss, matrices
from credibly.losses.linear.chunks import LinearForm
from credibly.losses.linear.rows import QuasibinaryLinear
from credibly.types import LogOdds, Scores

Penalty = Literal["batch", "running"]
_MOMENTUM = {"batch": 0.9, "running": 0.99}


class Quasibinary(BatchLoss):
    r"""Quasibinary loss: scores are log-probabilities up to one constant for all labels and rows.

    $$\log q = z - \log C, \qquad \log C = \mathrm{LSE}_{i,k}(z) - \log N, \qquad
      \ell = \frac1B \sum_{i,k} \bigl[-y \log q + \max(\log q', 0)\bigr]$$

    with $N$ the number of positive labels and $B$ the number of rows in the batch. Liao et al.
    (2020), Eqs. 10–12; Eq. 11 is an objective to maximise, so its sign is reversed here. The
    gradient flows through $C$. ``penalty`` says which $q'$ the last term takes:

    * ``"batch"``, as printed: $q' = q$, by the normalizer of the batch. The gradient is
      $\tfrac1B [q(1 - M/N) - y + 1\{q > 1\}]$, with $M$ the number of entries at $q > 1$. It is
      **not proper at any finite batch size**, only as $B \to \infty$: at $z = \log \eta$, $q$
      exceeds 1 whenever a batch contains more labels than expected. Training that starts at the
      truth takes $\eta = .95$ to $q = .78 / .83 / .88 / .93$ at $B = 1 / 2 / 8 / 64$.
    * ``"running"``: $q' = z - \log \bar C$, with the running average ``normalizer`` as a constant.
      At $e^z \propto \eta$ this term is 0. The rest is a profiled Poisson loss, which is stationary
      there for every batch size. The loss is therefore strictly proper with the link $q$, once
      $\bar C$ has converged.

    After training, $C$ is a constant, ``normalizer``. Eq. 13 as printed diverges; the intent is a
    moving average. A mean of ratios is biased, so moving sums of $\sum e^z$ and of $N$ are kept
    (in log space) and divided; ``fit_state`` replaces them by exact sums over a data set. Before
    the first batch, $C = 1$.

    In evaluation mode, the loss uses the constant $C$. It adds the part of the Poisson loss that
    vanishes with the normalizer of a batch, $\tfrac1B \sum [\min(q, 1) - y]$; without it, a
    validation loss would decrease as scores grow. A batch without positives uses the constant $C$
    too.

    Soft targets count by their size. Unknown targets are excluded from $C$, $N$, $B$ and the sum. A
    weight multiplies all contributions of a row: its terms, $C$ and $N$, so the link does not
    change. A NaN score makes the loss of the batch NaN, because all entries share $C$; such a batch
    does not change the moving sums. Across processes, in training mode, $C$, $N$, $B$ and the state
    are those of the union of all batches.

    Args:
        momentum: weight of the past in the moving sums, in [0, 1). ``None`` means .9 for
            ``"batch"``, as printed, and .99 for ``"running"``, whose penalty should not follow
            the noise of single batches.
        penalty: ``"batch"`` or ``"running"``; see above.
        reduction: ``"mean"``, ``"rows"``, ``"sum"`` or ``"none"``; see `Loss`.

    Example:
        >>> loss = Quasibinary()
        >>> scores = torch.tensor([[2.0, -1.0, 0.0], [0.5, 1.0, -3.0]])
        >>> targets = torch.tensor([[1.0, 0.0, 0.0], [0.0, 1.0, 0.0]])
        >>> loss(scores, targets)
        tensor(0.4425)
        >>> loss.normalizer
        tensor(6.5869, dtype=torch.float64)
        >>> loss.probabilities(scores)
        tensor([[1.0000, 0.0559, 0.1518],
                [0.2503, 0.4127, 0.0076]])
    """

    name = "quasibinary"
    spans_processes = True
    has_state = True
    log_sum: Tensor
    count: Tensor

    def __init__(
        self,
        momentum: float | None = None,
        penalty: Penalty = "batch",
        *,
        reduction: Reduction = "mean",
    ) -> None:
        super().__init__(reduction=reduction)
        self.penalty = checks.choice("penalty", penalty, ("batch", "running"))
        momentum = _MOMENTUM[penalty] if momentum is None else momentum
        self.momentum = checks.fraction("momentum", momentum, high_open=True)
        self.properness = "strict" if penalty == "running" else "none"
        self.register_buffer("log_sum", torch.tensor(-torch.inf, dtype=torch.float64))
        self.register_buffer("count", torch.tensor(0.0, dtype=torch.float64))

    @property
    def normalizer(self) -> Tensor:
        """Return $C$, the divisor of exp(score) at test time."""
        return torch.exp(self.log_normalizer)

    @property
    def log_normalizer(self) -> Tensor:
        """Return $\\log C$; 0 before the first batch with a label."""
        counted = self.count > 0
        return torch.where(
            counted, self.log_sum - torch.log(torch.where(counted, self.count, 1.0)), 0.0
        )

    def linear_form(self) -> LinearForm | None:
        return QuasibinaryLinear(self) if self.training else None

    def log_odds(self, scores: Scores) -> LogOdds:
        """Return log-odds of $q$, clipped just below $q = 1$ to be finite; rank by the scores."""
        scores = working_precision(scores)
        log_q = (scores - self.log_normalizer).to(scores.dtype)
        log_q = log_q.clamp(max=math.log1p(-torch.finfo(scores.dtype).eps))
        return log_q - torch.log(-torch.expm1(log_q))

    def formula(self) -> LinkFormula:
        return {"link": "quasibinary", "log_normalizer": float(self.log_normalizer)}

    def initial_scores(self, label_rates: Tensor) -> Scores:
        """Return the logs of the rates, shifted by the normalizer."""
        rates = torch.as_tensor(label_rates).double()
        shift = self.log_normalizer.to(rates.device)
        return (torch.log(rates) + shift).to(torch.get_default_dtype())

    @torch.no_grad()
    def fit_state(self, batches: Iterable[tuple[Scores, Tensor]]) -> Self:
        """Replace the running sums by exact ones over ``(scores, targets)`` batches.

        Each process passes its own share of the data, and every process must take part.

        Example:
            >>> loss = Quasibinary()
            >>> scores, targets = torch.zeros(4, 3), torch.eye(4, 3)
            >>> halves = [(scores[:3], targets[:3]), (scores[3:], targets[3:])]
            >>> loss.fit_state(halves).normalizer
            tensor(4., dtype=torch.float64)
        """
        log_sum = torch.full_like(self.log_sum, -torch.inf)
        count = torch.zeros_like(self.count)
        for batch in batches:
            scores, targets = matrices(self, *batch)
            known = targets >= 0
            inside = torch.where(known, scores.double(), -torch.inf)
            log_sum = torch.logaddexp(log_sum, collectives.logsumexp(inside, (0, 1), across=False))
            count = count + torch.where(known, targets, 0.0).sum(dtype=torch.float64)
        self.log_sum.copy_(collectives.logsumexp(log_sum[None], 0))
        self.count.copy_(collectives.all_reduce_sum(count))
        return self

    def state_summary(self) -> dict[str, float]:
        return {"normalizer": float(self.normalizer)}

    def batch_values(
        self, scores: Scores, targets: Tensor, weight: Tensor | None, *, update_state: bool
    ) -> tuple[Tensor, Tensor]:
        """Return one value per entry, 0 if unknown, and the number of rows with a known entry."""
        known = targets >= 0
        present = torch.where(known, targets, 0.0)
        scores = torch.where(known, scores, 0.0)
        factor = None if weight is None else weight[:, None]
        rows = collectives.all_reduce_sum(known.any(1).sum(), self.training)
        # The state before this batch. The changes by the batch itself come after.
        running = (scores - self.log_normalizer).to(scores.dtype)
        if self.training:
            settled = self.count > 0
            log_q, count = self._by_batch(scores, present, known, factor, update_state)
            log_q = torch.where(count > 0, log_q, running)
            penalized = log_q
            if self.penalty == "running":
                # The first batch has no past, so it uses its own normalizer, as a constant.
                penalized = torch.where(settled, running, scores - (scores - log_q).detach())
            values = -present * log_q + penalized.relu()
        else:
            q = torch.exp(running.clamp(max=0))
            values = -present * running + running.relu() + q - present
        values = values if factor is None else values * factor
        return torch.where(known, values, 0.0), rows

    def _by_batch(
        self,
        scores: Scores,
        present: Tensor,
        known: Tensor,
        factor: Tensor | None,
        update_state: bool,
    ) -> tuple[Tensor, Tensor]:
        """Return log q with the normalizer of this batch, and its number of positive labels."""
        inside = torch.where(known, scores, -torch.inf).detach()
        top = inside.amax() if inside.numel() else inside.new_tensor(-torch.inf)
        top = collectives.all_reduce_max(top)
        # The loss ignores a common shift of all scores, so shift them to keep exponentials in
        # range.
        top = torch.where(torch.isneginf(top), 0.0, top)
        shifted = scores - top
        masses = torch.where(known, torch.exp(shifted), 0.0)
        masses, labels = (
            (masses, present) if factor is None else (masses * factor, present * factor)
        )
        total = collectives.all_reduce_sum(masses.sum(dtype=torch.float64))
        count = collectives.all_reduce_sum(labels.sum(dtype=torch.float64))
        log_total = torch.log(torch.where(total == 0, 1.0, total))
        if update_state:
            self.remember(top + log_total.detach(), count.detach(), total.detach() > 0)
        log_count = torch.log(torch.where(count > 0, count, 1.0))
        return (shifted - (log_total - log_count)).to(scores.dtype), count

    @torch.no_grad()
    def remember(self, log_sum: Tensor, count: Tensor, some: Tensor) -> None:
        """Add the sums of a batch to the moving sums, unless ``some`` is False.

        Args:
            log_sum: log of the sum of exp(score) over the known entries of the batch.
            count: its number of positive labels.
            some: whether the batch has a finite sum.
        """
        past = math.log(self.momentum) if self.momentum else -math.inf
        new = math.log1p(-self.momentum)
        log_sum = torch.logaddexp(self.log_sum + past, log_sum.double() + new)
        count = self.momentum * self.count + (1 - self.momentum) * count
        # No known entry, or a NaN among them: the state does not change.
        self.log_sum.copy_(torch.where(some, log_sum, self.log_sum))
        self.count.copy_(torch.where(some, count, self.count))
