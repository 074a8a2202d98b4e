"""Checkpoints of the official codes (``.pth``, ``.tar``) → ``.safetensors``, without running them.

Files of ``torch.save`` can run any code when they are read. Here a process of its own reads one,
with torch's weights-only loader and limits of time and memory.
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

from credibly.checks import InputError, input_file
from credibly.child_processes import Limits, Worker, serve_jobs
from credibly.files import atomic_path

LIMITS = Limits(memory=4 * 2**30, seconds=60)
"""For the libraries and a small file; a large one may take more of both."""

WHERE = ("state_dict", "model_state_dict", "model", "net", "state_dict_ema", "ema")
"""Keys under which official codes keep the weights beside optimizer and epoch."""

PREFIXES = ("module.", "model.")
"""What wrappers put before the names of all weights."""


def convert_checkpoint(path: str | os.PathLike[str], out: str | os.PathLike[str]) -> list[str]:
    """Write the weights of a checkpoint as a ``.safetensors`` file; return their names.

    ASL's model zoo and Pl@ntNet-300K publish such files. Give the result as ``--weights``.

    Args:
        path: a file of ``torch.save`` with a state dict, alone or beside other things.
        out: the ``.safetensors`` file.

    Raises:
        InputError: if it holds no weights, something that runs code, or takes too much time or
            memory.
    """
    source, target = Path(path), Path(out)
    input_file(source)
    if target.suffix != ".safetensors":
        raise InputError(f"`out` must end in .safetensors; got {target}.")
    limits = _limits(source)
    with Worker(__name__, 4.0 * limits.seconds) as worker:
        answer = worker.ask(str(source).encode())
    if answer is None:
        raise InputError(
            f"{source} must be a checkpoint that is read within {limits.seconds} seconds and "
            f"{limits.memory / 2**30:.0f} GB; it is not."
        )
    head, _, weights = answer.partition(b"\n")
    found = json.loads(head)
    if "error" in found:
        raise InputError(found["error"])
    with atomic_path(target) as partial:
        partial.write_bytes(weights)
    return found["names"]


def _limits(path: Path) -> Limits:
    size = path.stat().st_size
    return Limits(LIMITS.memory + 6 * size, LIMITS.seconds + size // 2**24)


def _weights(content: Any, path: Path) -> dict[str, Any]:
    """Return the tensors of a checkpoint by name, without the prefixes of wrappers."""
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


def _answer(job: bytes) -> bytes:
    import torch
    from safetensors.torch import save

    path = Path(job.decode())
    _limits(path).apply()
    try:
        content = torch.load(path, map_location="cpu", weights_only=True)
        weights = _weights(content, path)
        content = save(weights)
    except InputError as error:
        return json.dumps({"error": str(error)}).encode()
    except Exception as error:  # damaged archives raise anything at all
        first = (str(error).splitlines() or [""])[0][:200]
        words = (
            f"{path} must be a checkpoint of tensors and plain values, without anything that runs "
            f"code; {type(error).__name__}: {first}"
        )
        return json.dumps({"error": words}).encode()
    return json.dumps({"names": list(weights)}).encode() + b"\n" + content


if __name__ == "__main__":
    serve_jobs(_answer, LIMITS)
