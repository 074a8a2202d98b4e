"""Grow the trees of ``forest`` and ``boosting`` with scikit-learn."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from scipy import sparse

from credibly.models.trees import Nodes, Trees
from credibly.types import Array

COLUMNS: dict[str, float | str] = {"extra": 0.3, "random": "sqrt"}
"""Columns that a split of each kind of tree looks at, as scikit-learn takes it."""

SMOOTHING = (0.3, 0.1, 0.03, 0.01, 0.003)
"""Weights of the pseudo-tree at the labels' rates, in trees' worth of all; the best is kept."""


@dataclass(frozen=True)
class ForestOptions:
    """How a forest is grown.

    Attributes:
        trees: number of trees.
        kinds: for equal shares of the trees, ``extra`` (extra trees: thresholds at random, splits
            look at 30 % of the columns) or ``random`` (random forest: the best threshold, of
            as many columns as the square root of all).
        leaf: fewest rows of a leaf.
    """

    trees: int = 400
    kinds: tuple[str, ...] = ("extra", "random")
    leaf: int = 1


def grow_forest(
    features: Array, targets: Array, seed: int, options: ForestOptions, *, exclusive: bool = False
) -> tuple[Trees, Array]:
    """Return a forest, and the scores of its training rows by the trees that did not see them.

    The splits are those of a regression on all labels at once, with the label's rate for unknown
    entries. The values of a leaf are then computed from known entries alone.

    Args:
        features: (n, d); NaN is missing.
        targets: (n, L) of 0, 1, soft values and −1 for unknown.
        seed: of rows, columns and thresholds.
        options: how to grow.
        exclusive: whether exactly one label is present in each row.

    Example:
        >>> noise = np.random.default_rng(0)
        >>> rows = noise.normal(size=(200, 3))
        >>> forest, scores = grow_forest(rows, rows[:, :2] > 0, 0, ForestOptions(trees=30))
        >>> scores.shape, bool((forest(torch.from_numpy(rows)).numpy() > 0).any())
        ((200, 2), True)
    """
    inputs = np.ascontiguousarray(features, dtype=np.float32)
    targets = np.asarray(targets, dtype=np.float64)
    known = targets >= 0
    rates = _rates(targets, known)
    filled = np.where(known, targets, rates)
    trees, votes, counts = [], np.zeros(targets.shape), np.zeros(len(targets))
    for tree, bag in _grown(inputs, filled, seed, options):
        nodes = _regression_nodes(tree.tree_, targets.shape[1])
        leaf = tree.tree_.apply(inputs)
        if not known.all():
            nodes.values = _known_values(nodes, leaf, bag, targets, known, rates)
        left_out = np.bincount(bag, minlength=len(targets)) == 0
        votes[left_out] += nodes.values[leaf[left_out]]
        counts[left_out] += 1
        trees.append(nodes)
    for nodes in trees:
        nodes.values = nodes.values / len(trees)
    model = Trees("forest", inputs.shape[1], targets.shape[1]).set_trees(trees)
    model.base.copy_(torch.from_numpy(rates))
    model.exclusive.fill_(exclusive)
    shares = np.where(counts[:, None] > 0, votes / np.maximum(counts, 1)[:, None], rates)
    return model, _smoothed(model, shares, targets, known)


def _grown(
    inputs: Array, targets: Array, seed: int, options: ForestOptions
) -> Iterator[tuple[Any, Array]]:
    """Give each tree with the rows of its bag."""
    from sklearn.ensemble import ExtraTreesRegressor, RandomForestRegressor

    kinds: dict[str, Any] = {"extra": ExtraTreesRegressor, "random": RandomForestRegressor}
    for place, name in enumerate(options.kinds):
        own = options.trees // len(options.kinds) + (place < options.trees % len(options.kinds))
        forest = kinds[name](own, bootstrap=True, n_jobs=1, random_state=(seed + place) % 2**32)
        forest.set_params(min_samples_leaf=options.leaf, max_features=COLUMNS[name])
        forest.fit(inputs, targets if targets.shape[1] > 1 else targets[:, 0])
        yield from zip(forest.estimators_, forest.estimators_samples_, strict=True)


def _regression_nodes(tree: Any, num_labels: int) -> Nodes:
    return Nodes(
        feature=tree.feature,
        threshold=tree.threshold,
        missing_left=tree.missing_go_to_left.astype(bool),
        left=tree.children_left,
        right=tree.children_right,
        values=tree.value.reshape(-1, num_labels).copy(),
    )


def _known_values(
    nodes: Nodes, leaf: Array, bag: Array, targets: Array, known: Array, rates: Array
) -> Array:
    """Return the share of each label among the known entries of a leaf; its rate where none is."""
    shape = (len(nodes.left), len(targets))
    inside = sparse.csr_matrix((np.ones(len(bag)), (leaf[bag], bag)), shape=shape)
    counts = inside @ known.astype(np.float64)
    sums = inside @ np.where(known, targets, 0.0)
    return np.where(counts > 0, sums / np.maximum(counts, 1), rates)


def _smoothed(model: Trees, shares: Array, targets: Array, known: Array) -> Array:
    """Set the smoothing with the lowest log loss of these shares; return their scores."""
    votes, best = torch.from_numpy(shares), (math.inf, 0.0)
    for weight in SMOOTHING:
        model.smoothing.fill_(weight)
        odds = model.scores_of(votes, exclusive=False).numpy()
        cost = np.logaddexp(0, odds) - np.where(known, targets, 0) * odds
        best = min(best, (float(cost[known].mean()) if known.any() else 0.0, weight))
    model.smoothing.fill_(best[1])
    return model.scores_of(votes).numpy()


def _rates(targets: Array, known: Array) -> Array:
    """Return the rate of each label, smoothed by half a row present and half a row absent."""
    return (np.where(known, targets, 0).sum(axis=0) + 0.5) / (known.sum(axis=0) + 1.0)


# Boosting -------------------------------------------------------------------------------------


@dataclass(frozen=True)
class BoostingOptions:
    """How trees are boosted.

    Attributes:
        iterations: trees per label.
        learning_rate: factor on the value of each tree.
        leaves: most leaves of a tree.
        leaf: fewest rows of a leaf.
        l2: penalty on the values of leaves.
        bins: most intervals that the values of a column are divided into.
    """

    iterations: int = 100
    learning_rate: float = 0.1
    leaves: int = 6
    leaf: int = 10
    l2: float = 1.0
    bins: int = 64


class Booster:
    """Histogram gradient boosting for each label on its own, or for one of many classes at once.

    A label takes part with the rows where it is known. A soft target counts as a row present and a
    row absent that share its weight. A label that is always present or always absent gets its
    smoothed rate.

    Args:
        features: (n, d); NaN is missing.
        targets: (n, L) of 0, 1, soft values and −1 for unknown.
        seed: of scikit-learn's binning.
        options: how to boost.
        exclusive: whether exactly one label is present in each row.

    Example:
        >>> noise = np.random.default_rng(0)
        >>> rows = noise.normal(size=(200, 3))
        >>> booster = Booster(rows, rows[:, :2] > 0, 0, BoostingOptions(iterations=5))
        >>> booster.model(3)(torch.from_numpy(rows[:4])).shape
        torch.Size([4, 2])
    """

    def __init__(
        self,
        features: Array,
        targets: Array,
        seed: int,
        options: BoostingOptions,
        *,
        exclusive: bool = False,
    ) -> None:
        inputs = np.asarray(features, dtype=np.float32).astype(np.float64)
        targets = np.asarray(targets, dtype=np.float64)
        self.num_features, self.num_labels = inputs.shape[1], targets.shape[1]
        self.options = options
        known = targets >= 0
        rates = _rates(targets, known)
        # Of classes, log rates; of labels, log-odds.
        self.base = np.log(rates) if exclusive else np.log(rates) - np.log1p(-rates)
        self.trees: list[list[tuple[int, Nodes]]] = [[] for _ in range(options.iterations)]
        if exclusive:
            self._grow(inputs, targets.argmax(axis=1), None, seed, None)
            return
        for label in range(self.num_labels):
            rows = known[:, label]
            self._grow(*_hard(inputs[rows], targets[rows, label]), seed, label)

    def _grow(
        self, inputs: Array, classes: Array, weights: Array | None, seed: int, label: int | None
    ) -> None:
        from sklearn.ensemble import HistGradientBoostingClassifier

        names = np.unique(classes)
        if len(names) < 2:
            return
        model = HistGradientBoostingClassifier(
            max_iter=self.options.iterations,
            learning_rate=self.options.learning_rate,
            max_leaf_nodes=self.options.leaves,
            min_samples_leaf=self.options.leaf,
            l2_regularization=self.options.l2,
            max_bins=self.options.bins,
            random_state=seed % 2**32,
        )
        model.set_params(early_stopping=False)  # annotated as text
        model.fit(inputs, classes, sample_weight=weights)
        start = np.ravel(model._baseline_prediction)  # no public name
        columns = (
            names if label is None and len(names) > 2 else [names[1] if label is None else label]
        )
        for column, value in zip(columns, start, strict=True):
            self.base[int(column)] = value
        for number, grown in enumerate(model._predictors):
            for column, tree in zip(columns, grown, strict=True):
                self.trees[number].append((int(column), _boosted_nodes(tree.nodes)))

    def model(self, iterations: int) -> Trees:
        """Return the trees of the first iterations."""
        found = [pair for step in self.trees[:iterations] for pair in step]
        model = Trees("boosting", self.num_features, self.num_labels)
        model.set_trees([tree for _, tree in found], np.array([c for c, _ in found], np.int32))
        model.base.copy_(torch.from_numpy(self.base))
        return model

    def staged(self, features: Array, stages: tuple[int, ...]) -> list[Array]:
        """Return the scores of rows after each of these numbers of iterations."""
        inputs = torch.from_numpy(np.asarray(features, dtype=np.float32).astype(np.float64))
        scores, before, total = [], 0, self.base[None].repeat(len(inputs), axis=0)
        for stage in stages:
            found = [pair for step in self.trees[before:stage] for pair in step]
            part = Trees("boosting", self.num_features, self.num_labels)
            part.set_trees([tree for _, tree in found], np.array([c for c, _ in found], np.int32))
            total = total + part(inputs).numpy()
            scores.append(total)
            before = stage
        return scores


def _hard(inputs: Array, values: Array) -> tuple[Array, Array, Array | None]:
    """Return rows, classes and weights: a soft target becomes one row of each class."""
    soft = (values > 0) & (values < 1)
    if not soft.any():
        return inputs, values.astype(np.int64), None
    rows = np.concatenate([inputs, inputs])
    classes = np.repeat([1, 0], len(values))
    weights = np.concatenate([values, 1 - values])
    keep = weights > 0
    return rows[keep], classes[keep], weights[keep]


def _boosted_nodes(nodes: Any) -> Nodes:
    leaf = nodes["is_leaf"].astype(bool)
    return Nodes(
        feature=nodes["feature_idx"].astype(np.int64),
        threshold=nodes["num_threshold"].astype(np.float64),
        missing_left=nodes["missing_go_to_left"].astype(bool),
        left=np.where(leaf, -1, nodes["left"].astype(np.int64)),
        right=np.where(leaf, -1, nodes["right"].astype(np.int64)),
        values=nodes["value"].astype(np.float64)[:, None],
    )
