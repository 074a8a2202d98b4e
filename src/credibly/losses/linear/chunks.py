"""Last layer and loss together: scores and targets of one chunk of labels at a time."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from credibly import checks
from credibly.losses.base import working_precision
from credibly.losses.fused.form import ValueAndGradient, by_autograd
from credibly.targets import SparseTargets, tensor_one_hot

if TYPE_CHECKING:
    from credibly.losses.base import Loss
    from credibly.losses.families import BinaryLoss

KEPT = 1 << 25
"""Entries whose scores are kept between two passes: 128 MB in float32."""

TargetChunks: TypeAlias = "DenseChunks | SparseChunks"
BatchTargets: TypeAlias = Tensor | SparseTargets | Sequence[Sequence[int]]


@dataclass(frozen=True)
class Chunk:
    """The scores and targets of some labels, for all rows of the batch."""

    labels: slice
    scores: Tensor
    targets: Tensor
    """In the dtype of the scores; negative or NaN is unknown."""
    all_known: bool

    def known(self) -> Tensor:
        """Return a mask of the known entries."""
        return self.targets >= 0

    def known_scores(self, otherwise: float) -> Tensor:
        """Return the scores, and another number where the target is unknown."""
        return self.scores if self.all_known else torch.where(self.known(), self.scores, otherwise)

    def known_per_row(self) -> Tensor | int:
        """Return the number of known labels, per row or for all rows."""
        return self.scores.shape[1] if self.all_known else self.known().sum(1)


class ScoreChunks:
    """Compute hidden · weightᵀ + bias by chunks, in any number of passes, and add up the gradients.

    Args:
        hidden: (rows, features).
        weight: (labels, features).
        bias: (labels,) or None.
        targets: of the batch.
        needs_grad: of hidden, weight and bias.
        chunk: number of labels of a chunk, see ``fused_linear``.
    """

    def __init__(
        self,
        hidden: Tensor,
        weight: Tensor,
        bias: Tensor | None,
        targets: TargetChunks,
        needs_grad: tuple[bool, bool, bool],
        chunk: int | None,
    ) -> None:
        self.dtype = torch.promote_types(hidden.dtype, weight.dtype)
        self.hidden, self.weight, self.bias = hidden.to(self.dtype), weight, bias
        self.targets, self.needs_grad = targets, needs_grad
        self.num_rows, self.num_labels = len(hidden), len(weight)
        # 2 MB of float32 scores stay in cache, with targets and gradient. With fewer than 256
        # labels, the matrix products would be too thin.
        size = chunk or max((1 << 19) // max(self.num_rows, 1), 256)
        self.edges = [*range(0, self.num_labels, size), self.num_labels]
        self.targets.prepare(self.edges, working_precision(hidden.new_empty(0, dtype=self.dtype)))
        self.hidden_gradient = torch.zeros_like(self.hidden) if needs_grad[0] else None
        self.weight_gradient = torch.empty_like(weight) if needs_grad[1] else None
        self.bias_gradient = torch.empty_like(bias) if needs_grad[2] and bias is not None else None
        self.kept: dict[int, Tensor] = {}

    def __iter__(self) -> Iterator[Chunk]:
        for number in range(len(self.edges) - 1):
            scores = self.kept.pop(number, None)
            yield self._chunk(number, self._scores(number) if scores is None else scores)

    def sums_first(self) -> Iterator[Chunk]:
        """Yield the chunks for an extra pass before ``__iter__``, which reuses stored scores.

        The scores are stored in the memory of the gradient of their weights, if they fit, until
        ``add_gradient`` writes it. Of the others, ``KEPT`` limits how many are stored; the rest is
        computed again. The caller must not change them.
        """
        for number in range(len(self.edges) - 1):
            space = self._space(number)
            scores = self._scores(number, space)
            yield self._chunk(number, scores)
            if space is not None or (number + 1) * scores.numel() <= KEPT:
                self.kept[number] = scores

    def _chunk(self, number: int, scores: Tensor) -> Chunk:
        return Chunk(self._labels(number), scores, *self.targets.chunk(number))

    def _labels(self, number: int) -> slice:
        return slice(self.edges[number], self.edges[number + 1])

    def _space(self, number: int) -> Tensor | None:
        """Return the memory of the gradient of some weights for scores; None if they do not fit."""
        gradient, labels = self.weight_gradient, self._labels(number)
        precise = self.dtype == working_precision(self.hidden[:0]).dtype
        if gradient is None or gradient.dtype != self.dtype or not precise:
            return None
        shape = self.num_rows, labels.stop - labels.start
        fits = self.num_rows <= gradient.shape[1]
        return gradient[labels].view(-1)[: math.prod(shape)].view(shape) if fits else None

    def _scores(self, number: int, out: Tensor | None = None) -> Tensor:
        labels = self._labels(number)
        part = self.weight[labels].to(self.dtype).t()
        if self.bias is None:
            return working_precision(torch.mm(self.hidden, part, out=out))
        bias = self.bias[labels].detach().to(self.dtype)
        return working_precision(torch.addmm(bias, self.hidden, part, out=out))

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


class DenseChunks:
    """The targets of a batch by chunk of labels, from the columns of a matrix."""

    def __init__(self, targets: Tensor) -> None:
        self.targets = targets

    def prepare(self, edges: list[int], like: Tensor) -> None:
        """Set the limits of the chunks; ``like`` has the dtype and device of their targets."""
        self.edges, self.like = edges, like

    def chunk(self, number: int) -> tuple[Tensor, bool]:
        """Return the targets of a chunk, and whether all are known. The next call overwrites."""
        part = self.targets[:, self.edges[number] : self.edges[number + 1]]
        return part.to(self.like).contiguous(), False

    def known_counts(self) -> list[int]:
        """Return the number of known entries of each chunk."""
        ends = zip(self.edges, self.edges[1:], strict=False)
        return [int((self.targets[:, start:stop] >= 0).sum()) for start, stop in ends]

    def known_rows(self) -> int:
        """Return the number of rows with a known entry."""
        return int((self.targets >= 0).any(1).sum())


class SparseChunks:
    """The same for sorted entries, with one dense buffer, which each chunk fills and clears."""

    def __init__(self, targets: SparseTargets) -> None:
        self.sparse = targets

    def prepare(self, edges: list[int], like: Tensor) -> None:
        """Set the limits of the chunks; ``like`` has the dtype and device of their targets."""
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
        """Return the targets of a chunk, and whether all are known. The next call overwrites."""
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
        """Return the number of known entries of each chunk."""
        return self.known

    def known_rows(self) -> int:
        """Return the number of rows with a known entry."""
        return int(self.sparse.known_rows().sum())


def target_chunks(targets: BatchTargets, num_rows: int, num_labels: int) -> TargetChunks:
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


def whole_targets(targets: BatchTargets, scores: Tensor) -> Tensor:
    """Return the targets of a batch in any form as one matrix like ``scores``."""
    chunks = target_chunks(targets, *scores.shape)
    chunks.prepare([0, scores.shape[1]], working_precision(scores))
    return chunks.chunk(0)[0]


class LinearForm(ABC):
    """A loss over chunks of labels, with its value and gradient."""

    @abstractmethod
    def run(self, chunks: ScoreChunks, needs_grad: bool, update_state: bool) -> Tensor:
        """Return the scalar; add the gradient of each chunk's scores if ``needs_grad``.

        Args:
            chunks: can be iterated several times; each time the scores are computed again.
            needs_grad: whether to call ``chunks.add_gradient``, once per chunk.
            update_state: whether the loss, in training, may store this batch.
        """


def fused_linear(
    loss: Loss,
    hidden: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    targets: BatchTargets,
    *,
    chunk: int | None = None,
) -> Tensor:
    """Return ``loss(hidden @ weight.T + bias, targets)`` without storing the scores.

    For many labels. Scores of some labels at a time are computed, converted to value and gradient,
    and discarded. The main memory is that of the gradient of ``weight``. Gradients of ``hidden``,
    ``weight`` and ``bias`` are computed together with the value.

    This is supported for losses of single entries (`BinaryLoss`), `Softmax` (except with the
    zero-label rules ``"uniform"`` and ``"max_confidence"``), `TwoWay` and, in training,
    `Quasibinary`. The last three store 128 MB of scores between two passes and compute the others
    twice. Any other loss needs the scores of all labels at once, which are then computed. Each
    process gets the loss of its own rows. With several processes in training, a loss that sums over
    processes (`TwoWay`, `Quasibinary`) is an error.

    Args:
        loss: any loss.
        hidden: (rows, features), the inputs of the last layer.
        weight: (labels, features), as in ``nn.Linear``.
        bias: (labels,) or None.
        targets: (rows, labels) as for any loss, class indices of shape (rows,), or sparse:
            a ``credibly.targets.SparseTargets``, a torch sparse CSR tensor, or one list of
            label numbers per row.
        chunk: number of labels whose scores are computed at a time; by default as many as
            give 2 MB of scores, but at least 256.

    Returns:
        A scalar, or one value per entry or row with ``reduction="none"``. The gradient over
        chunks cannot be differentiated again.

    Raises:
        InputError: if targets do not fit ``hidden`` and ``weight``.

    Example:
        >>> from credibly.losses import SPA
        >>> hidden, weight = torch.ones(2, 3), torch.zeros(5, 3, requires_grad=True)
        >>> value = fused_linear(SPA(), hidden, weight, None, [[0, 4], []])
        >>> value
        tensor(0.1464, grad_fn=<_FusedLinearBackward>)
        >>> value.backward()
        >>> weight.grad[0]
        tensor([-0.0472, -0.0472, -0.0472])
    """
    _check(hidden, weight, bias)
    form = loss.linear_form()
    if form is None or loss.reduction == "none":
        scores = torch.nn.functional.linear(hidden, weight, bias)
        return loss(scores, whole_targets(targets, scores))
    checks.at_least("chunk", 1 if chunk is None else chunk, 1)
    run = partial(_run, form=form, targets=targets, chunk=chunk)
    return _FusedLinear.apply(hidden, weight, bias, run)  # pyright: ignore[reportReturnType]


def _check(hidden: Tensor, weight: Tensor, bias: Tensor | None) -> None:
    fits = hidden.ndim == weight.ndim == 2 and hidden.shape[1] == weight.shape[1]
    fits = fits and (bias is None or bias.shape == weight.shape[:1])
    if not fits or not hidden.is_floating_point() or not weight.is_floating_point():
        shown = "None" if bias is None else tuple(bias.shape)
        raise checks.InputError(
            "`hidden` must be (rows, features), `weight` (labels, features) and `bias` (labels,) "
            f"or None, floating point; got {tuple(hidden.shape)} {hidden.dtype}, "
            f"{tuple(weight.shape)} {weight.dtype} and {shown}."
        )


class _FusedLinear(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        hidden: Tensor,
        weight: Tensor,
        bias: Tensor | None,
        run: Callable[..., tuple[Tensor, list[Tensor | None]]],
    ) -> Tensor:
        ctx.run = run
        ctx.save_for_backward(hidden, weight, bias)
        value, ctx.gradients = run(ctx, (hidden, weight, bias), update_state=True)
        return value.to(torch.promote_types(hidden.dtype, weight.dtype))

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, outer: Tensor) -> tuple[Tensor | None, ...]:  # pyright: ignore
        gradients, ctx.gradients = ctx.gradients, None
        if gradients is None:  # used by an earlier backward
            gradients = ctx.run(ctx, ctx.saved_tensors, update_state=False)[1]
        if not (outer.is_cpu and outer.item() == 1.0):
            gradients = [None if each is None else each.mul_(outer) for each in gradients]
        return (*gradients, None)


def _run(
    ctx: Any,
    layer: Any,
    update_state: bool,
    form: LinearForm,
    targets: BatchTargets,
    chunk: int | None,
) -> tuple[Tensor, list[Tensor | None]]:
    hidden, weight, bias = layer
    needed: Any = tuple(ctx.needs_input_grad[:3])
    known = target_chunks(targets, len(hidden), len(weight))
    chunks = ScoreChunks(hidden.detach(), weight.detach(), bias, known, needed, chunk)
    value = form.run(chunks, any(needed), update_state)
    back = chunks.hidden_gradient
    back = None if back is None else back.to(hidden.dtype)
    return value, [back, chunks.weight_gradient, chunks.bias_gradient]


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
        """Return mean and gradient of one chunk, fused if the loss has a fused form."""
        loss = self.loss.for_labels(chunk.labels)
        form = loss.loop() if loss.label_weight is None else None
        if form is not None:
            return form.value_and_gradient(chunk.scores, chunk.targets, needs_grad)

        def mean(scores: Tensor, targets: Tensor) -> Tensor:
            return loss.values(scores, targets).sum() / max(count, 1)

        return by_autograd(mean, chunk.scores, chunk.targets, needs_grad)
