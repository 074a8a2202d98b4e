"""Two-way loss, alone and as a term added to another loss."""

from __future__ import annotations

from typing import Literal, Self

import torch
from torch import Tensor
from torch.nn.functional import logsigmoid

from credibly import checks
from credibly import targets as coding
from credibly.losses import collectives
from credibly.losses.base import Loss, Reduction, working_precision
from credibly.losses.families import BatchLoss
from credibly.losses.fused.two_way import TwoWayForm
from credibly.losses.linear.chunks import LinearForm
from credibly.losses.linear.rows import TwoWayLinear
from credibly.losses.wrapped import WrappedLoss
from credibly.types import Scores


class TwoWay(BatchLoss):
    r"""Two-way multi-label loss.

    For a set with positives $P$ and negatives $N$ (a row, or a column of the batch)

    $$\ell = \mathrm{softplus}\Bigl(T_N \log\sum_{n \in N} e^{x_n/T_N}
      + T_P \log\sum_{p \in P} e^{-x_p/T_P} + \epsilon\Bigr)$$

    and the loss is the mean over rows (sample-wise) plus the mean over columns (class-wise).
    Kobayashi (2023), Eqs. 15 and 17, the margin from Eq. iii of its supplement; where that says
    the loss pushes max over $P$ above max over $N$, it is the minimum over $P$.

    Rows and columns without positives or without negatives are excluded before the sums, from value
    and count (the official code gives NaN for a batch without positives). A soft target $y$ counts
    as positive with weight $y$ and as negative with weight $1 - y$ inside the sums.

    This loss has no link, because it does not change when all scores shift. Fit
    `cr.calibrate.Affine` on held-out scores; a temperature alone is not enough. A NaN score makes
    its row and its column NaN, and so the loss.

    Across processes, in training mode, the class-wise part uses the columns of the union of all
    batches; see `credibly.losses.collectives` for the convention. A weight multiplies the term of
    its row, and counts the row that many times in the sums of columns.

    With few rows in a batch, most columns have no positive. ``memory=N`` keeps the scores (without
    gradient) and targets of the last N training rows and adds them to the batch in the class-wise
    part. It applies to ``forward`` without weights; ``values`` and evaluation use only the batch.
    Each process has its own memory. The memory is not saved: a resumed run starts with an empty
    one.

    Args:
        temperature_pos: $T_P > 0$; above 1 it spreads the gradient over the positives.
        temperature_neg: $T_N > 0$.
        margin: $\epsilon$, any real number.
        ways: ``"both"``, ``"samples"`` (rows only) or ``"labels"`` (columns only).
        memory: number of past rows that the class-wise part uses in addition to the batch.
        reduction: ``"mean"``, ``"rows"``, ``"sum"`` or ``"none"``; see `Loss`.

    Example:
        >>> scores = torch.tensor([[2.0, -1.0, 0.5], [0.0, 1.0, -2.0]])
        >>> targets = torch.tensor([[1.0, 0.0, 1.0], [0.0, 1.0, 0.0]])
        >>> TwoWay()(scores, targets)
        tensor(0.8017)
        >>> TwoWay(ways="samples").values(scores, targets)
        tensor([1.0326, 0.3490])
    """

    name = "twl"
    has_link = False
    published = "sigmoid"
    spans_processes = True

    def __init__(
        self,
        temperature_pos: float = 4.0,
        temperature_neg: float = 1.0,
        margin: float = 0.0,
        ways: Literal["both", "samples", "labels"] = "both",
        memory: int | None = None,
        *,
        reduction: Reduction = "mean",
    ) -> None:
        super().__init__(reduction=reduction)
        self.temperature_pos = checks.positive("temperature_pos", temperature_pos)
        self.temperature_neg = checks.positive("temperature_neg", temperature_neg)
        self.margin = checks.finite("margin", margin)
        self.ways = checks.choice("ways", ways, ("both", "samples", "labels"))
        self.memory = None if memory is None else checks.whole_number("memory", memory, 1)
        self._past: tuple[Tensor, Tensor] | None = None

    def forward(
        self, scores: Scores, targets: Tensor, weight: Tensor | None = None, **details: Tensor
    ) -> Tensor:
        if weight is not None or self.reduction not in ("mean", "rows"):
            if self.memory and self.training:
                raise checks.InputError(
                    "`memory` needs `reduction='mean'` or `'rows'`, and rows without weights. "
                    "Leave out `memory`, or the weights and the other reduction."
                )
            return super().forward(scores, targets, weight, **details)
        checks.matrix_scores(scores)
        scores = working_precision(scores)
        targets = coding.tensor_matrix(scores, targets)
        if self.training and (self.memory or collectives.process_count() > 1):
            return self.plain_mean(scores, coding.unknown_to_minus_one(targets))
        return TwoWayForm(self)(scores, targets)

    def linear_form(self) -> LinearForm | None:
        return None if self.memory else TwoWayLinear(self)

    def initial_scores(self, label_rates: Tensor) -> Scores:
        """Return the logits of the rates: not a link, but a start that ranks labels by rate."""
        rates = torch.as_tensor(label_rates).double()
        return torch.logit(rates).to(torch.get_default_dtype())

    def plain_mean(self, scores: Scores, targets: Tensor) -> Tensor:
        """Return the loss by the formula, for any range of scores and any number of processes."""
        total = scores.new_zeros((), dtype=torch.float64)
        across = self.training
        if self.ways != "labels":
            terms, valid = self._terms(scores, targets, dim=1)
            value = collectives.all_reduce_sum(terms.sum(), across)
            count = collectives.all_reduce_sum(valid.sum(), across)
            total = total + value / count.clamp(min=1)
        if self.ways != "samples":
            if self.memory and self.training:
                scores, targets = self._with_past(scores, targets, self.memory)
            terms, valid = self._terms(scores, targets, dim=0, across=across)
            total = total + terms.sum() / valid.sum().clamp(min=1)
        return total.to(scores.dtype)

    def _with_past(self, scores: Scores, targets: Tensor, memory: int) -> tuple[Scores, Tensor]:
        """Return stored rows and the batch, and store the last of them."""
        rows = scores, targets
        if self._past is not None:
            past_scores, past_targets = self._past
            rows = torch.cat([past_scores.to(scores), scores]), torch.cat([past_targets, targets])
        self._past = rows[0].detach()[-memory:], rows[1].detach()[-memory:]
        return rows

    def batch_values(
        self, scores: Scores, targets: Tensor, weight: Tensor | None, *, update_state: bool
    ) -> tuple[Tensor, Tensor]:
        """Return one value per row, whose mean over rows with a known label is the loss.

        The sample-wise term belongs to its row. The term of a column is divided among its
        positives.
        """
        across = self.training
        known_rows = collectives.all_reduce_sum((targets >= 0).any(1).sum(), across)
        values = scores.new_zeros(len(scores), dtype=torch.float64)
        if self.ways != "labels":
            terms, valid = self._terms(scores, targets, dim=1)
            count = collectives.all_reduce_sum(valid.sum(), across).clamp(min=1)
            values = values + (terms if weight is None else terms * weight) * known_rows / count
        if self.ways != "samples":
            terms, valid = self._terms(scores, targets, dim=0, across=across, weight=weight)
            present = targets.clamp(min=0).double()
            present = present if weight is None else present * weight[:, None]
            total = collectives.all_reduce_sum(present.sum(0), across)
            shares = present / torch.where(total > 0, total, 1.0) * terms
            values = values + shares.sum(1) * known_rows / valid.sum().clamp(min=1)
        return values.to(scores.dtype), known_rows

    def _terms(
        self,
        scores: Scores,
        targets: Tensor,
        *,
        dim: int,
        across: bool = False,
        weight: Tensor | None = None,
    ) -> tuple[Tensor, Tensor]:
        """Return one term for each row (``dim=1``) or column (``dim=0``), and which of them count.

        In the sums of a column, a row counts ``weight`` times.
        """
        # In float64: T·log Σ of scores near 1e4 would lose the digits that matter to the softplus.
        known = targets >= 0
        if weight is not None:
            known = known & (weight[:, None] > 0)
        safe = torch.where(known, scores, 0.0).double()
        share = torch.where(known, targets, 0.5).double()
        # The mask is applied after the logarithm, so the argument of a masked entry must not be 0.
        some_absent, some_present = known & (share < 1), known & (share > 0)
        absent = torch.log1p(-torch.where(some_absent, share, 0.5))
        present = torch.log(torch.where(some_present, share, 0.5))
        absent = torch.where(some_absent, absent, -torch.inf)
        present = torch.where(some_present, present, -torch.inf)
        if weight is not None:
            extra = torch.log(torch.where(weight > 0, weight, 1.0)).double()[:, None]
            absent, present = absent + extra, present + extra
        hard = collectives.logsumexp(safe / self.temperature_neg + absent, dim, across)
        weak = collectives.logsumexp(-safe / self.temperature_pos + present, dim, across)
        valid = ~(torch.isneginf(hard) | torch.isneginf(weak))
        hard, weak = torch.where(valid, hard, 0.0), torch.where(valid, weak, 0.0)
        inner = self.temperature_neg * hard + self.temperature_pos * weak + self.margin
        return torch.where(valid, -logsigmoid(-inner), 0.0), valid


class TwoWayTerm(WrappedLoss):
    r"""A loss plus the two-way loss of its ranking scores.

    $$\ell + \frac{\lambda}{L}\, \ell_{\text{two-way}}$$

    $L$ is the number of labels. Losses of single entries are means over labels and the two-way
    loss is not; with the division, the same $\lambda$ works for few and for many labels.

    A proper loss trains probabilities, and the two-way loss trains the ranking. In few epochs, a
    network learns to rank faster with the two-way loss. The sum ranks like the two-way loss and
    keeps the link of the wrapped loss.

    The term moves the minimiser, so ``properness`` is ``"none"``: fit a calibrator on held-out rows
    (`credibly train` does).

    Across processes, if the inner loss leaves gathering to the trainer, so does this one.

    Args:
        loss: any loss; its ``reduction`` must be ``"mean"`` or ``"rows"``.
        weight: $\lambda \ge 0$.
        temperature_pos: see `TwoWay`.
        temperature_neg: see `TwoWay`.
        reduction: ``"mean"``, ``"rows"``, ``"sum"`` or ``"none"``; see `Loss`.

    Example:
        >>> from credibly.losses.bce import BCE
        >>> loss = TwoWayTerm(BCE(), weight=2.0)
        >>> loss(torch.tensor([[0.0, 2.0]]), torch.tensor([[1.0, 0.0]]))
        tensor(3.5370)
        >>> loss.name
        'bce+twl'
    """

    suffix = "twl"

    def __init__(
        self,
        loss: Loss,
        weight: float = 2.0,
        temperature_pos: float = 4.0,
        temperature_neg: float = 1.0,
        *,
        reduction: Reduction = "mean",
    ) -> None:
        super().__init__(loss, reduction=reduction)
        self.weight = checks.at_least("weight", weight, 0.0)
        self.two_way = TwoWay(temperature_pos, temperature_neg)
        self.temperature_pos = self.two_way.temperature_pos
        self.temperature_neg = self.two_way.temperature_neg
        self._inherit(biased=self.weight > 0)

    def train(self, mode: bool = True) -> Self:
        """Set the mode. The term sums over processes only if the inner loss does."""
        super().train(mode)
        self.two_way.train(mode and self.spans_processes)
        return self

    def _mean(
        self, scores: Scores, targets: Tensor, weight: Tensor | None, **details: Tensor
    ) -> Tensor:
        ranked = self.ranking_scores(scores)
        term = self.two_way(ranked, targets, weight)
        share = self.weight / ranked.shape[-1]
        return self.loss(scores, targets, weight, **details) + share * term

    def values(
        self, scores: Scores, targets: Tensor, weight: Tensor | None = None, **details: Tensor
    ) -> Tensor:
        """Return one value per row: the inner loss's mean over known entries, and the term."""
        ranked = self.ranking_scores(scores)
        matrix = coding.unknown_to_minus_one(coding.tensor_matrix(ranked, targets))
        values = self._row_values(scores, matrix, weight, details)
        share = self.weight / ranked.shape[-1]
        return values + share * self.two_way.values(ranked, targets, weight)
