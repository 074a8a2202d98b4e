"""The figures of the results, drawn from the finished runs alone."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from benchmarks.claims import average_k, calibrated, diagram, networks, normalizer
from benchmarks.claims.calibrated.tables import RECIPES
from benchmarks.claims.runner import Book
from benchmarks.claims.tables import Results, difference, mean
from credibly.plot import style

if TYPE_CHECKING:
    from matplotlib.axes import Axes

MAPS = {
    "sigmoid": "ASL detached, sigmoid",
    "φ of the paper": "ASL detached, φ",
    "its own link": "ASL detached, right link",
    "link + affine map": "ASL detached, right link + affine",
    "BCE, link + affine map": "BCE, prior bias + affine",
}
"""How ASL scores become probabilities, and the default beside them."""


def draw(results: dict[str, Results], book: Book, folder: Path) -> dict[str, str]:
    """Draw every figure whose runs are there, and return what each shows, by name of the file."""
    folder.mkdir(parents=True, exist_ok=True)
    figures = {
        "maps": ("ACE of ASL scores by the map to probabilities", _maps(results["several"])),
        "biases": ("SPA minus BCE by initial biases", _biases(results["networks"])),
        "retrieval": ("mAP by number of conditions", _retrieval(results["calibrated"])),
        "average-k": ("gain over cross-entropy by K", _average_k(results["average_k"])),
        "diagram": ("reliability of the four most probable labels", _diagram(book.folder)),
        "normalizer": ("log C during training", _normalizer(normalizer.read(book.folder))),
    }
    drawn = {name: (alt, axes) for name, (alt, axes) in figures.items() if axes is not None}
    for name, (_, axes) in drawn.items():
        _save(axes, folder / f"{name}.svg")
    return {name: alt for name, (alt, _) in drawn.items()}


def _maps(results: Results) -> Axes | None:
    setups = [*calibrated.SETUPS, *networks.SETUPS]
    axes = style.axes(None, 5, 4)
    for row, recipe in enumerate(MAPS.values()):
        method, reading = RECIPES[recipe]
        found = [mean(results.values(s, method, "readings", reading, "ACE")) for s in setups]
        known = np.array([value for value in found if np.isfinite(value)])
        if not len(known):
            return None
        colour = style.colour(row)
        axes.plot(known, np.full(len(known), row), "o", color=colour, markersize=4, alpha=0.6)
        axes.plot(known.mean(), row, "|", color=colour, markersize=26, markeredgewidth=3)
    axes.set_yticks(range(len(MAPS)), list(MAPS))
    axes.invert_yaxis()
    axes.set_xlim(0)
    axes.set_xlabel("ACE, %; a dot per data set, the line is their mean")
    axes.set_title("The same ASL scores as probabilities", fontsize=10)
    return axes


def _biases(results: Results) -> Axes | None:
    axes = style.axes(None, 5, 4)
    places: list[str] = []
    starts = (("zero", "spa", "bce"), ("labels' rates", "spa, prior", "bce, prior"))
    for setup in networks.SETUPS:
        for index, (start, spa, bce) in enumerate(starts):
            one, other = (results.values(setup, name, "mAP@y") for name in (spa, bce))
            gap = difference(one, other)
            if not gap.n:
                continue
            place, colour = len(places), style.colour(index)
            axes.plot([gap.low, gap.high], [place, place], color=colour, linewidth=2)
            axes.plot(gap.mean, place, "o", color=colour)
            places.append(f"{setup.replace('head start', 'probe first')}: {start}")
    if not places:
        return None
    axes.axvline(0, color=style.MUTED, linewidth=1)
    axes.set_yticks(range(len(places)), places)
    axes.invert_yaxis()
    axes.set_xlabel("mAP@y of SPA minus that of BCE, points, 95 %")
    axes.set_title("SPA against BCE by data and initial biases", fontsize=10)
    return axes


def _save(axes: Axes, path: Path) -> None:
    """The same bytes for the same drawing: no date, no random names."""
    from matplotlib import rc_context

    with rc_context({"svg.hashsalt": path.stem}):
        style.figure_of(axes).savefig(path, metadata={"Date": None}, bbox_inches="tight")


def _diagram(folder: Path) -> Axes | None:
    curves = diagram.read(folder)
    if not curves:
        return None
    axes = style.axes(None, 5, 4.5)
    axes.plot([0, 1], [0, 1], color=style.MUTED, linewidth=1)
    for name, curve in curves.items():
        enough = np.array(curve["counts"]) >= 30
        places, heights = (
            np.array(curve["confidence"])[enough],
            np.array(curve["frequency"])[enough],
        )
        colour = style.colour(style.series(axes))
        axes.plot(places, heights, "o-", color=colour, label=name, markersize=4)
    axes.set_xlabel("probability given to a label among the four most probable")
    axes.set_ylabel("how often it was there")
    style.legend(axes)
    return axes


def _retrieval(results: Results) -> Axes | None:
    setup = "voc2012, linear"
    axes = style.axes(None, 6, 4)
    for recipe in (
        "BCE, prior bias + affine",
        "BCE",
        "SPA",
        "SPA+LPR",
        "ASL detached, right link",
        "ASL detached, sigmoid",
    ):
        by_count = calibrated.retrieval(results, setup, recipe)
        heights = [mean(values) for values in by_count.values()]
        if np.isfinite(heights).all():
            colour = style.colour(style.series(axes))
            axes.plot(list(by_count), heights, "o-", color=colour, label=recipe, markersize=4)
    if not style.series(axes):
        return None
    axes.set_xticks(range(1, 6))
    axes.set_xlabel("conditions in the query")
    axes.set_ylabel("mAP of queries, %")
    axes.set_title("VOC 2012, linear head: raw scores lose with every condition", fontsize=10)
    style.legend(axes)
    return axes


def _average_k(results: Results) -> Axes | None:
    axes = style.axes(None, 6, 4)
    for data, (_, sizes) in average_k.SETUPS.items():
        for name in average_k.HEADS:
            gains = [
                mean(average_k.at(results, data, name, k))
                - mean(average_k.at(results, data, "ce", k))
                for k in sizes
            ]
            if np.isfinite(gains).all():
                colour = style.colour(style.series(axes))
                label = f"{data}, {name.removeprefix('avgk, ')}"
                axes.plot(sizes, gains, "o-", color=colour, label=label, markersize=4)
    if not style.series(axes):
        return None
    axes.axhline(0, color=style.MUTED, linewidth=1)
    axes.set_xlabel("K")
    axes.set_ylabel("average-K accuracy, points above cross-entropy")
    style.legend(axes)
    return axes


def _normalizer(curves: dict[str, list[float]]) -> Axes | None:
    if not curves:
        return None
    axes = style.axes(None, 6, 4)
    for name, curve in curves.items():
        steps = np.arange(1, len(curve) + 1)
        colour = style.colour(style.series(axes))
        axes.plot(steps[::4], curve[::4], color=colour, label=name, linewidth=1)
    axes.set_xlabel("step")
    axes.set_ylabel("log C; for softmax mean log Σ exp, rows centred")
    style.legend(axes)
    return axes
