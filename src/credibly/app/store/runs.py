"""Folders of runs: which there are, how far each has come, and which predictions they hold."""

from __future__ import annotations

import hashlib
import os
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from threading import Lock

from credibly.app.store.store import Served
from credibly.checks import InputError
from credibly.notebook import counted
from credibly.predictions import Dataset
from credibly.train import read_log
from credibly.train.run_folder import is_run, read_config
from credibly.types import JsonObject

PREDICTIONS = "predictions.parquet"
MOST_RUNS = 100
DEPTH = 3
"""Folders below the one that is served in which runs are looked for."""
MOST_FOLDERS = 5_000
SECONDS = 1.0
"""A folder is listed again after this time; requests in between see the last list."""
SETTINGS = ("loss", "model", "epochs", "seed")


@dataclass(frozen=True)
class RunState:
    """One run, or predictions without one.

    Attributes:
        name: what pages call it.
        path: its folder; the file where there are only predictions.
        file: number of its predictions among the served files; None while there are none.
        about: loss, model and epochs from its configuration; empty without one.
        epochs: one entry per finished epoch, from ``log.jsonl``.
        finished: whether the run has come to its end.
        problem: why it cannot be read; empty otherwise.
    """

    name: str
    path: Path
    file: int | None
    about: JsonObject = field(default_factory=dict)
    epochs: list[JsonObject] = field(default_factory=list)
    finished: bool = True
    problem: str = ""

    @property
    def words(self) -> str:
        """Return how far it has come."""
        if self.problem:
            return "cannot be read" if self.file is None else "damaged"
        if not self.about:
            return "predictions"
        done, of = len(self.epochs), self.about.get("epochs")
        if self.finished:
            return f"finished, {counted(done, 'epoch')}" if done else "finished"
        return f"not finished, epoch {done} of {of}" if of else f"not finished, epoch {done}"

    def to_dict(self) -> JsonObject:
        """Return plain values."""
        return {
            "name": self.name,
            "file": self.file,
            "state": self.words,
            "finished": self.finished,
            "problem": self.problem,
            **self.about,
            "epochs": self.epochs,
        }


def is_folder_of_runs(path: str | os.PathLike[str]) -> bool:
    """Return whether a path is a run, or a folder of runs or of predictions of the same rows.

    A folder of Parquet files is one dataset in parts, unless two of its files begin with the same
    row: parts of a dataset have no row in common.
    """
    folder = Path(path)
    if not folder.is_dir():
        return False
    files = _parquet(folder)
    return is_run(folder) or not files or _same_rows(files)


def _parquet(folder: Path) -> list[Path]:
    found = folder.glob("*.parquet")
    return sorted(file for file in found if not file.name.startswith((".", "_")))


def _same_rows(files: Sequence[Path]) -> bool:
    seen = set()
    for file in files if len(files) > 1 else ():
        try:
            scan = Dataset(file)
            first = str(scan.read(labels=scan.labels[:1], rows=[0]).ids[0])
        except (InputError, OSError):
            return False  # told by whoever opens the folder as a dataset
        if first in seen:
            return True
        seen.add(first)
    return False


def _search(folder: Path) -> list[tuple[str, Path]]:
    """Return the names and folders of runs, in order, and files of predictions without one."""
    if is_run(folder):
        return [(folder.resolve().name, folder)]
    loose = [(file.stem, file) for file in _parquet(folder)]
    below = list(_walk(folder, DEPTH))
    # `runs/a` and `runs/b` are called a and b.
    top = Path(os.path.commonpath([run.parent for run in below])) if below else folder
    return [*loose, *((run.relative_to(top).as_posix(), run) for run in below)]


def _walk(folder: Path, depth: int) -> Iterable[Path]:
    inner = [each for each in sorted(folder.iterdir()) if each.is_dir()]
    for each in inner[:MOST_FOLDERS]:
        if each.name.startswith("."):
            continue
        if is_run(each) or (each / PREDICTIONS).exists():
            yield each
        elif depth > 1:
            yield from _walk(each, depth - 1)


class Runs:
    """The runs of some folders. Predictions that appear later are served from then on.

    Args:
        folders: where to look.
        files: the served files; new ones are appended, so that numbers of files stay what they are.
        open_file: opens predictions, by path and name.
    """

    def __init__(
        self,
        folders: Sequence[Path],
        files: list[Served],
        open_file: Callable[[Path, str], Served],
    ) -> None:
        self.folders, self._files, self._open = folders, files, open_file
        self._numbers: dict[Path, int] = {}
        self._logs: dict[Path, tuple[tuple[int, int], list[JsonObject]]] = {}
        self._lock = Lock()
        self._listed: tuple[float, list[RunState]] = (-SECONDS, [])
        for folder in self.folders:
            if not _search(folder):
                raise InputError(
                    f"{folder} must hold predictions (*.parquet) or runs (folders with config.toml "
                    f"or {PREDICTIONS}, at most {DEPTH} levels down); it has neither."
                )
        self.states()

    def states(self) -> list[RunState]:
        """Return the runs as they are now."""
        with self._lock:
            if time.monotonic() - self._listed[0] >= SECONDS:
                listed = self._list()
                self._listed = (time.monotonic(), listed)
            return self._listed[1]

    def tag(self) -> str:
        """Return a text that changes whenever a state changes."""
        shown = repr([(each.path, each.file, each.words, each.epochs) for each in self.states()])
        return hashlib.sha256(shown.encode()).hexdigest()[:20]

    def _list(self) -> list[RunState]:
        found = []
        for folder in self.folders:
            try:
                found += _search(folder)
            except OSError:  # removed while the server runs
                continue
        return [self._state(*each) for each in found[:MOST_RUNS]]

    def _state(self, name: str, path: Path) -> RunState:
        about: JsonObject = {}
        epochs: list[JsonObject] = []
        number, finished, problems = None, True, []
        try:
            if is_run(path):
                settings = read_config(path)["settings"]
                about = {key: settings[key] for key in SETTINGS if key in settings}
                finished = (path / "calibration.json").exists()
                epochs = self._epochs(path / "log.jsonl")
        except (InputError, OSError) as error:
            problems.append(str(error))
        try:
            file = path if path.is_file() else path / PREDICTIONS
            if file.exists():
                number = self._number(file, name)
        except (InputError, OSError) as error:
            problems.append(str(error))
        problem = " ".join(problems)
        return RunState(name, path, number, about, epochs, finished, problem)

    def _number(self, path: Path, name: str) -> int:
        if path not in self._numbers:
            opened = self._open(path, name)
            self._files.append(opened)
            self._numbers[path] = len(self._files) - 1
        return self._numbers[path]

    def _epochs(self, path: Path) -> list[JsonObject]:
        """Return the epochs so far; the log is read again when it has changed."""
        try:
            status = path.stat()
        except FileNotFoundError:
            return []
        key = (status.st_mtime_ns, status.st_size)
        if path not in self._logs or self._logs[path][0] != key:
            self._logs[path] = (key, read_log(path))
        return self._logs[path][1]
