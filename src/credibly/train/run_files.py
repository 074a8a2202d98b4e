"""Every file of a run with the function that reads it, to find the damaged one."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from credibly.files import read_json_object
from credibly.train.checkpoint import read_tensors
from credibly.train.configuration import Settings
from credibly.train.log import read_log
from credibly.train.run import load
from credibly.train.run_folder import (
    CALIBRATION,
    CANDIDATES,
    CONFIG,
    METRICS,
    MODEL,
    check_config,
    check_layout,
    read_config,
)
from credibly.train.user_objects import OBJECT, PYTHON

_READERS: dict[str, Callable[[Path], object]] = {
    MODEL: read_tensors,
    CALIBRATION: read_json_object,
    METRICS: read_json_object,
    CANDIDATES: read_json_object,
    "log.jsonl": read_log,
    "compared.json": read_json_object,
}


def run_readers(folder: Path) -> dict[Path, Callable[[], object]]:
    """Return the files of a run, predictions excepted, with a function that reads each to its end.

    The last entry is the folder itself: whether its files fit each other.
    """
    readers: dict[Path, Callable[[], object]] = {folder / CONFIG: lambda: _read_config(folder)}
    for name, read in _READERS.items():
        path = folder / name
        if path.exists():
            readers[path] = lambda path=path, read=read: read(path)
    for path in sorted((folder / "state").glob("step-*.safetensors")):
        readers[path] = lambda path=path: read_tensors(path)
    if (folder / MODEL).exists() and (folder / CALIBRATION).exists():
        readers[folder] = lambda: _load(folder)
    return readers


def _read_config(folder: Path) -> None:
    config = read_config(folder)
    check_layout(config, folder / CONFIG)
    check_config(config, folder / CONFIG)
    Settings.from_mapping(config["settings"], str(folder / CONFIG))


def _load(folder: Path) -> None:
    settings = Settings.from_mapping(read_config(folder)["settings"], str(folder / CONFIG))
    # A network of somebody else's is not imported only to see whether its weights fit.
    if not settings.model.startswith((OBJECT, PYTHON)) and ":" not in settings.model:
        load(folder)
