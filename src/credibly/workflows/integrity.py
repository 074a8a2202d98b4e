"""Verify files: compare checksums and read every value."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from credibly import checksums
from credibly.checks import InputError, input_file
from credibly.memory_limits import not_for_lack_of_memory
from credibly.predictions import Dataset
from credibly.types import FilePath, JsonObject
from credibly.untrusted.documents import read_json_object
from credibly.workflows.label_sets import is_sets_file, read_sets_file

if TYPE_CHECKING:
    from credibly.train import Recipe

CHECKED = (".parquet", ".safetensors")
"""Endings of files that carry a checksum."""


@dataclass(frozen=True)
class FileCheck:
    """The result for one file.

    Attributes:
        path: the file, or the folder whose files must be consistent.
        checksum: "sound", "damaged", "none" (written before version 0.3 or by another program),
            or "" if no checksum is expected.
        problem: why it cannot be used, or None.
    """

    path: str
    checksum: str
    problem: str | None

    @property
    def sound(self) -> bool:
        """Return whether no problem was found."""
        return self.problem is None and self.checksum != "damaged"


@dataclass(frozen=True)
class Integrity:
    """The result of ``check_files``."""

    path: str
    kind: str
    files: list[FileCheck]

    @property
    def sound(self) -> bool:
        """Return whether no problem was found in any file."""
        return all(file.sound for file in self.files)

    def to_dict(self) -> JsonObject:
        """Return plain values, for JSON."""
        return {**asdict(self), "sound": self.sound}


def check_files(path: FilePath) -> Integrity:
    """Read a predictions file, a folder of shards, a run or a comparison to the end.

    Checksums are compared if files contain them, every value is read and validated, shards are
    counted, ids are compared, and the files of a run must be consistent.

    Args:
        path: a Parquet, safetensors or JSON file, a folder of shards, a run, or the folder of a
            comparison.

    Returns:
        One entry per file. Damage is reported there; it does not raise.

    Raises:
        InputError: if ``path`` contains nothing that can be checked.
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
        f"{path} must be a folder of shards (*.parquet), a run or a comparison; it is not."
    )


def _run(folder: Path) -> list[FileCheck]:
    from credibly.train.run_folder import CALIBRATION, MANIFEST, MODEL, manifest_problems

    files = [path for path in map(folder.joinpath, FILES_OF_RUN) if path.exists()]
    files += sorted((folder / "state").glob("step-*.safetensors"))
    checked = {path: _examine(path, READERS[path.suffix]) for path in files}
    try:
        recorded = manifest_problems(folder)
    except InputError as error:
        recorded = {folder / MANIFEST: str(error)}
    for path, problem in recorded.items():
        before = checked.get(path, FileCheck(str(path), "", None))
        verdict = "sound" if problem is None and before.checksum != "damaged" else "damaged"
        checked[path] = FileCheck(str(path), verdict, before.problem or problem)
    found = [*checked.values(), *(_file(path) for path in sorted(folder.glob("*.parquet")))]
    finished = (folder / MODEL).exists() and (folder / CALIBRATION).exists()
    if finished and all(file.sound for file in found):
        found.append(_examine(folder, _files_fit))
    return found


def _shards(folder: Path) -> list[FileCheck]:
    files = [_file(path) for path in sorted(folder.glob("[!._]*.parquet"))]
    if all(file.sound for file in files):
        files.append(_examine(folder, lambda folder: Dataset(folder).check_ids()))
    return files


def _file(path: Path) -> FileCheck:
    if path.suffix not in (*CHECKED, ".json"):
        raise InputError(
            f"{path} must end in {', '.join(CHECKED)}, .json, or be a folder of shards or a run."
        )
    return _examine(path, READERS[path.suffix])


def _examine(path: Path, read: Callable[[Path], object]) -> FileCheck:
    problem: str | None = None
    checksum = ""
    try:
        if path.suffix in CHECKED and path.is_file():
            checksum = checksums.verify(path)
        read(path)
    except (InputError, OSError) as error:
        not_for_lack_of_memory(error)
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
    from credibly.train.run_folder import read_tensors

    read_tensors(path)


def _read_config(path: Path) -> Recipe:
    from credibly.train.recipes import from_table
    from credibly.train.run_folder import read_config

    return from_table(read_config(path.parent)["settings"], str(path))[0]


def _read_log(path: Path) -> None:
    from credibly.train import read_log

    read_log(path)


def _files_fit(folder: Path) -> None:
    """Load a run, unless its network is the user's code, which a check must not import."""
    from credibly.train.run import load

    if ":" not in _read_config(folder / "config.toml").model:
        load(folder)


READERS: dict[str, Callable[[Path], object]] = {
    ".parquet": _read_parquet,
    ".safetensors": _read_tensors,
    ".json": read_json_object,
    ".jsonl": _read_log,
    ".toml": _read_config,
}
"""Functions that read a file to its end, by its ending."""

FILES_OF_RUN = (
    *("config.toml", "model.safetensors", "calibration.json", "metrics.json", "candidates.json"),
    *("log.jsonl", "compared.json"),
)
