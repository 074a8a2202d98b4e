"""The atlas of labels, and which of them occur together."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Annotated, Any, Literal

import numpy as np
from fastapi import APIRouter, Query, Request
from fastapi.responses import HTMLResponse, Response
from markupsafe import Markup
from pydantic import Field

from credibly.app.charts import heat_map, small_reliability
from credibly.app.pages.api import FAILURES, state_of
from credibly.app.served.address import FileQuery
from credibly.app.served.files import ServedPredictions
from credibly.app.served.tables import table_response
from credibly.app.server.templates import both_labels, page
from credibly.app.views.labels import AtlasRow, Pairs, label_pairs
from credibly.app.views.overview import label_lift
from credibly.retrieve.query.parser import folded

router = APIRouter(include_in_schema=False, default_response_class=HTMLResponse)
api = APIRouter(prefix="/api", tags=["api"])

PER_PAGE = 100
PAIRED = 14
Order = Literal["label", "known", "rate", "AP", "gap", "excess", "flag"]
COLUMNS = ("label", "known", "rate", "expected rate", "AP", "ACE", "noise", "flag")


class AtlasQuery(FileQuery):
    """Some labels of the atlas, in an order."""

    contains: str = Field("", max_length=1000)
    flagged: bool = False
    sort: Order | None = None
    down: bool = True
    start: int = Field(0, ge=0, le=10_000_000)


class AtlasTable(AtlasQuery):
    """The same as a table."""

    format: Literal["json", "csv"] = "json"


def _number(value: float | None) -> float:
    """Return a value to sort by; what is not known comes last."""
    return -np.inf if value is None or np.isnan(value) else float(value)


_KEYS: dict[str, Callable[[AtlasRow], Any]] = {
    "label": lambda row: folded(row.summary.label),
    "known": lambda row: row.summary.rows if row.summary.present is not None else -1,
    "rate": lambda row: _number(row.summary.present_share),
    "AP": lambda row: _number(row.summary.average_precision),
    "gap": lambda row: _number(row.summary.error),
    "excess": lambda row: _number(row.summary.error - row.noise),
    "flag": lambda row: row.flag,
}


def select(rows: list[AtlasRow], asked: AtlasQuery) -> list[AtlasRow]:
    """Return the labels that an address asks for, in its order."""
    text = folded(asked.contains)
    found = [
        row for row in rows if text in folded(row.summary.label) and (row.flag or not asked.flagged)
    ]
    if asked.sort is None:
        return found
    return sorted(found, key=_KEYS[asked.sort], reverse=asked.down)


@router.get("/labels")
def labels_page(request: Request, asked: Annotated[AtlasQuery, Query()]) -> HTMLResponse:
    chosen = state_of(request).file(asked.file, asked.raw)
    rows = select(chosen.atlas, asked)
    part = rows[asked.start : asked.start + PER_PAGE]
    return page(
        request,
        "labels.html",
        predictions=chosen,
        number=asked.file,
        raw=asked.raw,
        asked=asked,
        rows=[(row, "" if row.diagram is None else small_reliability(row.diagram)) for row in part],
        found=len(rows),
        per_page=PER_PAGE,
        orders=(
            ("label", "label"),
            ("known", "known rows"),
            ("rate", "rate"),
            ("AP", "AP"),
            ("gap", "gap (ACE)"),
            ("excess", "gap over noise"),
            ("flag", "flag"),
        ),
    )


@api.get("/atlas", responses=FAILURES)
def atlas(request: Request, asked: Annotated[AtlasTable, Query()]) -> Response:
    """Every label with its rate, average precision, calibration gap and noise; JSON or CSV."""
    chosen = state_of(request).file(asked.file, asked.raw)
    rows = [_table_row(row) for row in select(chosen.atlas, asked)]
    return table_response(asked.format, "labels", COLUMNS, rows)


def _table_row(row: AtlasRow) -> dict[str, Any]:
    one = row.summary
    values = (
        one.label,
        None if one.present is None else one.rows,
        one.present_share,
        one.expected_share,
        one.average_precision,
        one.error,
        row.noise,
        row.flag,
    )
    plain = [None if isinstance(v, float) and np.isnan(v) else v for v in values]
    return dict(zip(COLUMNS, plain, strict=True))


@router.get("/pairs")
def pairs_page(request: Request, asked: Annotated[AtlasQuery, Query()]) -> HTMLResponse:
    chosen = state_of(request).file(asked.file, asked.raw)
    pairs = _pairs(chosen, asked) if chosen.has_truth else None
    return page(
        request,
        "pairs.html",
        predictions=chosen,
        number=asked.file,
        raw=asked.raw,
        asked=asked,
        pairs=pairs,
        heat="" if pairs is None else _heat_map(chosen, pairs.labels, asked),
    )


def _heat_map(chosen: ServedPredictions, names: list[str], asked: AtlasQuery) -> Markup:
    targets = chosen.sample.targets
    assert targets is not None, "only files with truth have real pairs"
    lift = label_lift(names, targets[:, [chosen.column_of(name) for name in names]])
    link = partial(both_labels, file=asked.file, raw=asked.raw)
    return heat_map(lift.labels, lift.lift, lift.matters, link)


def _pairs(chosen: ServedPredictions, asked: AtlasQuery) -> Pairs:
    """Return the most frequent of the labels asked for, against each other."""
    rows = select(chosen.atlas, asked.model_copy(update={"sort": None}))
    rows = sorted(rows, key=lambda row: -(row.summary.present or 0))[:PAIRED]
    names = [row.summary.label for row in rows]
    columns = [chosen.column_of(name) for name in names]
    sample = chosen.sample
    assert sample.targets is not None, "only files with truth have real pairs"
    return label_pairs(names, sample.probabilities[:, columns], sample.targets[:, columns])
