"""What an address asks for: which file, which rule, which entries. A view is its address."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal
from urllib.parse import parse_qsl, urlencode

import numpy as np
from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from credibly.checks import InputError
from credibly.decide import AverageSize, Cost, Decision, Threshold
from credibly.types import Array

KEPT = ("file", "raw", "average_size", "threshold", "miss", "false_alarm", "review", "own", "who")
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
    own: str = Field("", max_length=4000)

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


class DecideQuery(FileQuery):
    """A rule to weigh: by cost, by label budget or by threshold; of one label or all."""

    by: Literal["cost", "size", "threshold"] | None = None
    label: str = Field("", max_length=1000)
    own_label: str = Field("", max_length=1000)
    own_miss: float | None = Field(None, gt=0, le=1e9)
    own_false_alarm: float = Field(1.0, gt=0, le=1e9)
    own_review: float | None = Field(None, gt=0, le=1e9)


@dataclass(frozen=True)
class Rule:
    """The rule in force.

    Attributes:
        decision: what makes the sets.
        words: the rule for people.
        costs: of each label by name, and under ``""`` of all others; empty for other rules.
        review_from, accept_from: (labels,) where review and acceptance begin.
    """

    decision: Decision
    words: str
    costs: dict[str, Cost]
    review_from: Array
    accept_from: Array

    def looks(self, probabilities: Array) -> Array:
        """Return which entries a person should look at."""
        low, high = (
            each.astype(probabilities.dtype) for each in (self.review_from, self.accept_from)
        )
        return (probabilities >= low) & (probabilities < high)


def rule_of(asked: FileQuery, fitted: AverageSize | None, labels: list[str]) -> Rule:
    """Return the rule of an address: costs, an average size (fitted), a threshold, or one half.

    Args:
        asked: the address.
        fitted: the rule of its average size; None where it names none.
        labels: names of the columns.
    """
    count = len(labels)
    if asked.miss is not None:
        return _cost_rule(Cost(asked.miss, asked.false_alarm, asked.review), asked.own, labels)
    if fitted is not None:
        words = f"{fitted.average_size:g} labels per row on average"
        limits = np.full(count, fitted.threshold)
        return Rule(fitted, words, {}, limits, limits)
    value = 0.5 if asked.threshold is None else asked.threshold
    limits = np.full(count, value)
    return Rule(Threshold(value), f"probability of at least {value:g}", {}, limits, limits)


def _cost_rule(usual: Cost, own: str, labels: list[str]) -> Rule:
    low, high = (np.full(len(labels), bound) for bound in usual.bounds)
    costs = {"": usual}
    for name, cost in own_costs(own).items():
        if name in labels:  # another file may lack the label
            low[labels.index(name)], high[labels.index(name)] = cost.bounds
            costs[name] = cost
    if len(costs) == 1:
        return Rule(usual, f"lowest expected cost: {usual!r}", costs, low, high)
    thresholds = {name: cost.bounds[1] for name, cost in costs.items() if name}
    decision = Threshold(thresholds, usual.bounds[1], labels)
    words = f"lowest expected cost: {usual!r}, {len(thresholds)} labels with costs of their own"
    return Rule(decision, words, costs, low, high)


def own_costs(text: str) -> dict[str, Cost]:
    """Return the costs of single labels, from JSON: name to miss, false alarm and, perhaps, review.

    Example:
        >>> own_costs('{"cat": [5, 1, 0.5]}')
        {'cat': Cost(miss=5, false_alarm=1, review=0.5)}
    """
    if not text:
        return {}
    try:
        document = json.loads(text)
        found = {str(name): Cost(*map(float, values)) for name, values in document.items()}
    except (ValueError, TypeError, AttributeError, RecursionError) as error:
        raise InputError(
            'the costs of single labels must be JSON such as {"cat": [5, 1, 0.5]}: miss, false '
            f"alarm, look; got {text[:80]!r}."
        ) from error
    return found


def kept(query: Mapping[str, str]) -> dict[str, str]:
    """Return the parts of an address that links keep."""
    found: dict[str, Any] = {name: query[name] for name in KEPT if query.get(name)}
    if "book" in query:  # the name of `file` in version 0.1
        found["file"] = query["book"]
    return found
