"""The served files: what an address asks for, which rule is in force, which labels are wrong."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from threading import Lock
from typing import Any, Literal, TypeVar, cast, get_origin
from urllib.parse import urlencode

import numpy as np
from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator
from starlette.datastructures import QueryParams

from credibly.app.store.files import BLOCK_CELLS, ServedPredictions
from credibly.app.store.top_k import ServedTop
from credibly.checks import InputError
from credibly.decide import AverageSize, Cost, Recall, Threshold
from credibly.decide.base import Decision
from credibly.retrieve import parse
from credibly.retrieve.index import within
from credibly.review.noise_model import NoiseModel, log_odds
from credibly.types import Array

Asked = TypeVar("Asked", bound=BaseModel)

RULE = ("average_size", "threshold", "recall", "miss", "false_alarm", "review")
KEPT = ("file", "raw", *RULE, "who")
"""Parts of the address that links to other pages keep."""

MOST_ENTRIES = 10_000
"""Entries of a view; the rest is counted, not listed."""

EntryKind = Literal[
    "rows",
    "probably-wrong",
    "missed",
    "false-alarm",
    "hit",
    "borderline",
    "not-annotated",
    "disagreement",
]
ENTRY_KINDS: dict[EntryKind, tuple[str, str]] = {
    "rows": ("All rows", "of all rows, the most probable first"),
    "probably-wrong": ("Probably wrong labels", "are probably wrong, the surest first"),
    "missed": ("Missed", "are annotated as present, but not returned"),
    "false-alarm": ("False alarms", "are annotated as absent, but returned"),
    "hit": ("Right", "are annotated as present, and returned"),
    "borderline": ("Borderline", "in all, those closest to the threshold first"),
    "not-annotated": ("Not annotated", "are not annotated, but returned"),
    "disagreement": ("Files disagree", "are returned by only one of the two files"),
}
"""What is shown of rows and labels: the name of the view, and what holds for its labels."""


class Address(BaseModel):
    """The fields of a form as an address holds them."""

    model_config = ConfigDict(frozen=True, allow_inf_nan=False)

    @model_validator(mode="before")
    @classmethod
    def _without_empty(cls, values: dict[str, object]) -> dict[str, object]:
        """Return the fields of a form that were filled in."""
        return {name: value for name, value in values.items() if value != ""}

    def parameters(self, **changes: object) -> str:
        """Return the fields as the query of an address, without what is usual."""
        values = {**self.model_dump(exclude_defaults=True), **changes}
        kept = {name: value for name, value in values.items() if value is not None}
        return urlencode({name: _text(value) for name, value in kept.items()})


class FileQuery(Address):
    """Which file, before or after calibration, and the rule that makes label sets."""

    file: int = Field(0, ge=0, le=99)
    raw: bool = False
    threshold: float | None = Field(None, ge=0, le=1)
    average_size: float | None = Field(None, ge=0.05, le=1e6)
    recall: float | None = Field(None, ge=0.05, le=0.999)
    miss: float | None = Field(None, gt=0, le=1e9)
    false_alarm: float = Field(1.0, gt=0, le=1e9)
    review: float | None = Field(None, gt=0, le=1e9)


class EntryQuery(FileQuery):
    """A view of single labels of rows: of one label, of some, or of all; and what holds for them.

    ``q`` restricts it as a search does: labels that are wanted are those shown, and rows for which
    an unwanted label is returned are left out.
    """

    label: str = Field("", max_length=1000)
    q: str = Field("", max_length=2000)
    kind: EntryKind = "rows"
    low: float = Field(0.0, ge=0, le=1)
    high: float = Field(1.0, ge=0, le=1)
    truth: Literal["any", "known", "unknown"] = "any"
    top: int = Field(24, ge=1, le=200)
    start: int = Field(0, ge=0, le=MOST_ENTRIES)
    against: int | None = Field(None, ge=0, le=99)

    @property
    def between(self) -> tuple[float, float] | None:
        """Return the range that probabilities must lie in; None for any."""
        return None if (self.low, self.high) == (0, 1) else (self.low, self.high)

    @property
    def compared_with(self) -> int:
        """Return the number of the other file, for a view of what two files say differently."""
        return (1 if self.file == 0 else 0) if self.against is None else self.against

    def of_kind(self, kind: EntryKind) -> EntryQuery:
        """Return the same rows and labels, with another view of them."""
        return self.model_copy(update={"kind": kind})

    @property
    def unpaged(self) -> EntryQuery:
        """Return the view without what part of it is shown, and by whom."""
        kept = set(EntryQuery.model_fields) - {"top", "start"}
        return EntryQuery.model_validate(self.model_dump(include=kept))


class LabelOrder(FileQuery):
    """Some labels, in an order."""

    contains: str = Field("", max_length=1000)
    flagged: bool = False
    sort: Literal["label", "known", "rate", "AP", "gap", "excess", "flag"] | None = None
    down: bool = True
    start: int = Field(0, ge=0, le=10_000_000)


class ExploreQuery(EntryQuery):
    """Rows by a query, or single labels of rows by what is wrong with them."""

    also: bool = False


class RowQuery(FileQuery):
    """One row, with all of its labels or those that matter."""

    id: str = Field(min_length=1, max_length=1000)
    all: bool = False


def problem_words(found: Mapping[str, Any]) -> str:
    """Return what pydantic finds wrong with a field, for people.

    Example:
        >>> problem_words({"type": "greater_than", "ctx": {"gt": 0.0}, "input": "-3", "msg": ""})
        'must be more than 0; got -3'
        >>> problem_words({"type": "bool_parsing", "input": "maybe", "msg": ""})
        'must be true or false; got maybe'
    """
    limits = {"gt": "more than", "ge": "at least", "lt": "less than", "le": "at most"}
    context, kind = found.get("ctx", {}), found["type"]
    words = next((f"{limits[n]} {context[n]:g}" for n in limits if n in context), "")
    if kind == "literal_error":
        words = f"one of {context['expected']}"
    elif "parsing" in kind:
        words = "true or false" if kind == "bool_parsing" else "a number"
    return f"{f'must be {words}' if words else found['msg']}; got {str(found['input'])[:80]}"


def read_query(kind: type[Asked], given: QueryParams) -> tuple[Asked, dict[str, str]]:
    """Return an address without the fields that are wrong, and what is wrong with those.

    Example:
        >>> read_query(EntryQuery, QueryParams("low=2&label=cat"))[1]
        {'low': 'must be at most 1; got 2'}
    """
    several = {n for n, each in kind.model_fields.items() if get_origin(each.annotation) is tuple}
    values = {name: given.getlist(name) if name in several else given[name] for name in given}
    try:
        return kind.model_validate(values), {}
    except ValidationError as error:
        problems = {str(each["loc"][0]): problem_words(each) for each in error.errors()}
    right = {name: value for name, value in values.items() if name not in problems}
    return kind.model_validate(right), problems


def _text(value: object) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    return str(value).removesuffix(".0")


class DecideQuery(FileQuery):
    """A rule to weigh: a threshold, costs, a label budget or a guarantee; of one label or all."""

    by: Literal["threshold", "cost", "size", "recall"] | None = None
    label: str = Field("", max_length=1000)


@dataclass(frozen=True)
class Rule:
    """The rule in force.

    Attributes:
        decision: what makes the sets.
        words: the rule for people.
        accept_from: the probability from which a label is selected.
    """

    decision: Decision
    words: str
    accept_from: np.float64

    @property
    def review_from(self) -> float:
        """Return the probability from which a person reviews a label or it is selected."""
        return self.decision.bounds[0] if isinstance(self.decision, Cost) else self.accept_from


def rule_of(asked: FileQuery, fitted: AverageSize | Recall | None) -> Rule:
    """Return the rule of an address: costs, a size or recall (fitted), a threshold, or one half.

    Args:
        asked: the address.
        fitted: the rule of its average size or recall; None where it names neither.
    """
    if asked.miss is not None:
        cost = Cost(asked.miss, asked.false_alarm, asked.review)
        review = "" if cost.review is None else f", and a review {cost.review:g}"
        words = f"a miss costs {cost.miss:g}, a false alarm {cost.false_alarm:g}{review}"
        return Rule(cost, f"the lowest cost, if {words}", np.float64(cost.bounds[1]))
    if isinstance(fitted, Recall):
        words = f"finds at least {100 * fitted.level:g} % of the labels, in 9 of 10 cases"
        return Rule(fitted, words, np.nextafter(fitted.thresholds[0], 1.0))
    if fitted is not None:
        words = f"{_per_row(fitted.average_size)}, on average"
        return Rule(fitted, words, np.float64(fitted.threshold))
    value = 0.5 if asked.threshold is None else asked.threshold
    words = f"a probability of {100 * value:g} % or more"
    return Rule(Threshold(value), words, np.float64(value))


def rule_words(query: Mapping[str, str]) -> str:
    """Return the rule of an address in a few words.

    Example:
        >>> rule_words({}), rule_words({"average_size": "2"}), rule_words({"miss": "5"})
        ('threshold 50 %', '2 labels per row', 'a miss costs 5 times a false alarm')
    """
    try:
        asked = FileQuery.model_validate({name: query[name] for name in RULE if name in query})
    except ValidationError:
        return "choose a rule"
    if asked.miss is not None:
        return f"a miss costs {asked.miss / asked.false_alarm:.3g} times a false alarm"
    if asked.recall is not None:
        return f"finds {100 * asked.recall:.3g} % of the labels"
    if asked.average_size is not None:
        return _per_row(asked.average_size)
    return f"threshold {100 * (0.5 if asked.threshold is None else asked.threshold):.3g} %"


def _per_row(size: float) -> str:
    return f"{size:.3g} {'label' if size == 1 else 'labels'} per row"


def kept(query: Mapping[str, str]) -> dict[str, str]:
    """Return the parts of an address that links keep."""
    return {name: query[name] for name in KEPT if query.get(name)}


VIEWS = 32  # views remembered, each at most 160 kB
MOST_BYTES = 2 * 2**30  # of files in memory, as far as there are more than two
COLUMNS = ("id", "label", "probability", "truth", "threshold", "other")
Served = ServedPredictions | ServedTop


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


@dataclass(frozen=True)
class EntryList:
    """The number of entries in a view, and where the first of them lie, the most telling first.

    ``sure`` is False for labels that contradict the model where none is probably wrong.
    """

    total: int
    labels: Array
    places: Array
    sure: bool = True

    def __len__(self) -> int:
        return len(self.labels)


@dataclass(frozen=True)
class Other:
    """Another file with the same labels, and where the rows of the first lie in it; −1: nowhere."""

    file: ServedPredictions
    places: Array

    def columns(self, names: Sequence[str]) -> Array:
        """Return its probabilities of some labels, (labels, rows); NaN where it lacks them."""
        found = np.full((len(names), len(self.places)), np.nan, dtype=np.float32)
        there = self.places >= 0
        for row, name in enumerate(names):
            if name in self.file.numbers:
                found[row, there] = self._column(name)[self.places[there]]
        return found

    def probability(self, label: str, place: int) -> float | None:
        """Return its probability of one entry; None where it lacks the row or the label."""
        if label not in self.file.numbers or self.places[place] < 0:
            return None
        return float(self._column(label)[self.places[place]])

    def _column(self, label: str) -> Array:
        number = self.file.numbers[label]
        return self.file.index.column_block(number, number + 1)[0][0]


class Store:
    """Views of the served files, worked out when asked for; the latest are remembered."""

    def __init__(self, files: Sequence[Served]) -> None:
        self.files = files
        remembered = lru_cache(maxsize=VIEWS)(self._find)  # a view is frozen, so it is a key
        self._found = cast(Callable[[EntryQuery], EntryList], remembered)
        self._other = lru_cache(maxsize=2)(self._match)
        self.rule = cast(Callable[[FileQuery], Rule], lru_cache(maxsize=VIEWS)(self._rule))
        self._used: dict[int, None] = {}
        self._lock = Lock()

    def any(self, number: int, raw: bool) -> Served:
        """Return one of the files, before calibration if asked."""
        if not self.files:
            raise InputError("no run has predictions yet; /compare shows how far each has come.")
        if not 0 <= number < len(self.files):
            raise InputError(f"there are {len(self.files)} predictions files; got number {number}.")
        chosen = self.files[number]
        self._use(number)
        if not raw:
            return chosen
        before = chosen.uncalibrated
        if before is None:
            raise InputError(
                f"{chosen.name} does not hold scores and a calibrator, so its probabilities before "
                "calibration are unknown."
            )
        return before

    def file(self, number: int, raw: bool) -> ServedPredictions:
        """Return one of the files that hold a probability for every label and row."""
        chosen = self.any(number, raw)
        if isinstance(chosen, ServedTop):
            raise InputError(
                f"this page needs a probability for every label and row; {chosen.name} lists only "
                "the most probable labels of each row. Use Overview, Explore or Labels instead."
            )
        return chosen

    def _use(self, number: int) -> None:
        """Note that a file is looked at; those looked at longest ago leave memory.

        At least two stay, since views compare two.
        """
        with self._lock:
            self._used.pop(number, None)
            self._used[number] = None
            while len(self._used) > 2 and sum(map(self._size, self._used)) > MOST_BYTES:
                oldest = next(iter(self._used))
                del self._used[oldest]
                self.files[oldest].release()
                self._other.cache_clear()

    def _size(self, number: int) -> int:
        chosen = self.files[number]
        return 5 * chosen.scan.num_rows * chosen.scan.row_cells

    def _rule(self, asked: FileQuery) -> Rule:
        """Return the rule that an address asks for."""
        self.any(asked.file, asked.raw)
        fitted = None
        if asked.miss is None and asked.average_size is not None:
            dense = self.file(asked.file, asked.raw)
            fitted = dense.decision(round(asked.average_size, 2), dense.labels)
        elif asked.miss is None and asked.recall is not None:
            fitted = self.file(asked.file, asked.raw).recall(round(asked.recall, 3))
        return rule_of(asked, fitted)

    def found(self, asked: EntryQuery) -> EntryList:
        """Return the entries of a view."""
        if asked.label:
            self.file(asked.file, asked.raw).column_of(asked.label)
        if asked.low > asked.high:
            raise InputError(f"`low` must not be above `high`; got {asked.low} and {asked.high}.")
        return self._found(asked.unpaged)

    def to_review(self, asked: EntryQuery) -> EntryList:
        """Return the entries of a view; where no label is probably wrong, those to doubt first.

        These are the missed labels and the false alarms in turns, the surest mistakes first.
        """
        found = self.found(asked)
        chosen = self.file(asked.file, asked.raw)
        if asked.kind != "probably-wrong" or found.total or not chosen.has_truth:
            return found
        both = [self.found(asked.of_kind(kind)) for kind in ("false-alarm", "missed")]
        turns = np.argsort(np.concatenate([np.arange(len(each)) for each in both]), kind="stable")
        labels, places = (
            np.concatenate([getattr(each, name) for each in both])[turns[:MOST_ENTRIES]]
            for name in ("labels", "places")
        )
        return EntryList(sum(each.total for each in both), labels, places, sure=False)

    def entries(self, asked: EntryQuery, start: int, stop: int) -> list[Entry]:
        """Return some entries of a view."""
        found = self.found(asked)
        return self.entries_of(asked, found, np.arange(start, min(stop, len(found))))

    def entries_of(self, asked: FileQuery, found: EntryList, which: Array) -> list[Entry]:
        """Return the entries at some places of a view."""
        index, rule = self.file(asked.file, asked.raw).index, self.rule(asked)
        other = self._compared(asked) if isinstance(asked, EntryQuery) else None
        labels, places = found.labels[which], found.places[which]
        p, y = index.column_block(0, len(index.labels))
        chosen = p[labels, places].tolist()
        truth = [-1] * len(which) if y is None else y[labels, places].tolist()
        limit, listed = float(rule.accept_from), []
        for k, id in enumerate(index.ids(places)):
            name, known = index.labels[labels[k]], None if truth[k] < 0 else int(truth[k])
            there = None if other is None else other.probability(name, int(places[k]))
            listed.append(Entry(str(id), name, float(chosen[k]), known, limit, there))
        return listed

    def entry(self, asked: FileQuery, id: str, label: str) -> Entry:
        """Return one entry."""
        chosen = self.file(asked.file, asked.raw)
        found = EntryList(1, np.array([chosen.column_of(label)]), np.array([chosen.place(id)]))
        return self.entries_of(asked, found, np.arange(1))[0]

    def _find(self, asked: EntryQuery) -> EntryList:
        """Return the entries of a view, the most telling first, at most ``MOST_ENTRIES``."""
        chosen, limit = self.file(asked.file, asked.raw), self.rule(asked).accept_from
        index, other = chosen.index, self._compared(asked)
        noise = chosen.noise if asked.kind == "probably-wrong" else None
        columns, unwanted = _columns_asked(chosen, asked)
        rows = np.ones(len(index), dtype=bool)
        for column in unwanted:
            rows &= index.column_block(column, column + 1)[0][0] < limit
        step = max(1, BLOCK_CELLS // len(index))
        best = _Best(MOST_ENTRIES)
        for start, stop in columns:
            for first in range(start, stop, step):
                last = min(stop, first + step)
                p, y = index.column_block(first, last)
                elsewhere = None if other is None else other.columns(index.labels[first:last])
                mask, key = _matching(asked.kind, p, y, limit, elsewhere, noise)
                mask &= within(p, (asked.low, asked.high))
                if asked.truth != "any":
                    mask &= _annotated(p, y, -1) == (asked.truth == "unknown")
                best.add(first, mask & rows, key)
        return EntryList(best.total, best.labels, best.places)

    def _compared(self, asked: EntryQuery) -> Other | None:
        """Return the file that a view compares with; None where it compares with none."""
        if asked.kind != "disagreement":
            return None
        if len(self.files) < 2:
            raise InputError("disagreement needs two files: `credibly serve A.parquet B.parquet`.")
        if asked.compared_with == asked.file:
            raise InputError("a file cannot disagree with itself; ask for another with `against`.")
        return self._other(asked.file, asked.raw, asked.compared_with)

    def _match(self, file: int, raw: bool, against: int) -> Other:
        other = self.file(against, False)
        return Other(other, self.file(file, raw).index.places_in(other.index))


def _matching(
    kind: str,
    p: Array,
    y: Array | None,
    t: np.float64,
    other: Array | None,
    noise: NoiseModel | None,
) -> tuple[Array, Array]:
    """Return which entries are of a kind, and how telling each is."""
    match kind:
        case "hit":
            return _annotated(p, y, 1) & (p >= t), p
        case "missed":
            return _annotated(p, y, 1) & (p < t), 1 - p
        case "false-alarm":
            return _annotated(p, y, 0) & (p >= t), p
        case "not-annotated":
            return _annotated(p, y, -1) & (p >= t), p
        case "borderline":
            return np.ones(p.shape, dtype=bool), -np.abs(p - p.dtype.type(t))
        case "disagreement":
            assert other is not None, "two files are compared"
            return ((p >= t) != (other >= t)) & ~np.isnan(other), np.abs(p - other)
        case "probably-wrong":
            if y is None or noise is None:  # every probable label is offered for a decision
                return p >= 0.5, p
            mask, key = noise.probably_wrong(p, y), np.zeros(p.shape)
            key[mask] = noise.error_probability(log_odds(p[mask]), y[mask])
            return mask, key
        case _:
            return np.ones(p.shape, dtype=bool), p


def _annotated(p: Array, y: Array | None, value: int) -> Array:
    """Return which entries are annotated so; without truth all of them are unknown, −1."""
    return np.full(p.shape, value == -1) if y is None else y == value


def _columns_asked(
    chosen: ServedPredictions, asked: EntryQuery
) -> tuple[list[tuple[int, int]], list[int]]:
    """Return the ranges of columns to look at, and the columns whose rows are left out."""
    wanted, unwanted = ((asked.label,) if asked.label else ()), ()
    if asked.q.strip():
        query = parse(asked.q, chosen.labels)
        if query.formula is not None:
            raise InputError(
                "this view takes labels that you want and do not want, such as "
                "`+fork -knife`; alternatives in brackets work for all rows only."
            )
        wanted, unwanted = (*wanted, *query.wanted), query.unwanted
    columns = sorted({chosen.column_of(name) for name in wanted})
    ranges = [(t, t + 1) for t in columns] or [(0, len(chosen.labels))]
    return ranges, [chosen.column_of(name) for name in unwanted]


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
