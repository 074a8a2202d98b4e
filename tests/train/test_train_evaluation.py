"""The judge of epochs: nearly the full affine map's log loss, whatever is unknown."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from credibly import calibrate, losses, metrics
from credibly.runtime import sigmoid
from credibly.train import recipe
from credibly.train.distributed import ENTRIES_TO_FIT, EpochEvaluator


@pytest.fixture
def rows() -> tuple[torch.Tensor, np.ndarray]:
    noise = np.random.default_rng(0)
    truth = noise.normal(-2, 2, (3 * ENTRIES_TO_FIT // 100, 100))
    targets = (noise.random(truth.shape) < 1 / (1 + np.exp(-truth))).astype(np.float32)
    return torch.from_numpy(3 * truth + 1), targets


def full(scores: torch.Tensor, targets: np.ndarray) -> float:
    odds = calibrate.Affine().fit(scores.numpy(), targets).transform(scores.numpy())
    return float(metrics.log_loss(sigmoid(odds), targets))


def test_some_rows_settle_the_map(rows: tuple[torch.Tensor, np.ndarray]) -> None:
    scores, targets = rows
    found = EpochEvaluator(recipe(), None, targets)(losses.BCE(), scores)["nll"]
    assert found == pytest.approx(full(scores, targets), rel=1e-3)


def test_rows_of_unknowns_are_not_among_them(rows: tuple[torch.Tensor, np.ndarray]) -> None:
    scores, targets = rows
    targets[::3] = -1  # every third: just the rows that an even choice of all would take
    found = EpochEvaluator(recipe(), None, targets)(losses.BCE(), scores)["nll"]
    assert found == pytest.approx(full(scores, targets), rel=1e-3)
