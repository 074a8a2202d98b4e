"""Turn the scores of a model trained elsewhere into calibrated predictions."""

from __future__ import annotations

import os
import uuid
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from credibly import metrics
from credibly.arrays import to_numpy
from credibly.calibrate.auto import EXCLUSIVE
from credibly.checks import InputError
from credibly.executors import Executor, open_executor
from credibly.frames import aligned, column_names, in_order
from credibly.metrics.accumulators import Accumulator
from credibly.metrics.intervals import Interval
from credibly.metrics.summaries import summary_draws
from credibly.notebook import number_table
from credibly.pipeline import Pipeline
from credibly.predictions import Dataset, Layout, Predictions, Writer
from credibly.predictions.completeness import shard_metadata
from credibly.predictions.file_formats import ImportedTable
from credibly.predictions.importing import Values, check_declared, read_values, with_truth
from credibly.predictions.shard import BATCH_ROWS
from credibly.targets import Coding, Targets, as_decoded, decode
from credibly.types import Array, ArrayLike
from credibly.workflows import shards
from credibly.workflows.fit_rows import FitRows, RowChoice
from credibly.workflows.probability_maps import (
    ProbabilityMap,
    as_log_odds,
    checked_scores,
    scores_per_label,
)

if TYPE_CHECKING:
    from credibly.calibrate import Calibrator
    from credibly.calibrate.auto import CalibratorCandidate
    from credibly.losses import Loss
    from credibly.metrics.bootstrap import Draws
    from credibly.metrics.calibration import Reliability
    from credibly.metrics.intervals import Interval

TEST, CALIBRATION = 1, 2


@dataclass(frozen=True)
class CalibratedScores:
    """Calibrated predictions, and the numbers of every stage on held-out rows.

    Attributes:
        predictions: all rows, with scores, truth and calibrated probabilities.
        loss: name of the loss that the scores were trained with.
        pipeline: link and fitted calibrator; ``pipeline.probabilities(scores)`` maps further scores
            of the same model, ``pipeline.write(path)`` stores it.
        fitted: row numbers that the calibrator was fitted on.
        held_out: row numbers that the stages are measured on.
        stages: ``cr.metrics.summary`` by stage: sigmoid of the scores, link of the loss (if it has
            one), and with the calibrator.
        compared: the stage before calibration that has the lower log loss.
        change: by how much calibration changes the log loss of that stage, with a 95 % interval.
        candidates: what ``auto`` chose from, with the log loss of each on rows that it was not
            fitted on; empty if the calibrator was named.
        values: what was given: ``"logits"`` or ``"probabilities"``.
        link_change: by how much the link of the loss changes the log loss of a plain sigmoid, with
            a 95 % interval; None without a link of its own.
        ace_change: by how much calibration changes the ACE of the stage before it that has the
            lowest, with a 95 % interval.
        plateau: share of the scores that the link of the loss gives a probability of exactly 0.
        diagrams: reliability diagram by stage, of all labels together.
    """

    predictions: Predictions
    loss: str
    pipeline: Pipeline
    fitted: Array
    held_out: Array
    stages: dict[str, dict[str, float]]
    compared: str
    change: Interval
    candidates: tuple[CalibratorCandidate, ...] = ()
    values: Values = "logits"
    link_change: Interval | None = None
    ace_change: Interval | None = None
    plateau: float = 0.0
    diagrams: dict[str, Reliability] = field(default_factory=dict)

    @property
    def loss_fits(self) -> bool:
        """Whether the scores agree with the loss named: a plain sigmoid is not clearly better."""
        return self.link_change is None or not self.link_change.low > 0

    @property
    def advice(self) -> str:
        """Sentences about what to know before using the result; empty if there is nothing."""
        return " ".join(
            [*self._about_plateau(), *self._about_link(), *self._about_sums(), *self._about_ace()]
        )

    def _about_plateau(self) -> Iterator[str]:
        if self.plateau > 0:
            yield (
                f"{100 * self.plateau:.3g} % of the scores lie below the margin of the loss, where "
                "its link says probability 0 and nothing else."
            )

    def _about_link(self) -> Iterator[str]:
        if self.loss_fits or self.link_change is None:
            return
        change, low, high = self.link_change
        raw = self.pipeline.link == "raw"
        yield (
            f"The link of {self.loss} does not fit these scores: on held-out rows a plain sigmoid "
            f"has an NLL that is lower by {change:.4f} [{low:.4f}, {high:.4f}]. "
            + ("It is not used." if raw else "The method auto chooses whether to use it.")
        )
        if self.plateau < 0.01:  # else the plateau explains it
            yield "If another loss trained the model, name that one."

    def _about_sums(self) -> Iterator[str]:
        loss, exclusive = self.pipeline.loss, (*EXCLUSIVE, "none")
        if loss is not None and loss.exclusive and self.calibrator.name not in exclusive:
            yield (
                f"{loss.name} takes exactly one label to be present, and a map of each label on "
                "its own does not keep that: the probabilities of a row no longer sum to one. The "
                "methods auto, softmax-temperature and vector do."
            )

    def _about_ace(self) -> Iterator[str]:
        if self.ace_change is not None and self.ace_change.low > 0:
            change, low, high = self.ace_change
            yield (
                f"The map was chosen by log loss; ACE rises by {100 * change:.2g} points "
                f"[{100 * low:.2g}, {100 * high:.2g}]."
            )

    @property
    def probability_map(self) -> ProbabilityMap:
        """The fitted map, to write to a file and apply to other rows of the same model."""
        return ProbabilityMap(self.pipeline, self.predictions.labels, self.values)

    @property
    def calibrator(self) -> Calibrator:
        """The fitted calibrator."""
        assert self.pipeline.calibrator is not None
        return self.pipeline.calibrator

    def to_dict(self) -> dict[str, Any]:
        """Return the result, without the predictions, as a plain document."""
        return {
            "loss": self.loss,
            "calibrator": self.calibrator.state(),
            "fitted_rows": len(self.fitted),
            "judged_rows": len(self.held_out),
            "stages": self.stages,
            "nll_change": {"against": self.compared, **self.change._asdict()},
            "link": self.pipeline.link,
            "candidates": [
                {**asdict(each), "stage": self._stage_name(each.stage)} for each in self.candidates
            ],
            "plateau": self.plateau,
            "values": self.values,
            "loss_fits": self.loss_fits,
            "advice": self.advice,
        }

    def _stage_name(self, link: str) -> str:
        if link == "raw":
            return "scores"
        return "link of the loss" if "link of the loss" in self.stages else "as given"

    def candidate_table(self) -> list[list[Any]]:
        """Return what was compared, the lowest log loss first: stage, calibrator and numbers."""
        ranked = sorted(self.candidates, key=lambda one: one.log_loss)
        return [
            [
                self._stage_name(each.stage),
                each.calibrator,
                each.log_loss,
                each.above_best,
                each.error,
            ]
            for each in ranked
        ]

    def _repr_html_(self) -> str:
        """Return the numbers of every stage as a table, for notebooks."""
        return number_table(
            f"{self.loss}, {len(self.held_out):,} rows", self.stages, note=repr(self)
        )

    def __repr__(self) -> str:
        change, low, high = self.change
        return (
            f"{self.calibrator!r}, fitted on {len(self.fitted):,} rows, changes NLL by "
            f"{change:+.4f} [{low:+.4f}, {high:+.4f}] (95 %) against {self.compared}, "
            f"on {len(self.held_out):,} other rows"
        ) + (f". {self.advice}" if self.advice else "")


def calibrate_scores(
    scores: ArrayLike,
    targets: ArrayLike,
    loss: str | Loss | None,
    *,
    labels: Sequence[str] | None = None,
    ids: Sequence[object] | Array | None = None,
    method: str = "auto",
    fit_rows: FitRows | None = None,
    coding: Coding | None = None,
    values: Values = "logits",
    certain: bool = False,
) -> CalibratedScores:
    """Calibrate scores with known truth: choose link and calibrator on some rows, judge on others.

    By default rows that are left out choose between the link of the loss and the raw scores, each
    alone and followed by temperature, affine (Platt scaling), beta or per-label maps; for losses
    with a softmax, between temperature and vector scaling before the softmax. The simplest that no
    other beats by more than one standard error is kept, so that the log loss is not above that of
    the scores' sigmoid or of the link by more than that.

    Args:
        scores: outputs of the model, shape (rows, labels), before any sigmoid.
        targets: 1 present, 0 absent, −1 unknown, or soft in [0, 1]; or class indices (rows,).
        loss: the loss the model was trained with, or its name, such as ``"asl"``; None for
            probabilities.
        labels: names of the labels; by default the columns of a data frame, or "0", "1", …. Columns
            with names are matched by name.
        ids: one per row, all different; by default the row numbers.
        method: ``"auto"``, or the name of a calibrator to put after the link.
        fit_rows: the rows to fit on; by default half of those with known truth, seed 0.
        coding: what −1 means in ``targets``, as for ``cr.targets.decode``.
        values: what ``scores`` holds: ``"logits"``, or ``"probabilities"``, which are calibrated
            through their log-odds.
        certain: accept logits that all lie in [0, 1].

    Returns:
        The calibrated predictions and what each stage does to the numbers, on the other rows.

    Raises:
        InputError: if shapes disagree, scores hold NaN, or no rows are left to judge by.

    Example:
        >>> rng = np.random.default_rng(0)
        >>> scores = rng.normal(size=(400, 3))
        >>> targets = rng.random((400, 3)) < 1 / (1 + np.exp(-2 * scores))
        >>> result = calibrate_scores(scores, targets, loss="bce")
        >>> result.change.estimate < 0
        True
        >>> result.pipeline.probabilities(np.zeros((1, 3))).shape
        (1, 3)
    """
    found = column_names(scores) or []
    if found and _num_labels(loss, len(found)) != len(found):
        scores, found = to_numpy(scores), []  # two scores per label
    labels = labels or found or column_names(targets)
    scores, targets = in_order(scores, labels, "scores"), in_order(targets, labels, "targets")
    targets = aligned(scores, targets, "scores")
    array = to_numpy(scores)
    if array.ndim != 2:
        raise InputError(f"`scores` must have shape (rows, labels); got {array.shape}.")
    count = _num_labels(loss, array.shape[1]) if labels is None else len(labels)
    names = [str(place) for place in range(count)] if labels is None else list(labels)
    truth = decode(targets, coding=coding, num_labels=count)
    given = None if ids is None else np.asarray(ids)
    logits, probabilities = (array, None) if values == "logits" else (None, array)
    table = ImportedTable("", names, given, probabilities, logits, truth, None)
    table = _declare(table, values, loss, certain=certain)
    return _calibrate_table(table, loss, method, fit_rows or FitRows())


def calibrate_file(
    path: str | os.PathLike[str],
    loss: str | None = None,
    *,
    method: str = "auto",
    fit_rows: FitRows | None = None,
    coding: Coding | None = None,
    partial: bool = False,
    values: Values | None = None,
    truth: Any = None,
    layout: Layout | None = None,
    certain: bool = False,
) -> CalibratedScores:
    """Calibrate a file of scores and truth, of any kind that ``Predictions.from_file`` reads.

    If the file's ``split`` marks calibration rows (2), those are fitted on and the test rows (1)
    are judged. If it marks test rows only, both parts are drawn from those, because the model has
    seen the others.

    Args:
        path: the file.
        loss: name of the loss the model was trained with; None for probabilities.
        method: as for ``calibrate_scores``.
        fit_rows: as for ``calibrate_scores``; unused where ``split`` marks calibration rows.
        coding: what −1 means in targets of only −1 and +1: ``"signed"`` or ``"unknown"``.
        partial: whether a folder may lack shards; otherwise that is an error.
        values: what the file holds, ``"logits"`` or ``"probabilities"``; by default what its arrays
            or columns are named after, and logits where they have plain names.
        truth, layout, certain: as for ``Predictions.from_file``.

    Raises:
        InputError: as for ``calibrate_scores``, and if the file lacks scores or truth.
    """
    layout = layout or Layout()
    apart = truth is not None
    table = read_values(
        path, values or "logits", layout, coding=coding, partial=partial, apart=apart
    )
    table = with_truth(table, truth, layout, coding)
    if values is None:
        values = "probabilities" if table.scores is None and loss is None else "logits"
    if table.targets is None or (values == "logits" and table.scores is None):
        lacking = "targets (columns 'y:<label>')" if table.targets is None else "scores"
        raise InputError(
            f"{table.where}must hold scores and targets; it has no {lacking}. The truth of another "
            'file is given by `truth`, probabilities are calibrated with `values="probabilities"`.'
        )
    table = _declare(table, values, loss, certain=certain)
    result = _calibrate_table(table, loss, method, fit_rows or FitRows())
    metadata = {**result.predictions.metadata, "source": Path(path).name}
    return replace(result, predictions=replace(result.predictions, metadata=metadata))


def calibrate_dataset(
    path: str | os.PathLike[str],
    out: str | os.PathLike[str],
    loss: str | None = None,
    *,
    method: str = "auto",
    fit_rows: FitRows | None = None,
    partial: bool = False,
    executor: str | Executor = "local",
    batch_rows: int = BATCH_ROWS,
    values_in_memory: int = 2**24,
) -> CalibratedScores:
    """Calibrate predictions of any size and write them, as ``calibrate_file`` does in memory.

    The map is fitted and judged on all rows where they hold at most ``values_in_memory`` values,
    else on rows that are drawn. A second pass maps all rows. Of files that hold the most probable
    labels of each row, the values that rows hold are mapped, by one map for all labels.

    Args:
        path: a predictions file, or a folder of shards, with truth.
        out: the .parquet file to write; on a cluster, or without an ending, a folder with a file
            per shard, which every worker sees under the same path.
        loss: name of the loss whose link maps the scores ``s:<label>``; without it the
            probabilities are calibrated through their log-odds.
        method, fit_rows: as for ``calibrate_scores``.
        partial: whether a folder may lack shards.
        executor, batch_rows: as for ``cr.evaluate``.
        values_in_memory: how many values to fit and judge on, at most.

    Returns:
        As ``calibrate_scores``; ``predictions`` are the rows that were fitted on and judged by.

    Raises:
        InputError: if there is no truth, or no scores although a loss is given.

    Example:
        >>> import tempfile
        >>> folder = tempfile.mkdtemp()
        >>> rng = np.random.default_rng(0)
        >>> odds = rng.normal(size=(400, 2))
        >>> Predictions.from_arrays(
        ...     probabilities=1 / (1 + np.exp(-odds)), labels=["cat", "dog"],
        ...     targets=rng.random((400, 2)) < 1 / (1 + np.exp(-2 * odds)),
        ... ).write(f"{folder}/raw.parquet")
        >>> result = calibrate_dataset(f"{folder}/raw.parquet", f"{folder}/calibrated")
        >>> len(result.fitted), list(result.stages)
        (200, ['probabilities as given', '+ temperature'])
    """
    worker = open_executor(executor)
    shards.check_paths(worker, out, [path], (".parquet",))
    dataset = Dataset(path, partial=partial, batch_rows=batch_rows)
    lacking = [] if dataset.has_targets else ["truth, columns 'y:<label>'"]
    lacking += ["scores"] if loss is not None and (dataset.top or not dataset.has_scores) else []
    if lacking:
        raise InputError(
            f"{path} must have {' and '.join(lacking)}, to fit a calibrator; it has none."
        )
    worker.check_ids(dataset)
    fit_rows = fit_rows or FitRows()
    values: Values = "probabilities" if loss is None else "logits"
    width = 64 if dataset.top else len(dataset.labels)
    limit = max(2, values_in_memory // width)
    drawn = None
    if dataset.num_rows > limit:
        drawn = FitRows(rows=limit, seed=fit_rows.seed).choose(dataset.num_rows, f"rows of {path}")
    table = _drawn_table(dataset, worker, values, drawn, fit_rows)
    result = _calibrate_table(table, loss, method, fit_rows)
    _write_calibrated(dataset, worker, Path(out), result.pipeline)
    return result


def _drawn_table(
    dataset: Dataset,
    executor: Executor,
    values: Values,
    drawn: RowChoice | None,
    fit_rows: FitRows,
) -> ImportedTable:
    """Return the rows to fit on and to judge by; all rows if ``drawn`` is None."""
    where = f"{dataset.path}: "

    def kept(first_row: int, count: int) -> Array:
        return np.ones(count, bool) if drawn is None else drawn.mask_of(first_row, count)

    if dataset.top:
        fitted = fit_rows.choose(dataset.num_rows, f"rows of {dataset.path}")

        def entries(batch: Predictions, first_row: int) -> dict[str, Array]:
            hits = batch.targets
            assert hits is not None
            used = batch.held & (hits >= 0) & kept(first_row, len(batch))[:, None]
            split = np.where(fitted.mask_of(first_row, len(batch)), CALIBRATION, TEST)
            return {
                "probabilities": batch.probabilities[used][:, None],
                "targets": hits[used][:, None],
                "split": np.broadcast_to(split[:, None], used.shape)[used],
            }

        found = shards.collect(dataset, executor, entries)
        held = ["held labels"]
        return ImportedTable(where, held, None, scores=None, **found)

    def rows(batch: Predictions, first_row: int) -> dict[str, Array]:
        used = kept(first_row, len(batch))
        assert batch.targets is not None
        given = batch.probabilities if values == "probabilities" else batch.scores
        assert given is not None
        ids = np.asarray(batch.ids[used], dtype=str)
        return {"values": given[used], "targets": batch.targets[used], "ids": ids}

    found = shards.collect(dataset, executor, rows)
    given = found["values"]
    probabilities, scores = (given, None) if values == "probabilities" else (None, given)
    return ImportedTable(
        where, dataset.labels, found["ids"], probabilities, scores, found["targets"], None
    )


def _write_calibrated(dataset: Dataset, executor: Executor, out: Path, pipeline: Pipeline) -> None:
    assert pipeline.calibrator is not None
    about = {
        **dataset.metadata,
        "loss": pipeline.loss_name,
        "calibrator": pipeline.calibrator.state(),
        "origin": uuid.uuid4().hex,
    }
    about.pop("shard", None)
    total, soft = dataset.num_rows, dataset.soft
    labels, logits = dataset.labels, pipeline.loss is not None

    def work(path: Path, index: int, count: int, rows: shards.Batches, _: Any) -> None:
        place = shard_metadata(index, count, total) if count > 1 else {}
        with Writer(path, labels, metadata={**about, **place}, soft=soft) as writer:
            for _, batch in rows:
                writer.append(_calibrated(pipeline, batch, logits=logits))

    nothing = Accumulator()
    nothing.sums = {}
    shards.write(dataset, executor, out, nothing, work)


def _calibrated(pipeline: Pipeline, batch: Predictions, *, logits: bool) -> Predictions:
    if batch.top is not None:
        held, mapped = batch.held, batch.probabilities.copy()
        column = as_log_odds(mapped[held][:, None])
        mapped[held] = pipeline.probabilities(column)[:, 0].astype(np.float32)
        return batch.with_probabilities(mapped)
    given = batch.scores if logits else as_log_odds(batch.probabilities)
    assert given is not None  # checked before any work was done
    mapped = pipeline.probabilities(given).astype(np.float32)
    return Predictions(mapped, batch.labels, batch.ids, batch.targets, batch.scores)


def _declare(
    table: ImportedTable, values: Values, loss: str | Loss | None, *, certain: bool
) -> ImportedTable:
    """Return the table with only what it was declared to hold; refuse a contradiction."""
    check_declared(table, values, certain=certain)
    if values == "probabilities" and loss is not None:
        raise InputError(
            f"{table.where}`loss` belongs to logits, whose link it owns; the values are declared "
            "as probabilities. Leave one of the two out."
        )
    if values == "logits" and loss is None:
        raise InputError(
            f"{table.where}logits need the `loss` that they were trained with, such as "
            '`loss="bce"` for a plain sigmoid.'
        )
    if values == "probabilities":
        return replace(table, scores=None)
    return replace(table, probabilities=None)


def _num_labels(loss: str | Loss | None, num_scores: int) -> int:
    """Return how many labels have ``num_scores`` scores: some losses take two per label."""
    if loss is None:
        return num_scores
    return num_scores // scores_per_label(Pipeline(loss, context={"num_labels": num_scores}))


def _calibrate_table(
    table: ImportedTable, loss: str | Loss | None, method: str, fit_rows: FitRows
) -> CalibratedScores:
    pipeline = Pipeline(loss, context={"num_labels": len(table.labels)}, labels=table.labels)
    values: Values = "logits" if table.probabilities is None else "probabilities"
    scores = checked_scores(table, scores_per_label(pipeline))
    ranking = pipeline.ranking_scores(scores)
    bare = Predictions.from_arrays(  # checks ids, truth and scores before any work is done
        probabilities=Pipeline().probabilities(ranking),
        targets=as_decoded(table.targets),
        labels=table.labels,
        ids=table.ids,
        scores=ranking if values == "logits" else None,
        metadata={"loss": None if loss is None else str(loss), "seed": fit_rows.seed},
        where=table.where,
    )
    assert bare.targets is not None
    fitted, held_out = _split(bare.targets, table, fit_rows)
    link = _fit_link(pipeline, scores[fitted], bare.targets[fitted])
    candidates = pipeline.calibrate(
        scores[fitted], Targets(bare.targets[fitted]), method, seed=fit_rows.seed
    )
    calibrator = pipeline.calibrator
    assert calibrator is not None
    calibrated = replace(
        bare,
        probabilities=pipeline.probabilities(scores).astype(np.float32),
        metadata={
            **bare.metadata,
            "link": None if pipeline.link == "raw" else link,
            "calibrator": calibrator.state(),
            "calibration": {"fitted_rows": len(fitted), "judged_rows": len(held_out)},
        },
    )
    first = "sigmoid of the scores" if values == "logits" else "probabilities as given"
    given = {first: bare.probabilities[held_out]}
    if link is not None:
        linked = Pipeline(pipeline.loss).probabilities(scores[held_out])
        given["link of the loss"] = linked.astype(np.float32)
    raw = link is not None and pipeline.link == "raw"
    last = f"scores + {calibrator.name}" if raw else f"+ {calibrator.name}"
    stages = {**given, last: calibrated.probabilities[held_out]}
    truth = Targets(bare.targets[held_out])
    measured = {
        name: summary_draws(probabilities, truth, ranking[held_out])
        for name, probabilities in stages.items()
    }
    numbers = {name: found.estimates for name, found in measured.items()}
    compared = min(given, key=lambda name: numbers[name]["NLL"])
    before = list(given)[-1]
    own_link = link is not None and not np.allclose(given[before], given[first], atol=1e-6)
    return CalibratedScores(
        predictions=calibrated,
        loss="" if loss is None else str(loss),
        pipeline=pipeline,
        fitted=fitted,
        held_out=held_out,
        stages=numbers,
        compared=compared,
        change=_change(stages[last], stages[compared], truth),
        candidates=candidates,
        values=values,
        link_change=_change(given[before], given[first], truth) if own_link else None,
        ace_change=_ace_change(measured[last], [measured[name] for name in given]),
        plateau=pipeline.plateau_share(scores[held_out]),
        diagrams={
            name: metrics.reliability(probabilities, truth)
            for name, probabilities in stages.items()
        },
    )


def _ace_change(after: Draws, before: list[Draws]) -> Interval:
    """Return the change of the lowest ACE before calibration with a 95 % interval."""
    known = [each for each in before if not np.isnan(each.estimates["ACE"])]
    if not known:
        return Interval(np.nan, np.nan, np.nan)
    lowest = min(known, key=lambda each: each.estimates["ACE"])
    change = after.estimates["ACE"] - lowest.estimates["ACE"]
    low, high = np.nanquantile(after.draws["ACE"] - lowest.draws["ACE"], [0.025, 0.975])
    return Interval(change, float(low), float(high))


def _change(new: Array, old: Array, truth: Targets) -> Interval:
    """Return the change in log loss with a 95 % interval."""
    return metrics.paired_interval(metrics.log_loss, new, old, truth, method="analytic")


def _split(targets: Array, table: ImportedTable, fit_rows: FitRows) -> tuple[Array, Array]:
    """Return rows to fit on and rows to judge by; both have some known truth."""
    known = (targets >= 0).any(axis=1)
    split = table.split
    if split is not None and (split == CALIBRATION).any():
        fitted, held_out = known & (split == CALIBRATION), known & (split == TEST)
        if not (fitted.any() and held_out.any()):
            raise InputError(
                f"{table.where}`split` must mark rows with truth for calibration (2) and for test "
                f"(1); got {int(fitted.sum())} and {int(held_out.sum())}."
            )
        return np.flatnonzero(fitted), np.flatnonzero(held_out)
    if split is not None and (split == TEST).any():
        known &= split == TEST  # the model has seen the rest
    return fit_rows.draw(np.flatnonzero(known), f"{table.where}rows with known truth")


def _fit_link(pipeline: Pipeline, scores: Array, targets: Array) -> dict[str, Any] | None:
    """Return what the file says about the link; fit a normalizer that only training knew."""
    import torch

    loss = pipeline.loss
    if loss is None or not loss.has_link:
        return None
    loss.eval()
    loss.fit_state([(torch.from_numpy(scores), torch.from_numpy(targets))])
    return {"loss": str(loss), **loss.state_summary()}
