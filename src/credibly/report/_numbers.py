"""The report's tables: methods side by side, and every label of each."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np

from credibly import metrics
from credibly.predictions import Predictions

ROWS_FOR_INTERVALS = 20_000


@dataclass(frozen=True)
class Headline:
    """One column of the comparison; ``name`` as ``metrics.summary`` gives it."""

    name: str
    what: str
    better: str
    percent: bool = True


HEADLINES = (
    Headline("mAP@y", "mean over labels of average precision", "higher"),
    Headline("mAP@x", "mean over rows of average precision", "higher"),
    Headline("ACE", "mean gap between probability and frequency, over bins", "lower"),
    Headline("MCE", "largest such gap, over bins with 30 entries or more", "lower"),
    Headline("NLL", "log loss an entry", "lower", False),
    Headline("Brier", "mean squared error of the probabilities", "lower", False),
)


@dataclass(frozen=True)
class Cell:
    """A number with its interval, ready to show."""

    estimate: float
    low: float
    high: float
    percent: bool
    best: bool = False

    @property
    def text(self) -> str:
        return self._show(self.estimate)

    @property
    def interval(self) -> str:
        return f"{self._show(max(self.low, 0.0))} – {self._show(self.high)}"

    def _show(self, value: float) -> str:
        if np.isnan(value):
            return "–"
        return f"{100 * value:.1f}" if self.percent else f"{value:.4f}"


def comparison(
    methods: Mapping[str, Predictions], *, resamples: int = 200, seed: int = 0
) -> dict[str, list[Cell]]:
    """Headline numbers of each method with 95 % intervals (bootstrap over rows)."""
    table = {
        name: _cells(one, resamples, seed)
        for name, one in methods.items()
        if one.targets is not None
    }
    return _marked(table) if len(table) > 1 else table


def _cells(one: Predictions, resamples: int, seed: int) -> list[Cell]:
    """Estimates from every row; intervals of large files from a sample, narrowed to its size."""
    rows = np.arange(len(one))
    if len(one) > ROWS_FOR_INTERVALS:
        rows = np.random.default_rng(seed).choice(len(one), ROWS_FOR_INTERVALS, replace=False)
    few = one[rows]
    assert one.targets is not None, "only judged methods are compared"
    assert few.targets is not None
    found = metrics.summary_intervals(
        few.probabilities, few.targets, few.scores, resamples=resamples, seed=seed, coding="unknown"
    )
    whole = metrics.summary(one.probabilities, one.targets, one.scores, coding="unknown")
    narrower = np.sqrt(len(few) / max(len(one), 1))
    cells = []
    for headline in HEADLINES:
        estimate = whole.get(headline.name, np.nan)
        near = found.get(headline.name, metrics.Interval(np.nan, np.nan, np.nan))
        low, high = ((edge - near.estimate) * narrower + estimate for edge in near[1:])
        cells.append(Cell(estimate, low, high, headline.percent))
    return cells


def _marked(table: dict[str, list[Cell]]) -> dict[str, list[Cell]]:
    """The best of each column, marked."""
    marked = {name: list(cells) for name, cells in table.items()}
    for place, headline in enumerate(HEADLINES):
        values = np.array([cells[place].estimate for cells in table.values()])
        if np.isnan(values).all():
            continue
        best = np.nanmax(values) if headline.better == "higher" else np.nanmin(values)
        for name, cells in table.items():
            cell = cells[place]
            marked[name][place] = replace(cell, best=cell.estimate == best)
    return marked


@dataclass(frozen=True)
class LabelRow:
    """One label of one method."""

    label: str
    present: int
    expected: float
    average_precision: float
    error: float
    log_loss: float


def label_rows(one: Predictions) -> list[LabelRow]:
    """Every label: how often it is there, how often that was expected, how well it is ranked."""
    p, y = one.probabilities, one.targets
    if y is None:
        return [
            LabelRow(name, 0, float(p[:, t].sum(dtype=np.float64)), np.nan, np.nan, np.nan)
            for t, name in enumerate(one.labels)
        ]
    known = y >= 0
    present = np.where(known, y, 0).sum(0, dtype=np.float64)
    expected = np.where(known, p, 0).sum(0, dtype=np.float64)
    precision = metrics.average_precision(p, y, coding="unknown")
    errors = metrics.calibration_error(p, y, "ace", 10, 10, average=None, coding="unknown")
    losses = metrics.log_loss(p, y, average=None, coding="unknown")
    columns = zip(one.labels, present, expected, precision, errors, losses, strict=True)
    return [
        LabelRow(n, int(a), float(b), float(c), float(d), float(e)) for n, a, b, c, d, e in columns
    ]
