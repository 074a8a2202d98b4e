"""Render objects as HTML for notebooks: cards and small tables, with every name escaped."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from html import escape
from importlib import import_module
from typing import Any

import numpy as np

ROWS, COLUMNS = 10, 12
"""The most that a table shows."""


def html_table(
    caption: str,
    columns: Sequence[object],
    rows: Iterable[Sequence[object]],
    *,
    note: str = "",
    total: int | None = None,
) -> str:
    """Return a table as HTML; a long table is cut, and a note says so.

    Args:
        caption: the text above the table.
        columns: the headers of the columns.
        rows: the cells of each row; numbers are shown with four digits.
        note: a sentence below the table.
        total: the number of all rows, if ``rows`` are only the first ones.

    Example:
        >>> "<th>a&lt;b</th></tr></thead><tbody><tr><td>0.5000" in html_table("", ["a<b"], [[0.5]])
        True
    """
    listed = list(rows)
    shown = listed[:ROWS]
    missing = (len(listed) if total is None else total) - len(shown)
    wide = len(columns) > COLUMNS
    heads = (escape(str(name)) for name in columns[:COLUMNS])
    head = "".join(f"<th>{name}</th>" if name else "<td></td>" for name in heads)
    body = "".join(f"<tr>{_cells(row[:COLUMNS], wide)}</tr>" for row in shown)
    head += "<th>…</th>" if wide else ""
    below = [counted(missing, "more row") + "."] if missing > 0 else []
    below += [counted(len(columns) - COLUMNS, "more column") + "."] if wide else []
    below += [note] if note else []
    text = f"<p>{escape(' '.join(below))}</p>" if below else ""
    return (
        f"<table><caption>{escape(caption)}</caption><thead><tr>{head}</tr></thead>"
        f"<tbody>{body}</tbody></table>{text}"
    )


def counted(count: int, noun: str) -> str:
    """Return a count with its noun in singular or plural.

    Example:
        >>> counted(1, "row"), counted(2000, "more row")
        ('1 row', '2,000 more rows')
    """
    return f"{count:,} {noun}{'' if count == 1 else 's'}"


def number_table(caption: str, stages: Mapping[str, Mapping[str, float]], *, note: str = "") -> str:
    """Return rows of named numbers as an HTML table; the first row defines the columns.

    Example:
        >>> "<td>link</td><td>0.2500</td>" in number_table("x", {"link": {"NLL": 0.25}})
        True
    """
    names = list(next(iter(stages.values()), {}))
    rows = [[stage, *(numbers.get(name) for name in names)] for stage, numbers in stages.items()]
    return html_table(caption, ["", *names], rows, note=note)


def draw(name: str, value: object, *table: str) -> str:
    """Return the HTML card of an object, as the web app shows it.

    The cards are in a higher layer than the objects, so the module is imported by name on demand.

    Args:
        name: the function in ``credibly.app.cards``.
        value: the object.
        table: HTML to show below the card.
    """
    made: str = getattr(import_module("credibly.app.cards"), name)(value, *table)
    return made


def _cells(row: Sequence[object], wide: bool) -> str:
    cells = "".join(f"<td>{escape(_text(value))}</td>" for value in row)
    return cells + ("<td>…</td>" if wide else "")


def _text(value: Any) -> str:
    if value is None:
        return ""
    if isinstance(value, bool):
        return "✓" if value else "✗"
    if isinstance(value, (float, np.floating)):
        return f"{value:.4f}"
    text = str(value)
    return text if len(text) <= 80 else text[:79] + "…"
