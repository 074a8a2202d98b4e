"""Draw the picture of the README: the same scores through a sigmoid, and through link and map.

    python -m benchmarks.figure docs/img/same-scores.svg

A linear model is trained with the asymmetric loss on the embedded synthetic data; half of the test
rows fit the map, the other half are drawn.
"""

from __future__ import annotations

import sys

import matplotlib as mpl
import numpy as np
import torch
from matplotlib.figure import Figure
from scipy.special import expit

import credibly as cr
from credibly.types import Array

BINS = 10
PANELS = ("sigmoid of the scores", "link of the loss + affine map", "expected and real hits")
PAIRS = 200


def main(path: str) -> None:
    scores, targets = _scores()
    half = len(scores) // 2
    pipeline = cr.Pipeline(
        "asl(gamma_neg=4, gamma_pos=0, detach_weight=true)", calibrator=cr.calibrate.Affine()
    ).fit(scores[:half], targets[:half])
    plain, ours = expit(scores[half:]), pipeline.probabilities(scores[half:])
    truth = targets[half:]
    mpl.rcParams["svg.hashsalt"] = "credibly"
    figure = Figure(figsize=(9, 3.1), layout="constrained")
    axes = figure.subplots(1, 3)
    for axis, estimates, title in zip(axes, (plain, ours), PANELS, strict=False):
        _reliability(axis, estimates, truth)
        axis.set(title=title, xlabel="probability given", ylabel="share that was present")
    _hits(axes[2], {"sigmoid": plain, "link + map": ours}, truth)
    figure.savefig(path, metadata={"Date": None})


def _scores() -> tuple[Array, Array]:
    rows = cr.data.synthetic(8000, seed=0)
    train, test = rows.part("train"), rows.part("test")
    torch.manual_seed(0)
    model = torch.nn.Linear(train.features.shape[1], rows.num_labels)
    loss = cr.losses.Asymmetric(gamma_neg=4, gamma_pos=0, detach_weight=True)
    optimizer = torch.optim.Adam(model.parameters(), 0.05)
    for _ in range(200):
        optimizer.zero_grad()
        loss(model(torch.tensor(train.features)), torch.tensor(train.targets)).backward()
        optimizer.step()
    with torch.no_grad():
        return model(torch.tensor(test.features)).double().numpy(), test.targets


def _reliability(axis: mpl.axes.Axes, estimates: Array, truth: Array) -> None:
    place = np.minimum((estimates * BINS).astype(int), BINS - 1)
    means = [[values[place == b].mean() for b in range(BINS)] for values in (estimates, truth)]
    axis.plot([0, 1], [0, 1], color="#999999", linewidth=1, linestyle="--")
    axis.plot(*means, marker="o", color="#3f51b5")
    ace = 100 * cr.metrics.calibration_error(estimates, truth, kind="ace")
    axis.text(0.05, 0.9, f"off by {ace:.1f} points", transform=axis.transAxes)
    axis.set(xlim=(0, 1), ylim=(0, 1))


def _hits(axis: mpl.axes.Axes, methods: dict[str, Array], truth: Array) -> None:
    """Pairs of labels: how many rows have both, and how many are expected to."""
    generator = np.random.default_rng(0)
    pairs = np.array([generator.choice(truth.shape[1], 2, replace=False) for _ in range(PAIRS)])
    real = (truth[:, pairs[:, 0]] * truth[:, pairs[:, 1]]).sum(axis=0)
    for (name, values), colour in zip(methods.items(), ("#d0843a", "#3f51b5"), strict=True):
        expected = (values[:, pairs[:, 0]] * values[:, pairs[:, 1]]).sum(axis=0)
        axis.plot(real, expected, ".", markersize=4, color=colour, label=name)
    most = axis.get_xlim()[1]
    axis.plot([0, most], [0, most], color="#999999", linewidth=1, linestyle="--")
    axis.set(title=PANELS[2], xlabel="rows that have both labels", ylabel="rows expected")
    axis.legend(loc="upper left", frameon=False)


if __name__ == "__main__":
    main(sys.argv[1])
