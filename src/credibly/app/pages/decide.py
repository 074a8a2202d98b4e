"""Choose a rule: by costs, by a label budget, by a threshold."""

from __future__ import annotations

import shlex
from typing import Annotated

import numpy as np
from fastapi import APIRouter, Query, Request
from fastapi.responses import HTMLResponse, JSONResponse, RedirectResponse, Response

from credibly.app.charts import cost_chart, threshold_chart
from credibly.app.server.responses import page, state_of
from credibly.app.statistics.decisions import cost_curve, outcome, size_bars
from credibly.app.statistics.overview import threshold_curve
from credibly.app.store.files import ServedPredictions
from credibly.app.store.store import (
    DecideQuery,
    EntryQuery,
    FileQuery,
    Rule,
    read_query,
)
from credibly.checks import InputError
from credibly.decide import Cost
from credibly.types import JsonObject

SHOWN_LIMITS = 30
"""Labels whose thresholds the page lists; the file has all of them."""

SHOWN_NEAR = 8
MOST_CELLS = 5_000_000
"""Probabilities up to which the rows nearest to the cut are shown while it moves."""


def command(path: str, asked: DecideQuery, rule: Rule) -> str:
    """Return the command that makes the same sets."""
    parts = ["credibly", "sets", path]
    if isinstance(rule.decision, Cost):
        cost = rule.decision
        look = "" if cost.review is None else f",review={cost.review!r}"
        parts += ["--cost", f"miss={cost.miss!r},false-alarm={cost.false_alarm!r}{look}"]
    elif asked.by == "recall":
        parts += ["--threshold", repr(float(rule.accept_from))]
    elif asked.by == "size":
        parts += ["--average-size", f"{asked.average_size:g}"]
    else:
        parts += ["--threshold", f"{asked.threshold:g}"]
    return shlex.join([*parts, "--out", "sets.csv"])


def python_lines(path: str, asked: DecideQuery, rule: Rule) -> str:
    """Return the same rule in Python."""
    made, fit = repr(rule.decision), ""
    if asked.by == "recall":
        made = f'Recall({asked.recall:g}, ("probability", 0.1))'
        fit = ".fit(predictions.probabilities, predictions.targets)"
    elif asked.by == "size":
        made, fit = f"AverageSize({asked.average_size:g})", ".fit(predictions.probabilities)"
    elif asked.by == "threshold":
        made = f"Threshold({asked.threshold:g})"
    lines = ["import credibly as cr", f"predictions = cr.Predictions.read({path!r})"]
    lines += [f"decision = cr.decide.{made}{fit}"]
    return "\n".join([*lines, "sets = decision.predict(predictions.probabilities)"])


def thresholds_file(chosen: ServedPredictions, rule: Rule) -> JsonObject:
    """Return the rule as a document: limits by label, and what they guarantee."""
    return {
        "rule": rule.words,
        "statement": rule.decision.statement,
        "made_from": chosen.name,
        "thresholds": dict.fromkeys(chosen.labels, float(rule.accept_from)),
        "review_from": dict.fromkeys(chosen.labels, float(rule.review_from)),
    }


router = APIRouter()


@router.get("/decide")
def decide_page(request: Request) -> Response:
    """Show what a rule selects; what is wrong with a field is said beside it."""
    asked, problems = read_query(DecideQuery, request.query_params)
    if asked.by and _kind_of(asked) != asked.by and not problems:  # the address holds the rule
        chosen = state_of(request).store.file(asked.file, asked.raw)
        return RedirectResponse("/decide?" + _filled(asked, chosen).parameters(), 303)
    return _decide(request, asked, problems)


def _decide(request: Request, asked: DecideQuery, problems: dict[str, str]) -> HTMLResponse:
    store = state_of(request).store
    chosen = store.file(asked.file, asked.raw)
    try:
        chosen.column_of(asked.label or chosen.labels[0])
    except InputError as error:
        problems["label"] = str(error)
        asked = asked.model_copy(update={"label": ""})
    asked = _filled(asked, chosen)
    try:
        rule = store.rule(asked)
    except InputError as error:
        problems[asked.by or ""] = str(error)
        asked = _filled(asked.model_copy(update={"by": "threshold"}), chosen)
        rule = store.rule(asked)
    cost, limit = rule.decision, float(rule.accept_from)
    decided, costs, chart = None, None, ""
    if isinstance(cost, Cost) and chosen.has_truth:
        prices = (cost.miss, cost.false_alarm, cost.review)
        decided = chosen.of_sample(outcome, asked.label, *prices)
        costs = chosen.of_sample(cost_curve, asked.label, cost.miss, cost.false_alarm)
        chart = cost_chart(costs, cost.bounds, decided.cost)
    curve = chosen.of_sample(threshold_curve, asked.label)
    at = 0 if curve is None else curve.nearest(limit)
    budget = chosen.sets_of(asked.by or "", asked.average_size, limit)
    near = EntryQuery.model_validate({**asked.model_dump(exclude_none=True), "kind": "borderline"})
    few = chosen.scan.num_rows * len(chosen.labels) <= MOST_CELLS
    return page(
        request,
        "decide.html",
        422 if problems else 200,
        asked=asked,
        problems=problems,
        predictions=chosen,
        rule=rule,
        zones=cost.bounds if isinstance(cost, Cost) else None,
        outcome=decided,
        costs=costs,
        chart=chart,
        at=at,
        limit=limit,
        curve=curve,
        curves="" if curve is None else threshold_chart(curve.found, curve.right, at),
        budget=budget,
        bars=[] if budget is None else size_bars(budget.histogram),
        most_size=max(float(min(len(chosen.labels), 20)), asked.average_size or 0),
        command=command(str(chosen.path), asked, rule),
        python=python_lines(str(chosen.path), asked, rule),
        limits=chosen.limits(limit, SHOWN_LIMITS),
        near=store.entries(near, 0, SHOWN_NEAR) if few else [],
    )


def _kind_of(asked: DecideQuery) -> str:
    """Return the kind of the rule that other pages have put into the address."""
    if asked.miss is not None:
        return "cost"
    if asked.recall is not None:
        return "recall"
    return "size" if asked.average_size is not None else "threshold"


def _filled(asked: DecideQuery, chosen: ServedPredictions) -> DecideQuery:
    """Return the address with the numbers that its kind of rule needs, and without the others."""
    by = asked.by or _kind_of(asked)
    none: JsonObject = dict.fromkeys(("miss", "average_size", "threshold", "recall"))
    if by == "cost":
        return asked.model_copy(update={**none, "miss": asked.miss or 5.0, "by": by})
    if by == "size":
        expected = float(chosen.sample.probabilities.sum(1, dtype=np.float64).mean())
        size = min(asked.average_size or max(0.1, round(expected, 1)), len(chosen.labels))
        usual: JsonObject = {"average_size": size}
    elif by == "recall":
        usual = {"recall": asked.recall or 0.9}
    else:
        usual = {"threshold": 0.5 if asked.threshold is None else asked.threshold}
    return asked.model_copy(update={**none, **usual, "by": by})


@router.get("/api/thresholds")
def thresholds(request: Request, asked: Annotated[FileQuery, Query()]) -> Response:
    """The rule as JSON: the threshold of each label, and what is guaranteed."""
    store = state_of(request).store
    document: JsonObject = thresholds_file(store.file(asked.file, asked.raw), store.rule(asked))
    headers = {"content-disposition": 'attachment; filename="thresholds.json"'}
    return JSONResponse(document, headers=headers)
