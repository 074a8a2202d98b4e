"""Charts as inline SVG that follows the page's colours, each with the numbers behind it."""

from __future__ import annotations

import io
import re
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from credibly import metrics, plot
from credibly.plot import _style
from credibly.predictions import Predictions
from credibly.types import Array

if TYPE_CHECKING:
    from matplotlib.figure import Figure

CONDITIONS, ROWS_FOR_SEARCH, PAIRED = 5, 20_000, 20
# A chart is drawn once; its neutral colours become variables, so that it is readable on white,
# on black and on paper.
_THEMED = {_style.INK: "var(--ink)", _style.MUTED: "var(--muted)", _style.GRID: "var(--grid)"}


@dataclass(frozen=True)
class Chart:
    """One figure of the report."""

    title: str
    alt: str
    svg: str
    columns: Sequence[str]
    rows: Sequence[Sequence[Any]]


def svg(figure: Figure, name: str, alt: str) -> str:
    """A figure as an SVG element, with text as text and no identifiers shared between charts."""
    import matplotlib as mpl

    text = io.StringIO()
    with (
        mpl.rc_context({"svg.fonttype": "none", "svg.hashsalt": name}),
        warnings.catch_warnings(),
    ):
        # The reader's fonts draw the text, whatever its script; those here only measure it.
        warnings.filterwarnings("ignore", r"Glyph \d+ .*missing from font", UserWarning)
        figure.savefig(text, format="svg", transparent=True, metadata={"Date": None})
    drawing = text.getvalue()
    drawing = drawing[drawing.index("<svg") :]
    drawing = re.sub(r'(<svg[^>]*?) width="[^"]*"', r"\1", drawing, count=1)
    drawing = re.sub(r'(<svg[^>]*?) height="[^"]*"', r"\1", drawing, count=1)
    drawing = re.sub(r"<metadata>.*?</metadata>", "", drawing, flags=re.DOTALL)
    drawing = re.sub(r'(id="|url\(#|xlink:href="#|href="#)', rf"\g<1>{name}-", drawing)
    for colour, variable in _THEMED.items():
        drawing = drawing.replace(colour, variable)
    drawing = drawing.replace("fill: #000000", "fill: var(--ink)")
    drawing = drawing.replace("<text ", '<text fill="var(--ink)" ')
    from html import escape

    return drawing.replace("<svg ", f'<svg role="img" aria-label="{escape(alt, quote=True)}" ', 1)


class Judged(NamedTuple):
    """Predictions whose truth is known."""

    predictions: Predictions
    targets: Array

    @property
    def probabilities(self) -> Array:
        return self.predictions.probabilities


def charts(methods: Mapping[str, Predictions]) -> list[Chart]:
    """Every chart that the predictions allow."""
    judged = {
        name: Judged(one, one.targets) for name, one in methods.items() if one.targets is not None
    }
    if not judged:
        return []
    first, one = next(iter(judged.items()))
    hard = {name: one for name, one in judged.items() if one.targets.dtype == np.int8}
    search = [_retrieval(hard), _hits(hard)] if hard else []
    return [
        _reliability(judged),
        _coverage(judged),
        *search,
        _sizes(first, one.predictions),
        _label_errors(first, one),
    ]


def _reliability(methods: Mapping[str, Judged]) -> Chart:
    ax, rows = None, []
    for name, one in methods.items():
        ax = plot.reliability(one.probabilities, one.targets, name=name, ax=ax, coding="unknown")
        found = metrics.reliability(one.probabilities, one.targets, coding="unknown")
        for k, count in enumerate(found.counts):
            if count:
                edge = f"{found.edges[k]:.2f}–{found.edges[k + 1]:.2f}"
                figures = (found.confidence[k], found.frequency[k], found.lower[k], found.upper[k])
                rows.append([name, edge, int(count), *(f"{value:.3f}" for value in figures)])
    assert ax is not None
    alt = "Reliability diagram: share present against probability given, for " + ", ".join(methods)
    columns = ["method", "bin", "count", "mean probability", "share present", "low", "high"]
    return Chart(
        "Does 80 % mean 80 %?",
        alt,
        svg(_style.figure_of(ax), "reliability", alt),
        columns,
        rows,
    )


def _label_errors(name: str, one: Judged) -> Chart:
    names = one.predictions.labels
    drawn = plot.labels(one.probabilities, one.targets, names, coding="unknown")
    errors = metrics.calibration_error(
        one.probabilities, one.targets, "ace", 10, 10, average=None, coding="unknown"
    )
    order = np.argsort(-np.nan_to_num(errors, nan=-1.0), kind="stable")[: len(drawn)]
    rows = [[names[t], f"{100 * errors[t]:.1f}"] for t in order]
    alt = f"Reliability diagrams of the {len(drawn)} labels of {name} with the largest gaps"
    picture = svg(_style.figure_of(drawn[0]), "labels", alt)
    return Chart(f"The least calibrated labels ({name})", alt, picture, ["label", "ACE (%)"], rows)


def _coverage(methods: Mapping[str, Judged]) -> Chart:
    ax, rows = None, []
    budgets = [0.5, 1, 1.5, 2, 3, 4, 5, 7.5, 10]
    for name, one in methods.items():
        sizes = [size for size in budgets if size <= one.predictions.num_labels]
        ax = plot.coverage(
            one.probabilities, one.targets, sizes=sizes, name=name, ax=ax, coding="unknown"
        )
        covered = np.asarray(ax.lines[-1].get_ydata(), dtype=float)
        pairs = zip(sizes, covered, strict=True)
        rows += [[name, size, f"{100 * value:.1f}"] for size, value in pairs]
    assert ax is not None
    alt = "Share of true labels inside the sets against average set size"
    picture = svg(_style.figure_of(ax), "coverage", alt)
    return Chart("What a label budget buys", alt, picture, ["method", "size", "covered (%)"], rows)


def _retrieval(methods: Mapping[str, Judged]) -> Chart:
    ax, rows = None, []
    for name, one in methods.items():
        most = min(CONDITIONS, one.predictions.num_labels)
        few = slice(None, ROWS_FOR_SEARCH)
        found = metrics.retrieval_map(
            one.probabilities[few], one.targets[few], most, budget_seconds=2.0, coding="unknown"
        )
        shown = {count: value for count, value in found.by_conditions.items() if value == value}
        ax = plot.retrieval(shown, name=name, ax=ax)
        rows += [
            [name, count, f"{100 * value:.1f}", found.counts[count]]
            for count, value in shown.items()
        ]
    assert ax is not None
    alt = "Mean average precision of searches against the number of conditions in the query"
    columns = ["method", "conditions", "mAP (%)", "queries"]
    picture = svg(_style.figure_of(ax), "retrieval", alt)
    return Chart("How search holds up as queries grow", alt, picture, columns, rows)


def _hits(methods: Mapping[str, Judged]) -> Chart:
    """Every label, and pairs of the most frequent ones, wanted together."""
    ax, rows = None, []
    for name, one in methods.items():
        known = one.targets >= 0
        p = np.where(known, one.probabilities, 0).astype(np.float64)
        y = (one.targets == 1).astype(np.float64)
        frequent = np.argsort(-y.sum(0), kind="stable")[:PAIRED]
        first, second = np.triu_indices(len(frequent), 1)
        pairs = frequent[first], frequent[second]
        expected = [*p.sum(0), *(p.T @ p)[pairs]]
        real = [*y.sum(0), *(y.T @ y)[pairs]]
        ax = plot.hits(expected, real, name=name, ax=ax)
        for kind, part in (("one label", slice(p.shape[1])), ("two", slice(p.shape[1], None))):
            total = sum(real[part])
            share = f"{sum(expected[part]) / total:.2f}" if total else "–"
            rows.append([name, kind, f"{sum(expected[part]):.0f}", int(total), share])
    assert ax is not None
    alt = "Expected against real number of hits, a point a query of one or two wanted labels"
    columns = ["method", "query", "expected", "real", "ratio"]
    picture = svg(_style.figure_of(ax), "hits", alt)
    return Chart("Does search know how much it will find?", alt, picture, columns, rows)


def _sizes(name: str, one: Predictions) -> Chart:
    sets = one.probabilities >= 0.5
    ax = plot.set_sizes(sets)
    counts = np.bincount(sets.sum(1))
    alt = f"How many labels {name} gives at a threshold of one half"
    picture = svg(_style.figure_of(ax), "sizes", alt)
    rows = [["no label" if size == 0 else size, int(count)] for size, count in enumerate(counts)]
    return Chart(
        f"How many labels a row gets at one half ({name})", alt, picture, ["labels", "rows"], rows
    )
