"""One unit in a process of its own: ``python -m benchmarks.long_runs.unit UNIT FOLDER``.

UNIT is a JSON file, FOLDER the place of its checkpoints and scores. The record is written there as
``record.json`` when the unit is finished. Called again after an interruption, the unit goes on from
its last checkpoint to the same result.
"""

from __future__ import annotations

import copy
import dataclasses
import datetime
import io
import json
import os
import shutil
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch

from benchmarks.claims import sets
from benchmarks.long_runs import measure
from benchmarks.long_runs.records import write
from credibly import losses
from credibly.checks import InputError
from credibly.child_processes import end_with_parent
from credibly.data import Data
from credibly.data.splits import TEST
from credibly.losses import Loss
from credibly.train import Callback, Network, resolve, run_folder
from credibly.train.distributed import EpochEvaluator, SingleProcess, score
from credibly.train.fitting import build_loss, build_model
from credibly.train.linear import can_probe, solve_last_layer
from credibly.train.training_loop import Trainer

ROWS_TO_WATCH = 1000
"""Held-out rows whose metrics are logged after each epoch; they decide nothing."""

LARGEST_SCORE = 20.0
"""A larger one stands for log-odds that the link of a loss does not reach."""


class Clock:
    """CPU seconds of this process and of those before it that worked on the unit."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.before = float(path.read_text()) if path.exists() else 0.0

    def save(self) -> float:
        seconds = self.before + time.process_time()
        write(self.path, f"{seconds:.1f}".encode())
        return seconds


@dataclasses.dataclass
class Reader(Callback):
    """Keep the scores of held-out and test rows, and the state of the loss, at some epochs."""

    epochs: list[int]
    save: Callable[[int], None]
    clock: Clock

    def on_epoch(self, figures: dict[str, Any]) -> None:
        print(json.dumps(figures), flush=True)
        if figures["epoch"] in self.epochs:
            self.save(figures["epoch"])
        self.clock.save()


def main() -> None:
    end_with_parent()
    torch.set_num_threads(1)
    unit, folder = json.loads(Path(sys.argv[1]).read_text(encoding="utf-8")), Path(sys.argv[2])
    record = carried_out(unit, folder)
    write(folder / "record.json", json.dumps(record, ensure_ascii=False).encode())


def carried_out(unit: dict[str, Any], folder: Path) -> dict[str, Any]:
    """Train, then measure; return the record."""
    folder.mkdir(parents=True, exist_ok=True)
    clock, data = Clock(folder / "cpu_seconds"), sets.rows(unit["data"], unit["seed"])
    record = {name: value for name, value in unit.items() if name != "minutes"}
    try:
        record["results"] = [
            _training(unit, training, data, folder / f"training-{number}", clock)
            for number, training in enumerate(unit["trainings"])
        ]
    except InputError as error:  # a loss that diverges is a result
        record["failed"] = str(error)
    record["cpu_seconds"] = round(clock.save())
    record["date"] = datetime.datetime.now(datetime.UTC).strftime("%Y-%m-%d %H:%M")
    return record


def _training(
    unit: dict[str, Any], training: dict[str, Any], data: Data, folder: Path, clock: Clock
) -> dict[str, Any]:
    given = {
        name: os.path.expandvars(value) if isinstance(value, str) else value
        for name, value in unit["settings"].items()
    }
    probe_first = given.pop("head_start", False)
    recipe = Network(
        **given,
        loss=training["loss"],
        learning_rate=training["learning_rate"],
        epochs=training["reads"][-1],
        probe_first=False,
        select="last",
        split_seed=unit["seed"],
    )
    rows = data.take(np.flatnonzero(data.split != TEST))
    settings = resolve(recipe, rows).network()
    criterion = build_loss(settings, rows, len(rows.part("train")))
    folder.mkdir(exist_ok=True)
    start = _train(unit, training, settings, criterion, data, probe_first, folder, clock)
    held, test = data.part("calibration"), data.part("test")
    counts = (rows.targets > 0.5).sum(axis=0)
    reads = []
    for epoch in training["reads"]:
        with np.load(folder / f"read-{epoch}.npz") as arrays:
            state = {k[5:]: torch.from_numpy(arrays[k]) for k in arrays if k.startswith("loss.")}
            scores = {k: torch.from_numpy(arrays[k]) for k in ("held_out", "test") if k in arrays}
        criterion.load_state_dict(state)
        criterion.eval()
        read: dict[str, Any] = {"epoch": epoch}
        with torch.no_grad():
            read["held_out"] = measure.held_out(
                criterion, scores["held_out"], held, settings.average_size
            )
            if not unit["trial"]:
                both = scores["held_out"], scores["test"]
                read |= measure.tested(criterion, both, held, test, counts)
        reads.append(read)
    return {"start": start, "reads": reads}


def _train(
    unit: dict[str, Any],
    training: dict[str, Any],
    settings: Network,
    criterion: Loss,
    data: Data,
    probe_first: bool,
    folder: Path,
    clock: Clock,
) -> str:
    """Train to the end, or from the last checkpoint; say what the last layer started from."""
    if (folder / "finished").exists():
        return (folder / "finished").read_text(encoding="utf-8")
    rows = data.take(np.flatnonzero(data.split != TEST))
    train, held = rows.part("train"), rows.part("calibration")

    def plain(part: Data) -> Any:
        size = settings.image_size if part.kind == "images" else None
        return part.torch_dataset(train=False, image_size=size)

    model = build_model(settings, rows, criterion, unit["seed"])
    solvable = can_probe(criterion)
    start = ("own linear probe" if solvable else "BCE's linear probe") if probe_first else "random"
    if probe_first and run_folder.newest_checkpoint(folder / "state") is None:
        own = criterion if solvable else losses.BCE()
        solve_last_layer(settings, model, own, rows, SingleProcess(), Callback())
        if not solvable:
            translate(model.head, criterion, score(model, plain(train), SingleProcess()))

    def save(epoch: int) -> None:
        own = copy.deepcopy(criterion).eval()
        if own.has_state:  # as `credibly train` does at its end
            scores = score(model, plain(train), SingleProcess())
            own.fit_state([(scores, torch.from_numpy(train.dense_targets))])
        arrays = {f"loss.{name}": value.numpy() for name, value in own.state_dict().items()}
        arrays["held_out"] = score(model, plain(held), SingleProcess()).numpy()
        if not unit["trial"]:
            arrays["test"] = score(model, plain(data.part("test")), SingleProcess()).numpy()
        content = io.BytesIO()
        np.savez(content, **arrays)
        write(folder / f"read-{epoch}.npz", content.getvalue())

    size = settings.image_size if rows.kind == "images" else None
    if settings.augment is not None and rows.kind == "images":
        train = dataclasses.replace(train, augmentation=settings.augment)
    watched = held.take(np.arange(min(len(held), ROWS_TO_WATCH)))
    trainer = Trainer(
        settings,
        model,
        criterion,
        train.torch_dataset(train=True, image_size=size, seed=unit["seed"]),
        EpochEvaluator(settings, plain(watched), watched.targets),
        seed=unit["seed"],
        folder=folder / "state",
        callback=Reader(training["reads"], save, clock),
    )
    trainer.run()
    write(folder / "finished", start.encode())
    shutil.rmtree(folder / "state")
    return start


@torch.no_grad()
def translate(head: Any, criterion: Loss, log_odds: torch.Tensor) -> None:
    """Turn a last layer that gives log-odds into one that gives the scores of ``criterion``.

    The official ASL code has no loss value that belongs to its gradient, and the quasibinary loss
    has a state, so that the last layer cannot be solved for them. BCE's solution is scaled and
    shifted instead: the line through the scores whose link gives those log-odds, by least squares
    over the training entries. The link of ASL with γ+ 0 stays below some log-odds; entries above
    take no part.
    """
    odds = torch.quantile(
        log_odds.double().flatten(), torch.linspace(0.0005, 0.9995, 1000).double()
    )
    scores = criterion.initial_scores(torch.sigmoid(odds)).double()
    reached = scores < LARGEST_SCORE
    slope, shift = np.polyfit(odds[reached].numpy(), scores[reached].numpy(), 1)
    head.weight *= slope
    head.bias.mul_(slope).add_(shift)


if __name__ == "__main__":
    main()
