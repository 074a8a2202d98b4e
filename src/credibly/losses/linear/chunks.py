"""Scores and targets of one chunk of labels after the other."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
import torch
from torch import Tensor

from credibly import checks
from credibly.losses.base import working_precision
from credibly.targets import SparseTargets, tensor_one_hot

ENTRIES = 1 << 19
"""Entries of a chunk: 2 MB of float32 scores; with targets and gradient they stay in cache."""

KEPT = 1 << 25
"""Entries whose scores are kept between two passes: 128 MB in float32."""

SMALLEST = 256
"""Fewest labels of a chunk: below, the matrix products would be too thin."""

AnyTargets: TypeAlias = Tensor | SparseTargets | Sequence[Sequence[int]]


@dataclass(frozen=True)
class Chunk:
    """The scores and targets of some labels, for all rows of the batch."""

    labels: slice
    scores: Tensor
    targets: Tensor
    """In the dtype of the scores; negative or NaN is unknown."""
    all_known: bool

    def known(self) -> Tensor:
        """Return which entries are known."""
        return self.targets >= 0


class ScoreChunks:
    """hidden · weightᵀ + bias, chunk by chunk, as often as asked for; gradients are added up.

    Args:
        hidden: (rows, features).
        weight: (labels, features).
        bias: (labels,) or None.
        targets: of the batch.
        needs_grad: of hidden, weight and bias.
    """

    def __init__(
        self,
        hidden: Tensor,
        weight: Tensor,
        bias: Tensor | None,
        targets: TargetChunks,
        needs_grad: tuple[bool, bool, bool] = (False, False, False),
    ) -> None:
        self.dtype = torch.promote_types(hidden.dtype, weight.dtype)
        self.hidden, self.weight, self.bias = hidden.to(self.dtype), weight, bias
        self.targets, self.needs_grad = targets, needs_grad
        self.num_rows, self.num_labels = len(hidden), len(weight)
        size = min(max(ENTRIES // max(self.num_rows, 1), SMALLEST), max(self.num_labels, 1))
        self.edges = [*range(0, self.num_labels, size), self.num_labels]
        self.targets.prepare(self.edges, working_precision(hidden.new_empty(0, dtype=self.dtype)))
        self.hidden_gradient = torch.zeros_like(self.hidden) if needs_grad[0] else None
        self.weight_gradient = torch.empty_like(weight) if needs_grad[1] else None
        self.bias_gradient = torch.empty_like(bias) if needs_grad[2] and bias is not None else None
        self.kept: dict[int, Tensor] = {}

    def __iter__(self) -> Iterator[Chunk]:
        for number, (start, stop) in enumerate(zip(self.edges, self.edges[1:], strict=False)):
            labels = slice(start, stop)
            scores = self.kept.pop(number, None)
            scores = working_precision(self._scores(labels)) if scores is None else scores
            targets, all_known = self.targets.chunk(number)
            yield Chunk(labels, scores, targets, all_known)

    def sums_first(self) -> Iterator[Chunk]:
        """Yield the chunks once more than ``__iter__``, which then takes the scores of this pass.

        As many are kept as ``KEPT`` allows; the others are computed again. The caller must not
        change them.
        """
        for number, chunk in enumerate(self):
            yield chunk
            if (number + 1) * chunk.scores.numel() <= KEPT:
                self.kept[number] = chunk.scores

    def _scores(self, labels: slice) -> Tensor:
        part = self.weight[labels].to(self.dtype).t()
        if self.bias is None:
            return self.hidden @ part
        return torch.addmm(self.bias[labels].to(self.dtype), self.hidden, part)

    def add_gradient(self, chunk: Chunk, gradient: Tensor, factor: float = 1.0) -> None:
        """Add ``factor`` times the gradient of the scores of ``chunk``; once per chunk."""
        labels, gradient = chunk.labels, gradient.to(self.dtype)
        if self.hidden_gradient is not None:
            self.hidden_gradient.addmm_(gradient, self.weight[labels].to(self.dtype), alpha=factor)
        if self.weight_gradient is not None:
            out = self.weight_gradient[labels]
            if out.dtype == self.dtype:
                torch.addmm(out, gradient.t(), self.hidden, beta=0, alpha=factor, out=out)
            else:
                out.copy_((gradient.t() @ self.hidden).mul_(factor))
        if self.bias_gradient is not None:
            self.bias_gradient[labels] = gradient.sum(0).mul_(factor).to(self.bias_gradient.dtype)


class TargetChunks(ABC):
    """The targets of a batch, by chunk of labels."""

    @abstractmethod
    def prepare(self, edges: list[int], like: Tensor) -> None:
        """Set where chunks begin and end; ``like`` has the dtype and device of their targets."""

    @abstractmethod
    def chunk(self, number: int) -> tuple[Tensor, bool]:
        """Return the targets of one chunk, and whether all are known. The next call overwrites."""

    @abstractmethod
    def known_counts(self) -> list[int]:
        """Return the number of known entries of each chunk."""

    @abstractmethod
    def known_rows(self) -> int:
        """Return the number of rows with a known entry."""

    @abstractmethod
    def total_present(self) -> float:
        """Return the number of positive labels; soft ones count by their size."""


class DenseChunks(TargetChunks):
    """Columns of a matrix."""

    def __init__(self, targets: Tensor) -> None:
        self.targets = targets

    def prepare(self, edges: list[int], like: Tensor) -> None:
        self.edges, self.like = edges, like

    def chunk(self, number: int) -> tuple[Tensor, bool]:
        part = self.targets[:, self.edges[number] : self.edges[number + 1]]
        return part.to(self.like).contiguous(), False

    def known_counts(self) -> list[int]:
        ends = zip(self.edges, self.edges[1:], strict=False)
        return [int((self.targets[:, start:stop] >= 0).sum()) for start, stop in ends]

    def known_rows(self) -> int:
        return int((self.targets >= 0).any(1).sum())

    def total_present(self) -> float:
        parts = (self.chunk(number)[0] for number in range(len(self.edges) - 1))
        sums = (torch.where(part >= 0, part, 0.0).sum(dtype=torch.float64) for part in parts)
        return float(sum(sums, torch.zeros((), dtype=torch.float64, device=self.like.device)))


class SparseChunks(TargetChunks):
    """Entries sorted by label; one dense buffer of a chunk is filled and cleared in turn."""

    def __init__(self, targets: SparseTargets) -> None:
        self.sparse = targets

    def prepare(self, edges: list[int], like: Tensor) -> None:
        sparse = self.sparse
        order = np.argsort(sparse.indices, kind="stable")
        columns = sparse.indices[order]
        self.ends = np.searchsorted(columns, edges).tolist()
        starts = np.repeat(np.asarray(edges[:-1]), np.diff(self.ends))
        device = like.device
        self.rows = torch.from_numpy(sparse.entry_rows()[order]).to(device)
        self.columns = torch.from_numpy(columns - starts).to(device)
        self.values = torch.from_numpy(sparse.entry_values()[order]).to(like)
        self.hidden_rows = None
        if sparse.known is not None:
            self.hidden_rows = torch.from_numpy(np.flatnonzero(~sparse.known)).to(device)
        self.edges, self.like, self.buffer = edges, like, like.new_empty(0, 0)
        hidden = np.concatenate([[0], np.cumsum(sparse.entry_values()[order] < 0)])[self.ends]
        rows = len(sparse) if sparse.known is None else int(sparse.known.sum())
        self.known = (rows * np.diff(edges) - np.diff(hidden)).tolist()
        self.filled: tuple[Tensor, Tensor] | None = None

    def chunk(self, number: int) -> tuple[Tensor, bool]:
        width = self.edges[number + 1] - self.edges[number]
        if self.buffer.shape[1] != width:
            self.buffer = self.like.new_zeros(len(self.sparse), width)
            if self.hidden_rows is not None:
                self.buffer[self.hidden_rows] = -1
        elif self.filled is not None:
            self.buffer[self.filled] = 0
        entries = slice(self.ends[number], self.ends[number + 1])
        self.filled = self.rows[entries], self.columns[entries]
        self.buffer[self.filled] = self.values[entries]
        return self.buffer, self.known[number] == len(self.sparse) * width

    def known_counts(self) -> list[int]:
        return self.known

    def known_rows(self) -> int:
        sparse = self.sparse
        unknown = np.bincount(sparse.entry_rows()[sparse.entry_values() < 0], minlength=len(sparse))
        known = unknown < sparse.num_labels
        return int((known if sparse.known is None else known & sparse.known).sum())

    def total_present(self) -> float:
        return float(torch.where(self.values >= 0, self.values, 0.0).sum(dtype=torch.float64))


def target_chunks(targets: Any, num_rows: int, num_labels: int) -> TargetChunks:
    """Return the targets of a batch in any form: a matrix, class indices, CSR, lists of labels."""
    if isinstance(targets, Tensor) and targets.layout == torch.sparse_csr:
        targets = SparseTargets.from_csr(targets)
    elif isinstance(targets, Tensor) and targets.ndim == 1:
        tensor_one_hot(targets[:0], num_labels, torch.float32)
        targets = SparseTargets.from_classes(targets.cpu(), num_labels)
    elif not isinstance(targets, (Tensor, SparseTargets)):
        targets = SparseTargets.from_lists(targets, num_labels)
    if tuple(targets.shape) != (num_rows, num_labels):
        raise checks.InputError(
            f"`targets` must have {num_rows} rows and {num_labels} labels, as `hidden` and "
            f"`weight` have; got shape {tuple(targets.shape)}."
        )
    return DenseChunks(targets) if isinstance(targets, Tensor) else SparseChunks(targets)


def whole_targets(targets: Any, scores: Tensor) -> Tensor:
    """Return the targets of a batch in any form as one matrix like ``scores``."""
    chunks = target_chunks(targets, *scores.shape)
    chunks.prepare([0, scores.shape[1]], working_precision(scores))
    return chunks.chunk(0)[0]
