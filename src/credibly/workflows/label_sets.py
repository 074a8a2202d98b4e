"""Fit a decision on held-out rows, write the label sets of a predictions file, and count them."""

from __future__ import annotations

import csv
import json
import math
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from credibly.checks import InputError
from credibly.checksums import KEY, PLACEHOLDER, seal
from credibly.decide import Decision
from credibly.executors import Executor, open_executor
from credibly.files import atomic_path, spreadsheet_cell
from credibly.metrics.accumulators import Accumulator
from credibly.notebook import html_table
from credibly.pipeline import Pipeline
from credibly.predictions import Dataset, Predictions
from credibly.predictions.shard import BATCH_ROWS
from credibly.predictions.table import label_mismatch
from credibly.targets import Targets
from credibly.types import Array
from credibly.workflows import shards
from credibly.workflows.fit_rows import FitRows, RowChoice


@dataclass(frozen=True)
class WrittenSets:
    """Label sets that were written, and how those of the rows not used for fitting fare.

    Attributes:
        out: the file.
        decision: the fitted decision.
        rows: number of rows written.
        held_out_rows: number of rows that were not used for fitting.
        numbers: average size and its standard error; where the truth is known, coverage (the share
            of all present labels that are in their sets), precision and F1 over all entries, and
            recall and precision as means over rows (with a label; with a set that is not empty);
            labels to review per row, for rules that ask for it. All of the held-out rows.
        sizes: number of held-out rows by the size of their set.
        always_selected, never_selected: labels for which no threshold met the guarantee.
        labels: names of the labels, in the order of the decision.
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

    @property
    def thresholds(self) -> dict[str, float]:
        """Thresholds by label, or under "all labels"; empty where a rule has none."""
        found = self.decision.selects_above
        if found is None:
            return {}
        names = self.labels if len(found) == len(self.labels) else ["all labels"]
        return dict(zip(names, found.tolist(), strict=True))

    def write_rule(self, path: str | os.PathLike[str]) -> None:
        """Write the fitted rule with the names of its labels; ``Pipeline.read(path)`` reads it."""
        Pipeline(decision=self.decision, labels=self.labels).write(Path(path))

    def to_dict(self) -> dict[str, Any]:
        """Return the result as a plain document."""
        return {
            "out": self.out,
            "statement": self.decision.statement,
            "promise": self.decision.statement,  # its name until version 0.1
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
        """Return the numbers as a table, for notebooks."""
        caption = f"{self.rows:,} label sets in {self.out}"
        return html_table(
            caption, list(self.numbers), [list(self.numbers.values())], note=self.decision.statement
        )

    def __repr__(self) -> str:
        numbers = ", ".join(f"{name} {value:.4f}" for name, value in self.numbers.items())
        return f"{self.rows:,} label sets in {self.out}: {numbers}\n{self.decision.statement}"


def write_sets(
    path: str | os.PathLike[str],
    decision: Decision | Pipeline,
    out: str | os.PathLike[str],
    *,
    fit_on: str | os.PathLike[str] | None = None,
    fit_rows: FitRows | None = None,
    partial: bool = False,
    executor: str | Executor = "local",
    batch_rows: int = BATCH_ROWS,
    values_in_memory: int = 2**26,
    advance: Callable[[float], None] = lambda rows: None,
) -> WrittenSets:
    """Fit a decision and write the label set of every row of a predictions file.

    Args:
        path: a predictions file, or a folder of parts.
        decision: a rule such as ``cr.decide.AverageSize(5)``. Rules with nothing to fit
            (``TopK``, ``Threshold``, ``Cost``) treat all rows as held out. A pipeline with labels
            and a fitted rule, as ``write_rule`` stores it, is applied without fitting again.
        out: the file to write, .parquet or .csv, with the columns id, labels, probabilities (most
            probable first), held_out and, for rules that ask for it, review. In a .csv file, an id
            that a spreadsheet would run as a formula begins with an apostrophe.
        fit_on: another predictions file to fit on. Rows of ``path`` that are in it too do not
            count as held out.
        fit_rows: without ``fit_on``, the rows to fit on; by default half of them, seed 0.
        partial: whether a folder may lack shards; otherwise that is an error.
        executor: as for ``cr.evaluate``; on a cluster ``out`` is a folder, with a file per shard.
        batch_rows: how many rows to read at a time, at most.
        values_in_memory: how many probabilities to fit on, at most: 0.3 GB. With more, fewer rows
            are drawn; a guarantee holds for rows that the rule was not fitted on.
        advance: called with the number of rows written since its last call, on this machine.

    Returns:
        The fitted decision, and the sizes and quality of the sets of held-out rows.

    Raises:
        InputError: if ``out`` has another ending or is an input, if there are too few rows, or if
            the labels of the file to fit on differ.

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
        raise InputError("a fitted rule is applied without `fit_on`.")
    inputs = [each for each in (path, fit_on) if each is not None]
    shards.check_paths(worker, out, inputs, (".parquet", ".csv"))
    scan, other = (
        None if each is None else Dataset(each, partial=partial, batch_rows=batch_rows)
        for each in (path, fit_on)
    )
    assert scan is not None
    worker.check_ids(scan)
    labels = scan.labels if applied is None else _order_of(applied, scan)
    if scan.top:
        _check_top(decision, scan)
    else:
        decision = decision.for_labels(labels)
    fitted = None
    if applied is None:
        limit = max(1, values_in_memory // (64 if scan.top else len(labels)))
        decision, fitted = _fit(decision, scan, other, worker, fit_rows or FitRows(), limit)
    counts, ready = SetStatistics(len(labels)), decision
    tell = advance if worker.one_file else None

    def work(path: Path, index: int, count: int, rows: shards.Batches, mine: SetStatistics) -> None:
        with sets_file(path, ready) as file:
            for first_row, batch in rows:
                held_out = np.ones(len(batch), dtype=bool)
                if fitted is not None:
                    held_out = ~fitted.mask_of(first_row, len(batch))
                _write_batch(file, ready, batch, held_out, mine)
                if tell is not None:
                    tell(len(batch))

    shards.write(scan, worker, out, counts, work, labels)
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
    )


def _order_of(applied: Pipeline, scan: Dataset) -> list[str]:
    """Return the labels in the order of a fitted rule, which must be those of the file."""
    labels = applied.labels or scan.labels
    if set(labels) != set(scan.labels):
        raise InputError(label_mismatch(str(scan.path), scan.labels, labels))
    return labels


def _check_top(decision: Decision, scan: Dataset) -> None:
    """Refuse rules that need more than the most probable labels of each row."""
    if decision.fitted_on == "truth":
        raise InputError(
            f"{scan.path} holds the most probable labels of each row; {decision!r} is fitted on "
            "the truth of all labels. Use --average-size, --top-k, --threshold or --cost."
        )


def _write_batch(
    file: SetsFile,
    decision: Decision,
    batch: Predictions,
    held_out: Array,
    counts: SetStatistics,
) -> None:
    """Write the label sets of some rows, and count those of rows that were held out."""
    sets = decision.predict(batch.probabilities)
    review = decision.to_review(batch.probabilities) if decision.reviews else None
    sets &= batch.held  # rows may hold fewer labels than others
    review = None if review is None else review & batch.held
    file.write(batch, sets, held_out, review)
    if batch.targets is None:
        counts.update(sets[held_out], None)
    elif batch.top is not None:
        present = batch.present_counts()
        known = ~np.isnan(present)
        counts.update(sets[held_out & ~known], None)
        used = held_out & known
        counts.update(sets[used], batch.targets[used], present[used])
    else:
        counts.update(sets[held_out], batch.targets[held_out])
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
            f"{scan.path} must have rows that are not in {other.path}: a guarantee holds for "
            "rows that the decision was not fitted on. Leave out `fit_on`."
        )
    drawn = None
    if other.num_rows > limit:
        drawn = FitRows(rows=limit, seed=fit_rows.seed).choose(other.num_rows, f"{other.path}")
    fitted = _fit_on(decision, other, scan.labels, executor, drawn)
    return fitted, RowChoice(scan.num_rows, mask=np.packbits(seen))


def _fit_on(
    decision: Decision,
    scan: Dataset,
    labels: list[str],
    executor: Executor,
    rows: RowChoice | None,
) -> Decision:
    """Fit on the chosen rows (all if None) of a file, its columns in the order of ``labels``."""
    needs_truth = decision.fitted_on == "truth"
    if needs_truth and not scan.has_targets:
        raise InputError(
            f"{scan.path} must have the truth, columns 'y:<label>', because this rule is "
            "fitted on it; it has none."
        )

    def arrays(batch: Any, first_row: int) -> dict[str, Array]:
        kept = slice(None) if rows is None else rows.mask_of(first_row, len(batch))
        found = {"probabilities": batch.probabilities[kept]}
        return {**found, "targets": batch.targets[kept]} if needs_truth else found

    found = shards.collect(scan, executor, arrays, labels)
    if not needs_truth:
        return decision.fit(found["probabilities"])
    return decision.fit(found["probabilities"], Targets(found["targets"]))


ROWS, HITS, RETURNED, PRESENT, REVIEWED = range(5)


class SetStatistics(Accumulator):
    """Counts of the sets of some rows; truth counts where it is known.

    Args:
        num_labels: number of labels, which no set exceeds.
    """

    def __init__(self, num_labels: int) -> None:
        self.sums = {
            "counts": np.zeros(5),
            "sizes": np.zeros(num_labels + 1),  # rows by the size of their set
            "recall": np.zeros(2),  # sum over rows that have one, and their number
            "precision": np.zeros(2),
        }

    def update(self, sets: Array, targets: Array | None, present: Array | None = None) -> None:
        """Add label sets and what is known of the truth.

        Args:
            sets: (rows, columns).
            targets: of the same shape; None where nothing is known.
            present: number of labels present in each row, where there are more than the columns.
        """
        sizes = np.bincount(sets.sum(axis=1), minlength=1)
        self.sums["sizes"][: len(sizes)] += sizes
        self.sums["counts"][ROWS] += len(sets)
        if targets is not None:
            hits = (sets & (targets == 1)).sum(axis=1)
            returned = (sets & (targets >= 0)).sum(axis=1)
            labels = (targets == 1).sum(axis=1) if present is None else present
            self.sums["counts"][HITS:REVIEWED] += hits.sum(), returned.sum(), labels.sum()
            for name, whole in (("recall", labels), ("precision", returned)):
                some = whole > 0
                self.sums[name] += (hits[some] / whole[some]).sum(), some.sum()

    @property
    def rows(self) -> int:
        """Return the number of rows."""
        return int(self.sums["counts"][ROWS])

    def numbers(self) -> dict[str, float]:
        """Return average size and its error; coverage, precision and F1 where truth is known."""
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
            for name in ("recall", "precision"):
                total, some = self.sums[name].tolist()
                numbers[f"{name}, mean over rows"] = total / some if some else float("nan")
        if reviewed:
            numbers["labels to review per row"] = reviewed / rows
        return numbers

    def histogram(self) -> dict[int, int]:
        """Return the number of rows by size of their set, for sizes that occur."""
        sizes = self.sums["sizes"]
        return {int(size): int(sizes[size]) for size in np.flatnonzero(sizes)}


COLUMNS = ("id", "labels", "probabilities", "held_out")


def is_sets_file(path: Path) -> bool:
    """Return whether a Parquet file holds label sets, by its columns."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        return tuple(pq.read_schema(path).names) == COLUMNS
    except MemoryError:
        raise
    except (pa.ArrowException, OSError, UnicodeDecodeError):
        return False  # told in more words by whoever reads it


def read_sets_file(path: Path) -> int:
    """Read a Parquet file of label sets to its end; return its number of rows."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        with pq.ParquetFile(path) as file:
            return sum(batch.num_rows for batch in file.iter_batches())
    except MemoryError:
        raise
    except (pa.ArrowException, OSError) as error:
        raise InputError(f"{path} must be a complete Parquet file; {error}.") from error


class SetsFile(Protocol):
    """A file of label sets that is being written."""

    def write(self, batch: Predictions, sets: Array, held_out: Array, review: Array | None) -> None:
        """Write the sets of some rows."""
        ...


@contextmanager
def sets_file(path: Path, decision: Decision) -> Iterator[SetsFile]:
    """Open a file of label sets, Parquet or CSV by its ending; it appears only when complete."""
    reviews = decision.reviews
    document = {
        "version": "1.0",
        "kind": "sets",
        "decision": decision.state(),
        "statement": decision.statement,
        "promise": decision.statement,  # its name until version 0.1
    }
    with atomic_path(path) as beside:
        if path.suffix == ".csv":
            with beside.open("w", newline="", encoding="utf-8") as file:
                yield _Csv(file, reviews)
            return
        sink = _Parquet(beside, document, reviews)
        try:
            yield sink
        finally:
            sink.close()
        seal(beside)


class _Parquet:
    def __init__(self, path: Path, document: dict[str, Any], reviews: bool) -> None:
        import pyarrow as pa
        import pyarrow.parquet as pq

        fields: dict[str, Any] = {
            "id": pa.string(),
            "labels": pa.list_(pa.string()),
            "probabilities": pa.list_(pa.float32()),
            "held_out": pa.bool_(),
        }
        if reviews:
            fields["review"] = pa.list_(pa.string())
        self._schema = pa.schema(fields, metadata={"credibly": json.dumps(document)})
        self._file = pq.ParquetWriter(path, self._schema, compression="zstd")

    def write(self, batch: Predictions, sets: Array, held_out: Array, review: Array | None) -> None:
        import pyarrow as pa

        columns, values, offsets = _members(batch, sets)
        names = pa.array(batch.labels).take(pa.array(columns))
        cells = [
            pa.array(batch.ids, pa.string()),
            pa.ListArray.from_arrays(pa.array(offsets, pa.int32()), names),
            pa.ListArray.from_arrays(pa.array(offsets, pa.int32()), pa.array(values)),
            pa.array(held_out),
        ]
        if review is not None:
            columns, _, offsets = _members(batch, review)
            names = pa.array(batch.labels).take(pa.array(columns))
            cells.append(pa.ListArray.from_arrays(pa.array(offsets, pa.int32()), names))
        self._file.write_table(pa.Table.from_arrays(cells, schema=self._schema))

    def close(self) -> None:
        self._file.add_key_value_metadata({KEY: PLACEHOLDER})
        self._file.close()


class _Csv:
    def __init__(self, file: Any, reviews: bool) -> None:
        self._writer = csv.writer(file)
        last = ["review"] if reviews else []
        self._writer.writerow(["id", "labels", "probabilities", "held_out", *last])

    def write(self, batch: Predictions, sets: Array, held_out: Array, review: Array | None) -> None:
        columns, values, offsets = _members(batch, sets)
        looks, _, starts = _members(batch, sets if review is None else review)
        for row, name in enumerate(batch.ids):
            part = slice(offsets[row], offsets[row + 1])
            labels = [batch.labels[column] for column in columns[part]]
            shown = [round(float(value), 6) for value in values[part]]
            cells = [json.dumps(labels, ensure_ascii=False), json.dumps(shown)]
            cells.append(str(bool(held_out[row])).lower())
            if review is not None:
                looked = [batch.labels[column] for column in looks[starts[row] : starts[row + 1]]]
                cells.append(json.dumps(looked, ensure_ascii=False))
            self._writer.writerow([spreadsheet_cell(str(name)), *cells])


def _members(batch: Predictions, sets: Array) -> tuple[Array, Array, Array]:
    """Return label numbers and probabilities of all sets, most probable first, and their starts."""
    rows, columns = np.nonzero(sets)
    values = batch.probabilities[rows, columns]
    order = np.lexsort((columns, -values, rows))
    offsets = np.concatenate([[0], np.cumsum(sets.sum(axis=1))])
    return batch.label_indices[rows, columns][order], values[order], offsets
