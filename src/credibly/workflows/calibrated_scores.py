"""A fitted map from scores to probabilities, and its effect on held-out rows."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from credibly.arrays import to_numpy
from credibly.calibrate.auto import EXCLUSIVE
from credibly.checks import InputError, located
from credibly.metrics.intervals import Interval
from credibly.notebook import draw, number_table
from credibly.pipeline import Pipeline
from credibly.predictions import Layout, Predictions
from credibly.predictions.foreign_files import ImportedTable
from credibly.predictions.importing import Values, declared, read_values, with_truth
from credibly.predictions.validation import as_probabilities, as_scores, label_mismatch
from credibly.targets import as_decoded
from credibly.types import Array, FilePath, JsonObject
from credibly.untrusted.documents import read_json_object
from credibly.workflows.rows import fitted_share

if TYPE_CHECKING:
    from credibly.calibrate import Calibrator
    from credibly.calibrate.auto import CalibratorCandidate
    from credibly.metrics.calibration import ReliabilityDiagram


def scores_per_label(pipeline: Pipeline) -> int:
    return 1 if pipeline.loss is None else pipeline.loss.scores_per_label


def checked_scores(table: ImportedTable, scores_per_label: int) -> Array:
    if table.probabilities is not None:
        given = to_numpy(table.probabilities)
        as_probabilities(given, table.labels, table.where)
        return given
    scores = np.asarray(table.scores, dtype=np.float32)
    width = len(table.labels) * scores_per_label
    if scores.shape[1] != width:
        raise InputError(
            f"{table.where}`scores` must have {scores_per_label} columns per label, {width}; got "
            f"{scores.shape[1]}. Check that `labels` names every label once."
        )
    return as_scores(scores, table.labels * scores_per_label, table.where)


def read_map(path: FilePath) -> Pipeline:
    """Return the fitted map from a model's scores to probabilities. Nothing is unpickled."""
    advice = "Write it with `credibly calibrate … --save FILE`."
    document = read_json_object(Path(path), advice)
    with located(str(path)):
        pipeline = Pipeline.from_state(document)
        if pipeline.labels is None or (pipeline.loss is None and pipeline.calibrator is None):
            raise InputError(f"a map must hold its calibrator and its labels. {advice}")
        return pipeline


def apply_map(
    pipeline: Pipeline,
    source: object,
    *,
    truth: object = None,
    layout: Layout | None = None,
    certain: bool = False,
    partial: bool = False,
) -> Predictions:
    """Apply a fitted map to other rows of the same model.

    Args:
        pipeline: from ``calibrate_scores`` or ``read_map``, with its labels.
        source: as for ``Predictions.from_values``, or a file. Columns with names are matched by
            name; columns without names must be in the order of the map.
        truth, layout, certain: as for ``Predictions.from_values``.
        partial: accept a folder with missing shards.

    Raises:
        InputError: if the labels differ from those that the map was fitted on.
    """
    values: Values = "probabilities" if pipeline.link == "probabilities" else "logits"
    layout = layout or Layout()
    table = read_values(source, values, layout, partial=partial, apart=truth is not None)
    table = declared(table, values, pipeline.loss, certain=certain)
    table = with_truth(_in_order(pipeline, table), truth, layout)
    given = checked_scores(table, scores_per_label(pipeline))
    calibrator = pipeline.calibrator
    found = 0.0 if table.ids is None else fitted_share(pipeline.fitted_ids, table.ids)
    share = {"fitted_share": found} if found else {}
    return Predictions.from_arrays(
        probabilities=pipeline.probabilities(given).astype(np.float32),
        targets=as_decoded(table.targets),
        labels=table.labels,
        ids=table.ids,
        scores=pipeline.ranking_scores(given) if values == "logits" else None,
        metadata={
            "loss": pipeline.loss_name,
            "calibrator": None if calibrator is None else calibrator.state(),
            "calibration": {"applied": True, **share},
        },
        where=table.where,
    )


def _in_order(pipeline: Pipeline, table: ImportedTable) -> ImportedTable:
    """Return the table with its columns in the order of the map."""
    labels, per_label = pipeline.labels or [], scores_per_label(pipeline)
    if table.labels == labels:
        return table
    width = to_numpy(table.probabilities if table.scores is None else table.scores).shape[1]
    if table.labels == [str(place) for place in range(width)]:
        if width != len(labels) * per_label:
            raise InputError(
                f"{table.where}must have the {len(labels)} labels that the map was fitted "
                f"on; it has {width} columns."
            )
        return replace(table, labels=labels)
    if set(table.labels) != set(labels) or per_label > 1:
        message = label_mismatch("the file", table.labels, labels)
        raise InputError(f"{table.where}the map was fitted on other labels: {message}")
    order = [table.labels.index(name) for name in labels]
    held = {name: getattr(table, name) for name in ("probabilities", "scores", "targets")}
    moved = {name: None if each is None else each[:, order] for name, each in held.items()}
    return replace(table, labels=labels, **moved)


@dataclass(frozen=True)
class CalibratedScores:
    """Calibrated predictions, and the metrics of every stage on held-out rows.

    Attributes:
        predictions: all rows, with scores, truth and calibrated probabilities.
        loss: name of the loss that the scores were trained with.
        pipeline: link and fitted calibrator. ``pipeline.probabilities(scores)`` maps further
            scores of the same model, and ``pipeline.write(path)`` stores it.
        fitted: row numbers that the calibrator was fitted on.
        held_out: row numbers on which the stages are measured.
        stages: ``cr.metrics.summary`` by stage: sigmoid of the scores, link of the loss (if it
            has one), and with the calibrator.
        compared: the stage before calibration with the lower log loss.
        change: change of the log loss of that stage by calibration, with a 95 % interval.
        candidates: the candidates of ``auto``, with the out-of-fold log loss of each; empty if
            a calibrator was named.
        link_change: change of the log loss of a plain sigmoid by the link of the loss, with a
            95 % interval; None if the link is the sigmoid.
        ace_change: change of the lowest ACE before calibration, with a 95 % interval.
        plateau: share of the scores to which the link of the loss gives a probability of
        exactly 0.
        diagrams: reliability diagram by stage, over all labels together.
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
    link_change: Interval | None = None
    ace_change: Interval | None = None
    plateau: float = 0.0
    diagrams: dict[str, ReliabilityDiagram] = field(default_factory=dict)

    @property
    def loss_fits(self) -> bool:
        """Return whether the link of the loss fits: a plain sigmoid is not clearly better."""
        return self.link_change is None or not self.link_change.low > 0

    @property
    def advice(self) -> str:
        """Return sentences to read before you use the result; may be empty."""
        return " ".join(self._advice())

    def _advice(self) -> Iterator[str]:
        loss, exclusive = self.pipeline.loss, (*EXCLUSIVE, "none")
        if self.plateau > 0:
            yield (
                f"{100 * self.plateau:.3g} % of the scores lie below the margin of the loss, where "
                "its link returns probability 0."
            )
        if self.link_change is not None and not self.loss_fits:
            change, low, high = self.link_change
            raw = self.pipeline.link == "raw"
            yield (
                f"The link of {self.loss} does not fit these scores: on held-out rows a plain "
                f"sigmoid has an NLL that is lower by {change:.4f} [{low:.4f}, {high:.4f}]. "
                + ("It is not used." if raw else "The method auto decides whether it is used.")
            )
            if self.plateau < 0.01:  # else the plateau explains it
                yield "If another loss trained the model, name that loss."
        if loss is not None and loss.exclusive and self.calibrator.name not in exclusive:
            yield (
                f"{loss.name} assumes exactly one label per row. This calibrator maps each label "
                "separately, so the probabilities of a row do not sum to 1. Use auto, "
                "softmax-temperature or vector to keep the sum."
            )
        if self.ace_change is not None and self.ace_change.low > 0:
            change, low, high = self.ace_change
            yield (
                f"The calibrator was chosen by log loss; ACE rises by {100 * change:.2g} points "
                f"[{100 * low:.2g}, {100 * high:.2g}]."
            )

    @property
    def calibrator(self) -> Calibrator:
        """Return the fitted calibrator."""
        assert self.pipeline.calibrator is not None
        return self.pipeline.calibrator

    def to_dict(self) -> JsonObject:
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
            "values": "probabilities" if self.pipeline.link == "probabilities" else "logits",
            "loss_fits": self.loss_fits,
            "advice": self.advice,
        }

    def _stage_name(self, link: str) -> str:
        if link == "raw":
            return "scores"
        return "link of the loss" if "link of the loss" in self.stages else "as given"

    def candidate_table(self) -> list[list[Any]]:
        """Return the candidates, the lowest log loss first."""
        ranked = sorted(self.candidates, key=lambda one: one.log_loss)
        return [
            [self._stage_name(one.stage), one.calibrator, one.log_loss, one.above_best, one.error]
            for one in ranked
        ]

    def _repr_html_(self) -> str:
        """Return the changes, the diagram and the metrics of every stage, for notebooks."""
        table = number_table(f"{self.loss}, {len(self.held_out):,} rows", self.stages)
        return draw("calibrated", self, table)

    @property
    def statement(self) -> str:
        """Return what calibration changed, and the advice."""
        change, low, high = self.change
        return (
            f"The calibrator {self.calibrator.name}, fitted on {len(self.fitted):,} rows, changes "
            f"NLL by {change:+.4f} [{low:+.4f}, {high:+.4f}] (95 %) against the {self.compared}, "
            f"measured on {len(self.held_out):,} other rows. {self.advice}"
        ).strip()

    def __repr__(self) -> str:
        names = ("mAP@y", "ACE", "NLL", "Brier")
        width = max(map(len, self.stages))
        lines = ["".join([" " * width, *(f"{name:>9}" for name in names)])]
        for stage, numbers in self.stages.items():
            lines.append(f"{stage:{width}}" + "".join(f"{numbers[name]:9.4f}" for name in names))
        return "\n".join([*lines, self.statement])
