"""Data frames and tables: columns matched by name, rows by id, everything else by position."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Any

from credibly.arrays import to_numpy
from credibly.checks import InputError


def column_names(value: Any) -> list[str] | None:
    """Return the names of the columns of a data frame or table; None if nobody gave them names.

    Numbers from 0 on are no names. ``p:``, ``s:`` and ``y:`` before all names, as in a predictions
    file, are left out.

    Example:
        >>> import pandas as pd
        >>> column_names(pd.DataFrame({"p:cat": [0.2], "p:dog": [0.7]}))
        ['cat', 'dog']
    """
    # A pyarrow table has its names under `column_names`, pandas and polars under `columns`.
    names = getattr(value, "column_names", None)
    names = getattr(value, "columns", None) if names is None else names
    if names is None or callable(names):
        return None
    names = [str(name) for name in names]
    if names == [str(place) for place in range(len(names))]:
        return None
    for prefix in ("p:", "s:", "y:"):
        if all(name.startswith(prefix) for name in names):
            return [name[2:] for name in names]
    return names


def in_order(value: Any, labels: Sequence[str] | None, name: str) -> Any:
    """Return ``value`` with its columns in the order of ``labels``, if both have names.

    Args:
        value: a matrix; one without names of columns is returned as it came.
        labels: names of columns; None if there are none.
        name: what errors call ``value``.

    Raises:
        InputError: if the names differ; says which are missing and which are extra.
    """
    names = column_names(value)
    if names is None or labels is None or names == list(labels):
        return value
    twice = [each for place, each in enumerate(names) if each in names[:place]]
    if twice:
        raise InputError(f"`{name}` must have different columns; got {twice[0]!r} twice.")
    missing = [each for each in labels if each not in set(names)]
    extra = [each for each in names if each not in set(labels)]
    if missing or extra:
        parts = [("missing", missing), ("extra", extra)]
        said = "; ".join(f"{word}: {_listed(found)}" for word, found in parts if found)
        raise InputError(
            f"the columns of `{name}` must have the names of the labels; {said}. Rename them, or "
            "pass `.to_numpy()` to go by position."
        )
    place = {each: index for index, each in enumerate(names)}
    order = [place[each] for each in labels]
    return value.iloc[:, order] if hasattr(value, "iloc") else to_numpy(value)[:, order]


def aligned(values: Any, targets: Any, name: str, what: str = "targets") -> Any:
    """Return ``targets`` with the columns and rows of ``values``.

    Columns are matched by name where both have names. Rows are matched by the index where both are
    pandas objects with an index of their own: not the default one, which counts from 0. Everything
    else goes by position.

    Args:
        values: scores or probabilities, (rows, labels).
        targets: (rows, labels), or one class per row.
        name, what: what errors call ``values`` and ``targets``.

    Raises:
        InputError: if the names of columns or the ids of rows differ.
    """
    rows, other = _row_ids(values), _row_ids(targets)
    ordered = in_order(targets, column_names(values), what)
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
    """Return the index of a pandas object; None if it is the default one, or there is none."""
    pandas: Any = sys.modules.get("pandas")  # perhaps still being imported, by another thread
    if not hasattr(pandas, "RangeIndex"):
        return None
    if not isinstance(value, (pandas.DataFrame, pandas.Series)):
        return None
    return None if value.index.equals(pandas.RangeIndex(len(value))) else value.index


def _listed(names: Sequence[str]) -> str:
    return ", ".join(repr(name) for name in names[:10]) + (", …" if len(names) > 10 else "")
