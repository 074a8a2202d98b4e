"""Which rows make which batch: a function of seed and epoch, cut the same for any process count."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.utils.data import DataLoader

from credibly.child_processes import end_with_parent


def mixed(*numbers: int) -> int:
    """Return one seed from several numbers; near ones give unrelated seeds.

    Example:
        >>> mixed(0, 1) == mixed(0, 1), mixed(0, 1) == mixed(1, 0)
        (True, False)
    """
    digest = hashlib.blake2b(repr(numbers).encode(), digest_size=7)
    return int.from_bytes(digest.digest(), "little")


def epoch_batches(num_rows: int, batch_size: int, seed: int, epoch: int) -> list[Tensor]:
    """Return the rows of one epoch in their order, in batches of nearly equal size.

    Equal sizes, at most ``batch_size``, rather than a small rest at the end: a last batch of one
    row would break batch norm and weigh that row like a whole batch.

    Example:
        >>> [len(batch) for batch in epoch_batches(10, 4, seed=0, epoch=0)]
        [4, 3, 3]
    """
    generator = torch.Generator().manual_seed(mixed(seed, epoch))
    order = torch.randperm(num_rows, generator=generator)
    return list(order.tensor_split(number_of_batches(num_rows, batch_size)))


def rows_per_step(given: int | None, num_rows: int) -> int:
    """Return ``given``, or a power of two from 32 to 128: about 25 steps per epoch if rows are few.

    On a few hundred rows 128 leave too few steps to learn in; on thousands 32 are no better, and
    slower (docs/results.md).

    Example:
        >>> [rows_per_step(None, rows) for rows in (200, 1600, 5000)], rows_per_step(7, 5000)
        ([32, 64, 128], 7)
    """
    if given is not None:
        return given
    return min(128, max(32, 2 ** ((num_rows // 25).bit_length() - 1)))


def number_of_batches(num_rows: int, batch_size: int) -> int:
    """Return the number of batches per epoch; every process takes part in each."""
    return max(1, -(-num_rows // batch_size))


def share(batches: Sequence[Tensor], rank: int, processes: int) -> list[Tensor]:
    """Return this process's rows of each batch; the processes together have all rows of it."""
    return [batch.tensor_split(processes)[rank] for batch in batches]


def stream(dataset: Any, batches: Sequence[Tensor], workers: int) -> Iterator[tuple[Tensor, ...]]:
    """Yield (inputs, targets, rows) of each batch; ``workers`` processes decode them if any."""
    if workers == 0:
        return map(dataset.batch, batches)
    loader = DataLoader(
        _Batches(dataset, batches),
        batch_size=None,
        num_workers=workers,
        prefetch_factor=4,
        worker_init_fn=end_with_parent,
    )
    return iter(loader)


class _Batches(torch.utils.data.Dataset[Any]):
    """Batch numbers as items, so that a worker makes whole batches and nothing is collated."""

    def __init__(self, dataset: Any, batches: Sequence[Tensor]) -> None:
        self.dataset, self.batches = dataset, batches

    def __len__(self) -> int:
        return len(self.batches)

    def __getitem__(self, number: int) -> tuple[Tensor, ...]:
        return self.dataset.batch(self.batches[number])
