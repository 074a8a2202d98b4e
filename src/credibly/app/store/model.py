"""A trained run: what goes in as people type and send it, how many at once, which set comes out."""

from __future__ import annotations

import csv
import re
from collections.abc import Callable
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import numpy as np

from credibly.app.server.background import Result, Turns
from credibly.app.server.image_worker import ImageDecoder
from credibly.checks import InputError, listed
from credibly.data.preparation import Columns, Preparation, match_columns, without_names
from credibly.data.table_files import records_table
from credibly.decide.base import Decision
from credibly.notebook import counted
from credibly.pipeline import Pipeline
from credibly.types import Array, JsonObject
from credibly.untrusted.documents import parse_json

if TYPE_CHECKING:
    from credibly.train.run import Run

_NUMBER = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?|[+-]?(nan|inf(inity)?)", re.IGNORECASE)


def parse_features(
    content: bytes, where: str, wanted: Preparation | None = None
) -> tuple[Array | Columns, str]:
    """Return rows of features, by position or by name, and a sentence on how they were named.

    Args:
        content: cells separated by commas, semicolons, tabs or spaces, one row per line, the first
            line may hold their names; or JSON: a list of numbers, an object of names and values, a
            list of either, or ``{"features": …}`` around it.
        where: what errors begin with.
        wanted: the preparation of the run, which takes columns by name; None where the run knows no
            names.

    Raises:
        InputError: for anything else, for other names, for rows of different lengths and values
            that are not finite.

    Example:
        >>> parse_features(b"1, 2.5", "features")
        (array([[1. , 2.5]], dtype=float32), '')
        >>> wanted = Preparation.of_numbers(["age", "bmi"])
        >>> wanted.transform(parse_features(b"bmi,age\\n1,2.5", "features", wanted)[0])
        array([[2.5, 1. ]], dtype=float32)
    """
    try:
        text = content.decode("utf-8-sig").strip()
    except UnicodeDecodeError as error:
        raise InputError(f"{where} must be text; {error.reason}.") from error
    if sum(map(text.count, ",; \t\n")) > MOST_VALUES:  # parsed, they take far more memory
        raise InputError(f"{where} must hold at most {MOST_VALUES:,} numbers.")
    if text[:1] in ("[", "{"):
        found = parse_json(text, f"{where} must be JSON")
        if isinstance(found, dict) and isinstance(found.get("features"), (list, dict)):
            found = found["features"]
    else:
        found = _table(text, where)
        if wanted is None and isinstance(found[0], dict):
            rows = _matrix([list(row.values()) for row in found], where)
            return rows, f"{without_names('The run')} Columns were taken by position."
    rows, ignored = json_features(found, where, wanted)
    return rows, f"Left out, not a feature of the run: {', '.join(ignored)}." if ignored else ""


def _table(text: str, where: str) -> list[Any]:
    """Return the rows of lines of text: lists of cells, or objects below a line of names."""
    lines = text.splitlines() or [""]
    delimiter = next((each for each in ",;\t" if each in lines[0]), " ")
    try:
        reader = csv.reader(lines, delimiter=delimiter, skipinitialspace=True)
        first, *rows = [[cell.strip() for cell in row] for row in reader if row] or [[]]
    except csv.Error as error:
        raise InputError(f"{where} must be a table; {error}.") from error
    if not rows or _NUMBER.fullmatch(first[0]):
        return [first, *rows]
    for number, row in enumerate(rows):
        if len(row) != len(first):
            raise InputError(
                f"{where} must have rows of one length, {len(first)} as the names; row {number} "
                f"has {len(row)}."
            )
    return [dict(zip(first, row, strict=True)) for row in rows]


def json_features(
    found: object, where: str, wanted: Preparation | None
) -> tuple[Array | Columns, list[str]]:
    """Return rows of parsed JSON, by position or by name, and the names that the run ignores.

    Args:
        found: a list of numbers, an object of names and values, or a list of either; None (null) is
            a missing value.
        where: what errors begin with.
        wanted: as for ``parse_features``.
    """
    rows = [found] if isinstance(found, dict) else found
    if not isinstance(rows, list) or not rows:
        raise InputError(
            f"{where} must be a JSON list of numbers, an object of names and values, or a list of "
            "either."
        )
    if not isinstance(rows[0], dict):
        return _matrix(rows if isinstance(rows[0], list) else [rows], where), []
    if wanted is None:
        raise InputError(f"{without_names('The run')} Send lists of numbers.")
    return _named(rows, where, wanted)


def _checked(rows: Array, where: str) -> Array:
    if rows.ndim != 2 or not rows.size:
        raise InputError(
            f"{where} must hold at least one row of numbers; got shape {rows.shape}. Separate "
            "them by commas or spaces."
        )
    _check_size(*rows.shape)
    with np.errstate(over="ignore"):
        rows = rows.astype(np.float32)
    bad = np.argwhere(np.isinf(rows))
    if len(bad):
        row, column = bad[0]
        raise InputError(
            f"{where} must hold finite numbers; row {row}, column {column} is {rows[row, column]}."
        )
    return rows


def _named(rows: list[Any], where: str, wanted: Preparation) -> tuple[Columns, list[str]]:
    """Return columns by name, and the names of those that the run does not take."""
    ignored: dict[str, None] = {}
    for number, row in enumerate(rows):
        if not isinstance(row, dict):
            raise InputError(f"{where} must be objects of names and values; row {number} is not.")
        _, extra = match_columns(list(row), wanted.names, f"row {number} of {where}")
        ignored.update(dict.fromkeys(extra))
    _check_size(sum(map(len, rows)))
    return Columns(records_table(rows, where), where), list(ignored)


def _matrix(rows: list[Any], where: str) -> Array:
    for number, row in enumerate(rows):
        if not isinstance(row, list) or len(row) != len(rows[0]):
            raise InputError(
                f"{where} must have rows of one length, {len(rows[0])} as the first; row {number} "
                f"has {len(row) if isinstance(row, list) else 'none'}."
            )
        for column, cell in enumerate(row):
            fine = cell is None or type(cell) in (int, float)
            if not (_NUMBER.fullmatch(cell) if isinstance(cell, str) else fine):
                raise InputError(
                    f"{where} must hold numbers; row {number}, column {column} is {cell!r:.60}."
                )
    try:
        matrix = np.array(rows, dtype=np.float64)
    except (ValueError, OverflowError) as error:
        raise InputError(f"{where} must hold numbers of ordinary size; {error}.") from error
    return _checked(matrix, where)


MOST_PIXELS = 25_000_000
"""Pixels of an uploaded image; a small file can hold a huge one."""

MOST_VALUES = 2_000_000
"""Numbers that reach the network in one request: rows × channels × pixels, or rows × features."""

MOST_CHARACTERS = 1_000_000
"""Characters of all texts of one request."""

AT_ONCE = 2
"""Predictions at once: each takes memory for all activations of the network."""

WAIT_SECONDS = 2.0


class ServedModel:
    """A trained run, with inputs brought to its shape and a bound on predictions at once."""

    def __init__(self, run: Run) -> None:
        self.run = run
        self._turns = Turns(AT_ONCE, "predictions are being made")
        self._decoder = ImageDecoder(AT_ONCE)

    async def in_turn(self, work: Callable[[], Result]) -> Result:
        """Return what ``work`` returns, in a thread, once fewer than ``AT_ONCE`` are at work."""

        def done() -> Result:
            try:
                return work()
            except InputError as error:
                problem = str(error)
            # Its traceback would keep the parsed rows alive until the answer is sent, and by then
            # others are at work.
            raise InputError(problem)

        return await self._turns.run(done, WAIT_SECONDS)

    async def warm_up(self) -> None:
        """Predict one row of zeros in turn, so that what is compiled on first use is there."""
        with suppress(InputError, OSError):  # told to whoever asks
            await self._turns.run(self._predict_zeros, None, abandon=True)

    def _predict_zeros(self) -> None:
        shape = tuple(self.run.data["shape"])
        if self.kind == "features":
            self.run.predict(np.zeros((1, *shape), dtype=np.float32))
        elif self.kind == "images":
            channels, height, width = shape
            size = (1, height, width) if channels == 1 else (1, height, width, channels)
            self.run.predict(np.zeros(size, dtype=np.uint8))

    def predict_image(self, content: bytes, decide: Callable[[], Decision | None]) -> JsonObject:
        """Return probabilities and the set of one image file, scaled to the shape of the run."""
        if self.kind != "images":
            raise InputError(f"this model takes {self.kind}; post them to /api/predict.")
        return self.predict_rows(self.pixels(content, "the body of the request")[None], decide)

    def pixels(self, content: bytes, where: str) -> Array:
        """Return an image file as the network sees it; ``where`` is what errors begin with."""
        return self._decoder.decode(content, tuple(self.run.data["shape"]), where, MOST_PIXELS)

    def close(self) -> None:
        """End the processes that decode images."""
        self._decoder.close()

    @property
    def kind(self) -> str:
        """Return what the rows of the run are: features, images, text or text with regions."""
        return str(self.run.data["kind"])

    @property
    def text_columns(self) -> int:
        """Return how many texts a row of the run has; 0 where rows are something else."""
        return int(self.run.data["shape"][0]) if self.kind == "text" else 0

    def predict_texts(
        self, texts: list[list[str]], decide: Callable[[], Decision | None]
    ) -> JsonObject:
        """Return probabilities and sets for texts, each row a list of its columns."""
        if not self.text_columns:
            raise InputError(f"this model takes {self.kind}, not texts.")
        for row, columns in enumerate(texts):
            if len(columns) != self.text_columns:
                raise InputError(
                    f"every row of `texts` must hold {counted(self.text_columns, 'text')}; row "
                    f"{row} holds {len(columns)}."
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
    ) -> JsonObject:
        """Return probabilities and sets for rows of features or of pixels."""
        if not isinstance(rows, Columns):
            _check_size(*rows.shape)
        return self._predicted(rows, decide)

    def _predicted(self, rows: Any, decide: Callable[[], Decision | None]) -> JsonObject:
        predictions = self.run.predict(rows)
        decision = decide() or self.run.pipeline.rule
        return _answer(predictions.labels, predictions.probabilities, decision)


def map_scores(
    pipeline: Pipeline,
    labels: list[str] | None,
    found: object,
    decide: Callable[[], Decision | None],
) -> JsonObject:
    """Return probabilities and sets for scores, by a saved pipeline.

    Args:
        pipeline: of a run, or as ``credibly calibrate --save`` writes it.
        labels: names of the scores; None where the pipeline knows none.
        found: parsed JSON: a list of numbers, an object of labels and numbers, or a list of either.
        decide: gives the rule; None for that of the pipeline.
    """
    where = "`scores`"
    rows = [found] if isinstance(found, dict) else found
    if labels is not None and isinstance(rows, list) and rows and isinstance(rows[0], dict):
        for number, row in enumerate(rows):
            if not isinstance(row, dict) or row.keys() != set(labels):
                raise InputError(
                    f"row {number} of {where} must have one number for each of the "
                    f"{len(labels)} labels, by name: {listed(labels)}."
                )
        rows = [[row[label] for label in labels] for row in rows]
    scores, _ = json_features(rows, where, None)
    assert isinstance(scores, np.ndarray)
    if np.isnan(scores).any():
        raise InputError(f"{where} must be numbers; got null.")
    count = scores.shape[1] if labels is None else len(labels)
    width = count if pipeline.loss is None else pipeline.loss.num_outputs(count)
    if labels is not None and scores.shape[1] != width:
        raise InputError(f"{where} must have {width} numbers per row; got {scores.shape[1]}.")
    probabilities = pipeline.probabilities(scores)
    names = labels or [str(number) for number in range(probabilities.shape[1])]
    return _answer(names, probabilities, decide() or pipeline.rule)


def _answer(labels: list[str], probabilities: Array, decision: Decision) -> JsonObject:
    sets = decision.predict(probabilities)
    return {
        "labels": labels,
        "probabilities": probabilities.tolist(),
        "sets": [[name for name, on in zip(labels, row, strict=True) if on] for row in sets],
        "decision": repr(decision),
    }


def _check_size(*shape: int) -> None:
    if int(np.prod(shape)) > MOST_VALUES:
        sizes = " × ".join(map(str, shape))
        raise InputError(
            f"a request must hold at most {MOST_VALUES:,} numbers; got {sizes}. Send fewer rows, "
            "or use `credibly predict`."
        )
