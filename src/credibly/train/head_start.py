"""A last layer that fits pretrained features before training moves both.

From a random last layer the first updates change a pretrained backbone to suit noise. Solved first,
as a linear model of the features that the backbone has, the last layer passes on gradients that
mean something from the first update on (Kumar et al. 2022, "Fine-tuning can distort pretrained
features"). docs/results/networks.md has what it gains.
"""

from __future__ import annotations

import copy
import dataclasses
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor, nn

from credibly.checks import InputError
from credibly.train.axes import Axes
from credibly.train.distributed import SingleProcess, score
from credibly.train.evaluation import EpochEvaluator
from credibly.train.lbfgs import loss_terms, minimise

if TYPE_CHECKING:
    from collections.abc import Callable

    from accelerate import Accelerator

    from credibly.data import Data
    from credibly.losses import Loss
    from credibly.models import Network
    from credibly.train.callbacks import Callback
    from credibly.train.configuration import Settings

L2 = (30_000.0, 10_000.0, 3_000.0, 1_000.0, 300.0, 100.0, 30.0, 10.0, 3.0, 1.0)
"""Penalties, strongest first, of features whose mean square is one. Held-out rows choose."""

ITERATIONS = 100
TOLERANCE = 1e-5
MOST_ROWS = 16_384
MOST_ENTRIES = 20_000_000
"""Most rows whose features are kept, and most entries of their scores: some 500 MB."""


def can_start(criterion: Loss) -> bool:
    """Return whether a last layer can be solved for this loss.

    It must have one score per label, neither parameters nor a memory of its own, and a gradient
    that is that of its value.

    Example:
        >>> from credibly import losses
        >>> [can_start(losses.from_name(name, num_labels=3)) for name in ("bce", "quasibinary")]
        [True, False]
    """
    remembers = criterion.has_state or criterion.needs_indices
    learns = next(criterion.parameters(), None) is not None
    if remembers or learns or criterion.detached:
        return False
    return criterion.num_outputs(2) == 2


class _Features(nn.Module):
    """What the last layer of ``network`` sees, as a model that can be scored."""

    def __init__(self, network: Network) -> None:
        super().__init__()
        self.network = network

    def forward(self, inputs: Any) -> Tensor:
        return self.network.features(inputs)


def start_head(
    settings: Settings,
    network: Network,
    criterion: Loss,
    data: Data,
    dataset: Callable[[Data], Any],
    accelerator: Accelerator | SingleProcess,
    callback: Callback,
) -> dict[str, float]:
    """Solve the last layer on the backbone's features of the training rows.

    Args:
        settings: of the run.
        network: its last layer is set in place; its biases are where the solution starts.
        criterion: the loss.
        data: training rows, and held-out rows that choose the penalty.
        dataset: makes rows that can be scored, without augmentation.
        accelerator: device and processes.
        callback: receives the figures of each penalty.

    Returns:
        The penalty ``l2`` and the figures of the held-out rows.
    """
    network.to(accelerator.device)
    train, held_out = _some(data.part("train")), _some(data.part("calibration"))
    inside, outside = (
        score(_Features(network), dataset(rows), accelerator, settings.workers).double()
        for rows in (train, held_out)
    )
    if not inside.isfinite().all():
        raise InputError(
            f"The features that `weights` {settings.weights} give must be finite; got NaN or "
            "infinity. Give other weights, or turn `head_start` off."
        )
    scale = float(inside.square().mean().sqrt()) or 1.0
    inside, outside = inside / scale, outside / scale
    axes = Axes.of(inside)
    inside, outside = axes.along(inside), axes.along(outside)
    targets = torch.from_numpy(train.dense_targets.astype(np.float64))
    terms = loss_terms(criterion, targets)
    by_nll = dataclasses.replace(settings, select="nll")
    evaluator = EpochEvaluator(by_nll, None, held_out.dense_targets)
    head = axes.head(network.head)
    own = copy.deepcopy(criterion).cpu().train()
    best: dict[str, float] = {}
    kept, worse = head, 0
    for l2 in L2:
        minimise(
            head,
            own,
            inside,
            targets,
            l2 / terms,
            max_iterations=ITERATIONS,
            tolerance=TOLERANCE,
            units=axes.units(targets, l2, terms),
        )
        with torch.no_grad():
            figures = {"l2": l2, **evaluator(own.eval(), head(outside))}
        own.train()
        callback.on_head_start({key: figures[key] for key in ("l2", "nll", "map", "ace")})
        worse += 1
        if not best or figures["selection"] < best["selection"]:
            best, kept, worse = figures, copy.deepcopy(head), 0
        if worse == 2:
            break
    with torch.no_grad():
        kept.weight /= scale
    axes.put_back(kept, network.head)
    return best


def _some(rows: Data) -> Data:
    """Return evenly chosen rows, as many as memory is set aside for."""
    most = max(1, min(MOST_ROWS, MOST_ENTRIES // rows.num_labels))
    step = -(-len(rows) // most)
    return rows if step <= 1 else rows.take(np.arange(0, len(rows), step))
