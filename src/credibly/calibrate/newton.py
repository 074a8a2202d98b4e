"""Damped Newton steps for many small independent problems at once, safe far from the optimum."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from credibly.types import Array

Evaluate = Callable[[Array], tuple[Array, Array, Array]]
"""Parameters (problems, size) to values (problems,), gradients and positive curvatures."""

LONGEST_STEP = 2.0  # in any parameter: all of them live on a logarithmic scale
SMALLEST_GAIN = 1e-10  # in nats: below it a problem counts as solved


def minimise(evaluate: Evaluate, start: Array, most: int = 200) -> Array:
    """Return the parameters of each problem where its value stops falling.

    Steps are capped, then halved until the value no longer rises, so separable data and distant
    starts cannot throw it off.
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
        slack = 1e-13 * np.abs(value)  # what rounding alone may add
        better = open_ & (new[0] <= value + slack)
        theta[better] = trial[better]
        value[better], gradient[better], curvature[better] = (part[better] for part in new)
        scale = np.where(better, 1.0, np.where(open_, scale / 2, scale))
    return theta
