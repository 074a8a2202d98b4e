"""Is a loss proper? Look at the gradient it really uses, and say where it breaks."""

from __future__ import annotations

import copy
import itertools
from dataclasses import dataclass
from fractions import Fraction

import torch
from torch import Tensor

from credibly.losses._base import Loss, Properness
from credibly.losses._binary import BinaryLoss

RATES = (0.01, 0.05, 0.1, 0.25, 0.5, 0.75, 0.9, 0.95, 0.99)
_REACH = 25.0
_STEPS = 5_001
_NOISE = 1e-4  # a derived link carries rounding noise of this size near ±25
_SETTLING = 300
_COLUMNS = 3  # some links depend on the number of labels; any number above one will do


@dataclass(frozen=True)
class Audit:
    """What ``audit`` found. ``str()`` of it is for people."""

    loss: str
    properness: Properness
    """The verdict, from what was measured, not from what the loss says of itself."""
    increasing: bool
    """Whether the link rises strictly wherever it is neither 0 nor 1."""
    low: float
    """Smallest probability the link reaches."""
    high: float
    """Largest probability the link reaches."""
    plateaus: tuple[tuple[float, float], ...]
    """Intervals of scores on which the link stands still at 0 or 1."""
    falls: tuple[tuple[float, float], ...]
    """Intervals of scores on which the link falls."""
    rates: tuple[float, ...]
    minimisers: tuple[float, ...]
    """Probability read off by the link where training with each rate stops."""
    printed: tuple[float, ...] | None
    """The same with the map that the method's authors print, where it differs from the link."""
    note: str

    @property
    def worst(self) -> float:
        """Largest distance between a rate within reach and what training with it ends at."""
        pairs = zip(self.rates, self.minimisers, strict=True)
        return max((abs(a - b) for a, b in pairs if self.low < a < self.high), default=0.0)

    def __str__(self) -> str:
        lines = [f"{self.loss}: {_VERDICT[self.properness]}", f"  {self.note}"]
        if self.rates:
            lines.append(f"  probabilities reach from {self.low:.4g} to {self.high:.4g}")
            lines.append("  rate        " + "".join(f"{rate:>8.2f}" for rate in self.rates))
            lines.append("  link says   " + "".join(f"{p:>8.4f}" for p in self.minimisers))
        if self.printed is not None:
            lines.append("  print says  " + "".join(f"{p:>8.4f}" for p in self.printed))
        for word, stretches in (("stands still", self.plateaus), ("falls", self.falls)):
            for a, b in stretches:
                lines.append(f"  the link {word} for scores from {_edge(a)} to {_edge(b)}")
        return "\n".join(lines)


_VERDICT = {
    "strict": "strictly proper",
    "recoverable": "not proper as printed; probabilities are recoverable through the link",
    "none": "not a probability loss",
}


def _edge(score: float) -> str:
    return "−∞" if score <= -_REACH else "∞" if score >= _REACH else f"{score:.4g}"


def audit(loss: Loss) -> Audit:
    """Check a loss: does its link rise, what does it reach, is the minimiser the true rate?

    The minimiser is found from the gradient that training uses (a detached weight counts as
    detached). Losses that couple labels are audited on three labels with known rates, by
    minimising the mean over all outcomes.

    Example:
        >>> from credibly.losses import SPA
        >>> audit(SPA()).properness
        'strict'
    """
    if loss.needs_rows or not (loss.has_link or isinstance(loss, BinaryLoss)):
        note = "it only ranks; fit `cr.calibrate.Affine()` on held-out scores for probabilities"
        if loss.needs_rows:
            note = "its targets are estimates of its own, so no rate is given that it could recover"
        return Audit(str(loss), "none", False, 0, 0, (), (), (), (), None, note)
    if isinstance(loss, BinaryLoss):
        return _audit_curve(loss)
    return _audit_outcomes(copy.deepcopy(loss))  # a loss with a state keeps its own


def _audit_curve(loss: BinaryLoss) -> Audit:
    scores = torch.linspace(-_REACH, _REACH, _STEPS, dtype=torch.float64)
    log_odds = _link(loss, scores)
    inside = torch.isfinite(log_odds)
    steps = log_odds[1:] - log_odds[:-1]
    stops = _stationary(loss, torch.tensor(RATES, dtype=torch.float64))
    minimisers = torch.sigmoid(_link(loss, stops))
    printed = torch.sigmoid(_columns(loss.printed_log_odds, stops)) if loss.has_link else None
    target = torch.tensor(RATES, dtype=torch.float64)
    falls = _stretches(scores[:-1], steps < -_NOISE)
    low, high = torch.sigmoid(log_odds).min().item(), torch.sigmoid(log_odds).max().item()
    reached = (target > low) & (target < high)
    off = torch.where(reached, (minimisers - target).abs(), 0.0)
    right = bool(reached.any()) and off.max().item() < 1e-6 and not falls
    as_printed = printed is None or bool((printed - target).abs().max() < 1e-6)
    plateaus = _stretches(scores, ~inside)
    whole = bool(reached.all()) and not plateaus
    verdict: Properness = "none"
    if right:
        verdict = "strict" if as_printed and whole else "recoverable"
    return Audit(
        loss=str(loss),
        properness=verdict,
        increasing=bool((steps[inside[1:] & inside[:-1]] > 0).all()),
        low=low,
        high=high,
        plateaus=plateaus,
        falls=falls,
        rates=RATES,
        minimisers=tuple(minimisers.tolist()),
        printed=None if as_printed or printed is None else tuple(printed.tolist()),
        note=_note(right, as_printed, whole, bool(falls)),
    )


def _note(right: bool, as_printed: bool, whole: bool, falls: bool) -> str:
    if falls:
        return "the derived link falls somewhere: one probability belongs to several scores"
    if not right:
        return "training does not stop where the link reads the rate, or the link is flat"
    if not whole:
        return "every rate that the link can reach is recovered; on a plateau, or beyond, none is"
    if not as_printed:
        return "read through its own link every rate is recovered; through a sigmoid it is not"
    return "training stops exactly where the link reads the true rate"


def _columns(function, scores: Tensor) -> Tensor:
    return function(scores[:, None].expand(-1, _COLUMNS))[:, 0]


def _link(loss: BinaryLoss, scores: Tensor) -> Tensor:
    # A loss may refuse its link; the audit shows the derived one all the same.
    return _columns(loss.log_odds if loss.has_link else loss.derived_log_odds, scores).detach()


def _stationary(loss: BinaryLoss, rates: Tensor) -> Tensor:
    """The score where the gradient for each (soft) rate turns from negative to positive."""
    low, high = torch.full_like(rates, -_REACH), torch.full_like(rates, _REACH)
    targets = rates[:, None].expand(-1, _COLUMNS)
    for _ in range(100):
        middle = (low + high) / 2
        scores = middle[:, None].repeat(1, _COLUMNS).requires_grad_()
        (gradient,) = torch.autograd.grad(loss(scores, targets), scores)
        falling = gradient[:, 0] < 0
        low, high = torch.where(falling, middle, low), torch.where(falling, high, middle)
    return (low + high) / 2


def _stretches(scores: Tensor, flags: Tensor) -> tuple[tuple[float, float], ...]:
    """Runs of True as intervals of scores; runs less than one apart count as one."""
    found: list[tuple[float, float]] = []
    for score in scores[flags].tolist():
        if found and score - found[-1][1] < 1:
            found[-1] = (found[-1][0], score)
        else:
            found.append((score, score))
    return tuple(found)


def _audit_outcomes(loss: Loss) -> Audit:
    rates = (Fraction(1, 6), Fraction(1, 3), Fraction(1, 2))
    one_of = loss.exclusive or loss.single_label
    outcomes = _one_of(rates) if one_of else _independent(rates)
    scores = torch.zeros(
        len(rates) * loss.scores_per_label, dtype=torch.float64, requires_grad=True
    )
    rows = outcomes.shape[0]
    optimizer = torch.optim.LBFGS(
        [scores],
        max_iter=2000,
        tolerance_grad=1e-12,
        tolerance_change=0,
        line_search_fn="strong_wolfe",
    )

    def closure() -> Tensor:
        optimizer.zero_grad()
        value = loss(scores[None].expand(rows, -1), outcomes)
        value.backward()
        return value

    loss.train()
    optimizer.step(closure)
    for _ in range(_SETTLING):  # a running normalizer follows the scores, which now stand still
        closure()
    loss.eval()
    minimisers = loss.probabilities(scores.detach()[None].expand(rows, -1))[0]
    target = torch.tensor([float(rate) for rate in rates], dtype=torch.float64)
    right = bool((minimisers - target).abs().max() < 1e-4)
    what = "one of three labels" if one_of else "three independent labels"
    return Audit(
        loss=str(loss),
        properness="strict" if right else "none",
        increasing=True,
        low=0.0,
        high=1.0,
        plateaus=(),
        falls=(),
        rates=tuple(target.tolist()),
        minimisers=tuple(minimisers.tolist()),
        printed=None,
        note=f"checked by minimising over every outcome of {what}"
        + ("" if right else "; the minimiser is not the rate"),
    )


def _independent(rates: tuple[Fraction, ...]) -> Tensor:
    """Every outcome of independent labels, as often as its probability says."""
    rows = []
    for outcome in itertools.product((0, 1), repeat=len(rates)):
        weight = Fraction(1)
        for present, rate in zip(outcome, rates, strict=True):
            weight *= rate if present else 1 - rate
        rows += [outcome] * int(weight * 36)
    return torch.tensor(rows, dtype=torch.float64)


def _one_of(rates: tuple[Fraction, ...]) -> Tensor:
    """Outcomes with exactly one label each."""
    rows = [
        [float(i == j) for j in range(len(rates))]
        for i, rate in enumerate(rates)
        for _ in range(int(rate * 6))
    ]
    return torch.tensor(rows, dtype=torch.float64)
