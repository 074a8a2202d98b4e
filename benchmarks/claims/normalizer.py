"""Does the shared normalizer settle? log C step by step, beside softmax's own (paper 001, Fig. 2).

An MLP on 100 classes of ``tinyimagenet``, and a ResNet-20 on images of 50 classes of CIFAR-100; the
same seed, batches and schedule for every curve.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch
from torch import Tensor, nn

from benchmarks.claims import sets
from benchmarks.claims.findings import NOT_RUN, Finding, Verdict
from credibly import models
from credibly.losses import Loss, Quasibinary, Softmax

HEADS, NETWORK = "normalizer.json", "normalizer-network.json"
MOMENTA = (0.8, 0.9, 0.99)
BATCH, SEED = 64, 1
Start = Callable[[], tuple[Tensor, Tensor, nn.Module, torch.optim.Optimizer, int]]


def measure(folder: Path, file: str) -> None:
    """Write the curves of heads or of a network, unless they are there."""
    if (folder / file).exists():
        return
    start = _head if file == HEADS else _network
    losses: dict[str, Loss] = {f"quasibinary, momentum {m}": Quasibinary(m) for m in MOMENTA}
    curves = {name: _train(loss, start) for name, loss in (losses | {"softmax": Softmax()}).items()}
    (folder / file).write_text(json.dumps(curves), encoding="utf-8")


def read(folder: Path, file: str = HEADS) -> dict[str, list[float]]:
    path = folder / file
    return json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}


def _head() -> tuple[Tensor, Tensor, nn.Module, torch.optim.Optimizer, int]:
    rows = sets.rows("tinyimagenet:100", SEED).part("train")
    assert rows.features is not None
    inputs = torch.from_numpy(rows.features)
    inputs = (inputs - inputs.mean(0)) / inputs.std(0)
    torch.manual_seed(SEED)
    model = nn.Sequential(
        nn.Linear(inputs.shape[1], 256), nn.ReLU(), nn.Dropout(0.5), nn.Linear(256, 100)
    )
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    return inputs, torch.from_numpy(rows.targets), model, optimizer, 20


def _network() -> tuple[Tensor, Tensor, nn.Module, torch.optim.Optimizer, int]:
    """By the paper's optimizer, at the rate that suits all of these losses."""
    rows = sets.rows("cifar100:50", SEED).part("train")
    inputs = torch.from_numpy(np.moveaxis(rows.images, 3, 1).astype(np.float32) / 255)
    torch.manual_seed(SEED)
    model = models.build("resnet20-32", rows).train()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.03, momentum=0.9)
    return inputs, torch.from_numpy(rows.targets), model, optimizer, 6


def _train(loss: Loss, start: Start) -> list[float]:
    """After each step: log C as kept, or the mean over the batch of log Σ exp(score − mean score).

    Softmax scores have a free shift; each row's mean is taken out so that it cannot move the curve.
    """
    inputs, targets, model, optimizer, epochs = start()
    curve: list[float] = []
    for _ in range(epochs):
        for batch in torch.randperm(len(inputs)).split(BATCH):
            optimizer.zero_grad()
            scores = model(inputs[batch])
            loss(scores, targets[batch]).backward()
            optimizer.step()
            if isinstance(loss, Quasibinary):
                curve.append(round(float(loss.log_normalizer), 4))
            else:
                free = scores.detach() - scores.detach().mean(1, keepdim=True)
                curve.append(round(float(free.logsumexp(1).mean()), 4))
    return curve


def finding(folder: Path, file: str) -> dict[str, Finding]:
    """Spread in the last tenth of training."""
    curves = read(folder, file)
    if not curves:
        return {"001-normalizer-converges": NOT_RUN}
    last = {name: np.array(curve[-len(curve) // 10 :]) for name, curve in curves.items()}
    spread = {name: float(values.std()) for name, values in last.items()}
    drift = {name: float(values.mean() - np.mean(curves[name])) for name, values in last.items()}
    calm = max(value for name, value in spread.items() if name != "softmax")
    verdict: Verdict = "not reproduced"
    if calm < spread["softmax"]:
        verdict = "holds" if calm < spread["softmax"] / 10 else "holds in part"
    cells = [
        f"{name} mean {last[name].mean():.2f}, sd {spread[name]:.3f}, drift {drift[name]:+.2f}"
        for name in curves
    ]
    ours = "Last tenth of training, log scale (drift: from the mean of all steps): "
    return {"001-normalizer-converges": Finding(verdict, ours + "; ".join(cells) + ".")}
