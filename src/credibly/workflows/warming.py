"""Compile the loops before their first use, so no training step or request has to wait."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from credibly import calibrate, decide, metrics
from credibly.checks import InputError
from credibly.compiled import cache_folder
from credibly.types import Array, JsonObject

LOSSES = ("bce", "asl", "focal", "spa", "twl", "bce+lpr", "spa+lpr")
"""Losses that have compiled loops; the others run in torch alone."""

ROWS, LABELS = 24, 6


@dataclass(frozen=True)
class WarmUp:
    """What ``warm_up`` compiled.

    Attributes:
        folder: of the machine code.
        seconds: CPU time by name of the part.
        compiled: number of functions compiled by this call.
        kept: number of functions in the folder now.
    """

    folder: Path
    seconds: dict[str, float]
    compiled: int
    kept: int

    def to_dict(self) -> JsonObject:
        """Return the result as a plain document."""
        return {
            "folder": str(self.folder),
            "seconds": {name: round(value, 2) for name, value in self.seconds.items()},
            "compiled": self.compiled,
            "kept": self.kept,
        }

    def __repr__(self) -> str:
        total = sum(self.seconds.values())
        return (
            f"{self.compiled} functions compiled in {total:.1f} s of CPU, {self.kept} kept in "
            f"{self.folder}"
        )


def warm_up(
    losses: Sequence[str] = LOSSES,
    *,
    progress: Callable[[str], None] | None = None,
) -> WarmUp:
    """Compile and store the loops of losses, metrics, calibrators, label sets and search.

    Args:
        losses: names of the losses to compile.
        progress: called with the name of each part before it is compiled.

    Raises:
        InputError: if there is no folder in which the result can be stored.
    """
    folder = cache_folder()
    if folder is None:
        raise InputError(
            "compiled code needs a folder that only you (or root) can write to; you have no home "
            "folder, or others can change it. Set NUMBA_CACHE_DIR to such a folder, here and "
            "where credibly runs."
        )
    before, seconds = _kernels(folder), {}
    for name, work in _parts(losses):
        if progress is not None:
            progress(name)
        start = time.process_time()
        work()
        seconds[name] = time.process_time() - start
    after = _kernels(folder)
    if not after:
        raise InputError(f"{folder} must be writable to keep compiled code; nothing could be kept.")
    return WarmUp(folder, seconds, len(after - before), len(after))


def _kernels(folder: Path) -> set[str]:
    return {path.name for path in folder.glob("*.kernel")}


def _parts(losses: Sequence[str]) -> Iterator[tuple[str, Callable[[], object]]]:
    generator = np.random.default_rng(0)
    probabilities = generator.random((ROWS, LABELS))
    targets = (generator.random((ROWS, LABELS)) < probabilities).astype(np.int8)
    targets[0] = 0
    for name in losses:
        yield f"loss {name}", lambda name=name: _step(name)
    yield "metrics", lambda: _measure(probabilities, targets)
    yield "calibrators", lambda: calibrate.choose({"given": probabilities}, targets)
    yield "label sets", lambda: decide.AverageSize(2).fit(probabilities).predict(probabilities)
    yield "search", lambda: _search(probabilities)


def _step(name: str) -> None:
    import torch

    from credibly.losses import from_name

    loss = from_name(name, num_labels=LABELS, num_rows=ROWS, average_size=2.0)
    scores = torch.randn(ROWS, LABELS, requires_grad=True)
    targets = (torch.rand(ROWS, LABELS) < 0.3).float()
    for each in (targets, targets * 0.8, torch.where(targets > 0, targets, -1.0)):
        loss(scores, each).backward()
    with torch.no_grad():
        loss(scores, targets)


def _measure(probabilities: Array, targets: Array) -> None:
    for dtype in (np.float32, np.float64):
        metrics.summary(probabilities.astype(dtype), targets, min_count=1)
    metrics.sample_average_precision(probabilities, targets)


def _search(probabilities: Array) -> None:
    from credibly.retrieve import Index

    labels = [str(place) for place in range(LABELS)]
    Index(probabilities.astype(np.float32), labels).search("+0 -1", top=3)
