"""A trained run: what goes in as people type and send it, how many at once, which set comes out."""

from __future__ import annotations

import csv
import json
import re
from collections.abc import Callable
from typing import Any

import numpy as np

from credibly.app.server.background import Turns
from credibly.app.server.image_worker import ImageDecoder
from credibly.checks import InputError
from credibly.data.columns import match_columns, without_names
from credibly.data.jsonl import records_table
from credibly.data.preparation import Columns, Preparation
from credibly.decide import Decision
from credibly.predictions.npz import parse_array
from credibly.types import Array

_SEPARATORS = re.compile(r"[\s,;]+")
_NUMBER = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?|[+-]?(nan|inf(inity)?)", re.IGNORECASE)


def parse_features(
    content: bytes, ending: str, where: str, wanted: Preparation | None = None
) -> tuple[Array | Columns, str]:
    """Return rows of features, by position or by name, and a sentence on how they were named.

    Args:
        content: cells separated by commas, semicolons or spaces, one row per line, the first line
            may hold their names; JSON: a list of numbers, an object of names and values, a list of
            either, or ``{"features": …}`` around it; an array of numpy.
        ending: of the file, such as ``.npy``; empty for what was typed.
        where: what errors begin with.
        wanted: the preparation of the run, which takes columns by name; None where the run knows no
            names.

    Raises:
        InputError: for anything else, for other names, for rows of different lengths and values
            that are not finite.

    Example:
        >>> parse_features(b"1, 2.5", "", "features")
        (array([[1. , 2.5]], dtype=float32), '')
        >>> wanted = Preparation.of_numbers(["age", "bmi"])
        >>> wanted.transform(parse_features(b"bmi,age\\n1,2.5", "", "features", wanted)[0])
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
    if isinstance(rows, Columns):
        return rows, note
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
    content: bytes, ending: str, where: str, wanted: Preparation | None
) -> tuple[Any, str]:
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
    names: list[str], rows: list[list[Any]], where: str, wanted: Preparation | None
) -> tuple[Any, str]:
    """Return columns by name, and a sentence on those that the run does not take."""
    for number, row in enumerate(rows):
        if len(row) != len(names):
            raise InputError(
                f"{where} must have rows of one length, {len(names)} as the names; row {number} "
                f"has {len(row)}."
            )
    if wanted is None:
        return _matrix(rows, where), f"{without_names('The run')} Columns were taken by position."
    _, extra = match_columns(names, wanted.names, where)
    note = f"Left out, not a feature of the run: {', '.join(extra)}." if extra else ""
    records = [dict(zip(names, row, strict=True)) for row in rows]
    return Columns(records_table(records, where), where), note


def _is_number(cell: str) -> bool:
    return _NUMBER.fullmatch(cell) is not None


def _parse_json(text: str, where: str, wanted: Preparation | None) -> tuple[Any, str]:
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


MOST_PIXELS = 25_000_000
"""Pixels of an uploaded image; a small file can hold a huge one."""

MOST_VALUES = 2_000_000
"""Numbers that reach the network in one request: rows × channels × pixels, or rows × features."""

MOST_CHARACTERS = 1_000_000
"""Characters of all texts of one request."""

AT_ONCE = 2
"""Predictions at once: each takes memory for all activations of the network."""

WAIT_SECONDS = 2.0


class Model:
    """A trained run, with inputs brought to its shape and a bound on predictions at once."""

    def __init__(self, run: Any) -> None:
        self.run = run
        self._turns = Turns(AT_ONCE, "predictions are being made")
        self._decoder = ImageDecoder(AT_ONCE)

    async def in_turn(self, work: Callable[[], Any]) -> Any:
        """Return what ``work`` returns, in a thread, once fewer than ``AT_ONCE`` are at work."""

        def done() -> Any:
            try:
                return work()
            except InputError as error:
                problem = str(error)
            # Its traceback would keep the parsed rows alive until the answer is sent, and by then
            # others are at work.
            raise InputError(problem)

        return await self._turns.run(done, WAIT_SECONDS)

    def warm_up(self) -> None:
        """Predict one row of zeros: what is imported and compiled on first use is there then."""
        shape = tuple(self.run.data["shape"])
        if self.run.data["kind"] == "features":
            self.run.predict(np.zeros((1, *shape), dtype=np.float32))
        elif self.run.data["kind"] == "images":
            channels, height, width = shape
            size = (1, height, width) if channels == 1 else (1, height, width, channels)
            self.run.predict(np.zeros(size, dtype=np.uint8))

    def named_rows(self, rows: list[dict[str, Any]]) -> tuple[Columns, dict[str, Any]]:
        """Return rows of features by name, and what to say: names left out, unseen categories."""
        preparation = self.run.preparation
        if preparation is None:
            raise InputError(f"{without_names('this model')} Send lists of numbers.")
        self._check_size(sum(len(row) for row in rows))
        ignored: dict[str, None] = {}
        for number, row in enumerate(rows):
            _, extra = match_columns(list(row), preparation.names, f"row {number} of `features`")
            ignored.update(dict.fromkeys(extra))
        columns = Columns(records_table(rows, "`features`"), "`features`")
        said = {"ignored": list(ignored), "unseen": preparation.unseen(columns)}
        return columns, {key: value for key, value in said.items() if value}

    def rows(self, rows: list[list[float]]) -> Array:
        """Return rows of features, in the order of training, as an array."""
        width = len(rows[0])
        if any(len(row) != width for row in rows):
            raise InputError("every row of `features` must have the same length.")
        self._check_size(len(rows), width)
        array = np.array(rows, dtype=np.float32)
        if not np.isfinite(array).all():
            raise InputError("`features` must be finite numbers.")
        return array

    def predict_image(self, content: bytes, decide: Callable[[], Decision | None]) -> Any:
        """Return probabilities and the set of one image file, scaled to the shape of the run."""
        if self.kind != "images":
            raise InputError(f"this model takes {self.kind}; post them to /api/predict.")
        return self.predict_rows(self.pixels(content, "the body of the request")[None], decide)

    def pixels(self, content: bytes, where: str) -> Array:
        """Return an image file as the network sees it; ``where`` is what errors begin with."""
        shape = tuple(self.run.data["shape"])
        return self._decoder.decode(content, shape, where, MOST_PIXELS)

    def close(self) -> None:
        """End the processes that decode images."""
        self._decoder.close()

    @property
    def kind(self) -> str:
        """Return what the rows of the run are: features, images, text or text with regions."""
        return str(self.run.data["kind"])

    @property
    def feature_names(self) -> list[str] | None:
        """Return the names of the columns that rows must have; None where not known."""
        return self.run.feature_names

    @property
    def text_columns(self) -> int:
        """Return how many texts a row of the run has; 0 where rows are something else."""
        return int(self.run.data["shape"][0]) if self.run.data["kind"] == "text" else 0

    def predict_texts(
        self, texts: list[list[str]], decide: Callable[[], Decision | None]
    ) -> dict[str, Any]:
        """Return probabilities and sets for texts, each row a list of its columns."""
        if not self.text_columns:
            raise InputError(f"this model takes {self.run.data['kind']}, not texts.")
        for row, columns in enumerate(texts):
            if len(columns) != self.text_columns:
                raise InputError(
                    f"every row of `texts` must hold {self.text_columns} text(s); row {row} holds "
                    f"{len(columns)}."
                )
        total = sum(len(text) for columns in texts for text in columns)
        if total > MOST_CHARACTERS:
            raise InputError(
                f"a request must hold at most {MOST_CHARACTERS:,} characters; got {total:,}. Send "
                "fewer texts, or use `credibly predict`."
            )
        return self._predicted(texts, decide)

    def predict_rows(
        self, rows: Array | Columns, decide: Callable[[], Decision | None]
    ) -> dict[str, Any]:
        """Return probabilities and sets for rows of features or of pixels."""
        if not isinstance(rows, Columns):
            self._check_size(*rows.shape)
        return self._predicted(rows, decide)

    def _predicted(self, rows: Any, decide: Callable[[], Decision | None]) -> dict[str, Any]:
        predictions = self.run.predict(rows)
        decision = decide() or self.run.pipeline.rule
        sets = decision.predict(predictions.probabilities)
        labels = predictions.labels
        return {
            "labels": labels,
            "probabilities": predictions.probabilities.tolist(),
            "sets": [[name for name, on in zip(labels, row, strict=True) if on] for row in sets],
            "decision": repr(decision),
        }

    @staticmethod
    def _check_size(*shape: int) -> None:
        if int(np.prod(shape)) > MOST_VALUES:
            sizes = " × ".join(map(str, shape))
            raise InputError(
                f"a request must hold at most {MOST_VALUES:,} numbers; got {sizes}. Send fewer "
                "rows, or use `credibly predict`."
            )
