"""A predictions file, or a folder of parts, opened far enough to know that it can be searched."""

from __future__ import annotations

import json
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from credibly.checks import InputError

ID, PROBABILITY, TRUTH, PATH = "id", "p:", "y:", "path"
MAJOR = 1  # version of the layout of predictions files


@dataclass(frozen=True)
class Parts:
    """Parquet files with the same labels.

    ``columns`` are the column names of the first file; ``truths`` the labels whose truth is there;
    ``has_paths`` says whether a column ``path`` names each row's file.
    """

    where: str
    files: tuple[str, ...]
    columns: tuple[str, ...]
    labels: tuple[str, ...]
    truths: frozenset[str]

    @property
    def has_paths(self) -> bool:
        return PATH in self.columns


def is_remote(path: str | os.PathLike[str]) -> bool:
    """Whether the path is an address (``s3a://…``, ``hdfs://…``) that only a cluster reads."""
    return "://" in str(path)


def open_parts(path: str | os.PathLike[str]) -> Parts:
    """The parts at ``path``: the file itself, or every ``*.parquet`` in the folder.

    Names that start with ``.`` or ``_`` are files still being written by convention (this
    package's, Spark's) and are left out.
    """
    files = _files(Path(path))
    names = [_columns(file) for file in files]
    first = parts_of(str(path), tuple(map(str, files)), names[0])
    for file, columns in zip(files[1:], names[1:], strict=True):
        other = parts_of(str(file), (str(file),), columns)
        if set(other.labels) != set(first.labels):
            raise InputError(_difference(file, other.labels, files[0], first.labels))
        if set(columns) != set(names[0]):
            odd = sorted(set(columns) ^ set(names[0]))[0]
            raise InputError(
                f"parts must have the same columns; {odd!r} is in only one of {files[0]} and "
                f"{file}. Write them again in one layout, or search them one by one."
            )
    return first


def parts_of(where: str, files: tuple[str, ...], columns: list[str]) -> Parts:
    """What a list of column names says; ``id`` and at least one label must be there."""
    labels = tuple(name[2:] for name in columns if name.startswith(PROBABILITY))
    if ID not in columns or not labels:
        found = ", ".join(columns[:6]) + (", …" if len(columns) > 6 else "")
        raise InputError(
            f"{where} must have a column 'id' and a column 'p:<label>' for each label; got {found}."
            " Write it with `cr.Predictions.write` or `credibly predict`."
        )
    truths = frozenset(name[2:] for name in columns if name.startswith(TRUTH))
    return Parts(where, files, tuple(columns), labels, truths & frozenset(labels))


def _files(path: Path) -> list[Path]:
    if not path.is_dir():
        if not path.exists():
            raise InputError(f"{path} must be a predictions file or a folder of them; not found.")
        return [path]
    files = sorted(file for file in path.glob("*.parquet") if file.name[0] not in "._")
    if not files:
        raise InputError(f"{path} must hold Parquet files; got no '*.parquet' in this folder.")
    return files


def _columns(file: Path) -> list[str]:
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        footer = pq.read_metadata(file)
        schema: Any = footer.schema.to_arrow_schema()
    except (pa.ArrowInvalid, pa.ArrowTypeError, OSError) as error:
        raise InputError(
            f"{file} must be a complete Parquet file; {str(error).splitlines()[0]} "
            "If it is still being written, wait until it is whole or move it out of the folder."
        ) from error
    for name in schema.names:
        if "\0" in name:
            raise InputError(f"{file}: column names must not hold a zero byte; got {name!r}.")
    _check_layout(file, (footer.metadata or {}).get(b"credibly", b"{}"))
    return list(schema.names)


def _check_layout(file: Path, document: bytes) -> None:
    """Files of a newer major version are not guessed at; those of other programs have none."""
    try:
        version = str(json.loads(document).get("version", MAJOR))
        major = int(version.partition(".")[0])
    except (ValueError, AttributeError, RecursionError) as error:
        raise InputError(
            f"{file}: the metadata under 'credibly' must be a JSON object with a version; {error}."
        ) from error
    if major > MAJOR:
        raise InputError(
            f"{file}: layout version {version} is newer than {MAJOR}.0, the newest this credibly "
            "reads. Upgrade credibly."
        )


def _difference(file: Path, labels: tuple[str, ...], first: Path, expected: tuple[str, ...]) -> str:
    missing = [name for name in expected if name not in set(labels)]
    extra = [name for name in labels if name not in set(expected)]
    what = f"lacks {missing[0]!r}" if missing else f"also has {extra[0]!r}"
    return (
        f"parts must have the same labels; {file} {what} ({len(labels)} labels against "
        f"{len(expected)} in {first}). Predict it again, or search the parts one by one."
    )
