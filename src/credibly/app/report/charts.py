"""Charts as inline SVG that follows the page's colours, each with the numbers behind it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from credibly import metrics, plot
from credibly.metrics.calibration import Reliability
from credibly.metrics.summaries import MIN_COUNT
from credibly.plot.label_sets import coverage_curve, coverage_line
from credibly.plot.svg_text import svg
from credibly.predictions import Predictions
from credibly.retrieve import Joint
from credibly.retrieve.joint.pairs import JointTally
from credibly.targets import Targets
from credibly.types import Array

CONDITIONS, ROWS_FOR_SEARCH, PAIRED = 5, 20_000, 20


@dataclass(frozen=True)
class Chart:
    """One figure of the report."""

    title: str
    alt: str
    svg: str
    columns: Sequence[str]
    rows: Sequence[Sequence[Any]]


class WithTruth(NamedTuple):
    """Predictions whose truth is known."""

    predictions: Predictions
    truth: Targets

    @property
    def probabilities(self) -> Array:
        return self.predictions.probabilities


def charts(methods: Mapping[str, Predictions], joint: Joint | None = None) -> list[Chart]:
    """Return every chart that the predictions allow; ``joint`` says which labels go together."""
    judged = {
        name: WithTruth(one, Targets(one.targets))
        for name, one in methods.items()
        if one.targets is not None
    }
    if not judged:
        return []
    first, one = next(iter(judged.items()))
    hard = {name: one for name, one in judged.items() if one.truth.matrix.dtype == np.int8}
    search = [_retrieval(hard), _hits(hard)] if hard else []
    if hard and len(one.predictions.labels) > 1:
        name, both = next(iter(hard.items()))
        search += _together(name, both, Joint.independent(both.predictions.labels), "")
        if joint is not None:
            search += _together(name, both, joint, ", joint model")
    return [
        _reliability(judged),
        _coverage(judged),
        *search,
        _sizes(first, one.predictions),
        _label_errors(first, one),
    ]


def _reliability(methods: Mapping[str, WithTruth]) -> Chart:
    ax, rows = None, []
    for name, one in methods.items():
        ax = plot.reliability(one.probabilities, one.truth, name=name, ax=ax)
        found = metrics.reliability(one.probabilities, one.truth)
        rows += reliability_rows(name, found)
    assert ax is not None
    alt = "Reliability diagram: share present against probability given, for " + ", ".join(methods)
    columns = ["method", "bin", "count", "mean probability", "share present", "low", "high"]
    return Chart(
        "Does 80 % mean 80 %?",
        alt,
        svg(ax, "reliability", alt),
        columns,
        rows,
    )


def reliability_rows(name: str, found: Reliability) -> list[list[Any]]:
    """Return the numbers behind a reliability diagram, one row per bin that is not empty."""
    rows = []
    for k, count in enumerate(found.counts):
        if count:
            edge = f"{found.edges[k]:.2f}–{found.edges[k + 1]:.2f}"
            figures = (found.confidence[k], found.frequency[k], found.lower[k], found.upper[k])
            rows.append([name, edge, int(count), *(f"{value:.3f}" for value in figures)])
    return rows


def _label_errors(name: str, one: WithTruth) -> Chart:
    names = one.predictions.labels
    drawn = plot.labels(one.probabilities, one.truth, names)
    errors = metrics.calibration_error(
        one.probabilities, one.truth, "ace", min_count=MIN_COUNT, average=None
    )
    order = np.argsort(-np.nan_to_num(errors, nan=-1.0), kind="stable")[: len(drawn)]
    rows = [[names[t], f"{errors[t]:.4f}"] for t in order]
    alt = f"Reliability diagrams of the {len(drawn)} labels of {name} with the largest gaps"
    picture = svg(drawn[0], "labels", alt)
    return Chart(f"The least calibrated labels ({name})", alt, picture, ["label", "ACE"], rows)


def _coverage(methods: Mapping[str, WithTruth]) -> Chart:
    ax, rows = None, []
    budgets = [0.5, 1, 1.5, 2, 3, 4, 5, 7.5, 10]
    for name, one in methods.items():
        sizes = [size for size in budgets if size <= one.predictions.num_labels]
        covered = coverage_curve(one.probabilities, one.truth, sizes)
        ax = coverage_line(sizes, covered, name=name, ax=ax)
        pairs = zip(sizes, covered, strict=True)
        rows += [[name, size, f"{value:.4f}"] for size, value in pairs]
    assert ax is not None
    alt = "Share of true labels inside the sets against average set size"
    picture = svg(ax, "coverage", alt)
    return Chart("What a label budget buys", alt, picture, ["method", "size", "covered"], rows)


def _retrieval(methods: Mapping[str, WithTruth]) -> Chart:
    ax, rows = None, []
    for name, one in methods.items():
        most = min(CONDITIONS, one.predictions.num_labels)
        few = slice(None, ROWS_FOR_SEARCH)
        found = metrics.retrieval_map(
            one.probabilities[few], one.truth[few], most, budget_seconds=2.0
        )
        shown = {count: value for count, value in found.by_conditions.items() if value == value}
        ax = plot.retrieval(shown, name=name, ax=ax)
        rows += [
            [name, count, f"{value:.4f}", found.counts[count]] for count, value in shown.items()
        ]
    assert ax is not None
    alt = "Mean average precision of searches against the number of conditions in the query"
    columns = ["method", "conditions", "mAP", "queries"]
    picture = svg(ax, "retrieval", alt)
    return Chart("How search holds up as queries grow", alt, picture, columns, rows)


def _hits(methods: Mapping[str, WithTruth]) -> Chart:
    """Return every label, and pairs of the most frequent ones, wanted together."""
    ax, rows = None, []
    for name, one in methods.items():
        known = one.truth.matrix >= 0
        p = np.where(known, one.probabilities, 0).astype(np.float64)
        y = (one.truth.matrix == 1).astype(np.float64)
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
    alt = "Expected against real number of hits, one point per query of one or two wanted labels"
    columns = ["method", "query", "expected", "real", "ratio"]
    picture = svg(ax, "hits", alt)
    return Chart("Does search know how much it will find?", alt, picture, columns, rows)


def _together(name: str, one: WithTruth, joint: Joint, how: str) -> list[Chart]:
    """Return the map of label pairs: which are expected too often, and which too rarely."""
    labels = one.predictions.labels
    tally = JointTally(joint, labels)
    tally.update(one.probabilities[:ROWS_FOR_SEARCH], one.truth.matrix[:ROWS_FOR_SEARCH])
    found = tally.numbers()
    if found.expected_pairs is None or found.real_pairs is None or not found.rows:
        return []
    kind = "joint model" if how else "independent labels"
    rows: list[list[Any]] = [
        [key, f"{value:.3f}", "", ""] for key, value in found.numbers().items()
    ]
    rows += [
        [f"{first} + {second}", "", f"{expected:.1f}", real]
        for first, second, expected, real in found.pairs_missed(PAIRED)
    ]
    ax = plot.pairs(found.expected_pairs, found.real_pairs, labels)
    alt = (
        f"Expected over real number of rows with two labels, for pairs of labels of {name}, {kind}"
    )
    return [
        Chart(
            f"Which labels go together ({name}, {kind})",
            alt,
            svg(ax, "joint-pairs" if how else "pairs", alt),
            ["number or pair", "value", "expected", "real"],
            rows,
        )
    ]


def _sizes(name: str, one: Predictions) -> Chart:
    sets = one.probabilities >= 0.5
    ax = plot.set_sizes(sets)
    counts = np.bincount(sets.sum(1))
    alt = f"How many labels {name} gives at a threshold of one half"
    picture = svg(ax, "sizes", alt)
    rows = [["no label" if size == 0 else size, int(count)] for size, count in enumerate(counts)]
    return Chart(
        f"Labels per row at a threshold of one half ({name})",
        alt,
        picture,
        ["labels", "rows"],
        rows,
    )
