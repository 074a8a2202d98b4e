"""Which rows make which batch: a function of seed and epoch, cut the same for any process count."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import DataLoader

from credibly.child_processes import WORKER_START, end_with_parent
from credibly.types import Array


def mixed(*numbers: int) -> int:
    """Return one seed from several numbers; near ones give unrelated seeds.

    Example:
        >>> mixed(0, 1) == mixed(0, 1), mixed(0, 1) == mixed(1, 0)
        (True, False)
    """
    digest = hashlib.blake2b(repr(numbers).encode(), digest_size=7)
    return int.from_bytes(digest.digest(), "little")


BUCKET = 50
"""Batches whose rows are sorted by length together: enough to pad little, few enough to mix."""

TOKENS = 16_384
"""Most tokens of a batch that is scored, padding included."""


def epoch_batches(
    num_rows: int, batch_size: int, seed: int, epoch: int, lengths: Array | None = None
) -> list[Tensor]:
    """Return the rows of one epoch in their order, in batches of nearly equal size.

    Equal sizes, at most ``batch_size``, rather than a small rest at the end: a last batch of one
    row would break batch norm and weigh that row like a whole batch. With ``lengths``, rows of
    like length share a batch, so that little is padded; the batches come in random order.

    Example:
        >>> [len(batch) for batch in epoch_batches(10, 4, seed=0, epoch=0)]
        [4, 3, 3]
        >>> buckets = epoch_batches(6, 2, seed=0, epoch=0, lengths=np.array([9, 1, 8, 2, 5, 5]))
        >>> sorted(sorted(batch.tolist()) for batch in buckets)
        [[0, 2], [1, 3], [4, 5]]
    """
    generator = torch.Generator().manual_seed(mixed(seed, epoch))
    order = torch.randperm(num_rows, generator=generator)
    count = number_of_batches(num_rows, batch_size)
    if lengths is None:
        return list(order.tensor_split(count))
    sizes = [len(batch) for batch in order.tensor_split(count)]
    batches: list[Tensor] = []
    for start in range(0, count, BUCKET):
        inside = sizes[start : start + BUCKET]
        first = sum(sizes[:start])
        rows = order[first : first + sum(inside)]
        by_length = np.argsort(lengths[rows.numpy()], kind="stable")
        batches += rows[torch.from_numpy(by_length)].split(inside)
    return [batches[int(place)] for place in torch.randperm(count, generator=generator)]


def scoring_batches(rows: Tensor, most_rows: int, lengths: Array | None) -> list[Tensor]:
    """Return the rows to score in batches; with ``lengths``, sorted and bounded in tokens.

    Example:
        >>> rows = torch.arange(4)
        >>> [b.tolist() for b in scoring_batches(rows, 1024, np.array([9000, 1, 9000, 2]))]
        [[1, 3], [0], [2]]
    """
    if lengths is None:
        return list(rows.split(most_rows))
    own = lengths[rows.numpy()]
    order = np.argsort(own, kind="stable")
    batches: list[list[int]] = []
    for place in order.tolist():  # from short to long: the last row is the longest of its batch
        full = not batches or len(batches[-1]) >= most_rows
        if full or (len(batches[-1]) + 1) * own[place] > TOKENS:
            batches.append([])
        batches[-1].append(place)
    return [rows[torch.tensor(batch)] for batch in batches]


def rows_per_step(given: int | None, num_rows: int) -> int:
    """Return ``given``, or a power of two from 32 to 128: about 25 steps per epoch if rows are few.

    On a few hundred rows 128 leave too few steps to learn in; on thousands 32 are no better, and
    slower (benchmarks/results/defaults.md).

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
        multiprocessing_context=WORKER_START,
    )
    return iter(loader)


class _Batches(torch.utils.data.Dataset[Any]):
    """Batch numbers as items, so that a worker makes whole batches and nothing is collated."""

    def __init__(self, dataset: Any, batches: Sequence[Tensor]) -> None:
        self.dataset, self.batches = dataset, batches

    def __len__(self) -> int:
        return len(self.batches)

    def __getitem__(self, number: int) -> tuple[Tensor, ...]:
        # A batch is sent from a thread of the worker, which moves the memory of its row numbers to
        # where the other process sees it. Batches cut from one permutation share that memory, so
        # without a copy it would move while the next batch reads its rows from there.
        return self.dataset.batch(self.batches[number].clone())
