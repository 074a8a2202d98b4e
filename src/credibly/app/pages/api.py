"""The REST API. Errors are ``{"error": …}`` in the words of the command line."""

from __future__ import annotations

import math
import re
import time
from collections.abc import Callable
from dataclasses import asdict
from threading import Lock
from typing import Annotated, Any, TypeVar

import numpy as np
from fastapi import APIRouter, Query, Request
from fastapi.exceptions import RequestValidationError
from pydantic import BaseModel, Field, ValidationError

from credibly import __version__
from credibly.app.served.model import MOST_VALUES, Model
from credibly.app.served.workbench import Served
from credibly.app.server.background import Busy
from credibly.checks import InputError
from credibly.decide import Decision
from credibly.retrieve import parse

Body = TypeVar("Body", bound=BaseModel)

router = APIRouter(prefix="/api", tags=["api"])

QueryText = Annotated[
    str,
    Query(max_length=2000, description="a query: `+fork +apple -knife`, `(dog | cat) & !beach`"),
]
Top = Annotated[int, Query(ge=1, le=1000, description="how many rows to give back")]
Raw = Annotated[bool, Query(description="before calibration")]
Name = Annotated[str, Query(min_length=1, max_length=1000, description="name of a label")]
Size = Annotated[float, Query(ge=0.05, le=1e6, description="labels per row, on average")]


FileNumber = Annotated[int, Query(ge=0, le=99, description="which predictions file, from 0")]


class ErrorMessage(BaseModel):
    """What went wrong and what to do about it."""

    error: str


class Features(BaseModel):
    """Rows of features, as the run was trained on: lists of numbers, in their order."""

    features: list[list[float]] = Field(min_length=1, max_length=1000)
    average_size: float | None = Field(default=None, ge=0.05, le=1e6)


Named = dict[str, float | str | bool | None]


class NamedFeatures(BaseModel):
    """Rows of features by name: an object, or a list of objects. null is a missing value."""

    features: Named | Annotated[list[Named], Field(min_length=1, max_length=1000)]
    average_size: float | None = Field(default=None, ge=0.05, le=1e6)


# The text tells which of the two a body is: a model that looks at parsed rows to find out keeps
# them twice.
_PARSING = Lock()
_NAMED = re.compile(rb'"features"\s*:\s*(\[\s*)?\{')


class Texts(BaseModel):
    """Texts, one per row or a list of a row's columns, as the run was trained on."""

    texts: list[str | list[str]] = Field(min_length=1, max_length=1000)
    average_size: float | None = Field(default=None, ge=0.05, le=1e6)


FAILURES: dict[int | str, dict[str, Any]] = {
    status: {"model": ErrorMessage}
    for status in (400, 403, 404, 408, 413, 414, 421, 422, 431, 503, 505, 507)
}


def state_of(request: Request) -> Any:
    """Return what the server was started with, unless the request has waited too long."""
    if time.monotonic() > request.scope.get("deadline", math.inf):
        raise Busy("this request waited too long for its turn; try again soon.")
    return request.app.state.served


def _file(request: Request, number: int, raw: bool) -> Served:
    return state_of(request).file(number, raw)


@router.get("/health")
async def health(request: Request) -> dict[str, Any]:
    """Whether the server is up, and what it serves. Answered whatever else is worked on."""
    served = state_of(request)
    return {
        "status": "ok",
        "version": __version__,
        "predictions": [
            {"name": file.name, "rows": file.scan.num_rows, "labels": len(file.labels)}
            for file in served.files
        ],
        "images": served.images is not None,
        "texts": bool(served.texts),
        "run": served.model is not None,
        "annotate": served.reviewing is not None,
    }


@router.get("/labels", responses=FAILURES)
def labels(
    request: Request,
    file: FileNumber = 0,
    prefix: Annotated[str, Query(max_length=1000)] = "",
    limit: Annotated[int, Query(ge=1, le=1000)] = 20,
) -> dict[str, Any]:
    """Labels that contain `prefix`, in any case; those that start with it first."""
    chosen = _file(request, file, False)
    found = chosen.named(prefix)
    return {"labels": [chosen.labels[each] for each in found[:limit]], "total": len(found)}


@router.get("/search", responses=FAILURES)
def search(
    request: Request, q: QueryText, file: FileNumber = 0, top: Top = 20, raw: Raw = False
) -> dict[str, Any]:
    """The most probable rows for a query, each condition's share, and expected hits."""
    answer = _file(request, file, raw).search(q, top)
    return answer.with_texts(state_of(request).texts).to_dict()


@router.get("/together", responses=FAILURES)
def together(
    request: Request, q: QueryText, file: FileNumber = 0, raw: Raw = False
) -> dict[str, Any]:
    """Given a query: which other labels are probable, and how many times as probable as usual."""
    chosen = _file(request, file, raw)
    listed = chosen.together(parse(q, chosen.labels))
    return {"together": [{**asdict(each), "lift": plain(each.lift)} for each in listed]}


@router.get("/sets", responses=FAILURES)
def sets(
    request: Request, average_size: Size, file: FileNumber = 0, raw: Raw = False
) -> dict[str, Any]:
    """What a label budget means: threshold, sizes and, where truth is known, coverage."""
    chosen = state_of(request).workbench.file(file, raw)
    return asdict(chosen.budget(round(average_size, 2)))


# The body is read as bytes, whose total is bounded (`Guard`), and parsed by one of the few
# predictions at once: parsed rows take many times the memory of their text.


def _body(media_type: str, schema: dict[str, Any]) -> dict[str, Any]:
    return {"requestBody": {"required": True, "content": {media_type: {"schema": schema}}}}


@router.post(
    "/predict",
    responses=FAILURES,
    openapi_extra=_body(
        "application/json",
        {"anyOf": [Features.model_json_schema(), NamedFeatures.model_json_schema()]},
    ),
)
async def predict(request: Request) -> dict[str, Any]:
    """Probabilities and a label set for each row of features."""
    body = await request.body()

    def work() -> dict[str, Any]:
        model, beside = _model(request), {}
        with _PARSING:  # parsed rows take thirty times the memory of an array
            asked = _features(request, body)
            size = asked.average_size
            if isinstance(asked, Features):
                rows = model.rows(asked.features)
            elif isinstance(asked.features, dict):
                rows, beside = model.named_rows([asked.features])
            else:
                rows, beside = model.named_rows(asked.features)
            del asked
        return {**model.predict_rows(rows, _decision(request, size)), **beside}

    return await _model(request).in_turn(work)


@router.post(
    "/predict/text",
    responses=FAILURES,
    openapi_extra=_body("application/json", Texts.model_json_schema()),
)
async def predict_text(request: Request) -> dict[str, Any]:
    """Probabilities and a label set for each text."""
    body = await request.body()

    def work() -> dict[str, Any]:
        require_json(request)
        asked = parsed_body(Texts, body)
        rows = [[each] if isinstance(each, str) else each for each in asked.texts]
        return _model(request).predict_texts(rows, _decision(request, asked.average_size))

    return await _model(request).in_turn(work)


@router.post(
    "/predict/image",
    responses=FAILURES,
    openapi_extra=_body("application/octet-stream", {"type": "string", "format": "binary"}),
)
async def predict_image(request: Request, average_size: Size | None = None) -> dict[str, Any]:
    """Probabilities and a label set for one image: the request's body is the image file."""
    body = await request.body()

    def work() -> dict[str, Any]:
        return _model(request).predict_image(body, _decision(request, average_size))

    return await _model(request).in_turn(work)


def require_json(request: Request) -> None:
    """Refuse a body that does not say that it is JSON."""
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind != "application/json":
        raise InputError(f"the body must be application/json; got {kind[:100]!r}.")


def parsed_body(kind: type[Body], body: bytes) -> Body:
    """Return a body as a model of its fields."""
    try:
        return kind.model_validate_json(body)
    except ValidationError as error:
        raise RequestValidationError(error.errors()) from error


def _features(request: Request, body: bytes) -> Features | NamedFeatures:
    require_json(request)
    if body.count(b",") > MOST_VALUES:  # before they are parsed, which takes far more memory
        raise InputError(
            f"a request must hold at most {MOST_VALUES:,} numbers. Send fewer rows, or use "
            "`credibly predict`."
        )
    return parsed_body(NamedFeatures if _NAMED.search(body) else Features, body)


def _model(request: Request) -> Model:
    model = state_of(request).model
    if model is None:
        raise InputError(
            "this server has no model. Start it with `credibly serve PREDICTIONS --run RUN`."
        )
    return model


def _decision(request: Request, average_size: float | None) -> Callable[[], Decision | None]:
    """Return the rule for an average size, fitted on the first file; None for the run's own."""

    def fitted() -> Decision | None:
        if average_size is None:
            return None
        served = state_of(request)
        return served.files[0].decision(round(average_size, 2), served.model.run.labels)

    return fitted


def plain(value: object) -> Any:
    """Return a value that JSON holds: no NaN, no numpy."""
    if isinstance(value, np.ndarray):
        return [plain(item) for item in value.tolist()]
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value
