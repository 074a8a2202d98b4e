"""What people decided: queues with decisions, the log of reviews, and the truth that results."""

from __future__ import annotations

import csv
import json
import os
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from threading import Lock
from typing import Any

import numpy as np

from credibly.checks import InputError, nearest
from credibly.files import append_lines, shared_lock, spreadsheet_text
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
    """The decision of a person about one entry: 1 present, 0 absent, −1 unknown."""

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


# The log ----------------------------------------------------------------------------------------

UNDECIDED = -2
"""In a log: the decision before is withdrawn."""

VALUES = {"present": 1, "absent": 0, "unsure": UNKNOWN, "undecided": UNDECIDED}
"""Words of a log's decisions, and what they make of the truth."""
_WORDS = {decision: word for word, decision in VALUES.items()}


@dataclass(frozen=True)
class LoggedReview:
    """A decision with who made it and when (UTC, ISO 8601)."""

    review: Review
    who: str
    when: str

    def to_dict(self) -> dict[str, str]:
        """Return the line of the log as plain values."""
        return {
            "id": self.review.id,
            "label": self.review.label,
            "value": _WORDS[self.review.decision],
            "who": self.who,
            "when": self.when,
        }


class ReviewLog:
    """A file of decisions, JSON Lines: id, label, value, who, when. It only grows.

    A decision is on the disk when ``append`` returns. Several people and processes may append at
    once. Of several decisions about an entry the last one counts, and all of them stay; the value
    ``undecided`` withdraws the decision before. What a killed process left of a line is skipped
    (``skipped`` counts such lines).

    Args:
        path: the file, which need not exist yet; its folder must.

    Example:
        >>> import tempfile
        >>> log = ReviewLog(Path(tempfile.mkdtemp()) / "corrections.jsonl")
        >>> log.append([Review("a", "cat", 1), Review("a", "dog", 0)], who="Ana")
        >>> log.append([Review("a", "cat", 0)], who="Bo")
        >>> len(log.entries()), [(r.label, r.decision) for r in log.reviews()]
        (3, [('cat', 0), ('dog', 0)])
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = Path(path)
        self.skipped = 0
        self._entries: list[LoggedReview] = []
        self._read_to = 0
        self._identity: tuple[int, int] | None = None
        self._lock = Lock()
        if self.path.exists() and not self.path.is_file():
            raise InputError(f"a log of reviews must be a file; {self.path} is not.")
        if not self.path.parent.is_dir():
            raise InputError(
                f"the folder of a log of reviews must exist; {self.path.parent} does not."
            )
        if self.path.exists() and not self.entries() and self.path.stat().st_size:
            with self.path.open("rb") as file:
                begins = file.read(1)
            if begins != b"{" or self.skipped > 1:
                raise InputError(
                    f"{self.path} must be a log of reviews, or a new file; it holds something else."
                )

    def append(self, reviews: Sequence[Review], who: str = "") -> None:
        """Add decisions; they are on the disk when this returns.

        Raises:
            OSError: if they could not be kept; then none of them is in the log.
        """
        when = datetime.now(UTC).isoformat(timespec="milliseconds")
        lines = [
            json.dumps(LoggedReview(each, who, when).to_dict(), ensure_ascii=False)
            for each in reviews
        ]
        if lines:
            append_lines(self.path, lines)

    def entries(self) -> list[LoggedReview]:
        """Return every decision, in the order in which they were made."""
        with self._lock:
            self._catch_up()
            return list(self._entries)

    def latest(self) -> dict[tuple[str, str], LoggedReview]:
        """Return the last decision about each (id, label), unless it was withdrawn."""
        last = {(each.review.id, each.review.label): each for each in self.entries()}
        return {key: each for key, each in last.items() if each.review.decision != UNDECIDED}

    def reviews(self) -> list[Review]:
        """Return the last decision about each entry, for ``apply_reviews``."""
        return [each.review for each in self.latest().values()]

    def _catch_up(self) -> None:
        """Read what was added since the last time."""
        try:
            file = self.path.open("rb")
        except FileNotFoundError:
            self._forget()
            return
        with file:
            shared_lock(file)  # a writer that fails takes back what it wrote
            about = os.fstat(file.fileno())
            if self._identity != (about.st_dev, about.st_ino) or about.st_size < self._read_to:
                self._forget()
                self._identity = (about.st_dev, about.st_ino)
            file.seek(self._read_to)
            data = file.read()
        whole, newline, _ = data.rpartition(b"\n")
        self._read_to += len(whole) + len(newline)
        for line in whole.split(b"\n") if newline else []:
            self._add(line)

    def _add(self, line: bytes) -> None:
        if not line:
            return
        try:
            self._entries.append(_entry(json.loads(line)))
        except (ValueError, KeyError, TypeError, RecursionError):
            self.skipped += 1

    def _forget(self) -> None:
        self._entries, self._read_to, self.skipped, self._identity = [], 0, 0, None


def _entry(document: dict[str, Any]) -> LoggedReview:
    review = Review(str(document["id"]), str(document["label"]), VALUES[document["value"]])
    return LoggedReview(review, str(document["who"]), str(document["when"]))
