"""Files of the app and images of rows, and the page that describes the REST API."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Query, Request
from fastapi.responses import FileResponse, HTMLResponse, Response
from starlette.exceptions import HTTPException

from credibly.app.pages.api import state_of
from credibly.app.server.templates import STATIC, page, static_file
from credibly.data.image_files import ImageFolder

router = APIRouter(include_in_schema=False, default_response_class=HTMLResponse)

MEANINGS = {
    "file": "which predictions file, from 0",
    "raw": "before calibration",
    "threshold": "rule: return labels of at least this probability",
    "average_size": "rule: labels per row, on average",
    "recall": "rule: share of the labels to find, with a guarantee",
    "miss": "rule: cost of a miss",
    "false_alarm": "rule: cost of a false alarm",
    "review": "rule: cost of a review by a person",
    "own": "rule: costs of single labels, as JSON",
    "label": "name of a label; empty for all",
    "q": "labels wanted and not wanted: +fork -knife",
    "kind": "what holds for the labels: missed, false-alarm, hit, borderline, …",
    "low": "lowest probability",
    "high": "highest probability",
    "labels_min": "fewest labels of a row",
    "labels_max": "most labels of a row",
    "truth": "any, known or unknown",
    "top": "how many",
    "start": "from which place on",
    "against": "number of the other file",
    "id": "id of a row",
    "format": "json or csv",
    "contains": "part of a label's name",
    "flagged": "only labels whose probabilities are clearly off",
    "sort": "column to sort by",
    "down": "largest first",
    "prefix": "part of a label's name",
    "limit": "how many",
    "first": "number of a file",
    "second": "number of another file",
    "by": "NLL, ACE or mAP@y",
    "all": "all labels of the row",
}
"""Parameters of the API that have no description of their own."""

FOREVER = {"cache-control": "max-age=31536000, immutable"}
HOUR = {"cache-control": "private, max-age=3600"}


@router.get("/docs")
def docs_page(request: Request) -> HTMLResponse:
    return page(request, "docs.html", description=request.app.openapi(), meanings=MEANINGS)


@router.get("/image")
def image(
    request: Request, id: Annotated[str, Query(max_length=1000)], small: bool = False
) -> Response:
    """The image of a row; ``small`` asks for a copy that fits a tile."""
    state = state_of(request)
    path = None if state.images is None else state.images.find(id)
    if path is None:
        raise HTTPException(404, "there is no image for this row.")
    if small and (made := state.thumbnails.path(path)) is not None:
        return FileResponse(made, media_type=ImageFolder.types[made.suffix], headers=HOUR)
    return FileResponse(path, media_type=ImageFolder.types[path.suffix.lower()], headers=HOUR)


@router.get("/static/{name}")
def static(request: Request, name: str, v: str = "") -> Response:
    if name not in STATIC:
        raise HTTPException(404, "there is no such file.")
    content, tag = static_file(name)
    if request.headers.get("if-none-match") == f'"{tag}"':
        return Response(status_code=304)
    kept = FOREVER if v == tag else {"cache-control": "no-cache"}
    return Response(content, media_type=STATIC[name], headers={**kept, "etag": f'"{tag}"'})
