"""Fit a decision on held-out rows, write the label sets of a predictions file, and count them."""

from __future__ import annotations

import csv
import json
import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from credibly.checks import InputError
from credibly.checksums import KEY, PLACEHOLDER, seal
from credibly.decide.base import Decision
from credibly.executors import Executor, open_executor
from credibly.files import atomic_path, spreadsheet_cell
from credibly.metrics.accumulators import Accumulator
from credibly.notebook import html_table
from credibly.pipeline import Pipeline
from credibly.predictions import Dataset, Predictions
from credibly.predictions.shard import BATCH_ROWS
from credibly.predictions.validation import label_mismatch
from credibly.targets import Targets
from credibly.types import Array, FilePath, JsonObject
from credibly.untrusted.tables import open_parquet, parquet_errors
from credibly.workflows.rows import (
    MOST_COMPARED,
    Batches,
    FitRows,
    RowChoice,
    check_paths,
    collect,
    id_sample,
    warn_of_fitted_rows,
    write_shards,
)


@dataclass(frozen=True)
class WrittenSets:
    """Written label sets, and their metrics on rows that were not used for fitting.

    Attributes:
        out: the file.
        decision: the fitted decision.
        rows: number of rows written.
        held_out_rows: number of rows that were not used for fitting.
        numbers: metrics of the held-out rows: average size and its standard error; labels to review
            per row, for rules with review; and if the truth is known, coverage (the share of all
            present labels that are in their sets), precision and F1 over all entries, and recall
            and precision as means over rows (with a label; with a non-empty set).
        sizes: number of held-out rows by the size of their set.
        always_selected, never_selected: labels for which no threshold met the guarantee.
        labels: names of the labels, in the order of the decision.
        fitted_ids: as in ``Pipeline``.
    """

    out: str
    decision: Decision
    rows: int
    held_out_rows: int
    numbers: dict[str, float]
    sizes: dict[int, int]
    always_selected: list[str] = field(default_factory=list)
    never_selected: list[str] = field(default_factory=list)
    labels: list[str] = field(default_factory=list)
    fitted_ids: list[str] = field(default_factory=list)

    @property
    def thresholds(self) -> dict[str, float]:
        """Return thresholds by label, or under "all labels"; empty for rules without thresholds."""
        found = self.decision.selects_above
        if found is None:
            return {}
        names = self.labels if len(found) == len(self.labels) else ["all labels"]
        return dict(zip(names, found.tolist(), strict=True))

    def write_rule(self, path: FilePath, map: FilePath | None = None) -> None:
        """Write the fitted rule with the names of its labels; ``Pipeline.read(path)`` reads it.

        Args:
            path: the JSON file to write.
            map: a map of scores from ``credibly calibrate --save``, to write with the rule.
        """
        pipeline = Pipeline(labels=self.labels) if map is None else Pipeline.read(Path(map))
        if pipeline.labels != self.labels:
            raise InputError(
                f"{map}: the map must have the labels of the predictions, in their order; got "
                f"{pipeline.labels!r:.80}."
            )
        pipeline.decision = self.decision
        pipeline.fitted_ids = sorted({*pipeline.fitted_ids, *self.fitted_ids})
        pipeline.write(Path(path))

    def to_dict(self) -> JsonObject:
        """Return the result as a plain document."""
        return {
            "out": self.out,
            "statement": self.decision.statement,
            "decision": self.decision.state(),
            "rows": self.rows,
            "held_out_rows": self.held_out_rows,
            "numbers": self.numbers,
            "sizes": self.sizes,
            "thresholds": self.thresholds,
            "always_selected": self.always_selected,
            "never_selected": self.never_selected,
        }

    def _repr_html_(self) -> str:
        """Return the metrics as a table, for notebooks."""
        caption = f"{self.rows:,} label sets in {self.out}"
        return html_table(
            caption, list(self.numbers), [list(self.numbers.values())], note=self.decision.statement
        )

    def __repr__(self) -> str:
        numbers = ", ".join(f"{name} {value:.4f}" for name, value in self.numbers.items())
        return f"{self.rows:,} label sets in {self.out}: {numbers}\n{self.decision.statement}"


def write_sets(
    path: FilePath,
    decision: Decision | Pipeline,
    out: FilePath,
    *,
    fit_on: FilePath | None = None,
    fit_rows: FitRows | None = None,
    partial: bool = False,
    executor: str | Executor = "local",
    batch_rows: int = BATCH_ROWS,
    values_in_memory: int = 2**26,
    advance: Callable[[float], None] = lambda rows: None,
) -> WrittenSets:
    """Fit a decision and write the label set of every row of a predictions file.

    Args:
        path: a predictions file, or a folder of shards.
        decision: a rule such as ``cr.decide.AverageSize(5)``. Rules with nothing to fit
            (``TopK``, ``Threshold``, ``Cost``) treat all rows as held out. A pipeline with
            labels and a fitted rule, as ``write_rule`` stores it, is applied without fitting.
        out: the file to write, .parquet or .csv, with the columns id, labels, probabilities
            (most probable first), held_out and, for rules with review, review. In a .csv file,
            an id that a spreadsheet would run as a formula gets an apostrophe in front.
        fit_on: another predictions file to fit on. Rows of ``path`` that are also in it do not
            count as held out.
        fit_rows: without ``fit_on``, the rows to fit on; by default half of them, seed 0.
        partial: accept a folder with missing shards; otherwise it is an error.
        executor: as for ``cr.evaluate``; on a cluster, ``out`` is a folder with one file per
            shard.
        batch_rows: maximum number of rows to read at a time.
        values_in_memory: maximum number of probabilities to fit on: 0.3 GB. Larger files are
            sampled. A guarantee holds for rows that the rule was not fitted on.
        advance: called with the number of rows written since its last call, on this machine.

    Returns:
        The fitted decision, and the sizes and quality of the sets of held-out rows.

    Raises:
        InputError: if ``out`` has another ending or is an input, if there are too few rows, or
            if the labels of ``fit_on`` differ.

    Example:
        >>> import tempfile
        >>> from credibly.decide import TopK
        >>> folder = tempfile.mkdtemp()
        >>> _ = Predictions.from_arrays(
        ...     probabilities=[[0.9, 0.2], [0.4, 0.7]], labels=["a", "b"]
        ... ).write(f"{folder}/predictions.parquet")
        >>> result = write_sets(f"{folder}/predictions.parquet", TopK(1), f"{folder}/sets.csv")
        >>> result.sizes
        {1: 2}
    """
    out, worker = Path(out), open_executor(executor)
    applied = decision if isinstance(decision, Pipeline) else None
    decision = decision.rule if isinstance(decision, Pipeline) else decision
    if applied is not None and fit_on is not None:
        raise InputError("a stored rule is applied, not fitted; leave out `fit_on`.")
    if applied is not None and (applied.decision is None or applied.labels is None):
        raise InputError(
            "a pipeline to apply must hold a rule and the names of its labels. Write it with "
            "`credibly sets … --save FILE`."
        )
    inputs = [each for each in (path, fit_on) if each is not None]
    check_paths(worker, out, inputs, (".parquet", ".csv"))
    scan, other = (
        None if each is None else Dataset(each, partial=partial, batch_rows=batch_rows)
        for each in (path, fit_on)
    )
    assert scan is not None
    worker.check_ids(scan)
    warn_of_fitted_rows(scan, applied)
    labels = scan.labels if applied is None else _order_of(applied, scan)
    if not scan.every_label:
        _check_top(decision, scan)
    else:
        decision = decision.for_labels(labels)
    fitted = None
    if applied is None:
        limit = max(1, values_in_memory // scan.row_cells)
        decision, fitted = _fit(decision, scan, other, worker, fit_rows or FitRows(), limit)
    counts, ready = SetStatistics(len(labels)), decision
    tell = advance if worker.local else None

    def work(path: Path, index: int, count: int, rows: Batches, mine: SetStatistics) -> None:
        with sets_file(path, ready) as file:
            for first_row, batch in rows:
                held_out = np.ones(len(batch), dtype=bool)
                if fitted is not None:
                    held_out = ~fitted.mask_of(first_row, len(batch))
                _write_batch(file, ready, batch, held_out, mine)
                if tell is not None:
                    tell(len(batch))

    write_shards(scan, worker, out, counts, work, labels)
    return WrittenSets(
        str(out),
        ready,
        scan.num_rows,
        counts.rows,
        counts.numbers(),
        counts.histogram(),
        [labels[index] for index in ready.always_selected],
        [labels[index] for index in ready.never_selected],
        list(labels),
        _fitted_ids(scan, other, fitted),
    )


def _fitted_ids(scan: Dataset, other: Dataset | None, fitted: RowChoice | None) -> list[str]:
    """Return digests of some of the ids that a rule was fitted on."""
    source = other or scan
    if fitted is None or source.num_rows > MOST_COMPARED:
        return []
    mask = np.ones(source.num_rows, bool) if other else fitted.mask_of(0, source.num_rows)
    return id_sample(source.ids(), np.flatnonzero(mask))


def _order_of(applied: Pipeline, scan: Dataset) -> list[str]:
    """Return the labels in the order of a fitted rule. They must be the labels of the file."""
    labels = applied.labels or scan.labels
    if set(labels) != set(scan.labels):
        raise InputError(label_mismatch(str(scan.path), scan.labels, labels))
    return labels


def _check_top(decision: Decision, scan: Dataset) -> None:
    """Raise for rules that need more than the most probable labels of each row."""
    if decision.fitted_on == "truth":
        raise InputError(
            f"{scan.path} holds only the most probable labels of each row; {decision!r} is fitted "
            "on the truth of all labels. Use --average-size, --top-k, --threshold or --cost."
        )


def _write_batch(
    write: Callable[[pa.Table], object],
    decision: Decision,
    batch: Predictions,
    held_out: Array,
    counts: SetStatistics,
) -> None:
    """Write the label sets of some rows, and count the sets of held-out rows."""
    sets = decision.predict(batch.probabilities)
    review = decision.to_review(batch.probabilities) if decision.reviews else None
    sets &= batch.held  # rows may contain fewer labels than others
    review = None if review is None else review & batch.held
    write(sets_table(batch, sets, held_out, review))
    targets = None if batch.targets is None else batch.targets[held_out]
    counts.update(sets[held_out], targets, batch.present_counts()[held_out])
    if review is not None:
        counts.sums["counts"][REVIEWED] += review[held_out].sum()


def _fit(
    decision: Decision,
    scan: Dataset,
    other: Dataset | None,
    executor: Executor,
    fit_rows: FitRows,
    limit: int,
) -> tuple[Decision, RowChoice | None]:
    """Return the fitted decision, and the rows of ``scan`` that it was fitted on."""
    if decision.fitted_on == "nothing":
        return decision.fit(None), None
    if other is None:
        rows = fit_rows.choose(scan.num_rows, f"rows of {scan.path}", limit)
        return _fit_on(decision, scan, scan.labels, executor, rows), rows
    if set(other.labels) != set(scan.labels):
        raise InputError(label_mismatch(str(other.path), other.labels, scan.labels))
    seen = np.isin(scan.hashed_ids(), other.hashed_ids())
    if seen.all():
        raise InputError(
            f"{scan.path} must have rows that are not in {other.path}, because a guarantee holds "
            "only for rows that the rule was not fitted on. Leave out `fit_on`."
        )
    drawn = None
    if other.num_rows > limit:
        drawn = FitRows(rows=limit, seed=fit_rows.seed).choose(other.num_rows, f"{other.path}")
    fitted = _fit_on(decision, other, scan.labels, executor, drawn)
    return fitted, RowChoice(mask=np.packbits(seen))


def _fit_on(
    decision: Decision,
    scan: Dataset,
    labels: list[str],
    executor: Executor,
    rows: RowChoice | None,
) -> Decision:
    """Fit on the chosen rows (all if None) of a file, with columns in the order of ``labels``."""
    needs_truth = decision.fitted_on == "truth"
    if needs_truth and not scan.has_targets:
        raise InputError(
            f"{scan.path} must have the truth, columns 'y:<label>', because this rule is "
            'fitted on it; it has none. Fit on rows with truth: `fit_on="FILE"`.'
        )

    def arrays(batch: Predictions, first_row: int) -> dict[str, Array]:
        kept = slice(None) if rows is None else rows.mask_of(first_row, len(batch))
        found = {"probabilities": batch.probabilities[kept]}
        if needs_truth and batch.targets is not None:
            found["targets"] = batch.targets[kept]
        return found

    found = collect(scan, executor, arrays, labels)
    if not needs_truth:
        return decision.fit(found["probabilities"])
    return decision.fit(found["probabilities"], Targets(found["targets"]))


ROWS, HITS, RETURNED, PRESENT, REVIEWED = range(5)


class SetStatistics(Accumulator):
    """Counts of the sets of some rows; unknown truth does not count.

    Args:
        num_labels: number of labels, the maximum size of a set.
    """

    def __init__(self, num_labels: int) -> None:
        self.sums = {
            "counts": np.zeros(5),
            "sizes": np.zeros(num_labels + 1),  # rows by the size of their set
            "means": np.zeros((2, 2)),  # sum of recall and precision, and rows that have one
        }

    def update(self, sets: Array, targets: Array | None, labels: Array) -> None:
        """Add label sets and the known truth.

        Args:
            sets: (rows, columns).
            targets: of the same shape; None if nothing is known.
            labels: number of labels known to be present in each row, in the columns or not.
        """
        sizes = np.bincount(sets.sum(axis=1), minlength=1)
        self.sums["sizes"][: len(sizes)] += sizes
        self.sums["counts"][ROWS] += len(sets)
        if targets is not None:
            hits = (sets & (targets == 1)).sum(axis=1)
            returned = (sets & (targets >= 0)).sum(axis=1)
            self.sums["counts"][HITS:REVIEWED] += hits.sum(), returned.sum(), labels.sum()
            for total, whole in zip(self.sums["means"], (labels, returned), strict=True):
                some = whole > 0
                total += (hits[some] / whole[some]).sum(), some.sum()

    @property
    def rows(self) -> int:
        """Return the number of rows."""
        return int(self.sums["counts"][ROWS])

    def numbers(self) -> dict[str, float]:
        """Return average size and its error; coverage, precision and F1 if truth is known."""
        if not self.rows:
            return {}
        rows, hits, returned, present, reviewed = self.sums["counts"].tolist()
        sizes, counts = self.sums["sizes"], np.arange(len(self.sums["sizes"]))
        mean = float(sizes @ counts) / rows
        spread = float(sizes @ (counts - mean) ** 2) / rows
        numbers = {"average size": mean, "its standard error": math.sqrt(spread / rows)}
        if present:
            numbers["coverage"] = hits / present
            numbers["precision"] = hits / returned if returned else float("nan")
            numbers["F1"] = 2 * hits / (returned + present)
            means = [
                total / some if some else math.nan for total, some in self.sums["means"].tolist()
            ]
            numbers["recall, mean over rows"], numbers["precision, mean over rows"] = means
        if reviewed:
            numbers["labels to review per row"] = reviewed / rows
        return numbers

    def histogram(self) -> dict[int, int]:
        """Return the number of rows by size of their set, for sizes that occur."""
        sizes = self.sums["sizes"]
        return {int(size): int(sizes[size]) for size in np.flatnonzero(sizes)}


COLUMNS = ("id", "labels", "probabilities", "held_out")


def is_sets_file(path: Path) -> bool:
    """Return whether a Parquet file contains label sets, judged by its columns."""
    try:
        with open_parquet(path) as file:
            return tuple(file.schema_arrow.names)[: len(COLUMNS)] == COLUMNS
    except (InputError, OSError, UnicodeDecodeError):
        return False  # the reader reports the problem in detail


def read_sets_file(path: Path) -> int:
    """Read a Parquet file of label sets to its end; return its number of rows."""
    with open_parquet(path) as file, parquet_errors(path):
        return sum(batch.num_rows for batch in file.iter_batches())


@contextmanager
def sets_file(path: Path, decision: Decision) -> Iterator[Callable[[pa.Table], object]]:
    """Open a file of label sets, Parquet or CSV by its ending. It appears only when complete."""
    about = {"version": "1.0", "kind": "sets", "decision": decision.state()}
    document = json.dumps({**about, "statement": decision.statement})
    schema = _schema(decision.reviews).with_metadata({"credibly": document})
    with atomic_path(path) as beside:
        if path.suffix == ".csv":
            with beside.open("w", newline="", encoding="utf-8") as file:
                writer = csv.writer(file)
                writer.writerow(schema.names)
                yield lambda table: writer.writerows(_cells(row) for row in table.to_pylist())
            return
        with pq.ParquetWriter(beside, schema, compression="zstd") as file:
            yield lambda table: file.write_table(table.cast(schema))
            file.add_key_value_metadata({KEY: PLACEHOLDER})
        seal(beside)


def _schema(reviews: bool) -> pa.Schema:
    texts = pa.list_(pa.string())
    types = (pa.string(), texts, pa.list_(pa.float32()), pa.bool_())
    fields = list(zip(COLUMNS, types, strict=True))
    return pa.schema([*fields, ("review", texts)] if reviews else fields)


def _cells(row: JsonObject) -> list[str]:
    """Return the cells of a row of a CSV file."""
    shown = {**row, "probabilities": [round(value, 6) for value in row["probabilities"]]}
    name = spreadsheet_cell(shown.pop("id"))
    return [name, *(json.dumps(value, ensure_ascii=False) for value in shown.values())]


def sets_table(batch: Predictions, sets: Array, held_out: Array, review: Array | None) -> pa.Table:
    """Return the rows of a file of label sets, the most probable label of each first."""
    columns: list[pa.Array] = [pa.array(batch.ids, pa.string())]
    for chosen in (sets, *(() if review is None else (review,))):
        rows, places = np.nonzero(chosen)
        values = batch.probabilities[rows, places]
        order = np.lexsort((places, -values, rows))
        ends = pa.array(np.concatenate([[0], np.cumsum(chosen.sum(axis=1))]), pa.int32())
        members = pa.array(batch.label_indices[rows, places][order])
        columns.append(pa.ListArray.from_arrays(ends, pa.array(batch.labels).take(members)))
        if chosen is sets:
            columns.append(pa.ListArray.from_arrays(ends, pa.array(values[order], pa.float32())))
            columns.append(pa.array(held_out))
    return pa.Table.from_arrays(columns, schema=_schema(review is not None))
