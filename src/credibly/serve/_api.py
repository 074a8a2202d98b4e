"""The REST API. Errors are ``{"error": …}`` in the words of the command line."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import asdict
from typing import Annotated, Any

import numpy as np
from fastapi import APIRouter, Body, Query, Request
from pydantic import BaseModel, Field

from credibly import __version__
from credibly.checks import InputError
from credibly.decide import Decision
from credibly.serve._model import Busy, Model
from credibly.serve._served import ServedPredictions

router = APIRouter(prefix="/api", tags=["api"])

QueryText = Annotated[
    str,
    Query(max_length=2000, description="a query: `+fork +apple -knife`, `(dog | cat) & !beach`"),
]
Top = Annotated[int, Query(ge=1, le=1000, description="how many rows to give back")]
Number = Annotated[int, Query(ge=0, le=99, description="which predictions file, from 0")]
Raw = Annotated[bool, Query(description="before calibration")]
Name = Annotated[str, Query(min_length=1, max_length=1000, description="name of a label")]
Size = Annotated[float, Query(ge=0.05, le=1e6, description="labels per row, on average")]


class ErrorMessage(BaseModel):
    """What went wrong and what to do about it."""

    error: str


class Features(BaseModel):
    """Rows of features, as the run was trained on."""

    features: list[list[float]] = Field(min_length=1, max_length=1000)
    average_size: float | None = Field(default=None, ge=0.05, le=1e6)


FAILURES: dict[int | str, dict[str, Any]] = {
    status: {"model": ErrorMessage}
    for status in (400, 403, 404, 408, 413, 414, 421, 422, 431, 503, 505)
}


def state_of(request: Request) -> Any:
    """Return what the server was started with, unless the request has waited too long."""
    if time.monotonic() > request.scope.get("deadline", math.inf):
        raise Busy("this request waited too long for its turn; try again soon.")
    return request.app.state.served


def _book(request: Request, book: int, raw: bool) -> ServedPredictions:
    return state_of(request).book(book, raw)


@router.get("/health")
async def health(request: Request) -> dict[str, Any]:
    """Whether the server is up, and what it serves. Answered whatever else is worked on."""
    served = state_of(request)
    books = [
        {"name": book.name, "rows": book.scan.num_rows, "labels": len(book.labels)}
        for book in served.books
    ]
    about = {
        "predictions": books,
        "images": served.images is not None,
        "run": served.model is not None,
    }
    return {"status": "ok", "version": __version__, "predictions": books, **about}


@router.get("/labels", responses=FAILURES)
def labels(
    request: Request,
    prefix: Annotated[str, Query(max_length=1000)] = "",
    limit: Annotated[int, Query(ge=1, le=1000)] = 20,
    book: Number = 0,
) -> dict[str, Any]:
    """Labels that contain ``prefix``, those that start with it first."""
    asked = prefix.casefold()
    names = _book(request, book, False).labels
    found = [name for name in names if asked in name.casefold()]
    found.sort(key=lambda name: not name.casefold().startswith(asked))
    return {"labels": found[:limit], "total": len(found)}


@router.get("/search", responses=FAILURES)
def search(
    request: Request, q: QueryText, top: Top = 20, book: Number = 0, raw: Raw = False
) -> dict[str, Any]:
    """The most probable rows for a query, each condition's share, and expected hits."""
    return _book(request, book, raw).search(q, top).to_dict()


@router.get("/label", responses=FAILURES)
def label(request: Request, name: Name, book: Number = 0, raw: Raw = False) -> dict[str, Any]:
    """Statistics of one label, its reliability diagram and its most confident mistakes."""
    judged = _book(request, book, raw).judge(name)
    about: dict[str, Any] = dict(judged.about)
    if judged.reliability is not None:
        about["reliability"] = {
            key: _plain(np.asarray(value)) for key, value in asdict(judged.reliability).items()
        }
    about["mistakes"] = [asdict(mistake) for mistake in judged.mistakes]
    return {key: _plain(value) for key, value in about.items()}


@router.get("/sets", responses=FAILURES)
def sets(
    request: Request, average_size: Size, book: Number = 0, raw: Raw = False
) -> dict[str, Any]:
    """What a label budget means: threshold, sizes and, where truth is known, coverage."""
    found = _book(request, book, raw).budget(round(average_size, 2))
    return {**asdict(found), "promise": found.statement}  # its name until version 0.1


@router.post("/predict", responses=FAILURES)
def predict(request: Request, rows: Features) -> dict[str, Any]:
    """Probabilities and a label set for each row of features."""
    return _model(request).predict_rows(rows.features, _decision(request, rows.average_size))


@router.post("/predict/image", responses=FAILURES)
def predict_image(
    request: Request,
    image: Annotated[bytes, Body(media_type="application/octet-stream")],
    average_size: Size | None = None,
) -> dict[str, Any]:
    """Probabilities and a label set for one image: the request's body is the image file."""
    return _model(request).predict_image(image, _decision(request, average_size))


def _model(request: Request) -> Model:
    model = state_of(request).model
    if model is None:
        raise InputError(
            "this server has no model. Start it with `credibly serve PREDICTIONS --run RUN`."
        )
    return model


def _decision(request: Request, average_size: float | None) -> Callable[[], Decision | None]:
    """The rule for an average size, fitted on the first file; None for the run's own."""

    def fitted() -> Decision | None:
        if average_size is None:
            return None
        served = state_of(request)
        return served.books[0].decision(round(average_size, 2), served.model.run.labels)

    return fitted


def _plain(value: object) -> Any:
    """JSON has no NaN and no numpy."""
    if isinstance(value, np.ndarray):
        return [_plain(item) for item in value.tolist()]
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value
