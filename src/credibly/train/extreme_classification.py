"""Runs on very many labels: held-out rows, calibration and predictions without all scores.

Each row keeps its most probable labels only. The network is a ``HeadedModule``, whose last layer
can be applied to a block of labels at a time.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor, nn

from credibly.calibrate.auto import fit_by_name
from credibly.checks import InputError
from credibly.data.torch_datasets import RowSource, stream
from credibly.losses import fused_linear
from credibly.metrics.top_labels import PLACES, HeldLabels, TopLabels
from credibly.models.network import HeadedModule
from credibly.runtime import sigmoid
from credibly.targets import SparseTargets, Targets
from credibly.train.distributed import EpochEvaluator, SingleProcess, full_precision
from credibly.train.recipes import Network as Recipe
from credibly.train.training_loop import fuses
from credibly.types import Array, JsonObject

if TYPE_CHECKING:
    from accelerate import Accelerator

    from credibly.calibrate import Calibrator
    from credibly.data import Data
    from credibly.losses import Loss
    from credibly.predictions import Predictions

TOP_LABELS = 50
"""How many labels of a row are kept; fewer where there are not so many."""

ROWS = 256
"""Rows that are scored at once."""

ENTRIES = 1 << 22
"""Scores that are in memory at once: 16 MB of float32."""


def check_many(
    recipe: Recipe, data: Data, criterion: Loss, model: nn.Module, processes: int
) -> None:
    """Raise for options that need the scores of all labels at once."""
    if not fuses(model, criterion, processes, sparse=True):
        raise InputError(
            f"{data.source} has {data.num_labels:,} labels, whose scores are not stored: train on "
            "one process, with a network whose last layer is linear and a loss of single entries, "
            f"softmax, twl or quasibinary; got {processes} processes, model {recipe.model!r}, "
            f"loss {recipe.loss!r}."
        )
    if recipe.mixup:
        raise InputError("sparse targets cannot be combined with `mixup`. Leave it out.")
    if recipe.select == "average-k" or recipe.average_size is not None:
        raise InputError("sparse targets cannot be combined with `average_size`. Leave it out.")
    if recipe.views != "one":
        raise InputError(f"sparse targets go with `views` one; got {recipe.views!r}.")


class ManyLabelsEvaluator(EpochEvaluator):
    """Metrics of held-out rows with sparse targets; the held-out loss selects the epoch.

    With ``select`` map, nDCG@5 selects instead, because average precision needs the scores of all
    labels.
    """

    sparse = True

    def __init__(self, recipe: Recipe, rows: RowSource, targets: SparseTargets) -> None:
        self.recipe, self.rows, self.sparse_targets = recipe, rows, targets

    @torch.no_grad()
    def measure(
        self, model: nn.Module, criterion: Loss, accelerator: Accelerator | SingleProcess
    ) -> dict[str, float]:
        tally, total, count = TopLabels(max(PLACES)), 0.0, 0
        device, workers = accelerator.device, self.recipe.workers
        for rows, hidden, head in _hidden(model, self.rows, device, workers):
            targets = self.sparse_targets[rows.numpy()]
            value = fused_linear(criterion, hidden, head.weight, head.bias, targets)
            total, count = total + float(value) * len(rows), count + len(rows)
            _, numbers, _ = top_scores(hidden, head, max(PLACES))
            tally.update(numbers.cpu().numpy(), targets)
        precision, ndcg, _ = tally.figures()
        figures = {"held-out loss": total / max(count, 1), "ndcg@5": float(ndcg[-1])}
        figures |= {f"precision@{k}": float(precision[k - 1]) for k in PLACES}
        chosen = {"last": 0.0, "map": -figures["ndcg@5"]}
        return {**figures, "selection": chosen.get(self.recipe.select, figures["held-out loss"])}


def _hidden(
    model: nn.Module, dataset: RowSource, device: torch.device, workers: int
) -> Iterator[tuple[Tensor, Tensor, nn.Linear]]:
    """Yield row numbers, the inputs of the last layer for them, and the last layer."""
    assert isinstance(model, HeadedModule)
    was_training = model.training
    model.eval()
    try:
        batches = torch.arange(len(dataset)).split(ROWS)
        for inputs, _, rows in stream(dataset, list(batches), workers):
            yield rows, full_precision(model.hidden(inputs.to(device))), model.head
    finally:
        model.train(was_training)


@torch.no_grad()
def top_scores(hidden: Tensor, head: nn.Linear, k: int) -> tuple[Tensor, Tensor, Tensor]:
    """Return the k largest scores of each row, their labels, and log Σ exp over all labels.

    Example:
        >>> head = nn.Linear(1, 4)
        >>> head.load_state_dict({"weight": torch.zeros(4, 1), "bias": torch.arange(4.0)})
        <All keys matched successfully>
        >>> values, labels, _ = top_scores(torch.ones(1, 1), head, 2)
        >>> values.tolist(), labels.tolist()
        ([[3.0, 2.0]], [[3, 2]])
    """
    rows, labels = len(hidden), head.out_features
    k = min(k, labels)
    best = hidden.new_empty(rows, 0)
    numbers = hidden.new_empty(rows, 0, dtype=torch.int64)
    log_sum = hidden.new_full((rows,), -torch.inf, dtype=torch.float64)
    step = max(ENTRIES // max(rows, 1), k)
    for start in range(0, labels, step):
        part = slice(start, start + step)
        bias = None if head.bias is None else head.bias[part]
        scores = nn.functional.linear(hidden, head.weight[part].to(hidden.dtype), bias)
        log_sum = torch.logaddexp(log_sum, scores.logsumexp(1).double())
        values, places = scores.topk(min(k, scores.shape[1]), dim=1)
        best = torch.cat([best, values], 1)
        numbers = torch.cat([numbers, places + start], 1)
        best, order = best.topk(min(k, best.shape[1]), dim=1)
        numbers = numbers.gather(1, order)
    return best, numbers, log_sum


def top_of_rows(
    model: nn.Module, dataset: RowSource, criterion: Loss, device: torch.device, workers: int
) -> tuple[Array, Array, Array]:
    """Return scores, log-odds, and label numbers of the most probable labels.

    Without a link, the scores stand for the log-odds.
    """
    scores, odds, numbers = [], [], []
    for _, hidden, head in _hidden(model, dataset, device, workers):
        best, places, log_sum = top_scores(hidden, head, TOP_LABELS)
        scores.append(best.float().cpu().numpy())
        linked = best.cpu()
        if criterion.has_link:
            linked = criterion.top_log_odds(linked, log_sum.cpu())
        odds.append(linked.double().numpy())
        numbers.append(places.cpu().numpy().astype(np.int32))
    return np.concatenate(scores), np.concatenate(odds), np.concatenate(numbers)


def fit_calibrator(method: str, criterion: Loss, odds: Array, hits: Array) -> Calibrator | None:
    """Return one calibrator for all labels, fitted on the labels that held-out rows keep.

    ``auto`` does not calibrate a softmax. Its rows must sum to one, and the kept labels do not
    determine how a calibrator would change the other labels.
    """
    if method == "none" or (method == "auto" and criterion.exclusive):
        return None
    known = hits >= 0
    return fit_by_name(method, odds[known][:, None], Targets(hits[known][:, None]))


def top_predictions(
    rows: Data,
    kept: tuple[Array, Array, Array],
    calibrator: Calibrator | None,
    metadata: JsonObject,
) -> Predictions:
    """Return the most probable labels of ``rows``, calibrated."""
    from credibly.predictions import Predictions

    scores, odds, numbers = kept
    if calibrator is not None:
        odds = calibrator.transform(odds.reshape(-1, 1)).reshape(odds.shape)
    targets = rows.targets if isinstance(rows.targets, SparseTargets) else None
    if targets is None and rows.has_truth:
        targets = SparseTargets.from_dense(rows.dense_targets)
    if targets is not None and not targets.num_known:
        targets = None
    return Predictions.from_arrays(
        top=numbers,
        probabilities=sigmoid(odds),
        labels=rows.labels,
        targets=targets,
        ids=rows.ids,
        scores=scores,
        metadata=metadata,
    )


def measured(predictions: Predictions) -> dict[str, float]:
    """Return the metrics of test rows: ranking, and calibration of the kept labels."""
    if predictions.targets is None:
        return {}
    found = HeldLabels()
    found.update(*predictions.measured())
    return found.numbers()
