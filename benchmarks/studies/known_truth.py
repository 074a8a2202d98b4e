"""Does an affine map bring probabilities nearer to the known truth, whatever the loss?

Linear heads on ``synthetic`` data, a loss each; the map is fitted on held-out rows and judged on
test rows by log loss and by the divergence from the true probabilities.
``python -m benchmarks.studies.known_truth [LOSS …]``
"""

from __future__ import annotations

import sys
from collections.abc import Callable

import numpy as np

from benchmarks.studies.training import linear, markdown, scores_of, spread, train
from credibly import calibrate, metrics
from credibly.data import synthetic
from credibly.losses import BCE, SPA, Asymmetric, Focal, Loss
from credibly.losses.quasibinary import Quasibinary
from credibly.losses.two_way import TwoWay
from credibly.losses.warp import Warp

SEEDS = range(5)
LOSSES: dict[str, Callable[[], Loss]] = {
    "BCE": BCE,
    "focal": Focal,
    "ASL": Asymmetric,
    "ASL, weights detached": lambda: Asymmetric(detach_weight=True),
    "SPA": SPA,
    "quasibinary": Quasibinary,
    "two-way (no link)": TwoWay,
    "WARP (no link)": Warp,
}
MAPS = ["none", "temperature", "affine", "beta", "per-label", "isotonic"]


def main() -> None:
    rows, details = [], []
    for name in sys.argv[1:] or LOSSES:
        found = [_one(name, seed) for seed in SEEDS]
        for kind, table in (("log loss", rows), ("KL", details)):
            values = {map_: [1000 * run[map_][kind] for run in found] for map_ in MAPS}
            change = [
                after - before
                for before, after in zip(values["none"], values["affine"], strict=True)
            ]
            cells = [f"{np.mean(values[map_]):.1f}" for map_ in MAPS]
            table.append([name, *cells, spread(change, 1)])
        print(name, "done", flush=True)
    header = ["loss", *MAPS, "affine − none, 95 % interval"]
    print("\nLog loss on test rows, × 1000\n\n" + markdown(header, rows))
    print("\nKL to the true probabilities on test rows, × 1000\n\n" + markdown(header, details))


def _one(name: str, seed: int) -> dict[str, dict[str, float]]:
    data = synthetic(8000, num_labels=20, num_features=40, curvature=0.5, seed=seed)
    assert data.features is not None
    assert data.truth is not None
    fit, test, held = (data.split == part for part in (0, 1, 2))
    features = data.features.astype(np.float32)
    loss = LOSSES[name]()
    head = linear(40, 20, seed)
    train(head, loss, features[fit], data.targets[fit], seed=seed, epochs=30, rate=3e-3)
    loss.eval()

    def log_odds(part: np.ndarray) -> np.ndarray:
        scores = scores_of(head, features[part])
        return (loss.log_odds(scores) if loss.has_link else scores).detach().numpy()

    result = {}
    for map_ in MAPS:
        fitted = calibrate.from_name(map_).fit(log_odds(held), data.targets[held])
        with np.errstate(over="ignore"):
            probabilities = 1 / (1 + np.exp(-fitted.transform(log_odds(test))))
        result[map_] = {
            "log loss": float(metrics.log_loss(probabilities, data.targets[test], floor=1e-7)),
            "KL": float(metrics.kl_to_truth(probabilities, data.truth[test], floor=1e-7)),
        }
    return result


if __name__ == "__main__":
    main()
