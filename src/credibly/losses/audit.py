"""Check whether a loss is proper, with the gradient that training uses."""

from __future__ import annotations

import copy
import itertools
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from credibly.losses.base import Loss, Properness, bisect
from credibly.losses.families import BinaryLoss
from credibly.notebook import html_table

RATES = (0.01, 0.05, 0.1, 0.25, 0.5, 0.75, 0.9, 0.95, 0.99)
_REACH = 25.0
_STEPS = 5_001
_NOISE = 1e-4  # a derived link has rounding noise of this size near ±25
# Rates above one half: random batches can then contain more labels than expected.
_INDEPENDENT_RATES = ((0.2, 0.6, 0.4), (0.7, 0.3, 0.5))
_EXCLUSIVE_RATES = ((0.6, 0.3, 0.1), (0.1, 0.2, 0.7))
_COLUMNS = 3  # some links depend on the number of labels; any number above one works


@dataclass(frozen=True, repr=False)
class Audit:
    """The result of ``audit``; ``str()`` returns a short text."""

    loss: str
    properness: Properness
    """The verdict from the measurements, independent of the attribute of the loss."""
    note: str
    low: float = 0.0
    """Smallest probability the link reaches."""
    high: float = 1.0
    """Largest probability the link reaches."""
    plateaus: tuple[tuple[float, float], ...] = ()
    """Intervals of scores on which the link is constant at 0 or 1."""
    falls: tuple[tuple[float, float], ...] = ()
    """Intervals of scores on which the link falls."""
    rates: tuple[float, ...] = ()
    minimisers: tuple[float, ...] = ()
    """For each rate, the probability that the link gives where training stops."""
    published: tuple[float, ...] | None = None
    """The same by the map that the method's authors published, where it differs from the link."""

    @property
    def worst(self) -> float:
        """Return the largest difference between a reachable rate and the trained probability."""
        pairs = zip(self.rates, self.minimisers, strict=True)
        return max((abs(a - b) for a, b in pairs if self.low < a < self.high), default=0.0)

    def _rows(self) -> list[tuple[str, tuple[float, ...]]]:
        published = [] if self.published is None else [("published", self.published)]
        return [("by the link", self.minimisers), *published]

    def __repr__(self) -> str:
        return f"<Audit of {self.loss}: {_VERDICT[self.properness]}>"

    def _repr_html_(self) -> str:
        """Return the rates and the trained probabilities as a table, for notebooks."""
        rows = [[name, *values] for name, values in self._rows()]
        heads = ["rate", *(f"{rate:.2f}" for rate in self.rates)]
        caption = f"{self.loss}: {_VERDICT[self.properness]}"
        return html_table(caption, heads, rows if self.rates else [], note=self.note)

    def __str__(self) -> str:
        lines = [f"{self.loss}: {_VERDICT[self.properness]}", f"  {self.note}"]
        if self.rates:
            lines.append(f"  probabilities reach from {self.low:.4g} to {self.high:.4g}")
            lines.append("  rate        " + "".join(f"{rate:>8.2f}" for rate in self.rates))
        for name, values in self._rows() if self.rates else ():
            lines.append(f"  {name:<12}" + "".join(f"{p:>8.4f}" for p in values))
        for word, intervals in (("is constant", self.plateaus), ("falls", self.falls)):
            for a, b in intervals:
                lines.append(f"  the link {word} for scores from {_edge(a)} to {_edge(b)}")
        return "\n".join(lines)


_VERDICT = {
    "strict": "strictly proper",
    "recoverable": "not proper as published; probabilities are recoverable through the link",
    "none": "not a probability loss",
}


def _edge(score: float) -> str:
    return "−∞" if score <= -_REACH else "∞" if score >= _REACH else f"{score:.4g}"


def audit(loss: Loss) -> Audit:
    """Check whether a loss is proper: whether its link increases, its range, and its minimiser.

    The minimiser is found from the gradient that training uses, so detached weights count as
    constants. Losses that couple labels or rows are audited on small random batches with known
    rates, some of them above one half. The expectation over all batches is minimised exactly. A
    loss that is correct only for a batch of mean targets does not pass.

    Example:
        >>> from credibly.losses import SPA
        >>> audit(SPA()).properness
        'strict'
    """
    if loss.needs_indices or not (loss.has_link or isinstance(loss, BinaryLoss)):
        note = "it only ranks; fit `cr.calibrate.Affine()` on held-out scores for probabilities"
        if loss.needs_indices:
            note = "its targets are its own estimates, so there is no true rate to recover"
        return Audit(str(loss), "none", note, low=0, high=0)
    if isinstance(loss, BinaryLoss):
        return _audit_curve(loss)
    return _audit_batches(copy.deepcopy(loss))  # the copy protects the state of the loss


def _audit_curve(loss: BinaryLoss) -> Audit:
    scores = torch.linspace(-_REACH, _REACH, _STEPS, dtype=torch.float64)
    log_odds = _link(loss, scores)
    inside = torch.isfinite(log_odds)
    steps = log_odds[1:] - log_odds[:-1]
    stops = _stationary(loss, torch.tensor(RATES, dtype=torch.float64))
    minimisers = torch.sigmoid(_link(loss, stops))
    # A softmax of equal columns carries no information about a label.
    compared = loss.has_link and loss.published != "softmax"
    published = torch.sigmoid(_columns(loss.published_log_odds, stops)) if compared else None
    target = torch.tensor(RATES, dtype=torch.float64)
    falls = _intervals(scores[:-1], steps < -_NOISE)
    low, high = torch.sigmoid(log_odds).min().item(), torch.sigmoid(log_odds).max().item()
    reached = (target > low) & (target < high)
    off = torch.where(reached, (minimisers - target).abs(), 0.0)
    right = bool(reached.any()) and off.max().item() < 1e-6 and not falls
    as_published = published is None or bool((published - target).abs().max() < 1e-6)
    plateaus = _intervals(scores, ~inside)
    complete = bool(reached.all()) and not plateaus
    verdict: Properness = "none"
    if right:
        verdict = "strict" if as_published and complete else "recoverable"
    return Audit(
        loss=str(loss),
        properness=verdict,
        low=low,
        high=high,
        plateaus=plateaus,
        falls=falls,
        rates=RATES,
        minimisers=tuple(minimisers.tolist()),
        published=None if as_published or published is None else tuple(published.tolist()),
        note=_note(right, as_published, complete, bool(falls)),
    )


def _note(right: bool, as_published: bool, complete: bool, falls: bool) -> str:
    if falls:
        return "the derived link is not monotone: several scores give the same probability"
    if not right:
        return "training does not stop where the link gives the rate, or the link is flat"
    if not complete:
        return "the link recovers every rate in its range, but not on a plateau or beyond"
    if not as_published:
        return "its own link recovers every rate; a sigmoid does not"
    return "training stops where the link gives the true rate"


def _columns(function: Callable[[Tensor], Tensor], scores: Tensor) -> Tensor:
    return function(scores[:, None].expand(-1, _COLUMNS))[:, 0]


def _link(loss: BinaryLoss, scores: Tensor) -> Tensor:
    # A loss may have no link on purpose. The audit shows the derived link anyway.
    return _columns(loss.log_odds if loss.has_link else loss.derived_log_odds, scores).detach()


def _stationary(loss: BinaryLoss, rates: Tensor) -> Tensor:
    """Return the score at which the gradient for each (soft) rate becomes positive."""
    targets = rates[:, None].expand(-1, _COLUMNS)

    def falling(middle: Tensor) -> Tensor:
        scores = middle[:, None].repeat(1, _COLUMNS).requires_grad_()
        (gradient,) = torch.autograd.grad(loss(scores, targets), scores)
        return gradient[:, 0] < 0

    return bisect(falling, rates, _REACH)


def _intervals(scores: Tensor, flags: Tensor) -> tuple[tuple[float, float], ...]:
    """Return runs of True as intervals of scores; intervals less than one apart are merged."""
    intervals: list[tuple[float, float]] = []
    for score in scores[flags].tolist():
        if intervals and score - intervals[-1][1] < 1:
            intervals[-1] = (intervals[-1][0], score)
        else:
            intervals.append((score, score))
    return tuple(intervals)


def _audit_batches(loss: Loss) -> Audit:
    """Minimise the exact expectation of the loss over random batches of rows with known rates."""
    one_of = loss.exclusive or loss.single_label
    rates = torch.tensor(_EXCLUSIVE_RATES if one_of else _INDEPENDENT_RATES, dtype=torch.float64)
    batches = _random_batches(rates, one_of)
    scores = _expected_minimiser(loss.train(), batches, rates)
    loss.fit_state([(scores, rates)])
    minimisers = loss.eval().probabilities(scores)
    right = bool((minimisers - rates).abs().max() < 1e-4)
    what = "one of three labels" if one_of else "three independent labels"
    return Audit(
        loss=str(loss),
        properness="strict" if right else "none",
        rates=tuple(rates.flatten().tolist()),
        minimisers=tuple(minimisers.flatten().tolist()),
        note=f"checked by minimising the expectation over all batches of two rows with {what}"
        + ("" if right else "; the minimiser is not the rate"),
    )


def _expected_minimiser(loss: Loss, batches: list[tuple[float, Tensor]], rates: Tensor) -> Tensor:
    """Return the scores that minimise the expected loss, one row per row of ``rates``."""
    start = torch.zeros(len(rates), loss.num_outputs(rates.shape[1]), dtype=torch.float64)
    scores = start.requires_grad_()
    optimizer = torch.optim.LBFGS(
        [scores],
        max_iter=120,
        max_eval=200,  # choosing among labels makes steps, on which a line search would not end
        tolerance_grad=1e-9,
        tolerance_change=1e-13,
        line_search_fn="strong_wolfe",
    )

    def closure() -> Tensor:
        optimizer.zero_grad()
        total = scores.new_zeros(())
        for probability, targets in batches:
            loss.fit_state([(scores.detach(), rates)])  # the state at convergence
            total = total + probability * loss(scores, targets)
        total.backward()
        return total

    optimizer.step(closure)
    return scores.detach()


def _random_batches(rates: Tensor, one_of: bool) -> list[tuple[float, Tensor]]:
    """Return every possible batch of targets for rows with these rates, with its probability."""
    labels = rates.shape[1]
    outcomes = torch.tensor(list(itertools.product((0.0, 1.0), repeat=labels)), dtype=rates.dtype)
    if one_of:
        outcomes = torch.eye(labels, dtype=rates.dtype)
    batches = []
    for targets in itertools.product(outcomes, repeat=len(rates)):
        batch = torch.stack(targets)
        likely = torch.where(batch > 0, rates, torch.ones_like(rates) if one_of else 1 - rates)
        batches.append((float(likely.prod()), batch))
    return batches
