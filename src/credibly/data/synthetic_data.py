"""Rows whose true probabilities are known, to measure calibration against the truth."""

from __future__ import annotations

import numpy as np

from credibly import checks
from credibly.checks import InputError
from credibly.data.rows import Data
from credibly.data.splits import split_rows
from credibly.targets import as_decoded
from credibly.types import Array


def synthetic(
    n: int = 10_000,
    *,
    num_labels: int = 20,
    num_features: int = 20,
    seed: int = 0,
    rate: float = 0.3,
    imbalance: float = 10.0,
    dependence: float = 0.0,
    noise: float = 0.0,
    sharpness: float = 2.0,
    curvature: float = 0.0,
    unknown: float = 0.0,
    test: float = 0.3,
    calibration: float = 0.2,
) -> Data:
    r"""Return Gaussian features, and labels drawn with probability $\eta$, kept in ``truth``.

    $$\eta_l(x) = (1 - 2\epsilon)\,\sigma(s\,w_l^\top x + c\,q_l(x) + b_l) + \epsilon$$

    Args:
        n: number of rows.
        num_labels: L. num_features: dimension of x.
        seed: of everything random.
        rate: mean of $\eta$ before noise for the most frequent label.
        imbalance: how many times rarer the rarest label is; the others lie between, evenly in log.
        dependence: correlation, in [0, 1), of the labels of one row *given x* (one Gaussian factor
            behind all of them); $\eta$ stays what it is.
        noise: $\epsilon$, the probability that a label is flipped, below ½.
        sharpness: s, how far the features decide; $|w_l| = 1$.
        curvature: c, the weight of a quadratic term that no linear model can follow.
        unknown: share of targets replaced by −1.
        test: share of test rows.
        calibration: share of the others held out for calibration.

    Example:
        >>> data = synthetic(5000, num_labels=3, seed=1)
        >>> bool(abs(data.truth.mean(0) - data.targets.mean(0)).max() < 0.02)
        True
    """
    _check(n, num_labels, num_features, imbalance, unknown)
    checks.fraction("rate", rate, low_open=True, high_open=True)
    checks.fraction("dependence", dependence, high_open=True)
    if not 0 <= noise < 0.5:
        raise InputError(f"`noise` must lie in [0, ½); got {noise!r}.")
    checks.finite("sharpness", sharpness)
    checks.finite("curvature", curvature)
    generator = np.random.default_rng(seed)
    features = generator.normal(size=(n, num_features))
    weights = _directions(num_features, num_labels, generator)
    bends = _directions(num_features, num_labels, generator)
    slopes = sharpness * features @ weights + curvature * ((features @ bends) ** 2 - 1)
    rates = rate * imbalance ** -np.linspace(0, 1, num_labels)
    truth = (1 - 2 * noise) * _sigmoid(slopes + _intercepts(slopes, rates)) + noise
    targets = (_draws(n, num_labels, dependence, generator) < truth).astype(np.float32)
    hidden = generator.random(size=targets.shape) < unknown
    return Data(
        labels=[f"label-{label:0{len(str(num_labels - 1))}d}" for label in range(num_labels)],
        targets=as_decoded(np.where(hidden, np.float32(-1), targets)),
        split=split_rows(targets, test=test, calibration=calibration, seed=seed),
        features=features,
        truth=truth,
        source="synthetic",
    )


def _check(n: int, num_labels: int, num_features: int, imbalance: float, unknown: float) -> None:
    checks.at_least("n", n, 1)
    checks.at_least("num_labels", num_labels, 1)
    checks.at_least("num_features", num_features, 1)
    checks.at_least("imbalance", imbalance, 1)
    checks.fraction("unknown", unknown)


def _directions(rows: int, columns: int, generator: np.random.Generator) -> Array:
    weights = generator.normal(size=(rows, columns))
    return weights / np.linalg.norm(weights, axis=0)


def _intercepts(slopes: Array, rates: Array) -> Array:
    """Return b with mean σ(slope + b) = rate for each label; bisection, the mean increases in b."""
    reach = np.abs(slopes).max() + 40
    low, high = np.full(len(rates), -reach), np.full(len(rates), reach)
    for _ in range(60):
        middle = (low + high) / 2
        below = _sigmoid(slopes + middle).mean(axis=0) < rates
        low, high = np.where(below, middle, low), np.where(below, high, middle)
    return (low + high) / 2


def _draws(n: int, num_labels: int, dependence: float, generator: np.random.Generator) -> Array:
    """Return values uniform in each column; columns share one Gaussian factor."""
    from scipy.special import ndtr

    shared = generator.normal(size=(n, 1))
    own = generator.normal(size=(n, num_labels))
    return ndtr(np.sqrt(dependence) * shared + np.sqrt(1 - dependence) * own)


def _sigmoid(values: Array) -> Array:
    from scipy.special import expit

    return expit(values)
