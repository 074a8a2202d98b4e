"""Every label: how often it is there, how often that was expected, how well it is ranked."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from credibly import metrics
from credibly.arrays import to_numpy
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

    @property
    def surprise(self) -> float:
        """Return how many standard deviations of a Poisson variable lie between expected and real.

        Without truth, it is the number of rows.
        """
        if self.present is None:
            return self.rows
        return abs(self.present - self.expected) / (self.expected + 1) ** 0.5


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


RATE = 0.05
"""Of the labels named, at most this share are expected to be named wrongly."""

_LABELS_AT_ONCE = 64
_STEPS = 20


def discoveries(p_values: Array) -> Array:
    """Return which hypotheses to reject by Benjamini and Hochberg's procedure at ``RATE``.

    Example:
        >>> discoveries(np.array([0.9, 0.001, 0.03, 0.2]))
        array([False,  True, False, False])
    """
    ranked = np.sort(p_values)
    passed = ranked <= RATE * np.arange(1, len(ranked) + 1) / len(ranked)
    return p_values <= ranked[passed].max(initial=-1.0)


def _p_values(probabilities: Array, targets: Array) -> tuple[Array, Array]:
    """Return two-sided p-values of each label, 1 where they exceed ``RATE``; present − expected.

    Each label is tested on the number of rows that carry it against the sum of its probabilities,
    by Chernoff's bound for independent rows, which holds for any number of rows and however rare
    the label is.

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
        sure = (apart**2 < np.log(2 / RATE) * variance) & (np.abs(apart) <= variance)
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
    p = probabilities
    if targets is None:
        sums = p.sum(0, dtype=np.float64).tolist()
        return [LabelSummary(name, len(p), n, None) for name, n in zip(labels, sums, strict=True)]
    truth = Targets(targets)
    diagrams = metrics.reliability(p, truth, per_label=True)
    counts = diagrams.counts
    p_values, excess = _p_values(p, targets)
    off = np.where(excess < 0, "too high", "too low")
    columns = {
        "rows": counts.sum(1).astype(np.int64),
        "expected": np.nansum(counts * diagrams.confidence, axis=1),
        "present": np.nansum(counts * diagrams.frequency, axis=1).round(6),
        "average_precision": to_numpy(metrics.average_precision(p, truth)),
        "error": metrics.calibration_error(p, truth, "ace", min_count=MIN_COUNT, average=None),
        "log_loss": metrics.log_loss(p, truth, average=None),
        "noise": calibration_floor(diagrams.confidence, counts),
        "flag": np.where(discoveries(p_values), off, ""),
    }
    return [
        LabelSummary(
            label=name,
            diagram=_of_label(diagrams, t),
            **{key: column[t].item() for key, column in columns.items()},
        )
        for t, name in enumerate(labels)
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


_FEW_ROWS = 5.0
"""A pair that is neither expected nor seen in so many rows says nothing."""


@dataclass(frozen=True)
class Pairs:
    """How often labels occur together: (labels, labels) rows that carry both.

    Attributes:
        labels: their names.
        expected: rows that would carry both, by chance or by the model.
        real: rows that do.
    """

    labels: list[str]
    expected: Array
    real: Array

    @property
    def deviation(self) -> Array:
        """Return real minus expected, in standard errors of a count as large as expected."""
        return (self.real - self.expected) / np.sqrt(np.maximum(self.expected, 1.0))

    @property
    def lift(self) -> Array:
        """Return real / expected; NaN where both are too few rows to say."""
        enough = np.maximum(self.real, self.expected) >= _FEW_ROWS
        with np.errstate(divide="ignore", invalid="ignore"):
            return np.where(enough, self.real / self.expected, np.nan)

    @property
    def matters(self) -> Array:
        """Return which pairs occur at least twice as often as expected, by 3 standard errors."""
        return (self.deviation > 3) & (np.nan_to_num(self.lift) >= 2)


def label_pairs(labels: list[str], probabilities: Array, targets: Array) -> Pairs:
    """Return real and expected counts of pairs, if labels were independent given the row.

    Example:
        >>> p, y = np.full((100, 2), 0.5), np.repeat([[1, 1], [0, 0]], 50, axis=0)
        >>> found = label_pairs(["a", "b"], p, y)
        >>> float(found.expected[0, 1]), float(found.real[0, 1])
        (25.0, 50.0)
    """
    p = np.where((targets == 0) | (targets == 1), probabilities, 0).astype(np.float64)
    y = (targets == 1).astype(np.float64)
    return Pairs(labels, p.T @ p, y.T @ y)


PAIRED_LABELS = 14
"""Labels of the heat map, the most frequent ones."""


def label_lift(labels: list[str], targets: Array) -> Pairs:
    """Return how often the most frequent labels occur together in the truth, against chance.

    Chance is the product of the rates of the two labels over the rows where both are known.

    Example:
        >>> y = np.array([[1, 1, 0]] * 40 + [[0, 0, 1]] * 60)
        >>> found = label_lift(["cup", "fork", "dog"], y)
        >>> found.labels, float(found.lift[1, 2])
        (['dog', 'cup', 'fork'], 2.5)
    """
    present = np.asarray(targets == 1)
    order = np.argsort(-present.sum(0), kind="stable")[:PAIRED_LABELS]
    y = present[:, order].astype(np.float64)
    known = np.isin(targets[:, order], (0, 1)).astype(np.float64)
    with_other = y.T @ known  # rows that carry the first label where the second is known
    expected = with_other * with_other.T / np.maximum(known.T @ known, 1.0)
    return Pairs([labels[t] for t in order], expected, y.T @ y)


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


CONFUSED = 5
"""Labels of each list of confused labels."""


def confusions(
    labels: list[str], column: int, returned: Array, targets: Array
) -> dict[str, list[Confusion]]:
    """Return what is there where a label is returned wrongly, and what is returned where it is
    missed; those first that exceed their usual share by the most rows.

    Args:
        labels: names of the columns.
        column: the label in question.
        returned: (rows, labels) which labels the rule returns.
        targets: decoded, same shape; −1 is unknown.

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
            for t in order[:CONFUSED]
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
        lowest, highest: of their probabilities; NaN without rows.
    """

    rows: int
    share: float
    low: float
    high: float
    lowest: float
    highest: float

    @property
    def enough(self) -> bool:
        """Return whether there are enough rows for the share to tell something."""
        return self.rows >= FEWEST_ROWS


def observed_share(probabilities: Array, targets: Array, value: float) -> ObservedShare:
    """Return how often a label was present where its probability was about ``value``.

    Rows whose probability differs by more than ``NEAR`` do not count; of the others, the
    ``MOST_ROWS`` nearest ones and all rows as near as the last.

    Args:
        probabilities: of one label, (rows,).
        targets: (rows,), 1, 0 or soft; −1 for unknown, which does not count.
        value: the probability in question.

    Example:
        >>> p = np.array([0.2, 0.79, 0.8, 0.81, 0.8])
        >>> found = observed_share(p, np.array([0, 1, 1, 0, -1]), 0.8)
        >>> found.rows, round(found.share, 4), found.enough
        (3, 0.6667, False)
    """
    known = targets >= 0
    p, y = probabilities[known].astype(np.float64), targets[known].astype(np.float64)
    distance = np.abs(p - value)
    limit = NEAR
    if len(p) > MOST_ROWS:
        limit = min(NEAR, float(np.partition(distance, MOST_ROWS - 1)[MOST_ROWS - 1]))
    inside = distance <= limit
    rows, near = int(inside.sum()), p[inside]
    if not rows:
        return ObservedShare(0, np.nan, 0.0, 1.0, np.nan, np.nan)
    present = float(y[inside].sum())
    low, high = proportion_interval(present, rows)
    return ObservedShare(
        rows, present / rows, float(low), float(high), float(near.min()), float(near.max())
    )
