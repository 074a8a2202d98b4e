"""Rows of features as people paste or upload them: numbers in a line, CSV, JSON, ``.npy``."""

from __future__ import annotations

import json
import re
from typing import Any

import numpy as np

from credibly.checks import InputError
from credibly.predictions import parse_array
from credibly.serve._model import MOST_VALUES
from credibly.types import Array

_SEPARATORS = re.compile(r"[\s,;]+")
_NUMBER = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?|[+-]?(nan|inf(inity)?)", re.IGNORECASE)


def parse_features(content: bytes, ending: str, where: str) -> Array:
    """Return rows of features, float32 (rows, features).

    Args:
        content: numbers separated by commas, semicolons or spaces, one row per line, a first line
            with names is passed over; JSON, a list of numbers or of rows, or ``{"features": …}``;
            an array of numpy.
        ending: of the file, such as ``.npy``; empty for what was typed.
        where: what errors begin with.

    Raises:
        InputError: for anything else, for rows of different lengths and values that are not finite.

    Example:
        >>> parse_features(b"1, 2.5", "", "features")
        array([[1. , 2.5]], dtype=float32)
    """
    if ending == ".npy" or content.startswith(b"\x93NUMPY"):
        array = parse_array(content, where)
        if array.dtype.kind not in "buif":
            raise InputError(f"{where} must hold numbers; got an array of {array.dtype}.")
        rows = array[None] if array.ndim == 1 else array
    else:
        rows = _parse_text(content, ending, where)
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
    return rows


def _parse_text(content: bytes, ending: str, where: str) -> Array:
    try:
        text = content.decode("utf-8-sig").strip()
    except UnicodeDecodeError as error:
        raise InputError(f"{where} must be text or a .npy file; {error.reason}.") from error
    if ending == ".json" or text[:1] in ("[", "{"):
        return _parse_json(text, where)
    if len(_SEPARATORS.findall(text)) > MOST_VALUES:
        raise InputError(f"{where} must hold at most {MOST_VALUES:,} numbers.")
    lines = [line for line in text.splitlines() if line.strip()]
    if len(lines) > 1 and not _is_number(_cells(lines[0])[0]):
        lines = lines[1:]
    return _matrix([_cells(line) for line in lines], where)


def _cells(line: str) -> list[str]:
    return _SEPARATORS.split(line.strip().strip(",;"))


def _is_number(cell: str) -> bool:
    return _NUMBER.fullmatch(cell) is not None


def _parse_json(text: str, where: str) -> Array:
    if text.count(",") > MOST_VALUES:  # before they are parsed, which takes far more memory
        raise InputError(f"{where} must hold at most {MOST_VALUES:,} numbers.")
    try:
        found: Any = json.loads(text)
    except (ValueError, RecursionError) as error:
        reason = "it is nested too deep" if isinstance(error, RecursionError) else str(error)
        raise InputError(f"{where} must be JSON; {reason[:200]}.") from error
    if isinstance(found, dict):
        found = found.get("features")
    if not isinstance(found, list) or not found:
        raise InputError(f"{where} must be a JSON list of numbers, or of rows of numbers.")
    return _matrix(found if isinstance(found[0], list) else [found], where)


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
