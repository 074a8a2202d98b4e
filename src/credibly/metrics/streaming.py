"""Metrics as ``torchmetrics.Metric``: fixed memory, batch after batch, over processes.

Every state is a sum, of a shape that labels and bins alone decide, so that processes agree however
unequally they were updated, not at all included. Batches are counted on the CPU by the same code
as the functions; on a GPU each update waits for the batch.
"""

from __future__ import annotations

from abc import abstractmethod
from typing import Any

import numpy as np
import torch
from torch import Tensor

from credibly import checks
from credibly.arrays import to_numpy
from credibly.metrics import binning, calibration, scoring
from credibly.metrics.calibration import Average, Kind
from credibly.metrics.calibration import Reliability as Diagram
from credibly.metrics.inputs import mean_known, probability_pair, tally_of
from credibly.metrics.proportions import Band
from credibly.targets import Coding, check_tally
from credibly.types import Array

try:
    from torchmetrics import Metric
except ImportError as error:
    raise ImportError(
        "credibly.metrics.streaming needs torchmetrics; install it with `pip install torchmetrics`."
        " `credibly.metrics.Running` accumulates the same numbers without it."
    ) from error

__all__ = ["AveragePrecision", "Brier", "CalibrationError", "LogLoss", "Reliability"]


class _Summed(Metric):
    """A metric that is a function of sums over entries.

    Args:
        num_labels: number of labels.
        shape: of the sums of one label.
        coding: how to read targets of only −1 and +1; without it ``compute`` refuses to answer
            where nothing else was seen.
        settings: of ``torchmetrics.Metric``.
    """

    full_state_update = False
    is_differentiable = False
    sums: Tensor
    tally: Tensor

    def __init__(
        self, num_labels: int, *shape: int, coding: Coding | None = None, **settings: Any
    ) -> None:
        super().__init__(**settings)
        self.coding: Coding | None = coding
        self._one_batch = False
        self.num_labels = int(checks.at_least("num_labels", num_labels, 1))
        zeros = torch.zeros(self.num_labels, *shape, dtype=torch.float64)
        self.add_state("sums", zeros, dist_reduce_fx="sum")
        self.add_state("tally", torch.zeros(4, dtype=torch.int64), dist_reduce_fx="sum")

    def update(self, probabilities: Tensor, targets: Tensor) -> None:
        """Add a batch of (rows, labels)."""
        values, truth = probability_pair(probabilities, targets, self.coding, whole=False)
        if values.shape[1] != self.num_labels:
            raise checks.InputError(
                f"`probabilities` must have {self.num_labels} labels as in the constructor; "
                f"got {values.shape[1]}."
            )
        self.tally += torch.from_numpy(tally_of(targets, truth)).to(self.tally.device)
        self.sums += torch.from_numpy(self._count(values, truth)).to(self.sums.device)

    def forward(self, *batch: object, **named: object) -> Any:
        """Add a batch and return its own value; one batch cannot tell how targets are coded."""
        self._one_batch = True
        try:
            return super().forward(*batch, **named)
        finally:
            self._one_batch = False

    @abstractmethod
    def _count(self, probabilities: Array, targets: Array) -> Array:
        """The sums of one batch."""

    def _total(self) -> Array:
        """Return the sums over everything seen; refuse targets that can be read two ways."""
        if not self._one_batch:
            check_tally(self.tally.cpu(), self.coding)
        return to_numpy(self.sums)

    def _tensor(self, value: object) -> Tensor:
        return torch.as_tensor(np.asarray(value), device=self.sums.device)


class CalibrationError(_Summed):
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
        super().__init__(num_labels, binning.number_of_bins(bins), 3, **settings)
        self.kind = checks.choice("kind", kind, calibration.KINDS)
        self.average = checks.choice("average", average, ("pooled", "macro", None))
        self.bins, self.min_count = bins, min_count

    def _count(self, probabilities: Array, targets: Array) -> Array:
        return binning.sums(probabilities, targets, self.bins)

    def compute(self) -> Tensor:
        """The error over everything seen, on all processes."""
        total = self._total()
        return self._tensor(
            calibration.averaged_error(total, self.kind, self.min_count, self.average)
        )


class Reliability(_Summed):
    """``metrics.reliability`` over all batches; ``compute`` gives its fields as a dict of tensors.

    Example:
        >>> metric = Reliability(num_labels=1, bins=2)
        >>> metric.update(torch.tensor([[0.9], [0.7], [0.2]]), torch.tensor([[1], [0], [0]]))
        >>> metric.compute()["frequency"]
        tensor([0.0000, 0.5000], dtype=torch.float64)
    """

    def __init__(
        self,
        num_labels: int,
        bins: int = 15,
        per_label: bool = False,
        band: Band = "wilson",
        level: float = 0.95,
        **settings: Any,
    ) -> None:
        super().__init__(num_labels, binning.number_of_bins(bins), 3, **settings)
        self.bins, self.per_label, self.level = bins, per_label, level
        self.band: Band = band

    def _count(self, probabilities: Array, targets: Array) -> Array:
        return binning.sums(probabilities, targets, self.bins)

    def compute(self) -> dict[str, Tensor]:
        """The diagram over everything seen, on all processes."""
        total = self._total()
        diagram: Diagram = calibration.diagram_of(
            total if self.per_label else total.sum(0), self.band, self.level
        )
        return {name: self._tensor(part) for name, part in vars(diagram).items()}


class LogLoss(_Summed):
    """``metrics.log_loss`` over all batches.

    Example:
        >>> metric = LogLoss(num_labels=2)
        >>> metric.update(torch.tensor([[0.8, 0.1]]), torch.tensor([[1, 0]]))
        >>> round(metric.compute().item(), 4)
        0.1643
    """

    higher_is_better = False
    _which = scoring.LOG_LOSS

    def __init__(
        self,
        num_labels: int,
        average: Average = "pooled",
        floor: float | None = None,
        **settings: Any,
    ) -> None:
        super().__init__(num_labels, 3, **settings)
        self.average = checks.choice("average", average, ("pooled", "macro", None))
        self.floor = floor

    def _count(self, probabilities: Array, targets: Array) -> Array:
        floor = scoring.smallest(probabilities.dtype, self.floor)
        return scoring.sums(probabilities, targets, floor)

    def compute(self) -> Tensor:
        """The mean over everything seen, on all processes."""
        return self._tensor(scoring.averaged(self._total(), self._which, self.average))


class Brier(LogLoss):
    """``metrics.brier`` over all batches.

    Example:
        >>> metric = Brier(num_labels=2)
        >>> metric.update(torch.tensor([[0.8, 0.1]]), torch.tensor([[1, 0]]))
        >>> round(metric.compute().item(), 4)
        0.025
    """

    _which = scoring.SQUARED_ERROR

    def __init__(self, num_labels: int, average: Average = "pooled", **settings: Any) -> None:
        super().__init__(num_labels, average, **settings)


class AveragePrecision(_Summed):
    """Average precision of each label (or their mean) from counts in fine bins of log-odds.

    An approximation: probabilities whose log-odds fall into one bin count as tied, and log-odds
    beyond ±``limit`` as one bin. The default tells apart log-odds 0.01 from each other; it is
    exact for probabilities on that grid. ``metrics.average_precision`` is exact, with all scores
    in memory.

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
        super().__init__(num_labels, binning.number_of_bins(bins), 2, **settings)
        self.average = checks.choice("average", average, ("macro", None))
        self.bins, self.limit = bins, checks.positive("limit", limit)

    def _count(self, probabilities: Array, targets: Array) -> Array:
        p = probabilities.astype(np.float64)
        with np.errstate(divide="ignore"):
            log_odds = np.clip(np.log(p) - np.log1p(-p), -self.limit, self.limit)
        place = ((log_odds + self.limit) * (self.bins / (2 * self.limit))).astype(np.int64)
        place = np.minimum(place, self.bins - 1) + np.arange(self.num_labels) * self.bins
        known, size = targets >= 0, self.num_labels * self.bins
        counts = [np.bincount(place[known], weights, size) for weights in (None, targets[known])]
        return np.stack(counts, axis=1).reshape(self.num_labels, self.bins, 2).astype(np.float64)

    def compute(self) -> Tensor:
        """Average precision over everything seen, on all processes; NaN without a positive."""
        counts = self._total()[:, ::-1]
        above = counts.cumsum(1)
        with np.errstate(invalid="ignore"):
            precision = np.nan_to_num(above[..., 1] / above[..., 0])
            each = (counts[..., 1] * precision).sum(1) / counts[..., 1].sum(1)
        return self._tensor(mean_known(each) if self.average == "macro" else each)
