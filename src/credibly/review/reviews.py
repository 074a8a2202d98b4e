"""Decisions of reviewers: queues, the log of reviews, and the corrected truth."""

from __future__ import annotations

import csv
import json
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from io import StringIO
from pathlib import Path
from threading import Lock

import numpy as np

from credibly.checks import InputError, nearest
from credibly.files import append_lines, shared_lock, spreadsheet_text
from credibly.predictions import Predictions
from credibly.targets import UNKNOWN
from credibly.types import FilePath, JsonObject
from credibly.untrusted.budget import check_file, read_text
from credibly.untrusted.documents import parse_json

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
    """The decision of a person about one entry: 1 present, 0 absent, −1 unknown.

    Example:
        >>> Review(id="image-7", label="cat", decision=1)
        Review(id='image-7', label='cat', decision=1)
    """

    id: str
    label: str
    decision: int


def read_reviews(path: FilePath) -> list[Review]:
    """Return the decisions of a queue with a filled column ``decision``; empty ones are skipped.

    A decision is 1, yes or present; 0, no or absent; −1 or unknown. A file that ends in ``.jsonl``
    is read as a ``ReviewLog``: if an entry has several decisions, the last one counts.

    Raises:
        InputError: if a column is missing or a decision has another value.

    Example:
        >>> _ = Path("queue.csv").write_text("id,label,decision\\na,cat,present\\na,dog,\\n")
        >>> read_reviews("queue.csv")
        [Review(id='a', label='cat', decision=1)]
    """
    path = Path(path)
    if path.suffix == ".jsonl":
        path.stat()  # a new log need not exist, but a log to read must
        return ReviewLog(path).reviews()
    reviews = []
    for line, row in _rows(path, ("id", "label", "decision")):
        word = (row["decision"] or "").strip().lower().replace("−", "-")
        if not word:
            continue
        if word not in WORDS:
            raise InputError(
                f"{path}: line {line}, the decision must be present, absent or unknown "
                f"(1, 0, −1); got {word!r}."
            )
        reviews.append(Review(_text(row["id"]), _text(row["label"]), WORDS[word]))
    return reviews


def read_queue(path: FilePath) -> list[Review]:
    """Return all entries of a queue file; their decisions are unknown (−1).

    Example:
        >>> _ = Path("queue.csv").write_text("id,label,decision\\na,cat,present\\na,dog,\\n")
        >>> [(entry.label, entry.decision) for entry in read_queue("queue.csv")]
        [('cat', -1), ('dog', -1)]
    """
    rows = _rows(Path(path), ("id", "label"))
    return [Review(_text(row["id"]), _text(row["label"]), UNKNOWN) for _, row in rows]


def _rows(path: Path, names: Sequence[str]) -> Iterator[tuple[int, dict[str, str | None]]]:
    """Yield the rows of a queue with these columns, each with the number of its last line."""
    reader = csv.DictReader(StringIO(read_text(path, "text"), newline=""))
    try:
        for name in names:
            if name not in (reader.fieldnames or ()):
                raise InputError(
                    f"{path} must be a CSV file with the columns {', '.join(names)}, as `credibly "
                    f"review --out` writes it; {name!r} is missing."
                )
        for row in reader:
            yield reader.line_num, row
    except csv.Error as error:
        raise InputError(f"{path} must be a CSV file; {error}.") from error


def _text(cell: str | None) -> str:
    """Return the text of a cell without the protection against formulas."""
    return spreadsheet_text(cell or "")


def apply_reviews(predictions: Predictions, reviews: Sequence[Review]) -> Predictions:
    """Return the predictions with their truth corrected by reviews.

    Raises:
        InputError: if a review names an id or a label that the predictions do not have.

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
                f"a review names id {review.id!r}, which the predictions do not have. "
                f"{nearest(review.id, rows)}"
            )
        if review.label not in columns:
            raise InputError(
                f"a review names label {review.label!r}, which the predictions do not have. "
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
    """A decision with the reviewer and the time (UTC, ISO 8601)."""

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
    """A JSON Lines file of decisions: id, label, value, who, when. Lines are only appended.

    A decision is on disk when ``append`` returns. Several people and processes may append at the
    same time. If an entry has several decisions, all stay in the file and the last one counts. The
    value ``undecided`` withdraws the previous decision. Incomplete lines of a killed process are
    skipped (``skipped`` counts them).

    Args:
        path: the file, which need not exist yet; its folder must exist.

    Example:
        >>> import tempfile
        >>> log = ReviewLog(Path(tempfile.mkdtemp()) / "corrections.jsonl")
        >>> log.append([Review("a", "cat", 1), Review("a", "dog", 0)], who="Ana")
        >>> log.append([Review("a", "cat", 0)], who="Bo")
        >>> len(log.entries()), [(r.label, r.decision) for r in log.reviews()]
        (3, [('cat', 0), ('dog', 0)])
    """

    def __init__(self, path: FilePath) -> None:
        self.path = Path(path)
        self.skipped = 0
        self._entries: list[LoggedReview] = []
        self._read_to = 0
        self._identity: tuple[int, int] | None = None
        self._lock = Lock()
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
        """Add decisions; they are on disk when this returns.

        Raises:
            OSError: if they could not be written; then none of them is in the log.
        """
        when = datetime.now(UTC).isoformat(timespec="milliseconds")
        lines = [
            json.dumps(LoggedReview(each, who, when).to_dict(), ensure_ascii=False)
            for each in reviews
        ]
        if lines:
            append_lines(self.path, lines)

    def entries(self) -> list[LoggedReview]:
        """Return every decision, in the order of the file."""
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
        """Read the lines that were added since the last call."""
        try:
            check_file(self.path, "text")
            file = self.path.open("rb")
        except FileNotFoundError:
            self._forget()
            return
        with file:
            shared_lock(file)  # a writer that fails removes what it wrote before it unlocks
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
            self._entries.append(_entry(parse_json(line.decode(), f"{self.path} must be JSON")))
        except (ValueError, KeyError, TypeError):
            self.skipped += 1

    def _forget(self) -> None:
        self._entries, self._read_to, self.skipped, self._identity = [], 0, 0, None


def _entry(document: JsonObject) -> LoggedReview:
    review = Review(str(document["id"]), str(document["label"]), VALUES[document["value"]])
    return LoggedReview(review, str(document["who"]), str(document["when"]))
