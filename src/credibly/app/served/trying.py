"""One row that somebody tries: its labels, how often they were right, the set, rows like it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from credibly.app.pages.address import FileQuery, Rule
from credibly.app.served.dense import ServedPredictions
from credibly.app.served.items import neighbours
from credibly.app.served.single_rows import Workbench
from credibly.app.views import ObservedShare, observed_share
from credibly.checks import InputError
from credibly.types import Array

SHOWN_LABELS = 20
SHOWN_PRESENT = 4


@dataclass(frozen=True)
class TriedLabel:
    """One label of the row.

    Attributes:
        label, probability: of the run.
        chosen: whether it is in the set.
        look: whether the rule asks a person to look.
        observed: how often it was present among known rows with about this probability; None where
            the file does not tell.
    """

    label: str
    probability: float
    chosen: bool
    look: bool
    observed: ObservedShare | None


@dataclass(frozen=True)
class KnownRow:
    """A row of the file whose probabilities are like those of the row tried.

    Attributes:
        id, distance: as for ``Neighbour``.
        present: labels that it is marked with, the first few; None without truth.
        more: how many others it is marked with.
    """

    id: str
    distance: float
    present: list[str] | None
    more: int


@dataclass(frozen=True)
class Tried:
    """All that the page says about a row.

    Attributes:
        labels: the most probable ones and those of the set, from the most probable on.
        total: how many labels there are.
        chosen: the set.
        rule: that made it, for people.
        similar: known rows with similar probabilities.
        note: why something is missing; empty if nothing is.
    """

    labels: list[TriedLabel]
    total: int
    chosen: list[str]
    rule: str
    similar: list[KnownRow]
    note: str


def has_rule(asked: FileQuery) -> bool:
    """Return whether an address names a rule."""
    return any(each is not None for each in (asked.threshold, asked.average_size, asked.miss))


def tried(workbench: Workbench, asked: FileQuery, prediction: dict[str, Any]) -> Tried:
    """Return what to say about a predicted row.

    Args:
        workbench: the served files; ``asked`` says which one the row is compared with.
        asked: the address. Its rule makes the set; without one, the run's own rule does.
        prediction: of the run, for one row: labels, probabilities, set, decision.
    """
    asked = asked.model_copy(update={"raw": False})  # the run's probabilities are calibrated
    file = workbench.file(asked.file, False)
    names: list[str] = prediction["labels"]
    p = np.asarray(prediction["probabilities"][0], dtype=np.float32)
    same = sorted(names) == sorted(file.labels)
    note = "" if same else f"The labels of {file.name} are not those of the run."
    inside, look, words = _own_set(names, prediction)
    if has_rule(asked):
        if not same:
            raise InputError(f"{note} Leave out the rule, which belongs to the file.")
        inside, look, words = _set_by(workbench.rule(asked), file, names, p)
    order = np.argsort(-p, kind="stable")
    shown = [t for place, t in enumerate(order.tolist()) if place < SHOWN_LABELS or inside[t]]
    return Tried(
        labels=[
            TriedLabel(
                names[t],
                float(p[t]),
                bool(inside[t]),
                bool(look[t]),
                _observed(file, names[t], float(p[t])),
            )
            for t in shown
        ],
        total=len(names),
        chosen=[names[t] for t in order.tolist() if inside[t]],
        rule=words,
        similar=_similar(file, _in_order(p, names, file.labels)) if same else [],
        note=note,
    )


def _own_set(names: Sequence[str], prediction: dict[str, Any]) -> tuple[Array, Array, str]:
    chosen = set(prediction["sets"][0])
    inside = np.array([name in chosen for name in names], dtype=bool)
    return inside, np.zeros(len(names), dtype=bool), f"{prediction['decision']}, the run's own"


def _set_by(
    rule: Rule, file: ServedPredictions, names: Sequence[str], p: Array
) -> tuple[Array, Array, str]:
    """Return which labels a rule selects, and which it asks to look at, in the order of names."""
    ordered = _in_order(p, names, file.labels)
    inside = rule.decision.predict(ordered[None])[0]
    look = rule.looks(ordered)
    columns = [file.column_of(name) for name in names]
    return inside[columns], look[columns], rule.words


def _in_order(p: Array, names: Sequence[str], wanted: Sequence[str]) -> Array:
    place = {name: position for position, name in enumerate(names)}
    return p[[place[name] for name in wanted]]


def _observed(file: ServedPredictions, label: str, probability: float) -> ObservedShare | None:
    rows = file.sample
    if not file.has_truth or rows.targets is None or label not in file.labels:
        return None
    column = file.column_of(label)
    return observed_share(rows.probabilities[:, column], rows.targets[:, column], probability)


def _similar(file: ServedPredictions, probabilities: Array) -> list[KnownRow]:
    found = []
    for each in neighbours(file.sample, probabilities, ""):
        place = file.index.place(each.id)
        truth = None if place is None or not file.has_truth else file.index.row(place)[1]
        present = None
        if truth is not None and (truth >= 0).any():
            present = [file.labels[t] for t in np.flatnonzero(truth == 1)]
        few = None if present is None else present[:SHOWN_PRESENT]
        found.append(KnownRow(each.id, each.distance, few, len(present or ()) - len(few or ())))
    return found
