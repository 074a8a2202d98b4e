"""Review labels that are probably wrong: the queue, decisions into the log, what they change."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path
from typing import Annotated, Literal

import numpy as np
from anyio import to_thread
from fastapi import APIRouter, Query, Request
from fastapi.responses import HTMLResponse, RedirectResponse, Response
from pydantic import BaseModel, Field

from credibly.app.pages.api import parsed_body, require_json, with_body
from credibly.app.pages.explore import entry_pairs
from credibly.app.server.responses import page, state_of, table_response
from credibly.app.server.uploads import form_of
from credibly.app.statistics.comparisons import COLUMNS, Cell, comparison
from credibly.app.statistics.labels import LabelSummary, label_atlas
from credibly.app.store.files import ServedPredictions
from credibly.app.store.store import MOST_ENTRIES, Entry, EntryQuery, FileQuery, Store, read_query
from credibly.checks import InputError, nearest
from credibly.predictions import Predictions
from credibly.review import Review, ReviewLog, apply_reviews
from credibly.review.reviews import VALUES, LoggedReview
from credibly.targets import UNKNOWN
from credibly.types import Array, JsonObject

MOST_REVIEWS = 1000
"""Decisions in one request."""

MOST_LABELS = 100
"""Labels whose numbers are computed again, those with the most decisions first."""

RESAMPLES = 200


class NotSaved(Exception):
    """Raised when decisions could not be written to the log."""


@dataclass(frozen=True)
class LabelEffect:
    """Numbers of one label before and after the decisions."""

    decisions: int
    changed: int
    before: LabelSummary
    after: LabelSummary


@dataclass(frozen=True)
class Effect:
    """What the decisions change: per label over all rows, and overall where the file is small.

    Attributes:
        decisions, changed: entries decided, and of these the ones whose truth is another now.
        labels: those with decisions, the most decisions first.
        numbers: the summary of all labels ``before`` and ``after``; empty for sampled files.
    """

    decisions: int
    changed: int
    labels: list[LabelEffect]
    numbers: dict[str, list[Cell]]


@dataclass(frozen=True)
class Queue:
    """Labels to review: the first of those left, how many there are, how many are checked.

    ``sure`` is False where no label is probably wrong, and these contradict the model most.
    """

    left: list[Entry]
    total: int
    checked: int
    sure: bool


class Reviewing:
    """The log of decisions, and the views that depend on it."""

    def __init__(self, log: ReviewLog, store: Store) -> None:
        self.log, self.store = log, store
        self._effect = lru_cache(maxsize=4)(self._evaluate)

    @property
    def path(self) -> Path:
        return self.log.path

    def decided(self) -> Mapping[tuple[str, str], LoggedReview]:
        """Return the last decision about each label of a row."""
        return self.log.latest()

    def queue(self, asked: EntryQuery, most: int = MOST_ENTRIES) -> Queue:
        """Return labels that are probably wrong and undecided, the surest first."""
        kind = "not-annotated" if asked.truth == "unknown" else "probably-wrong"
        view = asked.of_kind(kind).unpaged
        chosen, found = self.store.file(asked.file, asked.raw), self.store.to_review(view)
        decided = {
            (chosen.column_of(label), chosen.index.place(id))
            for id, label in self.decided()
            if label in chosen.labels
        }
        pairs = zip(found.labels.tolist(), found.places.tolist(), strict=True)
        left = [place for place, pair in enumerate(pairs) if pair not in decided]
        entries = self.store.entries_of(view, found, np.array(left[:most], dtype=np.int64))
        return Queue(entries, found.total, len(found) - len(left), found.sure)

    def save(self, asked: FileQuery, reviews: Sequence[tuple[str, str, str]], who: str) -> int:
        """Write decisions, (id, label, word) each; return how many entries are decided now.

        Raises:
            InputError: if an entry is not in the file or a word is unknown; nothing is written.
            NotSaved: if the log could not be written; nothing is kept.
        """
        chosen = self.store.file(asked.file, False)
        found = []
        for id, label, word in reviews:
            if word not in VALUES:
                raise InputError(f"a decision must be {', '.join(VALUES)}; got {word[:80]!r}.")
            chosen.column_of(label)
            chosen.place(id)
            found.append(Review(id, label, VALUES[word]))
        try:
            self.log.append(found, who)
        except OSError as error:
            raise NotSaved(
                f"nothing was saved: {self.path.name} cannot be written ({error.strerror}). Free "
                "some space or fix the permissions, and decide again."
            ) from error
        return len(self.decided())

    def effect(self, asked: FileQuery) -> Effect:
        """Return the numbers before and after the decisions; remembered until there are more."""
        return self._effect(asked.file, asked.raw, tuple(self.log.reviews()))

    def _evaluate(self, file: int, raw: bool, reviews: tuple[Review, ...]) -> Effect:
        chosen = self.store.file(file, raw)
        by_label: dict[str, list[Review]] = {}
        for each in reviews:
            if each.label in chosen.labels and chosen.index.place(each.id) is not None:
                by_label.setdefault(each.label, []).append(each)
        ordered = sorted(by_label.items(), key=lambda pair: -len(pair[1]))
        kept = [each for found in by_label.values() for each in found]
        whole = len(chosen.sample) == chosen.scan.num_rows
        numbers = _numbers(chosen.sample, kept) if whole else {}
        changed, labels = 0, []
        for label, found in ordered:
            p, before, after = _columns(chosen, label, found)
            moved = int((before != after).sum())
            changed += moved
            if len(labels) < MOST_LABELS:
                old, new = (label_atlas([label], p, y)[0] for y in (before, after))
                labels.append(LabelEffect(len(found), moved, old, new))
        return Effect(len(kept), changed, labels, numbers)


def _numbers(rows: Predictions, reviews: list[Review]) -> dict[str, list[Cell]]:
    if not reviews:
        return {}
    plain = replace(rows, ids=np.array([str(id) for id in rows.ids], dtype=object))
    return comparison(
        {"before": plain, "after": apply_reviews(plain, reviews)}, resamples=RESAMPLES
    )


def _columns(chosen: ServedPredictions, label: str, reviews: list[Review]) -> list[Array]:
    """Return probabilities of a label, and its truth before and after, (rows, 1) each."""
    place = chosen.column_of(label)
    p, y = chosen.index.column_block(place, place + 1)
    before = np.full(p.shape[1], UNKNOWN, np.int8) if y is None else y[0]
    after = before.copy()
    for each in reviews:
        after[chosen.index.place(each.id)] = each.decision
    return [column[:, None] for column in (p[0], before, after)]


router = APIRouter()

LOG_COLUMNS = ("id", "label", "value", "who", "when")


class QueueQuery(EntryQuery):
    """A part of the queue, how it is shown, and who reviews it.

    ``entry`` names single labels instead of the queue, each a JSON list of an id and a label.
    """

    who: str = Field("", max_length=100)
    view: Literal["one", "grid"] = "one"
    entry: tuple[str, ...] = Field((), max_length=200)


class ReviewDecision(BaseModel):
    """What a person decided about one entry."""

    id: str = Field(max_length=1000)
    label: str = Field(max_length=1000)
    value: Literal["present", "absent", "unsure", "undecided"]


class Decisions(BaseModel):
    """Decisions of one person."""

    who: str = Field("", max_length=100)
    reviews: list[ReviewDecision] = Field(min_length=1, max_length=MOST_REVIEWS)


class LogQuery(FileQuery):
    """The log, in a format."""

    format: Literal["json", "csv"] = "json"


def _reviewing(request: Request) -> Reviewing:
    reviewing = state_of(request).reviewing
    if reviewing is None:
        raise InputError(
            "this server does not take decisions. Start it with "
            "`credibly serve PREDICTIONS --annotate corrections.jsonl`."
        )
    return reviewing


@router.get("/review")
def review_page(request: Request) -> HTMLResponse:
    reviewing = state_of(request).reviewing
    if reviewing is None:
        return page(request, "review.html", reviewing=None)
    asked, problems = read_query(QueueQuery, request.query_params)
    chosen = reviewing.store.file(asked.file, asked.raw)
    if asked.label and asked.label not in chosen.labels:
        problems["label"] = nearest(asked.label, chosen.labels)
        asked = asked.model_copy(update={"label": ""})
    queue = reviewing.queue(asked, asked.top)
    shown = queue.left
    if asked.entry:
        shown = [reviewing.store.entry(asked, *pair) for pair in entry_pairs(asked.entry)]
    return page(
        request,
        "review.html",
        422 if problems else 200,
        asked=asked,
        problems=problems,
        reviewing=reviewing,
        queue=queue,
        shown=shown,
        predictions=chosen,
    )


@router.post("/review")
async def decide_by_form(request: Request, asked: Annotated[QueueQuery, Query()]) -> Response:
    """Save the decision of a button, for browsers without scripts; then show the queue again."""
    fields = (await form_of(request)).fields
    reviewing = _reviewing(request)
    try:
        id, label, value = json.loads(fields["decision"])
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise InputError("the field `decision` must be a JSON list of id, label, value.") from error
    who = fields.get("who", asked.who)[:100]
    chosen = [(str(id), str(label), str(value))]
    await to_thread.run_sync(lambda: reviewing.save(asked, chosen, who))
    return RedirectResponse("/review?" + asked.parameters(), 303)


@router.get("/review/effect")
def effect_page(request: Request, asked: Annotated[FileQuery, Query()]) -> HTMLResponse:
    reviewing = state_of(request).reviewing
    effect = None if reviewing is None else reviewing.effect(asked)
    return page(
        request,
        "review_effect.html",
        reviewing=reviewing,
        effect=effect,
        columns=COLUMNS,
    )


@with_body("/api/reviews", Decisions.model_json_schema())
async def save_reviews(request: Request, asked: Annotated[FileQuery, Query()]) -> JsonObject:
    """Save decisions about labels. They are on the disk when the answer comes."""
    body = await request.body()
    reviewing = _reviewing(request)
    require_json(request)
    given = parsed_body(Decisions, body)
    chosen = [(each.id, each.label, each.value) for each in given.reviews]
    total = await to_thread.run_sync(lambda: reviewing.save(asked, chosen, given.who))
    return {"saved": len(chosen), "decided": total}


@router.get("/api/reviews")
def reviews(request: Request, asked: Annotated[LogQuery, Query()]) -> Response:
    """The last decision about each label of a row, as JSON or CSV."""
    rows = [each.to_dict() for each in _reviewing(request).decided().values()]
    return table_response(asked.format, "reviews", LOG_COLUMNS, rows)
