"""Read untrusted tensors: ``.pt`` files and checkpoints of ``torch.save``, and ``.safetensors``.

``torch.load`` runs no code of the file here (weights only). But a file of one kilobyte can contain
a tensor that is expanded to any size, so a separate process reads it.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from credibly.checks import InputError, nearest
from credibly.untrusted.budget import (
    check_file,
    first_line,
    read_in_process,
    serve_files,
    worded,
)

if TYPE_CHECKING:
    from torch import Tensor

    from credibly.types import Array

NAMES = ("probabilities", "scores", "targets", "labels", "ids", "split")
PLAIN = "buifU"
"""Kinds of arrays that are numbers or text."""


def read_tensors(path: Path, plain: str, own: Sequence[str]) -> dict[str, Array]:
    """Return the arrays of a ``.pt`` file by name.

    Args:
        path: the file, which contains a tensor or a dict of tensors and lists.
        plain: the name for a single tensor.
        own: names that the file may contain besides the usual ones.

    Raises:
        InputError: if it contains anything else, or takes too much time or memory.
    """
    advice = "Save its arrays with numpy.savez instead."
    return read_in_process(__name__, path, "tensors", advice, plain=plain, own=list(own))


def load_safetensors(path: Path) -> tuple[dict[str, Tensor], dict[str, str]]:
    """Return the tensors of a ``.safetensors`` file by name, and the texts in its header.

    Raises:
        FileNotFoundError: if there is no such file.
        InputError: if it is not a safetensors file, or not complete.
    """
    from safetensors import safe_open

    check_file(path, "safetensors")
    with worded(f"{path} must be a safetensors file"), safe_open(path, framework="pt") as file:
        tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
        return tensors, file.metadata() or {}


def torch_load(path: Path, what: str) -> object:
    """Return the content of a ``torch.save`` file, read in this process, which should have limits.

    Args:
        path: the file.
        what: what it must be, for errors.
    """
    import torch

    check_file(path, "tensors")
    with worded(f"{path} must be {what}, and nothing that runs code (torch.save)"):
        return torch.load(path, map_location="cpu", weights_only=True)


def load_tensors(path: Path, plain: str, own: Sequence[str]) -> dict[str, Array]:
    """Return the arrays of a ``.pt`` file, read in this process."""
    import torch

    content = torch_load(path, "a tensor, or a dict of tensors and lists")
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


def _array(value: object, where: str) -> Array:
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
            f"{first_line(error)}."
        ) from error
    if array.dtype.kind not in PLAIN:
        raise InputError(f"{where} must hold numbers or names; it holds {array.dtype}.")
    return array


def _dense(tensor: Tensor, where: str) -> Tensor:
    """Return a tensor that numpy can hold; for other tensors, raise and say what to save."""
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


if __name__ == "__main__":
    serve_files(load_tensors, "tensors")
