"""Weighing a rule: what it costs where the truth is known, and how to use it elsewhere."""

from __future__ import annotations

import csv
import io
import shlex
from dataclasses import dataclass
from typing import Any

import numpy as np

from credibly.decide import Cost
from credibly.serve._served import ServedPredictions
from credibly.serve._views import DecideQuery, Rule
from credibly.summaries import (
    CostCurve,
    EntryCosts,
    Outcome,
    cost_curve,
    outcome,
)

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
    rows = chosen.sample
    assert rows.targets is not None
    which = slice(None)
    if label:
        place = chosen.column_of(label)
        which = slice(place, place + 1)
    costs = _entry_costs(rule, chosen.labels, which)
    found = outcome(rows.probabilities[:, which], rows.targets[:, which], costs)
    curve = cost_curve(chosen.threshold_counts(label), usual.miss, usual.false_alarm)
    return Weighed(found, curve, usual.bounds)


def _entry_costs(rule: Rule, labels: list[str], which: slice) -> EntryCosts:
    each = [rule.costs.get(name, rule.costs[""]) for name in labels[which]]
    return EntryCosts(
        np.array([cost.miss for cost in each]),
        np.array([cost.false_alarm for cost in each]),
        np.array([cost.review or 0.0 for cost in each]),
        rule.review_from[which],
        rule.accept_from[which],
    )


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
