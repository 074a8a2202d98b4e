r"""How many entries of a truth are wrong, from probabilities and the truth alone.

Where the truth is right, its rate rises from 0 to 1 with the log-odds g of a good model. Where a
share of absent labels is marked present, the rate cannot fall below that share however sure the
model is, and likewise at the top:

$$P(\tilde y = 1 \mid g) = f + (1 - f - c)\,\sigma(a g + b).$$

The floor f is the share of absent entries marked present, the ceiling's gap c the share of present
entries marked absent. Both are fitted by maximum likelihood, all labels together. What the model
cannot resolve looks like noise where it makes the curve flatten, and truth and log-odds alone
cannot tell the two apart.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from credibly.types import Array

BINS = 256
LARGEST = 0.45
"""Noise beyond this share cannot be told from a reversed label."""


@dataclass(frozen=True)
class NoiseModel:
    """A fitted curve of noisy truth over log-odds.

    Attributes:
        marked_present: share of absent entries that are marked present, f.
        marked_absent: share of present entries that are marked absent, c.
        slope, intercept: of the log-odds of what is really present.
    """

    marked_present: float
    marked_absent: float
    slope: float
    intercept: float

    def error_probability(self, log_odds: Array, targets: Array) -> Array:
        """Return, for entries marked 0 or 1, the probability that the mark is wrong."""
        real = _sigmoid(self.slope * log_odds + self.intercept)
        rate = self.marked_present + (1 - self.marked_present - self.marked_absent) * real
        wrong_present = self.marked_present * (1 - real) / np.maximum(rate, 1e-300)
        wrong_absent = self.marked_absent * real / np.maximum(1 - rate, 1e-300)
        return np.where(targets == 1, wrong_present, wrong_absent)


@dataclass(frozen=True)
class Binned:
    """Entries counted in bins of log-odds: centres, entries marked absent and marked present."""

    centres: Array
    absent: Array
    present: Array


def binned(log_odds: Array, targets: Array, counts: Array) -> Binned:
    """Return about equally many entries per bin, from finer bins: mean, truth and count."""
    order = np.argsort(log_odds, kind="stable")
    odds, truth, weights = log_odds[order], targets[order], counts[order]
    place = np.minimum((np.cumsum(weights) - weights / 2) * BINS / weights.sum(), BINS - 1)
    _, group = np.unique(place.astype(np.int64), return_inverse=True)
    count = np.bincount(group, weights=weights)
    present = np.bincount(group, weights=weights * (truth == 1))
    return Binned(np.bincount(group, weights=weights * odds) / count, count - present, present)


def fit_binned(bins: Binned, start: NoiseModel | None = None) -> NoiseModel:
    """Fit the curve to binned entries, from a few starts or from one."""
    from scipy.optimize import minimize

    weight = bins.absent + bins.present
    total = weight.sum()
    centre = float(bins.centres @ weight / total)
    spread = float(np.sqrt(((bins.centres - centre) ** 2) @ weight / total)) or 1.0
    x = (bins.centres - centre) / spread

    def cost(parameters: Array) -> float:
        log_slope, intercept, low, high = parameters
        floor, gap = LARGEST * _sigmoid(low), LARGEST * _sigmoid(high)
        rate = floor + (1 - floor - gap) * _sigmoid(np.exp(log_slope) * x + intercept)
        rate = np.clip(rate, 1e-12, 1 - 1e-12)
        value = bins.present @ np.log(rate) + bins.absent @ np.log1p(-rate)
        return float(-value / total + 1e-5 * (log_slope**2 + 0.01 * intercept**2))

    share = np.clip(bins.present.sum() / total, 0.01, 0.99)
    odds = float(np.log(share / (1 - share)))
    starts = [(0.5, odds, -2.0, -2.0), (0.5, odds, -5.0, -5.0), (1.5, odds, -2.0, -2.0)]
    if start is not None:
        starts = [
            (
                float(np.log(max(start.slope * spread, 1e-3))),
                start.intercept + start.slope * centre,
                _logit(start.marked_present / LARGEST),
                _logit(start.marked_absent / LARGEST),
            )
        ]
    limits = [(-3.0, 5.0), (-40.0, 40.0), (-12.0, 6.0), (-12.0, 6.0)]
    results = [minimize(cost, each, method="L-BFGS-B", bounds=limits) for each in starts]
    log_slope, intercept, low, high = min(results, key=lambda each: each.fun).x
    slope = float(np.exp(log_slope)) / spread
    return NoiseModel(
        float(LARGEST * _sigmoid(low)),
        float(LARGEST * _sigmoid(high)),
        slope,
        float(intercept - slope * centre),
    )


def resampled(bins: Binned, model: NoiseModel, count: int, seed: int) -> list[NoiseModel]:
    """Return fits to ``count`` draws of the binned truth from the fitted curve."""
    rng = np.random.default_rng(seed)
    real = _sigmoid(model.slope * bins.centres + model.intercept)
    rate = model.marked_present + (1 - model.marked_present - model.marked_absent) * real
    entries = (bins.absent + bins.present).astype(np.int64)
    fits = []
    for _ in range(count):
        present = rng.binomial(entries, np.clip(rate, 0, 1)).astype(float)
        fits.append(fit_binned(Binned(bins.centres, entries - present, present), model))
    return fits


def _sigmoid(values: Array | float) -> Array:
    from scipy.special import expit

    return expit(values)


def _logit(value: float) -> float:
    return float(np.clip(np.log(max(value, 1e-6) / max(1 - value, 1e-6)), -11.0, 5.0))
