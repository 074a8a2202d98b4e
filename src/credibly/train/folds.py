"""Which rows train and which are scored, for each model that is trained to choose by."""

from __future__ import annotations

import dataclasses
from functools import cached_property

import numpy as np

from credibly.types import Array


@dataclasses.dataclass(frozen=True)
class Folds:
    """For each model to train, the rows it is trained on and the rows that it scores.

    Attributes:
        parts: pairs of row numbers: rows to train on, rows to score.
    """

    parts: list[tuple[Array, Array]]

    def __len__(self) -> int:
        return len(self.parts)

    @classmethod
    def crossed(cls, targets: Array, count: int, seed: int, models: int | None = None) -> Folds:
        """Return folds that leave every row out once, or in turns where there are more models.

        Args:
            targets: (n, L), which rows are dealt by.
            count: number of folds.
            seed: of the order.
            models: number of models, ``count`` if not given; each further round of ``count`` models
                divides the rows anew.
        """
        parts = []
        for number in range(models or count):
            round_, place = divmod(number, count)
            fold = fold_numbers(targets, count, seed + round_)
            parts.append((np.flatnonzero(fold != place), np.flatnonzero(fold == place)))
        return cls(parts)

    @cached_property
    def trained(self) -> Array:
        """Return the rows that some model trains on."""
        return np.unique(np.concatenate([inside for inside, _ in self.parts]))

    @cached_property
    def scored(self) -> Array:
        """Return the rows that some model scores, in their order, each once."""
        return np.unique(np.concatenate([outside for _, outside in self.parts]))

    def averaged(self, scores: list[Array]) -> Array:
        """Return the mean score of each scored row over the models that score it.

        Example:
            >>> folds = Folds([(np.array([1]), np.array([0])), (np.array([0]), np.array([1]))])
            >>> folds.averaged([np.array([[0.5]]), np.array([[2.0]])]).tolist()
            [[0.5], [2.0]]
        """
        places = np.searchsorted(self.scored, np.concatenate([out for _, out in self.parts]))
        total = np.zeros((len(self.scored), scores[0].shape[1]))
        np.add.at(total, places, np.concatenate(scores))
        return total / np.bincount(places, minlength=len(total))[:, None]


def fold_numbers(targets: Array, count: int, seed: int) -> Array:
    """Return a fold for each row, with the rows of each label spread evenly.

    Example:
        >>> fold_numbers(np.eye(2)[[0, 0, 1, 1]], 2, seed=0).tolist()
        [0, 1, 0, 1]
    """
    from credibly.data.splits import rarest_label

    order = np.random.default_rng(seed).permutation(len(targets))
    order = order[np.argsort(rarest_label(targets)[order], kind="stable")]
    folds = np.empty(len(targets), dtype=np.int64)
    folds[order] = np.arange(len(targets)) % count
    return folds
