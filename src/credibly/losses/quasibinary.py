"""Quasibinary classifier: one normaliser shared by all labels and all rows."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Self

import torch
from torch import Tensor

from credibly import checks
from credibly.losses import _processes
from credibly.losses._base import Loss, as_matrix_targets, working_precision
from credibly.types import LogOdds, Scores, Targets, Values


class Quasibinary(Loss):
    r"""Quasibinary loss: scores are log-probabilities up to one constant shared by everything.

    $$\log q = z - \log C, \qquad \log C = \mathrm{LSE}_{i,k}(z) - \log N, \qquad
      \ell = \frac1B \sum_{i,k} \bigl[-y \log q + \max(\log q, 0)\bigr]$$

    with $N$ the number of positive labels and $B$ the number of rows in the batch. Liao et al.
    (2020), Eqs. 10–12; Eq. 11 is an objective to maximise, so its sign is turned here. The
    gradient flows through $C$: $\tfrac1B [q(1 - M/N) - y + 1\{q > 1\}]$, with $M$ the number of
    entries at $q > 1$. It is a profiled Poisson loss: $e^z \propto \eta$ is stationary for every
    batch size, so it is strictly proper with the link $q$.

    After training $C$ is a constant, ``normalizer``. Eq. 13 as printed diverges; the intent is a
    running average. A mean of ratios is biased, so running sums of $\sum e^z$ and of $N$ are kept
    (in log space) and their ratio taken; ``fit_normalizer`` replaces them by exact sums over a
    data set. Before any batch $C = 1$.

    In evaluation mode the loss uses the constant $C$, and adds the part of the Poisson loss that
    the normaliser of a batch makes vanish, $\tfrac1B \sum [\min(q, 1) - y]$; without it a
    validation loss would fall as scores grow. A batch without positives uses the constant $C$ too.

    Soft targets count by their size; unknown ones are left out of $C$, $N$, $B$ and the sum. A
    NaN score makes the loss of the batch NaN, as all entries share $C$, and would stay in the
    running sums, so such a batch leaves those as they were. Across processes, in training mode,
    $C$, $N$ and $B$ are those of the union of all batches, and so is the state.

    Args:
        momentum: weight of the past in the running sums, in [0, 1).

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
    properness = "strict"
    log_sum: Tensor
    count: Tensor

    def __init__(self, momentum: float = 0.9) -> None:
        super().__init__()
        self.momentum = checks.fraction("momentum", momentum, high_open=True)
        self.register_buffer("log_sum", torch.tensor(-torch.inf, dtype=torch.float64))
        self.register_buffer("count", torch.tensor(0.0, dtype=torch.float64))

    @property
    def normalizer(self) -> Tensor:
        """$C$: what exp(score) is divided by at test time."""
        return torch.exp(self.log_normalizer)

    @property
    def log_normalizer(self) -> Tensor:
        """$\\log C$; 0 before any batch with a label."""
        counted = self.count > 0
        return torch.where(
            counted, self.log_sum - torch.log(torch.where(counted, self.count, 1.0)), 0.0
        )

    def forward(self, scores: Scores, targets: Targets) -> Tensor:
        scores, targets = self._prepare(scores, targets)
        rows = _processes.summed((targets >= 0).any(1).sum(), self.training)
        total = self._entries(scores, targets, remember=self.training).sum()
        return _processes.summed(total, self.training) / rows.clamp(min=1)

    def values(self, scores: Scores, targets: Targets) -> Values:
        """One value an entry, 0 where unknown; their sum over the rows' number is the loss."""
        return self._entries(*self._prepare(scores, targets), remember=False)

    def log_odds(self, scores: Scores) -> LogOdds:
        """From $\\log q$, clipped just below $q = 1$ to stay finite; rank by the scores instead."""
        scores = working_precision(scores)
        log_q = (scores - self.log_normalizer).to(scores.dtype)
        log_q = log_q.clamp(max=math.log1p(-torch.finfo(scores.dtype).eps))
        return log_q - torch.log(-torch.expm1(log_q))

    def initial_scores(self, label_rates: Tensor) -> Scores:
        """The logs of the rates, shifted by the normaliser."""
        rates = torch.as_tensor(label_rates).double()
        return (torch.log(rates) + self.log_normalizer.to(rates.device)).to(
            torch.get_default_dtype()
        )

    @torch.no_grad()
    def fit_normalizer(self, batches: Iterable[tuple[Scores, Targets]]) -> Self:
        """Replace the running sums by exact ones over ``(scores, targets)`` batches.

        Each process gives its own share of the data, and every process must take part.

        Example:
            >>> loss = Quasibinary()
            >>> scores, targets = torch.zeros(4, 3), torch.eye(4, 3)
            >>> halves = [(scores[:3], targets[:3]), (scores[3:], targets[3:])]
            >>> loss.fit_normalizer(halves).normalizer
            tensor(4., dtype=torch.float64)
        """
        log_sum = torch.full_like(self.log_sum, -torch.inf)
        count = torch.zeros_like(self.count)
        for batch in batches:
            scores, targets = self._prepare(*batch)
            known = targets >= 0
            inside = torch.where(known, scores.double(), -torch.inf)
            log_sum = torch.logaddexp(log_sum, _processes.logsumexp(inside, (0, 1), across=False))
            count = count + torch.where(known, targets, 0.0).sum(dtype=torch.float64)
        self.log_sum.copy_(_processes.logsumexp(log_sum[None], 0))
        self.count.copy_(_processes.summed(count))
        return self

    def extra_repr(self) -> str:
        return f"momentum={self.momentum:g}"

    def _prepare(self, scores: Scores, targets: Targets) -> tuple[Scores, Targets]:
        checks.matrix_scores(scores)
        scores = working_precision(scores)
        return scores, as_matrix_targets(scores, targets)

    def _entries(self, scores: Scores, targets: Targets, *, remember: bool) -> Values:
        known = targets >= 0
        present = torch.where(known, targets, 0.0)
        scores = torch.where(known, scores, 0.0)
        constant = (scores - self.log_normalizer).to(scores.dtype)
        if self.training:
            count = _processes.summed(present.sum(dtype=torch.float64))
            log_q = self._normalized(scores, known, count, remember)
            log_q = torch.where(count > 0, log_q, constant)
            values = -present * log_q + log_q.relu()
        else:
            q = torch.exp(constant.clamp(max=0))
            values = -present * constant + constant.relu() + q - present
        return torch.where(known, values, 0.0)

    def _normalized(self, scores: Scores, known: Tensor, count: Tensor, remember: bool) -> Tensor:
        """log q with the normaliser of this batch; the loss ignores a shift, so take the best."""
        inside = torch.where(known, scores, -torch.inf).detach()
        top = inside.amax() if inside.numel() else inside.new_tensor(-torch.inf)
        top = _processes.largest(top)
        top = torch.where(torch.isneginf(top), 0.0, top)
        shifted = scores - top
        total = torch.where(known, torch.exp(shifted), 0.0).sum(dtype=torch.float64)
        total = _processes.summed(total)
        log_total = torch.log(torch.where(total == 0, 1.0, total))
        if remember:
            self._remember(top + log_total.detach(), count, total.detach() > 0)
        return shifted - (log_total - torch.log(torch.where(count > 0, count, 1.0)))

    @torch.no_grad()
    def _remember(self, log_sum: Tensor, count: Tensor, some: Tensor) -> None:
        past = math.log(self.momentum) if self.momentum else -math.inf
        new = math.log1p(-self.momentum)
        log_sum = torch.logaddexp(self.log_sum + past, log_sum.double() + new)
        count = self.momentum * self.count + (1 - self.momentum) * count
        # Nothing known, or a NaN among it: the past stays as it was.
        self.log_sum.copy_(torch.where(some, log_sum, self.log_sum))
        self.count.copy_(torch.where(some, count, self.count))
