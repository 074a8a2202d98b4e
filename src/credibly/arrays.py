"""Conversion between numpy arrays and torch tensors: a function returns what it was given."""

from __future__ import annotations

import sys
from typing import Any

import numpy as np

from credibly.types import Array, ArrayLike


def is_tensor(value: object) -> bool:
    """Return whether ``value`` is a torch tensor, without importing torch to find out."""
    torch = sys.modules.get("torch")
    return torch is not None and isinstance(value, torch.Tensor)


def to_numpy(value: Any) -> Array:
    """Return a numpy view where possible (detached, on the CPU); bfloat16 becomes float32."""
    if is_tensor(value):
        tensor = value.detach().cpu()
        if str(tensor.dtype) == "torch.bfloat16":
            tensor = tensor.float()
        return tensor.numpy()
    return np.asarray(value)


def like(result: Array | np.generic | float, *sources: ArrayLike | Any) -> Any:
    """Return ``result`` as a tensor on the device of the first tensor in ``sources``, if any."""
    for source in sources:
        if is_tensor(source):
            import torch

            return torch.as_tensor(np.asarray(result), device=source.device)
    return result
