"""Decision trees as tensors: forests and gradient boosting of scikit-learn, without pickle.

scikit-learn grows the trees; what is kept are arrays, which a run stores with its weights, and
which torch walks. A walk gives scikit-learn's own numbers to 1e-12 (a test compares them).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from credibly.checks import InputError
from credibly.types import Array

TREES = ("forest", "boosting")
"""Names of the models that are made of trees."""

WALKS = 1 << 22
"""Rows times trees that are walked at a time."""

BUFFERS = ("feature", "threshold", "missing_left", "left", "right", "roots", "values", "columns")


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

    @property
    def leaves(self) -> Array:
        """Return which nodes are leaves."""
        return self.left < 0


class Trees(nn.Module):
    """Scores of rows from decision trees: a base plus the sum of a value per tree.

    In a ``forest`` a value is the share of each label in a leaf divided by the number of trees;
    their sum, the probability p, becomes the score log p − log(1 − p), or log p where labels
    exclude each other. In ``boosting`` a tree adds to the score of one label.

    Buffers hold the trees of all labels behind each other, leaves pointing at themselves, so that
    every row takes the same number of steps. Rows are compared as float32, as scikit-learn does.

    Args:
        name: ``forest`` or ``boosting``.
        num_features: columns of the inputs.
        num_labels: columns of the scores.

    Example:
        >>> trees = Trees("boosting", num_features=2, num_labels=3)
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
        width = num_labels if name == "forest" else 1
        empty: dict[str, Tensor] = {
            "feature": torch.zeros(0, dtype=torch.int32),
            "threshold": torch.zeros(0, dtype=torch.float64),
            "missing_left": torch.zeros(0, dtype=torch.bool),
            "left": torch.zeros(0, dtype=torch.int32),
            "right": torch.zeros(0, dtype=torch.int32),
            "roots": torch.zeros(0, dtype=torch.int32),
            "values": torch.zeros(0, width, dtype=torch.float64),
            "columns": torch.zeros(0, dtype=torch.int32),
            "base": torch.zeros(num_labels, dtype=torch.float64),
            "smoothing": torch.zeros((), dtype=torch.float64),
            "exclusive": torch.zeros((), dtype=torch.bool),
            "steps": torch.zeros((), dtype=torch.int32),
        }
        for key, tensor in empty.items():
            self.register_buffer(key, tensor)

    # From scikit-learn -----------------------------------------------------------------------

    def set_trees(self, trees: list[Nodes], columns: Array | None = None) -> Trees:
        """Take these trees; of ``boosting``, each with the label that it adds to."""
        sizes = np.array([len(tree.left) for tree in trees], dtype=np.int64)
        starts = np.r_[0, sizes.cumsum()[:-1]] if len(trees) else np.zeros(0, np.int64)
        leaf_values, left, right = [], [], []
        # A leaf points at itself; its feature says where its values stand.
        feature, count = [], 0
        for start, tree in zip(starts, trees, strict=True):
            leaves, own = tree.leaves, np.arange(len(tree.left))
            left.append(start + np.where(leaves, own, tree.left))
            right.append(start + np.where(leaves, own, tree.right))
            numbered = np.where(leaves, 0, tree.feature)
            numbered[leaves] = count + np.arange(leaves.sum())
            feature.append(numbered)
            leaf_values.append(tree.values[leaves])
            count += int(leaves.sum())
        self.feature = _joined(feature, torch.int32)
        self.left, self.right = _joined(left, torch.int32), _joined(right, torch.int32)
        self.threshold = _joined([tree.threshold for tree in trees], torch.float64)
        self.missing_left = _joined([tree.missing_left for tree in trees], torch.bool)
        self.roots = torch.from_numpy(starts).to(torch.int32)
        if trees:
            self.values = _joined(leaf_values, torch.float64)
        if columns is not None:
            self.columns = torch.from_numpy(np.asarray(columns)).to(torch.int32)
        self.steps.fill_(max((_depth(tree) for tree in trees), default=0))
        return self

    # Scores ----------------------------------------------------------------------------------

    def forward(self, inputs: Tensor) -> Tensor:
        if inputs.ndim != 2 or inputs.shape[1] != self.num_features:
            raise InputError(
                f"{self.name} takes inputs of shape (rows, {self.num_features}); got "
                f"{tuple(inputs.shape)}."
            )
        kind = inputs.dtype
        sums = self._sums(inputs.float().double())
        if self.name == "forest":
            return self.scores_of(sums).to(kind)
        return (self.base + sums).to(kind)

    def votes(self, inputs: Tensor) -> Tensor:
        """Return the mean share of each label over the trees of a forest, float64."""
        return self._sums(inputs.float().double())

    def scores_of(self, votes: Tensor, exclusive: bool = True) -> Tensor:
        """Return the scores of a forest's votes; log-odds of each label unless ``exclusive``."""
        # A pseudo-tree at the labels' rates: no vote is ever 0 or 1, however few the trees.
        weight = self.smoothing
        present = (votes + weight * self.base) / (1 + weight)
        absent = (1 - votes + weight * (1 - self.base)) / (1 + weight)
        against = absent.log()
        # Not `where`, which onnxruntime lacks for float64.
        return present.log() - (against * (~self.exclusive).double() if exclusive else against)

    def _sums(self, inputs: Tensor) -> Tensor:
        if torch.jit.is_tracing():  # pyright: ignore[reportPrivateImportUsage]
            return self._walk(inputs)
        step = max(1, WALKS // max(1, len(self.roots)))
        return torch.cat([self._walk(block) for block in inputs.split(step)] or [inputs[:, :0]])

    def _walk(self, inputs: Tensor) -> Tensor:
        """Return the sum of the leaves' values, one column per label."""
        rows = inputs.shape[0]
        total = inputs.new_zeros(rows, self.num_labels)
        if not len(self.roots):
            return total
        node = self.roots.long().expand(rows, -1)
        missing = inputs.isnan()
        for _ in range(int(self.steps)):
            # At a leaf the column does not matter: both children are the leaf itself.
            column = self.feature[node].long() % self.num_features
            low = inputs.gather(1, column) <= self.threshold[node]  # no for a missing value
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

    def _load_from_state_dict(self, state_dict: dict[str, Any], prefix: str, *rest: Any) -> None:
        """Take the shapes of the file; refuse trees that lead nowhere."""
        found = {key: state_dict[prefix + key] for key in BUFFERS if prefix + key in state_dict}
        for key, tensor in found.items():
            setattr(
                self,
                key,
                torch.empty_like(getattr(self, key), device="cpu").new_empty(tensor.shape),
            )
        super()._load_from_state_dict(state_dict, prefix, *rest)
        self._check()

    def _check(self) -> None:
        nodes, leaves = len(self.feature), len(self.values)
        same = all(len(getattr(self, key)) == nodes for key in BUFFERS[:5])
        trees = len(self.columns) == len(self.roots) or self.name == "forest"
        width = self.values.ndim == 2 and self.values.shape[1] == (
            self.num_labels if self.name == "forest" else 1
        )
        inside = same and trees and width
        for key, most in (("left", nodes), ("right", nodes), ("roots", nodes)):
            inside = inside and _within(getattr(self, key), most)
        inside = inside and _within(self.columns, self.num_labels)
        if inside and nodes:
            own = torch.arange(nodes, dtype=torch.int32)
            ends = self.left == own
            inside = bool(
                ((self.left > own) & (self.right > own) | ends & (self.right == own)).all()
            )
            inside = inside and _within(self.feature[ends], leaves)
            inside = inside and _within(self.feature[~ends], self.num_features)
            inside = inside and 0 <= int(self.steps) <= nodes
        if not inside:
            raise RuntimeError(f"the trees of a {self.name} do not fit each other or its columns.")


def _within(numbers: Tensor, most: int) -> bool:
    return bool(((numbers >= 0) & (numbers < most)).all())


def _joined(parts: list[Array], kind: torch.dtype) -> Tensor:
    if not parts:
        return torch.zeros(0, dtype=kind)
    return torch.from_numpy(np.concatenate(parts)).to(kind)


def _depth(tree: Nodes) -> int:
    """Return the number of steps from the root to the deepest leaf."""
    depth = np.zeros(len(tree.left), dtype=np.int64)
    for node in np.flatnonzero(~tree.leaves):  # parents stand before their children
        depth[[tree.left[node], tree.right[node]]] = depth[node] + 1
    return int(depth.max())
