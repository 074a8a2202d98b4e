"""The REST API. Errors are ``{"error": …}`` in the words of the command line."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict
from threading import Lock
from typing import Annotated, Any, TypeVar

from anyio import to_thread
from fastapi import APIRouter, Query, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import FileResponse, HTMLResponse, Response
from pydantic import BaseModel, Field, TypeAdapter, ValidationError
from starlette.exceptions import HTTPException

from credibly import __version__
from credibly.app.rendering import STATIC, static_file
from credibly.app.server.responses import page, state_of
from credibly.app.store.model import MOST_VALUES, ServedModel, json_features, map_scores
from credibly.app.store.store import Served
from credibly.checks import InputError
from credibly.data.preparation import Columns
from credibly.decide.base import Decision
from credibly.types import JsonObject
from credibly.untrusted.images import ImageFolder

Body = TypeVar("Body", bound=BaseModel)

router = APIRouter()

QueryText = Annotated[
    str,
    Query(max_length=2000, description="a query: `+fork +apple -knife`, `(dog | cat) & !beach`"),
]
Top = Annotated[int, Query(ge=1, le=1000, description="how many rows to give back")]
Raw = Annotated[bool, Query(description="before calibration")]
Size = Annotated[float, Query(ge=0.05, le=1e6, description="labels per row, on average")]


FileNumber = Annotated[int, Query(ge=0, le=99, description="which predictions file, from 0")]


class ErrorMessage(BaseModel):
    """What went wrong and what to do about it."""

    error: str


def _one_of(*types: Any) -> JsonObject:
    """Return the JSON schema of a field that is one of several types."""
    return {"anyOf": [TypeAdapter(each).json_schema() for each in types]}


Values = dict[str, float | str | bool | None]
MOST_ROWS = 1000


class FeatureRows(BaseModel):
    """Rows of features: lists of numbers in the order of training, or objects by name.

    null is a missing value.
    """

    features: Annotated[
        Any, Field(json_schema_extra=_one_of(list[list[float | None]], Values, list[Values]))
    ]
    average_size: float | None = Field(default=None, ge=0.05, le=1e6)


Named = dict[str, float]


class Scores(BaseModel):
    """Rows of scores of a model that runs elsewhere: lists of numbers, or objects by label."""

    scores: Annotated[Any, Field(json_schema_extra=_one_of(list[list[float]], Named, list[Named]))]
    average_size: float | None = Field(default=None, ge=0.05, le=1e6)


# Parsed rows take thirty times the memory of an array: one body is parsed at a time.
_PARSING = Lock()


class Texts(BaseModel):
    """Texts, one per row or a list of a row's columns, as the run was trained on."""

    texts: list[str | list[str]] = Field(min_length=1, max_length=1000)
    average_size: float | None = Field(default=None, ge=0.05, le=1e6)


FAILURES: dict[int | str, JsonObject] = {
    status: {"model": ErrorMessage}
    for status in (400, 403, 404, 408, 413, 414, 421, 422, 431, 503, 505, 507)
}


def _file(request: Request, number: int, raw: bool) -> Served:
    return state_of(request).file(number, raw)


@router.get("/api/health")
async def health(request: Request) -> JsonObject:
    """Whether the server is up, and what it serves. Answered under any load."""
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


@router.get("/api/ready")
async def ready(request: Request, response: Response) -> JsonObject:
    """200 when the files are read and the model is ready, 503 until then."""
    response.status_code = 200 if request.app.state.ready else 503
    return {"ready": request.app.state.ready}


@router.get("/api/labels")
def labels(
    request: Request,
    file: FileNumber = 0,
    prefix: Annotated[str, Query(max_length=1000)] = "",
    limit: Annotated[int, Query(ge=1, le=1000)] = 20,
) -> JsonObject:
    """Labels that contain `prefix`, in any case; those that start with it first."""
    chosen = _file(request, file, False)
    found = chosen.named(prefix)
    return {"labels": [chosen.labels[each] for each in found[:limit]], "total": len(found)}


@router.get("/api/search")
def search(
    request: Request, q: QueryText, file: FileNumber = 0, top: Top = 20, raw: Raw = False
) -> JsonObject:
    """The most probable rows for a query, each condition's share, and expected hits."""
    answer = _file(request, file, raw).search(q, top)
    return answer.with_texts(state_of(request).texts).to_dict()


@router.get("/api/sets")
def sets(
    request: Request, average_size: Size, file: FileNumber = 0, raw: Raw = False
) -> JsonObject:
    """What a label budget means: threshold, sizes and, where truth is known, coverage."""
    chosen = state_of(request).store.file(file, raw)
    return asdict(chosen.budget(round(average_size, 2)))


# The body is read as bytes, whose total is bounded (`Guard`), and parsed by one of the few
# predictions at once: parsed rows take many times the memory of their text.


def with_body(path: str, schema: JsonObject, media_type: str = "application/json") -> Any:
    """Return the decorator of a POST with a body of this schema."""
    body = {"required": True, "content": {media_type: {"schema": schema}}}
    return router.post(path, openapi_extra={"requestBody": body})


async def _in_turn(
    request: Request, work: Callable[[ServedModel, bytes], JsonObject]
) -> JsonObject:
    """Return what the model makes of the body, as one of the few predictions at once."""
    body = await request.body()
    model = _model(request)
    return await model.in_turn(lambda: work(model, body))


@with_body("/api/predict", FeatureRows.model_json_schema())
async def predict(request: Request) -> JsonObject:
    """Probabilities and a label set for each row of features."""

    def work(model: ServedModel, body: bytes) -> JsonObject:
        beside: JsonObject = {}
        with _PARSING:
            asked = _parsed(FeatureRows, request, body)
            preparation = model.run.preparation
            rows, ignored = json_features(_few(asked.features), "`features`", preparation)
            size = asked.average_size
            del asked
        if isinstance(rows, Columns) and preparation is not None:
            beside = {"ignored": ignored, "unseen": preparation.unseen(rows)}
        found = model.predict_rows(rows, _decision(request, size, model.run.labels))
        return {**found, **{key: value for key, value in beside.items() if value}}

    return await _in_turn(request, work)


@with_body("/api/scores", Scores.model_json_schema())
async def scores(request: Request) -> JsonObject:
    """Calibrated probabilities and a label set for each row of scores, by the run or the map."""
    body = await request.body()

    def work() -> JsonObject:
        pipeline, labels = state_of(request).score_map
        with _PARSING:
            asked = _parsed(Scores, request, body)
            decide = _decision(request, asked.average_size, labels)
            return map_scores(pipeline, labels, _few(asked.scores), decide)

    return await to_thread.run_sync(work)


@with_body("/api/predict/text", Texts.model_json_schema())
async def predict_text(request: Request) -> JsonObject:
    """Probabilities and a label set for each text."""

    def work(model: ServedModel, body: bytes) -> JsonObject:
        require_json(request)
        asked = parsed_body(Texts, body)
        rows = [[each] if isinstance(each, str) else each for each in asked.texts]
        return model.predict_texts(rows, _decision(request, asked.average_size, model.run.labels))

    return await _in_turn(request, work)


@with_body("/api/predict/image", {"type": "string", "format": "binary"}, "application/octet-stream")
async def predict_image(request: Request, average_size: Size | None = None) -> JsonObject:
    """Probabilities and a label set for one image: the request's body is the image file."""

    def work(model: ServedModel, body: bytes) -> JsonObject:
        return model.predict_image(body, _decision(request, average_size, model.run.labels))

    return await _in_turn(request, work)


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


def _parsed(kind: type[Body], request: Request, body: bytes) -> Body:
    require_json(request)
    if body.count(b",") > MOST_VALUES:  # before they are parsed, which takes far more memory
        raise InputError(
            f"a request must hold at most {MOST_VALUES:,} numbers. Send fewer rows, or use "
            "`credibly predict`."
        )
    return parsed_body(kind, body)


def _few(rows: object) -> object:
    if isinstance(rows, list) and len(rows) > MOST_ROWS and isinstance(rows[0], (list, dict)):
        raise InputError(f"a request must hold at most {MOST_ROWS:,} rows; got {len(rows):,}.")
    return rows


def _model(request: Request) -> ServedModel:
    model = state_of(request).model
    if model is None:
        raise InputError("this server has no model. Start it with `credibly serve --run RUN`.")
    return model


def _decision(
    request: Request, average_size: float | None, labels: list[str] | None
) -> Callable[[], Decision | None]:
    """Return the rule for an average size, fitted on the first file; None for the saved one."""

    def fitted() -> Decision | None:
        if average_size is None:
            return None
        state = state_of(request)
        if not state.files or labels is None:
            raise InputError(
                "`average_size` needs predictions with the same labels to fit the rule on. Start "
                "the server with them: `credibly serve PREDICTIONS`."
            )
        return state.store.file(0, False).decision(round(average_size, 2), labels)

    return fitted


FOREVER = {"cache-control": "max-age=31536000, immutable"}
HOUR = {"cache-control": "private, max-age=3600"}


@router.get("/docs")
def docs_page(request: Request) -> HTMLResponse:
    return page(request, "docs.html", description=request.app.openapi())


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
