"""The first page: can the probabilities be trusted, which labels are off, what to do next."""

from __future__ import annotations

from dataclasses import asdict
from functools import partial
from typing import TYPE_CHECKING, Annotated
from urllib.parse import urlencode

import numpy as np
from fastapi import APIRouter, Query, Request
from fastapi.responses import RedirectResponse, Response

from credibly.app.charts import overview_charts, small_reliability
from credibly.app.pages.explore import explore_page
from credibly.app.server.responses import both_labels, page, state_of
from credibly.app.statistics.overview import SMALL_MULTIPLES
from credibly.app.store.store import Entry, EntryQuery, FileQuery
from credibly.arrays import plain
from credibly.types import JsonObject

if TYPE_CHECKING:
    from credibly.app.server.application import AppState

router = APIRouter()

MOST_CELLS = 5_000_000
"""Probabilities up to which the least certain labels are looked for, where there is no truth."""

STRIP = 7
"""Probably wrong labels on the first page."""


@router.get("/")
def overview_page(request: Request, asked: Annotated[EntryQuery, Query()]) -> Response:
    state = state_of(request)
    if not state.files:  # nothing was given, or a folder of runs that all are still trained
        return RedirectResponse(state.first_page, 303)
    if asked.q.strip():
        return explore_page(request)
    chosen = state.file(asked.file, asked.raw)
    look, at = chosen.first_look, 0
    if look.curve is not None:
        at = look.curve.nearest(float(state.store.rule(asked).accept_from))
    return page(
        request,
        "overview.html",
        predictions=chosen,
        look=look,
        charts=overview_charts(look, partial(both_labels, file=asked.file, raw=asked.raw), at),
        at=at,
        small=small_reliability,
        wrong=_to_review(state, asked) if chosen.scan.every_label else [],
        checked=state.reviewing.queue(asked, 0).checked if look.wrong and state.reviewing else 0,
        shown_labels=look.labels[:SMALL_MULTIPLES],
        steps=[(step, _address(step.page, asked)) for step in look.steps],
    )


def _to_review(state: AppState, asked: EntryQuery) -> list[Entry]:
    chosen = state.store.file(asked.file, asked.raw)
    if not chosen.has_truth and chosen.scan.num_rows * len(chosen.labels) > MOST_CELLS:
        return []
    view = asked.of_kind("probably-wrong" if chosen.has_truth else "borderline")
    found = state.store.to_review(view)
    return state.store.entries_of(view, found, np.arange(min(STRIP, len(found))))


def _address(path: str, asked: FileQuery) -> str:
    """Return a page of the same file, before calibration or not."""
    kept = urlencode({"file": asked.file} | ({"raw": "true"} if asked.raw else {}))
    return f"{path}{'&' if '?' in path else '?'}{kept}" if asked.file or asked.raw else path


@router.get("/api/overview")
def overview(request: Request, asked: Annotated[FileQuery, Query()]) -> JsonObject:
    """The verdict, its grade, the labels to fix first, and what to do next."""
    look = state_of(request).file(asked.file, asked.raw).first_look
    return {
        "grade": look.verdict.grade,
        "sentences": look.verdict.sentences,
        "labels_to_fix": [asdict(each) for each in look.to_fix],
        "probably_wrong": look.wrong,
        "ranking": plain(look.ranking),
        "steps": [asdict(each) for each in look.steps],
    }
