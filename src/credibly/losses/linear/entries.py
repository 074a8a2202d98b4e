"""Losses of single entries over chunks of labels."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from credibly.losses.fused.form import ValueAndGradient
from credibly.losses.linear.chunks import Chunk, ScoreChunks
from credibly.losses.linear.form import LinearForm

if TYPE_CHECKING:
    from credibly.losses.entries import BinaryLoss


@dataclass(frozen=True)
class EntriesLinear(LinearForm):
    """The mean of each chunk, weighted by its share of the known entries."""

    loss: BinaryLoss

    def run(self, chunks: ScoreChunks, needs_grad: bool, update_state: bool) -> Tensor:
        counts = chunks.targets.known_counts()
        known = 1
        if self.loss.reduction != "sum":
            known = max(
                sum(counts) if self.loss.reduction == "mean" else chunks.targets.known_rows(), 1
            )
        total = torch.zeros((), dtype=torch.float64, device=chunks.hidden.device)
        for chunk, count in zip(chunks, counts, strict=True):
            value, gradient = self._mean(chunk, count, needs_grad)
            total += value.double() * (count / known)
            if gradient is not None:
                chunks.add_gradient(chunk, gradient, count / known)
        return total

    def _mean(self, chunk: Chunk, count: int, needs_grad: bool) -> ValueAndGradient:
        """Return mean and gradient of one chunk: fused where there is such a form."""
        loss = self.loss.for_labels(chunk.labels)
        form = loss.fused_form() if loss.label_weight is None else None
        if form is not None:
            return form.value_and_gradient(chunk.scores, chunk.targets, needs_grad)
        with torch.set_grad_enabled(needs_grad):
            scores = chunk.scores.detach().requires_grad_(needs_grad)
            value = loss.values(scores, chunk.targets).sum() / max(count, 1)
            gradient = torch.autograd.grad(value, scores)[0] if needs_grad else None
        return value.detach(), gradient
