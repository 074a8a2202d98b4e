"""Softmax, two-way and quasibinary over chunks of labels.

A first pass adds up what the loss needs of all labels; the second computes the scores again and
turns them into gradients.
"""

from __future__ import annotations

import copy
import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from torch import Tensor
from torch.nn.functional import logsigmoid

from credibly import checks
from credibly.losses import collectives
from credibly.losses.fused.form import ZEROS, takes_loops
from credibly.losses.fused.row_sums import add_row_sums_at, row_gradient_at
from credibly.losses.fused.two_way import TwoWayForm
from credibly.losses.linear.chunks import Chunk, LinearForm, ScoreChunks

if TYPE_CHECKING:
    from credibly.losses.quasibinary import Quasibinary
    from credibly.losses.softmax import Softmax
    from credibly.losses.two_way import TwoWay


def _row_log_sums(exponents: Tensor, before: Tensor) -> Tensor:
    """Return log(exp(before) + Σ exp(exponents)) per row; float64, −inf where there is nothing."""
    top = exponents.amax(1, keepdim=True) if exponents.shape[1] else before.to(exponents)[:, None]
    top = torch.where(torch.isneginf(top), 0.0, top)
    total = (exponents - top).exp_().sum(1, dtype=torch.float64)
    return torch.logaddexp(before, total.log() + top[:, 0].double())


def _has_kernel(chunk: Chunk) -> bool:
    return chunk.all_known and takes_loops(chunk.scores)


@dataclass(frozen=True)
class _RowKernels:
    """Two kernels for sums of exponentials: over all labels of a row, and over its positives.

    Attributes:
        scales: of the scores in these sums.
        spared: whether the first sum leaves out positives.
    """

    scales: tuple[float, float]
    spared: bool

    def add(self, chunk: Chunk, sums: Tensor) -> None:
        """Add a chunk to the columns log Σ exp, log Σ y exp, Σ y x and Σ y of ``sums``."""
        scores = chunk.scores
        counted = torch.where(chunk.targets < 1, scores, -torch.inf) if self.spared else scores
        top = counted.amax(1) if scores.shape[1] else scores.new_zeros(len(scores))
        top = torch.where(torch.isneginf(top), 0.0, top)
        pointers = scores.data_ptr(), chunk.targets.data_ptr(), top.data_ptr()
        zero, spared = ZEROS[scores.dtype], float(self.spared)
        add_row_sums_at(pointers, tuple(scores.shape), zero, self.scales, spared, sums.data_ptr())

    def gradient(
        self,
        chunk: Chunk,
        log_sums: tuple[Tensor, Tensor],
        slopes: tuple[Tensor, Tensor],
        linear: bool,
    ) -> Tensor:
        """Return the gradient of a chunk, in place of its scores."""
        columns = log_sums[0], slopes[0], log_sums[1], slopes[1]
        numbers = torch.stack(columns, 1).contiguous()
        scores = chunk.scores
        pointers = scores.data_ptr(), chunk.targets.data_ptr(), numbers.data_ptr()
        zero, spared = ZEROS[scores.dtype], float(self.spared)
        row_gradient_at(pointers, tuple(scores.shape), zero, self.scales, spared, linear)
        return scores


def _empty_sums(chunks: ScoreChunks) -> Tensor:
    return torch.stack([_zeros(chunks, value) for value in (-math.inf, -math.inf, 0.0, 0.0)], 1)


def _zeros(chunks: ScoreChunks, value: float = 0.0) -> Tensor:
    like = chunks.hidden
    return torch.full((chunks.num_rows,), value, dtype=torch.float64, device=like.device)


@dataclass(frozen=True)
class SoftmaxLinear(LinearForm):
    """Cross-entropy: log Σ exp of each row first."""

    loss: Softmax

    def run(self, chunks: ScoreChunks, needs_grad: bool, update_state: bool) -> Tensor:
        sums = self._sums(chunks)
        with torch.enable_grad():
            inside = {name: sums[name].requires_grad_() for name in ("log", "dot", "plain", "top")}
            value = self._value(sums)
            slopes: dict[str, Tensor | None] = dict(
                zip(
                    inside,
                    torch.autograd.grad(value, list(inside.values()), allow_unused=True),
                    strict=True,
                )
            )
        if needs_grad:
            sums = {name: each.detach() for name, each in sums.items()}
            for chunk in chunks:
                chunks.add_gradient(chunk, self._gradient(chunk, sums, slopes))
        return value.detach()

    def _sums(self, chunks: ScoreChunks) -> dict[str, Tensor]:
        """Return per row: log Σ exp, Σ y z, Σ z, max z, Σ y and the number of known labels."""
        none = self.loss.zero_label == "none_class"
        sums = {name: _zeros(chunks) for name in ("dot", "plain", "count", "size")}
        # The class "none" has score 0, which is exp(0) = 1 in the sum.
        sums["log"] = _zeros(chunks, 0.0 if none else -math.inf)
        sums["top"] = _zeros(chunks, -math.inf)
        needs_more = self.loss.zero_label in ("uniform", "max_confidence")
        for chunk in chunks.sums_first():
            if _has_kernel(chunk) and not needs_more:
                columns = _empty_sums(chunks)
                columns[:, 0] = sums["log"]
                _SOFTMAX.add(chunk, columns)
                sums["log"] = columns[:, 0].clone()
                sums["dot"] += columns[:, 2]
                sums["count"] += columns[:, 3]
                sums["size"] += chunk.scores.shape[1]
                continue
            known = chunk.known()
            scores = chunk.scores
            inside = scores if chunk.all_known else torch.where(known, scores, -torch.inf)
            sums["log"] = _row_log_sums(inside, sums["log"])
            present = torch.where(known, chunk.targets, 0.0)
            sums["dot"] += (present * torch.where(known, scores, 0.0)).sum(1, dtype=torch.float64)
            sums["count"] += present.sum(1, dtype=torch.float64)
            sums["size"] += known.sum(1)
            if needs_more:
                sums["plain"] += torch.where(known, scores, 0.0).sum(1, dtype=torch.float64)
                sums["top"] = torch.maximum(sums["top"], inside.amax(1).double())
        return sums

    def _value(self, sums: dict[str, Tensor]) -> Tensor:
        count, log = sums["count"], sums["log"]
        labelled = count > 0
        taking_part = (sums["size"] > 0) if self.loss.zero_label else labelled
        log = torch.where(taking_part, log, 0.0)
        values = log - sums["dot"] / torch.where(labelled, count, 1.0)
        if self.loss.zero_label == "none_class":
            values = torch.where(labelled, values, log)
        elif self.loss.zero_label == "max_confidence":
            top = torch.where(taking_part, sums["top"], 0.0)
            values = torch.where(labelled, values, top - log)
        elif self.loss.zero_label == "uniform":
            size = sums["size"].clamp(min=1)
            values = torch.where(labelled, values, log - sums["plain"] / size - torch.log(size))
        values = values * self.loss.row_factors(labelled, taking_part)
        total = torch.where(taking_part, values, 0.0).sum()
        return total if self.loss.reduction == "sum" else total / taking_part.sum().clamp(min=1)

    def _gradient(
        self, chunk: Chunk, sums: dict[str, Tensor], slopes: dict[str, Tensor | None]
    ) -> Tensor:
        kind = chunk.scores.dtype
        log = torch.where(torch.isneginf(sums["log"]), 0.0, sums["log"])
        slope = slopes["log"]
        assert slope is not None
        if _has_kernel(chunk) and slopes["plain"] is None and slopes["top"] is None:
            dot = torch.zeros_like(slope) if slopes["dot"] is None else slopes["dot"]
            return _SOFTMAX.gradient(chunk, (log, torch.zeros_like(log)), (slope, dot), True)
        gradient = (chunk.scores - log[:, None]).to(kind).exp_()
        gradient.mul_(slope[:, None].to(kind))
        known = chunk.known()
        dot = slopes["dot"]
        if dot is not None:
            gradient.addcmul_(torch.where(known, chunk.targets, 0.0), dot[:, None].to(kind))
        if slopes["plain"] is not None:
            gradient.add_(slopes["plain"][:, None].to(kind))
        if slopes["top"] is not None:
            at_top = chunk.scores.double() == sums["top"][:, None]
            gradient.add_(at_top * slopes["top"][:, None].to(kind))
        return gradient if chunk.all_known else gradient.masked_fill_(~known, 0.0)


_SOFTMAX = _RowKernels((1.0, 0.0), spared=False)


@dataclass(frozen=True)
class TwoWayLinear(LinearForm):
    """The row way by sums over all labels; the column way needs one chunk at a time."""

    loss: TwoWay

    def run(self, chunks: ScoreChunks, needs_grad: bool, update_state: bool) -> Tensor:
        _refuse_processes(self.loss)
        rows, columns = self.loss.ways != "labels", self.loss.ways != "samples"
        hard, weak, valid_columns = self._sums(chunks, rows, columns)
        valid = ~(torch.isneginf(hard) | torch.isneginf(weak))
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
                parts.append(self._row_gradient(chunk, hard, weak, slope))
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
        hard, weak = _zeros(chunks, -math.inf), _zeros(chunks, -math.inf)
        counts: list[Tensor] = []
        for chunk in chunks.sums_first():
            if rows and _has_kernel(chunk):
                sums = torch.stack((hard, weak, hard, weak), 1)
                self._kernels().add(chunk, sums)
                hard, weak = sums[:, 0].clone(), sums[:, 1].clone()
            elif rows:
                absent, present = self._exponents(chunk)
                hard, weak = _row_log_sums(absent, hard), _row_log_sums(present, weak)
            counts.append(_columns_that_count(chunk) if columns else torch.zeros(()))
        return hard, weak, [int(count) for count in counts]

    def _kernels(self) -> _RowKernels:
        scales = 1 / self.loss.temperature_neg, -1 / self.loss.temperature_pos
        return _RowKernels(scales, spared=True)

    def _exponents(self, chunk: Chunk) -> tuple[Tensor, Tensor]:
        """Return x/T_N + log(1 − y) and −x/T_P + log y; −inf where a label takes no part."""
        known, share = chunk.known(), chunk.targets
        safe = chunk.scores if chunk.all_known else torch.where(known, chunk.scores, 0.0)
        log_absent = torch.where(known, torch.log1p(-share), -torch.inf)
        log_present = torch.where(known & (share > 0), torch.log(share.clamp(min=0)), -torch.inf)
        absent = torch.add(log_absent, safe, alpha=1 / self.loss.temperature_neg)
        present = torch.add(log_present, safe, alpha=-1 / self.loss.temperature_pos)
        return absent, present

    def _row_gradient(self, chunk: Chunk, hard: Tensor, weak: Tensor, slope: Tensor) -> Tensor:
        # A row that drops out has slope 0 and sums of −inf, from which nothing may be subtracted.
        hard = torch.where(torch.isneginf(hard), 0.0, hard)
        weak = torch.where(torch.isneginf(weak), 0.0, weak)
        if _has_kernel(chunk):
            return self._kernels().gradient(chunk, (hard, weak), (slope, -slope), False)
        kind = chunk.scores.dtype
        absent, present = self._exponents(chunk)
        factor = slope[:, None].to(kind)
        up = (absent - hard[:, None]).to(kind).exp_()
        down = (present - weak[:, None]).to(kind).exp_()
        return torch.where(factor > 0, up.sub_(down).mul_(factor), 0.0)


def _columns_that_count(chunk: Chunk) -> Tensor:
    """Return how many columns have a positive and a negative."""
    known, share = chunk.known(), chunk.targets
    return ((known & (share < 1)).any(0) & (known & (share > 0)).any(0)).sum()


@dataclass(frozen=True)
class QuasibinaryLinear(LinearForm):
    """One normalizer: log Σ exp of all entries first; few entries can lie above it."""

    loss: Quasibinary

    def run(self, chunks: ScoreChunks, needs_grad: bool, update_state: bool) -> Tensor:
        _refuse_processes(self.loss)
        loss, running = self.loss, float(self.loss.log_normalizer)
        count = chunks.targets.total_present()
        by_batch = loss.training and count > 0
        by_running = not by_batch or (loss.penalty == "running" and bool(loss.count > 0))
        needs_above = by_batch and (not by_running or loss.penalty == "batch")
        sums = self._sums(chunks, count, running if by_running else math.inf, needs_above)
        log_c = sums.log_sum - math.log(sums.count) if by_batch else running
        bound = running if by_running else log_c
        above = sums.above[sums.above > log_c]
        excess = sums.excess_running if by_running else float((above - log_c).sum())
        value = sums.count * log_c - sums.dot + excess
        if not loss.training:
            value += sums.inside_running - sums.count
        if loss.training and update_state:
            self._remember(sums)
        rows = max(sums.rows, 1) if loss.reduction != "sum" else 1
        if needs_grad:
            # The penalty moves the normalizer only where it is that of the batch.
            moved = len(above) / sums.count if by_batch and loss.penalty == "batch" else 0.0
            through = 1.0 - moved if by_batch else 0.0
            for chunk in chunks:
                gradient = self._gradient(chunk, log_c, bound, through)
                chunks.add_gradient(chunk, gradient, 1.0 / rows)
        return torch.tensor(value / rows, dtype=torch.float64, device=chunks.hidden.device)

    def _remember(self, sums: _Sums) -> None:
        like = self.loss.log_sum
        log_sum, count = like.new_tensor(sums.log_sum), like.new_tensor(sums.count)
        self.loss.remember(log_sum, count, torch.isfinite(log_sum))

    def _sums(self, chunks: ScoreChunks, count: float, running: float, needs_above: bool) -> _Sums:
        """Return the sums; ``running`` is infinite where the excess over it is not needed."""
        log_sum = torch.tensor(-math.inf, dtype=torch.float64, device=chunks.hidden.device)
        dot, inside, excess = (torch.zeros_like(log_sum) for _ in range(3))
        rows, above = _zeros(chunks), log_sum.new_empty(0)
        log_count = math.log(count) if count else -math.inf
        for chunk in chunks.sums_first():
            known, scores = chunk.known(), chunk.scores
            masked = scores if chunk.all_known else torch.where(known, scores, -torch.inf)
            by_row, part = self._log_sums_and_dot(chunks, chunk, masked)
            dot += part
            rows += known.sum(1) if not chunk.all_known else scores.shape[1]
            log_sum = torch.logaddexp(log_sum, by_row.logsumexp(0))
            # Σ exp(z) = C · N: fewer than N entries lie above log C, and the sum of some of the
            # entries is a lower bound of it.
            bound = log_sum - log_count
            highest = masked.amax() if masked.numel() else bound
            if needs_above and not highest <= bound:
                above = torch.cat([above[above > bound], masked[masked > bound].double()])
            if not highest <= running:
                excess += (masked - running).relu().sum(dtype=torch.float64)
            if not self.loss.training:
                inside += (masked - running).clamp(max=0).exp().sum(dtype=torch.float64)
        totals = (float(log_sum), count, float(dot), float(inside), float(excess))
        return _Sums(*totals, rows=int((rows > 0).sum()), above=above)

    def _log_sums_and_dot(
        self, chunks: ScoreChunks, chunk: Chunk, masked: Tensor
    ) -> tuple[Tensor, Tensor]:
        """Return log Σ exp of each row of a chunk, and Σ y z."""
        if _has_kernel(chunk) and self.loss.training:
            columns = _empty_sums(chunks)
            _SOFTMAX.add(chunk, columns)
            return columns[:, 0], columns[:, 2].sum()
        known = chunk.known()
        present = torch.where(known, chunk.targets, 0.0)
        dot = (present * torch.where(known, chunk.scores, 0.0)).sum(dtype=torch.float64)
        return _row_log_sums(masked, _zeros(chunks, -math.inf)), dot

    def _gradient(self, chunk: Chunk, log_c: float, bound: float, through: float) -> Tensor:
        above = chunk.scores > bound
        if _has_kernel(chunk) and self.loss.training:
            like = chunk.scores.new_zeros(len(chunk.scores), dtype=torch.float64)
            logs, slopes = (like + log_c, like), (like + through, like - 1.0)
            gradient = _SOFTMAX.gradient(chunk, logs, slopes, True)
            return gradient.add_(above) if above.any() else gradient
        known = chunk.known()
        q = (chunk.scores - log_c).exp_()
        if self.loss.training and through:
            gradient = q.mul_(through)
        else:
            gradient = q.masked_fill_(above, 0.0) if not self.loss.training else q.zero_()
        gradient.add_(above).sub_(torch.where(known, chunk.targets, 0.0))
        return gradient if chunk.all_known else gradient.masked_fill_(~known, 0.0)


@dataclass(frozen=True)
class _Sums:
    """What the quasibinary loss needs of all entries."""

    log_sum: float
    count: float
    dot: float
    inside_running: float
    excess_running: float
    rows: int
    above: Tensor


def _refuse_processes(loss: TwoWay | Quasibinary) -> None:
    if loss.training and collectives.process_count() > 1:
        raise checks.InputError(
            f"`fused_linear` computes {type(loss).__name__} on one process; got "
            f"{collectives.process_count()}. Call `loss(hidden @ weight.T + bias, targets)`."
        )
