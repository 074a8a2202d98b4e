"""Embedded data sets, generated from a seed.

``digits``: scenes of zero to four scanned digits, overlapping, cluttered, some blurred.
``synthetic``: features with labels of known probabilities.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from scipy.special import expit, ndtr

from credibly import checks
from credibly.checks import InputError
from credibly.data.rows import Data, default_labels
from credibly.data.splits import CALIBRATION, TEST, TRAIN, split_rows
from credibly.targets import as_decoded
from credibly.types import Array

SCALES = tuple(range(9, 15))
"""Sides, in pixels, at which a digit can appear; the scans have 8."""


def digits(
    n: int = 5000,
    *,
    seed: int = 0,
    size: int = 28,
    counts: Sequence[float] = (0.12, 0.30, 0.26, 0.20, 0.12),
    clutter: float = 0.5,
    blur: float = 0.3,
    test: float = 0.3,
    calibration: float = 0.2,
) -> Data:
    """Return ``n`` gray scenes of ``size`` × ``size`` pixels; the labels are the digits in them.

    The scenes are composed of scikit-learn's 1,797 scanned digits. The scans are split first, so no
    scan of a training scene appears in a calibration or test scene.

    Args:
        n: number of scenes.
        seed: of all randomness.
        size: side of a scene in pixels, at least 16.
        counts: relative frequency of scenes with 0, 1, 2, … digits. ``(0, 1)`` gives exactly one.
        clutter: a quarter of the expected number of stray fragments.
        blur: share of blurred scenes. Scenes with one digit are blurred most, until the digit
            can only be guessed.
        test: share of test scenes.
        calibration: share of the other scenes to hold out for calibration.

    Example:
        >>> scenes = digits(100)
        >>> scenes.images.shape, int((scenes.targets.sum(axis=1) == 0).sum()) > 0
        ((100, 28, 28, 1), True)
    """
    n = int(checks.at_least("n", n, 1))
    size = int(checks.at_least("size", size, 16))
    frequency = np.asarray(counts, dtype=float)
    if frequency.ndim != 1 or not (frequency >= 0).all() or not frequency.sum() > 0:
        raise InputError(f"`counts` must be frequencies of at least 0; got {counts!r}.")
    checks.at_least("clutter", clutter, 0)
    checks.fraction("blur", blur)
    generator = np.random.default_rng([seed, n, size])
    split = _parts(n, test, calibration, generator)
    scans, values = _scans()
    pools = _pools(values)
    number = generator.choice(len(frequency), size=n, p=frequency / frequency.sum())
    scenes = np.zeros((n, size, size), dtype=np.float32)
    targets = np.zeros((n, 10), dtype=np.float32)
    for row in range(n):
        pool = pools[split[row]]
        for scan in pool[generator.integers(len(pool), size=number[row])]:
            _paste(scenes[row], scans[int(generator.integers(len(SCALES)))][scan], generator)
            targets[row, values[scan]] = 1
        for _ in range(generator.poisson(4 * clutter)):
            scan = pool[generator.integers(len(pool))]
            _paste_fragment(scenes[row], scans[0][scan], generator)
    return Data(
        labels=[str(digit) for digit in range(10)],
        targets=targets,
        ids=np.array([f"scene-{row:06d}" for row in range(n)]),
        split=split,
        images=_photograph(scenes, number, blur, generator),
        source="digits",
        augmentation="shift",
    )


def _parts(n: int, test: float, calibration: float, generator: np.random.Generator) -> Array:
    checks.fraction("test", test, high_open=True)
    checks.fraction("calibration", calibration, high_open=True)
    split = np.full(n, TRAIN, dtype=np.int8)
    tests = round(n * test)
    split[:tests] = TEST
    split[tests : tests + round((n - tests) * calibration)] = CALIBRATION
    return generator.permutation(split)


def _scans() -> tuple[list[Array], Array]:
    """Return all scans at each of ``SCALES``, in [0, 1], and the digit of each."""
    from sklearn.datasets import load_digits

    bunch: Any = load_digits()
    images = bunch.images.astype(np.float32) / 16
    scaled = []
    for side in SCALES:
        # Linear interpolation between pixel centres.
        centres = np.clip((np.arange(side) + 0.5) * 8 / side - 0.5, 0, 7)
        weights = np.maximum(0, 1 - np.abs(centres[:, None] - np.arange(8))).astype(np.float32)
        scaled.append(np.einsum("ai,nij,bj->nab", weights, images, weights, optimize=True))
    return scaled, bunch.target


def _pools(values: Array) -> dict[int, Array]:
    """Return the scans of each part, 3 : 1 : 1 of every digit, the same for every seed."""
    rank = np.zeros(len(values), dtype=int)
    for digit in range(10):
        rows = np.flatnonzero(values == digit)
        rank[rows] = np.arange(len(rows)) % 5
    chosen = {TRAIN: rank < 3, TEST: rank == 3, CALIBRATION: rank == 4}
    return {part: np.flatnonzero(rows) for part, rows in chosen.items()}


def _paste(scene: Array, digit: Array, generator: np.random.Generator) -> None:
    side, size = len(digit), len(scene)
    y, x = generator.integers(0, size - side + 1, size=2)
    window = scene[y : y + side, x : x + side]
    np.maximum(window, digit * generator.uniform(0.55, 1.0), out=window)


def _paste_fragment(scene: Array, digit: Array, generator: np.random.Generator) -> None:
    side = int(generator.integers(3, 6))
    top, left = generator.integers(0, len(digit) - side + 1, size=2)
    _paste(scene, digit[top : top + side, left : left + side] * 0.9, generator)


def _photograph(scenes: Array, number: Array, blur: float, generator: np.random.Generator) -> Array:
    """Return the scenes with noise, and some of them with blur."""
    from scipy.ndimage import gaussian_filter

    blurred = np.flatnonzero(generator.random(len(scenes)) < blur)
    most = np.where(number[blurred] == 1, 3.0, 1.2)
    for row, sigma in zip(blurred, generator.uniform(0.5, most), strict=True):
        scenes[row] = gaussian_filter(scenes[row], sigma)
    scenes += generator.normal(0, 0.06, size=scenes.shape).astype(np.float32)
    return (np.clip(scenes, 0, 1) * 255).round().astype(np.uint8)


# Synthetic rows ----------------------------------------------------------------------------------


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
        num_labels: L.
        num_features: dimension of x.
        seed: of all randomness.
        rate: mean of $\eta$ before noise for the most frequent label.
        imbalance: ratio of the most to the least frequent label. The other labels lie between
            them, evenly in log.
        dependence: correlation, in [0, 1), of the labels of one row *given x*, from a common
            Gaussian factor. $\eta$ does not change.
        noise: $\epsilon$, the probability that a label is flipped, below ½.
        sharpness: s, the strength of the linear term; $|w_l| = 1$.
        curvature: c, the weight of a quadratic term, which a linear model cannot fit.
        unknown: share of targets replaced by −1.
        test: share of test rows.
        calibration: share of the other rows to hold out for calibration.

    Example:
        >>> data = synthetic(5000, num_labels=3, seed=1)
        >>> bool(abs(data.truth.mean(0) - data.targets.mean(0)).max() < 0.02)
        True
    """
    checks.at_least("n", n, 1)
    checks.at_least("num_labels", num_labels, 1)
    checks.at_least("num_features", num_features, 1)
    checks.at_least("imbalance", imbalance, 1)
    checks.fraction("unknown", unknown)
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
    truth = (1 - 2 * noise) * expit(slopes + _intercepts(slopes, rates)) + noise
    # Uniform in each column; the columns share one Gaussian factor.
    factor, own = generator.normal(size=(n, 1)), generator.normal(size=(n, num_labels))
    drawn = ndtr(np.sqrt(dependence) * factor + np.sqrt(1 - dependence) * own)
    targets = (drawn < truth).astype(np.float32)
    hidden = generator.random(size=targets.shape) < unknown
    return Data(
        labels=default_labels(num_labels),
        targets=as_decoded(np.where(hidden, np.float32(-1), targets)),
        split=split_rows(targets, test=test, calibration=calibration, seed=seed),
        features=features,
        truth=truth,
        source="synthetic",
    )


def _directions(rows: int, columns: int, generator: np.random.Generator) -> Array:
    weights = generator.normal(size=(rows, columns))
    return weights / np.linalg.norm(weights, axis=0)


def _intercepts(slopes: Array, rates: Array) -> Array:
    """Return b with mean σ(slope + b) = rate for each label, by bisection."""
    reach = np.abs(slopes).max() + 40
    low, high = np.full(len(rates), -reach), np.full(len(rates), reach)
    for _ in range(60):
        middle = (low + high) / 2
        below = expit(slopes + middle).mean(axis=0) < rates
        low, high = np.where(below, middle, low), np.where(below, high, middle)
    return (low + high) / 2
