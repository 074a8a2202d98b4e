"""Rank the labels that often appear with a query."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from credibly.predictions import Dataset
from credibly.retrieve.index import named_columns
from credibly.retrieve.joint.model import Joint
from credibly.retrieve.query import Diagram, Query, as_query, diagram, evaluate
from credibly.types import Array, ArrayLike, FilePath

_CELLS = 2**20  # probabilities processed at a time
_MAX_ROWS = 100_000


@dataclass(frozen=True)
class Together:
    """How often a label and a query hold together.

    Attributes:
        label: name of the label.
        expected: expected number of rows that satisfy the query and have the label.
        share: probability of the label, given the query.
        overall: probability of the label in any row.
        known_expected, known_real: expected and real number among the rows whose truth is known;
            None without any.
    """

    label: str
    expected: float
    share: float
    overall: float
    known_expected: float | None = None
    known_real: int | None = None

    @property
    def lift(self) -> float:
        """The ratio of ``share`` and ``overall``; NaN if the label never occurs."""
        return self.share / self.overall if self.overall > 0 else float("nan")


def often_together(
    path: FilePath, query: str | Query, joint: Joint | None, *, partial: bool = False
) -> list[Together]:
    """Return ``seen_together`` for the rows of a file; of more than 100,000 rows, for a sample."""
    scan, rows = Dataset(path, partial=partial), None
    if scan.num_rows > _MAX_ROWS:
        rows = np.sort(np.random.default_rng(0).choice(scan.num_rows, _MAX_ROWS, replace=False))
    scan.check_dense("`also`")
    read = scan.read(rows=rows)
    return seen_together(query, read.probabilities, read.labels, joint=joint, targets=read.targets)


def seen_together(
    query: str | Query,
    probabilities: ArrayLike,
    labels: Sequence[str],
    *,
    joint: Joint | None = None,
    targets: Array | None = None,
) -> list[Together]:
    """Return the labels that the query does not name, by descending probability given the query.

    Args:
        query: text (see ``parse``) or a ``Query``, such as ``"+dog"``.
        probabilities: (rows, labels).
        labels: names of the columns.
        joint: a fitted ``Joint``; by default labels are independent given the row. Even then, two
            labels may occur together, because the same rows have both.
        targets: (rows, labels); truth other than 0 and 1 is unknown.

    Example:
        >>> p = [[0.9, 0.8, 0.1], [0.1, 0.2, 0.5]]
        >>> [each.label for each in seen_together("+dog", p, ["dog", "lead", "cat"])]
        ['lead', 'cat']
    """
    chances, names = named_columns(probabilities, labels)
    model = Joint.independent(names) if joint is None else joint
    model.check(names)
    asked = as_query(query, names)
    found = diagram(asked)
    if found.impossible:
        return []
    own = [names.index(name) for name in found.labels]
    alone, sums = 0.0, np.zeros((4, len(names)))
    step = max(1, _CELLS // len(names))
    for start in range(0, len(chances), step):
        rows = slice(start, start + step)
        weights, products = model.mixture(chances[rows], names)
        truth = np.full(products[0].shape, -1) if targets is None else targets[rows]
        known, real = _known(found, truth, own)
        for weight, product in zip(weights, products, strict=True):
            value = weight * evaluate(found, [*product.T[own]])
            alone += float(value.sum())
            sums[:3] += value @ product, weight @ product, value @ (product * known)
        sums[3] += real.sum(axis=0)
    listed = []
    for place in [at for at in range(len(names)) if at not in own]:
        both, overall, known_both, known_real = sums[:, place].tolist()
        share = min(1.0, both / alone) if alone > 0 else 0.0
        truth = () if targets is None else (known_both, int(known_real))
        listed.append(Together(names[place], both, share, overall / len(chances), *truth))
    return sorted(listed, key=lambda each: -each.share)


def _known(found: Diagram, targets: Array, own: Sequence[int]) -> tuple[Array, Array]:
    """Return the entries whose label and query are known, and those where both hold."""
    hard = (targets == 0) | (targets == 1)
    certain = hard[:, own].all(axis=1)[:, None] & hard
    held = evaluate(found, [*(targets.T[own] == 1).astype(np.float64)])
    return certain, certain & (held == 1)[:, None] & (targets == 1)
