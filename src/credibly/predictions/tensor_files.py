"""The tensors of a ``.pt`` file, read in a process of its own with limits of time and memory.

``torch.load`` runs no code of the file here (weights only), but a file of a kilobyte can still hold
a tensor that is expanded to any size. The worker sends plain arrays back.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from credibly.checks import InputError, input_file, nearest
from credibly.child_processes import Limits, Worker, array_jobs, serve_jobs

if TYPE_CHECKING:
    from credibly.types import Array

LIMITS = Limits(memory=4 * 2**30, seconds=30)
"""For the libraries and a small file; a large one may take more of both."""

NAMES = ("probabilities", "scores", "targets", "labels", "ids", "split")
PLAIN = "buifU"
"""Kinds of arrays that are numbers or text."""


def read_tensors(path: Path, plain: str, own: Sequence[str]) -> dict[str, Array]:
    """Return the arrays of a ``.pt`` file by name.

    Args:
        path: of the file: a tensor, or a dict of tensors and lists.
        plain: name of a tensor that is alone.
        own: names that the file may have beside the usual ones.

    Raises:
        InputError: if it holds anything else, or takes too much time or memory.
    """
    input_file(path)
    with path.open("rb"):
        pass  # what cannot be opened is told here, as for other files
    limits = _limits(path)
    with Worker(__name__, 4.0 * limits.seconds) as worker:
        arrays = worker.ask_arrays({"path": str(path), "plain": plain, "own": list(own)})
    if arrays is None:
        raise InputError(
            f"{path} must be a file of tensors that is read within {limits.seconds} seconds and "
            f"{limits.memory / 2**30:.0f} GB; it is not. Save its arrays with numpy.savez instead."
        )
    return arrays


def load_tensors(path: Path, plain: str, own: Sequence[str]) -> dict[str, Array]:
    """Return the arrays of a ``.pt`` file, read in this process."""
    import torch

    try:
        content = torch.load(path, map_location="cpu", weights_only=True)
    except MemoryError:
        raise
    except Exception as error:  # damaged archives raise anything at all
        raise InputError(
            f"{path} must hold a tensor, or a dict of tensors and lists, and nothing that runs "
            f"code (torch.save); {type(error).__name__}: {_first_line(error)}"
        ) from error
    if isinstance(content, torch.Tensor):
        return {plain: _array(content, f"{path}: the tensor")}
    if not isinstance(content, dict):
        kind = type(content).__name__
        raise InputError(f"{path} must hold a tensor or a dict of tensors; it holds a {kind}.")
    usual = {} if "logits" in own else {"logits": "scores"}
    named = {usual.get(str(name), str(name)): each for name, each in content.items()}
    for name in named:
        if name not in NAMES and name not in own:
            raise InputError(f"{path}: unknown tensor {name!r:.80}. {nearest(name, NAMES)}")
    return {name: _array(each, f"{path}: `{name}`") for name, each in named.items()}


def _array(value: Any, where: str) -> Array:
    """Return a tensor or a list as a plain array."""
    import numpy as np
    import torch

    if isinstance(value, torch.Tensor):
        value = _dense(value, where).numpy()
    elif not isinstance(value, (list, tuple)):
        raise InputError(f"{where} must be a tensor or a list; it is a {type(value).__name__}.")
    try:
        array = np.asarray(value)
    except (ValueError, TypeError, RecursionError, OverflowError) as error:
        raise InputError(
            f"{where} must be a list of numbers or of names, with rows of one length; "
            f"{_first_line(error)}"
        ) from error
    if array.dtype.kind not in PLAIN:
        raise InputError(f"{where} must hold numbers or names; it holds {array.dtype}.")
    return array


def _dense(tensor: Any, where: str) -> Any:
    """Return a tensor that numpy can hold; say what to save instead of one that it cannot."""
    import torch

    problems = {
        "nested": (tensor.is_nested, "one tensor with rows of one length"),
        "quantized": (tensor.is_quantized, "`tensor.dequantize()`"),
        "sparse": (tensor.layout is not torch.strided, "`tensor.to_dense()`"),
        "on the meta device, without values": (tensor.is_meta, "it from the device it was made on"),
        "complex": (tensor.is_complex(), "its real part"),
    }
    for problem, (found, instead) in problems.items():
        if found:
            raise InputError(f"{where} must be a plain tensor; it is {problem}. Save {instead}.")
    stored = tensor.untyped_storage().nbytes()
    if tensor.numel() * tensor.element_size() > stored:
        shape = " × ".join(f"{side:,}" for side in tensor.shape)
        raise InputError(
            f"{where} must be stored in full; it has {shape} entries in {stored:,} bytes. Save "
            "`tensor.contiguous()`."
        )
    tensor = tensor.detach().resolve_neg()
    exact = (torch.float32, torch.float64, torch.float16)
    return tensor.float() if tensor.is_floating_point() and tensor.dtype not in exact else tensor


def _first_line(error: Exception) -> str:
    return (str(error).splitlines() or [""])[0][:200]


def _limits(path: Path) -> Limits:
    size = path.stat().st_size
    return Limits(LIMITS.memory + 6 * size, LIMITS.seconds + size // 2**24)


def _loaded(content: bytes, path: str, plain: str, own: Sequence[str]) -> dict[str, Array]:
    del content  # the file is read from the disk
    _limits(Path(path)).apply()
    return load_tensors(Path(path), plain, own)


if __name__ == "__main__":
    serve_jobs(array_jobs(_loaded), LIMITS)
