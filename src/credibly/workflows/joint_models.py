"""Joint models from files: fitted ones, or held-out predictions to fit one on."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np

from credibly.checks import InputError
from credibly.predictions import Predictions
from credibly.retrieve import Joint, fit_joint
from credibly.retrieve.joint.choice import JointFit
from credibly.targets import Targets
from credibly.types import Array


def joint_from(path: str | os.PathLike[str], *, partial: bool = False) -> Joint:
    """Return a joint model of labels.

    Args:
        path: a .json file of ``credibly joint fit``, or held-out predictions to fit one on.
        partial: whether a folder may lack shards; otherwise that is an error.

    Raises:
        InputError: if there is no truth to fit on, or the file is not a joint model.
    """
    if Path(path).suffix == ".json":
        return Joint.read(path)
    return fit_joint_file(path, partial=partial).model


def fit_joint_file(
    path: str | os.PathLike[str],
    *,
    components: tuple[int, ...] = (1, 3),
    seed: int = 0,
    partial: bool = False,
) -> JointFit:
    """Fit a joint model on held-out predictions with their truth; see ``retrieve.fit_joint``."""
    held_out = Predictions.read(path, partial=partial)
    held_out.check_dense("a joint model")
    if held_out.targets is None:
        raise InputError(
            f"a joint model must be fitted where the truth is known; {path} has none. Name "
            "held-out predictions with their truth."
        )
    return fit_joint(
        held_out.probabilities,
        Targets(_hard(held_out.targets)),
        held_out.labels,
        components=components,
        seed=seed,
    )


def _hard(targets: Array) -> Array:
    """Return targets with soft ones as unknown: they say neither yes nor no."""
    return np.where((targets == 0) | (targets == 1), targets, -1)
