"""Numbers in prose: what ``notes.toml`` quotes from tables and findings is filled in here.

``{{table|row|column}}`` is the mean in a cell of a table (``networks-coco``), ``{{…|whole}}`` the
cell with its interval. A row is named by its first cell, or by its first cells joined by ``; ``.
``{{claim|kind|pattern}}`` is the first group of a pattern in what was found of a claim.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any

from benchmarks.claims.findings import Finding
from benchmarks.claims.tables import Table

QUOTE = re.compile(r"\{\{(.+?)\}\}")
MISSING = "–"
"""Stands where a number is not there, because nothing was run."""

Found = Mapping[str, Mapping[str, Finding]]
"""What was found, by claim and kind of run."""


class Quotes:
    """Fills quotations in from tables and findings."""

    def __init__(self, tables: Iterable[Table], found: Found) -> None:
        self.tables, self.found = {table.name: table for table in tables}, found

    def fill(self, prose: Any) -> Any:
        """Return strings, and mappings of them, with every quotation replaced."""
        if isinstance(prose, dict):
            return {name: self.fill(part) for name, part in prose.items()}
        return QUOTE.sub(lambda quote: self.quoted(quote[1]), prose)

    def quoted(self, quote: str) -> str:
        """Return the number that ``table|row|column`` or ``claim|kind|pattern`` names."""
        source, row, name, *whole = quote.split("|")
        if source in self.found:
            match = re.search(name, self.found[source][row].ours)
            return re.sub(r"^-(?=\d)", "−", match[1]) if match else MISSING
        table = self.tables.get(source)
        if table is None:  # nothing of it was run yet
            return MISSING
        column = table.header.index(name)
        for cells in table.rows:
            if row in (cells[0], "; ".join(cells[:2]), "; ".join(cells[:3])):
                cell = cells[column]
                return (cell if whole else re.split(r" [±\[]", cell)[0]).replace("-", "−")
        return MISSING


def share_beyond_zero(tables: Iterable[Table]) -> tuple[int, int]:
    """How many differences the tables show with an interval, and how many leave zero out."""
    cells = [cell for table in tables for row in table.rows for cell in row]
    interval = re.compile(r"^[+-][\d.]+ \[([+-][\d.]+), ([+-][\d.]+)\]$")
    ends = [tuple(map(float, match.groups())) for match in map(interval.match, cells) if match]
    return len(ends), sum(low > 0 or high < 0 for low, high in ends)
