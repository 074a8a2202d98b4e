"""Last layer and loss in one against ``nn.Linear`` and ``nn.BCEWithLogitsLoss``: time and memory.

A step is forward and backward of the last layer with its loss, from features to the gradients of
features, weights and biases. The base gets a dense matrix of targets that is made before the clock
starts; `fused_linear` gets lists of labels. Memory is the peak of one step, layer and targets
included, over what was there before, each in a process of its own. Bars: at most 0.7 of the time
and 0.6 of the memory of the base at 1e5 labels.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from benchmarks.timing import in_turns, median, ratio
from credibly.losses import SPA, Asymmetric, Loss, Quasibinary, Softmax, TwoWay, fused_linear

ROWS, HIDDEN, POSITIVES = 256, 256, 3
SIZES = (100_000,)
BASE = "BCEWithLogits"
FUSED: dict[str, Loss] = {
    "fused SPA": SPA(),
    "fused ASL": Asymmetric(),
    "fused softmax": Softmax(),
    "fused two-way rows": TwoWay(ways="samples"),
    "fused quasibinary": Quasibinary(penalty="running"),
}


def run(repeats: int = 3) -> list[dict[str, object]]:
    """Return one row per loss and number of labels."""
    torch.set_num_threads(1)
    rows = []
    for labels in SIZES:
        seconds = in_turns({name: step(name, labels) for name in (BASE, "SPA", *FUSED)}, repeats)
        memory = {name: _peak(name, labels) for name in seconds}
        rows += [
            {
                "labels": f"{labels:,}",
                "": name,
                "seconds": f"{median(seconds[name]):.2f}",
                "time / base": f"{ratio(seconds, name, BASE):.2f}",
                "peak MB": f"{memory[name]:.0f}",
                "memory / base": f"{memory[name] / memory[BASE]:.2f}",
            }
            for name in seconds
        ]
    return rows


def step(name: str, labels: int) -> Callable[[], Tensor]:
    """Return one training step of the last layer."""
    layer, hidden, lists = _layer(labels)
    dense = None if name in FUSED else _dense(lists, labels)
    plain: Any = {BASE: nn.BCEWithLogitsLoss(), "SPA": SPA()}.get(name)

    def call() -> Tensor:
        layer.weight.grad = layer.bias.grad = hidden.grad = None
        if name in FUSED:
            value = fused_linear(FUSED[name], hidden, layer.weight, layer.bias, lists)
        else:
            value = plain(layer(hidden), dense)
        value.backward()
        return value

    return call


def _layer(labels: int) -> tuple[nn.Linear, Tensor, list[list[int]]]:
    generator = torch.Generator().manual_seed(0)
    layer = nn.Linear(HIDDEN, labels)
    nn.init.normal_(layer.weight, std=0.02, generator=generator)
    nn.init.constant_(layer.bias, -5.0)
    hidden = torch.randn(ROWS, HIDDEN, generator=generator).requires_grad_()
    lists = [torch.randperm(labels, generator=generator)[:POSITIVES].tolist() for _ in range(ROWS)]
    return layer, hidden, lists


def _dense(lists: list[list[int]], labels: int) -> Tensor:
    targets = torch.zeros(len(lists), labels)
    for row, present in enumerate(lists):
        targets[row, present] = 1
    return targets


def _peak(name: str, labels: int) -> float:
    """Return the MB that one step takes in a new process, the targets included."""
    command = [sys.executable, "-m", "benchmarks.fused_linear", name, str(labels)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    return float(json.loads(done.stdout.splitlines()[-1]))


def _measure(name: str, labels: int) -> None:
    step(name, 512)()  # compiled
    before = _status("VmRSS")
    call = step(name, labels)
    call()
    print(json.dumps((_status("VmHWM") - before) / 1024))


def _status(key: str) -> int:
    """Return a figure of this process in kB; ``getrusage`` counts the parent's peak too."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith(key))


if __name__ == "__main__":
    torch.set_num_threads(1)
    _measure(sys.argv[1], int(sys.argv[2]))
