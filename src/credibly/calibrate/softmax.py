"""Calibrators for exclusive labels: they rescale softmax scores, so rows still sum to 1."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from credibly import checks
from credibly.calibrate.base import Calibrator, Entries
from credibly.calibrate.calibrators import Derivatives, minimise
from credibly.runtime import log_shares
from credibly.types import Array

SUM_TOLERANCE = 1e-4
"""How far the probabilities of a row may be from summing to one."""

LOG_SLOPE_SD, BIAS_SD = 3.0, 1.0
"""Of the normal priors, in nats, around the map that changes nothing."""

MAX_LABELS = 2000
"""Labels that one Newton step of :class:`VectorScaling` solves for together."""


class SoftmaxTemperature(Calibrator):
    r"""$p \propto p^{1/T}$ over the labels of a row: the softmax of its scores divided by $T$.

    Use it for labels of which exactly one is present. Like all calibrators, it takes log-odds. The
    softmax does not change when a constant is added to all scores of a row, so the logarithms of
    its probabilities are used as scores (Guo et al., 2017). It is fitted by cross-entropy on the
    known labels of a row; several present labels share the row evenly.

    If rows sum to less than 1, the rest is the probability of "no label", which is scaled too.

    Attributes:
        slope: $1/T$.
        rest: 1 if "no label" has a share of the rows, else 0.

    Example:
        >>> noise = np.random.default_rng(0)
        >>> shares = noise.dirichlet(np.ones(4), 2000)
        >>> targets = np.array([noise.multinomial(1, row) for row in shares])
        >>> sharp = shares**2 / (shares**2).sum(axis=1, keepdims=True)
        >>> found = SoftmaxTemperature().fit(np.log(sharp) - np.log1p(-sharp), targets)
        >>> round(found.slope, 1)
        0.5
    """

    name = "softmax-temperature"
    slope: float
    rest: float
    _parameters = ("slope", "rest")

    def _fit(self, entries: Entries) -> None:
        self.slope, self.rest = 1.0, _rest(entries)
        self.slope = float(np.exp(_fitted(entries, bool(self.rest), biases=False)[0]))


class VectorScaling(SoftmaxTemperature):
    r"""$p_k \propto e^{b_k} p_k^{1/T}$: a temperature for all labels, and a bias for each.

    This is vector scaling of Guo et al. (2017) with a single slope, because few rows per label do
    not determine one slope per label. Alexandari et al. (2020) call it bias-corrected temperature
    scaling. The biases have a normal prior with standard deviation 1. Everything else is as in
    :class:`SoftmaxTemperature`.

    Attributes:
        slope: $1/T$.
        biases: $b_k$, one per label.
        rest: 1 if "no label" has a share of the rows, else 0.

    Example:
        >>> noise = np.random.default_rng(0)
        >>> shares = noise.dirichlet([4, 2, 1], 4000)
        >>> targets = np.array([noise.multinomial(1, row) for row in shares])
        >>> flat = shares / [4, 2, 1]
        >>> flat /= flat.sum(axis=1, keepdims=True)
        >>> found = VectorScaling().fit(np.log(flat) - np.log1p(-flat), targets)
        >>> (found.biases - found.biases[2]).round(1)
        array([1.3, 0.6, 0. ])
    """

    name = "vector"
    biases: Array
    _parameters = ("slope", "biases", "rest")
    _lists = ("biases",)

    def _fit(self, entries: Entries) -> None:
        if entries.num_labels > MAX_LABELS:
            raise checks.InputError(
                f"vector scaling takes at most {MAX_LABELS:,} labels; got {entries.num_labels:,}. "
                "Use softmax-temperature."
            )
        self.rest = _rest(entries)
        theta = _fitted(entries, bool(self.rest), biases=True)
        self.slope, self.biases = float(np.exp(theta[0])), theta[1:]

    def _width(self) -> int:
        return np.size(self.biases)


def _rest(entries: Entries) -> float:
    """Return 1 if rows sum to less than one, else 0; raise if a row sums to more than one."""
    sums = np.exp(log_shares(entries.log_odds.astype(np.float64), False)).sum(axis=1)
    if (sums > 1 + SUM_TOLERANCE).any():
        raise checks.InputError(
            "calibrators of a softmax need probabilities that sum to at most 1 in each row; got "
            f"a row that sums to {np.nanmax(sums):.4g}. If labels do not exclude each other, use "
            "affine (Platt scaling)."
        )
    return float((sums < 1 - SUM_TOLERANCE).any())


def _fitted(entries: Entries, rest: bool, *, biases: bool) -> Array:
    """Return log-slope and biases that minimise the cross-entropy of the rows."""
    count = entries.num_labels if biases else 0
    precision = np.r_[LOG_SLOPE_SD, np.full(count, BIAS_SD)] ** -2.0

    def evaluate(theta: Array) -> Derivatives:
        slope, bias = float(np.exp(theta[0, 0])), theta[0, 1:]
        value = 0.5 * precision @ theta[0] ** 2
        gradient, curvature = precision * theta[0], np.diag(precision)
        for scores, targets in _rows(entries, rest):
            moved = slope * scores
            if biases:
                moved[:, :count] += bias
            moved -= moved.max(axis=1, keepdims=True)
            shares = np.exp(moved)
            total = shares.sum(axis=1, keepdims=True)
            shares /= total
            mass = targets.sum(axis=1)
            value += float((mass * np.log(total[:, 0])).sum() - (targets * moved).sum())
            # A label that is left out has so low a score that its share is 0.
            change = slope * scores
            centred = change - (shares * change).sum(axis=1, keepdims=True)
            away = mass[:, None] * shares - targets
            gradient[0] += (away * change).sum()
            curvature[0, 0] += (mass[:, None] * shares * centred**2).sum()
            if biases:
                own = shares[:, :count]
                gradient[1:] += away[:, :count].sum(axis=0)
                mixed = (mass[:, None] * own * centred[:, :count]).sum(axis=0)
                curvature[0, 1:] += mixed
                curvature[1:, 0] += mixed
                weighted = mass[:, None] * own
                curvature[1:, 1:] += np.diag(weighted.sum(axis=0)) - weighted.T @ own
        return np.array([value]), gradient[None], curvature[None]

    return minimise(evaluate, np.zeros((1, 1 + count)))[0]


def _rows(entries: Entries, rest: bool) -> Iterator[tuple[Array, Array]]:
    """Yield log-shares and target shares of the rows with a known present label."""
    for g, y, w in entries.pieces():
        known = w > 0
        scores = log_shares(np.where(known, g, -np.inf), rest)
        truth = np.where(known, y, 0.0)
        use = np.ones(len(y), bool)
        if rest:  # a rest due to unknown labels would look like "no label"
            none = truth.sum(axis=1) == 0
            truth, use = np.concatenate([truth, none[:, None]], axis=1), known.all(axis=1)
        total = truth.sum(axis=1)
        use &= total > 0
        weight = w.max(axis=1)[use] / total[use]
        yield scores[use], truth[use] * weight[:, None]
