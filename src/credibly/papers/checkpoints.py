"""Convert official checkpoints (``.pth``, ``.tar``) to ``.safetensors`` without running their code.

Reading a file of ``torch.save`` can run arbitrary code. A separate process therefore reads it, with
torch's weights-only loader and limits on time and memory.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np

from credibly.checks import InputError
from credibly.files import atomic_path
from credibly.types import Array, JsonObject
from credibly.untrusted.budget import read_in_process, serve_files
from credibly.untrusted.tensors import torch_load

WHERE = ("state_dict", "model_state_dict", "model", "net", "state_dict_ema", "ema")
"""Keys under which official codes keep the weights beside optimizer and epoch."""

PREFIXES = ("module.", "model.")
"""What wrappers put before the names of all weights."""


def convert_checkpoint(path: str | os.PathLike[str], out: str | os.PathLike[str]) -> list[str]:
    """Write the weights of a checkpoint as a ``.safetensors`` file; return their names.

    ASL's model zoo and Pl@ntNet-300K publish such files. Pass the result as ``--weights``.

    Args:
        path: a file of ``torch.save`` that contains a state dict, possibly among other objects.
        out: the ``.safetensors`` file.

    Raises:
        InputError: if it contains no weights, or code, or if reading takes too much time or
            memory.
    """
    source, target = Path(path), Path(out)
    if target.suffix != ".safetensors":
        raise InputError(f"`out` must end in .safetensors; got {target}.")
    found = read_in_process(__name__, source, "tensors")
    with atomic_path(target) as partial:
        partial.write_bytes(found["file"].tobytes())
    return found["names"].tolist()


def _weights(content: Any, path: Path) -> JsonObject:
    """Return the tensors of a checkpoint by name, without the prefixes that wrappers add."""
    import torch

    for key in WHERE:
        if isinstance(content, dict) and isinstance(content.get(key), dict):
            content = content[key]
    named = content.items() if isinstance(content, dict) else ()
    found = {str(key): value for key, value in named if isinstance(value, torch.Tensor)}
    if not found:
        raise InputError(
            f"{path} must hold a state dict, alone or under one of {', '.join(WHERE)}; it holds "
            "no tensors by name."
        )
    for prefix in PREFIXES:
        if all(name.startswith(prefix) for name in found):
            found = {name.removeprefix(prefix): value for name, value in found.items()}
    return {name: value.detach().contiguous().clone() for name, value in found.items()}


def _converted(path: Path) -> dict[str, Array]:
    from safetensors.torch import save

    weights = _weights(torch_load(path, "a checkpoint of tensors and plain values"), path)
    return {"names": np.array(list(weights)), "file": np.frombuffer(save(weights), np.uint8)}


if __name__ == "__main__":
    serve_files(_converted, "tensors")
