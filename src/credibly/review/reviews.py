"""What people decided about entries of a queue, and the truth that results."""

from __future__ import annotations

import csv
import os
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from credibly.checks import InputError, nearest
from credibly.files import spreadsheet_text
from credibly.predictions import Predictions
from credibly.targets import UNKNOWN

WORDS = {
    "1": 1,
    "0": 0,
    "present": 1,
    "absent": 0,
    "yes": 1,
    "no": 0,
    "true": 1,
    "false": 0,
    "unknown": UNKNOWN,
    "-1": UNKNOWN,
}


@dataclass(frozen=True)
class Review:
    """What a person decided about one entry: 1 present, 0 absent, −1 cannot be told."""

    id: str
    label: str
    decision: int


def read_reviews(path: str | os.PathLike[str]) -> list[Review]:
    """Return the decisions of a queue whose column ``decision`` was filled in; the rest is skipped.

    A decision is 1, yes or present; 0, no or absent; −1 or unknown. A file that ends in ``.jsonl``
    is read as a ``ReviewLog``: of several decisions about an entry the last one counts.

    Raises:
        InputError: if a column is missing or a decision is none of these.
    """
    path = Path(path)
    if path.suffix == ".jsonl":
        from credibly.review.log import ReviewLog

        path.stat()  # a log may be new; one to read must be there
        return ReviewLog(path).reviews()
    reviews = []
    try:
        with path.open(newline="", encoding="utf-8-sig") as file:
            reader = csv.DictReader(file)
            _require_columns(path, reader.fieldnames, ("id", "label", "decision"))
            for row in reader:
                word = (row["decision"] or "").strip().lower().replace("−", "-")
                if not word:
                    continue
                if word not in WORDS:
                    raise InputError(
                        f"{path}: line {reader.line_num}, the decision must be present, absent or "
                        f"unknown (1, 0, −1); got {word!r}."
                    )
                reviews.append(Review(_text(row["id"]), _text(row["label"]), WORDS[word]))
    except (UnicodeDecodeError, csv.Error) as error:
        raise InputError(f"{path} must be a CSV file; {error}.") from error
    return reviews


def read_queue(path: str | os.PathLike[str]) -> list[Review]:
    """Return all entries of a queue file, those without a decision as unknown (−1)."""
    path = Path(path)
    with path.open(newline="", encoding="utf-8-sig") as file:
        reader = csv.DictReader(file)
        _require_columns(path, reader.fieldnames, ("id", "label"))
        return [Review(_text(row["id"]), _text(row["label"]), UNKNOWN) for row in reader]


def _require_columns(path: Path, found: Sequence[str] | None, names: Sequence[str]) -> None:
    for name in names:
        if name not in (found or ()):
            raise InputError(
                f"{path} must be a queue with the columns {', '.join(names)}; {name!r} is missing."
            )


def _text(cell: str | None) -> str:
    """Return the cell as it was before it was guarded against spreadsheets."""
    return spreadsheet_text(cell or "")


def apply_reviews(predictions: Predictions, reviews: Sequence[Review]) -> Predictions:
    """Return the predictions with their truth corrected by the decisions of people.

    Raises:
        InputError: if a decision is about an id or a label that the predictions do not have.

    Example:
        >>> predictions = Predictions.from_arrays(
        ...     probabilities=[[0.99]], targets=[[0]], labels=["cat"], ids=["a"])
        >>> apply_reviews(predictions, [Review("a", "cat", 1)]).targets
        array([[1]], dtype=int8)
    """
    predictions.check_dense("`apply_reviews`")
    rows = {str(name): row for row, name in enumerate(predictions.ids)}
    columns = {name: column for column, name in enumerate(predictions.labels)}
    shape = predictions.probabilities.shape
    targets = (
        np.full(shape, UNKNOWN, dtype=np.int8)
        if predictions.targets is None
        else predictions.targets.copy()
    )
    for review in reviews:
        if review.id not in rows:
            raise InputError(
                f"a review is about id {review.id!r}, which the predictions do not have. "
                f"{nearest(review.id, rows)}"
            )
        if review.label not in columns:
            raise InputError(
                f"a review is about label {review.label!r}, which the predictions do not have. "
                f"{nearest(review.label, columns)}"
            )
        targets[rows[review.id], columns[review.label]] = review.decision
    return replace(predictions, targets=targets)
