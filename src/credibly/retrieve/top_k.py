"""Search files that hold the most probable labels of each row.

A label that a row does not hold is less probable than those it holds; here it counts as 0. So a
wanted label never adds rows that do not hold it, and an unwanted one costs nothing where it is not
held. Rows of probability 0 are not among the best.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from credibly.checks import InputError
from credibly.predictions import Dataset, TopPredictions
from credibly.retrieve.answer import Answer, Hit, conditions
from credibly.retrieve.query.diagram import Diagram, diagram, evaluate
from credibly.retrieve.query.formula import Query
from credibly.retrieve.query.probabilities import as_query
from credibly.types import Array

if TYPE_CHECKING:
    from credibly.retrieve.joint.base import JointModel


def search_top_labels(
    predictions: Dataset | TopPredictions,
    query: str | Query,
    *,
    top: int = 20,
    joint: JointModel | None = None,
) -> Answer:
    """Rank rows that hold their most probable labels: in memory, or of files batch by batch.

    Args:
        predictions: the rows.
        query: text or a parsed query.
        top: how many rows to return.
        joint: must be None; joint probabilities need a column per label.

    Example:
        >>> rows = TopPredictions.from_arrays(
        ...     top=[[2, 0], [1, 2]], probabilities=[[0.9, 0.2], [0.5, 0.4]],
        ...     labels=["dog", "cat", "owl"], ids=["first", "second"])
        >>> [hit.id for hit in search_top_labels(rows, "+owl -cat").hits]
        ['first', 'second']
    """
    if joint is not None:
        raise InputError(
            "files that hold the most probable labels of each row have no joint probabilities, "
            "which need one column per label. Leave the joint model out."
        )
    asked = as_query(query, predictions.labels)
    compiled = diagram(asked)
    wanted = set(compiled.labels)
    places = {name: place for place, name in enumerate(predictions.labels) if name in wanted}
    numbers = [places[name] for name in compiled.labels]
    if isinstance(predictions, TopPredictions):
        batches, num_rows = iter([predictions]), len(predictions)
    else:
        batches, num_rows = predictions.top_batches(), predictions.num_rows
    best: list[tuple[float, str, tuple[float, ...], bool | None]] = []
    expected = known_expected = 0.0
    known_rows = known_hits = 0
    for batch in batches:
        present = [batch.column(number).astype(np.float64) for number in numbers]
        values = np.broadcast_to(evaluate(compiled, present), len(batch)).astype(np.float64)
        expected += float(values.sum())
        truth = _truth(batch, compiled, numbers)
        if truth is not None:
            known = truth >= 0
            known_rows += int(known.sum())
            known_expected += float(values[known].sum())
            known_hits += int((truth == 1).sum())
        best += [
            (
                float(values[row]),
                str(batch.ids[row]),
                tuple(float(column[row]) for column in present),
                None if truth is None or truth[row] < 0 else bool(truth[row]),
            )
            for row in _best_rows(values, top)
        ]
        best = sorted(best, key=lambda hit: (-hit[0], hit[1]))[:top]
    return Answer(
        query=asked,
        hits=[] if compiled.impossible else [_hit(asked, compiled, *each) for each in best],
        rows=num_rows,
        expected_hits=expected,
        known_rows=known_rows,
        known_expected=known_expected if known_rows else None,
        known_hits=known_hits if known_rows else None,
        contradiction=compiled.impossible,
    )


def _best_rows(values: Array, top: int) -> Array:
    """Return the rows that may be among the ``top`` best, ties at the end included; none at 0."""
    possible = np.flatnonzero(values > 0)
    if len(possible) <= top:
        return possible
    bound = np.partition(values[possible], len(possible) - top)[len(possible) - top]
    return possible[values[possible] >= bound]


def _truth(batch: TopPredictions, compiled: Diagram, numbers: list[int]) -> Array | None:
    """Return whether each row satisfies the formula: 1, 0, or −1 where unknown."""
    if batch.targets is None:
        return None
    asked = np.broadcast_to(np.asarray(numbers), (len(batch), len(numbers)))
    found = batch.targets.at(asked)
    known = ((found == 0) | (found == 1)).all(axis=1)
    columns = [np.where(known, column, 0.0).astype(np.float64) for column in found.T]
    holds = np.broadcast_to(evaluate(compiled, columns), len(batch))
    return np.where(known, holds, -1.0)


def _hit(
    asked: Query,
    compiled: Diagram,
    probability: float,
    name: str,
    present: tuple[float, ...],
    truth: bool | None,
) -> Hit:
    values = dict(zip(compiled.labels, present, strict=True))
    each = {
        text: values[label] if wanted else 1.0 - values[label]
        for text, label, wanted in conditions(asked)
    }
    return Hit(name, probability, each, truth)
