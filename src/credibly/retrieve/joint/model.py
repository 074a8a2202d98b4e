r"""A joint model of labels that depend on each other.

The probability of a label set $y$ of a row is

$$P(y \mid x) \propto h(|y|) \sum_{k=1}^K c_k\, E_k(x)^{\tau - 1} \prod_l
  \left(e_{lk} \frac{p_l(x)}{1 - p_l(x)}\right)^{y_l}, \qquad
  E_k = \prod_l (1 + p_l(x) (\lambda e_{lk} - 1))$$

with $h(0) = \rho$, $h(s) = \lambda^s (1 - b\,2^{-s})$, $c_k > 0$ and factors $e_{lk} > 0$.
$E_k(x)$ is how well component $k$ agrees with the row's own probabilities. With $\tau = 1$, labels
that indicate the same component are all counted as separate evidence, which makes marginals too
extreme. With $\tau = 0$, components have the same weights in every row, which makes marginals too
moderate. $\tau$ is fitted, so marginals stay as good as the predicted ones.

One component corrects the number of labels per row (the empty set has its own factor). Several
components also model which labels occur together, and then $b = 0$. Expanding $h$ gives $2$
products for one component and $K$ for several, some with a negative weight, and one term for the
empty set. So every boolean formula that is exact for independent labels is exact here. A query
needs only its own labels and $K + 1$ weights per row (three for $K = 1$), whatever the number of
labels.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from pathlib import Path

import numpy as np

from credibly import checks, targets
from credibly.arrays import to_numpy
from credibly.checks import InputError
from credibly.files import atomic_path
from credibly.retrieve.answer import holds
from credibly.retrieve.index import named_columns, probability
from credibly.retrieve.joint.fitting import NODE, Parameters, fit, row_weights
from credibly.retrieve.query import (
    ALWAYS,
    NEVER,
    And,
    Diagram,
    Label,
    Query,
    as_query,
    evaluate,
    query_of,
)
from credibly.targets import Coding, Targets, TargetsLike
from credibly.types import Array, ArrayLike, FilePath, JsonObject
from credibly.untrusted.documents import read_json_object

VERSION = 2
MAX_FITTED = 10_000
SMALLEST = 2.0**-26
"""Probabilities are kept this far from 0 and 1: half the smallest step of float32 below 1."""
_CHUNK = 65536
_CELLS = 4_000_000  # log-probabilities processed at a time


class Joint:
    """A mixture of products with a factor for the number of labels; fit on held-out predictions.

    Args:
        components: number of products $K$; 1 corrects only the number of labels per row.
        ridge: strength of the penalty that keeps the factors of all components similar.
        seed: seed of the random start of the components.

    Example:
        >>> probabilities = np.full((400, 2), 0.5)   # a cat or a dog, never both
        >>> targets = np.tile([[1, 0], [0, 1]], (200, 1))
        >>> joint = Joint(components=1).fit(probabilities, targets, labels=["cat", "dog"])
        >>> joint.probability("cat | dog", [[0.5, 0.5]]).round(2)
        array([1.])
    """

    labels: tuple[str, ...] = ()
    """The labels it was fitted on, in the order of their names; empty until then."""

    def __init__(self, components: int = 3, ridge: float = 1.0, seed: int = 0) -> None:
        self.components = int(checks.at_least("components", components, 1))
        self.ridge = checks.positive("ridge", ridge)
        self.seed = int(seed)

    @classmethod
    def independent(cls, labels: Sequence[str]) -> Joint:
        """Return the model under which labels are independent."""
        joint = cls(components=1)
        zeros = np.zeros((1, len(labels)))
        joint._set(tuple(sorted(labels)), Parameters(zeros, np.ones(1), 0.0, 0.0, 1.0))
        return joint

    def fit(
        self,
        probabilities: ArrayLike,
        targets: TargetsLike,
        labels: Sequence[str],
        coding: Coding | None = None,
    ) -> Joint:
        """Fit on held-out predictions and their truth.

        At most 10,000 rows are used, drawn at random. Labels that never occur together keep a small
        joint probability, because the ridge bounds every factor.

        Raises:
            InputError: without known truth, or with more components than rows.
        """
        decoded = Targets.beside(probabilities, targets, "probabilities", coding=coding)
        chances, truth, names = fitting_truth(probabilities, decoded, labels)
        if self.components > len(chances):
            raise InputError(
                f"`components` must be at most the number of rows with truth, {len(chances)}; got "
                f"{self.components}. Use fewer components or more held-out rows."
            )
        if len(chances) > MAX_FITTED:
            rows = np.random.default_rng(0).permutation(len(chances))[:MAX_FITTED]
            chances, truth = chances[rows], truth[rows]
        self._set(names, fit(chances, truth, self.components, self.ridge, self.seed))
        return self

    def _set(self, labels: tuple[str, ...], parameters: Parameters) -> None:
        self.labels, self.parameters = labels, parameters
        self._factors, self._row_terms = parameters.parts()[0], parameters.terms()
        self.__dict__.pop("digest", None)

    @cached_property
    def digest(self) -> str:
        """A hash of all fitted parameters."""
        return hashlib.sha256(json.dumps(self.state()).encode()).hexdigest()

    def check(self, labels: Sequence[str]) -> None:
        """Raise unless the model is fitted on exactly these labels."""
        self.check_fitted()
        if odd := sorted(set(labels) ^ set(self.labels)):
            where = "only in the predictions" if odd[0] in set(labels) else "only in `joint`"
            raise InputError(
                f"`joint` must be fitted on the labels of the predictions; {odd[0]!r} is {where}. "
                "Fit it on held-out predictions of the same model."
            )

    def check_fitted(self) -> None:
        """Raise unless the model is fitted."""
        if not self.labels:
            raise InputError("`joint` must be fitted; call `joint.fit(probabilities, targets, …)`.")

    # Queries ---------------------------------------------------------------------------------

    def probability(
        self, query: str | Query, probabilities: ArrayLike, labels: Sequence[str] | None = None
    ) -> Array:
        """Return the probability that each row satisfies the query.

        Args:
            query: text, or a parsed query.
            probabilities: (rows, labels), with the columns ``labels`` or those of the fit.
            labels: names of the columns.
        """
        return probability(query, probabilities, self.labels if labels is None else labels, self)

    def conditional(
        self, given: str | Query, probabilities: ArrayLike, labels: Sequence[str] | None = None
    ) -> Array:
        """Return the probability of each label in each row, given that the row satisfies ``given``.

        Rows that cannot satisfy ``given`` get NaN.

        Args:
            given: a query, such as ``"+dog -cat"``.
            probabilities: (rows, labels), with the columns ``labels`` or those of the fit.
            labels: names of the columns, also of the result.
        """
        names = list(self.labels if labels is None else labels)
        query = as_query(given, names)
        alone = self.probability(query, probabilities, names)
        result = np.full((len(alone), len(names)), np.nan)
        possible = alone > 0
        for place, name in enumerate(names):
            both = query_of(And((query.expression, Label(name))))
            chance = self.probability(both, probabilities, names)
            np.divide(chance, alone, out=result[:, place], where=possible)
        return np.minimum(result, 1.0)

    def prepare(self, names: Mapping[str, int], columns: Array) -> Array:
        """Return the weights of the products and of the empty set in each row, (2K + 1, rows)."""
        places = np.array([names[name] for name in self.labels])
        return row_weights(columns, places, self._row_terms)

    def evaluate_columns(
        self,
        found: Diagram,
        names: Mapping[str, int],
        columns: Array,
        prepared: Array | None = None,
    ) -> Array:
        """Return the probability of the formula for every row of label-major ``columns``.

        Args:
            found: the formula.
            names: the row of ``columns`` for each label.
            columns: float32 probabilities, (labels, rows).
            prepared: the result of ``prepare`` for these rows, if available.
        """
        if found.root in (NEVER, ALWAYS):
            return np.full(columns.shape[1], float(found.root))
        if prepared is None:
            prepared = self.prepare(names, columns)
        values, factors = np.zeros(columns.shape[1]), self._asked(found.labels)
        holds_when_empty = holds(found, [0] * len(found.labels))
        for start in range(0, len(values), _CHUNK):
            rows = slice(start, start + _CHUNK)
            present = [columns[names[name], rows].astype(np.float64) for name in found.labels]
            *weights, empty = prepared[:, rows]
            for weight, own in zip(weights, factors, strict=True):
                inside = map(_posterior, present, own)
                values[rows] += weight * evaluate(found, list(inside))
            if holds_when_empty:
                values[rows] += empty
        return np.clip(values, 0.0, 1.0)

    def _asked(self, labels: Sequence[str]) -> Array:
        places = {name: place for place, name in enumerate(self.labels)}
        return np.ascontiguousarray(self._factors[:, [places[name] for name in labels]])

    # Whole label vectors -----------------------------------------------------------------------

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
        decoded = Targets.beside(probabilities, targets, "probabilities", coding=coding)
        truth = known_truth(to_numpy(probabilities), decoded)
        found = np.zeros(len(truth))
        for rows, weights, present, absent in self._products(probabilities, labels):
            known = np.where(truth[rows] == 0, absent, 0.0)
            known = np.where(truth[rows] == 1, present, known).sum(axis=2)
            found[rows] = _log_mass(weights, known)
        return found

    def mixture(
        self, probabilities: ArrayLike, labels: Sequence[str] | None = None
    ) -> tuple[Array, Array]:
        """Return the distribution as weights (M + 1, rows) and products (M + 1, rows, labels).

        The weights of a row sum to one; some may be negative. The last product has no label. The
        probability of a query is the weighted sum of its probabilities under the products.
        """
        names, chances = self._given(probabilities, labels)
        columns = np.ascontiguousarray(chances.T)
        weights = self.prepare({name: place for place, name in enumerate(names)}, columns)
        products = _posterior(chances, self._asked(names)[:, None])
        return weights, np.concatenate([products, np.zeros((1, *chances.shape))])

    def marginals(self, probabilities: ArrayLike, labels: Sequence[str] | None = None) -> Array:
        """Return the probability of each label alone under the model, (rows, labels)."""
        weights, products = self.mixture(probabilities, labels)
        return np.clip(np.einsum("kr,krl->rl", weights, products), 0.0, 1.0)

    def contained(
        self, probabilities: ArrayLike, order: Array, labels: Sequence[str] | None = None
    ) -> Array:
        """Return P(all labels of a row are among its first 0, 1, …, L), (rows, L + 1).

        ``order`` holds the column indices of each row in the order in which labels are added.
        """
        found = np.ones((order.shape[0], order.shape[1] + 1))
        for rows, weights, _, absent in self._products(probabilities, labels):
            outside = np.take_along_axis(absent, order[None, rows, ::-1], axis=2).cumsum(axis=2)
            found[rows, :-1] = np.einsum("kr,krl->rl", weights, np.exp(outside))[:, ::-1]
        return np.clip(found, 0.0, 1.0)

    def most_probable(
        self, probabilities: ArrayLike, labels: Sequence[str] | None = None
    ) -> tuple[Array, Array]:
        """Return one label set per row, and its probability.

        With one component it is the most probable set of all. With several, it is the best of the
        sets that are most probable for their size under one of the components.
        """
        sets = np.zeros(np.shape(probabilities), bool)
        best = np.zeros(len(sets))
        for rows, weights, present, absent in self._products(probabilities, labels):
            log_odds, none = present - absent, absent.sum(axis=2, keepdims=True)
            for component in log_odds[: self.components]:
                order = np.argsort(-component, axis=1, kind="stable")
                steps = np.take_along_axis(log_odds, order[None], axis=2).cumsum(axis=2)
                every = np.concatenate([none, none + steps], axis=2)
                value = np.exp(_log_mass(weights[..., None], every))
                size = value.argmax(axis=1)[:, None]
                top = np.take_along_axis(value, size, axis=1)[:, 0]
                better, rank = top > best[rows], np.argsort(order, axis=1)
                best[rows] = np.where(better, top, best[rows])
                sets[rows] = np.where(better[:, None], rank < size, sets[rows])
        return sets, best

    def _given(
        self, probabilities: ArrayLike, labels: Sequence[str] | None
    ) -> tuple[list[str], Array]:
        """Return checked names and probabilities inside (0, 1), in the given order of columns."""
        self.check_fitted()
        names = list(self.labels if labels is None else labels)
        chances, _ = checked_probabilities(probabilities, names)
        self.check(names)
        return names, chances

    def _products(
        self, probabilities: ArrayLike, labels: Sequence[str] | None
    ) -> Iterator[tuple[slice, Array, Array, Array]]:
        """Yield blocks of rows, each with its weights and products as ``mixture`` returns them.

        The products are two arrays: log-probabilities of presence and of absence.
        """
        names, chances = self._given(probabilities, labels)
        places, factors = {name: at for at, name in enumerate(names)}, self._asked(names)[:, None]
        step = max(1, _CELLS // len(names) // (len(factors) + 1))
        for start in range(0, len(chances), step):
            rows = slice(start, start + step)
            own = chances[rows]
            scale = np.log1p(own * (factors - 1.0))
            none = np.zeros((1, *own.shape))
            yield (
                rows,
                self.prepare(places, np.ascontiguousarray(own.T)),
                np.concatenate([np.log(own) + np.log(factors) - scale, none - np.inf]),
                np.concatenate([np.log1p(-own) - scale, none]),
            )

    # Files -----------------------------------------------------------------------------------

    def state(self) -> JsonObject:
        """Return all fitted parameters as plain values, for JSON."""
        self.check_fitted()
        found = self.parameters
        return {
            "joint": VERSION,
            "labels": list(self.labels),
            "log_factors": found.components.tolist(),
            "shares": found.shares.tolist(),
            "log_slope": found.slope,
            "bend": found.bend,
            "empty_factor": found.empty,
            "temper": found.temper,
            "ridge": self.ridge,
        }

    @classmethod
    def from_state(cls, state: JsonObject) -> Joint:
        """Return the model that ``state`` describes."""
        try:
            known = int(state["joint"]) == VERSION
            if "size_factors" in state:  # of version 0.2
                raise InputError("it uses a type of model that was removed. Fit the model again.")
            labels = tuple(str(name) for name in state["labels"])
            found = Parameters(
                np.asarray(state["log_factors"], np.float64),
                np.asarray(state["shares"], np.float64),
                float(state["log_slope"]),
                float(state["bend"]),
                float(state["empty_factor"]),
                float(state.get("temper", 1.0)),  # files of version 0.2 lack it
            )
            joint = cls(components=max(1, len(found.shares)), ridge=float(state["ridge"]))
        except (KeyError, TypeError, ValueError, OverflowError) as error:
            raise InputError(f"a joint model's state must come from `state()`; {error!r}.") from (
                error
            )
        valid = (
            known
            and list(labels) == sorted(set(labels))
            and len(labels) > 0
            and found.components.shape == (len(found.shares), len(labels))
            and math.isfinite(found.slope)  # below, NaN makes every comparison false
            and np.abs(found.components).max() <= 50
            and found.shares.min() > 0
            and abs(found.shares.sum() - 1) < 1e-9
            and abs(found.bend) * NODE < 1
            and 0 < found.empty < math.inf
            and 0 <= found.temper <= 1.5
        )
        if not valid:
            raise InputError("a joint model's state must come from `state()` of this version.")
        joint._set(labels, found)
        return joint

    def write(self, path: FilePath) -> None:
        """Write the state as JSON."""
        with atomic_path(path) as beside:
            beside.write_text(json.dumps(self.state(), ensure_ascii=False), encoding="utf-8")

    @classmethod
    def read(cls, path: FilePath) -> Joint:
        """Return the model in a file of ``write`` or ``credibly joint fit``."""
        state = read_json_object(Path(path), "Write it with `credibly joint fit`.")
        try:
            return cls.from_state(state)
        except InputError as error:
            raise InputError(f"{path} must be written by `credibly joint fit`; {error}") from error


def _posterior(chances: Array, factors: Array) -> Array:
    """Return probabilities whose odds are multiplied by factors."""
    return chances * factors / (chances * (factors - 1.0) + 1.0)


def _log_mass(weights: Array, logs: Array) -> Array:
    """Return the logarithm of the weighted sum of products, from their logarithms."""
    largest = logs.max(axis=0)
    return largest + np.log((weights * np.exp(logs - largest)).sum(axis=0))


def known_truth(chances: Array, truth: Targets) -> Array:
    """Return the truth of probabilities as 1, 0 and −1 (unknown)."""
    known = targets.decode(truth, soft=False)
    checks.same_shapes(probabilities=chances, targets=known)
    return np.where(known >= 0, known, -1).astype(np.int8)


def checked_probabilities(
    probabilities: ArrayLike, labels: Sequence[str]
) -> tuple[Array, list[str]]:
    """Return probabilities strictly inside (0, 1), and label names."""
    chances, names = named_columns(probabilities, labels)
    return np.clip(chances.astype(np.float64), SMALLEST, 1 - SMALLEST), names


def fitting_truth(
    probabilities: ArrayLike, truth: Targets, labels: Sequence[str]
) -> tuple[Array, Array, tuple[str, ...]]:
    """Return the rows with some known truth, with columns in the order of the labels' names."""
    chances, names = checked_probabilities(probabilities, labels)
    known = known_truth(chances, truth)
    rows = (known >= 0).any(axis=1)
    if not rows.any():
        raise InputError(
            "`targets` must hold some known truth to fit on; all are unknown. Give held-out "
            "predictions whose truth is known."
        )
    order = sorted(range(len(names)), key=names.__getitem__)
    return chances[rows][:, order], known[rows][:, order], tuple(names[at] for at in order)
