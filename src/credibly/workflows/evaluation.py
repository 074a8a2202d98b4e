"""Evaluate predictions files of any size in bounded memory.

One pass over the rows gives calibration, proper scores and mAP@x. The columns are then read a few
labels at a time for mAP@y, which needs all rows of a label together.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

from credibly.checks import InputError
from credibly.executors import Executor, open_executor
from credibly.metrics.intervals import ROWS_RESAMPLED, GroupSums, summary_intervals
from credibly.metrics.ranking import RankPlan, aurocs, precisions
from credibly.metrics.summaries import Summary
from credibly.notebook import draw, html_table
from credibly.predictions import Dataset, Predictions
from credibly.predictions.shard import BATCH_ROWS
from credibly.predictions.validation import label_mismatch
from credibly.retrieve import Joint
from credibly.retrieve.joint.pairs import JointNumbers, JointSums
from credibly.types import Array, FilePath, JsonObject
from credibly.workflows.rows import warn_of_fitted_rows

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
        numbers: every metric by name, as returned by ``cr.metrics.summary``.
        by_label: for every label, one array per column of the table of labels.
        micro: the same columns for the entries of all labels together.
        label_intervals: 95 % limits of precision, recall and F1 of every label, if requested.
        intervals: 95 % intervals by metric, if requested.
        bins, min_count: settings of the calibration errors.
        joint: metrics of whole label sets under a joint model, if one was given.
    """

    path: str
    rows: int
    labels: list[str]
    numbers: dict[str, float]
    by_label: dict[str, Array] = field(default_factory=dict)
    intervals: dict[str, tuple[float, float]] = field(default_factory=dict)
    micro: dict[str, float] = field(default_factory=dict)
    label_intervals: dict[str, tuple[Array, Array]] = field(default_factory=dict)
    bins: int = 15
    min_count: int = 30
    joint: JointNumbers | None = None

    def shown(self, *, papers: bool = False) -> dict[str, float]:
        """Return the metrics that tables print: log loss, calibration error, mAP and F1.

        ``papers`` adds the metrics of the papers and all others. Metrics of rows without a label
        are also included if there are such rows, and those of files with the most probable labels
        always.
        """
        if papers or not self.by_label:
            return self.numbers
        hidden = {"mAP@x", "MCE", "ECE", "Brier", "expected size", "true size", "AUROC"}
        if "OUT MMC" not in self.numbers:
            hidden |= {"F1-top-4", "ECE-top-4"}
        return {name: value for name, value in self.numbers.items() if name not in hidden}

    @property
    def labels_without_truth(self) -> list[str]:
        """Return the labels whose truth is unknown in every row, which all means exclude.

        It is empty for files with only the most probable labels, which have no table of labels.
        """
        if not self.by_label:
            return []
        return [name for name, n in zip(self.labels, self.by_label["known"], strict=True) if not n]

    def to_dict(self, *, by_label: bool = False) -> JsonObject:
        """Return the evaluation as a plain document, with the table of labels on request."""
        document: JsonObject = {
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
            document["micro"] = self.micro
            document["by_label"] = {
                label: {name: column[place] for name, column in self.by_label.items()}
                for place, label in enumerate(self.labels)
            }
            for place, label in enumerate(self.labels if self.label_intervals else ()):
                ends = {
                    name: [low[place], high[place]]
                    for name, (low, high) in self.label_intervals.items()
                }
                document["by_label"][label]["intervals"] = ends
        return document

    def to_pandas(self) -> pandas.DataFrame:
        """Return the table of labels as a data frame, one row per label."""
        import pandas as pd

        return pd.DataFrame(self.by_label, index=pd.Index(self.labels, name="label"))

    def _repr_html_(self) -> str:
        """Return the metrics, for notebooks."""
        columns = [*self.by_label.values()]
        rows = [list(row) for row in zip(self.labels, *columns, strict=True)] if columns else []
        return draw("evaluation", self, html_table("Labels", ["label", *self.by_label], rows))

    def __repr__(self) -> str:
        lines = [f"Evaluation of {self.path}: {self.rows:,} rows, {len(self.labels):,} labels"]
        shown = self.shown()
        width = max(map(len, shown))
        for name, value in shown.items():
            low, high = self.intervals.get(name, (None, None))
            interval = "" if low is None else f"  [{low:.4f}, {high:.4f}]"
            lines.append(f"  {name:{width}s}  {value:.4f}{interval}")
        return "\n".join(lines)


def evaluate(
    path: FilePath,
    *,
    bins: int = 15,
    min_count: int = 30,
    intervals: bool = False,
    seed: int = 0,
    partial: bool = False,
    joint: Joint | None = None,
    executor: str | Executor = "local",
    batch_rows: int = BATCH_ROWS,
    rows_in_memory: int = 2**22,
    resampled_rows: int = ROWS_RESAMPLED,
    advance: Advance = lambda share: None,
) -> Evaluation:
    """Evaluate the probabilities of a predictions file against its truth.

    Args:
        path: a predictions file, a folder of shards, or a .csv or .npz file with probabilities
            and truth (`<label>` or `p:<label>`, `y:<label>`).
        bins: number of equal-width bins of the calibration errors.
        min_count: minimum number of entries in a bin for ACE and MCE.
        intervals: also compute 95 % intervals by resampling rows. With more than
            ``resampled_rows`` rows, groups of rows are resampled in one more pass over the
            file.
        seed: seed of the resampling.
        partial: accept a folder with missing shards; otherwise it is an error.
        joint: a joint model of labels, fitted on other rows (``joint_from``). Adds the joint
            log score, subset accuracy, and expected / real pairs and triples, each also for
            independent labels.
        executor: ``"local"``, this machine; ``"spark"`` or ``Spark(session)``, a cluster whose
            workers can access the files under the same path. The metrics agree to a relative
            1e-9.
        batch_rows: maximum number of rows to read at a time.
        rows_in_memory: up to this number of rows, all values of a label are sorted in memory.
            With more rows, nothing is stored per row, so memory does not grow with the file.
        resampled_rows: up to this number of rows, intervals resample single rows.
        advance: called with the share of the work done since its last call.

    Returns:
        The metrics of the file. ``print`` shows them as a table.

    Raises:
        InputError: if the file contains no known truth.

    Example:
        >>> import tempfile
        >>> path = f"{tempfile.mkdtemp()}/predictions.parquet"
        >>> _ = Predictions.from_arrays(
        ...     probabilities=[[0.9, 0.2], [0.4, 0.7]], targets=[[1, 0], [0, 1]], labels=["a", "b"]
        ... ).write(path)
        >>> round(evaluate(path).numbers["NLL"], 4)
        0.299
    """
    worker = open_executor(executor)
    with _dataset(Path(path), partial, batch_rows) as dataset:
        warn_of_fitted_rows(dataset)
        rows, labels = dataset.num_rows, dataset.labels
        small, ranges = rows <= resampled_rows, rows > rows_in_memory
        worker.check_ids(dataset)
        found = dataset.summary(bins, ranks=ranges or (intervals and not small))
        worker.accumulate(dataset, found, _feed, lambda share: advance(0.5 * share))
        if found.known == 0:
            raise InputError(f"{path} must have some known truth; all of it is unknown.")
        ranking, tables, ends, joint_numbers = (), {}, {}, None
        if isinstance(found, Summary):
            plan = RankPlan.whole(len(labels))
            if ranges and found.ranks is not None:
                plan = found.ranks.plan(rows_in_memory)
            totals = worker.label_totals(dataset, plan, lambda share: advance(0.5 * share))
            ranking = precisions(totals), aurocs(totals)
            tables["by_label"] = found.by_label(*ranking, min_count)
            tables["micro"] = found.micro(min_count)
            tables["label_intervals"] = found.label_intervals() if intervals else {}
        numbers = found.numbers(*ranking, min_count=min_count)
        if joint is not None:
            joint_numbers = _add_joint(numbers, dataset, joint, worker)
        if intervals:
            options: JsonObject = {"min_count": min_count, "seed": seed}
            if small and dataset.every_label:
                columns = dataset.read().measured()
                limits = summary_intervals(*columns, bins=bins, **options)
            else:
                sums = GroupSums(found, found.ranks and found.ranks.influence())
                groups = worker.accumulate(dataset, sums, _feed_groups)
                limits = groups.draws(numbers, **options).intervals()
            ends = {name: limits[name][1:] for name in numbers if name in limits}
        return Evaluation(
            str(path),
            rows,
            labels,
            numbers,
            intervals=ends,
            bins=bins,
            min_count=min_count,
            joint=joint_numbers,
            **tables,
        )


@contextmanager
def _dataset(path: Path, partial: bool, batch_rows: int) -> Iterator[Dataset]:
    """Open a predictions file with truth; CSV and npz files are imported first."""
    with TemporaryDirectory() as folder:
        file = path
        if path.suffix.lower() in (".csv", ".npz") and not path.is_dir():
            file = Path(folder) / "predictions.parquet"
            Predictions.from_values(path, "probabilities").write(file)
        dataset = Dataset(file, partial=partial, batch_rows=batch_rows)
        if not dataset.has_targets:
            raise InputError(
                f"{path} must have the truth (columns 'y:<label>'); it has none. Add it: credibly "
                f"import {path} --as probabilities --truth FILE --out predictions.parquet."
            )
        yield dataset


def evaluate_all(
    paths: Sequence[FilePath],
    *,
    progress: Progress = lambda name: nullcontext(lambda share: None),
    **settings: Any,
) -> list[Evaluation]:
    """Evaluate several predictions files of the same labels.

    Args:
        paths: predictions files, or folders of shards.
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


def _feed(accumulator: Any, batch: Predictions, first_row: int) -> None:
    accumulator.update(*batch.measured())


def _feed_groups(accumulator: Any, batch: Predictions, first_row: int) -> None:
    accumulator.update(*batch.measured(), first_row=first_row)


def _add_joint(
    numbers: dict[str, float], dataset: Dataset, joint: Joint, executor: Executor
) -> JointNumbers:
    """Add the metrics of whole label sets, under the model and under independence."""
    dataset.check_dense("a joint model")
    alone = Joint.independent(dataset.labels)
    found, independent = (
        executor.accumulate(dataset, JointSums(each, dataset.labels), JointSums.feed).numbers()
        for each in (joint, alone)
    )
    for name, value in found.numbers().items():
        numbers |= {name: value, f"{name}, independent": independent.numbers()[name]}
    return found
