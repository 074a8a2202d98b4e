"""Calibrators that treat each label separately, from one shared slope to a step function."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import numpy as np

from credibly import checks
from credibly.arrays import like, to_numpy
from credibly.calibrate.base import Calibrator, Entries
from credibly.compiled import compiled
from credibly.runtime import log_ends
from credibly.types import Array, ArrayLike

# The weak prior, in nats. It matters only if the data do not determine the fit (separable scores,
# one class, constant scores). Otherwise it costs less than one entry.
LOG_SLOPE_SD = 3.0
INTERCEPT_SD = 10.0
LIMIT_SD = 4.0


class Identity(Calibrator):
    """Return log-odds unchanged; the name of this calibrator is ``none``.

    Example:
        >>> Identity().transform(np.array([[-1.5, 2.0]]))
        array([[-1.5,  2. ]])
    """

    name = "none"

    def _fit(self, entries: Entries) -> None:
        pass


class Temperature(Calibrator):
    r"""Temperature scaling: $g \mapsto a\,g$ with $a = 1/T > 0$; a probability of ½ stays ½.

    Prior and limits are those of :class:`Affine`. It cannot change a base rate, so it has little
    effect for losses whose scores are shifted.

    Example:
        >>> log_odds = np.array([[-4.0, 2.0], [3.0, -6.0], [6.0, 4.0], [-2.0, -4.0]])
        >>> targets = np.array([[0, 1], [1, 0], [0, 1], [0, -1]])
        >>> Temperature().fit(log_odds, targets)
        Temperature(slope=0.314, floor=-2.708, ceiling=2.708)
    """

    name = "temperature"
    slope: float
    floor: float
    ceiling: float
    _parameters = ("slope", "floor", "ceiling")

    def _fit(self, entries: Entries) -> None:
        size = float(np.hypot(*centre_and_spread(entries)))
        start = np.array([start_slope(size)])
        theta = fit_shared(entries, lambda g: g[None], start, intercept=False)
        self.slope = float(np.exp(theta[0]))
        self.floor, self.ceiling = float(theta[2]), float(theta[3])


class Affine(Calibrator):
    r"""Platt scaling: $g \mapsto a\,g + b$ with $a > 0$, shared by all labels.

    It is fitted by log loss on known entries, in float64. A weak normal prior (standard deviation 3
    for $\log a$, and 10 for the output at the mean of $g$) replaces Platt's smoothed targets. The
    prior bounds the fit on separable data, one class or constant scores, and allows soft targets.
    $a$ is positive by construction. If the rates clearly fall as $g$ rises, the fit warns and the
    map is almost flat.

    Outputs below ``floor`` are mapped into (floor − 1, floor), and outputs above ``ceiling``
    likewise. So ±inf (a probability of exactly 0 or 1) become finite. Both limits start at
    ∓log(2N + 1), beyond which N known entries do not support a probability. They are fitted too if
    the entries beyond them contradict these values. Between the limits, the map is affine.

    Attributes:
        slope, intercept: $a$ and $b$.
        floor, ceiling: where the soft limits start, in calibrated log-odds.

    Example:
        >>> log_odds = np.array([[-4.0, 2.0], [3.0, -6.0], [6.0, 4.0], [-2.0, -4.0]])
        >>> targets = np.array([[0, 1], [1, 0], [0, 1], [0, -1]])
        >>> Affine().fit(log_odds, targets)
        Affine(slope=0.3553, intercept=-0.6328, floor=-2.708, ceiling=2.708)
    """

    name = "affine"
    slope: float
    intercept: float
    floor: float
    ceiling: float
    _parameters = ("slope", "intercept", "floor", "ceiling")

    def _fit(self, entries: Entries) -> None:
        self._fit_shared(entries)

    def _fit_shared(self, entries: Entries) -> tuple[float, Array]:
        """Fit, and return the mean of the log-odds and the parameters of ``fit_shared``."""
        mean, spread = centre_and_spread(entries)
        start = np.array([start_slope(spread)])
        theta = fit_shared(entries, lambda g: (g - mean)[None], start)
        self.slope = float(np.exp(theta[0]))
        self.intercept = float(theta[1] - self.slope * mean)
        self.floor, self.ceiling = float(theta[2]), float(theta[3])
        return mean, theta


class Beta(Calibrator):
    r"""$g \mapsto a \log p - b \log(1 - p) + c$ with $p = \sigma(g)$ and $a, b > 0$, shared.

    This is beta calibration (Kull, Silva Filho & Flach, 2017) in log-odds: $a$ is the slope far
    below ½, $b$ the slope far above; $a = b$ gives :class:`Affine`. Both are positive by
    construction, so the map is increasing. Prior and limits are those of :class:`Affine`.

    Attributes:
        slope_low, slope_high: $a$ and $b$.
        intercept: $c$.
        floor, ceiling: where the soft limits start, in calibrated log-odds.

    Example:
        >>> log_odds = np.array([[-4.0, 2.0], [3.0, -6.0], [6.0, 4.0], [-2.0, -4.0]])
        >>> targets = np.array([[0, 1], [1, 0], [0, 1], [0, -1]])
        >>> beta = Beta().fit(log_odds, targets)
        >>> bool(beta.slope_low > beta.slope_high)
        True
    """

    name = "beta"
    slope_low: float
    slope_high: float
    intercept: float
    floor: float
    ceiling: float
    _parameters = ("slope_low", "slope_high", "intercept", "floor", "ceiling")

    def _fit(self, entries: Entries) -> None:
        size = float(np.hypot(*centre_and_spread(entries)))
        theta = fit_shared(entries, log_ends, np.full(2, start_slope(size)))
        self.slope_low, self.slope_high = (float(value) for value in np.exp(theta[:2]))
        self.intercept = float(theta[2])
        self.floor, self.ceiling = float(theta[3]), float(theta[4])


def shift_rates(log_odds: ArrayLike, trained: ArrayLike, wanted: ArrayLike | float) -> Any:
    r"""Shift log-odds to rows with other label rates.

    $$g_j \mapsto g_j + \operatorname{logit}\pi'_j - \operatorname{logit}\pi_j$$

    This is Bayes' rule if rows with a label (and rows without it) look the same as in training and
    only the rates $\pi_j$ of the labels changed to $\pi'_j$. One number for ``wanted`` gives rare
    labels the weight of frequent ones. After training on a long tail, sets of the same size then
    contain many more rare labels and fewer frequent ones (``benchmarks/results/average-k.md``).

    Args:
        log_odds: (n, L), calibrated for rows with the rates ``trained``; numpy or torch.
        trained: (L,), each label's share of the training rows, between 0 and 1.
        wanted: (L,) or one number for all labels, between 0 and 1.

    Example:
        >>> odds = np.array([[0.0, 0.0]])
        >>> shift_rates(odds, trained=[0.5, 0.1], wanted=0.5)
        array([[0.        , 2.19722458]])
    """
    given = to_numpy(log_odds)
    labels = given.shape[-1] if given.ndim else 1
    gap = _logit("wanted", wanted, labels) - _logit("trained", trained, labels)
    dtype = np.float32 if given.dtype == np.float32 else np.float64
    return like((given + gap).astype(dtype), log_odds)


def _logit(name: str, rates: ArrayLike | float, labels: int) -> Array:
    array = np.asarray(to_numpy(rates), dtype=np.float64)
    if array.ndim > 1 or array.size not in (1, labels):
        raise checks.InputError(
            f"`{name}` must hold one rate per label ({labels}), or one for all; got shape "
            f"{array.shape}."
        )
    if not ((array > 0) & (array < 1)).all():
        raise checks.InputError(
            f"`{name}` must lie between 0 and 1; got [{array.min():g}, {array.max():g}]. Log-odds "
            "cannot be shifted for a label that was never or always present."
        )
    return np.log(array) - np.log1p(-array)


# Fits --------------------------------------------------------------------------------------------


def fit_shared(
    entries: Entries, features: FeatureMap, start: Array, intercept: bool = True
) -> Array:
    """Return the parameters of one map for all labels: k log-slopes, intercept, floor, ceiling.

    The limits stay at ``evidence_limit``, unless the gradient shows that the entries beyond a limit
    contradict it. Then that limit is fitted too.
    """
    slopes, limit = len(start), evidence_limit(entries)
    centre = np.r_[np.zeros(slopes), 0.0, -limit, limit]
    precision = np.r_[[LOG_SLOPE_SD] * slopes, INTERCEPT_SD, LIMIT_SD, LIMIT_SD] ** -2.0

    def penalised(theta: Array) -> Derivatives:
        each = sums(entries, features, np.tile(theta, (entries.num_labels, 1)))
        value, gradient, curvature = (part.sum(axis=0) for part in each)
        away = theta - centre
        value = value + 0.5 * precision @ away**2
        return value, gradient + precision * away, curvature + np.diag(precision)

    free = np.r_[[True] * slopes, intercept, False, False]
    theta = _fit_some(penalised, np.r_[start, 0.0, -limit, limit], free)
    gradient = penalised(theta)[1]
    surprises = np.r_[-gradient[-2] > 1, gradient[-1] > 1]
    if surprises.any():
        free[-2:] = surprises
        theta = _fit_some(penalised, theta, free)
    return theta


def _fit_some(penalised: Evaluate, start: Array, free: Array) -> Array:
    """Minimise over the ``free`` parameters, with the others fixed at ``start``."""

    def evaluate(part: Array) -> Derivatives:
        theta = start.copy()
        theta[free] = part[0]
        if theta[-1] - theta[-2] < 1:  # the limits must not cross
            return np.array([np.inf]), np.zeros_like(part), np.eye(part.size)[None]
        value, gradient, curvature = penalised(theta)
        return np.array([value]), gradient[None, free], curvature[np.ix_(free, free)][None]

    result = start.copy()
    result[free] = minimise(evaluate, start[free][None])[0]
    return result


def evidence_limit(entries: Entries) -> float:
    """Return log(2N + 1), the most extreme log-odds that N known entries support."""
    total = sum(float(w.sum()) for _, _, w in entries.pieces())
    return max(1.0, float(np.log(2 * total + 1)))


def centre_and_spread(entries: Entries) -> tuple[float, float]:
    """Return mean and standard deviation of the finite log-odds; warn if rates fall with them."""
    totals = np.zeros(3)
    for g, y, w in entries.pieces():
        keep = (w > 0) & np.isfinite(g)
        totals += w[keep].sum(), w[keep] @ g[keep], w[keep] @ y[keep]
    if totals[0] == 0:
        return 0.0, 1.0
    mean, rate = totals[1] / totals[0], totals[2] / totals[0]
    square, trend, noise = 0.0, 0.0, 0.0
    for g, y, w in entries.pieces():
        keep = (w > 0) & np.isfinite(g)
        away, w = g[keep] - mean, w[keep]
        square += w @ away**2
        trend += w @ (away * (y[keep] - rate))
        noise += rate * (1 - rate) * (w**2 @ away**2)
    if noise > 0 and trend < -3 * noise**0.5:
        warnings.warn(
            f"the rate of known positives falls as the log-odds rise ({trend / noise**0.5:.1f} "
            "standard errors). A calibrator is increasing, so it will be almost flat. Check the "
            "sign of the scores, and that scores and targets have the same order of labels.",
            stacklevel=4,
        )
    return float(mean), float((square / totals[0]) ** 0.5)


def start_slope(size: float) -> float:
    """Return the initial log-slope: 0 for log-odds, lower for scores on a wide scale."""
    return -float(np.log(max(1.0, size)))


FeatureMap = Callable[[Array], Array]
"""Log-odds (rows, L) to features (k, rows, L), each increasing in the log-odds."""


def log_loss(log_odds: Array, targets: Array) -> Array:
    """Return the log loss of entries; infinite if p = 0 and present, or p = 1 and absent."""
    with np.errstate(invalid="ignore"):
        present = np.where(targets > 0, targets * np.logaddexp(0, -log_odds), 0)
        return present + np.where(targets < 1, (1 - targets) * np.logaddexp(0, log_odds), 0)


def sums(entries: Entries, features: FeatureMap, theta: Array) -> Derivatives:
    """Return log loss, its gradient and Gauss–Newton curvature for each label.

    ``theta`` is (L, k + 3): k log-slopes, intercept, floor, ceiling. The results have shapes (L,),
    (L, k + 3) and (L, k + 3, k + 3).
    """
    count, size = theta.shape
    totals = np.zeros(count), np.zeros((count, size)), np.zeros((count, size, size))
    for g, y, w in entries.pieces():
        _accumulate(features(g), y, w, theta, totals)
    value, gradient, curvature = totals
    curvature += np.tril(curvature, -1).transpose(0, 2, 1)
    return value, gradient, curvature


@compiled(error_model="numpy")
def _accumulate(features, targets, weights, theta, totals):
    value, gradient, curvature = totals
    slopes, rows, labels = features.shape
    slope = np.exp(theta[:, :slopes])
    change = np.zeros(slopes + 3)  # derivative of the output by each parameter
    for row in range(rows):
        for label in range(labels):
            weight = weights[row, label]
            if not weight > 0:
                continue
            odds = theta[label, slopes]
            for i in range(slopes):
                change[i] = slope[label, i] * features[i, row, label]
                odds += change[i]
            floor, ceiling = theta[label, slopes + 1], theta[label, slopes + 2]
            change[slopes], change[slopes + 1], change[slopes + 2] = 1.0, 0.0, 0.0
            outside = False
            if odds < floor or odds > ceiling:
                outside = True
                if odds < floor:
                    near = 1 / (1 + floor - odds)
                    odds = floor - 1 + near
                    change[slopes + 1] = 1 - near * near
                else:
                    near = 1 / (1 + odds - ceiling)
                    odds = ceiling + 1 - near
                    change[slopes + 2] = 1 - near * near
                for i in range(slopes + 1):
                    # At ±inf this would be 0 × inf; the output does not depend on the slope there.
                    change[i] = change[i] * near * near if near > 0 else 0.0
            small = np.exp(-abs(odds))
            rate = 1 / (1 + small) if odds >= 0 else small / (1 + small)
            cost = max(odds, 0.0) + np.log1p(small) - targets[row, label] * odds
            value[label] += weight * cost
            pull = weight * (rate - targets[row, label])
            bend = weight * rate * (1 - rate)
            for i in range(slopes + 3 if outside else slopes + 1):
                gradient[label, i] += pull * change[i]
                scaled = bend * change[i]
                for k in range(i + 1):
                    curvature[label, i, k] += scaled * change[k]


Derivatives = tuple[Array, Array, Array]
"""Values (problems,), gradients and positive curvatures."""

Evaluate = Callable[[Array], Derivatives]
"""From parameters (problems, size)."""

LONGEST_STEP = 2.0  # limit for every parameter; all of them are on a logarithmic scale
SMALLEST_GAIN = 1e-10  # in nats; a problem with a smaller expected gain counts as solved


def minimise(evaluate: Evaluate, start: Array, most: int = 200) -> Array:
    """Return the parameters of each problem at which its value stops falling.

    Newton steps are capped, then halved until the value no longer rises. So the search also
    converges on separable data and from distant starts.
    """
    theta = start.copy()
    value, gradient, curvature = evaluate(theta)
    scale = np.ones(len(theta))
    for _ in range(most):
        step = -np.linalg.solve(curvature, gradient[..., None])[..., 0]
        step *= np.minimum(1, LONGEST_STEP / np.maximum(abs(step).max(axis=1), 1e-300))[:, None]
        expected = -(gradient * step).sum(axis=1)
        open_ = (expected > SMALLEST_GAIN) & (scale > 1e-9)
        if not open_.any():
            break
        trial = theta + np.where(open_, scale, 0.0)[:, None] * step
        new = evaluate(trial)
        slack = 1e-13 * np.abs(value)  # limit on the effect of rounding
        better = open_ & (new[0] <= value + slack)
        theta[better] = trial[better]
        value[better], gradient[better], curvature[better] = (part[better] for part in new)
        scale = np.where(better, 1.0, np.where(open_, scale / 2, scale))
    return theta


ROUNDS = 6  # of refitting the labels with a new covariance; later changes are below 1e-3


class PerLabel(Affine):
    r"""$g_t \mapsto a_t\,g_t + b_t$: slope and intercept per label, shrunk toward shared ones.

    The deviations $\delta_t$ of the labels from the shared :class:`Affine` map (in log-slope and in
    the output at the mean of $g$) have a normal distribution with one covariance for all labels.
    The covariance is fitted by marginal likelihood (Laplace approximation, maximised by EM). A
    label with many known positives gets its own map. A label with few stays near the shared map,
    and a label without known rows gets exactly the shared map, as does a single label.

    Attributes:
        slopes, intercepts: $a_t$ and $b_t$, one per label.
        slope, intercept: those of the shared map.
        floor, ceiling: where the shared soft limits start.

    Example:
        >>> noise = np.random.default_rng(0)
        >>> truth = noise.normal(-1, 2, (2000, 3))
        >>> targets = noise.random((2000, 3)) < 1 / (1 + np.exp(-truth))
        >>> PerLabel().fit(truth * [0.5, 1.0, 2.0], targets).slopes.round(1)
        array([2. , 1. , 0.5])
    """

    name = "per-label"
    slopes: Array
    intercepts: Array
    _parameters = ("slopes", "intercepts", *Affine._parameters)
    _lists = ("slopes", "intercepts")

    def _fit(self, entries: Entries) -> None:
        mean, shared = self._fit_shared(entries)
        theta = _labels(entries, mean, shared)
        self.slopes = np.exp(theta[:, 0])
        self.intercepts = theta[:, 1] - self.slopes * mean

    def _width(self) -> int:
        return np.size(self.slopes)


def _labels(entries: Entries, mean: float, shared: Array) -> Array:
    """Return log-slope and output at the mean for each label: the posterior mode."""
    count = entries.num_labels
    common = np.tile(shared, (count, 1))
    if count == 1:
        return common[:, :2]

    def likelihood(away: Array) -> Derivatives:
        theta = common.copy()
        theta[:, :2] += away
        value, gradient, curvature = sums(entries, lambda g: (g - mean)[None], theta)
        return value, gradient[:, :2], curvature[:, :2, :2]

    def posterior(away: Array) -> Derivatives:
        value, gradient, curvature = likelihood(away)
        pull = away @ precision
        return value + 0.5 * (away * pull).sum(axis=1), gradient + pull, curvature + precision

    away = np.zeros((count, 2))
    covariance = np.diag([0.3, 0.5]) ** 2
    for _ in range(ROUNDS):
        precision = np.linalg.inv(covariance)
        away = minimise(posterior, away, most=3)
        _, gradient, curvature = likelihood(away)
        covariance = _fitted_covariance(away, gradient, curvature, covariance)
    precision = np.linalg.inv(covariance)
    return common[:, :2] + minimise(posterior, away)


def _fitted_covariance(away: Array, gradient: Array, curvature: Array, start: Array) -> Array:
    """Run EM on the quadratic approximation of each label's log loss around ``away``."""
    informed = curvature[:, 1, 1] > 0
    if not informed.any():
        return start
    gradient, curvature = gradient[informed], curvature[informed]
    target = (curvature @ away[informed][..., None])[..., 0] - gradient
    covariance = start
    for _ in range(500):
        spread = np.linalg.inv(curvature + np.linalg.inv(covariance))
        mode = (spread @ target[..., None])[..., 0]
        new = (mode[:, :, None] * mode[:, None, :] + spread).mean(axis=0)
        new += 1e-8 * np.eye(2)  # for labels that do not differ, the covariance tends to 0
        if np.abs(new - covariance).max() < 1e-6:
            return new
        covariance = new
    return covariance


class Isotonic(Calibrator):
    """The non-decreasing step map with the least squared error, shared by all labels.

    It is scikit-learn's pool-adjacent-violators on the pooled entries, linear between steps and
    constant beyond the fitted range. It can make ties, so rank by the values before it. The lowest
    step has rate 0 if it contains no positive. Its rate is then set to (0 + ½)/(m + 1) for its m
    entries, or to its neighbour's rate if that is lower; the highest step likewise. ±inf count as
    one unit beyond the outermost finite log-odds.

    Attributes:
        points: log-odds at the ends of the steps.
        rates: the rates at these points.

    Example:
        >>> log_odds = np.array([[-2.0], [-1.0], [0.0], [1.0], [2.0]])
        >>> targets = np.array([[0], [0], [1], [0], [1]])
        >>> Isotonic().fit(log_odds, targets).rates.round(2)
        array([0.17, 0.17, 0.5 , 0.5 , 0.75])
    """

    name = "isotonic"
    strict = False
    points: Array
    rates: Array
    _parameters = _lists = ("points", "rates")

    def _fit(self, entries: Entries) -> None:
        from sklearn.isotonic import IsotonicRegression

        parts = [(g[w > 0], y[w > 0], w[w > 0]) for g, y, w in entries.pieces()]
        g, y, w = (np.concatenate(column) for column in zip(*parts, strict=True))
        finite = g[np.isfinite(g)]
        low, high = (finite.min(), finite.max()) if finite.size else (0.0, 0.0)
        g = np.clip(g, low - 1, high + 1)
        fitted = IsotonicRegression(out_of_bounds="clip").fit(g, y, sample_weight=w)
        self.points, self.rates = fitted.X_thresholds_.copy(), fitted.y_thresholds_.copy()
        self._smooth_ends(g, w)

    def _smooth_ends(self, log_odds: Array, weights: Array) -> None:
        certain = self.rates <= 0
        if certain.any():
            mass = weights[log_odds <= self.points[certain][-1]].sum()
            inner = self.rates[~certain]
            self.rates[certain] = min(0.5 / (mass + 1), inner[0] if inner.size else 1.0)
        certain = self.rates >= 1
        if certain.any():
            mass = weights[log_odds >= self.points[certain][0]].sum()
            inner = self.rates[~certain]
            self.rates[certain] = max(1 - 0.5 / (mass + 1), inner[-1] if inner.size else 0.0)
