"""Map scores to probabilities and label sets by a saved pipeline, with numpy only.

This file imports only numpy and the standard library, so a saved map works without torch.
Calibrators, decisions and ``Pipeline`` use its functions for numpy arrays.
"""

from __future__ import annotations

import json
import math
import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np

__all__ = ["load"]

Array: TypeAlias = "np.ndarray[Any, Any]"
SavedState: TypeAlias = Mapping[str, Any]
Mapped: TypeAlias = Callable[..., Array]

BLOCK = 1 << 16  # limit on scores mapped at a time


class InputError(ValueError):
    """An input that cannot be used; the message says what to do about it.

    Example:
        >>> import credibly as cr
        >>> try:
        ...     cr.decide.TopK(0)
        ... except cr.InputError as error:
        ...     print(error)
        `k` must be a whole number of at least 1; got 0.
    """


InputError.__module__ = "credibly.checks"  # the module that the rest of the package imports from


def load(path: str | Path) -> Map:
    """Return the map in a ``map.json`` of ``credibly calibrate`` or a file of ``Pipeline.write``.

    Example:
        >>> import credibly as cr
        >>> cr.Pipeline("spa", decision=cr.decide.TopK(1)).write("map.json")
        >>> saved = load("map.json")
        >>> saved.probabilities(np.array([[0.0, 0.952, 3.0]])).round(3)
        array([[0.054, 0.5  , 0.927]])
    """
    try:
        if os.path.getsize(path) > 2**28 or not os.path.isfile(path):
            raise ValueError("it is no plain file of at most 256 MB")
        return Map(json.loads(Path(path).read_text(encoding="utf-8")))
    except OSError as error:
        raise InputError(f"{path}: cannot be read: {error.strerror}.") from error
    except (ValueError, RecursionError) as error:
        raise InputError(f"{path}: must be a map of credibly; {error}") from error


class Map:
    """A saved map from scores to probabilities, and its rule for label sets.

    Args:
        state: the result of ``Pipeline.state``, directly or through JSON.

    Attributes:
        labels: names of the columns, or None if no names were saved.
    """

    def __init__(self, state: SavedState) -> None:
        if not isinstance(state, Mapping) or not isinstance(state.get("runtime"), Mapping):
            message = (
                "the state must have a key 'runtime'; got none. Convert what version 0.2 wrote"
            )
            raise InputError(f"{message} once: `cr.Pipeline.read(old).write(new)`.")
        self.labels: list[str] | None = state.get("labels")
        self._calibrator = state.get("calibrator") or {"calibrator": "none"}
        self._link, self._rule = map(state["runtime"].get, ("link", "rule"))

    def log_odds(self, scores: object) -> Array:
        """Return calibrated log-odds as float64."""
        return self._mapped(self._log_odds, scores)

    def probabilities(self, scores: object) -> Array:
        """Return the probability that each label is present, as float64."""
        return self._mapped(lambda block: sigmoid(self._log_odds(block)), scores)

    def sets(self, scores: object) -> Array:
        """Return one label set per row, as a bool matrix."""
        return self._mapped(lambda block: select(self._rule, self.probabilities(block)), scores)

    def _log_odds(self, block: Array) -> Array:
        return np.asarray(
            calibrated(self._calibrator, link_log_odds(self._link, block)), np.float64
        )

    def _mapped(self, function: Callable[[Array], Array], scores: object) -> Array:
        try:
            return by_blocks(function, np.asarray(scores))
        except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError) as error:
            if isinstance(error, InputError):
                raise
            raise InputError(f"the map must be as credibly wrote it; {error}.") from error


def by_blocks(function: Callable[[Array], Array], scores: Array) -> Array:
    """Apply ``function`` to blocks of rows; links, calibrators and rules treat rows separately."""
    if scores.ndim != 2:
        raise InputError(
            f"`scores` must be a matrix (rows, labels); got shape {scores.shape}. For one row use "
            "`scores[None]`."
        )
    return in_blocks(function, scores if scores.dtype.kind == "f" else scores.astype(np.float32))


def in_blocks(function: Mapped, *matrices: Any, entries: int = BLOCK) -> Array:
    """Return ``function`` of matrices of the same rows, computed in blocks of rows.

    Intermediate results then take little memory, whatever the size of the matrices.
    """
    step, count = max(1, entries // max(1, matrices[0].shape[1])), len(matrices[0])
    first = function(*(each[:step] for each in matrices))
    result = np.empty((count, *first.shape[1:]), first.dtype) if count > step else first
    for at in range(step, count, step):
        result[at : at + step] = function(*(each[at : at + step] for each in matrices))
    if count > step:
        result[:step] = first
    return result


def sigmoid(log_odds: Array) -> Array:
    """Return 1 / (1 + exp(−log-odds)), without overflow and with full precision near 0."""
    small = np.exp(-np.abs(log_odds))
    return np.where(log_odds >= 0, 1.0, small) / (1 + small)


def log_sigmoid(values: Any, xp: Any = np) -> Any:
    """Return log(1 / (1 + exp(−values)))."""
    return xp.clip(values, None, 0) - xp.log1p(xp.exp(-xp.abs(values)))


def link_log_odds(state: SavedState, scores: Array) -> Array:
    """Return the log-odds of scores by the link that ``Loss.formula`` describes."""
    exact = scores.astype(np.float64)
    if "head" in state:
        exact = np.split(exact, 2, axis=-1)[state["head"]]
    odds = _known(_LINKS, "link", state)(exact, **state)
    if "plateau" in state:
        first, level = state["plateau"]
        odds = np.where(exact < first, exact - first + level, odds)
    return odds


def _spa(v, scale_pos, slope_pos, shift_pos, scale_neg, slope_neg, shift_neg, **_):
    ratio = math.log(slope_neg / scale_neg) - math.log(slope_pos / scale_pos)
    up = log_sigmoid(slope_neg * (v - shift_neg))
    return ratio + up - log_sigmoid(-slope_pos * (v - shift_pos))


def _asymmetric(scores, gamma_neg, gamma_pos, margin, detach_weight, **_):
    log_present, log_absent = log_sigmoid(scores), log_sigmoid(-scores)
    above, log_shifted, log_rest = np.ones(scores.shape, bool), log_present, log_absent
    if margin > 0:
        shifted = sigmoid(scores) - margin
        above = ~(shifted <= 0)  # NaN counts as above, and the result is NaN
        shifted = np.where(above, shifted, 0.5)
        near_one = scores > 0
        far = np.log1p(-np.where(near_one, 0.5, shifted))
        log_rest = np.where(near_one, np.log(sigmoid(-scores) + margin), far)
        log_shifted = np.log(shifted)
    if detach_weight:
        odds = gamma_neg * log_shifted - log_rest + log_present - gamma_pos * log_absent
    else:
        odds = _log_slope(log_shifted, log_rest, gamma_neg)
        odds = odds - _log_slope(log_absent, log_present, gamma_pos)
    return np.where(above, odds, -np.inf)


def _log_slope(log_base: Array, log_rest: Array, gamma: float) -> Array:
    """Return the log of the absolute derivative of w^γ log(1 − w), given log w and log(1 − w)."""
    base = np.exp(log_base)
    small = base < 1e-5
    quotient = np.where(small, 1 + base * (0.5 + base / 3), -log_rest / np.where(small, 1, base))
    return gamma * log_base - log_rest + np.log1p(gamma * np.exp(log_rest) * quotient)


def softmax_log_odds(scores: Any, xp: Any = np) -> Any:
    """Return the log-odds of the softmax of scores; +inf for a single label."""
    number = xp.cumsum(xp.ones_like(scores), -1) - 1
    is_top = number == scores.argmax(-1)[..., None]
    others = xp.where(is_top, -math.inf, scores)
    highest, second = xp.amax(scores, -1)[..., None], xp.amax(others, -1)[..., None]
    second = xp.where(second > -math.inf, second, 0.0)
    mass = xp.exp(others - second).sum(-1)[..., None]
    some = mass > 0
    rest = xp.where(some, second + xp.log(xp.where(some, mass, 1.0)), -math.inf)
    total = xp.maximum(highest, rest) + xp.log1p(xp.exp(-xp.abs(highest - rest)))
    # Every share except the largest is at most ½, so 1 − share loses no digits.
    odds = scores - total - xp.log1p(-xp.exp(others - total))
    return xp.where(is_top, highest - rest, odds)


def _quasibinary(v, log_normalizer, **_):
    log_q = np.minimum(v - log_normalizer, math.log1p(-np.finfo(np.float64).eps))
    return log_q - np.log(-np.expm1(log_q))


def _joint(scores, offsets, components, **_):
    labels, gate, empty = np.split(scores, [-components - 1, -1], axis=1)
    odds = labels[:, None] + np.asarray(offsets)
    gate = gate - _log_sum_exp(gate)[:, None]
    none = -log_sigmoid(-odds)  # −log of "this label is absent", per component
    no_label = empty[:, 0] + _log_sum_exp(gate - none.sum(-1))
    present = _log_sum_exp(gate[..., None] + log_sigmoid(odds))
    # The label is absent and another is present. Summing from both sides avoids cancellation.
    edge = np.zeros_like(none[..., :1])
    before = np.concatenate([edge, none.cumsum(-1)[..., :-1]], -1)
    after = np.concatenate([none[..., ::-1].cumsum(-1)[..., ::-1][..., 1:], edge], -1)
    costs = np.where(before + after > 0, before + after, 1.0)
    others = np.log(np.tanh(costs / 2)) + np.log1p(np.exp(-costs))
    others = np.where(before + after > 0, others, -1e30)
    absent = _log_sum_exp(gate[..., None] - none + others)
    return present - np.logaddexp(absent, no_label[:, None])


def _log_sum_exp(values: Array) -> Array:
    top = values.max(axis=1, keepdims=True)
    return (top + np.log(np.exp(values - top).sum(axis=1, keepdims=True)))[:, 0]


def _logit(v, **_):
    if not ((v >= 0) & (v <= 1)).all():
        raise InputError(f"probabilities must lie in [0, 1]; got {v.min():.6g} to {v.max():.6g}.")
    with np.errstate(divide="ignore"):
        return np.log(v) - np.log1p(-v)


_LINKS: dict[str, Mapped] = {
    "shift": lambda v, by=0.0, **_: v - np.asarray(by),
    "probabilities": _logit,
    "assume-negative": lambda v, **_: v - math.log(max(v.shape[-1] - 1, 1)),
    "spa": _spa,
    "asymmetric": _asymmetric,
    "softmax": lambda v, none_class=False, **_: softmax_log_odds(
        np.pad(v, ((0, 0), (0, int(none_class))))
    )[:, : v.shape[1]],
    "quasibinary": _quasibinary,
    "joint": _joint,
}


def _known(table: Mapping[str, Mapped], what: str, state: SavedState) -> Mapped:
    if state.get(what) not in table:
        raise InputError(f"`{what}` must be one of {', '.join(table)}; got {state.get(what)!r}.")
    return table[state[what]]


LOWEST = -700.0
"""Log-probability that stands for 0: its exponential is the smallest that float64 tells from 0."""


def calibrated(state: SavedState, log_odds: Any, xp: Any = np) -> Any:
    """Return float64 log-odds mapped by the calibrator with this state.

    ``xp`` is the library of the log-odds: numpy, or torch for tensors and a state of tensors.
    """
    per_label, columns = state.get("slopes", state.get("biases")), log_odds.shape[-1]
    if per_label is not None and len(per_label) != columns:
        fitted = f"{len(per_label)} columns, the labels this calibrator was fitted on"
        raise InputError(f"`log_odds` must have {fitted}; got {columns}.")
    return _known(_CALIBRATORS, "calibrator", state)(xp, log_odds, **state)


def log_ends(log_odds: Any, xp: Any = np) -> Any:
    """Return log p and −log(1 − p)."""
    return xp.stack([log_sigmoid(log_odds, xp), -log_sigmoid(-log_odds, xp)])


def log_shares(log_odds: Any, rest: bool, xp: Any = np) -> Any:
    """Return log-probabilities; ``rest`` adds a last column for the remaining probability."""
    shares = xp.clip(log_sigmoid(log_odds, xp), LOWEST, None)
    if not rest:
        return shares
    left = xp.clip(1 - xp.exp(shares).sum(-1)[..., None], math.exp(LOWEST), None)
    return xp.concatenate([shares, xp.log(left)], axis=-1)


def _soft_clip(xp: Any, log_odds: Any, floor: Any, ceiling: Any, **_: Any) -> Any:
    """Map values below ``floor`` into (floor − 1, floor), and values above ``ceiling`` likewise.

    The map keeps the order, is smooth, and maps ±inf to floor − 1 and ceiling + 1.
    """
    below, above = xp.clip(floor - log_odds, 0, None), xp.clip(log_odds - ceiling, 0, None)
    return xp.clip(log_odds, floor, ceiling) + 1 / (1 + below) - 1 / (1 + above)


def _affine(xp, g, slope, floor, ceiling, intercept=0.0, **_):
    return _soft_clip(xp, slope * g + intercept, floor, ceiling)


def _beta(xp, g, slope_low, slope_high, intercept, **ends):
    low, high = log_ends(g, xp)
    return _soft_clip(xp, slope_low * low + slope_high * high + intercept, **ends)


def _per_label(xp, g, slopes, intercepts, floor, ceiling, **_):
    return _soft_clip(xp, xp.asarray(slopes) * g + xp.asarray(intercepts), floor, ceiling)


def _isotonic(xp, g, points, rates, **_):
    points, rates = xp.asarray(points), xp.asarray(rates)
    if not len(points) == len(rates) >= 1:
        raise ValueError(f"`points` and `rates` must be as many; got {len(points)}, {len(rates)}.")
    if len(points) == 1:
        points, rates = xp.concatenate([points, points]), xp.concatenate([rates, rates])
    g = xp.clip(g, points[0], points[-1])
    # torch.searchsorted cannot be exported to ONNX.
    found = points.searchsorted(g, "right") if xp is np else (g[..., None] >= points).sum(-1)
    right = xp.clip(found, 1, len(points) - 1)
    start, stop = points[right - 1], points[right]
    # Two points may coincide and form a jump; the value at a jump is the right one.
    apart = stop > start
    share = xp.where(apart, (g - start) / xp.where(apart, stop - start, 1.0), 1.0)
    rate = rates[right - 1] + share * (rates[right] - rates[right - 1])
    return xp.log(rate) - xp.log1p(-rate)


def _softmax_scaling(xp, g, slope, rest, biases=0.0, **_):
    scores, labels = slope * log_shares(g, bool(rest), xp), g.shape[-1]
    scores = xp.concatenate([scores[..., :labels] + biases, scores[..., labels:]], axis=-1)
    return softmax_log_odds(scores, xp)[..., :labels]


_CALIBRATORS: dict[str, Mapped] = {
    "none": lambda _xp, g, **_: g,
    "temperature": _affine,
    "affine": _affine,
    "beta": _beta,
    "per-label": _per_label,
    "isotonic": _isotonic,
    "softmax-temperature": _softmax_scaling,
    "vector": _softmax_scaling,
}

STEPS = 2.0**40
"""Steps per unit where probabilities are sorted and summed: sums of them are exact in float64."""


def just_below(value: Any) -> Any:
    """Return a threshold slightly below the probability ``value``, which exceeds it in any dtype.

    Isotonic calibrators and the link of ASL give equal probabilities. A threshold at such a value
    could select them in float32 but not in float64. The distance is larger than rounding errors.
    """
    return value - _distance(value)


def just_above(value: Any) -> Any:
    """Return a threshold that ``value`` exceeds in no dtype; see ``just_below``."""
    return value + _distance(value)


def _distance(value: Any) -> Any:
    """Return 256 rounding errors of float32 in the odds, at least 3.6 of its steps near 1."""
    share, least = 2.0**-16 * (1 - value), 0.9 * 2.0**-22
    share = max(share, least) if isinstance(value, float) else share.clip(min=least)
    return value * share + 2.0**-100


def select(state: SavedState, probabilities: Array) -> Array:
    """Return the label sets of probabilities by the rule that ``Decision.comparison`` describes."""
    return _known(_RULES, "rule", state)(probabilities, **state)


def _above(probabilities, thresholds, **_):
    if len(thresholds) not in (1, probabilities.shape[1]):
        raise InputError(
            f"`probabilities` must have {len(thresholds)} columns, the labels the thresholds "
            f"belong to; got {probabilities.shape[1]}."
        )
    return probabilities > np.asarray(thresholds, dtype=np.float64)


def _above_with_ties(probabilities, threshold, tied_labels, **_):
    # numpy would round a Python float to float32 first, so the right-hand side is float64.
    exact, first = np.float64(threshold), slice(0, tied_labels)
    sets = probabilities > just_above(exact)
    sets[:, first] |= probabilities[:, first] > just_below(exact)
    return sets


def _most_probable(probabilities, k, **_):
    last = probabilities.shape[1] - k
    if last < 0:
        raise InputError(
            f"`k` must be at most the number of labels, {probabilities.shape[1]}; got {k}."
        )
    lowest = np.partition(probabilities, last, axis=1)[:, last : last + 1].astype(np.float64)
    above = probabilities > just_above(lowest)
    tied = (probabilities > just_below(lowest)) & ~above
    free = k - above.sum(axis=1, keepdims=True)
    return above | (tied & (np.cumsum(tied, axis=1) <= free))


def _up_to_sum(probabilities, quantile, penalty, free_size, **_):
    sets = cumulative_scores(probabilities, penalty, free_size) <= quantile
    if sets.shape[1]:  # the most probable label is always selected
        sets[np.arange(len(sets)), _in_steps(probabilities).argmax(axis=1)] = True
    return sets


def cumulative_scores(probabilities: Array, penalty: float, free_size: int) -> Array:
    """Return the APS score of every label, plus ``penalty`` for each rank beyond ``free_size``."""
    exact = _in_steps(probabilities)
    order = np.argsort(-exact, axis=1, kind="stable")
    beyond = np.maximum(0, np.arange(1, exact.shape[1] + 1) - free_size)
    summed = np.cumsum(np.take_along_axis(exact, order, axis=1), axis=1) + penalty * beyond
    result = np.empty_like(summed)
    np.put_along_axis(result, order, summed, axis=1)
    return result


def _in_steps(probabilities: Array) -> Array:
    return np.rint(probabilities.astype(np.float64) * STEPS) / STEPS


_RULES: dict[str, Mapped] = {
    "above": _above,
    "above-with-ties": _above_with_ties,
    "most-probable": _most_probable,
    "up-to-sum": _up_to_sum,
}
