"""What an address asks for: which file, which rule, which entries. A view is its address."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal
from urllib.parse import parse_qsl, urlencode

import numpy as np
from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from credibly.checks import InputError
from credibly.decide import AverageSize, Cost, Decision, Threshold
from credibly.types import Array

KEPT = ("file", "raw", "average_size", "threshold", "miss", "false_alarm", "review", "who")
"""Parts of the address that links to other pages keep."""

MOST_ENTRIES = 10_000
"""Entries of a view; the rest is counted, not listed."""

EntryKind = Literal["missed", "false-alarm", "borderline", "unmarked", "disagreement", "doubtful"]
ENTRY_KINDS: dict[EntryKind, str] = {
    "missed": "Missed",
    "false-alarm": "False alarms",
    "borderline": "Borderline",
    "unmarked": "Not marked",
    "disagreement": "Files disagree",
    "doubtful": "Probably mislabelled",
}


class FileQuery(BaseModel):
    """Which file, before or after calibration, and the rule that makes label sets."""

    model_config = ConfigDict(frozen=True, allow_inf_nan=False)

    file: int = Field(0, ge=0, le=99)
    raw: bool = False
    threshold: float | None = Field(None, ge=0, le=1)
    average_size: float | None = Field(None, ge=0.05, le=1e6)
    miss: float | None = Field(None, gt=0, le=1e9)
    false_alarm: float = Field(1.0, gt=0, le=1e9)
    review: float | None = Field(None, gt=0, le=1e9)

    @model_validator(mode="before")
    @classmethod
    def _without_empty(cls, values: Any) -> Any:
        """Return the fields of a form that were filled in."""
        return {name: value for name, value in values.items() if value != ""}

    def parameters(self, **changes: object) -> str:
        """Return the view as the query of an address, without what is usual."""
        values = {**self.model_dump(exclude_defaults=True), **changes}
        kept = {name: value for name, value in values.items() if value is not None}
        plain = {name: _text(value) for name, value in kept.items()}
        return urlencode(plain)


class EntryQuery(FileQuery):
    """A view of entries: one label or all, one kind of error, and facets."""

    label: str = Field("", max_length=1000)
    kind: EntryKind = "missed"
    low: float = Field(0.0, ge=0, le=1)
    high: float = Field(1.0, ge=0, le=1)
    labels_min: int = Field(0, ge=0, le=1_000_000)
    labels_max: int | None = Field(None, ge=0, le=1_000_000)
    truth: Literal["any", "known", "unknown"] = "any"
    top: int = Field(24, ge=1, le=200)
    start: int = Field(0, ge=0, le=MOST_ENTRIES)
    against: int | None = Field(None, ge=0, le=99)

    @property
    def unpaged(self) -> EntryQuery:
        """Return the view without what part of it is shown."""
        return self.model_copy(update={"top": 24, "start": 0})


class RowQuery(FileQuery):
    """One row, and the list it was opened from."""

    id: str = Field(min_length=1, max_length=1000)
    within: str = Field("", max_length=4000)
    all: bool = False


def parse_view(kind: type[EntryQuery], text: str) -> EntryQuery:
    """Return the view of an address's query, for links that carry a view inside."""
    try:
        return kind.model_validate(dict(parse_qsl(text)))
    except ValidationError as error:
        first = error.errors()[0]
        place = ".".join(map(str, first["loc"]))
        raise InputError(
            f"the list that this row was opened from: `{place}`: {first['msg']}."
        ) from error


def _text(value: object) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    return str(value).removesuffix(".0")


@dataclass(frozen=True)
class Rule:
    """The rule in force: its decision, and where review and acceptance begin for each label."""

    decision: Decision
    words: str
    review_from: Array
    accept_from: Array


def rule_of(asked: FileQuery, fitted: AverageSize | None, labels: list[str]) -> Rule:
    """Return the rule of an address: costs, an average size (fitted), a threshold, or one half.

    Args:
        asked: the address.
        fitted: the rule of its average size; None where it names none.
        labels: names of the columns.
    """
    if asked.miss is not None:
        cost = Cost(asked.miss, asked.false_alarm, asked.review)
        return _rule(cost, f"lowest expected cost: {cost!r}", *cost.bounds, labels)
    if fitted is not None:
        words = f"{fitted.average_size:g} labels per row on average"
        return _rule(fitted, words, fitted.threshold, fitted.threshold, labels)
    value = 0.5 if asked.threshold is None else asked.threshold
    return _rule(Threshold(value), f"probability of at least {value:g}", value, value, labels)


def _rule(decision: Decision, words: str, low: float, high: float, labels: list[str]) -> Rule:
    shape = len(labels)
    return Rule(decision, words, np.full(shape, low), np.full(shape, high))


def kept(query: Mapping[str, str]) -> dict[str, str]:
    """Return the parts of an address that links keep."""
    found: dict[str, Any] = {name: query[name] for name in KEPT if query.get(name)}
    if "book" in query:  # the name of `file` in version 0.1
        found["file"] = query["book"]
    return found
