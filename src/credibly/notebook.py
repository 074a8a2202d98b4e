"""HTML that notebooks show in place of a repr: small tables, every name escaped."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from html import escape
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
    """Return a table as HTML; long ones are cut, and say so.

    Args:
        caption: what stands above it.
        columns: heads of the columns.
        rows: cells of each row; numbers are shown with four digits.
        note: a sentence below.
        total: number of rows that there are, where ``rows`` are the first of them.

    Example:
        >>> "<th>a&lt;b</th></tr></thead><tbody><tr><td>0.5000" in html_table("", ["a<b"], [[0.5]])
        True
    """
    listed = list(rows)
    shown = listed[:ROWS]
    missing = (len(listed) if total is None else total) - len(shown)
    wide = len(columns) > COLUMNS
    head = "".join(f"<th>{escape(str(name))}</th>" for name in columns[:COLUMNS])
    body = "".join(f"<tr>{_cells(row[:COLUMNS], wide)}</tr>" for row in shown)
    head += "<th>…</th>" if wide else ""
    below = [_more(missing, "row")] if missing > 0 else []
    below += [_more(len(columns) - COLUMNS, "column")] if wide else []
    below += [note] if note else []
    text = f"<p>{escape(' '.join(below))}</p>" if below else ""
    return (
        f"<table><caption>{escape(caption)}</caption><thead><tr>{head}</tr></thead>"
        f"<tbody>{body}</tbody></table>{text}"
    )


def _more(count: int, noun: str) -> str:
    """Return a sentence on what is cut.

    Example:
        >>> _more(1, "row"), _more(2000, "row")
        ('1 more row.', '2,000 more rows.')
    """
    return f"{count:,} more {noun}{'' if count == 1 else 's'}."


def number_table(caption: str, stages: Mapping[str, Mapping[str, float]], *, note: str = "") -> str:
    """Return named rows of named numbers as a table; columns are those of the first row.

    Example:
        >>> "<td>link</td><td>0.2500</td>" in number_table("x", {"link": {"NLL": 0.25}})
        True
    """
    names = list(next(iter(stages.values()), {}))
    rows = [[stage, *(numbers.get(name) for name in names)] for stage, numbers in stages.items()]
    return html_table(caption, ["", *names], rows, note=note)


def _cells(row: Sequence[object], wide: bool) -> str:
    cells = "".join(f"<td>{escape(_text(value))}</td>" for value in row)
    return cells + ("<td>…</td>" if wide else "")


def _text(value: Any) -> str:
    if value is None:
        return ""
    if isinstance(value, (float, np.floating)):
        return f"{value:.4f}"
    text = str(value)
    return text if len(text) <= 80 else text[:79] + "…"
