"""Choose a rule: by costs, by a label budget, by a threshold."""

from __future__ import annotations

import csv
import io
import json
import shlex
from dataclasses import dataclass
from typing import Annotated, Any

import numpy as np
from fastapi import APIRouter, Query, Request
from fastapi.responses import HTMLResponse, JSONResponse, RedirectResponse, Response

from credibly.app.charts import cost_chart
from credibly.app.pages.api import FAILURES, state_of
from credibly.app.served.address import DecideQuery, FileQuery, Rule, own_costs
from credibly.app.served.files import ServedPredictions
from credibly.app.server.templates import page
from credibly.app.views.decisions import CostCurve, Outcome, cost_curve, size_bars
from credibly.decide import Cost

MOST_ZONES = 200
"""Labels whose limits the page lists."""


@dataclass(frozen=True)
class Weighed:
    """A rule by cost, weighed on the sample; without truth only its limits are known."""

    outcome: Outcome | None
    curve: CostCurve | None
    bounds: tuple[float, float]


def weigh(chosen: ServedPredictions, rule: Rule, label: str) -> Weighed:
    """Return counts, cost and curve of a rule by cost, for one label or all."""
    usual = rule.costs.get(label, rule.costs[""])
    if not chosen.has_truth:
        return Weighed(None, None, usual.bounds)
    prices = tuple(
        (name, cost.miss, cost.false_alarm, cost.review or 0.0, *cost.bounds)
        for name, cost in rule.costs.items()
    )
    curve = cost_curve(chosen.threshold_counts(label), usual.miss, usual.false_alarm)
    return Weighed(chosen.outcome(label, prices), curve, usual.bounds)


def command(path: str, asked: DecideQuery, rule: Rule) -> str | None:
    """Return the command that makes the same sets; None where the command line has no such rule.

    Review by costs of single labels cannot be said on the command line.
    """
    parts = ["credibly", "sets", path]
    if asked.by == "size":
        parts += ["--average-size", f"{asked.average_size:g}"]
    elif asked.by == "threshold":
        parts += ["--threshold", f"{0.5 if asked.threshold is None else asked.threshold:g}"]
    elif len(rule.costs) == 1:
        parts += ["--cost", _cost_text(rule.costs[""])]
    elif any(cost.bounds[0] < cost.bounds[1] for cost in rule.costs.values()):
        return None
    else:
        parts += ["--threshold", _threshold_text(rule.costs)]
    return shlex.join([*parts, "--out", "sets.csv"])


def _cost_text(cost: Cost) -> str:
    look = "" if cost.review is None else f",review={cost.review!r}"
    return f"miss={cost.miss!r},false-alarm={cost.false_alarm!r}{look}"


def _threshold_text(costs: dict[str, Cost]) -> str:
    """Return thresholds as `credibly sets --threshold` reads them: names with commas quoted."""
    values = {name: cost.bounds[1] for name, cost in costs.items()}
    parts = [repr(values.pop("")), *(f"{name}={value!r}" for name, value in values.items())]
    buffer = io.StringIO()
    csv.writer(buffer, lineterminator="").writerow(parts)
    return buffer.getvalue()


def thresholds_file(chosen: ServedPredictions, rule: Rule) -> dict[str, Any]:
    """Return the rule as a document: limits by label, and what they guarantee."""
    return {
        "rule": rule.words,
        "statement": rule.decision.statement,
        "made_from": chosen.name,
        "thresholds": dict(zip(chosen.labels, rule.accept_from.tolist(), strict=True)),
        "review_from": dict(zip(chosen.labels, rule.review_from.tolist(), strict=True)),
    }


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
