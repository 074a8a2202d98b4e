"""Other rates than those of training: each label's log-odds moved by the change of its own."""

from __future__ import annotations

from typing import Any

import numpy as np

from credibly import checks
from credibly.arrays import like, to_numpy
from credibly.types import Array, ArrayLike


def shift_rates(log_odds: ArrayLike, trained: ArrayLike, wanted: ArrayLike | float) -> Any:
    r"""Return log-odds for rows where labels are as frequent as ``wanted`` says.

    $$g_j \mapsto g_j + \operatorname{logit}\pi'_j - \operatorname{logit}\pi_j$$

    This is Bayes' rule if rows with a label (and rows without) look the same as in training and
    only their shares $\pi_j$ changed to $\pi'_j$. One number as ``wanted`` weighs rare labels like
    frequent ones: after training on a long tail that covers many more of the rare ones in sets of
    the same size, at a price for the frequent (``benchmarks/results/average-k.md``).

    Args:
        log_odds: (n, L), calibrated where labels have the rates ``trained``; numpy or torch.
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
            f"`{name}` must lie between 0 and 1; got [{array.min():g}, {array.max():g}]. A label "
            "that was never seen, or always, has no log-odds to move."
        )
    return np.log(array) - np.log1p(-array)
