"""Two-way multi-label loss: positives above negatives, in every row and in every column."""

from __future__ import annotations

import math
from typing import Literal

import torch
from torch import Tensor
from torch.nn.functional import logsigmoid, softplus

from credibly import checks
from credibly.losses import _processes
from credibly.losses._base import Loss, as_matrix_targets, working_precision
from credibly.losses._fused import fused
from credibly.types import Scores, Targets, Values

# Largest score over temperature whose exp, sums of it and their inverses stay well in range.
_SAFE = {torch.float32: 40.0, torch.float64: 300.0}
_TINY = torch.finfo(torch.float64).tiny


class TwoWay(Loss):
    r"""Two-way multi-label loss.

    For a set with positives $P$ and negatives $N$ (a row, or a column of the batch)

    $$\ell = \mathrm{softplus}\Bigl(T_N \log\sum_{n \in N} e^{x_n/T_N}
      + T_P \log\sum_{p \in P} e^{-x_p/T_P} + \epsilon\Bigr)$$

    and the loss is the mean over rows (sample-wise) plus the mean over columns (class-wise).
    Kobayashi (2023), Eqs. 15 and 17, the margin from Eq. iii of its supplement; where that says
    the loss pushes max over $P$ above max over $N$, it is the minimum over $P$.

    Rows and columns without positives or without negatives drop out before the sums, from value
    and count (the official code gives NaN for a batch without positives). A soft target $y$
    counts as positive with weight $y$ and as negative with weight $1 - y$ inside the sums.

    No link: the loss ignores a shift of all scores, so they only rank. Fit `cr.calibrate.Affine`
    on held-out scores; temperature alone cannot help. A NaN score makes its row and its column
    NaN, and so the loss.

    Across processes the class-wise way sees the columns of the union of all batches, in training
    mode; see `credibly.losses._processes` for the convention.

    Args:
        temperature_pos: $T_P > 0$; above 1 it spreads the gradient over the positives.
        temperature_neg: $T_N > 0$.
        margin: $\epsilon$, any real number.
        ways: ``"both"``, ``"samples"`` (rows only) or ``"labels"`` (columns only).

    Example:
        >>> scores = torch.tensor([[2.0, -1.0, 0.5], [0.0, 1.0, -2.0]])
        >>> targets = torch.tensor([[1.0, 0.0, 1.0], [0.0, 1.0, 0.0]])
        >>> TwoWay()(scores, targets)
        tensor(0.8017)
        >>> TwoWay(ways="samples").values(scores, targets)
        tensor([1.0326, 0.3490])
    """

    name = "twl"
    properness = "none"
    has_link = False

    def __init__(
        self,
        temperature_pos: float = 4.0,
        temperature_neg: float = 1.0,
        margin: float = 0.0,
        ways: Literal["both", "samples", "labels"] = "both",
    ) -> None:
        super().__init__()
        self.temperature_pos = checks.positive("temperature_pos", temperature_pos)
        self.temperature_neg = checks.positive("temperature_neg", temperature_neg)
        self.margin = checks.finite("margin", margin)
        self.ways = checks.choice("ways", ways, ("both", "samples", "labels"))

    def forward(self, scores: Scores, targets: Targets) -> Tensor:
        scores, targets = self._prepare(scores, targets)
        if self.training and _processes.process_count() > 1:
            return self._plain(scores, targets)
        return fused(
            scores, targets, cpu=self._kernel, anywhere=self._closed_form, plain=self._plain
        )

    def values(self, scores: Scores, targets: Targets) -> Values:
        """One value a row, whose mean over rows with a known label is the loss.

        A row has its own sample-wise term; the term of a column is shared among its positives.
        """
        scores, targets = self._prepare(scores, targets)
        known_rows = (targets >= 0).any(1).sum()
        values = scores.new_zeros(len(scores), dtype=torch.float64)
        if self.ways != "labels":
            terms, valid = self._terms(scores, targets, dim=1)
            values = values + terms * known_rows / valid.sum().clamp(min=1)
        if self.ways != "samples":
            terms, valid = self._terms(scores, targets, dim=0)
            present = targets.clamp(min=0)
            shares = torch.where(present > 0, present / present.sum(0) * terms, 0.0)
            values = values + shares.sum(1) * known_rows / valid.sum().clamp(min=1)
        return values.to(scores.dtype)

    def initial_scores(self, label_rates: Tensor) -> Scores:
        """The logits of the rates: not a link, but a start that ranks labels by how common."""
        rates = torch.as_tensor(label_rates).double()
        return torch.logit(rates).to(torch.get_default_dtype())

    def extra_repr(self) -> str:
        return (
            f"temperature_pos={self.temperature_pos:g}, temperature_neg={self.temperature_neg:g}, "
            f"margin={self.margin:g}, ways={self.ways!r}"
        )

    def _prepare(self, scores: Scores, targets: Targets) -> tuple[Scores, Targets]:
        checks.matrix_scores(scores)
        scores = working_precision(scores)
        return scores, as_matrix_targets(scores, targets)

    # The formula -------------------------------------------------------------------------------

    def _plain(self, scores: Scores, targets: Targets) -> Tensor:
        """The formula by autograd, for any range of scores and any number of processes."""
        total = scores.new_zeros((), dtype=torch.float64)
        if self.ways != "labels":
            terms, valid = self._terms(scores, targets, dim=1)
            value = _processes.summed(terms.sum(), self.training)
            count = _processes.summed(valid.sum(), self.training)
            total = total + value / count.clamp(min=1)
        if self.ways != "samples":
            terms, valid = self._terms(scores, targets, dim=0, across=self.training)
            total = total + terms.sum() / valid.sum().clamp(min=1)
        return total.to(scores.dtype)

    def _terms(
        self, scores: Scores, targets: Targets, *, dim: int, across: bool = False
    ) -> tuple[Values, Tensor]:
        """One term for each row (``dim=1``) or column (``dim=0``), and which of them count."""
        # In float64: T·log Σ of scores near 1e4 would lose the digits that the softplus looks at.
        known = targets >= 0
        safe = torch.where(known, scores, 0.0).double()
        weights = targets.double()
        absent = torch.where(known, torch.log1p(-weights), -torch.inf)
        present = torch.where(known, torch.log(weights), -torch.inf)
        hard = _processes.logsumexp(safe / self.temperature_neg + absent, dim, across)
        weak = _processes.logsumexp(-safe / self.temperature_pos + present, dim, across)
        valid = ~(torch.isneginf(hard) | torch.isneginf(weak))
        hard, weak = torch.where(valid, hard, 0.0), torch.where(valid, weak, 0.0)
        inner = self.temperature_neg * hard + self.temperature_pos * weak + self.margin
        return torch.where(valid, -logsigmoid(-inner), 0.0), valid

    # Value and gradient together ---------------------------------------------------------------

    def _kernel(
        self, scores: Tensor, targets: Tensor, wants_gradient: bool
    ) -> tuple[Tensor, Tensor | None]:
        """One pass for the sums, one for the gradient, in numba; float32 of ordinary range."""
        if scores.dtype != torch.float32 or not scores.numel():
            return self._closed_form(scores, targets, wants_gradient)
        from credibly.losses._kernels.two_way import value_and_gradient

        gradient = torch.empty(scores.shape)
        value = value_and_gradient(
            scores.contiguous().numpy(),
            targets.detach().contiguous().numpy(),
            gradient.numpy(),
            self.temperature_pos,
            self.temperature_neg,
            self.margin,
            self.ways != "labels",
            self.ways != "samples",
            wants_gradient,
            _SAFE[torch.float32],
        )
        if math.isnan(value):  # NaN in, or a range that needs a shift of its own for each sum
            return self._by_autograd(scores, targets, wants_gradient)
        return torch.tensor(value, dtype=torch.float32), gradient if wants_gradient else None

    def _closed_form(
        self, scores: Tensor, targets: Tensor, wants_gradient: bool
    ) -> tuple[Tensor, Tensor | None]:
        """The same in torch, without reading values back from the device but for the range."""
        low, high = scores.aminmax() if scores.numel() else (torch.inf, torch.inf)
        safe = _SAFE[scores.dtype] * min(self.temperature_pos, self.temperature_neg)
        if not (-safe <= float(low) and float(high) <= safe):
            return self._by_autograd(scores, targets, wants_gradient)
        # A weight for each side, 1 − |y| and max(y, 0): both are 0 where the label is unknown.
        absent = torch.exp(scores if self.temperature_neg == 1 else scores / self.temperature_neg)
        absent.addcmul_(absent, targets.abs(), value=-1)
        present = torch.exp(scores / -self.temperature_pos).mul_(targets.relu())
        # Rows, then columns behind them; first the sums over negatives, then over positives.
        sums = torch.cat((absent.sum(1), absent.sum(0), present.sum(1), present.sum(0)))
        rows = len(scores)
        value, slopes = self._slopes(sums.double().view(2, -1), rows)
        if not wants_gradient:
            return value.to(scores.dtype), None
        hard, weak = slopes.to(scores.dtype).unbind()
        absent.mul_(hard[:rows, None] + hard[rows:])
        return value.to(scores.dtype), absent.sub_(present.mul_(weak[:rows, None] + weak[rows:]))

    def _slopes(self, sums: Tensor, rows: int) -> tuple[Tensor, Tensor]:
        """The loss from both sums of every set, and its slopes by them."""
        # A set that drops out has the log of 0: softplus and sigmoid of −inf are 0 as they should.
        hard, weak = sums.log().unbind()
        inner = torch.add(hard * self.temperature_neg, weak, alpha=self.temperature_pos)
        if self.margin:
            inner += self.margin
        shares = (inner > -torch.inf).double()
        for part, other in ((shares[:rows], "labels"), (shares[rows:], "samples")):
            if self.ways == other:
                part.zero_()
            else:
                part.div_(part.sum().clamp_(min=1))
        value = torch.dot(softplus(inner, threshold=50), shares)
        return value, inner.sigmoid_().mul_(shares) / sums.clamp_(min=_TINY)

    def _by_autograd(
        self, scores: Tensor, targets: Tensor, wants_gradient: bool
    ) -> tuple[Tensor, Tensor | None]:
        with torch.set_grad_enabled(wants_gradient):
            inner = scores.detach().requires_grad_(wants_gradient)
            value = self._plain(inner, targets)
            gradient = torch.autograd.grad(value, inner)[0] if wants_gradient else None
        return value.detach(), gradient
