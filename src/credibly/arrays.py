"""Conversion between numpy arrays and torch tensors: a function returns what it was given."""

from __future__ import annotations

import sys
from typing import Any

import numpy as np

from credibly.types import Array, ArrayLike


def is_tensor(value: object) -> bool:
    """Return whether ``value`` is a torch tensor, without importing torch to find out."""
    return isinstance(value, _class_of("torch", "Tensor"))


def is_data_frame(value: object) -> bool:
    """Return whether ``value`` is a pandas data frame, without importing pandas to find out."""
    return isinstance(value, _class_of("pandas", "DataFrame"))


def _class_of(module: str, name: str) -> Any:
    """Return a class of a module that is imported; () where there can be no instance of it yet.

    Another thread may be importing the module, which then lacks the class.
    """
    return getattr(sys.modules.get(module), name, ())


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


def label_columns(estimates: Any, classes: Any) -> Array:
    """Return what a scikit-learn classifier's ``predict_proba`` returned as one matrix.

    Forests, trees and neighbours return a list with one (rows, classes) array per label; the
    column of class 1 is taken, and a label that was never present in training has probability 0.

    Args:
        estimates: the result of ``predict_proba``: a list of arrays, or a matrix.
        classes: the classifier's ``classes_``: one array per label where ``estimates`` is a list.

    Example:
        >>> two = [np.array([[0.3, 0.7]]), np.array([[1.0]])]
        >>> label_columns(two, [np.array([0, 1]), np.array([0])])
        array([[0.7, 0. ]])
    """
    if not isinstance(estimates, (list, tuple)):
        return to_numpy(estimates)
    columns = []
    for matrix, known in zip(estimates, classes, strict=True):
        place = np.flatnonzero(np.asarray(known) == 1)
        columns.append(to_numpy(matrix)[:, place[0]] if place.size else np.zeros(len(matrix)))
    return np.stack(columns, axis=1)
