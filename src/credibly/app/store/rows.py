"""One row in full, and rows like it."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from credibly.app.store.address import Rule
from credibly.predictions import Predictions
from credibly.retrieve import Index
from credibly.types import Array

NEIGHBOURS = 8
CHANGES = 6
SHOWN_LABELS = 60
_CELLS = 2**21
_FAR = 1e-7


@dataclass(frozen=True)
class LabelOfRow:
    """One label of a row.

    Attributes:
        label, probability, truth: as in an entry; truth is 1, 0 or None.
        threshold: from which probability the label is in the set.
        chosen: whether it is in the set.
        look: whether the rule asks a person to look.
        distance: log-odds of the probability minus those of the threshold.
    """

    label: str
    probability: float
    truth: int | None
    threshold: float
    chosen: bool
    look: bool
    distance: float

    @property
    def verdict(self) -> str:
        """Return what became of the label: hit, missed, false alarm, or nothing."""
        if self.truth is None:
            return ""
        if self.truth:
            return "hit" if self.chosen else "missed"
        return "false alarm" if self.chosen else ""


@dataclass(frozen=True)
class Neighbour:
    """A row with similar probabilities; ``distance`` is 0 for equal ones and at most 1."""

    id: str
    distance: float


@dataclass(frozen=True)
class Item:
    """A row as its page shows it."""

    id: str
    labels: list[LabelOfRow]
    rule: str

    @property
    def chosen(self) -> list[LabelOfRow]:
        """Return the label set."""
        return [each for each in self.labels if each.chosen]

    @property
    def present(self) -> list[LabelOfRow]:
        """Return the labels that are marked present."""
        return [each for each in self.labels if each.truth == 1]

    @property
    def known(self) -> int:
        """Return of how many labels the truth is known."""
        return sum(each.truth is not None for each in self.labels)

    def shown(self, everything: bool) -> list[LabelOfRow]:
        """Return all labels, or the most probable and some that are present or selected."""
        if everything or len(self.labels) <= SHOWN_LABELS:
            return self.labels
        head = self.labels[:SHOWN_LABELS]
        rest = [e for e in self.labels[SHOWN_LABELS:] if e.truth == 1 or e.chosen]
        return head + rest[: SHOWN_LABELS // 2]

    @property
    def changes(self) -> list[LabelOfRow]:
        """Return the labels that would change the set first, nearest to their threshold."""
        return sorted(self.labels, key=lambda each: abs(each.distance))[:CHANGES]


def item_at(index: Index, place: int, rule: Rule) -> Item:
    """Return the row at a place of the index, its labels from the most probable on."""
    p, y = index.row(place)
    chosen = rule.decision.predict(p[None])[0]
    look = rule.looks(p)
    distance = _log_odds(p) - _log_odds(np.asarray(rule.accept_from))
    order = np.argsort(-p, kind="stable").tolist()
    labels = [
        LabelOfRow(
            index.labels[t],
            float(p[t]),
            None if y is None or y[t] < 0 else int(y[t]),
            float(rule.accept_from),
            bool(chosen[t]),
            bool(look[t]),
            float(distance[t]),
        )
        for t in order
    ]
    return Item(str(index.ids([place])[0]), labels, rule.words)


def neighbours(rows: Predictions, probabilities: Array, id: str) -> list[Neighbour]:
    """Return the rows with the most similar probabilities, the row itself left out.

    The distance of rows p and q is Hellinger's on their expected labels:
    ‖√p − √q‖ / √(Σp + Σq), which counts what is probable and hardly what is improbable in both.

    Args:
        rows: where to look.
        probabilities: of the row, in the order of the labels of ``rows``.
        id: of the row.
    """
    root = np.sqrt(probabilities.astype(np.float32))
    own = float(probabilities.sum(dtype=np.float64))
    step = max(1, _CELLS // max(1, len(root)))
    distances = []
    for start in range(0, len(rows), step):
        p = rows.probabilities[start : start + step]
        total = p.sum(1, dtype=np.float64) + own
        apart = np.maximum(total - 2 * (np.sqrt(p) @ root), 0)
        distances.append(np.sqrt(apart / np.maximum(total, 1e-30)))
    distance = np.concatenate(distances)
    nearest = np.argsort(distance, kind="stable")[: NEIGHBOURS + 1]
    found = [Neighbour(str(rows.ids[row]), float(distance[row])) for row in nearest]
    return [each for each in found if each.id != id][:NEIGHBOURS]


def usual_distance(probabilities: Array, *, rows: int = 4000, asked: int = 300) -> float:
    """Return the 99 % quantile of the distance of a row to the most similar other row.

    Args:
        probabilities: (rows, labels) of the rows that are known.
        rows: of these, so many are looked at.
        asked: for so many of those the most similar one is found.
    """
    root = np.sqrt(probabilities[:rows].astype(np.float32))
    if len(root) < 2:
        return float("nan")
    total = (root**2).sum(1, dtype=np.float64)
    few = root[:asked]
    both = total[:asked, None] + total
    apart = np.sqrt(np.maximum(both - 2 * (few @ root.T), 0) / np.maximum(both, 1e-30))
    apart[np.arange(len(few)), np.arange(len(few))] = np.inf
    return float(np.quantile(apart.min(1), 0.99))


def uncertainty(probabilities: Array) -> Array:
    """Return the entropy of each row, in nats, if its labels are independent.

    Example:
        >>> uncertainty(np.array([[0.5, 0.5], [0.0, 1.0]])).round(3)
        array([1.386, 0.   ])
    """
    p = np.clip(probabilities.astype(np.float64), _FAR, 1 - _FAR)
    return -(p * np.log(p) + (1 - p) * np.log1p(-p)).sum(-1)


def _log_odds(values: Array) -> Array:
    clipped = np.clip(values.astype(np.float64), _FAR, 1 - _FAR)
    return np.log(clipped / (1 - clipped))
