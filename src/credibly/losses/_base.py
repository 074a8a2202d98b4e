"""What every loss is: a criterion and the map from its scores to probabilities, in one object."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import ClassVar, Literal

import torch
from torch import Tensor, nn

from credibly import checks
from credibly.types import LogOdds, Probabilities, Scores, Targets, Values

UNKNOWN = -1
Properness = Literal["strict", "recoverable", "none"]


class Loss(nn.Module, ABC):
    """A training criterion that owns its link.

    Subclasses give ``forward`` (a scalar) and, where the method has a link, ``log_odds``.
    """

    name: ClassVar[str]
    """The name on the command line, for ``from_name``."""

    aliases: ClassVar[tuple[str, ...]] = ()
    """Further names."""

    from_text: ClassVar[bool] = True
    """Whether a name and numbers are enough to build one; losses made of others say no."""

    properness: Properness = "none"
    """``"strict"``: the risk minimiser's probabilities are the true rates. ``"recoverable"``: they
    are, except on a stretch that the loss cannot resolve. ``"none"``: no link; calibrate."""

    scores_per_label: ClassVar[int] = 1
    """Outputs the model must give for each label; the columns of one head stand together."""

    single_label: ClassVar[bool] = False
    """Whether each row must have exactly one observed label (``targets`` may be class indices)."""

    needs_rows: ClassVar[bool] = False
    """Whether it keeps something for every training row and wants ``indices=`` with each batch."""

    labelwise: bool = False
    """Whether the link maps each score on its own, so that it can be drawn as a curve."""

    detached: bool = False
    """Whether training uses a gradient that is not that of the value, by the method's design."""

    exclusive: bool = False
    """Whether the link takes exactly one label to be true, so that probabilities sum to one."""

    has_link: bool = True
    """Whether ``log_odds`` and ``probabilities`` are defined."""

    @abstractmethod
    def forward(self, scores: Scores, targets: Targets) -> Tensor:
        """The loss: a scalar, the mean over known entries (or rows, see each loss)."""

    @abstractmethod
    def values(self, scores: Scores, targets: Targets) -> Values:
        """Unreduced: one value an entry where the method has them, else one a row."""

    def log_odds(self, scores: Scores) -> LogOdds:
        """Logit of the probability that each label is present; stable for any score."""
        raise checks.InputError(
            f"{type(self).__name__} has no link: its scores only rank, so they cannot be turned "
            "into probabilities alone. Fit `cr.calibrate.Affine()` on held-out scores and use its "
            "`transform(scores)` as log-odds."
        )

    def probabilities(self, scores: Scores) -> Probabilities:
        """Probability that each label is present."""
        return torch.sigmoid(self.log_odds(scores))

    def ranking_scores(self, scores: Scores) -> Scores:
        """What to rank by, one column a label. The scores themselves unless there are two heads."""
        return scores

    def initial_scores(self, label_rates: Tensor) -> Scores:
        """Scores whose probabilities are ``label_rates``: the biases to start a last layer with.

        Rates of exactly 0 or 1 must be smoothed first (add-half on the counts does).
        """
        rates = torch.as_tensor(label_rates).double()
        wanted = torch.logit(rates)
        low, high = torch.full_like(wanted, -1e4), torch.full_like(wanted, 1e4)
        for _ in range(
            200
        ):  # bisection: log_odds is increasing; 200 halvings end at adjacent floats
            middle = (low + high) / 2
            below = self.log_odds(middle) < wanted
            low, high = torch.where(below, middle, low), torch.where(below, high, middle)
        return high.to(torch.get_default_dtype())

    def __str__(self) -> str:
        return f"{type(self).__name__}({self.extra_repr()})"


def working_precision(scores: Scores) -> Scores:
    """float16 and bfloat16 become float32; everything inside a loss happens in that."""
    return scores.float() if scores.dtype in (torch.float16, torch.bfloat16) else scores


def as_matrix_targets(scores: Scores, targets: Targets) -> Targets:
    """Targets in the dtype and shape of ``scores``; class indices become one row each."""
    if targets.dtype == scores.dtype and targets.shape == scores.shape:
        return targets
    if (
        targets.ndim == scores.ndim - 1
        and not targets.is_floating_point()
        and targets.dtype != torch.bool
    ):
        targets = one_hot(targets, scores.shape[-1], scores.dtype)
    checks.same_shape(scores, targets)
    return targets.to(scores.dtype)


def one_hot(indices: Tensor, num_labels: int, dtype: torch.dtype) -> Targets:
    """Class indices as a 0/1 matrix; index −1 gives a row of unknowns."""
    if indices.device.type == "cpu" and indices.numel():
        low, high = int(indices.min()), int(indices.max())
        if low < UNKNOWN or high >= num_labels:
            raise checks.InputError(
                f"class indices must lie in [0, {num_labels - 1}] or be −1 (unknown); "
                f"got [{low}, {high}]. The model has {num_labels} labels."
            )
    known = indices >= 0
    targets = torch.zeros(*indices.shape, num_labels, dtype=dtype, device=indices.device)
    targets.scatter_(-1, indices.clamp(min=0)[..., None], 1.0)
    return torch.where(known[..., None], targets, torch.full_like(targets, UNKNOWN))
