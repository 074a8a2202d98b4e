"""Does the shared normalizer settle? log C step by step, beside softmax's own (paper 001, Fig. 2).

An MLP on 100 classes of ``tinyimagenet``; the same seed, batches and schedule for every curve.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn

from benchmarks.claims import sets
from benchmarks.claims.findings import NOT_RUN, Finding, Verdict
from credibly.losses import Loss, Quasibinary, Softmax

FILE = "normalizer.json"
MOMENTA = (0.8, 0.9, 0.99)
EPOCHS, BATCH, RATE, SEED = 20, 64, 1e-3, 1


def measure(folder: Path) -> None:
    """Write the curves, unless they are there."""
    if (folder / FILE).exists():
        return
    curves: dict[str, Any] = {}
    for momentum in MOMENTA:
        curves[f"quasibinary, momentum {momentum}"] = _train(Quasibinary(momentum))
    curves["softmax"] = _train(Softmax())
    (folder / FILE).write_text(json.dumps(curves), encoding="utf-8")


def read(folder: Path) -> dict[str, list[float]]:
    path = folder / FILE
    return json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}


def _train(loss: Loss) -> list[float]:
    """After each step: log C as kept, or the mean over the batch of log Σ exp(score − mean score).

    Softmax scores have a free shift; each row's mean is taken out so that it cannot move the curve.
    """
    rows = sets.rows("tinyimagenet:100", SEED).part("train")
    assert rows.features is not None
    inputs, targets = torch.from_numpy(rows.features), torch.from_numpy(rows.targets)
    inputs = (inputs - inputs.mean(0)) / inputs.std(0)
    torch.manual_seed(SEED)
    model = nn.Sequential(
        nn.Linear(inputs.shape[1], 256), nn.ReLU(), nn.Dropout(0.5), nn.Linear(256, 100)
    )
    optimizer = torch.optim.Adam(model.parameters(), lr=RATE)
    curve: list[float] = []
    for _ in range(EPOCHS):
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


def finding(folder: Path) -> dict[str, Finding]:
    """Spread in the last tenth of training."""
    curves = read(folder)
    if not curves:
        return {"001-normalizer-converges": NOT_RUN}
    last = {name: np.array(curve[-len(curve) // 10 :]) for name, curve in curves.items()}
    spread = {name: float(values.std()) for name, values in last.items()}
    drift = {name: float(values.mean() - np.mean(curves[name])) for name, values in last.items()}
    calm = max(value for name, value in spread.items() if name != "softmax")
    verdict: Verdict = "contradicted"
    if calm < spread["softmax"]:
        verdict = "holds" if calm < spread["softmax"] / 10 else "holds in part"
    cells = [
        f"{name} mean {last[name].mean():.2f}, sd {spread[name]:.3f}, drift {drift[name]:+.2f}"
        for name in curves
    ]
    ours = "Last tenth of training, log scale (drift: from the mean of all steps): "
    return {"001-normalizer-converges": Finding(verdict, ours + "; ".join(cells) + ".")}
