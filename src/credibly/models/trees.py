"""Decision trees as tensors: forests of scikit-learn and gradient boosting of LightGBM.

These libraries grow the trees. The result is stored as arrays, which a run saves with its weights
and torch evaluates. The scores agree with those of the libraries to 1e-12 (checked by a test).
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from scipy import sparse
from torch import Tensor, nn

from credibly.checks import InputError, require
from credibly.types import Array, JsonObject

if TYPE_CHECKING:
    import lightgbm

TREES = ("forest", "boosting")
"""Names of the models that are made of trees."""

WALKS = 1 << 22
"""Rows times trees that are walked at a time."""

BUFFERS = {
    **dict.fromkeys(("feature", "left", "right", "roots", "columns"), torch.int32),
    **dict.fromkeys(("threshold", "values"), torch.float64),
    "missing_left": torch.bool,
}
"""Types of the concatenated arrays of all trees, whose lengths depend on the trees."""

SCALARS = {"smoothing": torch.float64, "exclusive": torch.bool, "steps": torch.int32}


@dataclass
class Nodes:
    """The nodes of one tree; children of leaves are −1.

    ``values`` has one row per node; rows of inner nodes are not used.
    """

    feature: Array
    threshold: Array
    missing_left: Array
    left: Array
    right: Array
    values: Array


class TreesModule(nn.Module):
    """Scores of rows from decision trees: a base plus the sum of one value per tree.

    In a ``forest``, a value is the share of each label in a leaf divided by the number of trees.
    The sum is the probability p, and the score is log p − log(1 − p), or log p if labels exclude
    each other. In ``boosting``, each tree adds to the score of one label.

    The buffers contain the trees of all labels, concatenated. A leaf is its own child, so every row
    takes the same number of steps. Rows are compared as float32, the type in which the trees were
    grown.

    Args:
        name: ``forest`` or ``boosting``.
        num_features: columns of the inputs.
        num_labels: columns of the scores.

    Example:
        >>> trees = TreesModule("boosting", num_features=2, num_labels=3)
        >>> trees(torch.zeros(1, 2))
        tensor([[0., 0., 0.]])
    """

    feature: Tensor
    threshold: Tensor
    missing_left: Tensor
    left: Tensor
    right: Tensor
    roots: Tensor
    values: Tensor
    columns: Tensor
    base: Tensor
    smoothing: Tensor
    exclusive: Tensor
    steps: Tensor

    def __init__(self, name: str, num_features: int, num_labels: int) -> None:
        super().__init__()
        self.name, self.num_features, self.num_labels = name, num_features, num_labels
        self.width = num_labels if name == "forest" else 1
        for key, dtype in BUFFERS.items():
            shape = (0, self.width) if key == "values" else (0,)
            self.register_buffer(key, torch.zeros(shape, dtype=dtype))
        self.register_buffer("base", torch.zeros(num_labels, dtype=torch.float64))
        for key, dtype in SCALARS.items():
            self.register_buffer(key, torch.zeros((), dtype=dtype))

    # From other libraries ----------------------------------------------------------------------

    def set_trees(self, trees: list[Nodes], columns: Array | None = None) -> TreesModule:
        """Set the trees; for ``boosting``, with the label that each of them adds to."""
        if not trees:
            return self
        sizes = [len(tree.left) for tree in trees]
        starts = np.cumsum([0, *sizes[:-1]])
        arrays = {
            field.name: np.concatenate([getattr(tree, field.name) for tree in trees])
            for field in fields(Nodes)
        }
        leaves, own = arrays["left"] < 0, np.arange(sum(sizes))
        # A leaf is its own child; its feature is the index of its values.
        for side in ("left", "right"):
            arrays[side] = np.where(leaves, own, arrays[side] + np.repeat(starts, sizes))
        arrays["feature"] = np.where(leaves, leaves.cumsum() - 1, arrays["feature"])
        arrays["values"] = arrays["values"][leaves]
        arrays["roots"] = starts
        arrays["columns"] = np.zeros(0) if columns is None else columns
        for key, array in arrays.items():
            setattr(self, key, torch.from_numpy(array).to(BUFFERS[key]))
        self.steps.fill_(max(map(_depth, trees)))
        return self

    # Scores ----------------------------------------------------------------------------------

    def forward(self, inputs: Tensor) -> Tensor:
        if inputs.ndim != 2 or inputs.shape[1] != self.num_features:
            raise InputError(
                f"{self.name} takes inputs of shape (rows, {self.num_features}); got "
                f"{tuple(inputs.shape)}."
            )
        kind = inputs.dtype
        sums = self.sums(inputs)
        if self.name == "forest":
            return self.scores_of(sums).to(kind)
        return (self.base + sums).to(kind)

    def scores_of(self, votes: Tensor, exclusive: bool = True) -> Tensor:
        """Return the scores of a forest's votes: log-odds of each label unless ``exclusive``."""
        # A pseudo-tree at the label rates: no vote is ever 0 or 1, even with few trees.
        weight = self.smoothing
        present = (votes + weight * self.base) / (1 + weight)
        absent = (1 - votes + weight * (1 - self.base)) / (1 + weight)
        against = absent.log()
        # Not `where`, which onnxruntime lacks for float64.
        return present.log() - (against * (~self.exclusive).double() if exclusive else against)

    def sums(self, inputs: Tensor) -> Tensor:
        """Return the sum of leaf values in float64; for a forest, the mean share of labels."""
        inputs = inputs.float().double()
        if torch.jit.is_tracing():  # pyright: ignore[reportPrivateImportUsage]
            return self._walk(inputs)
        step = max(1, WALKS // max(1, len(self.roots)))
        return torch.cat([self._walk(block) for block in inputs.split(step)] or [inputs[:, :0]])

    def _walk(self, inputs: Tensor) -> Tensor:
        """Return the sum of the values of leaves, one column per label."""
        rows = inputs.shape[0]
        total = inputs.new_zeros(rows, self.num_labels)
        if not len(self.roots):
            return total
        node = self.roots.long().expand(rows, -1)
        missing = inputs.isnan()
        tracing = torch.jit.is_tracing()  # pyright: ignore[reportPrivateImportUsage]
        any_missing = tracing or bool(missing.any())
        for _ in range(int(self.steps)):
            # At a leaf, the column does not matter: both children are the leaf itself.
            column = self.feature[node].long() % self.num_features
            low = inputs.gather(1, column) <= self.threshold[node]  # False for a missing value
            if any_missing:
                low = low | (missing.gather(1, column) & self.missing_left[node])
            node = torch.where(low, self.left[node], self.right[node]).long()
        leaf = self.feature[node].long()
        if self.name == "boosting":
            places = self.columns.long().expand(rows, -1)
            return total.scatter_add(1, places, self.values[:, 0][leaf])
        for tree in leaf.unbind(1):
            total = total + self.values[tree]
        return total

    # Storage ---------------------------------------------------------------------------------

    def _load_from_state_dict(
        self, state_dict: JsonObject, prefix: str, *rest: object, **named: object
    ) -> None:
        """Use the shapes of the file. Raise for invalid trees."""
        for key, dtype in BUFFERS.items():
            if prefix + key in state_dict:
                shape = state_dict[prefix + key].shape
                setattr(self, key, torch.empty(shape, dtype=dtype, device="cpu"))
        super()._load_from_state_dict(state_dict, prefix, *rest, **named)
        self._check()

    def _check(self) -> None:
        nodes, leaves = len(self.feature), len(self.values)
        of_nodes = self.feature, self.threshold, self.missing_left, self.left, self.right
        inside = all(len(each) == nodes for each in of_nodes)
        inside = inside and (len(self.columns) == len(self.roots) or self.name == "forest")
        inside = inside and self.values.shape[1:] == (self.width,)
        for numbers in (self.left, self.right, self.roots):
            inside = inside and _within(numbers, nodes)
        inside = inside and _within(self.columns, self.num_labels)
        if inside and nodes:
            own = torch.arange(nodes, dtype=torch.int32)
            ends = self.left == own
            later = (self.left > own) & (self.right > own)
            inside = bool((later | ends & (self.right == own)).all())
            inside = inside and _within(self.feature[ends], leaves)
            inside = inside and _within(self.feature[~ends], self.num_features)
            inside = inside and 0 <= int(self.steps) <= nodes
        if not inside:
            raise RuntimeError(
                f"the trees of the {self.name} do not match each other or its columns."
            )


def _within(numbers: Tensor, most: int) -> bool:
    return bool(((numbers >= 0) & (numbers < most)).all())


def _depth(tree: Nodes) -> int:
    """Return the number of steps from the root to the deepest leaf."""
    depth = np.zeros(len(tree.left), dtype=np.int64)
    for node in np.flatnonzero(tree.left >= 0):  # parents come before their children
        depth[[tree.left[node], tree.right[node]]] = depth[node] + 1
    return int(depth.max())


# Growing -----------------------------------------------------------------------------------------

SMOOTHING = (0.3, 0.1, 0.03, 0.01, 0.003)
"""Weights of the pseudo-tree at the labels' rates, in trees' worth of all; the best is kept."""


TREES_OF_FOREST = 400
"""Half of them are extra trees: random thresholds, splits consider 30 % of the columns. The others
are a random forest: the best threshold, splits consider the square root of their number."""


def grow_forest(
    features: Array,
    targets: Array,
    seed: int,
    *,
    trees: int = TREES_OF_FOREST,
    leaf: int = 1,
    weights: Array | None = None,
    exclusive: bool = False,
) -> tuple[TreesModule, Array]:
    """Return a forest, and the out-of-bag scores of its training rows.

    The splits are those of a regression on all labels at once, with the rate of the label for
    unknown entries. The values of a leaf are then computed from known entries only.

    Args:
        features: (n, d); NaN is missing.
        targets: (n, L) of 0, 1, soft values and −1 for unknown.
        seed: of rows, columns and thresholds.
        trees: number of trees.
        leaf: minimum number of rows per leaf.
        weights: (n,) the weight of each row, by which trees sample rows. None: 1.
        exclusive: whether exactly one label is present in each row.

    Example:
        >>> noise = np.random.default_rng(0)
        >>> rows = noise.normal(size=(200, 3))
        >>> forest, scores = grow_forest(rows, rows[:, :2] > 0, 0, trees=30)
        >>> scores.shape, bool((forest(torch.from_numpy(rows)).numpy() > 0).any())
        ((200, 2), True)
    """
    inputs = np.ascontiguousarray(features, dtype=np.float32)
    targets = np.asarray(targets, dtype=np.float64)
    known, counts_for = targets >= 0, _entry_weights(targets, weights)
    rates = _rates(targets, counts_for)
    filled = np.where(known, targets, rates)
    grown, votes, counts = [], np.zeros(targets.shape), np.zeros(len(targets))
    for tree, bag in _grown(inputs, filled, weights, seed, trees, leaf):
        nodes = Nodes(
            feature=tree.feature,
            threshold=tree.threshold,
            missing_left=tree.missing_go_to_left.astype(bool),
            left=tree.children_left,
            right=tree.children_right,
            values=tree.value.reshape(-1, targets.shape[1]).copy(),
        )
        leaves = tree.apply(inputs)
        if not known.all():
            nodes.values = _known_values(nodes, leaves, bag, targets, known, rates)
        left_out = np.bincount(bag, minlength=len(targets)) == 0
        votes[left_out] += nodes.values[leaves[left_out]]
        counts[left_out] += 1
        grown.append(nodes)
    for nodes in grown:
        nodes.values = nodes.values / len(grown)
    model = TreesModule("forest", inputs.shape[1], targets.shape[1]).set_trees(grown)
    model.base.copy_(torch.from_numpy(rates))
    model.exclusive.fill_(exclusive)
    shares = np.where(counts[:, None] > 0, votes / np.maximum(counts, 1)[:, None], rates)
    return model, _smoothed(model, shares, targets, counts_for)


def _grown(
    inputs: Array, targets: Array, weights: Array | None, seed: int, trees: int, leaf: int
) -> Iterator[tuple[Any, Array]]:
    """Yield each tree with the rows of its bag."""
    from sklearn.ensemble import ExtraTreesRegressor, RandomForestRegressor

    extra, random = ExtraTreesRegressor(trees - trees // 2), RandomForestRegressor(trees // 2)
    columns: dict[Any, float | str] = {extra: 0.3, random: "sqrt"}
    for place, (forest, share) in enumerate(columns.items()):
        forest.set_params(bootstrap=True, random_state=(seed + place) % 2**32)
        forest.set_params(min_samples_leaf=leaf, max_features=share)
        forest.fit(inputs, targets if targets.shape[1] > 1 else targets[:, 0], weights)
        for tree, bag in zip(forest.estimators_, forest.estimators_samples_, strict=True):
            yield tree.tree_, bag


def _known_values(
    nodes: Nodes, leaf: Array, bag: Array, targets: Array, known: Array, rates: Array
) -> Array:
    """Return the share of each label among the known entries of a leaf, else its rate."""
    shape = (len(nodes.left), len(targets))
    inside = sparse.csr_matrix((np.ones(len(bag)), (leaf[bag], bag)), shape=shape)
    counts = inside @ known.astype(np.float64)
    sums = inside @ np.where(known, targets, 0.0)
    return np.where(counts > 0, sums / np.maximum(counts, 1), rates)


def _smoothed(model: TreesModule, shares: Array, targets: Array, weights: Array) -> Array:
    """Set the smoothing with the lowest log loss for these shares; return the scores."""
    votes, best = torch.from_numpy(shares), (math.inf, 0.0)
    for weight in SMOOTHING:
        model.smoothing.fill_(weight)
        odds = model.scores_of(votes, exclusive=False).numpy()
        cost = weights * (np.logaddexp(0, odds) - targets * odds)
        best = min(best, (float(cost.sum()), weight))
    model.smoothing.fill_(best[1])
    return model.scores_of(votes).numpy()


def _entry_weights(targets: Array, weights: Array | None) -> Array:
    """Return the weight of each entry, (n, L): 0 if unknown."""
    return (targets >= 0) * (1.0 if weights is None else weights[:, None])


def _rates(targets: Array, weights: Array) -> Array:
    """Return the rate of each label, smoothed by half a row with it and half a row without it."""
    return ((weights * targets).sum(axis=0) + 0.5) / (weights.sum(axis=0) + 1.0)


# Boosting -------------------------------------------------------------------------------------


COLUMN_SHARE = 0.3
"""Share of the columns that a boosted tree considers."""


class Booster:
    """Gradient boosting by LightGBM, for each label separately or for many classes at once.

    Each label uses the rows in which it is known. Soft targets are used as they are. A label that
    is always present or always absent gets its smoothed rate. The same seed gives the same trees
    for any number of threads.

    Args:
        features: (n, d); NaN is missing.
        targets: (n, L) of 0, 1, soft values and −1 for unknown.
        seed: of columns and thresholds.
        iterations: trees per label.
        weights: (n,) the weight of each row. None: 1.
        exclusive: whether exactly one label is present in each row.

    Example:
        >>> rows = np.random.default_rng(0).normal(size=(200, 3))
        >>> booster = Booster(rows, rows[:, :2] > 0, 0, 5)
        >>> booster.model(5)(torch.from_numpy(rows)).shape
        torch.Size([200, 2])
    """

    def __init__(
        self,
        features: Array,
        targets: Array,
        seed: int,
        iterations: int,
        *,
        weights: Array | None = None,
        exclusive: bool = False,
    ) -> None:
        targets = np.asarray(targets, dtype=np.float64)
        self.num_features, self.num_labels = features.shape[1], targets.shape[1]
        rates = _rates(targets, _entry_weights(targets, weights))
        # Log rates for classes, log-odds for labels.
        self.base = np.log(rates) if exclusive else np.log(rates) - np.log1p(-rates)
        how = {
            "objective": "multiclass" if exclusive else "cross_entropy",
            "learning_rate": 0.1,
            "num_leaves": 15,
            "min_data_in_leaf": 5,
            "lambda_l2": 1.0,
            "max_bin": 63,
            "feature_fraction": COLUMN_SHARE,
            "extra_trees": True,  # random thresholds
            "boost_from_average": False,
            "deterministic": True,
            "force_col_wise": True,
            "num_threads": torch.get_num_threads(),
            "seed": seed % 2**31,
            "verbosity": -1,
        }
        rows = _float32(features), targets, weights
        self.boosters = list(_boosted(*rows, self.base, how, iterations))

    def model(self, iterations: int) -> TreesModule:
        """Return the trees of the first iterations."""
        trees: list[Nodes] = []
        columns: list[int] = []
        for own, booster in self.boosters:
            for number, tree in enumerate(
                booster.dump_model(num_iteration=iterations)["tree_info"]
            ):
                trees.append(_boosted_nodes(tree["tree_structure"]))
                columns.append(own[number % len(own)])
        model = TreesModule("boosting", self.num_features, self.num_labels)
        model.set_trees(trees, np.array(columns, np.int32))
        model.base.copy_(torch.from_numpy(self.base))
        return model

    def staged(self, features: Array, stages: tuple[int, ...]) -> list[Array]:
        """Return the scores of rows after each of the given numbers of iterations."""
        scores, before = [self.base[None].repeat(len(features), axis=0)], 0
        for stage in stages:
            scores.append(scores[-1].copy())
            for own, booster in self.boosters:
                more = booster.predict(
                    *(_float32(features), before, stage - before),
                    raw_score=True,
                    num_threads=torch.get_num_threads(),
                )
                scores[-1][:, own] += np.asarray(more).reshape(len(features), len(own))
            before = stage
        return scores[1:]


def _float32(features: Array) -> Array:
    return np.ascontiguousarray(features, dtype=np.float32)


def _boosted(
    inputs: Array,
    targets: Array,
    weights: Array | None,
    base: Array,
    how: JsonObject,
    iterations: int,
) -> Iterator[tuple[list[int], lightgbm.Booster]]:
    """Yield each booster with the labels whose scores it adds to, one tree at a time."""
    require("train", "lightgbm")
    import lightgbm

    rows = lightgbm.Dataset(inputs, weight=weights, params=how)
    if how["objective"] == "multiclass":
        present, classes = np.unique(targets.argmax(axis=1), return_inverse=True)
        if len(present) > 1:
            rows.set_label(classes)
            rows.set_init_score(np.repeat(base[None, present], len(targets), axis=0))
            how["num_class"] = len(present)
            yield present.tolist(), lightgbm.train(how, rows, iterations)
        return
    for label, column in enumerate(targets.T):
        known = np.flatnonzero(column >= 0)
        if not len(known) or np.ptp(column[known]) == 0:
            continue
        whole = len(known) == len(column)
        part = None if weights is None else weights[known]
        own = rows if whole else lightgbm.Dataset(inputs[known], weight=part, params=how)
        own.set_label(column[known])
        own.set_init_score(np.full(len(known), base[label]))
        yield [label], lightgbm.train(how, own, iterations)


def _boosted_nodes(root: JsonObject) -> Nodes:
    """Return the nodes of a tree of LightGBM, parents before their children."""
    found: list[tuple[int, float, bool, float]] = []
    children: list[list[int]] = []

    def add(node: JsonObject) -> int:
        number = len(found)
        children.append([-1, -1])
        if "leaf_value" in node:
            found.append((-1, 0.0, False, node["leaf_value"]))
            return number
        # If no value was missing in training, LightGBM treats missing values as 0.
        unseen = node["missing_type"] == "None"
        missing_left = node["threshold"] >= 0 if unseen else node["default_left"]
        found.append((node["split_feature"], node["threshold"], missing_left, 0.0))
        children[number] = [add(node[side]) for side in ("left_child", "right_child")]
        return number

    add(root)
    feature, threshold, missing_left, values = (
        np.array(column) for column in zip(*found, strict=True)
    )
    left, right = np.array(children).T
    return Nodes(feature, threshold, missing_left, left, right, values[:, None])
