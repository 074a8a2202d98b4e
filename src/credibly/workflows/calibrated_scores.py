"""A fitted map from a model's values to probabilities, and what it changes on held-out rows."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from credibly.arrays import like, to_numpy
from credibly.calibrate.auto import EXCLUSIVE
from credibly.checks import InputError, located
from credibly.metrics.intervals import Interval
from credibly.notebook import draw, number_table
from credibly.pipeline import Pipeline
from credibly.predictions import Layout, Predictions
from credibly.predictions.file_formats import ImportedTable
from credibly.predictions.importing import Values, declared, read_values, with_truth
from credibly.predictions.table import label_mismatch
from credibly.targets import as_decoded
from credibly.types import Array, ArrayLike
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
        bad = ~((given >= 0) & (given <= 1))
        if bad.any():
            row, column = np.argwhere(bad)[0]
            raise InputError(
                f"{table.where}probabilities must lie in [0, 1]; got {given[row, column]:.6g} in "
                f"row {row}, column {column}. If these are logits, declare them: "
                '`values="logits"`.'
            )
        return given
    scores = np.asarray(table.scores, dtype=np.float32)
    width = len(table.labels) * scores_per_label
    if scores.shape[1] != width:
        raise InputError(
            f"{table.where}`scores` must have {scores_per_label} columns per label, {width}; "
            f"got {scores.shape[1]}. Does `labels` name every label once?"
        )
    bad = np.isnan(scores).any(axis=1)
    if bad.any():
        raise InputError(
            f"{table.where}scores must not be NaN; {int(bad.sum())} rows have some, the first is "
            f"row {int(bad.argmax())}. Drop those rows or score them again."
        )
    return scores


@dataclass(frozen=True)
class ProbabilityMap:
    """A fitted map from the values of one model to calibrated probabilities, for other rows of it.

    Attributes:
        pipeline: link of the loss (none for probabilities) and fitted calibrator.
        labels: names of the labels, in the order of the columns that it was fitted on.

    Example:
        >>> import credibly as cr
        >>> rng = np.random.default_rng(0)
        >>> scores = rng.normal(size=(400, 2))
        >>> targets = rng.random((400, 2)) < 1 / (1 + np.exp(-2 * scores))
        >>> fitted = cr.calibrate_scores(scores, targets, "bce", labels=["cat", "dog"])
        >>> fitted.probability_map.probabilities(np.zeros((1, 2))).shape
        (1, 2)
    """

    pipeline: Pipeline
    labels: list[str]

    @property
    def values(self) -> Values:
        """What it maps: ``"logits"`` or ``"probabilities"``."""
        return "probabilities" if self.pipeline.link == "probabilities" else "logits"

    def probabilities(self, values: ArrayLike) -> Any:
        """Return calibrated probabilities of a matrix whose columns are in the order of the map."""
        array = to_numpy(values)
        width = len(self.labels) * scores_per_label(self.pipeline)
        if array.ndim != 2 or array.shape[1] != width:
            raise InputError(
                f"`values` must have the {width} columns that the map was fitted on; got shape "
                f"{array.shape}."
            )
        return like(self.pipeline.probabilities(array), values)

    def apply(
        self,
        source: Any,
        *,
        truth: Any = None,
        layout: Layout | None = None,
        certain: bool = False,
        partial: bool = False,
    ) -> Predictions:
        """Return calibrated predictions of a file, an array or a data frame.

        Args:
            source: as for ``Predictions.from_values``, or a file. Columns with names may stand in
                another order; columns without names must be those of the map.
            truth, layout, certain: as for ``Predictions.from_values``.
            partial: whether a folder may lack shards.

        Raises:
            InputError: if the labels are others than those that the map was fitted on.
        """
        layout = layout or Layout()
        apart = truth is not None
        table = read_values(source, self.values, layout, partial=partial, apart=apart)
        table = declared(table, self.values, self.pipeline.loss, certain=certain)
        table = with_truth(self._in_order(table), truth, layout)
        given = checked_scores(table, scores_per_label(self.pipeline))
        calibrator = self.pipeline.calibrator
        found = 0.0 if table.ids is None else fitted_share(self.pipeline.fitted_ids, table.ids)
        share = {"fitted_share": found} if found else {}
        return Predictions.from_arrays(
            probabilities=self.probabilities(given).astype(np.float32),
            targets=as_decoded(table.targets),
            labels=self.labels,
            ids=table.ids,
            scores=self.pipeline.ranking_scores(given) if self.values == "logits" else None,
            metadata={
                "loss": self.pipeline.loss_name,
                "calibrator": None if calibrator is None else calibrator.state(),
                "calibration": {"applied": True, **share},
            },
            where=table.where,
        )

    def _in_order(self, table: ImportedTable) -> ImportedTable:
        """Return the table with its columns in the order of the map."""
        if table.labels == self.labels:
            return table
        per_label = scores_per_label(self.pipeline)
        held = to_numpy(table.scores if self.values == "logits" else table.probabilities)
        unnamed = [str(place) for place in range(held.shape[1])]
        if table.labels == unnamed:
            if held.shape[1] != len(self.labels) * per_label:
                raise InputError(
                    f"{table.where}must have the {len(self.labels)} labels that the map was fitted "
                    f"on; it has {held.shape[1]} columns."
                )
            return replace(table, labels=self.labels)
        if set(table.labels) != set(self.labels) or per_label > 1:
            message = label_mismatch("the file", table.labels, self.labels)
            raise InputError(f"{table.where}the map was fitted on other labels: {message}")
        order = [table.labels.index(name) for name in self.labels]

        def moved(matrix: Array | None) -> Array | None:
            return None if matrix is None else matrix[:, order]

        return replace(
            table,
            labels=self.labels,
            probabilities=moved(table.probabilities),
            scores=moved(table.scores),
            targets=moved(table.targets),
        )

    def write(self, path: str | os.PathLike[str]) -> None:
        """Write the map as JSON, as ``Pipeline.write`` does."""
        self.pipeline.write(Path(path))

    @classmethod
    def read(cls, path: str | os.PathLike[str]) -> ProbabilityMap:
        """Return the map that ``write`` stored; nothing is unpickled."""
        advice = "Write it with `credibly calibrate … --save FILE`."
        document = read_json_object(Path(path), advice)
        with located(str(path)):
            pipeline = Pipeline.from_state(document)
            if pipeline.labels is None or (pipeline.loss is None and pipeline.calibrator is None):
                raise InputError(f"a map must hold its calibrator and its labels. {advice}")
            return cls(pipeline, pipeline.labels)


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
    link_change: Interval | None = None
    ace_change: Interval | None = None
    plateau: float = 0.0
    diagrams: dict[str, ReliabilityDiagram] = field(default_factory=dict)

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
                "its link returns probability 0."
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
                f"{loss.name} assumes exactly one label per row. This calibrator maps each label "
                "on its own, so the probabilities of a row no longer sum to 1. With auto, "
                "softmax-temperature or vector they do."
            )

    def _about_ace(self) -> Iterator[str]:
        if self.ace_change is not None and self.ace_change.low > 0:
            change, low, high = self.ace_change
            yield (
                f"The calibrator was chosen by log loss; ACE rises by {100 * change:.2g} points "
                f"[{100 * low:.2g}, {100 * high:.2g}]."
            )

    @property
    def probability_map(self) -> ProbabilityMap:
        """The fitted map, to write to a file and apply to other rows of the same model."""
        return ProbabilityMap(self.pipeline, self.predictions.labels)

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
            "values": self.probability_map.values,
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
        """Return what changed, its diagram and the metrics of every stage, for notebooks."""
        table = number_table(f"{self.loss}, {len(self.held_out):,} rows", self.stages)
        return draw("calibrated", self, table)

    @property
    def statement(self) -> str:
        """What calibration changes, and what to know before using the result."""
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
