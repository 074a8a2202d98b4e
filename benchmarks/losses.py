"""Losses, forward and backward, against ``nn.BCEWithLogitsLoss`` on the same tensors.

First every loss on scores of a half-trained model; then the worst of several score ranges, because
arithmetic on subnormal numbers, for example, is slow only where scores are small enough; then small
batches, where the cost is that of autograd and not of arithmetic.

Compiled loops are what CPU tensors take; "formula" is what a GPU runs, on the CPU.
"nothing" is an empty function with a gradient: what autograd takes before any arithmetic. Memory is
the peak that one step allocates, as a multiple of the scores.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from rich.console import Console
from rich.table import Table
from torch import Tensor
from torch.nn.functional import logsigmoid, softplus

from benchmarks.timing import in_turns, median, ratio
from credibly.losses import BCE, SPA, Asymmetric, BinaryLoss, Focal, LabelPairs, TwoWay

SIZES = ((256, 80), (32, 9605))
BASE = "nn.BCEWithLogitsLoss"
Loss = Callable[[Tensor, Tensor], Tensor]


def run(repeats: int = 15) -> None:
    """Print the table of ratios, and how pairs grow with labels and positives."""
    torch.set_num_threads(1)
    console = Console()
    console.print(_ratios(repeats))
    console.print(_score_ranges(repeats))
    console.print(_growth(repeats))


# Mean, spread and gain of present labels of the scores; "rare" has rows without any label.
RANGES: dict[str, tuple[float, float, float]] = {
    "fresh": (0.0, 0.1, 0.0),
    "prior biases": (-4.0, 0.5, 1.0),
    "half-trained": (-3.0, 2.0, 4.0),
    "trained": (-7.0, 1.0, 8.0),
    "saturated": (-15.0, 5.0, 25.0),
    "far below": (-25.0, 1.0, 0.0),
    "constant −20": (-20.0, 0.0, 0.0),
    "rare": (-7.0, 0.5, 0.0),
}
# Worst ratio over the ranges that must not be passed, for each size of SIZES and for 64×20.
WORST_BARS: dict[str, tuple[float | None, float | None, float | None]] = {
    "SPA": (0.7, None, None),
    "Asymmetric": (0.9, None, None),
    "TwoWay": (1.2, None, None),
    "SPA + LabelPairs": (1.6, 1.4, 1.5),
}


def ranged_batch(rows: int, labels: int, kind: str) -> tuple[Tensor, Tensor]:
    """Scores of the given range, with the targets of ``batch``; none are present for "rare"."""
    mean, spread, gain = RANGES[kind]
    targets = batch(rows, labels)[1]
    if kind == "rare":
        targets = torch.zeros_like(targets)
    noise = torch.randn(rows, labels, generator=torch.Generator().manual_seed(1))
    return (mean + spread * noise + gain * targets).requires_grad_(), targets


def _losses() -> dict[str, Loss]:
    return {
        "BCE": BCE(),
        "SPA": SPA(),
        "Focal": Focal(),
        "Asymmetric": Asymmetric(),
        "TwoWay": TwoWay(),
        "SPA + LabelPairs": LabelPairs(SPA()),
    }


def _score_ranges(repeats: int) -> Table:
    table = Table(title="Ratios to nn.BCEWithLogitsLoss by score range, and the worst (bar)")
    losses = _losses()
    table.add_column("size, loss")
    for kind in (*RANGES, "worst"):
        table.add_column(kind, justify="right")
    for place, (rows, labels) in enumerate((*SIZES, (64, 20))):
        ratios: dict[str, list[float]] = {name: [] for name in losses}
        for kind in RANGES:
            scores, targets = ranged_batch(rows, labels, kind)
            cases = {BASE: torch.nn.BCEWithLogitsLoss(), **losses}
            seconds = in_turns(
                {name: _plain_step(loss, scores, targets) for name, loss in cases.items()}, repeats
            )
            for name in losses:
                ratios[name].append(ratio(seconds, name, BASE))
        for name, found in ratios.items():
            bar = WORST_BARS.get(name, (None, None, None))[place]
            limit = "" if bar is None else f" (≤ {bar:g})"
            cells = [f"{value:.2f}" for value in found]
            table.add_row(f"{rows}×{labels} {name}", *cells, f"{max(found):.2f}{limit}")
    return table


def _plain_step(loss: Loss, scores: Tensor, targets: Tensor) -> Callable[[], object]:
    def once() -> None:
        scores.grad = None
        loss(scores, targets).backward()

    return once


def batch(rows: int, labels: int, positives: float = 3.0) -> tuple[Tensor, Tensor]:
    """Scores of a half-trained model; 1 to 8 positives per row, ``positives`` on average."""
    generator = torch.Generator().manual_seed(0)
    counts = torch.poisson(torch.full((rows,), positives), generator=generator).clamp(1, 8)
    rank = torch.rand(rows, labels, generator=generator).argsort(1)
    targets = (rank < counts[:, None]).float()
    scores = 2 * torch.randn(rows, labels, generator=generator) - 3 + 4 * targets
    return scores.requires_grad_(), targets


def naive_label_pairs(scores: Tensor, targets: Tensor) -> Tensor:
    """SPA + pairs as one would write them first: a cube of all pairs."""
    loss, labels = SPA(), scores.shape[1]
    odds = loss.log_odds(scores)
    weights = targets[:, :, None] * (1 - targets)[:, None, :]
    cube = weights * softplus(odds[:, None, :] - odds[:, :, None])
    entries = targets * loss.positive(scores) + (1 - targets) * loss.negative(scores)
    return entries.mean() + cube.sum((1, 2)).mean() * 2 / (labels * (labels - 1))


def naive_asymmetric(scores: Tensor, targets: Tensor) -> Tensor:
    """The asymmetric loss as its authors print it, clamped logarithms and all."""
    p = torch.sigmoid(scores)
    rest = (1 - p + 0.05).clamp(max=1)
    logs = targets * torch.log(p.clamp(min=1e-8)) + (1 - targets) * torch.log(rest.clamp(min=1e-8))
    weights = (1 - (p * targets + rest * (1 - targets))) ** (targets + 4 * (1 - targets))
    return -(logs * weights).mean()


def naive_spa(scores: Tensor, targets: Tensor) -> Tensor:
    """SPA as two formulas and a blend."""
    return -(targets * logsigmoid(scores) + (1 - targets) * logsigmoid(3 - 3 * scores) / 5).mean()


class _Nothing(torch.nn.Module):
    """What a step costs before any arithmetic: a module, a function of our own, its backward."""

    def forward(self, scores: Tensor, targets: Tensor) -> Tensor:
        return _Empty.apply(scores)  # type: ignore[return-value]


class _Empty(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, scores: Tensor) -> Tensor:
        ctx.gradient = torch.empty_like(scores)
        return torch.empty((), dtype=scores.dtype)

    @staticmethod
    def backward(ctx: Any, *outer: Tensor) -> Tensor:
        gradient, ctx.gradient = ctx.gradient, None
        return gradient


def _steps(scores: Tensor, targets: Tensor, cube: bool) -> dict[str, Callable[[], object]]:
    def step(loss: Loss) -> Callable[[], object]:
        return _plain_step(loss, scores, targets)

    ours = _losses()
    formulas = {
        f"{name}, formula": step(loss.plain_mean)
        for name, loss in ours.items()
        if isinstance(loss, (BinaryLoss, TwoWay))
    }
    steps = {BASE: step(torch.nn.BCEWithLogitsLoss()), "nothing": step(_Nothing())}
    steps |= {name: step(loss) for name, loss in ours.items()}
    steps |= formulas
    steps["SPA, as one would write it"] = step(naive_spa)
    steps["Asymmetric, as its authors print it"] = step(naive_asymmetric)
    if cube:
        steps["SPA + pairs, a cube of all pairs"] = step(naive_label_pairs)
    return steps


def _ratios(repeats: int) -> Table:
    table = Table(title="CPU time of forward + backward (bar), and peak memory")
    table.add_column("loss")
    for rows, labels in SIZES:
        table.add_column(f"{rows}×{labels}", justify="right")
        table.add_column("memory", justify="right")
    columns = []
    for place, (rows, labels) in enumerate(SIZES):
        scores, targets = batch(rows, labels)
        steps = _steps(scores, targets, cube=place == 0)
        seconds = in_turns(steps, repeats)
        columns.append({name: _cells(name, seconds, step, scores) for name, step in steps.items()})
    for name in columns[0]:
        table.add_row(name, *columns[0][name], *columns[1].get(name, ("", "")))
    base = ", ".join(f"{c[BASE][0]} at {r}×{n}" for c, (r, n) in zip(columns, SIZES, strict=True))
    table.caption = f"ratios to {BASE}: {base}"
    return table


def _cells(
    name: str,
    seconds: dict[str, list[float]],
    step: Callable[[], object],
    scores: Tensor,
) -> tuple[str, str]:
    memory = f"{peak_memory(step, scores) / (scores.numel() * 4):.1f}"
    if name == BASE:
        return f"{median(seconds[name]) * 1e6:.0f} µs", memory
    return f"{ratio(seconds, name, BASE):.2f}", memory


def peak_memory(step: Callable[[], object], scores: Tensor) -> int:
    """Most bytes that torch held at once beyond what it held before, during one step."""
    step()
    scores.grad = None
    with _silent_stderr(), torch.profiler.profile(profile_memory=True) as profile:
        step()
    held, peak = 0, 0
    events = profile.profiler.kineto_results.events()  # type: ignore[union-attr]
    for event in sorted(events, key=lambda e: e.start_ns()):
        if event.name() == "[memory]":
            held += event.nbytes()
            peak = max(peak, held)
    return peak


@contextmanager
def _silent_stderr() -> Iterator[None]:
    """The profiler's own lines go to the file descriptor, past Python."""
    saved, nowhere = os.dup(2), os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, 2)
    try:
        yield
    finally:
        os.dup2(saved, 2)
        os.close(saved)
        os.close(nowhere)


def _growth(repeats: int) -> Table:
    table = Table(title="SPA + LabelPairs, ns of CPU per entry, by labels and positives per row")
    counts = (0, 1, 4, 16, 64, 256, 1024)
    table.add_column("labels")
    for count in counts:
        table.add_column(str(count), justify="right")
    for labels in (80, 400, 2000, 10000):
        rows = max(1, 40_000 // labels)
        cases = {}
        for count in (c for c in counts if c <= labels // 2):
            generator = torch.Generator().manual_seed(count)
            targets = (torch.rand(rows, labels, generator=generator).argsort(1) < count).float()
            scores = 2 * torch.randn(rows, labels, generator=generator) - 3 + 4 * targets
            cases[str(count)] = _pair_step(scores.requires_grad_(), targets)
        seconds = in_turns(cases, repeats)
        cells = [f"{median(s) / rows / labels * 1e9:.1f}" for s in seconds.values()]
        table.add_row(str(labels), *cells)
    return table


def _pair_step(scores: Tensor, targets: Tensor) -> Callable[[], object]:
    loss = LabelPairs(SPA())

    def once() -> None:
        scores.grad = None
        loss(scores, targets).backward()

    return once
