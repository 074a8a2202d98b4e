"""The numbers of several predictions beside each other, with intervals that pair the rows."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

import numpy as np

from credibly.app.statistics.labels import discoveries
from credibly.metrics.calibration import entry_log_loss
from credibly.metrics.intervals import Draws, summary_draws
from credibly.metrics.summaries import MIN_COUNT
from credibly.predictions import Predictions
from credibly.targets import Targets
from credibly.types import Array

Key = TypeVar("Key", str, int)


def names_of(paths: Sequence[Path]) -> list[str]:
    """Return file stems; where they repeat (``predictions.parquet`` of runs), their folders.

    Example:
        >>> names_of([Path("a/predictions.parquet"), Path("b/predictions.parquet")])
        ['a', 'b']
        >>> names_of([Path("x/mine.parquet"), Path("x/mine.parquet")])
        ['x/mine.parquet (1)', 'x/mine.parquet (2)']
    """
    parts = [path.resolve().parts for path in paths]
    choices = [[path.stem for path in paths], [each[-2] for each in parts]]
    # The shortest endings of the paths that differ.
    choices += [
        ["/".join(each[-n:]) for each in parts] for n in range(2, max(map(len, parts), default=0))
    ]
    for names in choices:
        if len(set(names)) == len(names) and set(names) != {"predictions"}:
            return names
    return [f"{path} ({number})" for number, path in enumerate(paths, start=1)]


@dataclass(frozen=True)
class SummaryColumn:
    """One column of the comparison; ``name`` and scale as ``metrics.summary`` gives them."""

    name: str
    words: str
    what: str
    better: str
    unit: str = "percent"


COLUMNS = (
    SummaryColumn(
        "mAP@y", "the ranking of rows", "mean over labels of average precision", "higher"
    ),
    SummaryColumn(
        "mAP@x", "the ranking of labels", "mean over rows of average precision", "higher"
    ),
    SummaryColumn(
        "ACE",
        "calibration",
        "mean gap between probability and frequency, over bins of 30 or more",
        "lower",
    ),
    SummaryColumn(
        "MCE", "calibration at its worst", "largest such gap, over the same bins", "lower"
    ),
    SummaryColumn("NLL", "log loss", "log loss per entry", "lower", "nats"),
    SummaryColumn(
        "Brier", "Brier score", "mean squared error of the probabilities", "lower", "0 to 1"
    ),
)
"""The columns of a comparison, in order.

Files, JSON, the command line and notebooks show a metric on the scale on which
``credibly.metrics`` returns it; report and web app show shares in percent.
"""


@dataclass(frozen=True)
class Cell:
    """A number with its interval; ``best`` where it is clearly the best."""

    estimate: float
    low: float
    high: float
    best: bool = False


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
    found: dict[str, Draws] = {}
    first: list[str] | None = None
    for place, (name, one) in enumerate(methods.items()):
        if one.targets is not None:
            ids = list(map(str, one.ids))
            first = ids if first is None else first
            # The same rows get the same weights, other rows weights of their own.
            stream = seed if ids == first else seed + 1000 * (place + 1)
            found[name] = summary_draws(
                one.probabilities,
                Targets(one.targets),
                one.scores,
                resamples=resamples,
                seed=stream,
            )
        advance(1 / len(methods))
    return comparison_table(found)


def comparison_table(found: Mapping[Key, Draws]) -> dict[Key, list[Cell]]:
    """Return the cells of each method from its draws, the best of each column marked if clear.

    Args:
        found: what ``metrics.summary_draws`` returns for each method, by name.
    """
    return {name: [_cell(name, column, found) for column in COLUMNS] for name in found}


def best_sentence(table: Mapping[str, Sequence[Cell]]) -> str:
    """Return which method is clearly best in what; empty for a single one.

    Example:
        >>> ours = [Cell(0.9, 0.8, 1.0, best=True), *[Cell(0.1, 0.0, 0.2)] * 5]
        >>> best_sentence({"ours": ours, "theirs": [Cell(0.5, 0.4, 0.6)] * 6})
        'ours is best in the ranking of rows. No other difference is clear.'
    """
    if len(table) < 2:
        return ""
    wins = {
        name: [column.words for column, cell in zip(COLUMNS, cells, strict=True) if cell.best]
        for name, cells in table.items()
    }
    won = [f"{name} is best in {_listing(names)}" for name, names in wins.items() if names]
    if not won:
        return "None of them is clearly better than the others."
    unclear = sum(map(len, wins.values())) < len(COLUMNS)
    return "; ".join(won) + "." + (" No other difference is clear." if unclear else "")


def _listing(names: Sequence[str]) -> str:
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"


def _cell(name: Key, column: SummaryColumn, found: Mapping[Key, Draws]) -> Cell:
    own = found[name]
    draws, low, high = own.draws.get(column.name, np.full(1, np.nan)), np.nan, np.nan
    if not np.isnan(draws).all():
        low, high = np.nanquantile(draws, [0.025, 0.975])
    others = [other for key, other in found.items() if key != name]
    best = [paired_difference(own, other, column).better > 0 for other in others]
    estimate = own.estimates.get(column.name, np.nan)
    return Cell(estimate, float(low), float(high), bool(best) and all(best))


_Z = 1.959963984540054  # 97.5 % quantile of the normal distribution


@dataclass(frozen=True)
class Difference:
    """A number of one method minus that of another.

    Attributes:
        estimate, low, high: the difference and its 95 % interval; NaN where it is not defined.
        better: 1 where the first method is clearly better, −1 where the second is, 0 otherwise.
    """

    estimate: float
    low: float
    high: float
    better: int

    @property
    def clear(self) -> bool:
        """Return whether the interval excludes 0."""
        return self.better != 0


def paired_difference(one: Draws, other: Draws, column: SummaryColumn) -> Difference:
    """Return one number of a method minus that of another, whose draws share their weights.

    Args:
        one, other: what ``metrics.summary_draws`` returns for the same rows in the same order, with
            the same seed.
        column: which number, and whether higher is better.

    Example:
        >>> rng = np.random.default_rng(0)
        >>> p = rng.random((500, 2))
        >>> y = (rng.random(p.shape) < p).astype(int)
        >>> right, wrong = summary_draws(p, y), summary_draws(1 - p, y)
        >>> nll = COLUMNS[4]
        >>> paired_difference(right, wrong, nll).better
        1
    """
    nothing = Difference(float("nan"), float("nan"), float("nan"), 0)
    if column.name not in one.draws or column.name not in other.draws:
        return nothing
    draws = one.draws[column.name] - other.draws[column.name]
    if np.isnan(draws).any():
        return nothing
    low, high = (float(value) for value in np.quantile(draws, [0.025, 0.975]))
    ahead = int(low > 0) - int(high < 0)
    return Difference(
        float(one.estimates[column.name] - other.estimates[column.name]),
        low,
        high,
        ahead if column.better == "higher" else -ahead,
    )


@dataclass(frozen=True)
class LabelDifferences:
    """Log loss of each label in one method minus that in another, (labels,) each.

    Attributes:
        estimate, low, high: mean difference over known rows, in nats, and its 95 % interval.
        better: 1 where the first method is clearly better, −1 where the second is; under a
            false-discovery rate of 5 % over all labels.
    """

    estimate: Array
    low: Array
    high: Array
    better: Array


def label_differences(one: Array, other: Array, targets: Array) -> LabelDifferences:
    """Return the differences in log loss of every label, row by row.

    Args:
        one, other: probabilities of the same rows, (rows, labels).
        targets: decoded, same shape; −1 is unknown.

    Example:
        >>> rng = np.random.default_rng(0)
        >>> p = np.full((400, 2), 0.3)
        >>> y = (rng.random(p.shape) < p).astype(int)
        >>> label_differences(p, np.stack([p[:, 0], 1 - p[:, 1]], 1), y).better
        array([0, 1])
    """
    from scipy.special import erfc

    known = targets >= 0
    count = known.sum(0)
    apart = np.where(known, entry_log_loss(one, targets) - entry_log_loss(other, targets), 0.0)
    mean = apart.sum(0) / np.maximum(count, 1)
    spread = np.where(known, (apart - mean) ** 2, 0.0).sum(0)
    error = np.sqrt(spread / np.maximum(count - 1, 1) / np.maximum(count, 1))
    enough = count >= MIN_COUNT  # the interval is that of a normal mean
    ratio = np.divide(np.abs(mean), error, out=np.zeros_like(mean), where=error > 0)
    named = discoveries(np.where(enough, erfc(ratio / np.sqrt(2)), 1.0))
    better = np.where(named, -np.sign(mean), 0).astype(np.int64)
    shown = np.where(count > 0, mean, np.nan)
    half = np.where(enough, _Z * error, np.nan)
    return LabelDifferences(shown, shown - half, shown + half, better)
