"""Choosing a rule: by costs, by a label budget, by a threshold."""

from __future__ import annotations

import json
from typing import Annotated, Any

import numpy as np
from fastapi import APIRouter, Query, Request
from fastapi.responses import HTMLResponse, JSONResponse, RedirectResponse, Response

from credibly.app.charts import cost_chart
from credibly.app.pages.address import DecideQuery, FileQuery, own_costs
from credibly.app.pages.rest import FAILURES, state_of
from credibly.app.served.deciding import MOST_ZONES, command, thresholds_file, weigh
from credibly.app.served.dense import ServedPredictions
from credibly.app.server.templates import page
from credibly.app.views import size_bars

router = APIRouter(include_in_schema=False, default_response_class=HTMLResponse)
api = APIRouter(prefix="/api", tags=["api"])


@router.get("/decide")
def decide_page(request: Request, asked: Annotated[DecideQuery, Query()]) -> Response:
    if asked.own_label:
        return RedirectResponse("/decide?" + _with_own(request, asked).parameters(), 303)
    return _decide(request, asked)


@router.get("/budget")
def budget_page(request: Request, asked: Annotated[DecideQuery, Query()]) -> HTMLResponse:
    """The page of the label budget, by its former address."""
    return _decide(request, asked.model_copy(update={"by": "size"}))


def _with_own(request: Request, asked: DecideQuery) -> DecideQuery:
    """Return the address with the costs of one more label; without a cost of a miss, one less."""
    state_of(request).file(asked.file, asked.raw).check(asked.own_label)
    own = {
        name: [cost.miss, cost.false_alarm, *([] if cost.review is None else [cost.review])]
        for name, cost in own_costs(asked.own).items()
    }
    own.pop(asked.own_label, None)
    if asked.own_miss is not None:
        look = [] if asked.own_review is None else [asked.own_review]
        own[asked.own_label] = [asked.own_miss, asked.own_false_alarm, *look]
    clean = {"own_label": "", "own_miss": None, "own_false_alarm": 1.0, "own_review": None}
    text = json.dumps(own, ensure_ascii=False, separators=(",", ":")) if own else ""
    return DecideQuery.model_validate({**asked.model_dump(), **clean, "own": text})


def _decide(request: Request, asked: DecideQuery) -> HTMLResponse:
    workbench = state_of(request).workbench
    chosen = workbench.file(asked.file, asked.raw)
    if asked.label:
        chosen.check(asked.label)
    asked = _filled(asked, chosen)
    rule = workbench.rule(asked)
    weighed = weigh(chosen, rule, asked.label) if asked.by == "cost" else None
    chart = ""
    if weighed is not None and weighed.curve is not None and weighed.outcome is not None:
        chart = cost_chart(weighed.curve, weighed.bounds, weighed.outcome.cost)
    budget = chosen.sets_of(asked.by or "", asked.average_size, asked.threshold)
    return page(
        request,
        "decide.html",
        number=asked.file,
        raw=asked.raw,
        asked=asked,
        predictions=chosen,
        rule=rule,
        own=own_costs(asked.own),
        weighed=weighed,
        chart=chart,
        budget=budget,
        bars=[] if budget is None else size_bars(budget.histogram),
        most_size=max(float(min(len(chosen.labels), 20)), asked.average_size or 0),
        command=command(str(chosen.path), asked, rule),
        zones=list(rule.costs.items())[:MOST_ZONES],
    )


def _kind_of(asked: DecideQuery) -> str:
    """Return the kind of the rule that other pages have put into the address."""
    if asked.miss is None and asked.average_size is not None:
        return "size"
    return "threshold" if asked.miss is None and asked.threshold is not None else "cost"


def _filled(asked: DecideQuery, chosen: ServedPredictions) -> DecideQuery:
    """Return the address with the numbers that its kind of rule needs, and without the others."""
    by = asked.by or _kind_of(asked)
    if by == "cost":
        usual: dict[str, Any] = {"miss": asked.miss or 5.0, "average_size": None, "threshold": None}
    elif by == "size":
        expected = float(chosen.sample.probabilities.sum(1, dtype=np.float64).mean())
        size = min(asked.average_size or max(0.1, round(expected, 1)), len(chosen.labels))
        usual = {"average_size": size, "miss": None, "own": "", "threshold": None}
    else:
        value = 0.5 if asked.threshold is None else asked.threshold
        usual = {"threshold": value, "miss": None, "own": "", "average_size": None}
    return asked.model_copy(update={**usual, "by": by})


@api.get("/thresholds", responses=FAILURES)
def thresholds(request: Request, asked: Annotated[FileQuery, Query()]) -> Response:
    """The rule of the address as a document: from which probability each label is selected."""
    workbench = state_of(request).workbench
    document: dict[str, Any] = thresholds_file(
        workbench.file(asked.file, asked.raw), workbench.rule(asked)
    )
    headers = {"content-disposition": 'attachment; filename="thresholds.json"'}
    return JSONResponse(document, headers=headers)
