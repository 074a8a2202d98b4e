"""Are files on disk what was written? Checksums, and every value read once."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from credibly import checksums
from credibly.checks import InputError, input_file
from credibly.predictions import Dataset
from credibly.untrusted.documents import read_json_object
from credibly.workflows.label_sets import is_sets_file, read_sets_file

CHECKED = (".parquet", ".safetensors")
"""Endings of files that carry a checksum."""


@dataclass(frozen=True)
class FileCheck:
    """What was found out about one file.

    Attributes:
        path: the file, or the folder whose files must fit each other.
        checksum: "sound", "damaged", "none" (written before version 0.3, or by another program), or
            "" where no checksum is expected.
        problem: why it cannot be used; None if it can.
    """

    path: str
    checksum: str
    problem: str | None

    @property
    def sound(self) -> bool:
        """Return whether nothing was found wrong."""
        return self.problem is None and self.checksum != "damaged"


@dataclass(frozen=True)
class Integrity:
    """What ``check_files`` found."""

    path: str
    kind: str
    files: list[FileCheck]

    @property
    def sound(self) -> bool:
        """Return whether nothing was found wrong with any file."""
        return all(file.sound for file in self.files)

    def to_dict(self) -> dict[str, Any]:
        """Return plain values, for JSON."""
        return {**asdict(self), "sound": self.sound}


def check_files(path: str | os.PathLike[str]) -> Integrity:
    """Read a predictions file, a folder of shards, a run or a comparison to the end.

    Checksums are compared where files carry them, every value is read and validated, shards are
    counted, ids are compared, and the files of a run must fit each other.

    Args:
        path: a Parquet, safetensors or JSON file, a folder of shards, a run, or the folder of a
            comparison.

    Returns:
        One entry per file. Damage is reported there and not raised.

    Raises:
        InputError: if there is nothing at ``path`` that can be checked.
    """
    path = Path(path)
    if not path.is_dir():
        input_file(path)
        if not path.exists():
            raise FileNotFoundError(f"there is no file {path}")
        return Integrity(str(path), "file", [_file(path)])
    from credibly.train.run_folder import is_run

    if is_run(path):
        return Integrity(str(path), "run", _run(path))
    runs = sorted(folder.parent for folder in path.glob("runs/*/config.toml"))
    if runs:
        documents = [path / name for name in ("comparison.json", "results.json")]
        files = [_file(each) for each in documents if each.exists()]
        return Integrity(str(path), "comparison", [*files, *(f for run in runs for f in _run(run))])
    if any(path.glob("*.parquet")):
        return Integrity(str(path), "shards", _shards(path))
    raise InputError(
        f"{path} must be a folder of shards (*.parquet), a run or a comparison; it is none of them."
    )


def _run(folder: Path) -> list[FileCheck]:
    from credibly.train.run import run_readers
    from credibly.train.run_folder import MANIFEST, manifest_problems

    readers = run_readers(folder)
    fitting = readers.pop(folder, None)
    checked = {path: _examine(path, read) for path, read in readers.items()}
    try:
        recorded = manifest_problems(folder)
    except InputError as error:
        recorded = {folder / MANIFEST: str(error)}
    for path, problem in recorded.items():
        before = checked.get(path, FileCheck(str(path), "", None))
        verdict = "sound" if problem is None and before.checksum != "damaged" else "damaged"
        checked[path] = FileCheck(str(path), verdict, before.problem or problem)
    files = [*checked.values(), *(_file(path) for path in sorted(folder.glob("*.parquet")))]
    if fitting is not None and all(file.sound for file in files):
        files.append(_examine(folder, fitting))
    return files


def _shards(folder: Path) -> list[FileCheck]:
    files = [_file(path) for path in sorted(folder.glob("[!._]*.parquet"))]
    if all(file.sound for file in files):
        files.append(_examine(folder, lambda: Dataset(folder).check_ids()))
    return files


def _file(path: Path) -> FileCheck:
    readers: dict[str, Callable[[], object]] = {
        ".parquet": lambda: _read_parquet(path),
        ".safetensors": lambda: _read_tensors(path),
        ".json": lambda: read_json_object(path),
    }
    if path.suffix not in readers:
        raise InputError(
            f"{path} must end in {', '.join(readers)}, or be a folder of shards or a run."
        )
    return _examine(path, readers[path.suffix])


def _examine(path: Path, read: Callable[[], object]) -> FileCheck:
    problem: str | None = None
    checksum = ""
    try:
        if path.suffix in CHECKED and path.is_file():
            checksum = checksums.verify(path)
        read()
    except (InputError, OSError) as error:  # a lack of memory says nothing about the file
        problem = str(error)
    return FileCheck(str(path), checksum, problem)


def _read_parquet(path: Path) -> None:
    if is_sets_file(path):
        read_sets_file(path)
        return
    dataset = Dataset(path)
    for _ in dataset.batches():
        pass
    dataset.check_ids()


def _read_tensors(path: Path) -> None:
    from credibly.train.checkpoint import read_tensors

    read_tensors(path)
