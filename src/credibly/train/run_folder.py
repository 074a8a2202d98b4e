"""The folder of a run: configuration, checkpoints, log and checksums, and who may write to it."""

from __future__ import annotations

import dataclasses
import errno
import json
import os
import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING

import numpy as np

from credibly import __version__, checksums
from credibly.checks import InputError
from credibly.data import splits
from credibly.data.preparation import Preparation
from credibly.files import atomic_path, make_folder, sweep, write_json
from credibly.targets import SparseTargets
from credibly.train.callbacks import Callback
from credibly.train.recipes import INCIDENTAL, Recipe, Solved, from_table, to_table
from credibly.types import JsonObject
from credibly.untrusted.budget import read_bytes
from credibly.untrusted.documents import parse_json, read_json_object, read_toml
from credibly.untrusted.tensors import load_safetensors

if TYPE_CHECKING:
    from torch import Tensor

    from credibly.data import Data

LAYOUT = "1.0"

CONFIG, MODEL, CALIBRATION, METRICS = (
    "config.toml",
    "model.safetensors",
    "calibration.json",
    "metrics.json",
)


MANIFEST = "manifest.json"
"""Checksums of the files that a run is loaded from; written last: the run is finished."""

CANDIDATES = "candidates.json"
"""Which models were tried, their metrics on left-out rows, their weights; for COMPARED models."""

ENCODER = "encoder"
"""Folder of what a network for texts needs beside its weights: vocabulary or tokenizer."""


OTHERS = ("predictions.parquet", "log.jsonl", "compared.json")
"""Files of a run that it is not loaded from."""


def is_run(folder: Path) -> bool:
    """Return whether a folder contains a run, finished or not."""
    return (folder / CONFIG).exists()


MIN_ROWS = 20
"""With fewer rows, nothing is held out unless the data name held-out rows."""


def names_held_out(data: Data) -> bool:
    """Return whether the source names held-out rows, so ``load`` does not have to draw them."""
    return bool((data.split == splits.CALIBRATION).any()) and not data.drawn


def few_rows(data: Data) -> bool:
    """Return whether there are too few rows to hold some out, so all of them train.

    This is also the case if known labels exist only in training rows, or only in rows drawn as
    held out.
    """
    if names_held_out(data):
        return False
    if int((data.split != splits.TEST).sum()) < MIN_ROWS:
        return True
    held_out = bool((data.split == splits.CALIBRATION).any())
    parts = (data.decoded[data.split == part] for part in (splits.TRAIN, splits.CALIBRATION))
    return held_out and not all(targets.num_known for targets in parts)


def all_rows_train(data: Data, recipe: Recipe) -> bool:
    """Return whether nothing is held out: rows are few, or nothing is fitted on held-out rows."""
    if names_held_out(data) or recipe.folds:
        return bool(recipe.folds)
    penalties = recipe.penalties if isinstance(recipe, Solved) else None
    settled = len(penalties or []) == 1 and recipe.average_size is None
    return few_rows(data) or (settled and recipe.calibrate == "none")


@contextmanager
def claimed(
    folder: Path, recipe: Recipe, seed: int, data: Data, *, resume: bool, overwrite: bool
) -> Iterator[None]:
    """Lock ``folder`` for one writer. After a failure that cannot be resumed, remove its files.

    Raises:
        InputError: if another process writes to the folder, or if it contains something else.
    """
    made = [path for path in (folder, *folder.parents) if not path.exists()]
    make_folder(folder)
    try:
        with locked(folder):
            fresh = not (folder / CONFIG).exists()
            if overwrite and not fresh:
                _remove(folder)
                write_config(folder, recipe, seed, description(data, recipe))
            else:
                _claim(folder, recipe, seed, data, resume)
            try:
                yield
            except BaseException as error:
                if fresh and not _resumable(folder, error):
                    _remove(folder)
                raise
    except BaseException:
        for path in made:
            with suppress(OSError):  # not empty: keep it
                path.rmdir()
        raise


@contextmanager
def locked(folder: Path) -> Iterator[None]:
    """Hold a lock on ``folder`` until the block or the process ends.

    The lock is on the folder itself, so no lock file remains. On systems and file systems without
    such locks, nothing is locked.
    """
    try:
        import fcntl
    except ImportError:  # Windows
        yield
        return
    handle = os.open(folder, os.O_RDONLY)
    try:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise InputError(
                f"another process is writing {folder}. Wait until it has ended, or choose another "
                "--out."
            ) from None
        except OSError as error:
            if error.errno not in (errno.EBADF, errno.ENOLCK, errno.ENOTSUP, errno.EINVAL):
                raise
        yield
    finally:
        with suppress(OSError):  # forked workers have copies of the handle
            fcntl.flock(handle, fcntl.LOCK_UN)
        os.close(handle)


def _resumable(folder: Path, error: BaseException) -> bool:
    """Return whether there is work to resume; after an interrupt, cached features count as work."""
    interrupted = not isinstance(error, Exception)
    return (
        any((folder / "state").glob("step-*"))
        or (folder / "log.jsonl").exists()
        or (interrupted and (folder / "features").exists())
    )


def _remove(folder: Path) -> None:
    """Remove the files of a run and keep all others."""
    for name in (MANIFEST, CONFIG, MODEL, CALIBRATION, CANDIDATES, METRICS, *OTHERS):
        (folder / name).unlink(missing_ok=True)
    for name in ("state", "features", ENCODER):
        shutil.rmtree(folder / name, ignore_errors=True)


def _claim(folder: Path, recipe: Recipe, seed: int, data: Data, resume: bool) -> None:
    """Make ``folder`` the folder of this run, or check that it is."""
    config = folder / CONFIG
    if config.exists():
        if not resume:
            raise InputError(
                f"{folder} already holds a run. Continue it with `resume=True`, replace it with "
                "`overwrite=True`, or choose another folder."
            )
        _same_run(folder, recipe, seed, data)
        for place in (folder, folder / "state"):
            sweep(place)
            for leftover in place.glob(".tmp*"):  # temporary files of safetensors
                leftover.unlink(missing_ok=True)
        return
    if any(not path.name.startswith(".") for path in folder.iterdir()):
        raise InputError(f"{folder} must be empty or a run folder; it holds other files.")
    write_config(folder, recipe, seed, description(data, recipe))


def pooled(data: Data, recipe: Recipe) -> Data:
    """Return ``data`` as used in training: if all rows train, held-out rows are training rows."""
    if not all_rows_train(data, recipe):
        return data
    held_out = data.split == splits.CALIBRATION
    return dataclasses.replace(data, split=np.where(held_out, splits.TRAIN, data.split))


def description(data: Data, recipe: Recipe) -> JsonObject:
    """Return the description of the data that a run stores."""
    shape = data.input_shape
    if shape is None or (data.kind == "images" and recipe.image_size is not None):
        side = recipe.image_size or 224
        shape = (shape[0] if shape else 3, side, side)
    return {
        "source": data.source,
        "fingerprint": data.fingerprint(),
        "kind": data.kind,
        "shape": [int(side) for side in shape],
        "train_rows": len(pooled(data, recipe).part("train")),
        **({"sparse": True} if isinstance(data.targets, SparseTargets) else {}),
        "labels": list(data.labels),
        "feature_names": data.feature_names,
        "preparation": None if data.preparation is None else data.preparation.state(),
        "reader": dict(data.reader),
    }


NEEDED: dict[str, dict[str, type]] = {
    "credibly": {"version": str},
    "settings": {},
    "data": {
        **dict.fromkeys(("source", "fingerprint", "kind"), str),
        **dict.fromkeys(("labels", "shape"), list),
        "train_rows": int,
    },
}
"""What ``write_config`` writes always."""


def read_config(folder: Path) -> JsonObject:
    """Return the configuration of a run, finished or not. Raise if the folder is not a run."""
    path = folder / CONFIG
    try:
        config = read_toml(path)
    except FileNotFoundError:
        raise InputError(
            f"{folder} must be a run folder; it has no {CONFIG}. "
            "Make one with `credibly train DATA --out RUN`."
        ) from None
    for table, keys in NEEDED.items():
        found = config.get(table)
        if not isinstance(found, dict):
            found, keys = config, {table: dict}
        lacking = [key for key, kind in keys.items() if not isinstance(found.get(key), kind)]
        if lacking:
            raise InputError(
                f"{path} must be the complete configuration of a run; it lacks {lacking[0]!r}. "
                "Put the file back as it was, or choose another --out."
            )
    # The first runs have no layout version: it is 1.0.
    layout = str(config["credibly"].get("layout", "1.0"))
    major = layout.partition(".")[0]
    if not (major.isascii() and major.isdigit()):
        raise InputError(f"{path}: `layout` must be a version such as {LAYOUT}; got {layout!r}.")
    if len(major) > 6 or int(major) > int(LAYOUT.partition(".")[0]):
        raise InputError(
            f"{path}: layout version {layout[:40]} is newer than {LAYOUT}, the newest this "
            "credibly reads. Upgrade credibly."
        )
    _check_data(config["data"], path)
    return config


def _check_data(about: JsonObject, path: Path) -> None:
    """Raise if the description of data does not match the format of ``description``."""
    numbers = [about["train_rows"], *about["shape"]]
    if not all(type(number) is int and 0 <= number < 2**40 for number in numbers):
        raise InputError(f"{path}: `shape` and `train_rows` must be whole numbers; got {numbers}.")
    if not about["labels"] or not all(isinstance(label, str) for label in about["labels"]):
        raise InputError(f"{path}: `labels` must be names; got {about['labels']!r:.80}.")
    preparation = Preparation.of_run(about, str(path))
    names = about.get("feature_names")  # version 0.2 did not write this field
    fits = preparation is None or preparation.feature_names == names
    listed = names if isinstance(names, list) else []
    fits = fits and all(isinstance(name, str) for name in listed)
    if names is not None and not (fits and [len(set(listed))] == [len(listed)] == about["shape"]):
        raise InputError(
            f"{path}: `feature_names` must be {about['shape'][0]} different names; got "
            f"{names!r:.80}."
        )


def _same_run(folder: Path, recipe: Recipe, seed: int, data: Data) -> None:
    config = read_config(folder)
    version = str(config["credibly"]["version"])
    if version.split(".")[:2] != __version__.split(".")[:2]:
        raise InputError(
            f"{folder} was started with credibly {version}; this is {__version__}. Install "
            f"`credibly=={version}` to continue, or choose another --out."
        )
    before = to_table(*from_table(config["settings"], str(folder / CONFIG)))
    now = to_table(recipe, seed)
    for name in dict.fromkeys([*before, *now]):
        old, new = before.get(name), now.get(name)
        if name not in INCIDENTAL and old != new:
            raise InputError(
                f"{folder} was started with {name} = {old!r}; got {new!r}. Resume with the same "
                "options, or choose another --out."
            )
    if config["data"]["fingerprint"] != data.fingerprint():
        raise InputError(
            f"{folder} was begun on other data ({config['data']['source']}, "
            f"{config['data'].get('train_rows')} training rows); got {data.source} with "
            f"{len(data.part('train'))}. Resume with the same data, or choose another --out."
        )


def write_config(folder: Path, recipe: Recipe, seed: int, data: JsonObject) -> None:
    """Write the resolved recipe and the description of the data."""
    program = {"version": __version__, "layout": LAYOUT}
    values = to_table(recipe, seed)
    write_toml(folder / CONFIG, {"credibly": program, "settings": values, "data": data})


# Checksums -----------------------------------------------------------------------------------


def write_manifest(folder: Path) -> None:
    """Write the checksums of all files that a finished run is loaded from."""
    encoder = sorted(path for path in (folder / ENCODER).rglob("*") if path.is_file())
    known = [folder / name for name in (CONFIG, MODEL, CALIBRATION, CANDIDATES, METRICS)]
    files = {
        path.relative_to(folder).as_posix(): checksums.identity(path)
        for path in (*known, *encoder)
        if path.exists()
    }
    write_json(folder / MANIFEST, {"files": files})


def manifest_problems(folder: Path) -> dict[Path, str | None]:
    """Return the problem of each file in the manifest, or None if it is intact.

    Runs of version 0.2 and before have no manifest.
    """
    path = folder / MANIFEST
    if not path.exists():
        return {}
    files = read_json_object(path, ADVICE).get("files")
    if not isinstance(files, dict) or not all(isinstance(each, str) for each in files.values()):
        raise InputError(f"{path} must hold `files`, the checksum of each by name. {ADVICE}")
    found: dict[Path, str | None] = {}
    for name, written in files.items():
        if PurePosixPath(name).is_absolute() or ".." in PurePosixPath(name).parts:
            raise InputError(f"{path} must name files of the run; got {name!r:.200}. {ADVICE}")
        file, problem = folder / name, None
        if not file.is_file():
            problem = f"is missing; {MANIFEST} lists it"
        elif checksums.identity(file) != written:
            problem = f"was changed after training; its checksum in {MANIFEST} differs"
        found[file] = problem and f"{file} {problem}. {ADVICE}"
    return found


ADVICE = (
    f"Put the file back as it was, or train again. To use the run as it is now, delete {MANIFEST}."
)


# Tensors and checkpoints -------------------------------------------------------------------
#
# A checkpoint, ``state/step-00000042.safetensors``, contains all that a run needs to resume
# exactly. Its header contains a JSON document. It is never incomplete.

KEPT = 2
"""Number of checkpoints that are kept."""


@dataclasses.dataclass
class Checkpoint:
    """Tensors by name, and plain values."""

    tensors: dict[str, Tensor]
    values: JsonObject

    def group(self, prefix: str) -> dict[str, Tensor]:
        """Return the tensors whose names begin with ``prefix.``, with the prefix removed."""
        start = prefix + "."
        return {k[len(start) :]: v for k, v in self.tensors.items() if k.startswith(start)}


def prefixed(prefix: str, tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Return ``tensors`` with ``prefix.`` before each name."""
    return {f"{prefix}.{name}": tensor for name, tensor in tensors.items()}


def save_tensors(path: Path, tensors: Mapping[str, Tensor], values: Mapping[str, object]) -> None:
    """Write one safetensors file, atomically, with ``values`` as JSON in its header."""
    from safetensors import SafetensorError
    from safetensors.torch import save_file

    plain = _plain(tensors)
    about = {"version": __version__, checksums.KEY: checksums.PLACEHOLDER, **values}
    header = {"credibly": json.dumps(about, sort_keys=True)}
    try:
        with atomic_path(path) as beside:
            save_file(plain, beside, metadata=header)
            checksums.seal(beside)
            beside.chmod(0o666 & ~_umask())  # safetensors makes it readable by the owner only
    except SafetensorError as error:
        raise OSError(f"{path} could not be written: {error}") from error


def _plain(tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Return tensors that safetensors accepts; copy only those that it would refuse.

    It refuses tensors that share memory, such as tied weights, and tensors that are not contiguous,
    such as those of channels_last networks.
    """
    import torch

    plain, seen = {}, set()
    for name, tensor in tensors.items():
        own = tensor.detach().cpu()
        memory = own.untyped_storage().data_ptr()
        if memory in seen or not own.is_contiguous():
            own = own.clone(memory_format=torch.contiguous_format)
        seen.add(memory)
        plain[name] = own
    return plain


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask


def read_tensors(path: Path) -> Checkpoint:
    """Return what ``save_tensors`` wrote. Raise if the bytes of the file have changed."""
    tensors, entries = load_safetensors(path)
    header = entries.get("credibly")
    if header is None:
        raise InputError(f"{path} was not written by credibly: its header has no entry for it.")
    values = parse_json(header, f"{path}: its header's entry must be JSON")
    if not isinstance(values, dict) or not isinstance(values.get("version"), str):
        raise InputError(f"{path}: its header's entry must hold a version; got {header[:80]!r}.")
    checksums.check(path)
    values.pop(checksums.KEY, None)
    return Checkpoint(tensors, values)


def _check_version(path: Path, version: str) -> None:
    """Raise for a checkpoint of another version: an identical result needs the same code."""
    ours, theirs = __version__.split("."), version.split(".")
    if ours[:2] != theirs[:2]:
        raise InputError(
            f"{path} was written by credibly {version}; this is {__version__}. "
            f"Install `credibly=={version}` to continue, or train again."
        )


def write_checkpoint(folder: Path, step: int, checkpoint: Checkpoint) -> None:
    """Add a checkpoint to ``folder`` and delete all but the last two."""
    save_tensors(folder / f"step-{step:09d}.safetensors", checkpoint.tensors, checkpoint.values)
    for old in _checkpoints(folder)[:-KEPT]:
        old.unlink(missing_ok=True)


def newest_checkpoint(folder: Path) -> Checkpoint | None:
    """Return the last checkpoint of ``folder``, or ``None`` if it has none."""
    files = _checkpoints(folder)
    if not files:
        return None
    try:
        found = read_tensors(files[-1])
    except InputError as error:
        raise _damaged(files, str(error)) from error
    _check_version(files[-1], found.values["version"])
    return found


@contextmanager
def restoring(folder: Path) -> Iterator[Checkpoint | None]:
    """Yield the last checkpoint, if there is one; raise if it does not fit the run."""
    saved = newest_checkpoint(folder)
    try:
        yield saved
    except (AttributeError, KeyError, RuntimeError, TypeError, ValueError) as error:
        files = _checkpoints(folder)
        reason = str(error).strip().splitlines()[0].rstrip(":.")
        reason = f"it lacks {reason}" if isinstance(error, KeyError) else reason
        raise _damaged(files, f"{files[-1]} must fit this run; {reason}.") from error


def _damaged(files: list[Path], what: str) -> InputError:
    """Return the error for a damaged checkpoint; it names the earlier one to resume from."""
    start = f"from {files[-2].name}" if len(files) > 1 else "from the first step"
    return InputError(f"{what} Delete it to continue {start}. The result will be the same.")


def _checkpoints(folder: Path) -> list[Path]:
    return sorted(folder.glob("step-*.safetensors"))


# The log -------------------------------------------------------------------------------------


class Log(Callback):
    """Write each epoch to the run's ``log.jsonl``, then call ``inner``.

    If an epoch is repeated after a crash, its line is replaced, so the file always reads as one
    uninterrupted run.
    """

    def __init__(self, folder: Path, inner: Callback) -> None:
        self.path, self.inner = folder / "log.jsonl", inner
        self.lines = read_log(self.path)  # a damaged log is an error before training starts
        self.on_linear_probe, self.on_candidate = inner.on_linear_probe, inner.on_candidate
        self.on_update, self.on_estimate = inner.on_update, inner.on_estimate
        self.on_score = inner.on_score

    def on_epoch(self, figures: JsonObject) -> None:
        self.lines = [line for line in self.lines if line["epoch"] < figures["epoch"]]
        self.lines.append(figures)
        with atomic_path(self.path) as beside:
            text = "".join(json.dumps(line) + "\n" for line in self.lines)
            beside.write_text(text, encoding="utf-8")
        self.inner.on_epoch(figures)


def read_log(path: Path) -> list[JsonObject]:
    """Return the epochs of a run so far, from its ``log.jsonl``; none if the file does not exist.

    Example:
        >>> import tempfile
        >>> path = Path(tempfile.mkdtemp()) / "log.jsonl"
        >>> _ = path.write_text('{"epoch": 1, "nll": 0.25}\\n')
        >>> read_log(path)
        [{'epoch': 1, 'nll': 0.25}]

    Raises:
        InputError: if a line is not the JSON object of an epoch.
    """
    if not path.exists():
        return []
    lines = read_bytes(path, "json").decode("utf-8", "replace").splitlines()
    return [_epoch(path, number, line) for number, line in enumerate(lines, start=1) if line]


def _epoch(path: Path, number: int, line: str) -> JsonObject:
    try:
        figures = parse_json(line, f"{path} must be JSON")
    except InputError:
        figures = None
    if not isinstance(figures, dict) or not isinstance(figures.get("epoch"), int):
        raise InputError(
            f"{path}, line {number} must be a JSON object with `epoch`; got {line[:40]!r}. Remove "
            "the line; the run does not need it."
        )
    return figures


# TOML ---------------------------------------------------------------------------------------


def write_toml(path: Path, tables: Mapping[str, Mapping[str, object]]) -> None:
    """Write ``tables`` of plain values as TOML, atomically. ``None`` is omitted."""
    lines: list[str] = []
    for title, table in tables.items():
        lines.append(f"[{title}]")
        lines += [f"{key} = {_toml(value)}" for key, value in table.items() if value is not None]
        lines.append("")
    with atomic_path(path) as beside:
        beside.write_text("\n".join(lines), encoding="utf-8")


def _toml(value: object) -> str:
    if isinstance(value, (tuple, list)):
        return "[" + ", ".join(_toml(part) for part in value) + "]"
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{json.dumps(k)} = {_toml(v)}" for k, v in value.items()) + "}"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, float):
        return repr(value)
    return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
