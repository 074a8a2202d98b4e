"""The REST API. Errors are ``{"error": …}`` in the words of the command line."""

from __future__ import annotations

import io
import math
from dataclasses import asdict
from typing import Annotated, Any

import numpy as np
from fastapi import APIRouter, Body, Query, Request
from pydantic import BaseModel, Field

from credibly import __version__
from credibly.checks import InputError
from credibly.serve._book import Book

router = APIRouter(prefix="/api", tags=["api"])

QueryText = Annotated[
    str,
    Query(max_length=2000, description="a query: `+fork +apple -knife`, `(dog | cat) & !beach`"),
]
Top = Annotated[int, Query(ge=1, le=1000, description="how many rows to give back")]
Number = Annotated[int, Query(ge=0, le=99, description="which predictions file, from 0")]
Raw = Annotated[bool, Query(description="before calibration")]
Name = Annotated[str, Query(min_length=1, max_length=1000, description="name of a label")]
Size = Annotated[float, Query(ge=0.05, le=1e6, description="labels a row, on average")]

MOST_FEATURES = 2_000_000


class ErrorMessage(BaseModel):
    """What went wrong and what to do about it."""

    error: str


class Features(BaseModel):
    """Rows of features, as the run was trained on."""

    features: list[list[float]] = Field(min_length=1, max_length=1000)
    average_size: float | None = Field(default=None, ge=0.05, le=1e6)


FAILURES: dict[int | str, dict[str, Any]] = {
    status: {"model": ErrorMessage} for status in (400, 403, 404, 408, 413, 414, 421, 422, 431)
}


def _book(request: Request, book: int, raw: bool) -> Book:
    return request.app.state.shelf.book(book, raw)


@router.get("/health")
def health(request: Request) -> dict[str, Any]:
    """Whether the server is up, and what it serves."""
    shelf = request.app.state.shelf
    books = [
        {"name": book.name, "rows": book.scan.num_rows, "labels": len(book.labels)}
        for book in shelf.books
    ]
    about = {"predictions": books, "images": shelf.images is not None, "run": shelf.run is not None}
    return {"status": "ok", "version": __version__, **about}


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
    return asdict(_book(request, book, raw).budget(round(average_size, 2)))


@router.post("/predict", responses=FAILURES)
def predict(request: Request, rows: Features) -> dict[str, Any]:
    """Probabilities and a label set for each row of features."""
    run = _run(request)
    width = len(rows.features[0])
    if any(len(row) != width for row in rows.features):
        raise InputError("every row of `features` must have the same length.")
    if width * len(rows.features) > MOST_FEATURES:
        raise InputError(f"`features` must hold at most {MOST_FEATURES:,} numbers a request.")
    array = np.array(rows.features, dtype=np.float32)
    if not np.isfinite(array).all():
        raise InputError("`features` must be finite numbers.")
    return _predicted(request, run, array, rows.average_size)


@router.post("/predict/image", responses=FAILURES)
def predict_image(
    request: Request,
    image: Annotated[bytes, Body(media_type="application/octet-stream")],
    average_size: Size | None = None,
) -> dict[str, Any]:
    """Probabilities and a label set for one image: the request's body is the image file."""
    from credibly.data import decode_image

    run = _run(request)
    if run.data["kind"] != "images":
        raise InputError(f"this model takes {run.data['kind']}; post them to /api/predict.")
    with decode_image(io.BytesIO(image), "the body of the request") as opened:
        grey = run.data["shape"][0] == 1
        pixels = np.asarray(opened.convert("L" if grey else "RGB"))
    return _predicted(request, run, pixels[None], average_size)


def _run(request: Request) -> Any:
    run = request.app.state.shelf.run
    if run is None:
        raise InputError(
            "this server has no model. Start it with `credibly serve PREDICTIONS --run RUN`."
        )
    return run


def _predicted(
    request: Request, run: Any, array: np.ndarray, average_size: float | None
) -> dict[str, Any]:
    from credibly.decide import Threshold

    found = run.predict(array)
    if average_size is not None:
        threshold = request.app.state.shelf.books[0].budget(round(average_size, 2)).threshold
        decision = Threshold(threshold)
    else:
        decision = run.decision or Threshold(0.5)
    chosen = decision.predict(found.probabilities)
    return {
        "labels": found.labels,
        "probabilities": found.probabilities.tolist(),
        "sets": [
            [name for name, on in zip(found.labels, row, strict=True) if on] for row in chosen
        ],
    }


def _plain(value: Any) -> Any:
    """JSON has no NaN and no numpy."""
    if isinstance(value, np.ndarray):
        return [_plain(item) for item in value.tolist()]
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value
