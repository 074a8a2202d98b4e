"""Choose the rows to fit on, and read and write rows shard by shard on any executor.

Workers write into a folder that all of them can access. A file is complete or does not exist. A
task that is repeated writes the same file.
"""

from __future__ import annotations

import hashlib
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from credibly import checks
from credibly.checks import InputError, out_can_be_written
from credibly.data.splits import uniforms
from credibly.executors import A, Executor
from credibly.files import check_out
from credibly.predictions import Dataset, Predictions
from credibly.predictions.shard import shard_name
from credibly.types import Array, FilePath

if TYPE_CHECKING:
    from credibly.pipeline import Pipeline

MOST_DRAWN = 2**24
"""Up to so many rows, exactly the number asked for is drawn."""

MOST_COMPARED = 2**20
"""Up to so many rows, ids are compared with those that a rule was fitted on."""


@dataclass(frozen=True)
class FitRows:
    """A seeded share, or number, of the rows to fit on.

    Attributes:
        fraction: share of the rows, in (0, 1).
        rows: number of rows, instead of a share.
        seed: seed of the draw.

    Example:
        >>> FitRows(fraction=0.25).draw(np.arange(8), "rows of x.csv")
        (array([2, 4]), array([0, 1, 3, 5, 6, 7]))
    """

    fraction: float = 0.5
    rows: int | None = None
    seed: int = 0

    def __post_init__(self) -> None:
        checks.fraction("fraction", self.fraction, low_open=True, high_open=True)
        checks.at_least("seed", self.seed, 0)

    def draw(self, usable: Array, where: str) -> tuple[Array, Array]:
        """Split the row numbers ``usable`` into sorted rows to fit on and rows held out.

        Raises:
            InputError: if either part would be empty. ``where`` names the rows in the message.
        """
        if len(usable) < 2:
            raise InputError(
                f"there must be at least 2 {where}, one to fit on and one for the metrics; got "
                f"{len(usable)}."
            )
        count = round(self.fraction * len(usable)) if self.rows is None else self.rows
        if not 1 <= count < len(usable):
            raise InputError(
                f"the number of rows to fit on must lie between 1 and {len(usable) - 1}, so that "
                f"some of the {where} are left to judge by; got {count}. Change `fraction` or "
                "`rows`."
            )
        order = np.random.default_rng(self.seed).permutation(usable)
        return np.sort(order[:count]), np.sort(order[count:])

    def choose(self, num_rows: int, where: str, most: int | None = None) -> RowChoice:
        """Choose among all rows, as ``draw`` does up to 16.8 million rows.

        With more rows, a hash of the row number decides, so nothing is stored per row. The number
        of chosen rows is then only approximate.

        Args:
            num_rows: number of rows.
            where: names the rows in messages.
            most: maximum number of rows to choose, approximately.
        """
        asked = self
        if most is not None and self._count(num_rows) > most:
            asked = replace(self, rows=max(1, most))
        if num_rows <= MOST_DRAWN:
            fitted, _ = asked.draw(np.arange(num_rows), where)
            mask = np.zeros(num_rows, dtype=bool)
            mask[fitted] = True
            return RowChoice(mask=np.packbits(mask))
        return RowChoice(share=asked._count(num_rows) / num_rows, seed=self.seed)

    def _count(self, num_rows: int) -> int:
        return round(self.fraction * num_rows) if self.rows is None else self.rows


@dataclass(frozen=True)
class RowChoice:
    """The rows of a dataset to fit on, for any range of rows; the same on every worker.

    Example:
        >>> choice = FitRows(fraction=0.25).choose(8, "rows of x.csv")
        >>> choice.mask_of(2, 4)
        array([ True, False,  True, False])
    """

    mask: Array | None = None
    share: float = 0.0
    seed: int = 0

    def mask_of(self, first_row: int, count: int) -> Array:
        """Return a mask of the rows to fit on, for ``count`` rows from ``first_row``."""
        if self.mask is not None:
            first_byte, last = first_row // 8, first_row + count
            bits = np.unpackbits(self.mask[first_byte : -(-last // 8)])
            return bits[first_row - 8 * first_byte :][:count].astype(bool)
        rows = np.arange(first_row, first_row + count, dtype=np.uint64)
        return uniforms(self.seed, 0, rows, 1)[:, 0] < self.share


def id_sample(ids: Array, fitted: Array, size: int = 256) -> list[str]:
    """Return digests of some ids of the fitted rows; none if ids are only row numbers.

    Example:
        >>> rows = np.array(["ann", "bob", "eve"], dtype=object)
        >>> fitted_share(id_sample(rows, np.array([0, 1])), ["eve", "bob"])
        0.5
    """
    if all(name == str(row) for row, name in enumerate(ids[:3])):
        return []
    return sorted(map(_digest, ids[fitted[:: -(-len(fitted) // size)]]))


def fitted_share(sample: list[str], ids: Array | list[str]) -> float:
    """Return the share of the sampled ids of fitted rows that are in ``ids``."""
    return len(set(sample).intersection(map(_digest, ids))) / len(sample) if sample else 0.0


def _digest(name: str) -> str:
    return hashlib.blake2b(name.encode(), digest_size=8).hexdigest()


def warn_of_fitted_rows(scan: Dataset, rule: Pipeline | None = None) -> None:
    """Warn if rows of a predictions file fitted its calibrator, or a rule applied to it."""
    said = scan.metadata.get("calibration")
    no_map = scan.metadata.get("calibrator") == {"calibrator": "none"}
    said = said if isinstance(said, dict) and not no_map else {}
    numbers = [said.get(name) for name in ("fitted_rows", "judged_rows", "fitted_share")]
    fitted, judged, share = (each if isinstance(each, (int, float)) else 0 for each in numbers)
    what = "its calibration map"
    if 0 < fitted <= scan.num_rows - judged:
        share = 1.0
    if not share and rule is not None and scan.num_rows <= MOST_COMPARED:
        share, what = fitted_share(rule.fitted_ids, scan.ids()), "this rule"
    if share:
        other = " To leave them out, calibrate with --keep judged." if fitted else ""
        warnings.warn(
            f"{scan.path} holds {100 * share:.0f} % of the rows that {what} was fitted on. "
            f"Metrics on these rows are too good, and guarantees do not hold for them.{other}",
            stacklevel=3,
        )


Batches = Iterator[tuple[int, Predictions]]


def check_paths(
    executor: Executor,
    out: FilePath,
    inputs: list[FilePath],
    endings: tuple[str, ...],
) -> None:
    """Raise for paths that cannot be read or written, before any work is done.

    Args:
        executor: the executor that writes.
        out: a file with one of the ``endings``, or a new or empty folder.
        inputs: the paths to read.
        endings: of files that can be written; none if only a folder can be written.
    """
    folder = Path(out)
    if executor.local and folder.suffix and endings:
        check_out(folder, endings, inputs=inputs)
        return
    if folder.suffix in endings:
        raise InputError(f"`out` must be a folder, for a file per shard; got {str(out)!r}.")
    out_can_be_written(folder, folder=True)
    if folder.is_dir() and any(folder.iterdir()):
        raise InputError(f"`out` must be a new or empty folder; {folder} holds files.")


def collect(
    dataset: Dataset,
    executor: Executor,
    arrays: Callable[[Predictions, int], dict[str, Array]],
    labels: list[str] | None = None,
) -> dict[str, Array]:
    """Return arrays of some rows of a dataset, collected from the workers.

    Args:
        dataset: the predictions.
        executor: the executor that reads.
        arrays: called with a batch and the number of its first row.
        labels: order of the labels; None: that of the dataset.
    """
    pieces = dataset.pieces()
    reader = dataset.piece_reader.of_labels(dataset.labels if labels is None else labels)

    def work(index: int) -> dict[str, Array]:
        return _joined([arrays(rows, first) for first, rows in reader.batches(pieces[index])])

    return _joined(executor.each(len(pieces), work, str(dataset.path)))


def _joined(parts: Sequence[Mapping[str, Array]]) -> dict[str, Array]:
    """Concatenate the rows of all parts; narrower rows are padded with 0."""
    found = {}
    for name, first in parts[0].items():
        arrays = [part[name] for part in parts]
        if first.ndim == 2:
            width = max(each.shape[1] for each in arrays)
            arrays = [np.pad(each, ((0, 0), (0, width - each.shape[1]))) for each in arrays]
        found[name] = np.concatenate(arrays)
    return found


def write_shards(
    dataset: Dataset,
    executor: Executor,
    out: Path,
    accumulator: A,
    work: Callable[[Path, int, int, Batches, A], None],
    labels: list[str] | None = None,
) -> None:
    """Transform the rows of a dataset and write them as one file, or as one file per shard.

    Args:
        dataset: the predictions.
        executor: the executor that writes.
        out: a file if it has an ending and the executor can write one, else a folder.
        accumulator: an empty accumulator; receives what ``work`` adds.
        work: called with a file to write, its index and their number, (number of the first row,
            batch) of its rows, and a separate accumulator.
        labels: order of the labels; None: that of the dataset.
    """
    shards = dataset.pieces()
    reader = dataset.piece_reader.of_labels(dataset.labels if labels is None else labels)
    files = [(out, shards)]
    if not (executor.local and out.suffix):
        out.mkdir(parents=True, exist_ok=True)
        names = [shard_name(index, len(shards)) for index in range(len(shards))]
        files = [(out / name, [shard]) for name, shard in zip(names, shards, strict=True)]
    empty = deepcopy(accumulator)

    def task(index: int) -> dict[str, Array]:
        path, some = files[index]
        mine = deepcopy(empty)
        rows = (pair for shard in some for pair in reader.batches(shard))
        work(path, index, len(files), rows, mine)
        return mine.state()

    for state in executor.each(len(files), task, str(dataset.path)):
        accumulator.merge(state)


def holds_top_labels(path: FilePath) -> bool:
    """Return whether ``path`` is a predictions file with only the most probable labels of each row.

    Example:
        >>> holds_top_labels("scores.npz")
        False
    """
    try:
        return Dataset(path, partial=True).top
    except (OSError, ValueError):
        return False  # of another kind, or damaged: the reader reports the problem
