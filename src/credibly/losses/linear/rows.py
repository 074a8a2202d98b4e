"""Softmax, two-way and quasibinary over chunks of labels.

A first pass accumulates sums over all labels; the second converts scores to gradients. Compiled
sums of exponentials are used for chunks whose entries are all known.
"""

from __future__ import annotations

import copy
import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import torch
from numba import njit
from torch import Tensor
from torch.nn.functional import logsigmoid

from credibly import checks
from credibly.compiled import compiled
from credibly.losses import collectives
from credibly.losses.fused.form import CHUNK, ZEROS, array_at, takes_loops, tensors_at
from credibly.losses.fused.pairs import positives
from credibly.losses.fused.two_way import TwoWayForm
from credibly.losses.linear.chunks import Chunk, LinearForm, ScoreChunks
from credibly.vectormath import INNER, JIT, THIN, exp_nonpositive

if TYPE_CHECKING:
    from credibly.losses.quasibinary import Quasibinary
    from credibly.losses.softmax import Softmax
    from credibly.losses.two_way import TwoWay


@njit(**INNER)
def _exponentials(x, y, top, scale, spared):
    """Return Σ (1 − spared · y) exp(scale · (x − top))."""
    zero, one = y.dtype.type(0), y.dtype.type(1)
    total = zero
    for t in range(x.size):
        weight = one - spared * y[t]
        gap = scale * (x[t] - top) if weight > zero else zero  # an ignored score may be far above
        total += weight * exp_nonpositive(gap)
    return total


@njit(**INNER)
def _row_sum(x, y, top, scale, spared):
    """Return the same sum over a whole row."""
    total = 0.0
    for start in range(0, x.size, CHUNK):
        c = slice(start, min(x.size, start + CHUNK))
        total += _exponentials(x[c], y[c], top, scale, spared)
    return total


@njit(**INNER)
def _largest_kept(x, y):
    """Return the largest x whose y is below 1; −∞ if there is none."""
    top = x.dtype.type(-np.inf)
    for t in range(x.size):
        if y[t] < 1 and not x[t] <= top:
            top = x[t]
    return top


@njit(**INNER)
def _scaled(out, x, y, shift, scale, spared, factor):
    """Fill ``out`` with factor · (1 − spared · y) exp(scale · x − shift), in two parts."""
    high, low = shift
    zero, one = y.dtype.type(0), y.dtype.type(1)
    for t in range(x.size):
        weight = one - spared * y[t]
        gap = (scale * x[t] - high) - low if weight > zero else zero
        out[t] = factor * weight * exp_nonpositive(gap)


_SMALL = 1e-30


@njit(**THIN)
def _log_of_sum(before, more):
    """Return log(exp(before) + exp(more)) for a finite ``more``."""
    top, rest = max(before, more), min(before, more)
    return top + math.log1p(math.exp(rest - top))


@compiled(**JIT)
def add_row_sums_at(pointers, shape, zero, scales, spared, sums):
    """Add a chunk of labels to the sums of each row.

    Args:
        pointers: addresses of the scores, the targets and the largest score of each row.
        shape: rows and labels of the chunk.
        zero: a number of the dtype of all three.
        scales: of scores in the sum over all labels, and in that over positives.
        spared: 1 if the first sum excludes positives (soft ones in part), else 0.
        sums: address of four float64 columns: log Σ (1 − spared · y) exp(scale · x),
            log Σ y exp(scale · x), Σ y x and Σ y.
    """
    rows, labels = shape
    scores, targets, _ = tensors_at((pointers[0], pointers[1], pointers[0]), shape, zero)
    tops, out = array_at(pointers[2], rows, zero), array_at(sums, 4 * rows, 0.0)
    kind = scores.dtype.type
    index = np.empty(labels + 1, np.int64)
    for i in range(rows):
        x, y = scores[i], targets[i]
        top, scale = tops[i], kind(scales[0])
        total = _row_sum(x, y, top, scale, kind(spared))
        if total < _SMALL and spared > 0:  # ignored scores are far above the rest
            top = _largest_kept(x, y)
            total = _row_sum(x, y, top, scale, kind(spared)) if top > -np.inf else 0.0
        if not total <= 0:
            out[4 * i] = _log_of_sum(out[4 * i], scales[0] * top + math.log(total))
        for k in range(positives(y, index)):
            value, share = float(x[index[k]]), float(y[index[k]])
            term = scales[1] * value + math.log(share)
            out[4 * i + 1] = _log_of_sum(out[4 * i + 1], term)
            out[4 * i + 2] += share * value
            out[4 * i + 3] += share


@compiled(**JIT)
def row_gradient_at(pointers, shape, zero, scales, spared, linear):
    """Fill the gradient of the scores of a chunk.

    Args:
        pointers: addresses of the scores, the targets, the gradient, and four float64 columns:
            the log of the first sum and its slope, the log of the second sum and the slope of
            positives.
        shape: rows and labels of the chunk.
        zero: a number of their dtype.
        scales, spared: see ``add_row_sums_at``.
        linear: whether the gradient of positives is their slope times y; otherwise it is also
            multiplied by exp(scale · x − log of the second sum).
    """
    rows, labels = shape
    scores, targets, gradient = tensors_at(pointers[:3], shape, zero)
    given = array_at(pointers[3], 4 * rows, 0.0)
    kind = scores.dtype.type
    index = np.empty(labels + 1, np.int64)
    for i in range(rows):
        x, y, out = scores[i], targets[i], gradient[i]
        shift, slope = given[4 * i], given[4 * i + 1]
        if slope == 0:
            for t in range(labels):
                out[t] = 0
        else:
            high = kind(shift)
            low = kind(shift - float(high))
            _scaled(out, x, y, (high, low), kind(scales[0]), kind(spared), kind(slope))
        for k in range(positives(y, index)):
            change = given[4 * i + 3] * float(y[index[k]])
            if not linear and change != 0:
                change *= math.exp(scales[1] * float(x[index[k]]) - given[4 * i + 2])
            out[index[k]] += kind(change)


# Losses -----------------------------------------------------------------------------------------


def _has_kernel(chunk: Chunk) -> bool:
    return chunk.all_known and takes_loops(chunk.scores)


@dataclass(frozen=True)
class _RowSums:
    """Sums of exponentials over all labels of a row and over its positives, and their gradient.

    Kernels run where they can, the same sums in torch elsewhere.

    Attributes:
        scales: of the scores in these sums.
        spared: whether the first sum excludes positives, and the second is needed.
    """

    scales: tuple[float, float]
    spared: bool

    def add(self, chunk: Chunk, sums: Tensor) -> None:
        """Add a chunk to the columns log Σ exp, log Σ y exp, Σ y x and Σ y of ``sums``."""
        scores = chunk.scores
        if not _has_kernel(chunk):
            own = self._in_torch(chunk, scores)
            sums[:, :2] = torch.logaddexp(sums[:, :2], own[:, :2])
            sums[:, 2:] += own[:, 2:]
            return
        top = scores.amax(1) if scores.shape[1] else scores.new_zeros(len(scores))
        top = torch.where(torch.isneginf(top), 0.0, top)
        pointers = scores.data_ptr(), chunk.targets.data_ptr(), top.data_ptr()
        zero, spared = ZEROS[scores.dtype], float(self.spared)
        add_row_sums_at(pointers, tuple(scores.shape), zero, self.scales, spared, sums.data_ptr())

    def gradient(
        self, chunk: Chunk, log_sums: tuple[Tensor, Tensor], slopes: tuple[Tensor, Tensor]
    ) -> Tensor:
        """Return the gradient of a chunk from the sums and their slopes.

        Positives that the first sum includes have the slope of Σ y x, the others that of the second
        sum.
        """
        scores = chunk.scores
        if not _has_kernel(chunk):
            with torch.enable_grad():
                inner = scores.detach().requires_grad_()
                own = self._in_torch(chunk, inner)
            # The slopes are those of T · log Σ exp(x / T).
            push = torch.zeros_like(own)
            push[:, 0] = slopes[0] / self.scales[0] * (own[:, 0] - log_sums[0]).exp()
            if self.spared:
                push[:, 1] = slopes[1] / self.scales[1] * (own[:, 1] - log_sums[1]).exp()
            else:
                push[:, 2] = slopes[1]
            return torch.autograd.grad(own, inner, push)[0]
        columns = log_sums[0], slopes[0], log_sums[1], slopes[1]
        numbers = torch.stack(columns, 1).contiguous()
        gradient = torch.empty_like(scores)
        tensors = scores, chunk.targets, gradient, numbers
        pointers = tuple(tensor.data_ptr() for tensor in tensors)
        zero, spared = ZEROS[scores.dtype], float(self.spared)
        linear = not self.spared
        row_gradient_at(pointers, tuple(scores.shape), zero, self.scales, spared, linear)
        return gradient

    def _in_torch(self, chunk: Chunk, scores: Tensor) -> Tensor:
        """Return the four sums of a chunk by formulas, for any targets and device."""
        known = chunk.known()
        share = torch.where(known, chunk.targets, 0.0)
        scores = torch.where(known, scores, 0.0)
        kept = known & (share < 1) if self.spared else known
        weight = torch.log1p(-torch.where(kept, share, 0.0)) if self.spared else 0.0
        absent = torch.where(kept, self.scales[0] * scores + weight, -torch.inf)
        some = share > 0
        present = self.scales[1] * scores + torch.where(some, share, 1.0).log()
        present = torch.where(some, present, -torch.inf)
        logs = [collectives.logsumexp(each, 1, across=False) for each in (absent, present)]
        return torch.stack([*logs, (share * scores).sum(1), share.sum(1)], 1).double()


def _empty_sums(chunks: ScoreChunks) -> Tensor:
    return torch.stack([_zeros(chunks, value) for value in (-math.inf, -math.inf, 0.0, 0.0)], 1)


def _zeros(chunks: ScoreChunks, value: float = 0.0) -> Tensor:
    like = chunks.hidden
    return torch.full((chunks.num_rows,), value, dtype=torch.float64, device=like.device)


@dataclass(frozen=True)
class SoftmaxLinear(LinearForm):
    """Cross-entropy, after a first pass for log Σ exp of each row."""

    loss: Softmax

    def run(self, chunks: ScoreChunks, needs_grad: bool, update_state: bool) -> Tensor:
        none = self.loss.zero_label == "none_class"
        sums = _empty_sums(chunks)
        # The class "none" has score 0, which is exp(0) = 1 in the sum.
        sums[:, 0] = 0.0 if none else -math.inf
        known = _zeros(chunks)
        for chunk in chunks.sums_first():
            known += chunk.known_per_row()
            _SOFTMAX.add(chunk, sums)
        log, _, dot, count = sums.unbind(1)
        labelled = count > 0
        taking_part = (known > 0) if none else labelled
        log = torch.where(taking_part, log, 0.0)
        size = torch.where(labelled, count, 1.0)
        total = torch.where(taking_part, log - dot / size, 0.0).sum()
        rows = 1 if self.loss.reduction == "sum" else taking_part.sum().clamp(min=1)
        if needs_grad:
            slopes = taking_part.double() / rows, labelled.double() / (-size * rows)
            for chunk in chunks:
                logs = log, torch.zeros_like(log)
                chunks.add_gradient(chunk, _SOFTMAX.gradient(chunk, logs, slopes))
        return total / rows


_SOFTMAX = _RowSums((1.0, 0.0), spared=False)


@dataclass(frozen=True)
class TwoWayLinear(LinearForm):
    """The two-way loss: the rows need sums over all labels, the columns one chunk at a time."""

    loss: TwoWay

    def run(self, chunks: ScoreChunks, needs_grad: bool, update_state: bool) -> Tensor:
        _refuse_processes(self.loss)
        rows, columns = self.loss.ways != "labels", self.loss.ways != "samples"
        hard, weak, valid_columns = self._sums(chunks, rows, columns)
        valid = ~(torch.isneginf(hard) | torch.isneginf(weak))
        # From the sums of an ignored row, −inf, nothing may be subtracted.
        hard, weak = (torch.where(torch.isneginf(each), 0.0, each) for each in (hard, weak))
        loss = self.loss
        inner = loss.temperature_neg * torch.where(valid, hard, 0.0)
        inner = inner + loss.temperature_pos * torch.where(valid, weak, 0.0) + loss.margin
        share = valid.double() / valid.sum().clamp(min=1)
        value = (-logsigmoid(-inner) * share).sum() if rows else inner.new_zeros(())
        slope = torch.sigmoid(inner) * share
        if not (columns or needs_grad):
            return value
        column_form = TwoWayForm(self._columns_only()) if columns else None
        shares = [count / max(sum(valid_columns), 1) for count in valid_columns]
        for chunk, column_share in zip(chunks, shares, strict=True):
            parts = []
            if column_form is not None and column_share:
                part, own = column_form.value_and_gradient(chunk.scores, chunk.targets, needs_grad)
                value = value + part.double() * column_share
                parts += [] if own is None else [own.mul_(column_share)]
            if rows and needs_grad:
                parts.append(self._row_sums().gradient(chunk, (hard, weak), (slope, -slope)))
            if needs_grad:
                gradient = torch.zeros_like(chunk.scores) if not parts else parts[0]
                chunks.add_gradient(chunk, gradient.add_(parts[1]) if parts[1:] else gradient)
        return value

    def _columns_only(self) -> TwoWay:
        other = copy.copy(self.loss)
        other.ways = "labels"
        return other

    def _sums(
        self, chunks: ScoreChunks, rows: bool, columns: bool
    ) -> tuple[Tensor, Tensor, list[int]]:
        """Return both log-sums of each row, and the number of columns that count in each chunk."""
        sums, counts = _empty_sums(chunks), list[Tensor]()
        for chunk in chunks.sums_first():
            if rows:
                self._row_sums().add(chunk, sums)
            counts.append(_columns_that_count(chunk) if columns else torch.zeros(()))
        return sums[:, 0], sums[:, 1], [int(count) for count in counts]

    def _row_sums(self) -> _RowSums:
        scales = 1 / self.loss.temperature_neg, -1 / self.loss.temperature_pos
        return _RowSums(scales, spared=True)


def _columns_that_count(chunk: Chunk) -> Tensor:
    """Return the number of columns with a positive and a negative."""
    known, share = chunk.known(), chunk.targets
    return ((known & (share < 1)).any(0) & (known & (share > 0)).any(0)).sum()


@dataclass(frozen=True)
class QuasibinaryLinear(LinearForm):
    """The quasibinary loss, after a first pass for its normalizer, log Σ exp of all entries.

    Only for training: evaluation uses another loss.
    """

    loss: Quasibinary

    def run(self, chunks: ScoreChunks, needs_grad: bool, update_state: bool) -> Tensor:
        _refuse_processes(self.loss)
        loss, sums, known = self.loss, _empty_sums(chunks), _zeros(chunks)
        highest = torch.tensor(-math.inf, dtype=torch.float64, device=sums.device)
        for chunk in chunks.sums_first():
            _SOFTMAX.add(chunk, sums)
            known += chunk.known_per_row()
            if chunk.scores.numel():
                highest = torch.maximum(highest, chunk.known_scores(-math.inf).amax().double())
        log_sum, count = sums[:, 0].logsumexp(0), float(sums[:, 3].sum())
        running = float(loss.log_normalizer)
        constant = not count or (loss.penalty == "running" and bool(loss.count > 0))
        if update_state:
            remembered = loss.log_sum.new_tensor(float(log_sum)), loss.count.new_tensor(count)
            loss.remember(*remembered, torch.isfinite(log_sum))
        log_c = float(log_sum) - math.log(count) if count else running
        bound = running if constant else log_c
        penalized, above = not float(highest) <= bound, 0
        value = count * log_c - float(sums[:, 2].sum())
        if penalized:  # few entries are larger than the normalizer
            for chunk in chunks:
                excess = chunk.known_scores(-math.inf).double() - bound
                value += float(excess.relu().sum())
                above += int((excess > 0).sum())
        rows = max(int((known > 0).sum()), 1) if loss.reduction != "sum" else 1
        if needs_grad:
            # The penalty affects the normalizer only if it is that of the batch.
            moved = above / count if count and loss.penalty == "batch" else 0.0
            like = _zeros(chunks)
            logs, slopes = (like + log_c, like), (like + (1 - moved if count else 0.0), like - 1.0)
            for chunk in chunks:
                gradient = _SOFTMAX.gradient(chunk, logs, slopes)
                if penalized:
                    gradient.add_(chunk.known_scores(-math.inf) > bound)
                chunks.add_gradient(chunk, gradient, 1.0 / rows)
        return torch.tensor(value / rows, dtype=torch.float64, device=sums.device)


def _refuse_processes(loss: TwoWay | Quasibinary) -> None:
    if loss.training and collectives.process_count() > 1:
        raise checks.InputError(
            f"`fused_linear` computes {type(loss).__name__} on one process; got "
            f"{collectives.process_count()}. Call `loss(hidden @ weight.T + bias, targets)`."
        )
