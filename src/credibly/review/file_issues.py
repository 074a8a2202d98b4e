"""Label issues of predictions of any size: one pass, in memory that does not grow with the rows."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence

import numpy as np

from credibly.calibrate import LogOddsHistogram
from credibly.checks import InputError
from credibly.engines import is_remote, open_engine
from credibly.predictions import Dataset, Predictions
from credibly.review import noise_model
from credibly.review.issues import (
    KINDS,
    PROBABLY_WRONG,
    WITHOUT_TRUTH,
    Kind,
    LabelIssue,
    LabelIssues,
    check_question,
    disagreements,
    estimated_errors,
    log_odds,
    probably_wrong,
)
from credibly.targets import UNKNOWN
from credibly.types import Array

_POOLED_FROM = 4096
"""With more labels errors are estimated for all of them together only."""


def label_issues_of_files(
    path: str | os.PathLike[str],
    *,
    top: int = 1000,
    kinds: Sequence[Kind] = KINDS,
    min_disagreement: float = PROBABLY_WRONG,
    seed: int = 0,
    partial: bool = False,
    engine: str = "duckdb",
    session: object = None,
) -> LabelIssues:
    """Return what ``label_issues`` returns, of files of any size.

    The entries are the same, in the same order. The estimated numbers of errors come from a fine
    histogram of the log-odds and agree to about 1 %; past 4,096 labels there is one for all labels
    together. Of files with the most probable labels of each row, the labels that a row holds are
    looked at: a label that is present but not held is not found.

    Args:
        path: a predictions file or a folder of parts, with truth.
        top: at most so many entries.
        kinds, min_disagreement, seed: as for ``label_issues``.
        partial: whether a folder may lack shards.
        engine: ``"duckdb"``, this machine, or ``"spark"``.
        session: a Spark session to use; one is started otherwise.

    Example:
        >>> import tempfile
        >>> path = f"{tempfile.mkdtemp()}/predictions.parquet"
        >>> Predictions.from_arrays(
        ...     probabilities=[[0.99, 0.2], [0.03, 0.9]], targets=[[0, 0], [1, -1]],
        ...     labels=["cat", "dog"], ids=["a", "b"]).write(path)
        >>> [(each.id, each.label, each.kind) for each in label_issues_of_files(path)]
        [('a', 'cat', 'missing'), ('b', 'cat', 'surplus'), ('b', 'dog', 'unknown')]
    """
    check_question(top, kinds, min_disagreement)
    if is_remote(path):
        raise InputError(f"{path} is an address; give a path that every worker sees.")
    dataset, worker = Dataset(path, partial=partial), open_engine(engine, session)
    if not dataset.has_targets:
        raise InputError(f"{path}: {WITHOUT_TRUTH}")
    worker.check_ids(dataset)
    tally = _IssueTally(len(dataset.labels), top, tuple(kinds), min_disagreement)
    worker.tally(dataset, tally)
    issues = [_issue(entry, dataset.labels) for entry in tally.best()]
    labels = dataset.labels if tally.histogram.num_labels > 1 else []
    return LabelIssues(issues, *_errors(tally.histogram, labels, seed), wrong=tally.wrong)


class _IssueTally:
    """The surest entries so far, and the log-odds of all known ones by label and truth."""

    def __init__(
        self, num_labels: int, top: int, kinds: tuple[Kind, ...], min_disagreement: float
    ) -> None:
        self.top, self.kinds, self.least = top, kinds, min_disagreement
        self.histogram = LogOddsHistogram(1 if num_labels > _POOLED_FROM else num_labels)
        self._entries: dict[str, Array] = {}
        self.wrong = 0

    def update(self, batch: Predictions, first_row: int) -> None:
        p, labels, targets = batch.probabilities, batch.label_indices, batch.targets
        assert targets is not None
        if not batch.held.all():  # entries without a label are neither known nor unknown
            targets = np.where(batch.held, targets, np.float32(np.nan))
        hard = (targets == 0) | (targets == 1)  # soft targets are passed over
        numbers = labels[hard] if self.histogram.num_labels > 1 else np.zeros(hard.sum(), int)
        self.histogram.update_entries(numbers, log_odds(p[hard]), targets[hard])
        self.wrong += int(probably_wrong(p, targets).sum())
        rows, columns, disagreement = disagreements(p, targets, self.kinds, self.least)
        each = disagreement[rows, columns]
        if len(rows) > self.top:  # ties with the last one stay in until all are ordered
            kept = each >= -np.partition(-each, self.top)[self.top]
            rows, columns, each = rows[kept], columns[kept], each[kept]
        self.add_entries(
            {
                "disagreement": each,
                "row": rows + first_row,
                "label": labels[rows, columns].astype(np.int64),
                "given": targets[rows, columns].astype(np.float64),
                "probability": p[rows, columns],
                "id": np.asarray(batch.ids[rows], dtype=str),
            }
        )

    def add_entries(self, entries: Mapping[str, Array]) -> None:
        """Add entries and keep the surest; of equals the first by row and label."""
        if self._entries:
            entries = {
                name: np.concatenate([self._entries[name], each]) for name, each in entries.items()
            }
        order = np.lexsort((entries["label"], entries["row"], -entries["disagreement"]))
        self._entries = {name: each[order[: self.top]] for name, each in entries.items()}

    def state(self) -> dict[str, Array]:
        entries = {f"entry:{name}": each for name, each in self._entries.items()}
        return {**self.histogram.state(), **entries, "wrong": np.array(self.wrong)}

    def add(self, state: Mapping[str, Array]) -> None:
        self.histogram.add(state)
        self.wrong += int(state["wrong"])
        start = "entry:"
        entries = {
            name.removeprefix(start): each for name, each in state.items() if name.startswith(start)
        }
        if entries:
            self.add_entries(entries)

    def best(self) -> list[dict[str, object]]:
        """Return the surest entries, in order."""
        names = list(self._entries)
        columns = [self._entries[name].tolist() for name in names]
        return [dict(zip(names, row, strict=True)) for row in zip(*columns, strict=True)]


def _issue(entry: Mapping[str, object], labels: Sequence[str]) -> LabelIssue:
    given = float(str(entry["given"]))
    kind: Kind = "surplus" if given == 1 else "missing" if given == 0 else "unknown"
    return LabelIssue(
        id=str(entry["id"]),
        label=labels[int(str(entry["label"]))],
        row=int(str(entry["row"])),
        kind=kind,
        given=None if given == UNKNOWN else int(given),
        probability=float(str(entry["probability"])),
        disagreement=float(str(entry["disagreement"])),
    )


def _errors(histogram: LogOddsHistogram, labels: Sequence[str], seed: int) -> tuple:
    """Return the estimates of ``label_issues`` from bins in place of entries."""
    label, odds, targets, counts = histogram.cells()
    present = counts[targets == 1].sum()
    if not len(counts) or not 0 < present < counts.sum():
        return [], None, None
    bins = noise_model.rebinned(odds, targets, counts)
    names = labels or ["all labels"]
    columns = [
        (odds[label == place], targets[label == place], counts[label == place])
        for place in range(len(names))
    ]
    errors, total, model = estimated_errors(names, bins, columns, seed)
    return (errors if labels else []), total, model
