"""Metrics as ``torchmetrics.Metric``, with fixed memory, over batches and processes.

Every state is a sum, and only labels and bins determine its shape. Processes therefore agree even
if they had different numbers of updates, or none. The CPU counts each batch with the same code as
the functions, so on a GPU each update waits for the batch.
"""

from __future__ import annotations

from collections.abc import Callable
from copy import deepcopy
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import Tensor

from credibly import checks
from credibly.arrays import to_numpy
from credibly.metrics.accumulators import Codes, batch_pair, mean_known
from credibly.metrics.calibration import (
    COUNT,
    TARGET,
    Average,
    CalibrationBins,
    Kind,
    ProperScores,
)
from credibly.metrics.ranking import tied_average_precision
from credibly.targets import Coding, Targets, check_tally
from credibly.types import Array

try:
    from torchmetrics import Metric
except ImportError as error:
    raise ImportError(
        "credibly.metrics.streaming needs torchmetrics; install it with `pip install torchmetrics`."
        " `credibly.metrics.Summary` accumulates the same numbers without it."
    ) from error

__all__ = ["AveragePrecision", "Brier", "CalibrationError", "LogLoss"]


class _Streaming(Metric):
    """A metric that is a function of the sums of an accumulator.

    Args:
        num_labels: number of labels.
        make: makes an empty accumulator of so many labels.
        result: the function from the accumulator of everything seen to the metric.
        coding: how to read targets of only −1 and +1; without it, ``compute`` raises if only these
            values were seen.
        settings: options of ``torchmetrics.Metric``.
    """

    full_state_update = False
    is_differentiable = False

    def __init__(
        self,
        num_labels: int,
        make: Callable[[int], Any],
        result: Callable[[Any], object],
        *,
        coding: Coding | None = None,
        **settings: Any,
    ) -> None:
        super().__init__(**settings)
        accumulator = make(int(checks.at_least("num_labels", num_labels, 1)))
        result(accumulator)  # this checks the options
        self._result = result
        self.coding: Coding | None = coding
        self._one_batch = False
        self.num_labels = num_labels
        self._empty = accumulator
        for name, array in {**accumulator.state(), **Codes().state()}.items():
            self.add_state(f"sum_{name}", torch.from_numpy(array.copy()), dist_reduce_fx="sum")

    def update(self, probabilities: Tensor, targets: Tensor) -> None:
        """Add a batch of (rows, labels)."""
        decoded = Targets.beside(
            probabilities, targets, "probabilities", coding=self.coding, whole=False
        )
        values, truth = batch_pair(probabilities, decoded, self.num_labels)
        batch, codes = deepcopy(self._empty), Codes()
        batch.update(values, truth)
        codes.update(targets, truth)
        for name, array in {**batch.state(), **codes.state()}.items():
            total = getattr(self, f"sum_{name}")
            total += torch.from_numpy(array).to(total.device)

    def forward(self, *batch: object, **named: object) -> Any:
        """Add a batch and return its own value; the coding is checked in ``compute`` only."""
        self._one_batch = True
        try:
            return super().forward(*batch, **named)
        finally:
            self._one_batch = False

    def _total(self) -> Any:
        """Return an accumulator of everything seen; raise if the targets are ambiguous."""
        total, codes = deepcopy(self._empty), Codes()
        for each in (total, codes):
            each.merge({name: to_numpy(getattr(self, f"sum_{name}")) for name in each.state()})
        if not self._one_batch:
            check_tally(codes.sums["codes"], self.coding)
        return total

    def compute(self) -> Tensor:
        """Return the metric of everything seen, on all processes."""
        return torch.as_tensor(np.asarray(self._result(self._total())), device=self.device)


class CalibrationError(_Streaming):
    """``metrics.calibration_error`` over all batches.

    Example:
        >>> metric = CalibrationError(num_labels=2, kind="ece", bins=5)
        >>> metric.update(torch.tensor([[0.9, 0.1]]), torch.tensor([[1, 0]]))
        >>> metric.update(torch.tensor([[0.7, 0.3]]), torch.tensor([[0, 1]]))
        >>> round(metric.compute().item(), 4)
        0.4
    """

    higher_is_better = False

    def __init__(
        self,
        num_labels: int,
        kind: Kind = "ace",
        bins: int = 15,
        min_count: int = 0,
        average: Average = "pooled",
        **settings: Any,
    ) -> None:
        result = partial(CalibrationBins.error, kind=kind, min_count=min_count, average=average)
        super().__init__(num_labels, partial(CalibrationBins, bins=bins), result, **settings)


class LogLoss(_Streaming):
    """``metrics.log_loss`` over all batches.

    Example:
        >>> metric = LogLoss(num_labels=2)
        >>> metric.update(torch.tensor([[0.8, 0.1]]), torch.tensor([[1, 0]]))
        >>> round(metric.compute().item(), 4)
        0.1643
    """

    higher_is_better = False

    def __init__(self, num_labels: int, average: Average = "pooled", **settings: Any) -> None:
        result = partial(ProperScores.log_loss, average=average)
        super().__init__(num_labels, ProperScores, result, **settings)


class Brier(_Streaming):
    """``metrics.brier`` over all batches.

    Example:
        >>> metric = Brier(num_labels=2)
        >>> metric.update(torch.tensor([[0.8, 0.1]]), torch.tensor([[1, 0]]))
        >>> round(metric.compute().item(), 4)
        0.025
    """

    higher_is_better = False

    def __init__(self, num_labels: int, average: Average = "pooled", **settings: Any) -> None:
        result = partial(ProperScores.brier, average=average)
        super().__init__(num_labels, ProperScores, result, **settings)


class AveragePrecision(_Streaming):
    """Average precision of each label (or their mean) from counts in fine bins of log-odds.

    This is an approximation: probabilities whose log-odds are in the same bin count as tied, and
    log-odds beyond ±``limit`` form one bin. By default, bins have a width of 0.01. For
    probabilities on this grid the result is exact. ``metrics.average_precision`` is always exact
    and keeps all scores in memory. A label without a positive has NaN.

    Example:
        >>> metric = AveragePrecision(num_labels=1)
        >>> metric.update(torch.tensor([[0.9], [0.8], [0.3]]), torch.tensor([[1], [0], [1]]))
        >>> round(metric.compute().item(), 4)
        0.8333
    """

    higher_is_better = True

    def __init__(
        self,
        num_labels: int,
        average: Average = "macro",
        bins: int = 4096,
        limit: float = 20.48,
        **settings: Any,
    ) -> None:
        make = partial(_LogOddsBins, bins=bins, limit=checks.positive("limit", limit))
        result = partial(_LogOddsBins.average_precision, average=average)
        super().__init__(num_labels, make, result, **settings)


class _LogOddsBins(CalibrationBins):
    """Bins of the log-odds between ±``limit``, instead of the probabilities."""

    def __init__(self, num_labels: int, bins: int, limit: float) -> None:
        super().__init__(num_labels, bins)
        self.limit = limit

    def update(self, probabilities: Array, targets: Array) -> None:
        p = probabilities.astype(np.float64)
        with np.errstate(divide="ignore"):
            log_odds = np.clip(np.log(p) - np.log1p(-p), -self.limit, self.limit)
        super().update((log_odds + self.limit) / (2 * self.limit), targets)

    def average_precision(self, average: Average) -> Array:
        """Return the average precision of each label or their mean; entries of a bin are ties."""
        checks.choice("average", average, ("macro", None))
        counts = self.sums["bins"].transpose(0, 2, 1)
        each = np.array([tied_average_precision(*label[[COUNT, TARGET]]) for label in counts])
        return mean_known(each) if average == "macro" else each
