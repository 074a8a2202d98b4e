"""What files with the most probable labels of each row are worth: in one pass over the rows."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from credibly.app.statistics.labels import LabelSummary
from credibly.app.statistics.overview import (
    SMALL_MULTIPLES,
    Fact,
    FirstLook,
    Grade,
    Verdict,
    graded,
)
from credibly.metrics import top_labels
from credibly.metrics.calibration import ReliabilityDiagram
from credibly.metrics.summaries import MIN_COUNT
from credibly.predictions import Dataset
from credibly.types import Array

PLACES = (1, 3, 5, 10, 20, 50)
"""Numbers of most probable labels that tables show, as far as rows hold so many."""

MOST_PLACES = 100
"""Places of the ranking that are measured at most."""


@dataclass(frozen=True, eq=False)
class TopLook:
    """Ranking, calibration and labels of predictions that hold the k most probable ones.

    Attributes:
        num_rows, num_known: rows, and rows whose truth is known.
        k: labels that a row holds at most.
        figures: calibration error, NLL and Brier score of the labels held; empty without truth.
        precision, ndcg, recall: at 1 … k (at most 100); empty without truth.
        reliability: of the labels held, or None without truth.
        names: of all labels.
        held: by label, rows that hold it among their most probable labels.
        present: rows known to have it.
        hits: rows that hold it and are known to have it.
        expected: sum of its probabilities over the rows that hold it and whose truth is known, or
            over all that hold it without truth.
        known: rows that hold it and whose truth is known.
    """

    num_rows: int
    num_known: int
    k: int
    figures: dict[str, float]
    precision: Array
    ndcg: Array
    recall: Array
    reliability: ReliabilityDiagram | None
    names: Sequence[str]
    held: Array
    present: Array
    hits: Array
    expected: Array
    known: Array

    @property
    def has_truth(self) -> bool:
        """Return whether some truth is known."""
        return self.num_known > 0

    def at_places(self) -> list[tuple[int, float, float, float]]:
        """Return place, precision, nDCG and recall at the places that tables show."""
        return [
            (k, float(self.precision[k - 1]), float(self.ndcg[k - 1]), float(self.recall[k - 1]))
            for k in PLACES
            if k <= len(self.precision)
        ]

    def sentences(self) -> list[str]:
        """Return in words what the predictions are worth."""
        seen = int((self.held > 0).sum())
        found = [
            f"Each of {self.num_rows:,} rows lists its {self.k} most probable labels. {seen:,} of "
            f"{len(self.names):,} labels are listed in some row; nothing is known of the others."
        ]
        if not self.has_truth:
            return [*found, "The file has no truth, so nothing can be measured."]
        expected, real, known = self.expected.sum(), self.hits.sum(), self.known.sum()
        far = "more" if expected > real else "fewer"
        share = abs(expected - real) / max(real, 1)
        bias = "as many as there are" if share < 0.01 else f"{share:.0%} {far} than there are"
        return [
            *found,
            f"The most probable label is right in {self.precision[0]:.1%} of the rows; the "
            f"{self.k} listed labels contain {self.recall[-1]:.1%} of a row's labels on average.",
            f"Of {known:,.0f} listed labels, the probabilities expect {expected:,.0f} to be "
            f"right, {bias} ({real:,.0f}).",
        ]

    @property
    def grade(self) -> Grade:
        """Return a grade by expected against real hits among the labels held."""
        if not self.has_truth:
            return "unknown"
        return graded(abs(self.expected.sum() / max(self.hits.sum(), 1) - 1), 0.1, 0.25)

    def row(self, number: int) -> LabelSummary:
        """Return one label as tables of labels show it, over the rows that hold it."""
        present = float(self.hits[number]) if self.has_truth else None
        rows = int((self.known if self.has_truth else self.held)[number])
        return LabelSummary(self.names[number], rows, float(self.expected[number]), present)

    def by_surprise(self) -> Array:
        """Return label numbers, those first whose hits differ most from what was expected.

        The difference counts in standard deviations of a Poisson variable; labels that no row
        holds or has come last, by number.
        """
        if not self.has_truth:
            return np.argsort(-self.held, kind="stable")
        off = np.abs(self.hits - self.expected) / np.sqrt(self.expected + 1)
        return np.lexsort((-self.present, -self.held, -off))


def top_first_look(found: TopLook) -> FirstLook:
    """Return what the first page shows about labels that rows hold."""
    first, *others = found.sentences()
    spoken = Verdict((*others[:1], first, *others[1:]), found.grade)
    facts = [
        Fact(f"{100 * value:.0f} %", words)
        for k, precision, _, recall in found.at_places()[-1:]
        for value, words in (
            (float(found.precision[0]), "of the most probable labels are right"),
            (recall, f"of a row's labels are among its {k} most probable"),
            (precision, f"of the {k} listed labels are right"),
        )
    ]
    shown = [found.row(int(number)) for number in found.by_surprise()[:SMALL_MULTIPLES]]
    return FirstLook(spoken, [], [], shown, 0, facts, found.reliability, ranking=found.at_places())


def top_summary(
    dataset: Dataset, *, advance: Callable[[float], None] = lambda share: None
) -> TopLook:
    """Return what the rows of files with the most probable labels are worth.

    One pass in batches; memory is five numbers per label, whatever the number of rows.

    Args:
        dataset: files that hold the most probable labels of each row.
        advance: called with the share of the rows done since its last call.

    Raises:
        InputError: if the files have one column per label.

    Example:
        >>> import pathlib, tempfile
        >>> from credibly.predictions import Predictions
        >>> from credibly.targets import SparseTargets
        >>> path = pathlib.Path(tempfile.mkdtemp()) / "top.parquet"
        >>> Predictions.from_arrays(
        ...     top=[[7, 3], [99, 0]], probabilities=[[0.9, 0.2], [0.5, 0.4]],
        ...     labels=[f"label-{i}" for i in range(100)],
        ...     targets=SparseTargets.from_lists([[7], [0]], 100)).write(path)
        >>> found = top_summary(Dataset(path))
        >>> found.precision, float(found.hits[7]), round(float(found.expected[7]), 6)
        (array([0.5, 0.5]), 1.0, 0.9)
    """
    count = len(dataset.labels)
    held, present, hits, expected, known = (np.zeros(count) for _ in range(5))
    found = top_labels.HeldLabels(k=MOST_PLACES)
    num_known = width = 0
    for batch in dataset.batches(16_384):
        width = max(width, batch.probabilities.shape[1])
        inside = batch.held
        numbers, values = batch.label_indices[inside], batch.probabilities[inside]
        held += np.bincount(numbers, minlength=count)
        if batch.targets is None or batch.all_targets is None:
            expected += np.bincount(numbers, values, minlength=count)
        else:
            truth = batch.targets[inside]
            sure = truth >= 0
            known += np.bincount(numbers[sure], minlength=count)
            hits += np.bincount(numbers[sure], truth[sure], minlength=count)
            expected += np.bincount(numbers[sure], values[sure], minlength=count)
            present += np.bincount(batch.all_targets.indices, minlength=count)
            known_rows = batch.all_targets.known
            num_known += len(batch) if known_rows is None else int(known_rows.sum())
            found.update(*batch.measured())
        advance(len(batch) / dataset.num_rows)
    figures: dict[str, float] = {}
    if num_known:
        numbers, kept = found.numbers(MIN_COUNT), ("ACE", "MCE", "ECE", "NLL", "Brier")
        figures = {name: numbers[f"{name}{top_labels.HELD}"] for name in kept}
    precision, ndcg, recall = found.ranking.figures()[:, : width if num_known else 0]
    return TopLook(
        num_rows=dataset.num_rows,
        num_known=num_known,
        k=width,
        figures=figures,
        precision=precision,
        ndcg=ndcg,
        recall=recall,
        reliability=found.bins.reliability() if num_known else None,
        names=dataset.labels,
        held=held,
        present=present,
        hits=hits,
        expected=expected,
        known=known,
    )
