"""Folders of shards: the names of their files, and whether all of them are there."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

from credibly.checks import InputError
from credibly.types import FilePath, JsonObject

# The metadata of a shard contains its index, the number of shards, and the rows of all shards
# together (`shard`). Files of version 0.1 have index and number in their name instead.
_NAME = re.compile(r"part-(\d{1,9})-of-(\d{1,9})\.parquet")


def parquet_files(path: Path) -> list[Path]:
    """Return the file itself, or the complete Parquet files of a folder in order of their names.

    By convention, files whose names begin with ``.`` or ``_`` are still being written.
    """
    if not path.is_dir():
        return [path]
    files = sorted(
        file
        for file in path.iterdir()
        if file.suffix == ".parquet" and not file.name.startswith((".", "_"))
    )
    if not files:
        raise InputError(f"the folder {path} must hold Parquet files (*.parquet); it has none.")
    return files


def identity(path: FilePath) -> tuple[tuple[str, int, int, int], ...]:
    """Return a key that changes when a file of the dataset is replaced, added or removed."""
    try:
        found = [(file, file.stat()) for file in parquet_files(Path(path))]
    except FileNotFoundError as error:
        raise FileNotFoundError(f"there is no file {error.filename}") from None
    return tuple(
        (str(file), status.st_ino, status.st_size, status.st_mtime_ns) for file, status in found
    )


@dataclass(frozen=True)
class Place:
    """The index of a shard, and the rows of all shards together (0 if not known)."""

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
    """Return the metadata with the index of a shard."""
    return {"shard": {"index": index, "count": count, "rows": rows}}


def place_of(name: str, metadata: JsonObject) -> Place | None:
    """Return the index of a shard, or None if neither its metadata nor its name has one."""
    said = metadata.get("shard")
    if isinstance(said, dict):
        numbers = [said.get(each) for each in ("index", "count", "rows")]
        valid = [number for number in numbers if isinstance(number, int) and number >= 0]
        if len(valid) == len(numbers):
            return Place(*valid)
    match = _NAME.fullmatch(name)
    return None if match is None else Place(int(match[1]), int(match[2]))


def check_complete(folder: Path, files: Mapping[str, JsonObject], *, partial: bool) -> None:
    """Raise if shards of the folder are missing (unless ``partial``) or appear twice.

    Args:
        folder: the folder.
        files: the metadata of each file, by its name; empty for files that are not predictions.
        partial: whether shards may be missing.
    """
    names: dict[int, str] = {}
    first, rows = ("", Place(0, 0)), 0
    for name, metadata in files.items():
        place = place_of(name, metadata)
        if place is None:
            continue
        first = first if names else (name, place)
        if place.count != first[1].count:
            raise InputError(
                f"{folder} must hold the shards of one prediction; {first[0]} is one of "
                f"{first[1].count}, {name} one of {place.count}. Keep them in folders of their own."
            )
        if place.index in names:
            raise InputError(
                f"{folder} must hold every shard once; {names[place.index]} and {name} are both "
                f"shard {place.index} of {place.count}. Remove one."
            )
        names[place.index], rows = name, max(rows, place.rows)
    count = first[1].count
    # Empty shards are not written: with fewer rows than shards, the last shards do not exist.
    needed = min(count, rows) if rows else count
    number = needed - sum(index < needed for index in names)
    if partial or not number:
        return
    missing = (index for index in range(needed) if index not in names)
    listed = ", ".join(shard_name(index, count) for index in islice(missing, 3))
    more = f" and {number - 3} more" if number > 3 else ""
    raise InputError(
        f"{folder} must hold all {needed} shards; {listed}{more} {'is' if number == 1 else 'are'} "
        f"missing. Run `credibly predict RUN DATA --shards {count} --out {folder}` again: it "
        "writes only the missing ones. To read the others as they are, pass partial=True "
        "(--partial)."
    )
