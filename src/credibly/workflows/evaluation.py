"""Evaluate predictions files of any size, in memory that does not grow with the file.

One pass over the rows gives calibration, proper scores and mAP@x. The columns are then read a few
labels at a time for mAP@y, which needs all rows of a label together.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, field, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

import numpy as np

from credibly import metrics
from credibly.checks import InputError
from credibly.engines import Engine, is_remote, open_engine
from credibly.notebook import html_table
from credibly.predictions import Dataset, Predictions
from credibly.predictions.shard import BATCH_ROWS
from credibly.predictions.table import label_mismatch
from credibly.retrieve import Joint
from credibly.retrieve.joint.pairs import JointNumbers, JointTally
from credibly.targets import Targets
from credibly.types import Array
from credibly.workflows.tallies import (
    EvaluationTally,
    IntervalTally,
    RankTally,
    Tallies,
    TopIntervalTally,
)

Advance = Callable[[float], None]
Progress = Callable[[str], AbstractContextManager[Advance]]

if TYPE_CHECKING:
    import pandas


@dataclass(frozen=True)
class Evaluation:
    """Accuracy and calibration of one predictions file.

    Attributes:
        path: the file or folder.
        rows: number of rows.
        labels: names of the labels.
        numbers: every metric by name, as ``cr.metrics.summary`` gives them.
        by_label: for every label, one array per column of the table of labels.
        intervals: 95 % intervals by metric, where they were asked for.
        bins, min_count: settings of the calibration errors.
        joint: how whole label sets fare under a joint model, where one was given.
    """

    path: str
    rows: int
    labels: list[str]
    numbers: dict[str, float]
    by_label: dict[str, Array]
    intervals: dict[str, tuple[float, float]] = field(default_factory=dict)
    bins: int = 15
    min_count: int = 30
    joint: JointNumbers | None = None

    @property
    def labels_without_truth(self) -> list[str]:
        """Labels whose truth is unknown in every row; they are left out of all means.

        None of files with the most probable labels, which have no table of labels.
        """
        if not self.by_label:
            return []
        return [name for name, n in zip(self.labels, self.by_label["known"], strict=True) if not n]

    def to_dict(self, *, by_label: bool = False) -> dict[str, Any]:
        """Return the evaluation as a plain document, with the table of labels where asked."""
        document: dict[str, Any] = {
            "path": self.path,
            "rows": self.rows,
            "labels": len(self.labels),
            "bins": self.bins,
            "min_count": self.min_count,
            "numbers": self.numbers,
            "labels_without_truth": self.labels_without_truth,
        }
        if self.intervals:
            document["intervals"] = self.intervals
        if self.joint is not None:
            document["pairs"] = [
                {"labels": [first, second], "expected": expected, "real": real}
                for first, second, expected, real in self.joint.pairs_missed(20)
            ]
        if by_label:
            document["by_label"] = {
                label: {name: column[place] for name, column in self.by_label.items()}
                for place, label in enumerate(self.labels)
            }
        return document

    def to_pandas(self) -> pandas.DataFrame:
        """Return the table of labels as a data frame, one row per label."""
        import pandas as pd

        return pd.DataFrame(self.by_label, index=pd.Index(self.labels, name="label"))

    def _repr_html_(self) -> str:
        """Return the numbers as a table, for notebooks."""
        rows = []
        for name, value in self.numbers.items():
            low, high = self.intervals.get(name, (None, None))
            rows.append([name, value] + ([low, high] if self.intervals else []))
        heads = ["metric", "value", *(["from", "to (95 %)"] if self.intervals else [])]
        caption = f"{self.path}: {self.rows:,} rows, {len(self.labels):,} labels"
        return html_table(caption, heads, rows)

    def __repr__(self) -> str:
        lines = [f"Evaluation of {self.path}: {self.rows:,} rows, {len(self.labels):,} labels"]
        width = max(map(len, self.numbers))
        for name, value in self.numbers.items():
            low, high = self.intervals.get(name, (None, None))
            interval = "" if low is None else f"  [{low:.4f}, {high:.4f}]"
            lines.append(f"  {name:{width}s}  {value:.4f}{interval}")
        return "\n".join(lines)


def evaluate(
    path: str | os.PathLike[str],
    *,
    bins: int = 15,
    min_count: int = 30,
    intervals: bool = False,
    seed: int = 0,
    partial: bool = False,
    joint: Joint | None = None,
    engine: str = "duckdb",
    session: object = None,
    batch_rows: int = BATCH_ROWS,
    rows_in_memory: int = 2**22,
    resampled_rows: int = 2**14,
    advance: Advance = lambda share: None,
) -> Evaluation:
    """Evaluate the probabilities of a predictions file against the truth it holds.

    Args:
        path: a predictions file, a folder of parts, or a .csv or .npz file with probabilities
            and truth (`<label>` or `p:<label>`, `y:<label>`).
        bins: number of equal-width bins of the calibration errors.
        min_count: number of entries a bin must have to count for ACE and MCE.
        intervals: also compute 95 % intervals by resampling rows; past ``resampled_rows``, groups
            of rows (``metrics.GroupSums``), in two more passes over the file.
        seed: seed of the resampling.
        partial: whether a folder may lack shards; otherwise that is an error.
        joint: a joint model of labels, fitted on other rows (``joint_from``). Adds the joint log
            score, subset accuracy, and expected / real pairs and triples, each also for
            independent labels.
        engine: ``"duckdb"``, this machine, or ``"spark"``, a cluster whose workers see the files
            under the same path. The numbers are the same, to 1e-9 of their value; the zero-label
            AUROC counts confidences that agree to 6e-5 as ties.
        session: a Spark session to use; one is started otherwise.
        batch_rows: how many rows to read at a time, at most.
        rows_in_memory: up to so many rows, the values of a label are sorted in memory as a whole.
            Past it nothing is kept per row, so that memory does not grow with the file.
        resampled_rows: up to so many rows, intervals resample each of them.
        advance: called with the share of the work done since its last call.

    Returns:
        The numbers of the file. ``print`` shows them as a table.

    Raises:
        InputError: if the file holds no truth, or none that is known.

    Example:
        >>> import tempfile
        >>> path = f"{tempfile.mkdtemp()}/predictions.parquet"
        >>> _ = Predictions.from_arrays(
        ...     probabilities=[[0.9, 0.2], [0.4, 0.7]], targets=[[1, 0], [0, 1]], labels=["a", "b"]
        ... ).write(path)
        >>> round(evaluate(path).numbers["NLL"], 4)
        0.299
    """
    worker = open_engine(engine, session)
    if is_remote(path):
        raise InputError(
            f"{path} is an address; `evaluate` reads files that every worker sees under one path. "
            "Mount it, or search it: `credibly search --engine spark` reads addresses."
        )
    if engine == "spark" and joint is not None:
        raise InputError("`joint` is measured on this machine; leave out `engine='spark'`.")
    with _dataset(Path(path), partial, batch_rows) as dataset:
        if engine == "spark" and not dataset.top:
            result = _evaluate_spread(
                dataset, worker, bins=bins, min_count=min_count, advance=advance
            )
        else:
            result = _evaluate_dataset(
                dataset, worker, rows_in_memory, bins=bins, min_count=min_count, advance=advance
            )
        if joint is not None:
            result = _with_joint(result, dataset, joint)
        if intervals and dataset.top:
            result = _with_top_intervals(result, dataset, worker, seed)
        elif intervals and engine == "duckdb" and dataset.num_rows <= resampled_rows:
            result = _with_intervals(result, dataset, seed)
        elif intervals:
            result = _with_group_intervals(result, dataset, worker, seed)
    return replace(result, path=str(path))


@contextmanager
def _dataset(path: Path, partial: bool, batch_rows: int) -> Iterator[Dataset]:
    """Open a predictions file; CSV and npz files are imported first."""
    if path.suffix.lower() not in (".csv", ".npz") or path.is_dir():
        yield Predictions.scan(path, partial=partial, batch_rows=batch_rows)
        return
    imported = Predictions.from_file(path, "probabilities")
    if imported.targets is None:
        raise InputError(_without_truth(path))
    with TemporaryDirectory() as folder:
        imported.write(Path(folder) / "predictions.parquet")
        yield Predictions.scan(Path(folder) / "predictions.parquet", batch_rows=batch_rows)


def _without_truth(path: Path) -> str:
    return (
        f"{path} must have the truth to be evaluated, columns 'y:<label>'; it has none. "
        "Add it with `Predictions.join_truth`."
    )


def evaluate_all(
    paths: Sequence[str | os.PathLike[str]],
    *,
    progress: Progress = lambda name: nullcontext(lambda share: None),
    **settings: Any,
) -> list[Evaluation]:
    """Evaluate several predictions files of the same labels.

    Args:
        paths: predictions files, or folders of parts.
        progress: called with the name of each file; returns a context manager that yields
            ``advance`` for ``evaluate``.
        settings: as for ``evaluate``.

    Raises:
        InputError: if labels differ between the files.
    """
    results: list[Evaluation] = []
    for path in paths:
        with progress(str(path)) as advance:
            results.append(evaluate(path, advance=advance, **settings))
        first, last = results[0], results[-1]
        if set(last.labels) != set(first.labels):
            raise InputError(label_mismatch(last.path, last.labels, first.labels))
    return results


def _evaluate_spread(
    dataset: Dataset, engine: Engine, *, bins: int, min_count: int, advance: Advance
) -> Evaluation:
    """Evaluate by sums that workers send: two passes, and a sort by label for mAP@y."""
    if not dataset.has_targets:
        raise InputError(_without_truth(dataset.path))
    engine.check_ids(dataset)
    count = len(dataset.labels)
    evaluation, ranks = EvaluationTally(count, bins, soft=dataset.soft), RankTally(count)
    engine.tally(dataset, Tallies(evaluation=evaluation, ranks=ranks))
    advance(0.5)
    if evaluation.running.known == 0:
        raise InputError(f"{dataset.path} must have some truth to be evaluated; all is unknown.")
    plan = ranks.counts.plan()
    precisions = plan.average_precisions(engine.ranked_totals(dataset, plan))
    advance(0.5)
    return _evaluation(dataset, evaluation.running, evaluation.zero, precisions, min_count)


def _evaluate_dataset(
    dataset: Dataset,
    engine: Engine,
    rows_in_memory: int,
    *,
    bins: int,
    min_count: int,
    advance: Advance,
) -> Evaluation:
    if dataset.top:
        return _evaluate_top(dataset, engine, bins, min_count, advance)
    if not dataset.has_targets:
        raise InputError(_without_truth(dataset.path))
    # Comparing ids takes memory for each row, so that of a large file's writer is trusted.
    dataset.check_ids(trust_writer=dataset.num_rows > rows_in_memory)
    running = metrics.Running(len(dataset.labels), bins)
    kept = dataset.num_rows <= rows_in_memory
    zero = None if dataset.soft else _ZeroLabel() if kept else metrics.ZeroLabelCounts()
    for batch in dataset.batches():
        assert batch.targets is not None
        running.update(batch.probabilities, Targets(batch.targets), batch.scores)
        if zero is not None:
            zero.update(batch.probabilities, batch.targets)
        advance(0.5 * len(batch) / dataset.num_rows)
    if running.known == 0:
        raise InputError(f"{dataset.path} must have some truth to be evaluated; all is unknown.")
    precisions = _label_precisions(dataset, rows_in_memory, advance)
    return _evaluation(dataset, running, zero, precisions, min_count)


def _evaluation(
    dataset: Dataset,
    running: metrics.Running,
    zero: _ZeroLabel | metrics.ZeroLabelCounts | None,
    precisions: Array,
    min_count: int,
) -> Evaluation:
    numbers = running.summary(precisions, min_count)
    by_label = running.by_label(precisions, min_count)
    if zero is not None:
        numbers |= zero.numbers(int((by_label["known"] > 0).sum()))
    return Evaluation(
        str(dataset.path),
        dataset.num_rows,
        dataset.labels,
        numbers,
        by_label,
        bins=running.num_bins,
        min_count=min_count,
    )


def _evaluate_top(
    dataset: Dataset, engine: Engine, bins: int, min_count: int, advance: Advance
) -> Evaluation:
    """Return the numbers of a file with the most probable labels; it has no table of labels."""
    from credibly.workflows.top_labels import top_numbers

    engine.check_ids(dataset)
    numbers = top_numbers(dataset, bins=bins, min_count=min_count, engine=engine, advance=advance)
    return Evaluation(
        str(dataset.path), dataset.num_rows, dataset.labels, numbers, {}, bins=bins,
        min_count=min_count,
    )  # fmt: skip


def _with_joint(result: Evaluation, dataset: Dataset, joint: Joint) -> Evaluation:
    """Add the numbers of whole label sets, under the model and under independence."""
    dataset.check_dense("a joint model")
    alone = Joint.independent(dataset.labels)
    tallies = [JointTally(each, dataset.labels) for each in (joint, alone)]
    for batch in dataset.batches():
        assert batch.targets is not None
        for tally in tallies:
            tally.update(batch.probabilities, batch.targets)
    found, independent = (tally.numbers() for tally in tallies)
    added = {}
    for name, value in found.numbers().items():
        added |= {name: value, f"{name}, independent": independent.numbers()[name]}
    return replace(result, numbers={**result.numbers, **added}, joint=found)


def _label_precisions(dataset: Dataset, rows_in_memory: int, advance: Advance) -> Array:
    if dataset.num_rows > rows_in_memory:
        return _ranged_precisions(dataset, rows_in_memory, advance)
    # Values of a few labels over all rows; with the copies that ranking sorts, about 0.3 GB.
    width = max(1, 4 * rows_in_memory // dataset.num_rows)
    result = np.empty(len(dataset.labels))
    for first in range(0, len(dataset.labels), width):
        names = dataset.labels[first : first + width]
        values, targets = dataset.columns(
            names, "scores" if dataset.has_scores else "probabilities"
        )
        assert targets is not None
        result[first : first + width] = metrics.average_precision(values, Targets(targets))
        advance(0.5 * len(names) / len(dataset.labels))
    return result


def _ranged_precisions(dataset: Dataset, most: int, advance: Advance) -> Array:
    """Return the same with about ``most`` values in memory: each label by ranges of values."""
    what = "scores" if dataset.has_scores else "probabilities"
    result = np.empty(len(dataset.labels))
    for place, name in enumerate(dataset.labels):

        def batches(name: str = name) -> Iterator[tuple[Array, Array]]:
            return dataset.column_batches(name, what)

        result[place] = metrics.ranged_average_precision(batches, most=most)
        advance(0.5 / len(dataset.labels))
    return result


class _ZeroLabel:
    """``metrics.zero_label`` over batches, keeping the largest probability of each row.

    Which labels have any truth is known only at the end, and with it which rows have no label.
    """

    def __init__(self) -> None:
        self._hits = 0.0
        self._rows: list[tuple[Array, Array, Array]] = []

    def update(self, probabilities: Array, targets: Array) -> None:
        part = metrics.zero_label(probabilities, Targets(targets))
        self._hits += part.rows_in * float(part.accuracy) if part.rows_in else 0.0
        known = targets >= 0
        confidence = np.where(known, probabilities, np.float32(0)).max(axis=1)
        self._rows.append((confidence, targets.max(axis=1) > 0, known.sum(axis=1, dtype=np.int32)))

    def numbers(self, labels_with_truth: int) -> dict[str, float]:
        confidence, inside, known = (np.concatenate(each) for each in zip(*self._rows, strict=True))
        kept = inside | (known == labels_with_truth)
        if not inside.any() or inside[kept].all():
            return {}
        # As if each row had the one label "some label is present".
        whole = metrics.zero_label(confidence[kept, None], inside[kept, None])
        return {
            "IN accuracy": self._hits / whole.rows_in,
            "OUT MMC": float(whole.mean_confidence_out),
            "zero-label AUROC": float(whole.auroc),
        }


def _with_group_intervals(
    result: Evaluation, dataset: Dataset, engine: Engine, seed: int
) -> Evaluation:
    """Add a 95 % interval for each number, by resampling groups of rows; nothing kept per row."""
    count = len(dataset.labels)
    evaluation = EvaluationTally(count, result.bins, soft=dataset.soft)
    ranks = RankTally(count)
    engine.tally(dataset, Tallies(evaluation=evaluation, ranks=ranks))
    sums = metrics.GroupSums(evaluation.running, ranks.counts.influence(), evaluation.zero)
    engine.tally(dataset, IntervalTally(sums))
    found = sums.intervals(result.numbers, result.min_count, seed=seed)
    return replace(result, intervals={name: (each.low, each.high) for name, each in found.items()})


def _with_top_intervals(
    result: Evaluation, dataset: Dataset, engine: Engine, seed: int
) -> Evaluation:
    """Add a 95 % interval for each number of the most probable labels, by groups of rows."""
    from credibly.workflows.top_labels import PLACES

    sums = metrics.TopGroupSums(max(PLACES), result.bins)
    engine.tally(dataset, TopIntervalTally(sums))
    found = sums.intervals(result.numbers, result.min_count, seed=seed)
    return replace(result, intervals={name: (each.low, each.high) for name, each in found.items()})


def _with_intervals(result: Evaluation, dataset: Dataset, seed: int) -> Evaluation:
    """Add a 95 % interval for each number, by resampling the rows of a small file."""
    whole = dataset.read()
    assert whole.targets is not None
    intervals = metrics.summary_intervals(
        whole.probabilities,
        Targets(whole.targets),
        whole.scores,
        min_count=result.min_count,
        bins=result.bins,
        seed=seed,
    )
    ends = {name: (each.low, each.high) for name, each in intervals.items()}
    return replace(result, intervals={name: ends[name] for name in result.numbers if name in ends})
