"""Every label: how often it is there, how often that was expected, how well it is ranked."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import numpy as np

from credibly import metrics
from credibly.metrics import proportion_interval
from credibly.metrics.calibration import ReliabilityDiagram
from credibly.metrics.summaries import MIN_COUNT
from credibly.targets import Targets
from credibly.types import Array, JsonObject


@dataclass(frozen=True)
class LabelSummary:
    """One label. All counts and means are over rows whose truth is known; all rows without truth.

    Attributes:
        label: its name.
        rows: rows that count: those with known truth, or all where there is no truth.
        expected: sum of the probabilities of those rows.
        present: how many of them carry the label (the sum of soft targets); None without truth.
        average_precision, error, log_loss: NaN where they are not defined; ``error`` is ACE by the
            bins of every table.
        noise: the calibration error that exactly right probabilities would show on as many rows.
        flag: ``"too high"``, ``"too low"`` or empty: probabilities that are clearly off, under a
            false-discovery rate over all labels.
        diagram: its reliability diagram; None without truth.
    """

    label: str
    rows: int
    expected: float
    present: float | None
    average_precision: float = float("nan")
    error: float = float("nan")
    log_loss: float = float("nan")
    noise: float = float("nan")
    flag: str = ""
    diagram: ReliabilityDiagram | None = field(default=None, compare=False)

    @property
    def expected_share(self) -> float:
        """Return the mean probability; NaN without rows."""
        return self.expected / self.rows if self.rows else float("nan")

    @property
    def present_share(self) -> float:
        """Return the share of rows that carry the label; NaN without known truth."""
        known = self.present is not None and self.rows > 0
        return (self.present or 0.0) / self.rows if known else float("nan")


def summarize_columns(labels: list[str], p: Array, y: Array | None) -> list[LabelSummary]:
    """Return one summary per column; ``y`` are decoded targets, None without truth.

    Example:
        >>> p, y = np.array([[0.9], [0.4], [0.2]]), np.array([[1], [-1], [0]])
        >>> rows = summarize_columns(["a"], p, y)
        >>> rows[0].rows, round(rows[0].expected, 1), rows[0].present
        (2, 1.1, 1.0)
    """
    if y is None:
        sums = p.sum(0, dtype=np.float64).tolist()
        return [
            LabelSummary(name, len(p), total, None)
            for name, total in zip(labels, sums, strict=True)
        ]
    return summarize_diagrams(labels, p, y, label_diagrams(p, y))


def label_sentence(about: JsonObject) -> str:
    """Return in words how far a label's probabilities can be trusted.

    Example:
        >>> label_sentence({"label": "dog", "known": 900, "known_expected": 124.0, "present": 100})
        'The model expects dog in 124 of 900 rows; 100 have it: 24 % too many.'
    """
    if about.get("present") is None:
        words = f"{about['expected']:,.0f} of {about['rows']:,} rows"
        return f"The model expects {about['label']} in {words}."
    expected, present = about["known_expected"], about["present"]
    words = f"The model expects {about['label']} in {expected:,.0f} of {about['known']:,} rows; "
    words += f"{present:,.0f} {'has' if present == 1 else 'have'} it"
    if not present:
        return f"{words}."
    off = expected / present - 1
    if abs(off) < 0.05:
        return f"{words}: about right."
    return f"{words}: {100 * abs(off):.0f} % too {'many' if off > 0 else 'few'}."


def label_diagrams(p: Array, y: Array) -> ReliabilityDiagram:
    """Return the reliability diagram of each column."""
    return metrics.reliability(p, Targets(y), per_label=True)


def summarize_diagrams(
    labels: list[str], p: Array, y: Array, diagrams: ReliabilityDiagram
) -> list[LabelSummary]:
    """Return one summary per column whose diagram is known: its bins hold counts and sums."""
    counts = diagrams.counts
    known = counts.sum(1)
    expected = np.nansum(counts * diagrams.confidence, axis=1)
    present = np.nansum(counts * diagrams.frequency, axis=1)
    truth = Targets(y)
    columns = (
        known,
        expected,
        present,
        metrics.average_precision(p, truth),
        metrics.calibration_error(p, truth, "ace", min_count=MIN_COUNT, average=None),
        metrics.log_loss(p, truth, average=None),
    )
    return [
        LabelSummary(name, int(n), float(e), round(float(s), 6), float(a), float(c), float(nll))
        for name, n, e, s, a, c, nll in zip(labels, *columns, strict=True)
    ]


RATE = 0.05
"""Of the labels named, at most this share are expected to be named wrongly."""

_LABELS_AT_ONCE = 64
_STEPS = 20


def biased_labels(
    probabilities: Array, targets: Array, *, rate: float = RATE
) -> tuple[Array, Array]:
    """Return labels whose probabilities are too high, and too low, the surest first.

    Each label is tested on the number of rows that carry it against the sum of its probabilities,
    by Chernoff's bound for independent rows, which holds for any number of rows and however rare
    the label is. Labels are named by Benjamini and Hochberg's procedure at ``rate``.

    Args:
        probabilities: (rows, labels) in [0, 1].
        targets: decoded targets of the same shape; −1 is unknown.
        rate: false-discovery rate.

    Returns:
        Indices of the labels that are too high, and of those that are too low.

    Example:
        >>> p = np.full((400, 3), 0.5)
        >>> y = np.zeros((400, 3)); y[:200, 0] = 1; y[:, 1] = 1
        >>> biased_labels(p, y)
        (array([2]), array([1]))
    """
    p_values, excess = _p_values(probabilities, targets, rate)
    named = discoveries(p_values, rate)
    return named[excess[named] < 0], named[excess[named] > 0]


def discoveries(p_values: Array, rate: float) -> Array:
    """Return which hypotheses to reject by Benjamini and Hochberg's procedure, the surest first.

    Example:
        >>> discoveries(np.array([0.9, 0.001, 0.03, 0.2]), 0.05)
        array([1])
    """
    order = np.argsort(p_values, kind="stable")
    ranked = p_values[order]
    passed = np.flatnonzero(ranked <= rate * np.arange(1, len(ranked) + 1) / len(ranked))
    return order[: passed[-1] + 1] if passed.size else order[:0]


def _p_values(probabilities: Array, targets: Array, rate: float = 2.0) -> tuple[Array, Array]:
    """Return two-sided p-values of each label, 1 where they exceed ``rate``; present − expected.

    The exponent of Chernoff's bound is at most z², where z is the excess in standard deviations
    and the excess is below the variance V: it is the least Kullback–Leibler divergence of tilted
    rates, those of p + p(1 − p)·excess/V are such, and the χ² divergence is not below it. So most
    labels need no search for the bound.
    """
    count = probabilities.shape[1]
    p_values, excess = np.ones(count), np.zeros(count)
    for first in range(0, count, _LABELS_AT_ONCE):
        labels = slice(first, first + _LABELS_AT_ONCE)
        known = targets[:, labels] >= 0
        p = np.where(known, probabilities[:, labels], 0.0).astype(np.float64)
        p = np.where(known, np.clip(p, 1e-7, 1 - 1e-7), 0.0)
        present = np.where(known, targets[:, labels], 0.0).sum(0, dtype=np.float64)
        apart, variance = present - p.sum(0), (p * (1 - p)).sum(0)
        sure = (apart**2 < np.log(2 / rate) * variance) & (np.abs(apart) <= variance)
        bound = np.zeros(len(present))
        bound[~sure] = _log_bound(p[:, ~sure], present[~sure])
        p_values[labels] = np.minimum(1.0, 2.0 * np.exp(bound))
        excess[labels] = apart
    return p_values, excess


def _log_bound(p: Array, present: Array) -> Array:
    """Return min over t of log E exp(t S) − t s, a bound on the tail of S = Σ Bernoulli(p) at s."""
    low, high = np.full(len(present), -30.0), np.full(len(present), 30.0)
    for _ in range(_STEPS):  # the mean of the tilted sum rises with t
        t = (low + high) / 2
        grown = p * np.exp(t)
        mean = (grown / (1 - p + grown)).sum(0)
        low, high = np.where(mean < present, t, low), np.where(mean < present, high, t)
    t = (low + high) / 2
    return np.minimum(0.0, np.log1p(p * np.expm1(t)).sum(0) - t * present)


def label_atlas(
    labels: list[str], probabilities: Array, targets: Array | None
) -> list[LabelSummary]:
    """Return one row per label.

    Args:
        labels: names of the columns.
        probabilities: (rows, labels) in [0, 1].
        targets: decoded, same shape; −1 is unknown. None without truth.

    Example:
        >>> rng = np.random.default_rng(0)
        >>> p = rng.random((4000, 2))
        >>> y = (rng.random(p.shape) < p * [1, 0.7]).astype(int)
        >>> [(row.label, row.flag) for row in label_atlas(["a", "b"], p, y)]
        [('a', ''), ('b', 'too high')]
    """
    if targets is None:
        return summarize_columns(labels, probabilities, targets)
    diagram = label_diagrams(probabilities, targets)
    summaries = summarize_diagrams(labels, probabilities, targets, diagram)
    noise = calibration_floor(diagram.confidence, diagram.counts)
    high, low = (set(each.tolist()) for each in biased_labels(probabilities, targets))
    return [
        replace(
            each,
            noise=float(noise[t]),
            flag="too high" if t in high else "too low" if t in low else "",
            diagram=_of_label(diagram, t),
        )
        for t, each in enumerate(summaries)
    ]


def _of_label(diagrams: ReliabilityDiagram, label: int) -> ReliabilityDiagram:
    names = ("counts", "confidence", "frequency", "lower", "upper")
    return ReliabilityDiagram(
        edges=diagrams.edges, **{name: getattr(diagrams, name)[label] for name in names}
    )


def calibration_floor(confidence: Array, counts: Array) -> Array:
    """Return the ACE that calibrated probabilities would show by chance, per label.

    A bin of n entries with mean probability c is off by √(2c(1 − c)/(πn)) on average, as the mean
    absolute value of a normal variable; the floor is the mean over the bins that count.

    Args:
        confidence, counts: (labels, bins) of reliability diagrams.
    """
    enough = counts >= MIN_COUNT
    chance = np.where(enough, np.nan_to_num(confidence), 0.0)
    each = np.sqrt(2 * chance * (1 - chance) / (np.pi * np.maximum(counts, 1)))
    number = enough.sum(-1)
    return np.where(number > 0, (each * enough).sum(-1) / np.maximum(number, 1), np.nan)


@dataclass(frozen=True)
class Pairs:
    """How often labels occur together: (labels, labels) over rows where both are known."""

    labels: list[str]
    expected: Array
    real: Array

    @property
    def deviation(self) -> Array:
        """Return real minus expected, in standard errors of a count as large as expected."""
        return (self.real - self.expected) / np.sqrt(np.maximum(self.expected, 1.0))


def label_pairs(labels: list[str], probabilities: Array, targets: Array) -> Pairs:
    """Return real and expected counts of pairs, if labels were independent given the row.

    Example:
        >>> p, y = np.full((100, 2), 0.5), np.repeat([[1, 1], [0, 0]], 50, axis=0)
        >>> found = label_pairs(["a", "b"], p, y)
        >>> float(found.expected[0, 1]), float(found.real[0, 1])
        (25.0, 50.0)
    """
    known = (targets == 0) | (targets == 1)
    p = np.where(known, probabilities, 0).astype(np.float64)
    y = (targets == 1).astype(np.float64)
    both = known.astype(np.float64)
    return Pairs(labels, p.T @ p, (y * both).T @ (y * both))


@dataclass(frozen=True)
class Confusion:
    """A label that stands out in rows where another one is wrong.

    Attributes:
        label: its name.
        rows: how many of those rows have it.
        total: how many of those rows there are.
        usual: the share of all rows that have it.
    """

    label: str
    rows: int
    total: int
    usual: float


def confusions(
    labels: list[str], column: int, returned: Array, targets: Array, *, most: int = 5
) -> dict[str, list[Confusion]]:
    """Return what is there where a label is returned wrongly, and what is returned where it is
    missed; those first that exceed their usual share by the most rows.

    Args:
        labels: names of the columns.
        column: the label in question.
        returned: (rows, labels) which labels the rule returns.
        targets: decoded, same shape; −1 is unknown.
        most: labels of each list.

    Example:
        >>> y = np.array([[1, 0, 0]] * 5 + [[0, 1, 0]] * 5)
        >>> said = np.array([[1, 0, 0]] * 4 + [[0, 0, 1]] + [[1, 1, 0]] * 3 + [[0, 1, 0]] * 2)
        >>> found = confusions(["cat", "dog", "fox"], 0, said == 1, y)
        >>> [(each.label, each.rows, each.total) for each in found["returned wrongly"]]
        [('dog', 3, 3)]
        >>> [each.label for each in found["missed"]]
        ['fox']
    """
    truth = targets == 1
    wrongly = returned[:, column] & (targets[:, column] == 0)
    missed = ~returned[:, column] & truth[:, column]

    def exceeding(where: Array, there: Array) -> list[Confusion]:
        counts, usual, total = there[where].sum(0), there.mean(0), int(where.sum())
        excess = counts - total * usual
        order = [t for t in np.argsort(-excess, kind="stable").tolist() if t != column]
        return [
            Confusion(labels[t], int(counts[t]), total, float(usual[t]))
            for t in order[:most]
            if excess[t] > 0
        ]

    return {"returned wrongly": exceeding(wrongly, truth), "missed": exceeding(missed, returned)}


NEAR = 0.1
MOST_ROWS = 200
FEWEST_ROWS = 20


@dataclass(frozen=True)
class ObservedShare:
    """Rows of known truth whose probability of a label is near a given one.

    Attributes:
        rows: how many there are.
        share: of those that carry the label (the mean of soft targets); NaN without rows.
        low, high: 95 % interval of the share (Wilson).
        expected: mean of their probabilities; NaN without rows.
        lowest, highest: of their probabilities; NaN without rows.
    """

    rows: int
    share: float
    low: float
    high: float
    expected: float
    lowest: float
    highest: float

    @property
    def enough(self) -> bool:
        """Return whether there are enough rows for the share to tell something."""
        return self.rows >= FEWEST_ROWS


def observed_share(
    probabilities: Array,
    targets: Array,
    value: float,
    *,
    near: float = NEAR,
    most: int = MOST_ROWS,
) -> ObservedShare:
    """Return how often a label was present where its probability was about ``value``.

    Args:
        probabilities: of one label, (rows,).
        targets: (rows,), 1, 0 or soft; −1 for unknown, which does not count.
        value: the probability in question.
        near: rows whose probability differs by more do not count.
        most: of the others, so many count, the nearest ones, and all rows as near as the last.

    Example:
        >>> p = np.array([0.2, 0.79, 0.8, 0.81, 0.8])
        >>> found = observed_share(p, np.array([0, 1, 1, 0, -1]), 0.8)
        >>> found.rows, round(found.share, 4), found.enough
        (3, 0.6667, False)
    """
    known = targets >= 0
    p, y = probabilities[known].astype(np.float64), targets[known].astype(np.float64)
    distance = np.abs(p - value)
    limit = near
    if len(p) > most:
        limit = min(near, float(np.partition(distance, most - 1)[most - 1]))
    inside = distance <= limit
    rows = int(inside.sum())
    if not rows:
        nothing = float("nan")
        return ObservedShare(0, nothing, 0.0, 1.0, nothing, nothing, nothing)
    present = float(y[inside].sum())
    low, high = proportion_interval(present, rows)
    return ObservedShare(
        rows=rows,
        share=present / rows,
        low=float(low),
        high=float(high),
        expected=float(p[inside].mean()),
        lowest=float(p[inside].min()),
        highest=float(p[inside].max()),
    )
