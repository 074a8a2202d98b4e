"""What an address asks for: which file, which rule, which entries. A view is its address."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal, TypeVar, get_origin
from urllib.parse import urlencode

import numpy as np
from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator
from starlette.datastructures import QueryParams

from credibly.decide import AverageSize, Cost, Recall, Threshold
from credibly.decide.base import Decision

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
    "missed": ("Missed", "are marked present, but not returned"),
    "false-alarm": ("False alarms", "are marked absent, but returned"),
    "hit": ("Right", "are marked present and returned"),
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
