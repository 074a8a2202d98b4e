"""What files with the most probable labels of each row are worth: in one pass over the rows."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from credibly.app.statistics.labels import LabelSummary
from credibly.app.statistics.overview import Fact, FirstLook, Verdict, graded
from credibly.metrics import top_labels
from credibly.metrics.summaries import MIN_COUNT
from credibly.predictions import Dataset
from credibly.types import Array

PLACES = (1, 3, 5, 10, 20, 50)
"""Numbers of most probable labels that tables show, as far as rows hold so many."""

MOST_PLACES = 100
"""Places of the ranking that are measured at most."""


@dataclass(frozen=True)
class TopLook:
    """Ranking, calibration and labels of predictions that hold the k most probable ones.

    Attributes:
        first: what the first page shows; its labels are those whose number differs most from what
            was expected.
        labels: all labels in order. Their counts are over the rows that hold them.
        figures: calibration error, NLL and Brier score of the labels held; empty without truth.
    """

    first: FirstLook
    labels: list[LabelSummary]
    figures: dict[str, float]


def top_look(dataset: Dataset, *, advance: Callable[[float], None] = lambda share: None) -> TopLook:
    """Return what the rows of files with the most probable labels are worth.

    One pass in batches; memory is a few numbers per label, whatever the number of rows.

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
        >>> found = top_look(Dataset(path))
        >>> found.first.ranking[0][1], found.labels[7].present, round(found.labels[7].expected, 6)
        (0.5, 1.0, 0.9)
    """
    count = len(dataset.labels)
    held, known, hits, expected = (np.zeros(count) for _ in range(4))
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
            known_rows = batch.all_targets.known
            num_known += len(batch) if known_rows is None else int(known_rows.sum())
            found.update(*batch.measured())
        advance(len(batch) / dataset.num_rows)
    present = hits.tolist() if num_known else [None] * count
    counts = (known if num_known else held).astype(np.int64).tolist()
    columns = zip(dataset.labels, counts, expected.tolist(), present, strict=True)
    labels = [LabelSummary(*row) for row in columns]
    off = np.abs(hits - expected) / np.sqrt(expected + 1) if num_known else held
    shown = [labels[t] for t in np.lexsort((-held, -off))]
    sentence = (
        f"Each of {dataset.num_rows:,} rows lists its {width} most probable labels. "
        f"{int((held > 0).sum()):,} of {count:,} labels are listed in some row; nothing is known "
        "of the others."
    )
    if not num_known:
        blind = Verdict(("The file has no truth, so nothing can be measured.", sentence))
        return TopLook(FirstLook(blind, [], [], shown, 0, []), labels, {})
    numbers, kept = found.numbers(MIN_COUNT), ("ACE", "MCE", "ECE", "NLL", "Brier")
    ranking = found.ranking.figures()[:, :width]
    first = FirstLook(
        _verdict(sentence, ranking, expected.sum(), hits.sum(), known.sum()),
        [],
        [],
        shown,
        0,
        _facts(ranking),
        found.bins.reliability(),
        ranking=[(k, *ranking[:, k - 1].tolist()) for k in PLACES if k <= ranking.shape[1]],
    )
    return TopLook(first, labels, {name: numbers[f"{name}{top_labels.HELD}"] for name in kept})


def _verdict(sentence: str, ranking: Array, expected: float, real: float, known: float) -> Verdict:
    """Return what the labels held are worth, graded by their expected against their real number."""
    precision, _, recall = ranking
    off = (expected - real) / max(real, 1)
    bias = f"{abs(off):.0%} {'more' if off > 0 else 'fewer'} than there are"
    words = (
        f"The most probable label is right in {precision[0]:.1%} of the rows; the {len(recall)} "
        f"listed labels contain {recall[-1]:.1%} of a row's labels on average.",
        sentence,
        f"Of {known:,.0f} listed labels, the probabilities expect {expected:,.0f} to be right, "
        f"{'as many as there are' if abs(off) < 0.01 else bias} ({real:,.0f}).",
    )
    return Verdict(words, graded(abs(off), 0.1, 0.25))


def _facts(ranking: Array) -> list[Fact]:
    k = max(place for place in PLACES if place <= ranking.shape[1])
    precision, _, recall = ranking
    return [
        Fact(f"{100 * precision[0]:.0f} %", "of the most probable labels are right"),
        Fact(f"{100 * recall[k - 1]:.0f} %", f"of a row's labels are among its {k} most probable"),
        Fact(f"{100 * precision[k - 1]:.0f} %", f"of the {k} listed labels are right"),
    ]
