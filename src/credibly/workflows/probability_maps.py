"""A fitted map from the values of a model to probabilities, kept for other rows of it."""

from __future__ import annotations

import os
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from credibly.arrays import like, to_numpy
from credibly.checks import InputError, choice, located
from credibly.files import read_json_object, write_json
from credibly.pipeline import Pipeline
from credibly.predictions import Layout, Predictions
from credibly.predictions.file_formats import ImportedTable
from credibly.predictions.importing import Values, check_declared, read_values, with_truth
from credibly.predictions.table import label_mismatch
from credibly.targets import Coding, as_decoded
from credibly.types import Array, ArrayLike


def as_log_odds(probabilities: ArrayLike, name: str = "probabilities") -> Array:
    """Return the log-odds of probabilities, float64; ±inf for 1 and 0.

    Example:
        >>> as_log_odds(np.array([[0.5, 1.0]]))
        array([[ 0., inf]])
    """
    from scipy.special import logit

    array = to_numpy(probabilities)
    bad = ~((array >= 0) & (array <= 1))
    if bad.any():
        row, column = np.argwhere(bad)[0]
        raise InputError(
            f"{name} must lie in [0, 1]; got {array[row, column]:.6g} in row {row}, column "
            f'{column}. If these are logits, declare them: `values="logits"`.'
        )
    return logit(array.astype(np.float64))


def scores_per_label(pipeline: Pipeline) -> int:
    return 1 if pipeline.loss is None else pipeline.loss.scores_per_label


def checked_scores(table: ImportedTable, scores_per_label: int) -> Array:
    if table.probabilities is not None:
        return as_log_odds(table.probabilities, f"{table.where}probabilities")
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
        values: what it maps: ``"logits"`` or ``"probabilities"``.

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
    values: Values

    def probabilities(self, values: ArrayLike) -> Any:
        """Return calibrated probabilities of a matrix whose columns are in the order of the map."""
        array = to_numpy(values)
        width = len(self.labels) * scores_per_label(self.pipeline)
        if array.ndim != 2 or array.shape[1] != width:
            raise InputError(
                f"`values` must have the {width} columns that the map was fitted on; got shape "
                f"{array.shape}."
            )
        odds = as_log_odds(array) if self.values == "probabilities" else array
        return like(self.pipeline.probabilities(odds), values)

    def apply(
        self,
        source: Any,
        *,
        truth: Any = None,
        layout: Layout | None = None,
        certain: bool = False,
        coding: Coding | None = None,
        partial: bool = False,
    ) -> Predictions:
        """Return calibrated predictions of a file, an array or a data frame.

        Args:
            source: as for ``Predictions.from_values``, or a file. Columns with names may stand in
                another order; columns without names must be those of the map.
            truth, layout, certain, coding: as for ``Predictions.from_file``.
            partial: whether a folder may lack shards.

        Raises:
            InputError: if the labels are others than those that the map was fitted on.
        """
        layout = layout or Layout()
        apart = truth is not None
        table = read_values(
            source, self.values, layout, coding=coding, partial=partial, apart=apart
        )
        check_declared(table, self.values, certain=certain)
        table = with_truth(self._in_order(table), truth, layout, coding)
        given = to_numpy(table.probabilities)
        if self.values == "logits":
            per_label = scores_per_label(self.pipeline)
            given = checked_scores(replace(table, probabilities=None), per_label)
        calibrator = self.pipeline.calibrator
        return Predictions.from_arrays(
            probabilities=self.probabilities(given).astype(np.float32),
            targets=as_decoded(table.targets),
            labels=self.labels,
            ids=table.ids,
            scores=self.pipeline.ranking_scores(given) if self.values == "logits" else None,
            metadata={
                "loss": self.pipeline.loss_name,
                "calibrator": None if calibrator is None else calibrator.state(),
                "calibration": {"applied": True},
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
        """Write the map as JSON, as ``Pipeline.write`` does, with ``values`` added."""
        state = {**self.pipeline.state(), "labels": self.labels, "values": self.values}
        write_json(path, state)

    @classmethod
    def read(cls, path: str | os.PathLike[str]) -> ProbabilityMap:
        """Return the map that ``write`` stored; nothing is unpickled."""
        advice = "Write it with `credibly calibrate … --save FILE`."
        document = read_json_object(Path(path), advice)
        with located(str(path)):
            pipeline = Pipeline.from_state(document)
            if pipeline.labels is None:
                raise InputError(f"a map must hold the names of its labels. {advice}")
            values: Values = choice("values", document.get("values"), ("logits", "probabilities"))
            return cls(pipeline, pipeline.labels, values)
