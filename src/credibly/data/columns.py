"""Columns by name: which column of a table is which feature of a model."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from typing import Any

from credibly.arrays import is_data_frame
from credibly.checks import InputError
from credibly.types import ArrowTable

LISTED = 100
"""Names that a message lists, at most."""


def match_columns(
    found: Sequence[str], wanted: Sequence[str], where: str
) -> tuple[list[int], list[str]]:
    """Return where in ``found`` each name of ``wanted`` is, and the names that are not wanted.

    Args:
        found: names of the columns that came.
        wanted: names of the features, in the order of training.
        where: what errors begin with: a file, a data frame, a row.

    Raises:
        InputError: that names all missing columns, and all that are not known.

    Example:
        >>> match_columns(["bmi", "note", "age"], ["age", "bmi"], "new.csv")
        ([2, 0], ['note'])
        >>> match_columns(["years"], ["age"], "a.csv")
        Traceback (most recent call last):
        ...
        credibly.checks.InputError: a.csv must have the 1 features of the model, by name; missing: \
'age'; not known: 'years'. Rename or add them.
    """
    index = {name: place for place, name in enumerate(found)}
    known = set(wanted)
    missing = [name for name in wanted if name not in index]
    extra = [name for name in found if name not in known]
    if missing:
        beside = f"; not known: {listed(extra)}" if extra else ""
        raise InputError(
            f"{where} must have the {len(wanted)} features of the model, by name; "
            f"missing: {listed(missing)}{beside}. Rename or add them."
        )
    return [index[name] for name in wanted], extra


def warn_of_extra(extra: Sequence[str], where: str) -> None:
    """Say in one sentence which columns are left out; nothing where there are none."""
    if extra:
        many = "s" if len(extra) > 1 else ""
        warnings.warn(
            f"{where}: column{many} {listed(extra)} left out: not a feature of the model.",
            stacklevel=3,
        )


def warn_of_position(model: object, where: str) -> None:
    """Say in one sentence that the columns of ``where`` are taken by position."""
    warnings.warn(
        f"{without_names(model)} The columns of {where} are taken by position.", stacklevel=3
    )


def without_names(model: object) -> str:
    """Return the sentence that a run or an exported model has no names of features."""
    return (
        f"{model} does not know the names of its features: it was trained on an array, or by "
        "version 0.2."
    )


def column_names(features: Any) -> list[str] | None:
    """Return the names of the columns of a data frame; None for arrays.

    Columns that pandas numbered 0, 1, 2 … have no names.
    """
    if is_data_frame(features):
        names = list(features.columns)
        return None if names == list(range(len(names))) else [str(name) for name in names]
    if not isinstance(features, ArrowTable):
        return None
    import pyarrow as pa

    try:
        return pa.table(features).column_names
    except (pa.ArrowException, TypeError, ValueError):  # one column, as a series of pandas
        return None


def listed(names: Sequence[str], form: Callable[[str], str] = repr, limit: int = LISTED) -> str:
    """Return names for a message, and how many more there are.

    Example:
        >>> listed(["age", "bmi", "sodium"], limit=2)
        "'age', 'bmi', … (1 more)"
    """
    more = f", … ({len(names) - limit:,} more)" if len(names) > limit else ""
    return ", ".join(form(name) for name in names[:limit]) + more
