"""Every label in a table, which of them occur together, and one label in full."""

from __future__ import annotations

from dataclasses import asdict
from functools import partial
from typing import Annotated, Literal

from fastapi import APIRouter, Query, Request
from fastapi.responses import HTMLResponse, Response
from markupsafe import Markup
from pydantic import Field

from credibly.app.charts import heat_map, reliability_chart, small_reliability, threshold_chart
from credibly.app.server.responses import both_labels, page, state_of, table_response, wanted
from credibly.app.statistics.labels import LabelSummary, label_lift, label_pairs, label_sentence
from credibly.app.store.store import FileQuery, LabelOrder
from credibly.arrays import plain
from credibly.retrieve import parse
from credibly.types import JsonObject

router = APIRouter()

PER_PAGE = 75
PAIRED = 14
COLUMNS = ("label", "known", "rate", "expected rate", "AP", "ACE", "noise", "flag")


class LabelTable(LabelOrder):
    """The labels as a table."""

    format: Literal["json", "csv"] = "json"


class LabelQuery(FileQuery):
    """One label."""

    name: str = Field(min_length=1, max_length=1000, description="name of a label")


@router.get("/labels")
def labels_page(request: Request, asked: Annotated[LabelOrder, Query()]) -> HTMLResponse:
    chosen = state_of(request).file(asked.file, asked.raw)
    rows = chosen.atlas(asked)
    part = rows[asked.start : asked.start + PER_PAGE]
    return page(
        request,
        "labels.html",
        predictions=chosen,
        asked=asked,
        rows=[(row, "" if row.diagram is None else small_reliability(row.diagram)) for row in part],
        found=len(rows),
        per_page=PER_PAGE,
    )


@router.get("/api/atlas")
def atlas(request: Request, asked: Annotated[LabelTable, Query()]) -> Response:
    """Every label with its rate, average precision, calibration gap and noise; JSON or CSV."""
    chosen = state_of(request).file(asked.file, asked.raw)
    rows = [_table_row(row) for row in chosen.atlas(asked)]
    return table_response(asked.format, "labels", COLUMNS, rows)


def _table_row(row: LabelSummary) -> JsonObject:
    values = (
        row.label,
        None if row.present is None else row.rows,
        row.present_share,
        row.expected_share,
        row.average_precision,
        row.error,
        row.noise,
        row.flag,
    )
    return dict(zip(COLUMNS, values, strict=True))


@router.get("/pairs")
def pairs_page(request: Request, asked: Annotated[LabelOrder, Query()]) -> HTMLResponse:
    chosen = state_of(request).store.file(asked.file, asked.raw)
    pairs, heat = None, Markup("")
    p, y = chosen.known()
    if y is not None:  # the most frequent of the labels asked for, against each other
        rows = chosen.atlas(asked.model_copy(update={"sort": None}))
        names = [row.label for row in sorted(rows, key=lambda row: -(row.present or 0))[:PAIRED]]
        columns = [chosen.column_of(name) for name in names]
        pairs = label_pairs(names, p[:, columns], y[:, columns])
        link = partial(both_labels, file=asked.file, raw=asked.raw)
        heat = heat_map(label_lift(names, y[:, columns]), link)
    return page(
        request,
        "pairs.html",
        predictions=chosen,
        asked=asked,
        pairs=pairs,
        heat=heat,
    )


@router.get("/label")
def label_page(request: Request, asked: Annotated[LabelQuery, Query()]) -> HTMLResponse:
    state = state_of(request)
    chosen = state.file(asked.file, asked.raw)
    report = chosen.label_report(asked.name)
    place = chosen.column_of(asked.name)
    at, curve, limit = 50, Markup(""), float(state.store.rule(asked).accept_from)
    reliability = Markup("")
    if report.reliability is not None:
        alt = f"Reliability of {asked.name}: how often it is really there, by what the model says"
        reliability = reliability_chart(report.reliability, alt)
    if report.curve is not None:
        at = report.curve.nearest(limit)
        curve = threshold_chart(report.curve.found, report.curve.right, at)
    return page(
        request,
        "label.html",
        predictions=chosen,
        about=report.about,
        sentence=label_sentence(report.about),
        report=report,
        at=at,
        reliability=reliability,
        curve=curve,
        confusions=chosen.confusions(asked.name, limit),
        together=chosen.together(parse(wanted(asked.name), chosen.labels)),
        previous=chosen.labels[place - 1] if place else None,
        following=chosen.labels[place + 1] if place + 1 < len(chosen.labels) else None,
    )


@router.get("/api/label")
def label(request: Request, asked: Annotated[LabelQuery, Query()]) -> JsonObject:
    """Statistics of one label, its reliability diagram, and rows that are right and wrong."""
    report = state_of(request).file(asked.file, asked.raw).label_report(asked.name)
    about: JsonObject = dict(report.about)
    if report.reliability is not None:
        about["reliability"] = vars(report.reliability)
    about["rows_to_look_at"] = {
        name: [asdict(row) for row in rows] for name, rows in report.groups.items()
    }
    return plain(about)
