"""Handle arrays, tensors and data frames alike: keep the type, and match columns by name."""

from __future__ import annotations

import math
import sys
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeGuard

import numpy as np

from credibly.checks import InputError, listed
from credibly.types import Array, ArrayLike

if TYPE_CHECKING:
    from torch import Tensor


def is_tensor(value: object) -> TypeGuard[Tensor]:
    """Return whether ``value`` is a torch tensor, without importing torch."""
    return isinstance(value, _class_of("torch", "Tensor"))


def is_data_frame(value: object) -> TypeGuard[Any]:
    """Return whether ``value`` is a pandas data frame, without importing pandas."""
    return isinstance(value, _class_of("pandas", "DataFrame"))


def is_sparse_matrix(value: object) -> TypeGuard[Any]:
    """Return whether ``value`` is a matrix of ``scipy.sparse``, without importing scipy.

    Example:
        >>> is_sparse_matrix(np.eye(2))
        False
    """
    kinds = "spmatrix", "sparray"
    return isinstance(value, tuple(_class_of("scipy.sparse", name) for name in kinds))


def _class_of(module: str, name: str) -> Any:
    """Return a class of an imported module, or () if the module is not imported.

    Another thread may still be importing the module, which then lacks the class.
    """
    return getattr(sys.modules.get(module), name, ())


def to_numpy(value: object) -> Array:
    """Return a numpy array, without a copy if possible; bfloat16 becomes float32."""
    if is_tensor(value):
        tensor = value.detach().cpu()
        if str(tensor.dtype) == "torch.bfloat16":
            tensor = tensor.float()
        return tensor.numpy()
    return np.asarray(value)


def plain(value: object) -> Any:
    """Return ``value`` in types of JSON; NaN and infinities become None, other objects their text.

    Example:
        >>> plain({"a": (1, float("nan")), 2: np.array([0.5])})
        {'a': [1, None], '2': [0.5]}
    """
    if isinstance(value, (np.ndarray, np.generic)):
        value = value.tolist()
    if isinstance(value, Mapping):
        return {str(key): plain(part) for key, part in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain(part) for part in value]
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    return value if value is None or isinstance(value, (int, str)) else str(value)


def like(result: ArrayLike | np.generic | float, *sources: object) -> Any:
    """Return ``result`` as a tensor on the device of the first tensor in ``sources``, if any."""
    for source in sources:
        if is_tensor(source):
            import torch

            return torch.as_tensor(np.asarray(result, order="C"), device=source.device)
    return result


def label_columns(estimates: object, classes: Sequence[object]) -> Array:
    """Return the result of a scikit-learn classifier's ``predict_proba`` as one matrix.

    Forests, trees and neighbours return a list with one (rows, classes) array per label. The matrix
    takes the column of class 1. A label that was never present in training has probability 0.

    Args:
        estimates: the result of ``predict_proba``: a list of arrays, or a matrix.
        classes: the classifier's ``classes_``: one array per label if ``estimates`` is a list.

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


def column_names(value: object) -> list[str] | None:
    """Return the column names of a data frame or table, or None if it has only default names.

    Default names count from 0.

    Example:
        >>> import pandas as pd
        >>> column_names(pd.DataFrame({"cat": [0.2], "dog": [0.7]}))
        ['cat', 'dog']
    """
    # pyarrow tables have `column_names`; pandas and polars have `columns`.
    names = getattr(value, "column_names", None)
    names = getattr(value, "columns", None) if names is None else names
    if names is None or callable(names):
        return None
    names = [str(name) for name in names]
    return None if names == [str(place) for place in range(len(names))] else names


def label_names(value: object) -> list[str] | None:
    """Return ``column_names`` without the prefix of predictions files, if every name has one.

    Example:
        >>> import pandas as pd
        >>> label_names(pd.DataFrame({"p:cat": [0.2], "p:dog": [0.7]}))
        ['cat', 'dog']
    """
    names = column_names(value)
    for prefix in ("p:", "s:", "y:"):
        if names and all(name.startswith(prefix) for name in names):
            return [name[2:] for name in names]
    return names


def in_order(value: Any, labels: Sequence[str] | None, name: str) -> Any:
    """Return ``value`` with its columns in the order of ``labels``, if both have names.

    Args:
        value: a matrix; it is returned unchanged if its columns have no names.
        labels: column names, or None.
        name: the name of ``value`` in errors.

    Raises:
        InputError: if the names differ; the message lists the missing and the extra names.
    """
    names = label_names(value)
    if names is None or labels is None or names == list(labels):
        return value
    twice = [each for place, each in enumerate(names) if each in names[:place]]
    if twice:
        raise InputError(f"`{name}` must have different columns; got {twice[0]!r} twice.")
    missing = [each for each in labels if each not in set(names)]
    extra = [each for each in names if each not in set(labels)]
    if missing or extra:
        parts = [("missing", missing), ("extra", extra)]
        said = "; ".join(f"{word}: {listed(found, limit=10)}" for word, found in parts if found)
        raise InputError(
            f"the columns of `{name}` must have the names of the labels; {said}. Rename them, or "
            "pass `.to_numpy()` to go by position."
        )
    place = {each: index for index, each in enumerate(names)}
    order = [place[each] for each in labels]
    return value.iloc[:, order] if hasattr(value, "iloc") else to_numpy(value)[:, order]


def aligned(values: Any, targets: Any, name: str, what: str = "targets") -> Any:
    """Return ``targets`` with the columns and rows of ``values``.

    Columns are matched by name if both have names. Rows are matched by index if both are pandas
    objects with an index other than the default one, which counts from 0. Otherwise rows and
    columns are matched by position.

    Args:
        values: scores or probabilities, (rows, labels).
        targets: (rows, labels), or one class per row.
        name, what: the names of ``values`` and ``targets`` in errors.

    Raises:
        InputError: if the column names or the row ids differ.
    """
    rows, other = _row_ids(values), _row_ids(targets)
    ordered = in_order(targets, label_names(values), what)
    if rows is None or other is None or rows.equals(other):
        return ordered
    missing = rows.difference(other)
    if len(missing) or not (rows.is_unique and other.is_unique) or len(rows) != len(other):
        which = f"{missing[0]} is missing" if len(missing) else "some occur twice"
        raise InputError(
            f"the rows of `{what}` must have the index of `{name}`: {which}. Select the same rows "
            "of both, or pass `.to_numpy()` to go by position."
        )
    return to_numpy(ordered)[other.get_indexer(rows)]


def _row_ids(value: Any) -> Any:
    """Return the index of a pandas object, or None if it has only the default index."""
    pandas: Any = sys.modules.get("pandas")  # another thread may still be importing it
    if not hasattr(pandas, "RangeIndex"):
        return None
    if not isinstance(value, (pandas.DataFrame, pandas.Series)):
        return None
    return None if value.index.equals(pandas.RangeIndex(len(value))) else value.index
