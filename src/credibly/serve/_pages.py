"""The pages. All state is in the address; without JavaScript every form still works."""

from __future__ import annotations

from functools import lru_cache
from importlib.resources import files
from typing import Annotated, Any
from urllib.parse import urlencode

import numpy as np
from fastapi import APIRouter, Query, Request
from fastapi.responses import FileResponse, HTMLResponse, JSONResponse, Response
from starlette.exceptions import HTTPException

from credibly import __version__
from credibly.checks import InputError
from credibly.serve._api import Name, Number, Raw, Size, state_of
from credibly.serve._images import TYPES
from credibly.summaries import COLUMNS

router = APIRouter(include_in_schema=False, default_response_class=HTMLResponse)

PageTop = Annotated[int, Query(ge=1, le=200)]
Text = Annotated[str, Query(max_length=2000)]


@lru_cache(maxsize=1)
def _environment() -> Any:
    from jinja2 import Environment, PackageLoader, StrictUndefined

    environment = Environment(
        loader=PackageLoader("credibly.serve", "templates"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters["percent"] = lambda value: f"{100 * value:.1f} %"
    environment.globals["version"] = __version__
    return environment


def _page(request: Request, template: str, status: int = 200, **values: object) -> HTMLResponse:
    served = request.app.state.served
    query = dict(request.query_params)

    def address(path: str, **changes: object) -> str:
        """A link that keeps which file is looked at, and whether before calibration."""
        kept = {key: query[key] for key in ("book", "raw") if key in query}
        merged = {**kept, **changes}
        return path + "?" + urlencode({k: v for k, v in merged.items() if v is not None})

    text = (
        _environment()
        .get_template(template)
        .render(served=served, address=address, path=request.url.path, query=query, **values)
    )
    return HTMLResponse(text, status)


def failure(request: Request, status: int, message: str) -> Response:
    """An error as JSON for programs and as a page for people."""
    if request.url.path.startswith("/api/"):
        return JSONResponse({"error": message}, status)
    return _page(request, "error.html", status, message=message)


@router.get("/")
def search_page(
    request: Request, q: Text = "", top: PageTop = 24, book: Number = 0, raw: Raw = False
) -> HTMLResponse:
    chosen = state_of(request).book(book, raw)
    answer, problem = None, None
    if q.strip():
        try:
            answer = chosen.search(q, top)
        except InputError as error:
            problem = str(error)
    return _page(
        request,
        "search.html",
        400 if problem else 200,
        book=chosen,
        number=book,
        raw=raw,
        q=q,
        top=top,
        answer=answer,
        problem=problem,
        some_labels=chosen.labels[:8],
    )


@router.get("/labels")
def labels_page(request: Request, book: Number = 0, raw: Raw = False) -> HTMLResponse:
    chosen = state_of(request).book(book, raw)
    return _page(request, "labels.html", book=chosen, number=book, raw=raw, rows=chosen.label_table)


@router.get("/label")
def label_page(request: Request, name: Name, book: Number = 0, raw: Raw = False) -> HTMLResponse:
    chosen = state_of(request).book(book, raw)
    judged = chosen.judge(name)
    return _page(
        request,
        "label.html",
        book=chosen,
        number=book,
        raw=raw,
        about=judged.about,
        reliability=judged.reliability,
        chart="" if judged.reliability is None else chosen.chart(name),
        mistakes=judged.mistakes,
    )


@router.get("/budget")
def budget_page(
    request: Request, average_size: Size | None = None, book: Number = 0, raw: Raw = False
) -> HTMLResponse:
    chosen = state_of(request).book(book, raw)
    most = float(min(len(chosen.labels), 20))
    size = min(average_size or max(0.1, round(_expected_size(chosen), 1)), len(chosen.labels))
    found = chosen.budget(round(size, 2))
    values = {"budget": found, "size": size, "most": max(most, size)}
    return _page(request, "budget.html", book=chosen, number=book, raw=raw, **values)


def _expected_size(book: Any) -> float:
    return float(book.sample.probabilities.sum(1, dtype=np.float64).mean())


@router.get("/compare")
def compare_page(request: Request, q: Text = "", top: PageTop = 12) -> HTMLResponse:
    served = state_of(request)
    if len(served.books) < 2:
        raise InputError("comparing needs two files: `credibly serve A.parquet B.parquet`.")
    answers, problem = [], None
    if q.strip():
        try:
            answers = [book.search(q, top) for book in served.books]
        except InputError as error:
            problem = str(error)
    return _page(
        request,
        "compare.html",
        q=q,
        top=top,
        answers=answers,
        problem=problem,
        columns=COLUMNS,
        compared=served.compared,
    )


@router.get("/docs")
def docs_page(request: Request) -> HTMLResponse:
    return _page(request, "docs.html", description=request.app.openapi())


@router.get("/image")
def image(request: Request, id: Annotated[str, Query(max_length=1000)]) -> Response:
    images = state_of(request).images
    path = None if images is None else images.find(id)
    if path is None:
        raise HTTPException(404, "there is no image for this row.")
    return FileResponse(
        path, media_type=TYPES[path.suffix.lower()], headers={"cache-control": "max-age=3600"}
    )


@router.get("/static/{name}")
def static(name: str) -> Response:
    kinds = {"app.js": "text/javascript", "style.css": "text/css", "icon.svg": "image/svg+xml"}
    if name not in kinds:
        raise HTTPException(404, "there is no such file.")
    content = (files("credibly.serve") / "static" / name).read_bytes()
    return Response(content, media_type=kinds[name])
