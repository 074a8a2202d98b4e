"""Linear probe first, then fine-tuning (LP-FT): solve the last layer before training moves both.

From a random last layer the first updates change a pretrained backbone to suit noise. Solved first,
as a linear model of the features that the backbone has, the last layer passes on gradients that
mean something from the first update on (Kumar et al. 2022, "Fine-tuning can distort pretrained
features"). benchmarks/results/networks.md has what it gains.
"""

from __future__ import annotations

import copy
import dataclasses
from typing import TYPE_CHECKING, Any

import numpy as np
from torch import Tensor, nn

from credibly.checks import InputError
from credibly.train import linear
from credibly.train.callbacks import Callback
from credibly.train.distributed import SingleProcess, score
from credibly.train.evaluation import EpochEvaluator
from credibly.train.folds import Folds
from credibly.types import Array

if TYPE_CHECKING:
    from collections.abc import Callable

    from accelerate import Accelerator

    from credibly.data import Data
    from credibly.losses import Loss
    from credibly.models.network import Network
    from credibly.train.recipes import Network as Recipe


def can_probe(criterion: Loss) -> bool:
    """Return whether a last layer can be solved for this loss before training.

    It must have one score per label and nothing that training would go on with.

    Example:
        >>> from credibly import losses
        >>> [can_probe(losses.from_name(name, num_labels=3)) for name in ("bce", "quasibinary")]
        [True, False]
    """
    if criterion.has_state or not linear.solvable(criterion):
        return False
    return criterion.num_outputs(2) == 2


class _Probe(Callback):
    """Tell ``inner`` of penalties."""

    def __init__(self, inner: Callback) -> None:
        self.inner = inner

    def on_epoch(self, figures: dict[str, Any]) -> None:
        self.inner.on_linear_probe({key: figures[key] for key in ("l2", "nll", "map", "ace")})


class _Features(nn.Module):
    """What the last layer of ``network`` sees, as a model that can be scored."""

    def __init__(self, network: Network) -> None:
        super().__init__()
        self.network = network

    def forward(self, inputs: Any) -> Tensor:
        return self.network.features(inputs)


def solve_last_layer(
    recipe: Recipe,
    network: Network,
    criterion: Loss,
    data: Data,
    dataset: Callable[[Data], Any],
    accelerator: Accelerator | SingleProcess,
    callback: Callback,
    *,
    max_rows: int = 16_384,
    max_entries: int = 20_000_000,
    **options: Any,
) -> linear.Solution:
    """Solve the last layer on the backbone's features of the training rows.

    Args:
        recipe: of the run.
        network: its last layer is set in place; its biases are where the solution starts.
        criterion: the loss.
        data: training rows, and held-out rows that choose the penalty.
        dataset: makes rows that can be scored, without augmentation.
        accelerator: device and processes.
        callback: receives the metrics of each penalty.
        max_rows: rows whose features are kept, evenly chosen where there are more.
        max_entries: scores of these rows: some 500 MB with the features.
        options: of ``linear.solve``.

    Returns:
        The solution, whose penalty is for features of mean square one.
    """
    network.to(accelerator.device)
    limit = max(1, min(max_rows, max_entries // data.num_labels))
    train, held_out = (_evenly(data.part(part), limit) for part in ("train", "calibration"))
    inputs = np.concatenate(
        [
            score(_Features(network), dataset(rows), accelerator, recipe.workers).double().numpy()
            for rows in (train, held_out)
        ]
    )
    if not np.isfinite(inputs).all():
        raise InputError(
            f"The features that `weights` {recipe.weights} give must be finite; got NaN or "
            "infinity. Give other weights, or turn `head_start` off."
        )
    rows, count = np.arange(len(inputs)), len(train)
    scale = float(np.sqrt(np.square(inputs[:count]).mean())) or 1.0
    targets = np.concatenate([train.dense_targets, held_out.dense_targets]).astype(np.float64)
    by_nll = dataclasses.replace(recipe, select="nll")
    evaluator = EpochEvaluator(by_nll, None, targets[count:])
    own = copy.deepcopy(criterion).cpu().eval()

    def measure(scores: Array, odds: Array) -> dict[str, float]:
        return evaluator.figures(odds, scores)

    found = linear.solve(
        *(inputs / scale, targets, own, Folds([(rows[:count], rows[count:])]), measure),
        bias=network.head.bias.detach().cpu().double().numpy(),
        callback=_Probe(callback),
        **options,
    )
    linear.Layer(found.layer.weight / scale, found.layer.bias).copy_to(network.head)
    return found


def _evenly(rows: Data, limit: int) -> Data:
    """Return evenly chosen rows, at most ``limit``."""
    step = -(-len(rows) // limit)
    return rows if step <= 1 else rows.take(np.arange(0, len(rows), step))
