"""Draw the pictures of docs/guide: a loss and its link, what a map can do, a guarantee.

python -m benchmarks.ideas docs/img
"""

from __future__ import annotations

import sys
from pathlib import Path

import matplotlib as mpl
import numpy as np
import torch
from matplotlib.figure import Figure
from scipy.special import expit

import credibly as cr

RATE = 0.2
ROWS, DRAWS = 400, 300
BLUE, ORANGE, GRAY = "#3f51b5", "#d0843a", "#999999"


def main(folder: Path) -> None:
    mpl.rcParams["svg.hashsalt"] = "credibly"
    for name, draw in (("link", link), ("map", calibration), ("guarantee", guarantee)):
        figure = Figure(figsize=(5.2, 3), layout="constrained")
        draw(figure.subplots())
        figure.savefig(folder / f"idea-{name}.svg", metadata={"Date": None})


def link(axis: mpl.axes.Axes) -> None:
    """Expected loss of a label with rate 0.2, over what its scores are read as."""
    loss = cr.losses.Asymmetric(gamma_neg=4, gamma_pos=0)
    scores = torch.linspace(-6, 4, 2001, dtype=torch.float64)[:, None]
    ones, zeros = torch.ones_like(scores), torch.zeros_like(scores)
    expected = RATE * loss.values(scores, ones) + (1 - RATE) * loss.values(scores, zeros)
    expected = expected.flatten().numpy()
    readings = {
        "read by a sigmoid": expit(scores.flatten().numpy()),
        "read by the loss's own link": loss.probabilities(scores).flatten().numpy(),
    }
    for (name, values), colour in zip(readings.items(), (ORANGE, BLUE), strict=True):
        axis.plot(values, expected, color=colour, label=name)
        best = values[expected.argmin()]
        axis.plot([best], [expected.min()], "o", color=colour)
        axis.annotate(f"{best:.2f}", (best, expected.min()), (4, 6), textcoords="offset points")
    axis.axvline(RATE, color=GRAY, linewidth=1, linestyle="--")
    axis.set(xlim=(0, 1), ylim=(0.9 * expected.min(), 3 * expected.min()))
    axis.set(xlabel="probability", ylabel="expected loss", title="Asymmetric loss, true rate 0.2")
    axis.legend(frameon=False)


def calibration(axis: mpl.axes.Axes) -> None:
    """An overconfident model before and after an affine map: the same order of rows."""
    noise = np.random.default_rng(0)
    odds = noise.normal(-1, 1.5, (8000, 1))
    truth = (noise.random(odds.shape) < expit(odds)).astype(np.int8)
    scores = 3 * odds + 1
    fitted = cr.calibrate.Affine().fit(scores[:4000], truth[:4000])
    shown = {
        "sigmoid": expit(scores[4000:]),
        "after the map": expit(fitted.transform(scores[4000:])),
    }
    axis.plot([0, 1], [0, 1], color=GRAY, linewidth=1, linestyle="--")
    for (name, values), colour in zip(shown.items(), (ORANGE, BLUE), strict=True):
        place = np.minimum((values * 10).astype(int), 9)
        means = [[each[place == b].mean() for b in range(10)] for each in (values, truth[4000:])]
        precision = cr.metrics.mean_average_precision(values, truth[4000:])
        axis.plot(*means, marker="o", color=colour, label=f"{name}: AP {precision:.3f}")
    axis.set(xlim=(0, 1), ylim=(0, 1), title="A map mends the numbers, not the order")
    axis.set(xlabel="probability given", ylabel="share that was present")
    axis.legend(frameon=False)


def guarantee(axis: mpl.axes.Axes) -> None:
    """Recall on new rows over draws of the held-out rows, with and without a guarantee."""
    noise = np.random.default_rng(0)
    odds = noise.normal(-1, 2, (20_000, 5))
    truth = (noise.random(odds.shape) < expit(odds)).astype(np.int8)
    chances, new = expit(odds), slice(10_000, None)
    found: dict[str, list[float]] = {"on average": [], "in 9 of 10 draws": []}
    for _ in range(DRAWS):
        rows = noise.choice(10_000, ROWS, replace=False)
        rules = cr.decide.Recall(0.8), cr.decide.Recall(0.8, guarantee=("probability", 0.1))
        for name, rule in zip(found, rules, strict=True):
            rule.fit(chances[rows], truth[rows])
            sets = rule.predict(chances[new])
            having = truth[new].any(axis=1)
            hits = (sets & (truth[new] == 1)).sum(axis=1)[having] / truth[new].sum(axis=1)[having]
            found[name].append(float(hits.mean()))
    bins = np.linspace(0.74, 0.88, 29)
    for (name, values), colour in zip(found.items(), (ORANGE, BLUE), strict=True):
        axis.hist(values, bins, color=colour, alpha=0.6, label=f"0.8 {name}")
    axis.axvline(0.8, color=GRAY, linewidth=1, linestyle="--")
    axis.set(xlabel="recall on new rows", ylabel="draws", title=f"{ROWS} held-out rows, drawn anew")
    axis.legend(frameon=False)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
