"""A linear head trained by ASL as its official code does it (weights detached), then rescued.

PASCAL VOC 2012, frozen features, official split; 80 % of the training rows fit the head, 20 %
select its best epoch by mAP and fit the calibrator, the validation rows judge.
``python -m benchmarks.studies.rescue_voc``
"""

from __future__ import annotations

import numpy as np
from torch import nn

from benchmarks.studies.training import data_file, linear, markdown, scores_of, spread, train
from credibly import calibrate, metrics
from credibly.calibrate.auto import fit_by_name
from credibly.losses import Asymmetric

SEEDS = range(5)
NUMBERS = ["ACE, %", "macro ACE, %", "NLL × 1000", "mAP@y, %"]


def main() -> None:
    stored = np.load(data_file("voc2012.npz"), allow_pickle=False)
    features = stored["features"].astype(np.float32)
    targets = stored["targets"].astype(np.float32)
    found = [_one(features, targets, stored["split"], seed) for seed in SEEDS]
    rows = []
    for stage in found[0]:
        values = [[run[stage][number] for run in found] for number in NUMBERS]
        rows.append([stage, *(spread(list(each), 1) for each in values)])
    print(markdown(["probabilities", *NUMBERS], rows))


def _one(
    features: np.ndarray, targets: np.ndarray, split: np.ndarray, seed: int
) -> dict[str, dict[str, float]]:
    rows = np.random.default_rng(seed).permutation(np.flatnonzero(split == 0))
    held, fit, test = rows[: len(rows) // 5], rows[len(rows) // 5 :], split == 1
    loss = Asymmetric(detach_weight=True)
    head = linear(features.shape[1], targets.shape[1], seed)

    def precision(head: nn.Module) -> float:
        return float(metrics.mean_average_precision(scores_of(head, features[held]), targets[held]))

    train(head, loss, features[fit], targets[fit], seed=seed, epochs=60, judge=precision)
    judged, fitting = scores_of(head, features[test]), scores_of(head, features[held])
    right = loss.log_odds(judged).numpy()
    stages = {
        "sigmoid of the scores": judged.numpy(),
        "the paper's φ": Asymmetric(detach_weight=False).log_odds(judged).numpy(),
        "right link": right,
    }
    for name in ("temperature", "affine", "beta", "per-label", "isotonic"):
        fitted = calibrate.from_name(name).fit(loss.log_odds(fitting), targets[held])
        stages[f"right link + {name}"] = fitted.transform(right)
    chosen = fit_by_name("auto", loss.log_odds(fitting), targets[held])
    stages["right link + chosen"] = chosen.transform(right)
    print(f"seed {seed}: chose {chosen.name}", flush=True)
    direct = calibrate.Affine().fit(fitting, targets[held])
    stages["affine on the scores, no link"] = direct.transform(judged.numpy())
    return {name: _judge(values, targets[test], judged) for name, values in stages.items()}


def _judge(log_odds: np.ndarray, truth: np.ndarray, scores: object) -> dict[str, float]:
    with np.errstate(over="ignore"):
        probabilities = (1 / (1 + np.exp(-log_odds))).astype(np.float32)
    ace = metrics.calibration_error(probabilities, truth, "ace", min_count=30)
    macro = metrics.calibration_error(probabilities, truth, "ace", min_count=30, average="macro")
    ranked = metrics.mean_average_precision(scores, truth)
    loss = metrics.log_loss(probabilities, truth)
    values = (100 * ace, 100 * macro, 1000 * loss, 100 * ranked)
    return dict(zip(NUMBERS, map(float, values), strict=True))


if __name__ == "__main__":
    main()
