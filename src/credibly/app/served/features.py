"""Rows of features as people paste or upload them: numbers in a line, CSV, JSON, ``.npy``."""

from __future__ import annotations

import csv
import json
import re
from collections.abc import Sequence
from typing import Any

import numpy as np

from credibly.app.served.model import MOST_VALUES
from credibly.checks import InputError
from credibly.data.columns import match_columns, without_names
from credibly.predictions import parse_array
from credibly.types import Array

_SEPARATORS = re.compile(r"[\s,;]+")
_NUMBER = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?|[+-]?(nan|inf(inity)?)", re.IGNORECASE)


def parse_features(
    content: bytes, ending: str, where: str, wanted: Sequence[str] | None = None
) -> tuple[Array, str]:
    """Return rows of features, float32 (rows, features), and a sentence on how they were named.

    Args:
        content: numbers separated by commas, semicolons or spaces, one row per line, the first line
            may hold their names; JSON: a list of numbers, an object of names and numbers, a list of
            either, or ``{"features": …}`` around it; an array of numpy.
        ending: of the file, such as ``.npy``; empty for what was typed.
        where: what errors begin with.
        wanted: names of the features of the run, by which named columns are taken; None where they
            are not known.

    Raises:
        InputError: for anything else, for other names, for rows of different lengths and values
            that are not finite.

    Example:
        >>> parse_features(b"1, 2.5", "", "features")
        (array([[1. , 2.5]], dtype=float32), '')
        >>> parse_features(b"bmi,age\\n1,2.5", "", "features", ["age", "bmi"])[0]
        array([[2.5, 1. ]], dtype=float32)
    """
    note = ""
    if ending == ".npy" or content.startswith(b"\x93NUMPY"):
        array = parse_array(content, where)
        if array.dtype.kind not in "buif":
            raise InputError(f"{where} must hold numbers; got an array of {array.dtype}.")
        rows = array[None] if array.ndim == 1 else array
    else:
        rows, note = _parse_text(content, ending, where, wanted)
    if rows.ndim != 2 or not rows.size:
        raise InputError(
            f"{where} must hold at least one row of numbers; got shape {rows.shape}. Separate "
            "them by commas or spaces."
        )
    if rows.size > MOST_VALUES:
        raise InputError(f"{where} must hold at most {MOST_VALUES:,} numbers; got {rows.size:,}.")
    with np.errstate(over="ignore"):
        rows = rows.astype(np.float32)
    bad = np.argwhere(~np.isfinite(rows))
    if len(bad):
        row, column = bad[0]
        raise InputError(
            f"{where} must hold finite numbers; row {row}, column {column} is {rows[row, column]}."
        )
    return rows, note


def _parse_text(
    content: bytes, ending: str, where: str, wanted: Sequence[str] | None
) -> tuple[Array, str]:
    try:
        text = content.decode("utf-8-sig").strip()
    except UnicodeDecodeError as error:
        raise InputError(f"{where} must be text or a .npy file; {error.reason}.") from error
    if ending == ".json" or text[:1] in ("[", "{"):
        return _parse_json(text, where, wanted)
    if len(_SEPARATORS.findall(text)) > MOST_VALUES:
        raise InputError(f"{where} must hold at most {MOST_VALUES:,} numbers.")
    lines = [line for line in text.splitlines() if line.strip()]
    if len(lines) < 2 or _is_number(_numbers(lines[0])[0]):
        return _matrix([_numbers(line) for line in lines], where), ""
    delimiter = max(",;\t", key=lines[0].count)
    names, *rows = [_cells(line, delimiter, where) for line in lines]
    return _named(names, rows, where, wanted)


def _numbers(line: str) -> list[str]:
    return _SEPARATORS.split(line.strip().strip(",;"))


def _cells(line: str, delimiter: str, where: str) -> list[str]:
    """Return the cells of a line below names, which may hold spaces where there is a delimiter."""
    if delimiter not in line:
        return _numbers(line)
    try:
        return [cell.strip() for cell in next(csv.reader([line], delimiter=delimiter))]
    except csv.Error as error:
        raise InputError(f"{where} must be a table with a line of names; {error}.") from error


def _named(
    names: list[str], rows: list[list[Any]], where: str, wanted: Sequence[str] | None
) -> tuple[Array, str]:
    """Return the columns that the run takes, by name, and a sentence on the others."""
    for number, row in enumerate(rows):
        if len(row) != len(names):
            raise InputError(
                f"{where} must have rows of one length, {len(names)} as the names; row {number} "
                f"has {len(row)}."
            )
    if wanted is None:
        return _matrix(rows, where), f"{without_names('The run')} Columns were taken by position."
    order, extra = match_columns(names, wanted, where)
    note = f"Left out, not a feature of the run: {', '.join(extra)}." if extra else ""
    return _matrix([[row[place] for place in order] for row in rows], where), note


def _is_number(cell: str) -> bool:
    return _NUMBER.fullmatch(cell) is not None


def _parse_json(text: str, where: str, wanted: Sequence[str] | None) -> tuple[Array, str]:
    if text.count(",") > MOST_VALUES:  # before they are parsed, which takes far more memory
        raise InputError(f"{where} must hold at most {MOST_VALUES:,} numbers.")
    try:
        found: Any = json.loads(text)
    except (ValueError, RecursionError) as error:
        reason = "it is nested too deep" if isinstance(error, RecursionError) else str(error)
        raise InputError(f"{where} must be JSON; {reason[:200]}.") from error
    if isinstance(found, dict) and isinstance(found.get("features"), (list, dict)):
        found = found["features"]
    found = [found] if isinstance(found, dict) else found
    if not isinstance(found, list) or not found:
        raise InputError(
            f"{where} must be a JSON list of numbers, an object of names and numbers, or a list of "
            "either."
        )
    if not isinstance(found[0], dict):
        return _matrix(found if isinstance(found[0], list) else [found], where), ""
    if wanted is None:
        raise InputError(f"{without_names('The run')} Give a list of numbers.")
    names = list(found[0])
    if not all(isinstance(row, dict) and row.keys() == found[0].keys() for row in found):
        raise InputError(f"{where} must have objects of one form; not all have the same names.")
    return _named(names, [[row[name] for name in names] for row in found], where, wanted)


def _matrix(rows: list[Any], where: str) -> Array:
    for number, row in enumerate(rows):
        if not isinstance(row, list) or len(row) != len(rows[0]):
            raise InputError(
                f"{where} must have rows of one length, {len(rows[0])} as the first; row {number} "
                f"has {len(row) if isinstance(row, list) else 'none'}."
            )
    for number, row in enumerate(rows):
        for column, cell in enumerate(row):
            fine = _is_number(cell) if isinstance(cell, str) else type(cell) in (int, float)
            if not fine:
                raise InputError(
                    f"{where} must hold numbers; row {number}, column {column} is {cell!r:.60}."
                )
    try:
        return np.array(rows, dtype=np.float64)
    except (ValueError, OverflowError) as error:
        raise InputError(f"{where} must hold numbers of ordinary size; {error}.") from error
