"""How much of a bare torch loop's speed the training loop keeps, on features and on images.

    python -m benchmarks throughput

Same model, loss, optimizer and batches; CPU time of one epoch, interleaved, one thread.
"""

from __future__ import annotations

import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from rich.console import Console
from rich.table import Table

import credibly as cr
from credibly.train import Network
from credibly.train.defaults import resolve
from credibly.train.distributed import EpochEvaluator, build_accelerator, epoch_batches
from credibly.train.fitting import build_loss, build_model
from credibly.train.optimizer import build_optimizer
from credibly.train.training_loop import Trainer

REPEATS = 15
# Rows, features, labels, model, batch: about VOC 2012 on a frozen backbone, and a small table.
CASES = (
    (5717, 1280, 20, "mlp", 128),
    (5717, 1280, 20, "linear", 128),
    (2000, 100, 14, "mlp", 64),
)
BAR = 0.80
# Images in memory, side, labels, network, batch. The bare loop has them ready as float tensors;
# ours crops, flips and converts them.
IMAGE_CASES = ((128, 96, 80, "efficientnet-lite0", 32), (512, 32, 100, "resnet20-32", 64))
IMAGE_REPEATS = 5
IMAGE_BAR = 0.90


def run() -> None:
    torch.set_num_threads(1)
    table = Table("rows × features", "labels", "model", "batch", "bare", "loop", "kept", "bar")
    for rows, features, labels, model, batch in CASES:
        bare, loop = measure(rows, features, labels, model, batch)
        speeds = (rows / seconds for seconds in (bare, loop))
        table.add_row(
            f"{rows} × {features}",
            str(labels),
            model,
            str(batch),
            *(f"{speed:,.0f} rows/s" for speed in speeds),
            f"{bare / loop:.0%}",
            f"≥ {BAR:.0%}",
        )
    for rows, side, labels, model, batch in IMAGE_CASES:
        bare, loop = measure_images(rows, side, labels, model, batch)
        speeds = (rows / seconds for seconds in (bare, loop))
        table.add_row(
            f"{rows} images of {side} px",
            str(labels),
            model,
            str(batch),
            *(f"{speed:,.0f} images/s" for speed in speeds),
            f"{bare / loop:.0%}",
            f"≥ {IMAGE_BAR:.0%}",
        )
    Console().print(table)


def measure(rows: int, features: int, labels: int, model: str, batch: int) -> tuple[float, float]:
    """Return the median CPU seconds of an epoch on features: bare torch, the training loop."""
    generator = torch.Generator().manual_seed(0)
    inputs = torch.randn(rows, features, generator=generator).numpy()
    data = cr.data.Data(*_labels(rows, labels, generator), features=inputs)
    return _interleaved(data, model, batch, REPEATS)


def measure_images(
    rows: int, side: int, labels: int, model: str, batch: int
) -> tuple[float, float]:
    """Return the median CPU seconds of an epoch on images: bare torch, the training loop."""
    generator = torch.Generator().manual_seed(0)
    pixels = torch.randint(0, 256, (rows, side, side, 3), generator=generator, dtype=torch.uint8)
    named = _labels(rows, labels, generator)
    data = cr.data.Data(*named, images=pixels.numpy(), augmentation="crop+flip")
    return _interleaved(data, model, batch, IMAGE_REPEATS)


def _labels(rows: int, labels: int, generator: torch.Generator) -> tuple[list[str], Any]:
    targets = (torch.rand(rows, labels, generator=generator) < 0.1).float().numpy()
    return [f"label {i}" for i in range(labels)], targets


def _interleaved(data: Any, model: str, batch: int, repeats: int) -> tuple[float, float]:
    settings = resolve(Network(model=model, batch_size=batch, checkpoint_seconds=1e9), data)
    with tempfile.TemporaryDirectory() as folder:
        loops = {"bare": _bare(data, settings), "loop": _loop(data, settings, Path(folder))}
        taken: dict[str, list[float]] = {name: [] for name in loops}
        for _ in range(repeats):
            for name, epoch in loops.items():
                start = time.process_time()
                epoch()
                taken[name].append(time.process_time() - start)
    return statistics.median(taken["bare"]), statistics.median(taken["loop"])


def _parts(data: Any, settings: Network) -> tuple[Any, Any]:
    criterion = build_loss(settings, data, len(data))
    return build_model(settings, data, criterion, 0), criterion


def _bare(data: Any, settings: Network) -> Callable[[], None]:
    """What one would write by hand."""
    model, criterion = _parts(data, settings)
    optimizer = build_optimizer(settings, model, criterion, on_cpu=False)
    inputs, targets, _ = data.torch_dataset(train=False).batch(torch.arange(len(data)))

    def epoch() -> None:
        model.train()
        for rows in epoch_batches(len(data), settings.batch_size, 0, 0):
            loss = criterion(model(inputs[rows]), targets[rows])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()

    return epoch


def _loop(data: Any, settings: Network, folder: Path) -> Callable[[], None]:
    model, criterion = _parts(data, settings)
    dataset = data.torch_dataset(train=True)
    evaluator = EpochEvaluator(settings, dataset, data.targets)
    accelerator = build_accelerator(settings.precision)
    trainer = Trainer(
        settings, model, criterion, dataset, evaluator, accelerator=accelerator, folder=folder
    )

    def epoch() -> None:
        trainer._train_epoch()
        trainer.progress.batch, trainer.progress.loss_sum = 0, 0.0

    return epoch


if __name__ == "__main__":
    run()
