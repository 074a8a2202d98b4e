"""One row in full, and rows like it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from scipy.special import entr

from credibly.predictions import Predictions
from credibly.review.noise_model import log_odds
from credibly.types import Array

if TYPE_CHECKING:
    from credibly.app.store.store import Rule

NEIGHBOURS = 8
SHOWN_LABELS = 60
_CELLS = 2**21


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


def item_of(id: str, names: list[str], p: Array, y: Array | None, rule: Rule) -> Item:
    """Return a row, its labels from the most probable on.

    Args:
        id: of the row.
        names, p, y: its labels, their probabilities and targets.
        rule: that makes the set.
    """
    chosen = rule.decision.predict(p[None])[0]
    look = rule.decision.to_review(p[None])[0]
    distance = log_odds(p) - log_odds(np.asarray(rule.accept_from))
    labels = [
        LabelOfRow(
            names[t],
            float(p[t]),
            None if y is None or y[t] < 0 else int(y[t]),
            float(rule.accept_from),
            bool(chosen[t]),
            bool(look[t]),
            float(distance[t]),
        )
        for t in np.argsort(-p, kind="stable").tolist()
    ]
    return Item(id, labels, rule.words)


def neighbours(rows: Predictions, probabilities: Array, id: str) -> list[Neighbour]:
    """Return the rows with the most similar probabilities, the row itself left out.

    Args:
        rows: where to look.
        probabilities: of the row, in the order of the labels of ``rows``.
        id: of the row.
    """
    step = max(1, _CELLS // max(1, len(probabilities)))
    blocks = [rows.probabilities[start : start + step] for start in range(0, len(rows), step)]
    distance = np.concatenate([_distances(block, probabilities[None])[:, 0] for block in blocks])
    nearest = np.argsort(distance, kind="stable")[: NEIGHBOURS + 1]
    found = [Neighbour(str(rows.ids[row]), float(distance[row])) for row in nearest]
    return [each for each in found if each.id != id][:NEIGHBOURS]


def usual_distance(probabilities: Array) -> float:
    """Return the 99 % quantile of the distance of a row to the most similar other row.

    The first rows are asked, and more of them are looked at.
    """
    few, asked = probabilities[:4000], probabilities[:300]
    if len(few) < 2:
        return float("nan")
    apart = _distances(asked, few)
    np.fill_diagonal(apart, np.inf)
    return float(np.quantile(apart.min(1), 0.99))


def _distances(rows: Array, others: Array) -> Array:
    """Return Hellinger's distance between the expected labels of rows p and of others q.

    It is ‖√p − √q‖ / √(Σp + Σq), which counts what is probable and hardly what is improbable in
    both.
    """
    total = rows.sum(1, dtype=np.float64)[:, None] + others.sum(1, dtype=np.float64)
    both = np.sqrt(rows.astype(np.float32)) @ np.sqrt(others.astype(np.float32)).T
    return np.sqrt(np.maximum(total - 2 * both, 0) / np.maximum(total, 1e-30))


def uncertainty(probabilities: Array) -> Array:
    """Return the entropy of each row, in nats, if its labels are independent.

    Example:
        >>> uncertainty(np.array([[0.5, 0.5], [0.0, 1.0]])).round(3)
        array([1.386, 0.   ])
    """
    p = probabilities.astype(np.float64)
    return (entr(p) + entr(1 - p)).sum(-1)
