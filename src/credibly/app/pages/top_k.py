"""Pages and API over files with the most probable labels of each row."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from typing import Annotated, Any, Literal

import numpy as np
from fastapi import APIRouter, Query, Request
from fastapi.responses import HTMLResponse, Response

from credibly.app.pages import api as rest
from credibly.app.pages import overview as home
from credibly.app.pages.api import FAILURES, FileNumber, Name, QueryText, Top, plain, state_of
from credibly.app.served.top_k import ServedTop
from credibly.app.server.templates import page
from credibly.checks import InputError
from credibly.types import Array

router = APIRouter(include_in_schema=False, default_response_class=HTMLResponse)
api = APIRouter(prefix="/api", tags=["api"])

PER_PAGE = 100
Order = Literal["surprise", "held", "present", "label"]
RowId = Annotated[str, Query(max_length=1000)]

for path, function in (
    ("/docs", home.docs_page),
    ("/image", home.image),
    ("/static/{name}", home.static),
):
    router.add_api_route(path, function, response_model=None)
api.add_api_route("/health", rest.health)


@router.get("/")
def home_page(
    request: Request, file: FileNumber, q: home.Text = "", top: home.PageTop = 24
) -> Response:
    chosen: ServedTop = state_of(request).file(file)
    answer, problem = None, None
    if q.strip():
        try:
            answer = chosen.search(q, top)
        except InputError as error:
            problem = str(error)
    return page(
        request,
        "top_home.html",
        400 if problem else 200,
        predictions=chosen,
        number=file,
        raw=False,
        q=q,
        top=top,
        answer=answer,
        problem=problem,
        some_labels=[chosen.labels[int(number)] for number in _often_held(chosen)],
        summary=chosen.summary,
    )


def _often_held(file: ServedTop) -> Array:
    return np.argsort(-file.summary.held, kind="stable")[:4]


@router.get("/labels")
def labels_page(
    request: Request,
    file: FileNumber,
    contains: Annotated[str, Query(max_length=1000)] = "",
    sort: Order = "surprise",
    start: Annotated[int, Query(ge=0, le=10_000_000)] = 0,
) -> Response:
    chosen: ServedTop = state_of(request).file(file)
    found = _ordered(chosen, contains, sort)
    return page(
        request,
        "top_labels.html",
        predictions=chosen,
        number=file,
        raw=False,
        contains=contains,
        sort=sort,
        start=start,
        per_page=PER_PAGE,
        found=len(found),
        rows=[chosen.summary.label(int(each)) for each in found[start : start + PER_PAGE]],
    )


def _ordered(file: ServedTop, contains: str, sort: Order) -> Array:
    summary = file.summary
    orders = {
        "surprise": summary.by_surprise,
        "held": lambda: np.argsort(-summary.held, kind="stable"),
        "present": lambda: np.argsort(-summary.present, kind="stable"),
        "label": lambda: np.arange(len(file.labels)),
    }
    order = orders[sort]()
    return order[np.isin(order, file.named(contains))] if contains else order


@router.get("/label")
def label_page(request: Request, file: FileNumber, name: Name) -> Response:
    chosen: ServedTop = state_of(request).file(file)
    return page(
        request,
        "top_label.html",
        predictions=chosen,
        number=file,
        raw=False,
        report=chosen.label_report(name),
    )


@router.get("/row")
def row_page(
    request: Request, file: FileNumber, id: RowId, within: home.Text | None = None
) -> Response:
    chosen: ServedTop = state_of(request).file(file)
    item = chosen.item(id)
    return page(request, "top_row.html", predictions=chosen, number=file, raw=False, item=item)


@api.get("/labels", responses=FAILURES)
def labels(
    request: Request,
    file: FileNumber,
    prefix: Annotated[str, Query(max_length=1000)] = "",
    limit: Annotated[int, Query(ge=1, le=1000)] = 20,
) -> dict[str, Any]:
    """Labels that contain ``prefix``; those that start with it first."""
    chosen: ServedTop = state_of(request).file(file)
    found = chosen.named(prefix)
    return {
        "labels": [chosen.labels[int(each)] for each in found[:limit]],
        "total": len(found),
    }


@api.get("/search", responses=FAILURES)
def search(request: Request, file: FileNumber, q: QueryText, top: Top = 20) -> dict[str, Any]:
    """The most probable rows for a query, each condition's share, and expected hits."""
    state = state_of(request)
    return state.file(file).search(q, top).with_texts(state.texts).to_dict()


@api.get("/summary", responses=FAILURES)
def summary(request: Request, file: FileNumber) -> dict[str, Any]:
    """Precision, nDCG and recall at 1 … k, and calibration of the labels held."""
    found = state_of(request).file(file).summary
    return {
        "rows": found.num_rows,
        "known_rows": found.num_known,
        "k": found.k,
        **{name: plain(np.asarray(vars(found)[name])) for name in ("precision", "ndcg", "recall")},
        "held_labels": {name: plain(value) for name, value in found.figures.items()},
    }


@api.get("/label", responses=FAILURES)
def label(request: Request, file: FileNumber, name: Name) -> dict[str, Any]:
    """One label in the rows that hold it, and rows where it is wrong."""
    found = state_of(request).file(file).label_report(name)
    return {
        **asdict(found.about),
        "gap": plain(found.about.gap),
        "best": [asdict(each) for each in found.best],
        "false_alarms": [asdict(each) for each in found.false_alarms],
        "missed": [asdict(each) for each in found.missed],
    }


@api.get("/row", responses=FAILURES)
def row(request: Request, file: FileNumber, id: RowId) -> dict[str, Any]:
    """One row: the labels it holds with probability and truth, and those it lacks."""
    return asdict(state_of(request).file(file).item(id))


def refusing(others: Sequence[APIRouter]) -> APIRouter:
    """Return a router that says of every page of ``others`` why it is not here."""
    refused = APIRouter(include_in_schema=False)

    def refuse(request: Request) -> Response:
        raise InputError(
            f"{request.url.path} needs a probability for every label and row; these files hold the "
            "most probable labels of each row. Search, labels and rows are there."
        )

    own = {route.path for each in (router, api) for route in each.routes}  # pyright: ignore[reportAttributeAccessIssue]
    for each in others:
        for route in each.routes:
            path: str = route.path  # pyright: ignore[reportAttributeAccessIssue]
            if path not in own:
                refused.add_api_route(path, refuse, methods=["GET", "POST"], response_model=None)
    return refused
