"""Turn the scores of a model trained elsewhere into calibrated predictions."""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from credibly import metrics
from credibly.arrays import aligned, in_order, label_names, to_numpy
from credibly.checks import InputError
from credibly.executors import Executor, open_executor
from credibly.metrics.accumulators import Accumulator
from credibly.metrics.intervals import Draws, Interval, quantiles, summary_draws
from credibly.pipeline import Pipeline
from credibly.predictions import Dataset, Layout, Predictions, Writer
from credibly.predictions.foreign_files import ImportedTable
from credibly.predictions.importing import Values, declared, read_values, with_truth
from credibly.predictions.shard import BATCH_ROWS, shard_metadata
from credibly.targets import Coding, Targets, as_decoded, decode
from credibly.types import Array, ArrayLike, FilePath, JsonObject
from credibly.workflows.calibrated_scores import CalibratedScores, checked_scores, scores_per_label
from credibly.workflows.rows import (
    Batches,
    FitRows,
    RowChoice,
    check_paths,
    collect,
    id_sample,
    write_shards,
)

if TYPE_CHECKING:
    from credibly.losses import Loss

TEST, CALIBRATION = 1, 2
_FIELDS = {"logits": "scores", "probabilities": "probabilities"}


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
    """Select link and calibrator on some rows with known truth, and measure them on the others.

    By default, cross-validation compares the link of the loss and the raw scores, each alone and
    followed by temperature scaling, Platt scaling (affine), beta or per-label maps. For losses with
    a softmax, it compares temperature and vector scaling before the softmax. The simplest candidate
    that no other beats by more than one standard error is kept. The log loss is therefore not
    higher than that of the sigmoid or of the link by more than one standard error.

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
        coding: the meaning of −1 in ``targets``, as for ``cr.targets.decode``.
        values: what ``scores`` holds: ``"logits"``, or ``"probabilities"``, which are calibrated
            through their log-odds.
        certain: accept logits that all lie in [0, 1].

    Returns:
        The calibrated predictions, and the metrics of each stage on the other rows.

    Raises:
        InputError: if shapes differ, scores contain NaN, or no rows are left for the
            evaluation.

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
    found = label_names(scores) or []
    if found and _num_labels(loss, len(found)) != len(found):
        scores, found = to_numpy(scores), []  # two scores per label
    labels = labels or found or label_names(targets)
    scores, targets = in_order(scores, labels, "scores"), in_order(targets, labels, "targets")
    targets = aligned(scores, targets, "scores")
    array = to_numpy(scores)
    if array.ndim != 2:
        raise InputError(f"`scores` must have shape (rows, labels); got {array.shape}.")
    count = _num_labels(loss, array.shape[1]) if labels is None else len(labels)
    names = [str(place) for place in range(count)] if labels is None else list(labels)
    truth = decode(targets, coding=coding, num_labels=count)
    given = None if ids is None else np.asarray(ids)
    table = ImportedTable("", names, given, targets=truth, **{_FIELDS[values]: array})
    table = declared(table, values, loss, certain=certain)
    return _calibrate_table(table, loss, method, fit_rows or FitRows())


def calibrate_file(
    path: FilePath,
    loss: str | None = None,
    *,
    method: str = "auto",
    fit_rows: FitRows | None = None,
    partial: bool = False,
    values: Values | None = None,
    truth: object = None,
    layout: Layout | None = None,
    certain: bool = False,
) -> CalibratedScores:
    """Calibrate a file of scores and truth, of any kind that ``Predictions.from_values`` reads.

    If the file's ``split`` marks calibration rows (2), the calibrator is fitted on them and
    measured on the test rows (1). If it marks only test rows, both parts are drawn from the test
    rows, because the model was trained on the others.

    Args:
        path: the file.
        loss: name of the loss the model was trained with; None for probabilities.
        method: as for ``calibrate_scores``.
        fit_rows: as for ``calibrate_scores``; unused if ``split`` marks calibration rows.
        partial: accept a folder with missing shards; otherwise it is an error.
        values: the content of the file, ``"logits"`` or ``"probabilities"``; by default
            inferred from the names of its arrays or columns, and logits if the names do not
            tell.
        truth, layout, certain: as for ``Predictions.from_values``.

    Raises:
        InputError: as for ``calibrate_scores``, and if the file lacks scores or truth.
    """
    layout = layout or Layout()
    apart = truth is not None
    table = read_values(path, values or "logits", layout, partial=partial, apart=apart)
    table = with_truth(table, truth, layout)
    if values is None:
        values = "probabilities" if table.scores is None and loss is None else "logits"
    if table.targets is None or (values == "logits" and table.scores is None):
        lacking = "targets (columns 'y:<label>')" if table.targets is None else "scores"
        raise InputError(
            f"{table.where}must hold scores and targets; it has no {lacking}. If another file "
            "holds the truth, give `truth=FILE`. If the values are probabilities, give "
            '`values="probabilities"`.'
        )
    table = declared(table, values, loss, certain=certain)
    result = _calibrate_table(table, loss, method, fit_rows or FitRows())
    metadata = {**result.predictions.metadata, "source": Path(path).name}
    return replace(result, predictions=replace(result.predictions, metadata=metadata))


def calibrate_dataset(
    path: FilePath,
    out: FilePath,
    loss: str | None = None,
    *,
    method: str = "auto",
    fit_rows: FitRows | None = None,
    partial: bool = False,
    executor: str | Executor = "local",
    batch_rows: int = BATCH_ROWS,
    values_in_memory: int = 2**24,
) -> CalibratedScores:
    """Calibrate predictions of any size and write them.

    The map is fitted and measured on all rows if they contain at most ``values_in_memory`` values,
    else on a random sample of rows. A second pass maps all rows. If files contain only the most
    probable labels of each row, one map for all labels is applied to these.

    Args:
        path: a predictions file, or a folder of shards, with truth.
        out: the .parquet file to write; on a cluster, or without a file ending, a folder with
            one file per shard, which every worker can access under the same path.
        loss: name of the loss whose link maps the scores ``s:<label>``. Without it, the
            probabilities are calibrated through their log-odds.
        method, fit_rows: as for ``calibrate_scores``.
        partial: accept a folder with missing shards.
        executor, batch_rows: as for ``cr.evaluate``.
        values_in_memory: maximum number of values to fit and measure on.

    Returns:
        As ``calibrate_scores``; ``predictions`` are the rows used for fitting and for
        measuring.

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
    check_paths(worker, out, [path], (".parquet",))
    dataset = Dataset(path, partial=partial, batch_rows=batch_rows)
    scored = loss is None or (dataset.every_label and dataset.has_scores)
    needed = {"truth, columns 'y:<label>'": dataset.has_targets, "scores": scored}
    if lacking := [name for name, there in needed.items() if not there]:
        raise InputError(
            f"{path} must have {' and '.join(lacking)}, to fit a calibrator; it has none."
        )
    worker.check_ids(dataset)
    fit_rows = fit_rows or FitRows()
    values: Values = "probabilities" if loss is None else "logits"
    limit = max(2, values_in_memory // dataset.row_cells)
    drawn = None
    if dataset.num_rows > limit:
        # Rows of most probable labels are also split by their numbers: not by the same draw.
        seed = fit_rows.seed + (not dataset.every_label)
        drawn = FitRows(rows=limit, seed=seed).choose(dataset.num_rows, f"rows of {path}")
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
    """Return the rows to fit on and to measure on; all rows if ``drawn`` is None."""
    name = _FIELDS[values]
    fitted = None
    if not dataset.every_label:  # one map for all labels: each entry is a row
        fitted = fit_rows.choose(dataset.num_rows, f"rows of {dataset.path}")

    def rows(batch: Predictions, first_row: int) -> dict[str, Array]:
        count, targets = len(batch), batch.targets
        assert targets is not None
        used = np.ones(count, bool) if drawn is None else drawn.mask_of(first_row, count)
        if fitted is None:
            ids = np.asarray(batch.ids[used], dtype=str)
            return {name: getattr(batch, name)[used], "targets": targets[used], "ids": ids}
        held = batch.held & (targets >= 0) & used[:, None]
        split = np.where(fitted.mask_of(first_row, count), CALIBRATION, TEST)
        return {
            "probabilities": batch.probabilities[held][:, None],
            "targets": targets[held][:, None],
            "split": np.broadcast_to(split[:, None], held.shape)[held],
        }

    labels = dataset.labels if fitted is None else ["held labels"]
    return ImportedTable(f"{dataset.path}: ", labels, **collect(dataset, executor, rows))


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

    def work(path: Path, index: int, count: int, rows: Batches, _sums: Accumulator) -> None:
        place = shard_metadata(index, count, total) if count > 1 else {}
        with Writer(path, labels, metadata={**about, **place}, soft=soft) as writer:
            for _, batch in rows:
                writer.append(batch.mapped(pipeline.probabilities, scores=logits))

    write_shards(dataset, executor, out, Accumulator(), work)


def _num_labels(loss: str | Loss | None, num_scores: int) -> int:
    """Return the number of labels for ``num_scores`` scores: some losses have two per label."""
    if loss is None:
        return num_scores
    return num_scores // scores_per_label(Pipeline(loss, context={"num_labels": num_scores}))


def _calibrate_table(
    table: ImportedTable, loss: str | Loss | None, method: str, fit_rows: FitRows
) -> CalibratedScores:
    logits = table.probabilities is None
    plain = Pipeline(link="own" if logits else "probabilities")
    context = {"num_labels": len(table.labels)}
    pipeline = Pipeline(loss, context=context, labels=table.labels, link=plain.link)
    scores = checked_scores(table, scores_per_label(pipeline))
    ranking = pipeline.ranking_scores(scores)
    bare = Predictions.from_arrays(  # checks ids, truth and scores before any work is done
        probabilities=plain.probabilities(ranking),
        targets=as_decoded(table.targets),
        labels=table.labels,
        ids=table.ids,
        scores=ranking if logits else None,
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
    pipeline.fitted_ids = id_sample(bare.ids, fitted)
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
    first = "sigmoid of the scores" if logits else "probabilities as given"
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
        change=_change("NLL", measured[last], measured[compared]),
        candidates=candidates,
        link_change=_change("NLL", measured[before], measured[first]) if own_link else None,
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
    return _change("ACE", after, min(known, key=lambda each: each.estimates["ACE"]))


def _change(metric: str, after: Draws, before: Draws) -> Interval:
    """Return the change of a metric with a 95 % interval; both have the same resamples."""
    change = after.estimates[metric] - before.estimates[metric]
    return quantiles(change, after.draws[metric] - before.draws[metric])


def _split(targets: Array, table: ImportedTable, fit_rows: FitRows) -> tuple[Array, Array]:
    """Return rows to fit on and rows to measure on; both contain known truth."""
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
        known &= split == TEST  # the model was trained on the rest
    return fit_rows.draw(np.flatnonzero(known), "rows with known truth")


def _fit_link(pipeline: Pipeline, scores: Array, targets: Array) -> JsonObject | None:
    """Return the description of the link; fit a normalizer that only training determined."""
    import torch

    loss = pipeline.loss
    if loss is None or not loss.has_link:
        return None
    loss.eval()
    loss.fit_state([(torch.from_numpy(scores), torch.from_numpy(targets))])
    return {"loss": str(loss), **loss.state_summary()}
