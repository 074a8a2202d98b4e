"""The numbers of several predictions beside each other, with intervals."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

import numpy as np

from credibly import metrics
from credibly.predictions import Predictions
from credibly.targets import Targets
from credibly.types import Array


@dataclass(frozen=True)
class Column:
    """One column of the comparison; ``name`` and scale as ``metrics.summary`` gives them."""

    name: str
    what: str
    better: str
    unit: str = "0 to 1"


COLUMNS = (
    Column("mAP@y", "mean over labels of average precision", "higher"),
    Column("mAP@x", "mean over rows of average precision", "higher"),
    Column("ACE", "mean gap between probability and frequency, over bins of 30 or more", "lower"),
    Column("MCE", "largest such gap, over the same bins", "lower"),
    Column("NLL", "log loss per entry", "lower", "nats"),
    Column("Brier", "mean squared error of the probabilities", "lower"),
)
"""The columns of a comparison, in order.

Every table of report, web app, command line and notebooks shows a metric on the scale on which
``credibly.metrics`` returns it.
"""


@dataclass(frozen=True)
class Cell:
    """A number with its interval, ready to show; ``best`` where it is clearly the best."""

    estimate: float
    low: float
    high: float
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
        return f"{value:.4f}"


def comparison(
    methods: Mapping[str, Predictions],
    *,
    resamples: int = 200,
    seed: int = 0,
    advance: Callable[[float], None] = lambda share: None,
) -> dict[str, list[Cell]]:
    """Return the numbers of each method with 95 % intervals, over all its rows.

    The best of a column is marked where it is clear: where the 95 % interval of its difference to
    every other method excludes 0. Methods with the same ids are compared row by row.

    Args:
        methods: predictions by name; those without truth are left out.
        resamples: resamples behind each interval.
        seed: seed of the resamples.
        advance: called with the share of the work done since its last call.
    """
    found: dict[str, metrics.Draws] = {}
    first: list[str] | None = None
    for place, (name, one) in enumerate(methods.items()):
        if one.targets is not None:
            ids = list(map(str, one.ids))
            first = ids if first is None else first
            # The same rows get the same weights, other rows weights of their own.
            stream = seed if ids == first else seed + 1000 * (place + 1)
            found[name] = metrics.summary_draws(
                one.probabilities,
                Targets(one.targets),
                one.scores,
                resamples=resamples,
                seed=stream,
            )
        advance(1 / len(methods))
    return comparison_table(found)


def comparison_table(found: Mapping[str, metrics.Draws]) -> dict[str, list[Cell]]:
    """Return the cells of each method from its draws, the best of each column marked if clear.

    Args:
        found: what ``metrics.summary_draws`` returns for each method, by name.
    """
    table = {name: [_cell(draws, column) for column in COLUMNS] for name, draws in found.items()}
    return _marked(table, found) if len(table) > 1 else table


def _cell(found: metrics.Draws, column: Column) -> Cell:
    draws = found.draws.get(column.name, np.full(1, np.nan))
    low, high = np.nan, np.nan
    if not np.isnan(draws).all():
        low, high = np.nanquantile(draws, [0.025, 0.975])
    estimate = found.estimates.get(column.name, np.nan)
    return Cell(estimate, float(low), float(high))


def _marked(
    table: dict[str, list[Cell]], found: Mapping[str, metrics.Draws]
) -> dict[str, list[Cell]]:
    marked = {name: list(cells) for name, cells in table.items()}
    for place, column in enumerate(COLUMNS):
        sign = 1.0 if column.better == "higher" else -1.0
        for name in table:
            others = [other for other in table if other != name]
            if all(_clear(sign, found[name], found[other], column.name) for other in others):
                marked[name][place] = replace(table[name][place], best=True)
    return marked


def _clear(sign: float, one: metrics.Draws, other: metrics.Draws, name: str) -> bool:
    if name not in one.draws or name not in other.draws:
        return False
    ahead: Array = sign * (one.draws[name] - other.draws[name])
    return not np.isnan(ahead).any() and bool(np.quantile(ahead, 0.025) > 0)
