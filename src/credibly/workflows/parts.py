"""Calibrate and write label sets part by part, on this machine or on a cluster.

Workers write one file per piece into a folder that all of them see. A file is complete or not
there, and a task that is repeated writes the same one.
"""

from __future__ import annotations

import os
import uuid
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from credibly import calibrate, metrics
from credibly.calibrate.histogram import LogOddsHistogram
from credibly.checks import InputError, choice, out_can_be_written
from credibly.engines import Engine, is_remote, open_engine
from credibly.pipeline import Pipeline
from credibly.predictions import Dataset, Predictions, Writer
from credibly.predictions.completeness import shard_metadata, shard_name
from credibly.predictions.importing import Values
from credibly.predictions.shard import BATCH_ROWS, Piece, PieceReader
from credibly.targets import Targets
from credibly.types import Array
from credibly.workflows.fit_rows import FitRows, RowChoice
from credibly.workflows.probability_maps import ProbabilityMap, as_log_odds
from credibly.workflows.tallies import joined, part_of

if TYPE_CHECKING:
    from credibly.calibrate import Calibrator

METHODS = ("none", "temperature", "affine", "beta", "per-label")
"""Calibrators that are fitted on a histogram; `isotonic` would see its bins as steps."""

NUMBERS = ("mAP@x", "ACE", "MCE", "ECE", "NLL", "Brier")


@dataclass(frozen=True)
class CalibratedParts:
    """Predictions that were calibrated part by part.

    Attributes:
        out: the folder written.
        rows: number of rows.
        fitted_rows: how many of them the calibrator was fitted on.
        probability_map: link and fitted calibrator, to write to a file and apply to other rows.
        stages: metrics of the rows that were not used for fitting, before and after.
    """

    out: str
    rows: int
    fitted_rows: int
    probability_map: ProbabilityMap
    stages: dict[str, dict[str, float]]

    @property
    def calibrator(self) -> Calibrator:
        """The fitted calibrator."""
        assert self.probability_map.pipeline.calibrator is not None
        return self.probability_map.pipeline.calibrator

    def to_dict(self) -> dict[str, Any]:
        """Return the result as a plain document."""
        return {
            "out": self.out,
            "rows": self.rows,
            "fitted_rows": self.fitted_rows,
            "judged_rows": self.rows - self.fitted_rows,
            "calibrator": self.calibrator.state(),
            "stages": self.stages,
        }


def calibrate_parts(
    path: str | os.PathLike[str],
    out: str | os.PathLike[str],
    loss: str | None = None,
    *,
    method: str = "affine",
    fit_rows: FitRows | None = None,
    partial: bool = False,
    engine: str = "duckdb",
    session: object = None,
    batch_rows: int = BATCH_ROWS,
) -> CalibratedParts:
    """Calibrate predictions of any size; write a folder of as many files as there are pieces.

    One pass fits the calibrator on a fine histogram of the log-odds (``LogOddsHistogram``). A
    second pass writes the files and measures the rows that it was not fitted on.

    Args:
        path: a predictions file, or a folder of parts, with truth.
        out: the folder to write, which every worker sees under the same path.
        loss: name of the loss whose link maps the scores ``s:<label>``; without it the
            probabilities are calibrated through their log-odds.
        method: name of a calibrator: none, temperature, affine, beta or per-label.
        fit_rows: which rows to fit on; by default half of them, seed 0.
        partial: whether a folder may lack shards.
        engine, session, batch_rows: as for ``cr.evaluate``.

    Raises:
        InputError: if there is no truth, no scores although a loss is given, or the loss fits a
            state of its own.

    Example:
        >>> import tempfile
        >>> folder = tempfile.mkdtemp()
        >>> rng = np.random.default_rng(0)
        >>> odds = rng.normal(size=(400, 2))
        >>> Predictions.from_arrays(
        ...     probabilities=1 / (1 + np.exp(-odds)), labels=["cat", "dog"],
        ...     targets=rng.random((400, 2)) < 1 / (1 + np.exp(-2 * odds)),
        ... ).write(f"{folder}/raw.parquet")
        >>> result = calibrate_parts(f"{folder}/raw.parquet", f"{folder}/calibrated")
        >>> result.rows, result.fitted_rows, list(result.stages)
        (400, 200, ['as given', '+ affine'])
    """
    choice("method", method, METHODS)
    dataset, worker = open_parts(path, out, engine, session, partial=partial, batch_rows=batch_rows)
    values: Values = "probabilities" if loss is None else "logits"
    pipeline = Pipeline(loss, context={"num_labels": len(dataset.labels)})
    _check(dataset, pipeline)
    rows = (fit_rows or FitRows()).choose(dataset.num_rows, f"rows of {path}")
    fitting = _FitTally(pipeline, method, rows, len(dataset.labels))
    worker.check_ids(dataset)
    worker.tally(dataset, fitting)
    if not fitting.known:
        raise InputError(f"{path} must have some truth in the rows to fit on; all is unknown.")
    pipeline.calibrator = fitting.histogram.fit(calibrate.from_name(method))
    judge = _Judge(pipeline, rows, len(dataset.labels))
    write_parts(dataset, worker, Path(out), _Calibrated(pipeline, rows, judge, loss), judge)
    return CalibratedParts(
        str(out),
        dataset.num_rows,
        fitting.fitted,
        ProbabilityMap(pipeline, dataset.labels, values),
        judge.numbers(method),
    )


def open_parts(
    path: str | os.PathLike[str],
    out: str | os.PathLike[str],
    engine: str,
    session: object,
    *,
    partial: bool,
    batch_rows: int,
) -> tuple[Dataset, Engine]:
    """Open predictions to write a folder of parts from; refuse what cannot work before any work."""
    for each in (path, out):
        if is_remote(each):
            raise InputError(
                f"{each} is an address; give a path that every worker sees (a mounted file system)."
            )
    folder = Path(out)
    if folder.suffix in (".parquet", ".csv"):
        raise InputError(f"`out` must be a folder, for a file per piece; got {str(out)!r}.")
    out_can_be_written(folder, folder=True)
    if folder.is_dir() and any(folder.iterdir()):
        raise InputError(f"`out` must be a new or empty folder; {folder} holds files.")
    return Dataset(path, partial=partial, batch_rows=batch_rows), open_engine(engine, session)


def _check(dataset: Dataset, pipeline: Pipeline) -> None:
    loss = pipeline.loss
    if dataset.top:
        raise InputError(
            f"{dataset.path} holds the most probable labels of each row; calibrate it without "
            "`--engine spark`: batches of it are read one after the other."
        )
    if not dataset.has_targets or (loss is not None and not dataset.has_scores):
        lacking = "truth, columns 'y:<label>'" if not dataset.has_targets else "scores"
        raise InputError(f"{dataset.path} must have {lacking}, to fit a calibrator; it has none.")
    if loss is not None and (loss.has_state or loss.scores_per_label != 1):
        raise InputError(
            f"the link of {loss} is fitted on all rows at once; calibrate on this machine: "
            "`credibly calibrate FILE` without --engine spark."
        )


def _scores(pipeline: Pipeline, batch: Predictions) -> Array:
    """Return what the pipeline maps: scores, or log-odds of the probabilities."""
    if pipeline.loss is None:
        return as_log_odds(batch.probabilities)
    assert batch.scores is not None
    return batch.scores


class _FitTally:
    """A histogram of the log-odds of the rows to fit on."""

    def __init__(self, pipeline: Pipeline, method: str, rows: RowChoice, labels: int) -> None:
        self.pipeline, self.rows = pipeline, rows
        self.histogram = LogOddsHistogram(labels if method == "per-label" else 1)
        self.fitted = self.known = 0

    def update(self, batch: Predictions, first_row: int) -> None:
        assert batch.targets is not None
        mask = self.rows.mask_of(first_row, len(batch))
        odds = self.pipeline.link_log_odds(_scores(self.pipeline, batch)[mask])
        self.histogram.update(odds, batch.targets[mask])
        self.fitted += int(mask.sum())
        self.known += int((batch.targets[mask] >= 0).sum())

    def state(self) -> dict[str, Array]:
        return {**self.histogram.state(), "rows": np.array([self.fitted, self.known])}

    def add(self, state: Any) -> None:
        self.histogram.add(state)
        self.fitted += int(state["rows"][0])
        self.known += int(state["rows"][1])


class _Judge:
    """Metrics of the rows that were not used for fitting, before and after calibration."""

    def __init__(self, pipeline: Pipeline, rows: RowChoice, labels: int) -> None:
        self.rows = rows
        self.first = "as given" if pipeline.loss is None else "link of the loss"
        self.before, self.after = (metrics.Running(labels) for _ in range(2))

    def update(self, first_row: int, before: Array, after: Predictions) -> None:
        held = ~self.rows.mask_of(first_row, len(after))
        assert after.targets is not None
        if held.any():
            truth = Targets(after.targets[held])
            self.before.update(before[held], truth)
            self.after.update(after.probabilities[held], truth)

    def state(self) -> dict[str, Array]:
        return joined({"before": self.before.state(), "after": self.after.state()})

    def add(self, state: Any) -> None:
        self.before.add(part_of(state, "before"))
        self.after.add(part_of(state, "after"))

    def numbers(self, method: str) -> dict[str, dict[str, float]]:
        stages = {self.first: self.before, f"+ {method}": self.after}
        return {
            stage: {name: each.summary()[name] for name in NUMBERS}
            for stage, each in stages.items()
        }


@dataclass
class _Calibrated:
    """Maps a batch to its calibrated form, and shows both to the judge."""

    pipeline: Pipeline
    rows: RowChoice
    judge: _Judge
    loss: str | None

    def metadata(self) -> dict[str, Any]:
        assert self.pipeline.calibrator is not None
        return {"loss": self.loss, "calibrator": self.pipeline.calibrator.state()}

    def __call__(self, batch: Predictions, first_row: int, tally: _Judge) -> Predictions:
        scores = _scores(self.pipeline, batch)
        before = batch.probabilities
        if self.pipeline.loss is not None and self.pipeline.loss.has_link:
            before = Pipeline(self.pipeline.loss).probabilities(scores).astype(np.float32)
        calibrated = self.pipeline.probabilities(scores).astype(np.float32)
        after = Predictions(calibrated, batch.labels, batch.ids, batch.targets, batch.scores)
        tally.update(first_row, before, after)
        return after


def write_parts(dataset: Dataset, engine: Engine, out: Path, change: Any, tally: Any) -> None:
    """Write each piece of the dataset, changed, as a file of its own; add up what was seen.

    Args:
        dataset: the predictions.
        engine: who does the work.
        out: the folder.
        change: called with (batch, first row, tally of the piece); returns the batch to write.
            Its ``metadata()`` is written into each file.
        tally: the sums, still empty.
    """
    from copy import deepcopy

    out.mkdir(parents=True, exist_ok=True)
    count, rows, origin = len(dataset.pieces()), dataset.num_rows, uuid.uuid4().hex
    about = {**dataset.metadata, **change.metadata(), "origin": origin}
    about.pop("shard", None)
    empty = deepcopy(tally)
    soft = dataset.soft

    def work(piece: Piece, reader: PieceReader) -> dict[str, Array]:
        mine = deepcopy(empty)
        metadata = {**about, **shard_metadata(piece.index, count, rows)}
        path = out / shard_name(piece.index, count)
        with Writer(path, reader.labels, metadata=metadata, soft=soft) as writer:
            for first_row, batch in reader.batches(piece):
                writer.append(change(batch, first_row, mine))
        return mine.state()

    add_all(tally, engine, dataset, work)


def add_all(
    tally: Any, engine: Engine, dataset: Dataset, work: Callable[..., dict[str, Array]]
) -> None:
    """Add what the work on each piece returned."""
    for state in engine.run(dataset, work):
        tally.add(state)
