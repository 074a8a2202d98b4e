"""The pages. All state is in the address; without JavaScript every form still works."""

from __future__ import annotations

from functools import partial
from importlib.resources import files
from typing import Annotated, Any

from fastapi import APIRouter, Query, Request
from fastapi.responses import FileResponse, HTMLResponse, RedirectResponse, Response
from starlette.exceptions import HTTPException

from credibly.app.charts import heat_map, reliability_chart, small_reliability, threshold_chart
from credibly.app.pages.api import FileNumber, Name, Raw, state_of
from credibly.app.served.address import EntryQuery
from credibly.app.server.templates import both_labels, page, wanted
from credibly.app.views.overview import SMALL_MULTIPLES
from credibly.checks import InputError
from credibly.data import ImageFolder
from credibly.retrieve import parse

router = APIRouter(include_in_schema=False, default_response_class=HTMLResponse)

STRIP = 7
"""Probably wrong labels on the first page."""

PageTop = Annotated[int, Query(ge=1, le=200)]
Text = Annotated[str, Query(max_length=2000)]


@router.get("/")
def search_page(
    request: Request,
    file: FileNumber,
    q: Text = "",
    top: PageTop = 24,
    raw: Raw = False,
    also: bool = False,
) -> Response:
    state = state_of(request)
    if not state.files:  # a folder of runs that all are still trained
        return RedirectResponse("/compare", 303)
    chosen = state.file(file, raw)
    answer, problem, together = None, None, []
    if q.strip():
        try:
            answer = chosen.search(q, top)
            together = chosen.together(parse(q, chosen.labels)) if also else []
        except InputError as error:
            problem = str(error)
    return page(
        request,
        "search.html",
        400 if problem else 200,
        predictions=chosen,
        number=file,
        raw=raw,
        q=q,
        top=top,
        answer=answer,
        problem=problem,
        also=also,
        together=together,
        some_labels=chosen.labels[:8],
        **({} if q.strip() else _overview(request, file, raw)),
    )


def _overview(request: Request, file: int, raw: bool) -> dict[str, Any]:
    """Return what the first page shows beside the search box."""
    state = state_of(request)
    look = state.file(file, raw).first_look
    asked = EntryQuery.model_validate({"file": file, "raw": raw, "kind": "doubtful"})
    wrong = state.workbench.entries(asked, 0, STRIP) if look.wrong else []
    decided = {} if state.reviewing is None else state.reviewing.decided()
    charts = {}
    if look.diagram is not None:
        words = "Reliability: how often a label is really there, by what the model says"
        charts["reliability"] = reliability_chart(look.diagram, words)
    if look.curve is not None:
        at = look.curve.balanced()
        charts["threshold"] = threshold_chart(look.curve.found, look.curve.right, at)
    if look.lift is not None:
        link = partial(both_labels, file=file, raw=raw)
        charts["lift"] = heat_map(look.lift.labels, look.lift.lift, look.lift.matters, link)
    return {
        "look": look,
        "charts": charts,
        "small": small_reliability,
        "wrong": wrong,
        "decided": decided,
        "shown_labels": look.labels[:SMALL_MULTIPLES],
    }


@router.get("/label")
def label_page(request: Request, file: FileNumber, name: Name, raw: Raw = False) -> HTMLResponse:
    chosen = state_of(request).file(file, raw)
    report = chosen.label_report(name)
    return page(
        request,
        "label.html",
        predictions=chosen,
        number=file,
        raw=raw,
        about=report.about,
        reliability=report.reliability,
        chart="" if report.reliability is None else chosen.chart(name),
        mistakes=report.mistakes,
        together=chosen.together(parse(wanted(name), chosen.labels)),
    )


@router.get("/docs")
def docs_page(request: Request) -> HTMLResponse:
    return page(request, "docs.html", description=request.app.openapi())


@router.get("/image")
def image(request: Request, id: Annotated[str, Query(max_length=1000)]) -> Response:
    images = state_of(request).images
    path = None if images is None else images.find(id)
    if path is None:
        raise HTTPException(404, "there is no image for this row.")
    return FileResponse(
        path,
        media_type=ImageFolder.types[path.suffix.lower()],
        headers={"cache-control": "max-age=3600"},
    )


@router.get("/static/{name}")
def static(name: str) -> Response:
    kinds = {"app.js": "text/javascript", "style.css": "text/css", "icon.svg": "image/svg+xml"}
    if name not in kinds:
        raise HTTPException(404, "there is no such file.")
    content = (files("credibly.app") / "static" / name).read_bytes()
    return Response(content, media_type=kinds[name])
