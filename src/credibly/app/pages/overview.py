"""The first page: can the probabilities be trusted, which labels are off, what to do next."""

from __future__ import annotations

from dataclasses import asdict
from functools import partial
from typing import Annotated, Any

from fastapi import APIRouter, Query, Request
from fastapi.responses import HTMLResponse, RedirectResponse, Response

from credibly.app.charts import overview_charts, small_reliability
from credibly.app.pages.api import FAILURES, plain, state_of
from credibly.app.pages.explore import explore_page
from credibly.app.served.address import ExploreQuery, FileQuery
from credibly.app.server.templates import both_labels, page
from credibly.app.views.overview import SMALL_MULTIPLES

router = APIRouter(include_in_schema=False, default_response_class=HTMLResponse)
api = APIRouter(prefix="/api", tags=["api"])

STRIP = 7
"""Probably wrong labels on the first page."""


@router.get("/")
def overview_page(request: Request, asked: Annotated[ExploreQuery, Query()]) -> Response:
    state = state_of(request)
    if not state.files:  # nothing was given, or a folder of runs that all are still trained
        return RedirectResponse("/import" if state.runs is None else "/compare", 303)
    if asked.q.strip():
        return explore_page(request, asked)
    chosen = state.file(asked.file, asked.raw)
    look = chosen.first_look
    doubtful = asked.model_copy(update={"kind": "doubtful"})
    return page(
        request,
        "overview.html",
        predictions=chosen,
        look=look,
        charts=overview_charts(look, partial(both_labels, file=asked.file, raw=asked.raw)),
        small=small_reliability,
        wrong=state.workbench.entries(doubtful, 0, STRIP) if look.wrong else [],
        decided={} if state.reviewing is None else state.reviewing.decided(),
        shown_labels=look.labels[:SMALL_MULTIPLES],
    )


@api.get("/overview", responses=FAILURES)
def overview(request: Request, asked: Annotated[FileQuery, Query()]) -> dict[str, Any]:
    """The verdict, its grade, the labels to fix first, and what to do next."""
    look = state_of(request).file(asked.file, asked.raw).first_look
    return {
        "grade": look.overview.verdict.grade,
        "sentences": look.overview.verdict.sentences,
        "labels_to_fix": [asdict(each) for each in look.overview.labels],
        "probably_wrong": look.wrong,
        "ranking": [plain(list(each)) for each in look.ranking],
        "steps": [asdict(each) for each in look.overview.steps],
    }
