"""Checkpoints: all that a run needs to resume exactly, in one file without pickle.

A checkpoint is a safetensors file ``state/step-00000042.safetensors``. Its header contains a JSON
document in addition to the tensors. The file is written under a temporary name, flushed and
renamed, so it is never incomplete. The last two checkpoints are kept.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from credibly import __version__, checksums
from credibly.checks import InputError
from credibly.files import atomic_path
from credibly.types import JsonObject
from credibly.untrusted.documents import parse_json
from credibly.untrusted.tensors import load_safetensors

if TYPE_CHECKING:
    from credibly.train.optimizer import Updates

KEPT = 2


@dataclass
class Checkpoint:
    """Tensors by name, and plain values."""

    tensors: dict[str, Tensor]
    values: JsonObject = field(default_factory=dict)

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


def write(folder: Path, step: int, checkpoint: Checkpoint) -> None:
    """Add a checkpoint to ``folder`` and delete all but the last two."""
    save_tensors(folder / f"step-{step:09d}.safetensors", checkpoint.tensors, checkpoint.values)
    for old in _files(folder)[:-KEPT]:
        old.unlink(missing_ok=True)


def newest(folder: Path) -> Checkpoint | None:
    """Return the last checkpoint of ``folder``, or ``None`` if it has none."""
    files = _files(folder)
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
    """Yield the last checkpoint, as ``newest`` does; raise if it does not fit the run."""
    saved = newest(folder)
    try:
        yield saved
    except (AttributeError, KeyError, RuntimeError, TypeError, ValueError) as error:
        files = _files(folder)
        reason = str(error).strip().splitlines()[0].rstrip(":.")
        reason = f"it lacks {reason}" if isinstance(error, KeyError) else reason
        raise _damaged(files, f"{files[-1]} must fit this run; {reason}.") from error


def _damaged(files: list[Path], what: str) -> InputError:
    """Return the error for a damaged checkpoint; it names the earlier one to resume from."""
    start = f"from {files[-2].name}" if len(files) > 1 else "from the first step"
    return InputError(f"{what} Delete it to continue {start}. The result will be the same.")


def _files(folder: Path) -> list[Path]:
    return sorted(folder.glob("step-*.safetensors"))


# Optimizers ----------------------------------------------------------------------------------


def flatten_optimizer(
    optimizer: torch.optim.Optimizer | Updates,
) -> tuple[dict[str, Tensor], JsonObject]:
    """Return state tensors by ``index.name``, and the numbers of the state that are not tensors."""
    tensors: dict[str, Tensor] = {}
    numbers: JsonObject = {}
    for index, state in optimizer.state_dict()["state"].items():
        for name, value in state.items():
            target = tensors if isinstance(value, Tensor) else numbers
            target[f"{index}.{name}"] = value
    return tensors, numbers


def restore_optimizer(
    optimizer: torch.optim.Optimizer | Updates,
    tensors: Mapping[str, Tensor],
    numbers: Mapping[str, object],
) -> None:
    """Undo ``flatten_optimizer``; learning rates and decays of ``optimizer`` do not change."""
    state: dict[int, JsonObject] = {}
    for key, value in {**tensors, **numbers}.items():
        index, name = key.split(".", 1)
        state.setdefault(int(index), {})[name] = value
    groups = optimizer.state_dict()["param_groups"]
    optimizer.load_state_dict({"state": state, "param_groups": groups})
