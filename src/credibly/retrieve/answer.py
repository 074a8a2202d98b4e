"""The result of a search."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from credibly.notebook import draw, html_table
from credibly.retrieve.query import Diagram, Query, quoted
from credibly.types import FilePath, JsonObject
from credibly.untrusted.images import ImageFolder

if TYPE_CHECKING:
    import pandas as pd


@dataclass(frozen=True)
class Hit:
    """One row of an answer.

    Attributes:
        id: id of the row.
        probability: probability that the row satisfies the query.
        conditions: probability of each condition alone, by its text (``+fork``, ``-knife``).
        truth: whether the row satisfies the query; None if unknown.
        path: the row's image, if it was looked up.
        text: the row's text, if it was looked up.
    """

    id: object
    probability: float
    conditions: Mapping[str, float]
    truth: bool | None = None
    path: str | None = None
    text: str | None = None

    def to_dict(self) -> JsonObject:
        """Return the known fields as plain values, for JSON."""
        return {name: value for name, value in vars(self).items() if value is not None}


@dataclass(frozen=True, repr=False)
class Answer:
    """The best rows for a query, and the expected number of hits among all rows.

    Attributes:
        query: the query.
        hits: the best rows by descending probability; rows with equal probability by id.
        rows: number of rows searched.
        expected_hits: sum of the probabilities over all rows.
        known_rows: number of rows whose truth is known for every label of the query.
        known_expected, known_hits: expected and real hits among these rows; None without any.
        contradiction: whether the query contradicts itself, so that no row can satisfy it.
        sql: the statements that ran; empty for arrays in memory.
    """

    query: Query
    hits: Sequence[Hit]
    rows: int
    expected_hits: float
    known_rows: int = 0
    known_expected: float | None = None
    known_hits: int | None = None
    contradiction: bool = False
    sql: tuple[str, ...] = ()

    @classmethod
    def of_sums(
        cls,
        query: Query,
        hits: Sequence[Hit],
        sums: Sequence[float],
        *,
        contradiction: bool,
        sql: tuple[str, ...] = (),
    ) -> Answer:
        """Return the answer with these sums over all rows.

        ``sums`` are the number of rows and their expected hits, then number, expected hits and real
        hits of the rows whose truth is known.
        """
        rows, expected, known, known_expected, real = sums
        truth = (known_expected, int(real)) if known else (None, None)
        return cls(query, hits, int(rows), float(expected), int(known), *truth, contradiction, sql)

    def with_texts(self, texts: Mapping[str, str]) -> Answer:
        """Return the answer with the text of each row whose id is in ``texts``."""
        hits = [replace(hit, text=texts.get(str(hit.id))) for hit in self.hits]
        return replace(self, hits=hits)

    def with_images(self, folder: FilePath) -> Answer:
        """Return the answer with the image of each row whose id names one in ``folder``.

        The id may lack the file's extension. Notebooks show the images.
        """
        images = ImageFolder(folder)
        found = [(hit, images.find(str(hit.id))) for hit in self.hits]
        hits = [hit if path is None else replace(hit, path=str(path)) for hit, path in found]
        return replace(self, hits=hits)

    @property
    def ids(self) -> list[object]:
        """Return the ids of the best rows, in order."""
        return [hit.id for hit in self.hits]

    @property
    def probabilities(self) -> list[float]:
        """Return the probabilities of the best rows, in order."""
        return [hit.probability for hit in self.hits]

    def table(self) -> tuple[list[str], list[list[object]]]:
        """Return the best rows as names of columns, and cells.

        The columns are id, probability, one per condition, and what is known: truth, path, text.
        """
        names = list(self.hits[0].conditions) if self.hits else []
        known = [
            name
            for name in ("truth", "path", "text")
            if any(getattr(hit, name) is not None for hit in self.hits)
        ]
        rows = [
            [hit.id, hit.probability, *hit.conditions.values(), *(getattr(hit, x) for x in known)]
            for hit in self.hits
        ]
        return ["id", "probability", *names, *known], rows

    def to_pandas(self) -> pd.DataFrame:
        """Return the best rows as a data frame: id, probability, one column per condition."""
        import pandas as pd

        columns, rows = self.table()
        return pd.DataFrame(rows, columns=columns)

    def __repr__(self) -> str:
        expected = f", {self.expected_hits:,.1f} expected"
        return f"Answer({str(self.query)!r}: {len(self.hits)} best of {self.rows:,} rows{expected})"

    def _repr_html_(self) -> str:
        """Return the best rows for notebooks, with images if rows have paths."""
        return draw("answer", self, html_table("Best rows", *self.table()))

    def to_dict(self) -> dict[str, object]:
        """Return the answer as plain values, for JSON."""
        result: dict[str, object] = {
            "query": str(self.query),
            "results": [hit.to_dict() for hit in self.hits],
            "expected_hits": self.expected_hits,
            "rows": self.rows,
        }
        if self.known_rows:
            result["truth"] = {
                "rows": self.known_rows,
                "expected_hits": self.known_expected,
                "hits": self.known_hits,
            }
        if self.contradiction:
            result["contradiction"] = True
        return result


def conditions(
    query: Query, labels: Sequence[str]
) -> Callable[[Sequence[float]], dict[str, float]]:
    """Return a function from the probabilities of ``labels`` to those of each condition by text."""
    signed = [(f"+{quoted(name)}", labels.index(name), True) for name in query.wanted]
    signed += [(f"-{quoted(name)}", labels.index(name), False) for name in query.unwanted]
    return lambda present: {
        text: present[index] if wanted else 1.0 - present[index] for text, index, wanted in signed
    }


def holds(found: Diagram, truth: Sequence[float]) -> bool | None:
    """Return whether the formula holds for the truth of its labels; None if one is unknown."""
    if any(value not in (0, 1) for value in truth):
        return None
    number = found.root
    while number > 1:
        node = found.nodes[number - 2]
        number = node.high if truth[node.label] == 1 else node.low
    return number == 1
