"""The probability of a query for rows in memory."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from credibly import checks
from credibly.arrays import like, to_numpy
from credibly.retrieve.query.diagram import Diagram, diagram, evaluate
from credibly.retrieve.query.formula import Query
from credibly.retrieve.query.parser import parse
from credibly.types import Array, ArrayLike

if TYPE_CHECKING:
    from credibly.retrieve.joint.model import Joint


def probability(
    query: str | Query,
    probabilities: ArrayLike,
    labels: Sequence[str],
    joint: Joint | None = None,
) -> Array:
    """Return the probability that each row satisfies the query.

    Labels are independent unless a ``joint`` is given.

    A conjunction is the product of its conditions' probabilities; any other formula is exact too,
    a label that occurs twice included. Probabilities count as float32, as files hold them.

    Example:
        >>> probability("dog | cat & dog", [[0.5, 0.25]], labels=["dog", "cat"])
        array([0.5])
    """
    chances = np.asarray(to_numpy(probabilities), np.float32)
    checks.matrix("probabilities", chances)
    checks.probabilities(chances)
    names = {name: place for place, name in enumerate(labels)}
    if len(names) != chances.shape[1]:
        raise checks.InputError(
            f"`labels` must name each of the {chances.shape[1]} columns once; got {len(names)}."
        )
    asked = as_query(query, list(names))
    found = diagram(asked)
    return like(evaluate_rows(found, names, chances.T, joint), probabilities)


def evaluate_rows(
    found: Diagram, names: dict[str, int], columns: Array, joint: Joint | None
) -> Array:
    """Return the same from float32 ``columns`` of shape (labels, rows)."""
    if joint is None:
        return evaluate(found, [columns[names[x]].astype(np.float64) for x in found.labels])
    joint.check(list(names))
    return joint.evaluate_columns(found, names, np.ascontiguousarray(columns))


def as_query(query: str | Query, labels: Sequence[str]) -> Query:
    """Return the query, parsed if it is text; every label must be one of ``labels``."""
    return parse(query, labels) if isinstance(query, str) else query.check(labels)
