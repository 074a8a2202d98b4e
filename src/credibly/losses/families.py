"""The three families of losses: single entries, the labels of a row, a whole batch."""

from __future__ import annotations

import copy
from abc import abstractmethod
from typing import ClassVar, Self

import torch
from torch import Tensor

from credibly import checks
from credibly import targets as coding
from credibly.arrays import to_numpy
from credibly.losses.base import Loss, Reduction, belongs, working_precision
from credibly.losses.fused.entries import EntryLoop, softplus_loop
from credibly.losses.fused.form import FusedForm
from credibly.losses.fused.pairs import LinkedPairs
from credibly.losses.linear.chunks import EntriesLinear, LinearForm
from credibly.types import ArrayLike, LogOdds, Scores


class BinaryLoss(Loss):
    r"""Mean over known entries of $y\,\ell_+(v) + (1-y)\,\ell_-(v)$.

    A subclass gives ``positive`` ($\ell_+$) and ``negative`` ($\ell_-$), which must be
    differentiable by autograd, and ``log_odds`` where it has a closed form; otherwise the link is
    derived: the conditional risk $\eta\,\ell_+ + (1-\eta)\,\ell_-$ is stationary where
    $\mathrm{logit}\,\eta = \log \ell_-'(v) - \log(-\ell_+'(v))$.

    Weights of labels, rows or entries multiply both partial losses, so they do not change the link
    or the minimiser. The mean still divides by the number of known entries.

    Args:
        reduction: see `Loss`.
        label_weight: non-negative factors, one per label.

    Example:
        >>> from torch.nn.functional import softplus
        >>> class Logistic(BinaryLoss):
        ...     def positive(self, scores):
        ...         return softplus(-scores)
        ...
        ...     def negative(self, scores):
        ...         return softplus(scores)
        >>> loss = Logistic()
        >>> round(float(loss(torch.tensor([[2.0, -1.0]]), torch.tensor([[1.0, -1.0]]))), 4)
        0.1269
        >>> loss.probabilities(torch.tensor([0.0, 2.0]))
        tensor([0.5000, 0.8808])
    """

    name = ""
    labelwise = True
    label_weight: Tensor | None
    per_label: ClassVar[tuple[str, ...]] = ("label_weight",)
    """Buffers that may hold one number per label."""
    smallest_example: ClassVar[str] = """
class Mine(cr.losses.BinaryLoss):
    def positive(self, scores):
        return torch.nn.functional.softplus(-scores)

    def negative(self, scores):
        return torch.nn.functional.softplus(scores)
"""

    def __init__(
        self, *, reduction: Reduction = "mean", label_weight: Tensor | None = None
    ) -> None:
        super().__init__(reduction=reduction)
        vector = None if label_weight is None else checks.label_weight(label_weight)
        self.register_buffer("label_weight", vector, persistent=False)

    @abstractmethod
    def positive(self, scores: Scores) -> Tensor:
        """Return the partial loss of a label that is present."""

    @abstractmethod
    def negative(self, scores: Scores) -> Tensor:
        """Return the partial loss of a label that is absent."""

    def loop(self) -> FusedForm | None:
        """Return the compiled loop of the formulas, if there is one.

        It is valid only for the class that defines the formulas, not for its subclasses.
        """
        numbers = self.softplus_numbers()
        return None if numbers is None else EntryLoop(self, softplus_loop, numbers)

    def pairs_loop(self, weight: float) -> FusedForm | None:
        numbers = self.softplus_numbers()
        plain = self.label_weight is None and self.reduction == "mean"
        return LinkedPairs(self, numbers, weight) if plain and numbers is not None else None

    def softplus_numbers(self) -> tuple[float, ...] | None:
        """Return slope, offset and weight of both sides if they are softplus, else None.

        A side is weight · softplus(slope · score + offset). The same holds for subclasses as of
        ``loop``.
        """
        return None

    def linear_form(self) -> LinearForm | None:
        # A subclass that combines the formulas itself may need all labels of a row.
        whole = belongs(type(self), "linear_form", ("forward", "values", "plain_values"))
        return EntriesLinear(self) if whole else None

    def for_labels(self, labels: slice) -> Self:
        """Return this loss for some of its labels, with its values per label restricted to them."""
        other = copy.copy(self)
        own = {name: self._buffers[name] for name in self.per_label}
        own = {name: each[labels] for name, each in own.items() if each is not None and each.ndim}
        other._buffers = {**self._buffers, **own}
        return other

    def forward(self, scores: Scores, targets: Tensor, weight: Tensor | None = None) -> Tensor:
        scores, targets = self._prepare(scores, targets)
        if weight is None and self.label_weight is None and self.reduction in ("mean", "rows"):
            form = self.loop()
            mean = self.plain_mean(scores, targets) if form is None else form(scores, targets)
            return mean * _per_row(targets).to(mean) if self.reduction == "rows" else mean
        values = self._weighted(scores, targets, weight)
        known = targets >= 0
        return self.reduce(values, known.any(-1).sum() if self.reduction == "rows" else known.sum())

    def values(self, scores: Scores, targets: Tensor, weight: Tensor | None = None) -> Tensor:
        """Return one value per entry; 0 where the target is unknown."""
        return self._weighted(*self._prepare(scores, targets), weight)

    def plain_mean(self, scores: Scores, targets: Tensor) -> Tensor:
        """Return the mean over known entries by the formula, differentiable any number of times."""
        known = (targets >= 0).sum().clamp(min=1)
        return self.plain_values(scores, coding.unknown_to_minus_one(targets)).sum() / known

    def plain_values(self, scores: Scores, targets: Tensor) -> Tensor:
        """Return the formula for every entry; ``targets`` are −1 where unknown."""
        # Unknown entries are replaced before the formula. Masking after it would let the gradient
        # of an infinite or NaN score through as 0 × NaN.
        known = targets >= 0
        scores = torch.where(known, scores, 0.0)
        values = targets * self.positive(scores) + (1 - targets) * self.negative(scores)
        return torch.where(known, values, 0.0)

    def log_odds(self, scores: Scores) -> LogOdds:
        return self.derived_log_odds(scores)

    def derived_log_odds(self, scores: Scores) -> LogOdds:
        """Return the link that the partial losses imply, by autograd; differentiable itself."""
        scores = working_precision(scores)
        outer = torch.is_grad_enabled() and scores.requires_grad
        with torch.enable_grad():
            inner = scores if outer else scores.detach().requires_grad_()
            down = torch.autograd.grad(self.positive(inner).sum(), inner, create_graph=outer)[0]
            up = torch.autograd.grad(self.negative(inner).sum(), inner, create_graph=outer)[0]
            return torch.log(up) - torch.log(-down)

    def extra_repr(self) -> str:
        shown = [super().extra_repr()]
        if self.label_weight is not None:
            shown.append(f"label_weight=<{self.label_weight.numel()} numbers>")
        return ", ".join(text for text in shown if text)

    def _prepare(self, scores: Scores, targets: Tensor) -> tuple[Scores, Tensor]:
        # In the usual case, scores and targets of one dtype and shape, nothing is converted.
        precise = isinstance(scores, Tensor) and scores.dtype in (torch.float32, torch.float64)
        if precise and targets.dtype == scores.dtype and targets.shape == scores.shape:
            return scores, targets
        checks.float_scores(scores)
        scores = working_precision(scores)
        return scores, coding.tensor_matrix(scores, targets)

    def _weighted(self, scores: Scores, targets: Tensor, weight: Tensor | None) -> Tensor:
        values = self.plain_values(scores, coding.unknown_to_minus_one(targets))
        if self.label_weight is not None:
            checks.label_weight(self.label_weight, scores.shape[-1])
            values = values * self.label_weight.to(values.dtype)
        if weight is not None:
            values = values * checks.entry_weight(weight, scores).to(values.dtype)
        return values


def _per_row(targets: Tensor) -> Tensor:
    """Return the number of known entries per row with at least one."""
    known = targets >= 0
    return known.sum().double() / known.any(-1).sum().clamp(min=1)


class _MatrixLoss(Loss):
    """A loss of (rows, labels) whose weights belong to rows."""

    name = ""

    @abstractmethod
    def batch_values(
        self, scores: Scores, targets: Tensor, weight: Tensor | None, *, update_state: bool
    ) -> tuple[Tensor, Tensor]:
        """Return one value per row or entry, and the number that the mean divides by.

        ``scores`` are in float32 or float64, ``targets`` a matrix with −1 where unknown, ``weight``
        is (rows,) or None. State may change only where ``update_state`` says so. A loss that
        declares ``needs_indices`` takes them here, as ``indices``.
        """

    def forward(
        self, scores: Scores, targets: Tensor, weight: Tensor | None = None, **details: Tensor
    ) -> Tensor:
        checked = self._checked_batch(scores, targets, weight)
        return self.reduce(*self.batch_values(*checked, update_state=self.training, **details))

    def values(
        self, scores: Scores, targets: Tensor, weight: Tensor | None = None, **details: Tensor
    ) -> Tensor:
        """Return one value per row, or per entry where the method has them; 0 where unknown."""
        checked = self._checked_batch(scores, targets, weight)
        return self.batch_values(*checked, update_state=False, **details)[0]

    def _checked_batch(
        self, scores: Scores, targets: Tensor, weight: Tensor | None
    ) -> tuple[Scores, Tensor, Tensor | None]:
        scores, targets = matrices(self, scores, targets)
        rows = None if weight is None else checks.row_weight(weight, scores).to(scores.dtype)
        return scores, targets, rows


class RowLoss(_MatrixLoss):
    """Mean of one value per row over the rows that count.

    A weight of a row multiplies its value, which does not change the minimiser. Weights of single
    entries are an error: inside a sum over the labels of a row, they would change the link.

    Example:
        >>> class Squared(RowLoss):
        ...     def row_values(self, scores, targets):
        ...         known = targets >= 0
        ...         return (scores - targets).square().where(known, 0.0).sum(1), known.any(1)
        >>> scores = torch.tensor([[1.0, 0.5], [0.0, 2.0]])
        >>> targets = torch.tensor([[1, 0], [0, -1]])
        >>> Squared()(scores, targets), Squared().values(scores, targets)
        (tensor(0.1250), tensor([0.2500, 0.0000]))
    """

    name = ""
    smallest_example: ClassVar[str] = Loss.smallest_example

    @abstractmethod
    def row_values(self, scores: Scores, targets: Tensor) -> tuple[Tensor, Tensor]:
        """Return one value per row, and which rows count (bool).

        ``scores`` are (rows, labels) in float32 or float64, ``targets`` the same with −1 where
        unknown. Values of rows that do not count are taken as 0.
        """

    def batch_values(
        self, scores: Scores, targets: Tensor, weight: Tensor | None, *, update_state: bool
    ) -> tuple[Tensor, Tensor]:
        """Return the value of each row, and the number of rows that count."""
        values, counted = self.row_values(scores, targets)
        values = torch.where(counted, values, 0.0)
        return values if weight is None else values * weight.to(values.dtype), counted.sum()


def matrices(loss: Loss, scores: Scores, targets: Tensor) -> tuple[Scores, Tensor]:
    """Return scores in working precision, and targets as a matrix with −1 where unknown."""
    checks.matrix_scores(scores, loss.scores_per_label)
    scores = working_precision(scores)
    one_head = scores[:, : loss.num_labels_of(scores.shape[1])]
    return scores, coding.unknown_to_minus_one(coding.tensor_matrix(one_head, targets))


class BatchLoss(_MatrixLoss):
    """A loss that couples the rows of a batch, for example by a normalizer.

    A subclass that sums over processes itself, with `credibly.losses.collectives`, sets
    ``spans_processes = True``. Otherwise a trainer gathers the batches of all processes.

    Example:
        >>> class Centred(BatchLoss):
        ...     def batch_values(self, scores, targets, weight, *, update_state):
        ...         known = targets >= 0
        ...         squares = (scores - scores.mean() - targets).square()
        ...         return squares.where(known, 0.0).sum(1), known.any(1).sum()
        >>> Centred()(torch.tensor([[3.0], [1.0]]), torch.tensor([[1], [0]]))
        tensor(0.5000)
    """

    name = ""
    smallest_example: ClassVar[str] = """
class Mine(cr.losses.BatchLoss):
    def batch_values(self, scores, targets, weight, *, update_state):
        known = targets >= 0
        centred = scores - scores.mean()
        values = (centred - targets).square().where(known, 0.0).sum(1)
        return values, known.any(1).sum()
"""


def check_targets(targets: ArrayLike, num_labels: int | None = None) -> None:
    """Raise ``InputError`` unless ``targets`` are 0, 1, soft in [0, 1] or unknown (−1, −100, NaN).

    Losses check only shapes and dtypes, because reading values would stall a GPU. Call this
    function once on a data set.

    Args:
        targets: a (rows, labels) matrix, or integer class indices of shape (rows,).
        num_labels: number of labels, if known: number of columns of a matrix; class indices must
            lie below it.

    Example:
        >>> import torch
        >>> check_targets(torch.tensor([[1, 0, -1], [0, 0, 0]]))
        >>> check_targets(torch.tensor([[1, -1], [-1, 1]]))
        Traceback (most recent call last):
        ...
        credibly.checks.InputError: `targets` must code absent labels as 0; got only −1 and +1, \
and −1 means unknown here. If −1 means absent, pass `(targets > 0).float()`.
    """
    array = to_numpy(targets)
    if array.ndim == 1:
        coding.check_indices(array, num_labels)
    elif coding.is_ambiguous(coding.decode(array, coding="unknown", num_labels=num_labels)):
        raise checks.InputError(
            "`targets` must code absent labels as 0; got only −1 and +1, and −1 means unknown "
            "here. If −1 means absent, pass `(targets > 0).float()`."
        )
