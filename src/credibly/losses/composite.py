"""A loss from your own pair of partial losses; its link is derived and checked."""

from __future__ import annotations

from collections.abc import Callable
from types import BuiltinFunctionType, FunctionType

import torch
from torch import Tensor

from credibly.checks import InputError
from credibly.losses.base import Reduction
from credibly.losses.families import BinaryLoss
from credibly.types import Scores

_GRID = torch.linspace(-20, 20, 2001, dtype=torch.float64)


class Composite(BinaryLoss):
    r"""A loss from two partial losses, with the link that belongs to them.

    $$\mathrm{logit}\,\hat\eta(v) = \log \ell_-'(v) - \log\bigl(-\ell_+'(v)\bigr)$$

    The link is derived by autograd. On construction, both partial losses are checked: finite,
    ``positive`` not increasing, ``negative`` not decreasing. If the derived log-odds increase
    strictly, the pair is strictly proper with them. If they have plateaus, probabilities are
    recoverable outside of the plateaus. If they decrease, several scores have the same probability,
    and the loss has no link. ``cr.losses.audit(loss)`` shows where.

    Reid & Williamson (2010), *Composite binary losses*.

    Args:
        positive: $\ell_+$, from a tensor of scores to a tensor of the same shape, elementwise.
        negative: $\ell_-$, likewise.
        reduction: ``"mean"``, ``"rows"``, ``"sum"`` or ``"none"``; see `Loss`.
        label_weight: factors of both sides, one per label; see `BinaryLoss`.

    Example:
        Squared hinges imply a probability that grows linearly between the margins:

        >>> def hinge(v):
        ...     return (1 - v).clamp(min=0) ** 2
        >>> loss = Composite(positive=hinge, negative=lambda v: hinge(-v))
        >>> loss.probabilities(torch.tensor([-0.5, 0.0, 0.8]))
        tensor([0.2500, 0.5000, 0.9000])
        >>> loss.properness
        'recoverable'
    """

    name = "composite"

    def __init__(
        self,
        positive: Callable[[Tensor], Tensor],
        negative: Callable[[Tensor], Tensor],
        *,
        reduction: Reduction = "mean",
        label_weight: Tensor | None = None,
    ) -> None:
        super().__init__(reduction=reduction, label_weight=label_weight)
        self._positive, self._negative = positive, negative
        down, up = _slopes("positive", positive), _slopes("negative", negative)
        _direction("positive", "increase", -down)
        _direction("negative", "decrease", up)
        log_odds = torch.log(up) - torch.log(-down)
        steps = log_odds[1:] - log_odds[:-1]  # NaN if both ends are on the same plateau at ±∞
        rise = log_odds.nan_to_num(posinf=1e3, neginf=-1e3)
        self.has_link = not bool((steps < -1e-6).any()) and bool(rise.max() - rise.min() > 1e-3)
        rises = bool((steps > 0).all()) and bool(torch.isfinite(log_odds).all())
        self.properness = "strict" if rises else "recoverable" if self.has_link else "none"

    def positive(self, scores: Scores) -> Tensor:
        return self._positive(scores)

    def negative(self, scores: Scores) -> Tensor:
        return self._negative(scores)

    def log_odds(self, scores: Scores) -> Tensor:
        if not self.has_link:
            raise InputError(
                "this pair of partial losses has no link, because the derived log-odds decrease "
                "as scores grow. `cr.losses.audit(loss)` shows where. Or fit "
                "`cr.calibrate.Isotonic()` on held-out scores."
            )
        return super().log_odds(scores)

    def extra_repr(self) -> str:
        return f"positive={_shown(self._positive)}, negative={_shown(self._negative)}"


def _shown(function: Callable[[Tensor], Tensor]) -> str:
    named = isinstance(function, FunctionType | BuiltinFunctionType)
    return function.__name__ if named else repr(function)


def _slopes(side: str, partial: Callable[[Tensor], Tensor]) -> Tensor:
    scores = _GRID.clone().requires_grad_()
    values = partial(scores)
    if not isinstance(values, Tensor) or values.shape != scores.shape:
        came = tuple(values.shape) if isinstance(values, Tensor) else type(values).__name__
        raise InputError(
            f"`{side}` must map a tensor of scores to a tensor of the same shape, "
            f"{tuple(scores.shape)}; got {came}. Return one value per score; do not reduce."
        )
    if not values.requires_grad:
        raise InputError(
            f"`{side}` must be differentiable by autograd; its result does not depend on the "
            "scores. Write it with torch operations, without `.detach()` or `.item()` on scores."
        )
    (slopes,) = torch.autograd.grad(values.sum(), scores)
    finite = torch.isfinite(values) & torch.isfinite(slopes)
    if not bool(finite.all()):
        where = _GRID[~finite][0].item()
        raise InputError(
            f"`{side}` must have finite values and slopes; at score {where:g} it does not. Use "
            "stable forms: `torch.nn.functional.softplus` and `logsigmoid` instead of log(sigmoid)."
        )
    return slopes


def _direction(side: str, wrong: str, slopes: Tensor) -> None:
    if bool((slopes < -1e-12).any()):
        where = _GRID[slopes < -1e-12][0].item()
        raise InputError(
            f"`{side}` must not {wrong} as scores grow; at score {where:g} it does. High scores "
            "mean the label is present; check the sign, and that the two are not swapped."
        )
