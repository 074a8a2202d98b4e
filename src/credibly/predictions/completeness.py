"""Whether a folder holds all shards of the dataset it was predicted from.

A shard says which it is by its metadata (``shard``: index, count, and rows of all shards together)
or, in files of version 0.1, by its name: ``part-00003-of-00004.parquet``.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from itertools import islice
from pathlib import Path
from typing import NamedTuple

from credibly.checks import InputError
from credibly.predictions.shard import Shard

_NAME = re.compile(r"part-(\d{1,9})-of-(\d{1,9})\.parquet")


class Place(NamedTuple):
    """Which shard a file is; ``rows`` are those of all shards together, 0 where not known."""

    index: int
    count: int
    rows: int = 0


def shard_name(index: int, count: int) -> str:
    """Return the file name of a shard.

    Example:
        >>> shard_name(3, 4)
        'part-00003-of-00004.parquet'
    """
    return f"part-{index:05d}-of-{count:05d}.parquet"


def shard_metadata(index: int, count: int, rows: int) -> dict[str, dict[str, int]]:
    """Return the metadata that says which shard a file is."""
    return {"shard": Place(index, count, rows)._asdict()}


def place_of(shard: Shard) -> Place | None:
    """Return which shard a file is, None where it does not say."""
    said = shard.schema.metadata.get("shard")
    if isinstance(said, dict):
        numbers = [said.get(name) for name in Place._fields]
        valid = [number for number in numbers if isinstance(number, int) and number >= 0]
        if len(valid) == len(numbers):
            return Place(*valid)
    return _place_in(shard.path.name)


def check_complete(folder: Path, shards: Sequence[Shard], *, partial: bool) -> None:
    """Raise if shards of the folder are missing (unless ``partial``) or there twice."""
    _check(folder, [(shard.path.name, place_of(shard)) for shard in shards], partial)


def check_names(folder: Path, files: Sequence[Path], *, partial: bool) -> None:
    """Raise as ``check_complete`` does, for files that are no predictions, by their names alone."""
    _check(folder, [(file.name, _place_in(file.name)) for file in files], partial)


def _place_in(name: str) -> Place | None:
    match = _NAME.fullmatch(name)
    return None if match is None else Place(int(match[1]), int(match[2]))


def _check(folder: Path, files: Sequence[tuple[str, Place | None]], partial: bool) -> None:
    placed = [(name, place) for name, place in files if place is not None]
    if not placed:
        return
    first_name, first = placed[0]
    names: dict[int, str] = {}
    for name, place in placed:
        if place.count != first.count:
            raise InputError(
                f"{folder} must hold the shards of one prediction; {first_name} is one of "
                f"{first.count}, {name} one of {place.count}. Keep them in folders of their own."
            )
        if place.index in names:
            raise InputError(
                f"{folder} must hold every shard once; {names[place.index]} and {name} are both "
                f"shard {place.index} of {place.count}. Remove one."
            )
        names[place.index] = name
    if not partial:
        _refuse_missing(folder, set(names), first.count, max(place.rows for _, place in placed))


def _refuse_missing(folder: Path, held: set[int], count: int, rows: int) -> None:
    # There are no shards without rows: fewer rows than shards leave the last shards out.
    needed = min(count, rows) if rows else count
    number = needed - sum(index < needed for index in held)
    if not number:
        return
    missing = (index for index in range(needed) if index not in held)
    names = ", ".join(shard_name(index, count) for index in islice(missing, 3))
    more = f" and {number - 3} more" if number > 3 else ""
    raise InputError(
        f"{folder} must hold all {needed} shards; {names}{more} {'is' if number == 1 else 'are'} "
        f"missing. Run `credibly predict RUN DATA --shards {count} --out {folder}` again: it "
        "writes only the missing ones. To read the others as they are, pass partial=True "
        "(--partial)."
    )
