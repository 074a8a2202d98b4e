"""Texts as tensors: the encoded rows, and how rows become a batch."""

from __future__ import annotations

from functools import partial
from typing import Protocol

import numpy as np
import torch
from torch import Tensor

from credibly.types import Array


class Tensors(dict[str, Tensor]):
    """Inputs of a network by name; ``to`` moves them together, ``len`` is the number of rows.

    Example:
        >>> inputs = Tensors(rows=2, input_ids=torch.zeros(2, 5, dtype=torch.int64))
        >>> len(inputs), list(inputs)
        (2, ['input_ids'])
    """

    def __init__(self, rows: int, **tensors: Tensor) -> None:
        super().__init__(tensors)
        self.rows = rows

    def __len__(self) -> int:
        return self.rows

    def __reduce__(self) -> tuple[object, ...]:
        return partial(Tensors, self.rows, **self), ()

    def to(self, device: torch.device | str, non_blocking: bool = False) -> Tensors:
        """Return the same inputs on ``device``."""
        moved = {name: value.to(device, non_blocking=non_blocking) for name, value in self.items()}
        return Tensors(self.rows, **moved)


class RegionRows(Protocol):
    """Features of image regions per row, in addition to the text of the row."""

    @property
    def names(self) -> list[str]:
        """Return the names that enter a fingerprint."""
        ...

    @property
    def shape(self) -> tuple[int, int]:
        """Return the number of regions and the width of their features."""
        ...

    def __len__(self) -> int: ...

    def take(self, rows: Array) -> RegionRows:
        """Return these rows, in this order."""
        ...

    def batch(self, rows: Array) -> tuple[Array, Array, Array]:
        """Return features (n, regions, width), boxes (n, regions, 4) and a mask of real regions."""
        ...


class Encoded(Protocol):
    """Texts that an encoder has converted to rows of tensors."""

    @property
    def lengths(self) -> Array | None:
        """Return the number of tokens of each row, to batch rows of similar length; or None."""
        ...

    def __len__(self) -> int: ...

    def take(self, rows: Array) -> Encoded:
        """Return these rows, in this order."""
        ...

    def batch(self, rows: Array) -> Tensors:
        """Return the inputs of these rows."""
        ...


class TokenRows:
    """Token ids of each row without padding. A batch is padded to its longest row.

    Attributes:
        columns: inputs by name (``input_ids``, ``token_type_ids``), with all rows concatenated.
        starts: the first entry of each row and the end of the last, (rows + 1,).
        padding: the padding value of each input.
    """

    def __init__(self, columns: dict[str, Array], starts: Array, padding: dict[str, int]) -> None:
        self.columns, self.starts, self.padding = columns, starts, padding

    @property
    def lengths(self) -> Array | None:
        """Return the number of tokens of each row."""
        return np.diff(self.starts)

    def __len__(self) -> int:
        return len(self.starts) - 1

    def take(self, rows: Array) -> TokenRows:
        """Return these rows, in this order."""
        places, counts = row_places(self.starts, np.asarray(rows))
        columns = {name: values[places] for name, values in self.columns.items()}
        return TokenRows(columns, np.concatenate([[0], np.cumsum(counts)]), self.padding)

    def batch(self, rows: Array) -> Tensors:
        """Return each input as (rows, longest), and ``attention_mask``, which is 1 for tokens."""
        places, counts = row_places(self.starts, rows)
        mask = np.arange(int(counts.max(initial=1)))[None, :] < counts[:, None]
        inputs = {}
        for name, values in self.columns.items():
            padded = np.full(mask.shape, self.padding[name], dtype=np.int64)
            padded[mask] = values[places]
            inputs[name] = torch.from_numpy(padded)
        return Tensors(len(rows), **inputs, attention_mask=torch.from_numpy(mask.astype(np.int64)))


def row_places(starts: Array, rows: Array) -> tuple[Array, Array]:
    """Return the indices of the entries of rows, and the number of entries of each row.

    Args:
        starts: the first entry of each row and the end of the last.
        rows: row numbers.
    """
    counts = (starts[rows + 1] - starts[rows]).astype(np.int64)
    skipped = np.repeat(starts[rows] - np.cumsum(counts) + counts, counts)
    return np.arange(int(counts.sum())) + skipped, counts
