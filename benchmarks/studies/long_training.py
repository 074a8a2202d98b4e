"""A hundred thousand steps of training: does memory grow?

``python -m benchmarks.studies.long_training --steps 100000``
"""

from __future__ import annotations

import argparse
import json
import os
import tempfile
import time
from typing import Any

import credibly as cr
from benchmarks.studies.load import resident, slope

BATCH = 32


class Watch(cr.train.Callback):
    """Memory of this process after every epoch."""

    def __init__(self) -> None:
        self.start, self.memory = time.monotonic(), []
        self.steps = self.epochs = 0

    def on_update(self, done: int, total: int) -> None:
        self.steps = max(self.steps, done)

    def on_epoch(self, figures: dict[str, Any]) -> None:
        self.epochs += 1
        minutes = (time.monotonic() - self.start) / 60
        self.memory.append((minutes, resident(os.getpid())))


def main(steps: int) -> None:
    rows = cr.data.synthetic(30_000, num_features=16, num_labels=8)
    an_epoch = -(-len(rows.part("train")) // BATCH)
    settings = cr.train.recipe(
        model="linear", loss="spa+lpr", batch_size=BATCH, epochs=-(-steps // an_epoch)
    )
    watch = Watch()
    with tempfile.TemporaryDirectory() as folder:
        cr.train.fit(rows, settings, folder=folder, callback=watch)
    after = watch.memory[len(watch.memory) // 10 :]
    first, last = after[0], after[-1]
    figures = {
        "steps": settings.epochs * an_epoch,
        "epochs": watch.epochs,
        "minutes": round(watch.memory[-1][0], 2),
        "memory_mb_after_a_tenth": round(first[1], 1),
        "memory_mb_end": round(last[1], 1),
        "memory_mb_most": round(max(size for _, size in watch.memory), 1),
        "bytes_a_step_by_slope": round(
            slope(after) * 2**20 / 60 * (last[0] - first[0]) / (0.9 * settings.epochs * an_epoch), 2
        ),
    }
    print(json.dumps(figures, indent=1))


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=100_000)
    main(**vars(parser.parse_args()))
