"""Find calibrators by name, and choose one by cross-validated log loss."""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from credibly import checks
from credibly.calibrate.base import Calibrator, Entries
from credibly.calibrate.calibrators import (
    Affine,
    Beta,
    Identity,
    Isotonic,
    PerLabel,
    Temperature,
    log_loss,
)
from credibly.calibrate.softmax import MAX_LABELS, SoftmaxTemperature, VectorScaling
from credibly.targets import Coding, Targets, TargetsLike
from credibly.types import Array, ArrayLike, JsonObject

CALIBRATORS: dict[str, type[Calibrator]] = {
    kind.name: kind for kind in (Identity, Temperature, Affine, Beta, PerLabel, Isotonic)
}
"""Calibrators that treat each label separately, by their name in ``--calibrate``."""

SOFTMAX_CALIBRATORS: dict[str, type[Calibrator]] = {
    kind.name: kind for kind in (SoftmaxTemperature, VectorScaling)
}
"""Calibrators for exclusive labels, by name; they keep the sum of a row at 1."""

_KNOWN = {**CALIBRATORS, **SOFTMAX_CALIBRATORS}


def from_name(name: str) -> Calibrator:
    """Return the unfitted calibrator with this ``name``.

    ``CALIBRATORS`` and ``SOFTMAX_CALIBRATORS`` list the names.

    Example:
        >>> from_name("per-label")
        PerLabel()
    """
    if name not in _KNOWN:
        raise checks.InputError(f"unknown calibrator {name!r}. {checks.nearest(name, _KNOWN)}")
    return _KNOWN[name]()


def from_state(state: JsonObject) -> Calibrator:
    """Return the fitted calibrator of a state that ``state`` returned, directly or through JSON.

    Example:
        >>> state = {"calibrator": "affine", "slope": 0.5, "intercept": -1.0,
        ...          "floor": -16.0, "ceiling": 16.0}
        >>> from_state(state)
        Affine(slope=0.5, intercept=-1, floor=-16, ceiling=16)
    """
    if not isinstance(state, dict) or "calibrator" not in state:
        raise checks.InputError(
            f"a calibrator's state must be a dict with the key 'calibrator'; got {state!r:.80}."
        )
    calibrator = from_name(str(state["calibrator"]))
    calibrator._load(state)
    try:  # map one row of zeros: this detects lists that are missing or of unequal lengths
        calibrator._map(np.zeros((1, calibrator._width())))
    except (TypeError, ValueError) as error:
        raise checks.InputError(
            f"the state of a {calibrator.name!r} calibrator must be whole; {error}."
        ) from error
    return calibrator


LABELWISE: tuple[str, ...] = ("none", "temperature", "affine", "beta", "per-label")
"""The calibrators that ``auto`` compares, from simple to flexible; none of them makes ties."""

EXCLUSIVE: tuple[str, ...] = ("none", "softmax-temperature", "vector")
"""The calibrators that ``auto`` compares for exclusive labels."""

FOLDS = 5
MAX_ENTRIES = 4_000_000
"""Maximum number of entries in the comparison; otherwise rows are drawn. The final fit uses all."""


@dataclass(frozen=True)
class CalibratorCandidate:
    """One of the compared calibrators.

    Attributes:
        stage: name of the log-odds that it maps.
        calibrator: name of the calibrator.
        log_loss: mean over the known entries of out-of-fold rows.
        above_best: difference from the lowest log loss of all candidates.
        error: standard error of ``above_best``; the labels of a row count as one observation.
    """

    stage: str
    calibrator: str
    log_loss: float
    above_best: float
    error: float


@dataclass(frozen=True)
class CalibratorChoice:
    """The chosen log-odds and calibrator, and the candidates that were compared.

    Attributes:
        stage: name of the log-odds to map.
        calibrator: fitted on all rows.
        candidates: the compared candidates, from simple to flexible; empty for a single row.
    """

    stage: str
    calibrator: Calibrator
    candidates: tuple[CalibratorCandidate, ...]


def choose(
    stages: Mapping[str, ArrayLike],
    targets: TargetsLike,
    weights: ArrayLike | None = None,
    *,
    exclusive: bool = False,
    names: Sequence[str] | None = None,
    seed: int = 0,
    coding: Coding | None = None,
) -> CalibratorChoice:
    """Choose log-odds and calibrator by cross-validated log loss, and fit on all rows.

    Every candidate is fitted on all folds except one and evaluated on that one. A fold contains
    whole rows. The choice is the simplest candidate that no other beats by more than one standard
    error of their difference; among equally simple ones, the earlier stage. On out-of-fold rows,
    the choice is therefore never worse than any of ``stages`` by more than one standard error.

    Args:
        stages: log-odds to start from, each (n, L), by name: of a loss's link, of raw scores, ….
        targets: as for ``Calibrator.fit``.
        weights: as for ``Calibrator.fit``.
        exclusive: whether exactly one label (or none) is present in each row. The calibrators then
            keep the sum of each row.
        names: calibrators to compare, from simple to flexible; by default ``LABELWISE`` or
            ``EXCLUSIVE``. Isotonic calibrators make ties, so the default does not include them.
        seed: seed of the assignment of rows to folds.
        coding: as for ``Calibrator.fit``.

    Example:
        >>> noise = np.random.default_rng(0)
        >>> truth = noise.normal(-1, 2, (1000, 3))
        >>> targets = noise.random((1000, 3)) < 1 / (1 + np.exp(-truth))
        >>> found = choose({"scores": 3 * truth - 2}, targets)
        >>> found.calibrator.name, len(found.candidates)
        ('affine', 5)
    """
    if names is None:
        names = EXCLUSIVE if exclusive else LABELWISE
    first_odds = next(iter(stages.values()))
    truth = Targets.beside(first_odds, targets, "log_odds", coding=coding)
    checked = {stage: Entries.check(odds, truth, weights) for stage, odds in stages.items()}
    first = next(iter(checked.values()))
    if first.num_labels > MAX_LABELS:
        names = [name for name in names if name != "vector"]
    rows = _compared_rows(first, seed)
    if len(rows) < 2:
        best, compared = (next(iter(checked)), names[0]), ()
    else:
        fold = np.arange(len(rows)) % min(FOLDS, len(rows))
        costs: dict[tuple[str, str], Array] = {}
        mass = np.zeros(len(rows))
        for stage, entries in checked.items():
            each, mass = _row_costs(entries.take(rows), fold, names)
            costs |= {(stage, name): cost for name, cost in each.items()}
        order = sorted(costs, key=lambda pair: names.index(pair[1]))
        best, compared = _simplest({pair: costs[pair] for pair in order}, mass)
    calibrator = from_name(best[1])
    calibrator._fit(checked[best[0]])
    return CalibratorChoice(best[0], calibrator, compared)


def fit_by_name(
    method: str,
    log_odds: ArrayLike,
    targets: TargetsLike,
    weights: ArrayLike | None = None,
    *,
    exclusive: bool = False,
    seed: int = 0,
) -> Calibrator:
    """Return a fitted calibrator by name; ``auto`` chooses it with ``choose``.

    Example:
        >>> odds = np.array([[-4.0, 2.0], [3.0, -6.0], [6.0, 4.0], [-2.0, -4.0]])
        >>> fit_by_name("temperature", odds, np.array([[0, 1], [1, 0], [0, 1], [0, -1]]))
        Temperature(slope=0.314, floor=-2.708, ceiling=2.708)
    """
    if method != "auto":
        return from_name(method).fit(log_odds, targets, weights)
    stages = {"log-odds": log_odds}
    return choose(stages, targets, weights, exclusive=exclusive, seed=seed).calibrator


def _compared_rows(entries: Entries, seed: int) -> Array:
    """Return rows with at least one weighted entry in random order, up to a limit."""
    flags = [(w > 0).any(axis=1) for _, _, w in entries.pieces()]
    rows = np.random.default_rng(seed).permutation(np.flatnonzero(np.concatenate(flags)))
    return rows[: max(2, MAX_ENTRIES // entries.num_labels)]


def _simplest(
    costs: dict[tuple[str, str], Array], mass: Array
) -> tuple[tuple[str, str], tuple[CalibratorCandidate, ...]]:
    """Return the first pair that none beats by more than one standard error, and all candidates."""
    total = mass.sum()
    losses = {pair: float(cost.sum() / total) for pair, cost in costs.items()}

    def error(one: tuple[str, str], other: tuple[str, str]) -> float:
        with np.errstate(invalid="ignore"):
            apart = costs[one] - costs[other]
            around = apart - mass * (losses[one] - losses[other])
        count = len(mass)
        return float(np.sqrt((around**2).sum() * count / (count - 1)) / total)

    def beaten(one: tuple[str, str]) -> bool:
        return not np.isfinite(losses[one]) or any(
            losses[one] - losses[other] > error(one, other)
            for other in costs
            if losses[other] < losses[one]
        )

    lowest = min(losses, key=lambda pair: losses[pair])
    chosen = next((pair for pair in costs if not beaten(pair)), lowest)
    compared = tuple(
        CalibratorCandidate(*pair, loss, loss - losses[lowest], error(pair, lowest))
        for pair, loss in losses.items()
    )
    return chosen, compared


# Out-of-fold costs -------------------------------------------------------------------------------


Block = tuple[Array, Array, Array, Array, Array]
"""Row, label, log-odds, target and weight of each known entry of some rows."""


def _blocks(entries: Entries) -> Iterator[Block]:
    """Yield the known entries in blocks of rows, because all of them would take much memory."""
    start = 0
    for g, y, w in entries.pieces():
        row, label = np.nonzero(w > 0)
        yield start + row, label, g[row, label], y[row, label], w[row, label]
        start += len(g)


def _row_costs(
    entries: Entries, fold: Array, names: Sequence[str]
) -> tuple[dict[str, Array], Array]:
    """Return the out-of-fold log loss of every row, summed over its labels, and its weight."""
    count, mass = len(fold), np.zeros(len(fold))
    for row, _, _, _, w in _blocks(entries):
        mass += np.bincount(row, w, minlength=count)
    pooled: _Cells | None = None
    found: dict[str, Array] = {}
    with warnings.catch_warnings():  # from folds; the fit on all rows warns too
        warnings.simplefilter("ignore", UserWarning)
        for name in names:
            if issubclass(type(from_name(name)), SoftmaxTemperature):
                exact, found[name] = _exact_costs(entries, fold, name), np.zeros(count)
                for row, label, _, _, w in _blocks(entries):
                    found[name] += np.bincount(row, w * exact[row, label], minlength=count)
            elif name == "per-label":
                found[name] = _Cells(entries, fold, entries.num_labels).costs(name)
            else:
                pooled = pooled or _Cells(entries, fold, 1)
                found[name] = pooled.costs(name)
    return found, mass


def _exact_costs(entries: Entries, fold: Array, name: str) -> Array:
    """Return the log loss of every entry by a calibrator fitted on the other folds."""
    odds = np.empty(entries.log_odds.shape)
    for held in range(fold.max() + 1):
        calibrator = from_name(name)
        calibrator._fit(entries.take(np.flatnonzero(fold != held)))
        odds[fold == held] = calibrator._map(
            entries.log_odds[fold == held].astype(np.float64, copy=False)
        )
    return log_loss(odds, entries.targets.astype(np.float64))


class _Cells:
    """Known entries in fine bins of their log-odds, with a weight per fold.

    The mean of a bin replaces its entries, as in ``LogOddsHistogram``. The cost of fits and losses
    then depends on the number of bins, not on the number of entries.
    """

    def __init__(self, entries: Entries, fold: Array, num_columns: int) -> None:
        self.entries, self.fold, self.num_columns = entries, fold, num_columns
        keys = np.unique(np.concatenate([np.unique(self._keys(b)) for b in _blocks(entries)]))
        shape = int(fold.max()) + 1, len(keys)
        total, infinite = np.zeros(len(keys)), np.zeros(len(keys))
        present, absent = np.zeros(shape[0] * shape[1]), np.zeros(shape[0] * shape[1])
        self.cells = []
        for block in _blocks(entries):
            row, _, g, y, w = block
            cell = np.searchsorted(keys, self._keys(block))
            self.cells.append(cell.astype(np.int32))
            finite = np.isfinite(g)
            total += np.bincount(cell, w * np.where(finite, g, 0), minlength=len(keys))
            infinite[cell[~finite]] = g[~finite]
            spots = fold[row] * len(keys) + cell
            present += np.bincount(spots, w * y, minlength=len(present))
            absent += np.bincount(spots, w * (1 - y), minlength=len(absent))
        self.present, self.absent = present.reshape(shape), absent.reshape(shape)
        means = total / (self.present + self.absent).sum(axis=0)
        # One column per label, padded with bins of weight 0.
        column = keys // NUM_BINS
        sizes = np.bincount(column, minlength=num_columns)
        self.where = np.arange(len(keys)) - (np.cumsum(sizes) - sizes)[column], column
        self.odds = np.zeros((int(sizes.max()), num_columns))
        self.odds[self.where] = np.where(infinite != 0, infinite, means)

    def _keys(self, block: Block) -> Array:
        """Return the number of the bin of each entry; each column has bins of its own."""
        _, label, g, _, _ = block
        return bin_numbers(g) + (label * NUM_BINS if self.num_columns > 1 else 0)

    def costs(self, name: str) -> Array:
        """Return the log loss of every row by a calibrator fitted on the other folds."""
        mapped = np.empty(self.present.shape)
        for fold in range(len(mapped)):
            calibrator = from_name(name)
            calibrator._fit(self._without(fold))
            mapped[fold] = calibrator._map(self.odds)[self.where]
        present, absent = log_loss(mapped, np.ones(1)), log_loss(mapped, np.zeros(1))
        costs = np.zeros(len(self.fold))
        for cell, (row, _, _, y, w) in zip(self.cells, _blocks(self.entries), strict=True):
            spots = self.fold[row], cell
            with np.errstate(invalid="ignore"):
                cost = np.where(y > 0, y * present[spots], 0)
                cost += np.where(y < 1, (1 - y) * absent[spots], 0)
            costs += np.bincount(row, w * cost, minlength=len(costs))
        return costs

    def _without(self, fold: int) -> Entries:
        """Return the bins as entries, weighted by all folds except one."""
        weights = []
        for each in (self.present, self.absent):
            matrix = np.zeros(self.odds.shape)
            matrix[self.where] = np.delete(each, fold, axis=0).sum(axis=0)
            weights.append(matrix)
        truth = np.concatenate([np.ones(self.odds.shape), np.zeros(self.odds.shape)])
        return Entries(np.tile(self.odds, (2, 1)), truth, np.concatenate(weights))


PER_UNIT = 128
"""Bins per unit of asinh(log-odds): 1/128 wide at 0, wider where the sigmoid is flat."""

FAR = 16 * PER_UNIT
"""The last bins, of log-odds beyond ±4e6."""

NUM_BINS = 2 * FAR + 3
"""Bins of one column, with one at either end for infinite log-odds."""


def bin_numbers(log_odds: Array) -> Array:
    """Return the index of the fine bin of each log-odds; −inf has index 0.

    Example:
        >>> bin_numbers(np.array([-np.inf, 0.0, 0.01])).tolist()
        [0, 2049, 2050]
    """
    finite = np.isfinite(log_odds)
    place = np.clip(np.rint(np.arcsinh(np.where(finite, log_odds, 0)) * PER_UNIT), -FAR, FAR)
    place = np.where(finite, place, np.sign(log_odds) * (FAR + 1)) + FAR + 1
    return place.astype(np.int64)
