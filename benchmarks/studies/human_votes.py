"""Are probabilities calibrated to what people say? CIFAR-10 test images with human vote shares.

Heads trained on hard labels of 80 % of the training rows, calibrators on hard labels of the other
20 %; both are judged against the share of human votes for each class on the test rows.
``python -m benchmarks.studies.human_votes [HEAD …]``
"""

from __future__ import annotations

import sys

import numpy as np
import torch
from scipy.optimize import minimize_scalar
from scipy.special import log_softmax

from benchmarks.studies.training import data_file, linear, markdown, mlp, scores_of, spread, train
from credibly import calibrate, metrics
from credibly.losses.softmax import Softmax

SEEDS = range(3)
NUMBERS = ["KL of rows × 1000", "KL of entries × 1000", "ACE, %", "NLL of true class × 1000"]
HEADS = {"linear": linear, "MLP 512": mlp}


def main() -> None:
    stored = np.load(data_file("cifar10h.npz"), allow_pickle=False)
    features = stored["features"].astype(np.float32)
    features /= features[stored["split"] == 0].std()
    shares = stored["human_probabilities"].astype(np.float64)
    rows = []
    for name in sys.argv[1:] or HEADS:
        found = [
            _one(name, features, stored["targets"].astype(np.int64), shares, stored["split"], seed)
            for seed in SEEDS
        ]
        for stage in found[0]:
            values = [[run[stage][number] for run in found] for number in NUMBERS]
            rows.append([name, stage, *(spread(list(each), 1) for each in values)])
    print(markdown(["head", "probabilities", *NUMBERS], rows))


def _one(
    name: str,
    features: np.ndarray,
    classes: np.ndarray,
    shares: np.ndarray,
    split: np.ndarray,
    seed: int,
) -> dict[str, dict[str, float]]:
    rows = np.random.default_rng(seed).permutation(np.flatnonzero(split == 0))
    held, fit, test = rows[: len(rows) // 5], rows[len(rows) // 5 :], split == 1
    head = HEADS[name](features.shape[1], 10, seed)
    train(head, Softmax(), features[fit], classes[fit], seed=seed, epochs=10)
    fitting, judged = scores_of(head, features[held]), scores_of(head, features[test])
    temperature = _softmax_temperature(fitting.numpy(), classes[held])
    stages = {
        "softmax": torch.softmax(judged, 1).numpy(),
        "softmax at a fitted temperature": torch.softmax(judged / temperature, 1).numpy(),
    }
    loss = Softmax()
    for map_ in ("temperature", "affine", "beta", "per-label", "isotonic"):
        fitted = calibrate.from_name(map_).fit(loss.log_odds(fitting), classes[held])
        stages[map_] = 1 / (1 + np.exp(-fitted.transform(loss.log_odds(judged)).numpy()))
    return {
        stage: _judge(probabilities, shares[test], classes[test])
        for stage, probabilities in stages.items()
    }


def _softmax_temperature(scores: np.ndarray, classes: np.ndarray) -> float:
    """The peer: one temperature inside the softmax, by log loss."""

    def cost(log_temperature: float) -> float:
        rows = log_softmax(scores / np.exp(log_temperature), axis=1)
        return -rows[np.arange(len(classes)), classes].mean()

    return float(np.exp(minimize_scalar(cost, bounds=(-4, 4), method="bounded").x))


def _judge(probabilities: np.ndarray, shares: np.ndarray, classes: np.ndarray) -> dict[str, float]:
    shares = shares / shares.sum(axis=1, keepdims=True)
    rows = probabilities / probabilities.sum(axis=1, keepdims=True)
    values = (
        1000 * metrics.kl_to_truth(rows, shares, exclusive=True),
        1000 * metrics.kl_to_truth(probabilities, shares),
        100 * metrics.calibration_error(probabilities, shares, "ace", min_count=30),
        -1000 * np.log(rows[np.arange(len(classes)), classes]).mean(),
    )
    return dict(zip(NUMBERS, map(float, values), strict=True))


if __name__ == "__main__":
    main()
