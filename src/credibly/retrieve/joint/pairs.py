"""Compare the expected with the real co-occurrence of labels, and score whole label sets."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from credibly.metrics.accumulators import Accumulator
from credibly.predictions import Dataset, Predictions
from credibly.retrieve.index import named_columns
from credibly.retrieve.joint.model import Joint
from credibly.retrieve.query import Diagram, Query, as_query, diagram, evaluate
from credibly.targets import Targets
from credibly.types import Array, ArrayLike, FilePath

_CELLS = 2**20  # probabilities processed at a time
_MAX_ROWS = 100_000

MAX_LABELS = 400
"""Labels up to which every pair is counted; above it only sums over all pairs."""


@dataclass(frozen=True)
class JointNumbers:
    """Scores of predictions and a joint model on whole label sets.

    Attributes:
        labels: names of the labels.
        rows: number of rows with some known truth.
        log_score: mean log-probability of all known labels of a row together.
        subset_accuracy: share of rows whose most probable set is right, among rows whose labels
            are all known; NaN without any.
        expected_pairs, real_pairs: number of rows with both labels, (L, L), over rows in which both
            are known; None if there are too many labels.
        pairs, triples: expected / real number over all labels; NaN if the real number is 0.
    """

    labels: tuple[str, ...]
    rows: int
    log_score: float
    subset_accuracy: float
    expected_pairs: Array | None
    real_pairs: Array | None
    pairs: float
    triples: float

    def pairs_missed(self, count: int) -> list[tuple[str, str, float, int]]:
        """Return the pairs whose expected and real numbers differ most, worst first.

        Differences are in standard errors of the expected number. A pair is two names, the expected
        and the real number.
        """
        if self.expected_pairs is None or self.real_pairs is None:
            return []
        first, second = np.triu_indices(len(self.labels), 1)
        expected, real = self.expected_pairs[first, second], self.real_pairs[first, second]
        distance = np.abs(expected - real) / np.sqrt(np.maximum(expected, 0.0) + 1.0)
        worst = np.argsort(-distance, kind="stable")[:count]
        return [
            (
                self.labels[first[place]],
                self.labels[second[place]],
                float(expected[place]),
                int(real[place]),
            )
            for place in worst
        ]

    def numbers(self) -> dict[str, float]:
        """Return the metrics by name."""
        return {
            "joint log score": self.log_score,
            "subset accuracy": self.subset_accuracy,
            "pairs expected / real": self.pairs,
            "triples expected / real": self.triples,
        }


class JointSums(Accumulator):
    """The sums over batches of rows behind ``JointNumbers``.

    Args:
        joint: the model; ``Joint.independent(labels)`` for independent labels.
        labels: names of the columns of each batch.
    """

    def __init__(self, joint: Joint, labels: Sequence[str]) -> None:
        joint.check(labels)
        self.joint, self.labels = joint, tuple(labels)
        size = len(labels) if len(labels) <= MAX_LABELS else 0
        self.sums = {
            "rows": np.zeros(4),  # with some truth; log score; with all truth; correct among these
            "sets": np.zeros((2, 2)),  # expected and real; pairs and triples
            "pairs": np.zeros((2, size, size)),
        }

    def feed(self, batch: Predictions, first_row: int) -> None:
        """Add the rows of a batch, which must have truth."""
        assert batch.targets is not None
        self.update(batch.probabilities, batch.targets)

    def update(self, probabilities: Array, targets: Array) -> None:
        """Add rows, (rows, labels) each; truth other than 0 and 1 is unknown."""
        hard = (targets == 0) | (targets == 1)
        truth = np.where(hard, targets, -1).astype(np.int8)
        rows = hard.any(axis=1)
        if not rows.any():
            return
        chances, truth, hard = np.asarray(probabilities)[rows], truth[rows], hard[rows]
        scores = self.joint.log_likelihood(chances, Targets(truth), self.labels)
        whole = hard.all(axis=1)
        right = 0
        if whole.any():
            sets, _ = self.joint.most_probable(chances[whole], self.labels)
            right = (sets == (truth[whole] == 1)).all(axis=1).sum()
        self.sums["rows"] += [len(chances), scores.sum(), whole.sum(), right]
        weights, products = self.joint.mixture(chances, self.labels)
        present = (truth == 1).astype(np.float64)
        expected, real = self.sums["pairs"]
        for weight, product in zip(weights, products, strict=True):
            inside = product * hard
            self.sums["sets"][0] += [weight @ each for each in _symmetric(inside)]
            if expected.size:
                expected += (inside * weight[:, None]).T @ inside
        self.sums["sets"][1] += [each.sum() for each in _symmetric(present)]
        if real.size:
            real += present.T @ present

    def numbers(self) -> JointNumbers:
        """Return the metrics of all rows so far."""
        rows, score, whole, right = self.sums["rows"].tolist()
        expected = real = None
        if self.sums["pairs"].size:
            off_diagonal = 1 - np.eye(len(self.labels))
            expected, real = self.sums["pairs"] * off_diagonal
        with np.errstate(invalid="ignore", divide="ignore"):
            ratios = self.sums["sets"][0] / self.sums["sets"][1]
        pairs, triples = np.where(self.sums["sets"][1] > 0, ratios, np.nan).tolist()
        return JointNumbers(
            labels=self.labels,
            rows=int(rows),
            log_score=score / rows if rows else float("nan"),
            subset_accuracy=right / whole if whole else float("nan"),
            expected_pairs=expected,
            real_pairs=real,
            pairs=pairs,
            triples=triples,
        )


def _symmetric(values: Array) -> tuple[Array, Array]:
    """Return the sums of products over pairs and triples of columns, from power sums."""
    first, second, third = ((values**power).sum(axis=1) for power in (1, 2, 3))
    return (first**2 - second) / 2, (first**3 - 3 * first * second + 2 * third) / 6


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
