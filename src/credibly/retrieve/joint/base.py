"""The interface of every joint model of labels."""

from __future__ import annotations

import hashlib
import json
import os
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from credibly import checks, targets
from credibly.arrays import to_numpy
from credibly.checks import InputError
from credibly.files import atomic_path, read_json_object
from credibly.retrieve.query.diagram import Diagram, Keep
from credibly.targets import Coding, TargetsLike
from credibly.types import Array, ArrayLike

SMALLEST = 2.0**-26
"""Probabilities are kept this far from 0 and 1: half the smallest step of float32 below 1."""


class JointModel(ABC):
    """A distribution over label sets of each row, built on the row's label probabilities.

    Subclasses say how to fit it, how to compute the probability of a formula, and the
    log-probability of a row's labels.
    """

    labels: tuple[str, ...] = ()
    """The labels it was fitted on, in the order of their names; empty until then."""

    num_weights: int = 0
    """Numbers per row that ``prepare`` returns; 0 if every query needs all labels of a row."""

    @property
    def digest(self) -> str:
        """A hash of everything fitted."""
        return hashlib.sha256(json.dumps(self.state()).encode()).hexdigest()

    @abstractmethod
    def evaluate(
        self,
        found: Diagram,
        labels: Sequence[str],
        present: Sequence[object],
        keep: Keep,
        clip: Callable[[Any], Any],
    ) -> Any:
        """Return the probability of the formula from the columns (or SQL terms) of ``in_order``.

        ``keep`` is told of values that are used more than once; ``clip`` limits to [0, 1].
        """

    @abstractmethod
    def state(self) -> dict[str, Any]:
        """Return everything fitted, as plain values for JSON."""

    @abstractmethod
    def _log_likelihood(self, chances: Array, truth: Array) -> Array:
        """Return one value per row; columns in the order of ``labels``."""

    def evaluate_weighted(
        self,
        found: Diagram,
        present: Sequence[Any],
        weights: Sequence[Any],
        keep: Keep,
        clip: Callable[[Any], Any],
    ) -> Any:
        """Return the same from the columns of the formula's labels and the weights of the rows."""
        raise NotImplementedError(f"{type(self).__name__} has no weights")

    def prepare(self, names: Mapping[str, int], columns: Array) -> Any:
        """Return what all queries over the same rows share, for ``evaluate_columns``."""
        return None

    def evaluate_columns(
        self, found: Diagram, names: Mapping[str, int], columns: Array, prepared: object = None
    ) -> Array:
        """Return the probability of the formula for every row of label-major ``columns``.

        Args:
            found: the formula.
            names: the row of ``columns`` that holds each label.
            columns: float32 probabilities, (labels, rows).
            prepared: what ``prepare`` returned for these rows, if it was called.
        """
        labels = self.in_order(found.labels)
        present = [columns[names[name]].astype(np.float64) for name in labels]
        return self.evaluate(found, labels, present, _as_is, _clipped)

    def best_columns(
        self, found: Diagram, names: Mapping[str, int], columns: Array, prepared: object, top: int
    ) -> tuple[Array, Array, float]:
        """Return the ``top`` largest values of ``evaluate_columns``, their rows, and the total."""
        from credibly.retrieve import memory_kernels

        values = self.evaluate_columns(found, names, columns, prepared)
        return memory_kernels.best_of(values, top)

    def probability(
        self, query: Any, probabilities: ArrayLike, labels: Sequence[str] | None = None
    ) -> Array:
        """Return the probability that each row satisfies the query.

        Args:
            query: text, or a parsed query.
            probabilities: (rows, labels), columns as ``labels``, or as fitted.
            labels: names of the columns.
        """
        from credibly.retrieve import probability

        return probability(query, probabilities, self.labels if labels is None else labels, self)

    def conditional(
        self, given: Any, probabilities: ArrayLike, labels: Sequence[str] | None = None
    ) -> Array:
        """Return the probability of each label in each row, given that ``given`` holds there.

        Rows in which ``given`` cannot hold get NaN.

        Args:
            given: a query, such as ``"+dog -cat"``.
            probabilities: (rows, labels), columns as ``labels``, or as fitted.
            labels: names of the columns, which are those of the result too.
        """
        from credibly.retrieve import parse
        from credibly.retrieve.query.formula import And, Label, query_of

        names = list(self.labels if labels is None else labels)
        query = parse(given, names) if isinstance(given, str) else given.check(names)
        alone = self.probability(query, probabilities, names)
        result = np.full((len(alone), len(names)), np.nan)
        possible = alone > 0
        for place, name in enumerate(names):
            both = query_of(And((query.expression, Label(name))))
            chance = self.probability(both, probabilities, names)
            np.divide(chance, alone, out=result[:, place], where=possible)
        return np.minimum(result, 1.0)

    def log_likelihood(
        self,
        probabilities: ArrayLike,
        targets: TargetsLike,
        labels: Sequence[str] | None = None,
        coding: Coding | None = None,
    ) -> Array:
        """Return the log-probability of each row's known labels together; 0 if none is known.

        Its mean, the joint log score, is a strictly proper score of the whole label vector.
        """
        self.check_fitted()
        names = list(self.labels if labels is None else labels)
        chances, truth, _ = checked_truth(probabilities, targets, names, coding)
        self.check(names)
        order = [names.index(name) for name in self.labels]
        return self._log_likelihood(chances[:, order], truth[:, order])

    def check(self, labels: Sequence[str]) -> None:
        """Raise unless it is fitted, and on exactly these labels."""
        self.check_fitted()
        if odd := sorted(set(labels) ^ set(self.labels)):
            where = "only in the predictions" if odd[0] in set(labels) else "only in `joint`"
            raise InputError(
                f"`joint` must be fitted on the labels of the predictions; {odd[0]!r} is {where}. "
                "Fit it on held-out predictions of the same model."
            )

    def check_fitted(self) -> None:
        """Raise unless it is fitted."""
        if not self.labels:
            raise InputError("`joint` must be fitted; call `joint.fit(probabilities, targets, …)`.")

    def in_order(self, first: Sequence[str]) -> tuple[str, ...]:
        """Return all labels: those of the query, then the rest by name."""
        return (*first, *(name for name in self.labels if name not in set(first)))

    def write(self, path: str | os.PathLike[str]) -> None:
        """Write the state as JSON."""
        with atomic_path(path) as beside:
            beside.write_text(json.dumps(self.state(), ensure_ascii=False), encoding="utf-8")


def checked_truth(
    probabilities: ArrayLike, truth: TargetsLike, labels: Sequence[str], coding: Coding | None
) -> tuple[Array, Array, list[str]]:
    """Return probabilities strictly inside (0, 1), truth in {1, 0, −1}, and label names."""
    chances, names = checked_probabilities(probabilities, labels)
    known = targets.decode(truth, coding=coding, num_labels=chances.shape[1], soft=False)
    checks.same_shapes(probabilities=chances, targets=known)
    return chances, np.where(known >= 0, known, -1).astype(np.int8), names


def checked_probabilities(
    probabilities: ArrayLike, labels: Sequence[str]
) -> tuple[Array, list[str]]:
    """Return probabilities strictly inside (0, 1), and label names."""
    chances = np.asarray(to_numpy(probabilities), np.float64)
    checks.matrix("probabilities", chances)
    checks.probabilities(chances)
    names = [str(name) for name in labels]
    if len(names) != chances.shape[1] or len(set(names)) != len(names):
        raise InputError(
            f"`labels` must name each of the {chances.shape[1]} columns once; got {len(names)} "
            f"names, {len(set(names))} different."
        )
    return np.clip(chances, SMALLEST, 1 - SMALLEST), names


def fitting_truth(
    probabilities: ArrayLike, truth: TargetsLike, labels: Sequence[str], coding: Coding | None
) -> tuple[Array, Array, tuple[str, ...]]:
    """Return the rows with some known truth, columns in the order of the labels' names."""
    chances, known, names = checked_truth(probabilities, truth, labels, coding)
    rows = (known >= 0).any(axis=1)
    if not rows.any():
        raise InputError(
            "`targets` must hold some known truth to fit on; all are unknown. Give held-out "
            "predictions whose truth is known."
        )
    order = sorted(range(len(names)), key=names.__getitem__)
    return chances[rows][:, order], known[rows][:, order], tuple(names[at] for at in order)


def read_state(path: str | os.PathLike[str]) -> dict[str, Any]:
    """Return the JSON object in a file."""
    return read_json_object(Path(path), "Write it with `credibly joint fit`.")


def _as_is(value: object) -> Any:
    return value


def _clipped(value: Any) -> Any:
    return np.clip(value, 0.0, 1.0)
