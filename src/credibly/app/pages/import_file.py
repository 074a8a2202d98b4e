"""The page on which somebody brings a file, declares what it holds and takes it calibrated away."""

from __future__ import annotations

import csv
import io
from typing import Annotated, Literal
from urllib.parse import quote, urlencode

from anyio import to_thread
from fastapi import APIRouter, Query, Request
from fastapi.responses import FileResponse, HTMLResponse, RedirectResponse, Response

from credibly.app.charts import reliability_drawing
from credibly.app.pages.rest import state_of
from credibly.app.served.importing import (
    METHODS,
    WAIT_SECONDS,
    BringQuery,
    Calibrated,
    calibrate,
    command,
    read_preview,
    suggested,
)
from credibly.app.server.forms import Form, read_form
from credibly.app.server.import_worker import MOST_VALUES
from credibly.app.server.request_guard import BODY_LIMIT
from credibly.app.server.templates import page
from credibly.app.server.upload_store import KEPT_SECONDS, Upload, Uploads
from credibly.checks import InputError
from credibly.files import spreadsheet_cell
from credibly.names import LOSSES
from credibly.predictions import FilePreview

router = APIRouter(include_in_schema=False, default_response_class=HTMLResponse)

SHOWN_COLUMNS = 12
STAGE_COLUMNS = {"NLL": "down", "ACE": "down", "ECE": "down", "Brier": "down", "mAP@y": "up"}
NOTHING = BringQuery.model_validate({})
ENDINGS = (".csv", ".parquet", ".npz", ".npy", ".arrow", ".feather")


class FileOfQuery(BringQuery):
    """A result to take away."""

    format: Literal["parquet", "csv", "map"] = "parquet"


@router.get("/bring")
async def bring_page(request: Request, asked: Annotated[BringQuery, Query()]) -> HTMLResponse:
    if not asked.token:
        return _page(request, asked)
    uploads: Uploads = state_of(request).uploads
    try:
        upload = uploads.find(asked.token)
    except InputError as error:
        return _page(request, NOTHING, problem=str(error))
    try:
        found = await uploads.turns.run(lambda: read_preview(upload), WAIT_SECONDS)
    except InputError as error:
        uploads.forget(asked.token)
        return _page(request, NOTHING, problem=str(error))
    if not asked.show:
        return _page(request, _with_suggestion(asked, found), upload, found)
    try:
        result = await uploads.turns.run(lambda: calibrate(upload, asked), WAIT_SECONDS)
    except InputError as error:
        return _page(request, asked, upload, found, problem=str(error))
    uploads.tidy()
    return _page(request, asked, upload, found, result)


@router.post("/bring")
async def bring_file(request: Request) -> Response:
    """Keep the files of a form for a while; a form without files says what to do with one."""
    body = await request.body()
    kind = request.headers.get("content-type", "")
    uploads: Uploads = state_of(request).uploads
    try:
        upload = await to_thread.run_sync(lambda: _kept(uploads, read_form(kind, body)))
    except InputError as error:
        return _page(request, NOTHING, problem=str(error))
    if upload is None:
        return RedirectResponse("/bring", 303)
    return RedirectResponse("/bring?" + urlencode({"token": upload.token}), 303)


def _kept(uploads: Uploads, form: Form) -> Upload | None:
    token, file, truth = (
        form.fields.get("token", ""),
        form.files.get("file"),
        form.files.get("truth"),
    )
    if token and "forget" in form.fields:
        uploads.forget(token)
        return None
    for given in filter(None, (file, truth)):
        if given.ending not in ENDINGS:
            raise InputError(
                f"{given.name} must end in {', '.join(ENDINGS[:-1])} or {ENDINGS[-1]}."
            )
    if token and truth is not None:
        return uploads.add_truth(token, truth)
    if file is None:
        raise InputError("choose a file first.")
    return uploads.add(file, truth)


@router.get("/bring/file")
async def bring_result(request: Request, asked: Annotated[FileOfQuery, Query()]) -> Response:
    """A calibrated file, or the fitted map, to take away."""
    uploads: Uploads = state_of(request).uploads
    upload = uploads.find(asked.token)
    declared = BringQuery.model_validate(asked.model_dump(exclude={"format"}))
    result = await uploads.turns.run(lambda: calibrate(upload, declared), WAIT_SECONDS)
    stem = upload.path.stem
    if asked.format == "map":
        return FileResponse(result.folder / "map.json", headers=_attached(f"{stem}-map.json"))
    if asked.format == "parquet":
        path = result.folder / "predictions.parquet"
        return FileResponse(path, headers=_attached(f"{stem}-calibrated.parquet"))
    text = await to_thread.run_sync(lambda: _as_csv(result))
    return Response(text, media_type="text/csv", headers=_attached(f"{stem}-calibrated.csv"))


def _attached(name: str) -> dict[str, str]:
    return {"content-disposition": f"attachment; filename*=UTF-8''{quote(name)}"}


def _as_csv(result: Calibrated) -> str:
    """Return ids and calibrated probabilities; no cell is run as a formula by a spreadsheet."""
    from credibly.predictions import Predictions

    rows = Predictions.read(result.folder / "predictions.parquet")
    buffer = io.StringIO()
    writer = csv.writer(buffer, lineterminator="\n")
    writer.writerow(["id", *(spreadsheet_cell(label) for label in rows.labels)])
    for id, probabilities in zip(rows.ids, rows.probabilities.tolist(), strict=True):
        cells = (f"{probability:.7g}" for probability in probabilities)
        writer.writerow([spreadsheet_cell(str(id)), *cells])
    return buffer.getvalue()


def _with_suggestion(asked: BringQuery, found: FilePreview) -> BringQuery:
    hint = suggested(found.names, tabular=found.tabular)
    changes = {name: value for name, value in vars(hint).items() if value}
    return asked.model_copy(update=changes)


def _page(
    request: Request,
    asked: BringQuery,
    upload: Upload | None = None,
    preview: FilePreview | None = None,
    result: Calibrated | None = None,
    problem: str = "",
) -> HTMLResponse:
    address = urlencode(
        {
            name: value
            for name, value in asked.model_dump().items()
            if value not in (None, "", False)
        }
    )
    return page(
        request,
        "bring.html",
        400 if problem else 200,
        asked=asked,
        upload=upload,
        preview=preview,
        shown_columns=SHOWN_COLUMNS,
        result=None if result is None else result.numbers,
        drawing="" if result is None else reliability_drawing(result.numbers["diagrams"]),
        columns=STAGE_COLUMNS,
        command="" if upload is None or result is None else command(upload, asked),
        downloads="/bring/file?" + address,
        losses=sorted(LOSSES),
        methods=METHODS,
        problem=problem,
        accept=",".join(ENDINGS),
        limits={"bytes": BODY_LIMIT, "numbers": MOST_VALUES, "minutes": int(KEPT_SECONDS // 60)},
    )
