"""Single-positive data from multi-label data, as Cole et al. (2021) make them."""

from __future__ import annotations

import dataclasses

import numpy as np

from credibly.checks import choice
from credibly.data.rows import Data
from credibly.data.splits import TEST


def hide_labels(data: Data, *, seed: int = 0, others: str = "unknown") -> Data:
    """Keep one random label of each training row; test rows keep all labels.

    Rows without a label do not change.

    Args:
        data: rows with several labels.
        seed: of the draw.
        others: the value of the other labels of such a row: ``"unknown"`` (−1), or ``"absent"``
            (0), as the loss ``an`` assumes.

    Example:
        >>> rows = Data(list("abc"), [[1, 1, 0], [0, 0, 0]], features=np.eye(2))
        >>> hide_labels(rows, seed=1).targets
        array([[-1.,  1., -1.],
               [ 0.,  0.,  0.]], dtype=float32)

    References:
        Cole et al., Multi-Label Learning from Single Positive Labels (CVPR 2021), section 5.1.
    """
    rest = -1.0 if choice("others", others, ("unknown", "absent")) == "unknown" else 0.0
    targets = np.array(data.dense_targets, dtype=np.float32)
    generator = np.random.default_rng(seed)
    draws = generator.random(targets.shape)
    chosen = np.where(targets == 1, draws, -1.0).argmax(1)
    hidden = (data.split != TEST) & (targets == 1).any(1)
    targets[hidden] = rest
    targets[hidden, chosen[hidden]] = 1
    return dataclasses.replace(data, targets=targets, coding="unknown")
