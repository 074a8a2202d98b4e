"""Small heads on fixed features, trained the same way for every loss of a study."""

from __future__ import annotations

import copy
import os
from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch
from torch import Tensor, nn


def data_file(name: str) -> Path:
    """A file of the folder in CREDIBLY_DATA (or ``../shared/data`` beside the repository)."""
    beside = Path(__file__).resolve().parents[3] / "shared" / "data"
    folder = Path(os.environ.get("CREDIBLY_DATA", beside))
    if not (folder / name).exists():
        raise SystemExit(f"{folder / name} is not there. Set CREDIBLY_DATA to its folder.")
    return folder / name


def train(
    head: nn.Module,
    loss: Callable[[Tensor, Tensor], Tensor],
    features: np.ndarray,
    targets: np.ndarray,
    *,
    seed: int,
    epochs: int,
    batch: int = 128,
    rate: float = 1e-3,
    judge: Callable[[nn.Module], float] | None = None,
) -> nn.Module:
    """Adam over shuffled batches; the last epoch, or the one that ``judge`` liked best."""
    inputs, truth = torch.from_numpy(features), torch.from_numpy(targets)
    optimizer = torch.optim.Adam(head.parameters(), lr=rate)
    generator = torch.Generator().manual_seed(seed)
    best, kept = -np.inf, copy.deepcopy(head.state_dict())
    for _ in range(epochs):
        for rows in torch.randperm(len(inputs), generator=generator).split(batch):
            optimizer.zero_grad()
            loss(head(inputs[rows]), truth[rows]).backward()
            optimizer.step()
        if judge is None or (worth := judge(head)) > best:
            best = -np.inf if judge is None else worth
            kept = copy.deepcopy(head.state_dict())
    head.load_state_dict(kept)
    return head


def scores_of(head: nn.Module, features: np.ndarray) -> Tensor:
    """The head's outputs, in float64."""
    with torch.no_grad():
        return head(torch.from_numpy(features)).double()


def linear(inputs: int, outputs: int, seed: int) -> nn.Module:
    """A linear head with zero biases."""
    torch.manual_seed(seed)
    head = nn.Linear(inputs, outputs)
    nn.init.zeros_(head.bias)
    return head


def mlp(inputs: int, outputs: int, seed: int, width: int = 512) -> nn.Module:
    """One hidden layer."""
    torch.manual_seed(seed)
    return nn.Sequential(nn.Linear(inputs, width), nn.ReLU(), nn.Linear(width, outputs))


def spread(values: list[float], digits: int = 2) -> str:
    """Mean over seeds ± half of the 95 % interval (Student)."""
    from scipy.stats import t

    half = t.ppf(0.975, len(values) - 1) * np.std(values, ddof=1) / np.sqrt(len(values))
    return f"{np.mean(values):.{digits}f} ± {half:.{digits}f}"


def markdown(header: list[str], rows: list[list[str]]) -> str:
    """A table for the documentation."""
    lines = [header, ["---"] * len(header), *rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)
