"""Rows and their labels: which are wrong and how, one row in full, rows like it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from credibly.app.served.address import MOST_ENTRIES, EntryKind, EntryQuery, Rule
from credibly.checks import InputError
from credibly.predictions import Predictions
from credibly.retrieve import Index, parse
from credibly.review.issues import PROBABLY_WRONG, probably_wrong
from credibly.types import Array

CELLS = 2**22  # probabilities looked at in one go: 16 MB, and a few masks of a quarter


@dataclass(frozen=True)
class Entry:
    """One entry of a view.

    Attributes:
        id, label: which entry.
        probability: that the label is present.
        truth: 1 present, 0 absent, None unknown.
        threshold: from which probability the rule selects the label.
        other: the probability in the other file; None without one.
    """

    id: str
    label: str
    probability: float
    truth: int | None
    threshold: float
    other: float | None = None

    def to_dict(self) -> dict[str, Any]:
        """Return plain values, in the order of the columns of a table."""
        return asdict(self)


COLUMNS = ("id", "label", "probability", "truth", "threshold", "other")


@dataclass(frozen=True)
class EntryList:
    """The number of entries in a view, and where the first of them lie, the most telling first."""

    total: int
    labels: Array
    places: Array

    def __len__(self) -> int:
        return len(self.labels)


@dataclass(frozen=True)
class Other:
    """Another file with the same labels: its index, and where the rows of the first lie in it."""

    index: Index
    places: Array
    columns_of: dict[str, int]

    @classmethod
    def of(cls, index: Index, other: Index) -> Other:
        """Return another file as seen from the rows of a first."""
        return cls(other, index.places_in(other), {n: t for t, n in enumerate(other.labels)})

    def columns(self, names: list[str]) -> Array:
        """Return its probabilities of some labels, (labels, rows); NaN where it lacks them."""
        found = np.full((len(names), len(self.places)), np.nan, dtype=np.float32)
        there = self.places >= 0
        for row, name in enumerate(names):
            if name in self.columns_of:
                place = self.columns_of[name]
                column = self.index.column_block(place, place + 1)[0][0]
                found[row, there] = column[self.places[there]]
        return found

    def probability(self, label: str, place: int) -> float | None:
        """Return its probability of one entry; None where it lacks the row or the label."""
        there = int(self.places[place])
        if there < 0 or label not in self.columns_of:
            return None
        column = self.columns_of[label]
        return float(self.index.column_block(column, column + 1)[0][0, there])


def find_entries(index: Index, asked: EntryQuery, rule: Rule, other: Other | None) -> EntryList:
    """Return the entries of a view, the most telling first, at most ``MOST_ENTRIES``."""
    columns, unwanted = _columns_asked(index, asked)
    rows = _rows_asked(index, asked)
    for column in unwanted:
        without = index.column_block(column, column + 1)[0][0] < rule.accept_from[column]
        rows = without if rows is None else rows & without
    step = max(1, CELLS // len(index))
    best = _Best(MOST_ENTRIES)
    for start, stop in columns:
        for first in range(start, stop, step):
            last = min(stop, first + step)
            p, y = index.column_block(first, last)
            names = list(index.labels[first:last])
            elsewhere = other.columns(names) if other is not None else None
            mask, key = _KINDS[asked.kind](p, y, rule.accept_from[first:last, None], elsewhere)
            mask &= (p >= asked.low) & (p <= asked.high)
            if asked.truth != "any":
                known = np.zeros(p.shape, bool) if y is None else y >= 0
                mask &= known if asked.truth == "known" else ~known
            if rows is not None:
                mask &= rows
            best.add(first, mask, key)
    return EntryList(best.total, best.labels, best.places)


def _columns_asked(index: Index, asked: EntryQuery) -> tuple[list[tuple[int, int]], list[int]]:
    """Return the ranges of columns to look at, and the columns whose rows are left out."""
    whole = [(0, len(index.labels))]
    wanted, unwanted = ((asked.label,) if asked.label else ()), ()
    if asked.q.strip():
        query = parse(asked.q, index.labels)
        if query.formula is not None:
            raise InputError(
                "single labels can be restricted to labels that you want and do not want, such as "
                "`+fork -knife`; alternatives in brackets work for all rows only."
            )
        wanted, unwanted = (*wanted, *query.wanted), query.unwanted
    places = {name: place for place, name in enumerate(index.labels)}
    chosen = sorted({places[name] for name in wanted})
    return [(t, t + 1) for t in chosen] or whole, [places[name] for name in unwanted]


def _rows_asked(index: Index, asked: EntryQuery) -> Array | None:
    """Return which rows have the asked number of labels marked present; None for any number."""
    if not asked.labels_min and asked.labels_max is None:
        return None
    count = np.zeros(len(index), dtype=np.int32)
    step = max(1, CELLS // len(index))
    for start in range(0, len(index.labels), step):
        y = index.column_block(start, start + step)[1]
        if y is not None:
            count += (y == 1).sum(0, dtype=np.int32)
    most = np.iinfo(np.int32).max if asked.labels_max is None else asked.labels_max
    return (count >= asked.labels_min) & (count <= most)


class _Best:
    """The entries with the largest keys; of equal ones those of earlier labels and rows."""

    def __init__(self, most: int) -> None:
        self.most, self.total, self._least = most, 0, -np.inf
        self.keys = np.empty(0, dtype=np.float32)
        self.labels = np.empty(0, dtype=np.int64)
        self.places = np.empty(0, dtype=np.int64)

    def add(self, first: int, mask: Array, key: Array) -> None:
        self.total += int(mask.sum())
        labels, places = np.nonzero(mask & (key > self._least))
        keys = np.concatenate([self.keys, key[labels, places]])
        labels = np.concatenate([self.labels, labels + first])
        places = np.concatenate([self.places, places])
        if len(keys) > self.most:  # sorting millions takes seconds; most of them cannot be listed
            enough = keys >= np.partition(keys, -self.most)[-self.most]
            keys, labels, places = keys[enough], labels[enough], places[enough]
        order = np.argsort(-keys, kind="stable")[: self.most]
        self.keys, self.labels, self.places = keys[order], labels[order], places[order]
        if len(self.keys) == self.most:
            self._least = float(self.keys[-1])


_Kind = Callable[[Array, Array | None, Array, Array | None], tuple[Array, Array]]


def _hit(p: Array, y: Array | None, t: Array, other: Array | None) -> tuple[Array, Array]:
    return (_is(y, 1, p) & (p >= t)), p


def _missed(p: Array, y: Array | None, t: Array, other: Array | None) -> tuple[Array, Array]:
    return (_is(y, 1, p) & (p < t)), 1 - p


def _false_alarm(p: Array, y: Array | None, t: Array, other: Array | None) -> tuple[Array, Array]:
    return (_is(y, 0, p) & (p >= t)), p


def _unmarked(p: Array, y: Array | None, t: Array, other: Array | None) -> tuple[Array, Array]:
    return (_is(y, -1, p) & (p >= t)), p


def _borderline(p: Array, y: Array | None, t: Array, other: Array | None) -> tuple[Array, Array]:
    return np.ones(p.shape, dtype=bool), -np.abs(p - t.astype(p.dtype))


def _disagreement(p: Array, y: Array | None, t: Array, other: Array | None) -> tuple[Array, Array]:
    if other is None:
        return np.zeros(p.shape, dtype=bool), p
    apart = np.abs(p - other)
    return apart > 0, apart


def _doubtful(p: Array, y: Array | None, t: Array, other: Array | None) -> tuple[Array, Array]:
    wrong = np.where(_is(y, 1, p), 1 - p, p)
    if y is None:  # without truth every probable label is offered for a decision
        return p >= PROBABLY_WRONG, wrong
    return probably_wrong(p, y), wrong


def _any(p: Array, y: Array | None, t: Array, other: Array | None) -> tuple[Array, Array]:
    return np.ones(p.shape, dtype=bool), p


_KINDS: dict[EntryKind, _Kind] = {
    "rows": _any,
    "hit": _hit,
    "missed": _missed,
    "false-alarm": _false_alarm,
    "unmarked": _unmarked,
    "borderline": _borderline,
    "disagreement": _disagreement,
    "doubtful": _doubtful,
}


def _is(y: Array | None, value: int, p: Array) -> Array:
    if y is None:  # without truth nothing is known of any entry
        return np.full(p.shape, value == -1)
    return y == value


def entries_at(
    index: Index, rule: Rule, other: Other | None, found: EntryList, which: slice
) -> list[Entry]:
    """Return some of the entries of a view."""
    labels, places = found.labels[which], found.places[which]
    p, y = index.column_block(0, len(index.labels))
    chosen = p[labels, places].tolist()
    truth = None if y is None else y[labels, places].tolist()
    limits = rule.accept_from[labels].tolist()
    listed = []
    for k, id in enumerate(index.ids(places)):
        name = index.labels[labels[k]]
        known = None if truth is None or truth[k] < 0 else int(truth[k])
        there = None if other is None else other.probability(name, int(places[k]))
        listed.append(Entry(str(id), name, float(chosen[k]), known, float(limits[k]), there))
    return listed


NEIGHBOURS = 8
CHANGES = 6
SHOWN_LABELS = 60
_CELLS = 2**21
_FAR = 1e-7


@dataclass(frozen=True)
class LabelOfRow:
    """One label of a row.

    Attributes:
        label, probability, truth: as in an entry; truth is 1, 0 or None.
        threshold: from which probability the label is in the set.
        chosen: whether it is in the set.
        look: whether the rule asks a person to look.
        distance: log-odds of the probability minus those of the threshold.
    """

    label: str
    probability: float
    truth: int | None
    threshold: float
    chosen: bool
    look: bool
    distance: float

    @property
    def verdict(self) -> str:
        """Return what became of the label: hit, missed, false alarm, or nothing."""
        if self.truth is None:
            return ""
        if self.truth:
            return "hit" if self.chosen else "missed"
        return "false alarm" if self.chosen else ""


@dataclass(frozen=True)
class Neighbour:
    """A row with similar probabilities; ``distance`` is 0 for equal ones and at most 1."""

    id: str
    distance: float


@dataclass(frozen=True)
class Item:
    """A row as its page shows it."""

    id: str
    labels: list[LabelOfRow]
    rule: str

    @property
    def chosen(self) -> list[LabelOfRow]:
        """Return the label set."""
        return [each for each in self.labels if each.chosen]

    @property
    def present(self) -> list[LabelOfRow]:
        """Return the labels that are marked present."""
        return [each for each in self.labels if each.truth == 1]

    @property
    def known(self) -> int:
        """Return of how many labels the truth is known."""
        return sum(each.truth is not None for each in self.labels)

    def shown(self, everything: bool) -> list[LabelOfRow]:
        """Return all labels, or the most probable and some that are present or selected."""
        if everything or len(self.labels) <= SHOWN_LABELS:
            return self.labels
        head = self.labels[:SHOWN_LABELS]
        rest = [e for e in self.labels[SHOWN_LABELS:] if e.truth == 1 or e.chosen]
        return head + rest[: 3 * SHOWN_LABELS]

    @property
    def changes(self) -> list[LabelOfRow]:
        """Return the labels that would change the set first, nearest to their threshold."""
        return sorted(self.labels, key=lambda each: abs(each.distance))[:CHANGES]


def item_at(index: Index, place: int, rule: Rule) -> Item:
    """Return the row at a place of the index, its labels from the most probable on."""
    p, y = index.row(place)
    chosen = rule.decision.predict(p[None])[0]
    look = rule.looks(p)
    distance = _log_odds(p) - _log_odds(rule.accept_from)
    order = np.argsort(-p, kind="stable").tolist()
    labels = [
        LabelOfRow(
            index.labels[t],
            float(p[t]),
            None if y is None or y[t] < 0 else int(y[t]),
            float(rule.accept_from[t]),
            bool(chosen[t]),
            bool(look[t]),
            float(distance[t]),
        )
        for t in order
    ]
    return Item(str(index.ids([place])[0]), labels, rule.words)


def neighbours(rows: Predictions, probabilities: Array, id: str) -> list[Neighbour]:
    """Return the rows with the most similar probabilities, the row itself left out.

    The distance of rows p and q is Hellinger's on their expected labels:
    ‖√p − √q‖ / √(Σp + Σq), which counts what is probable and hardly what is improbable in both.

    Args:
        rows: where to look.
        probabilities: of the row, in the order of the labels of ``rows``.
        id: of the row.
    """
    root = np.sqrt(probabilities.astype(np.float32))
    own = float(probabilities.sum(dtype=np.float64))
    step = max(1, _CELLS // max(1, len(root)))
    distances = []
    for start in range(0, len(rows), step):
        p = rows.probabilities[start : start + step]
        total = p.sum(1, dtype=np.float64) + own
        apart = np.maximum(total - 2 * (np.sqrt(p) @ root), 0)
        distances.append(np.sqrt(apart / np.maximum(total, 1e-30)))
    distance = np.concatenate(distances)
    nearest = np.argsort(distance, kind="stable")[: NEIGHBOURS + 1]
    found = [Neighbour(str(rows.ids[row]), float(distance[row])) for row in nearest]
    return [each for each in found if each.id != id][:NEIGHBOURS]


def usual_distance(probabilities: Array, *, rows: int = 4000, asked: int = 300) -> float:
    """Return the 99 % quantile of the distance of a row to the most similar other row.

    Args:
        probabilities: (rows, labels) of the rows that are known.
        rows: of these, so many are looked at.
        asked: for so many of those the most similar one is found.
    """
    root = np.sqrt(probabilities[:rows].astype(np.float32))
    if len(root) < 2:
        return float("nan")
    total = (root**2).sum(1, dtype=np.float64)
    few = root[:asked]
    both = total[:asked, None] + total
    apart = np.sqrt(np.maximum(both - 2 * (few @ root.T), 0) / np.maximum(both, 1e-30))
    apart[np.arange(len(few)), np.arange(len(few))] = np.inf
    return float(np.quantile(apart.min(1), 0.99))


def _log_odds(values: Array) -> Array:
    clipped = np.clip(values.astype(np.float64), _FAR, 1 - _FAR)
    return np.log(clipped / (1 - clipped))
