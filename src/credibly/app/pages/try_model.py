"""The page on which somebody tries the run: an image, a text or features."""

from __future__ import annotations

import base64
import io
from dataclasses import dataclass
from typing import Annotated, Any
from urllib.parse import urlencode

from anyio import to_thread
from fastapi import APIRouter, Query, Request
from fastapi.responses import HTMLResponse, RedirectResponse, Response
from pydantic import Field

from credibly.app.pages.address import FileQuery
from credibly.app.pages.rest import state_of
from credibly.app.served.features import parse_features
from credibly.app.served.model import MOST_CHARACTERS, MOST_PIXELS, Model
from credibly.app.served.trying import Tried, tried
from credibly.app.server.forms import Form, UploadedFile, read_form
from credibly.app.server.request_guard import BODY_LIMIT, HEADERS
from credibly.app.server.templates import page
from credibly.checks import InputError
from credibly.data import ImageFolder
from credibly.types import Array

router = APIRouter(include_in_schema=False, default_response_class=HTMLResponse)

SHORT = 2000
"""Characters of what was typed that go into the address, so that it can be kept as a link."""

NO_MODEL = "Start the server with a trained run: credibly serve PREDICTIONS --run RUN."
FEATURE_ENDINGS = (".csv", ".txt", ".json", ".npy")


class TryQuery(FileQuery):
    """What to try, typed; and the file and rule that the answer is compared with."""

    text: str = Field("", max_length=SHORT)
    second: str = Field("", max_length=SHORT)
    features: str = Field("", max_length=SHORT)

    @property
    def typed(self) -> dict[str, str]:
        """Return the fields that were filled in."""
        return {name: value for name, value in self.fields.items() if value.strip()}

    @property
    def fields(self) -> dict[str, str]:
        """Return the fields to type in."""
        return {"text": self.text, "second": self.second, "features": self.features}


@dataclass(frozen=True)
class Answer:
    """A prediction, how many rows were given, a note, and the image as the network sees it."""

    prediction: dict[str, Any]
    rows: int = 1
    note: str = ""
    seen: str = ""


@router.get("/try")
async def try_page(request: Request, asked: Annotated[TryQuery, Query()]) -> HTMLResponse:
    return await _answer(request, asked, Form(asked.typed, {}))


@router.post("/try")
async def try_form(request: Request, asked: Annotated[FileQuery, Query()]) -> Response:
    """Predict what a form holds; what is short and was typed goes into the address."""
    body = await request.body()
    kind = request.headers.get("content-type", "")
    where = TryQuery.model_validate(asked.model_dump())
    try:
        form = await to_thread.run_sync(lambda: read_form(kind, body))
    except InputError as error:
        return _page(request, where, {}, problem=str(error))
    typed = {n: value for n, value in form.fields.items() if n in where.fields and value.strip()}
    if typed and not form.files and sum(map(len, typed.values())) <= SHORT:
        address = "&".join(filter(None, [asked.parameters(), urlencode(typed)]))
        return RedirectResponse(f"/try?{address}", 303)
    return await _answer(request, where, form)


async def _answer(request: Request, asked: TryQuery, form: Form) -> HTMLResponse:
    state = state_of(request)
    model: Model | None = state.model
    if model is None or not (form.fields or form.files):
        nothing = "" if request.method == "GET" else "Choose a file or type something first."
        return _page(request, asked, {}, problem="" if model is None else nothing)
    fields = {name: value for name, value in form.fields.items() if name in asked.fields}
    try:
        answer = await model.in_turn(lambda: _predict(model, form))
        found = await to_thread.run_sync(lambda: tried(state.workbench, asked, answer.prediction))
    except InputError as error:
        return _page(request, asked, fields, problem=str(error))
    return _page(request, asked, fields, answer, found)


def _page(
    request: Request,
    asked: TryQuery,
    fields: dict[str, str],
    answer: Answer | None = None,
    found: Tried | None = None,
    problem: str = "",
) -> HTMLResponse:
    model: Model | None = state_of(request).model
    kind = "" if model is None else model.kind
    shown = page(
        request,
        "try.html",
        400 if problem else 200,
        number=asked.file,
        raw=asked.raw,
        kind=kind,
        columns=0 if model is None else model.text_columns,
        width=0 if model is None else int(model.run.data["shape"][0]),
        names=[] if model is None else model.feature_names or [],
        reason=_reason(model),
        fields=fields,
        answer=answer,
        found=found,
        problem=problem,
        limits={"bytes": BODY_LIMIT, "pixels": MOST_PIXELS, "characters": MOST_CHARACTERS},
        accept=",".join(ImageFolder.types if kind == "images" else FEATURE_ENDINGS),
        action=f"/try?{asked.parameters(text=None, second=None, features=None)}",
    )
    # The image comes with the page: nothing that is tried is kept on the server.
    policy = HEADERS["content-security-policy"].replace("img-src 'self'", "img-src 'self' data:")
    shown.headers["content-security-policy"] = policy
    return shown


def _reason(model: Model | None) -> str:
    """Return why nothing can be tried here; empty if something can."""
    if model is None:
        return NO_MODEL
    if model.kind not in ("images", "features", "text"):
        return f"The run takes {model.kind}, which cannot be typed here; use `credibly predict`."
    if model.run.keeps_top_labels:
        return "The run keeps the most probable labels of each row; use `credibly predict`."
    return ""


def _predict(model: Model, form: Form) -> Answer:
    """Return the prediction of what a form holds, of the kind that the run takes."""
    if reason := _reason(model):
        raise InputError(reason)
    if model.kind == "text":
        return _predict_text(model, form)
    file = form.files.get("file")
    if model.kind == "images":
        if file is None:
            raise InputError("this run takes images. Choose an image file.")
        pixels = model.pixels(file.content, file.name)
        return Answer(model.predict_array(pixels[None], _own), seen=_as_png(pixels))
    return _predict_features(model, form.fields.get("features", ""), file)


def _predict_text(model: Model, form: Form) -> Answer:
    file = form.files.get("file")
    if file is None:
        typed = [form.fields.get(name, "") for name in ("text", "second")]
        texts = typed[: model.text_columns]
    else:
        try:
            texts = [file.content.decode("utf-8-sig")]
        except UnicodeDecodeError as error:
            raise InputError(f"{file.name} must be a text in UTF-8; {error.reason}.") from error
    if not any(text.strip() for text in texts):
        raise InputError("this run takes texts. Type or paste one.")
    return Answer(model.predict_texts([texts], _own))


def _predict_features(model: Model, typed: str, file: UploadedFile | None) -> Answer:
    if file is None and not typed.strip():
        raise InputError("this run takes features. Type or paste them, or choose a file.")
    names = model.feature_names
    if file is None:
        rows, note = parse_features(typed.encode(), "", "the features", names)
    else:
        rows, note = parse_features(file.content, file.ending, file.name, names)
    width = int(model.run.data["shape"][0])
    if rows.shape[1] != width:
        raise InputError(
            f"a row must have the {width:,} features that the run was trained on; got "
            f"{rows.shape[1]:,}."
        )
    return Answer(model.predict_array(rows[:1], _own), rows=len(rows), note=note)


def _own() -> None:
    """Return no rule: the prediction comes with the set by the run's own."""


def _as_png(pixels: Array) -> str:
    """Return an image as the address of a picture inside of the page."""
    from PIL import Image

    file = io.BytesIO()
    Image.fromarray(pixels).save(file, "PNG")
    return "data:image/png;base64," + base64.b64encode(file.getvalue()).decode()
