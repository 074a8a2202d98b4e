"""Weighing a rule: what it costs where the truth is known, and how to use it elsewhere."""

from __future__ import annotations

import csv
import io
import shlex
from dataclasses import dataclass
from typing import Any

from credibly.app.pages.address import DecideQuery, Rule
from credibly.app.served.dense import ServedPredictions
from credibly.app.views import (
    CostCurve,
    Outcome,
    cost_curve,
)
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
