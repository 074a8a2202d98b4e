"""Tables for people who take a view elsewhere: CSV and JSON."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from fastapi.responses import JSONResponse, Response

from credibly.files import spreadsheet_cell


def csv_text(columns: Sequence[str], rows: Iterable[Mapping[str, Any]]) -> str:
    """Return rows as CSV; no cell is run as a formula by a spreadsheet.

    Example:
        >>> print(csv_text(["id", "p"], [{"id": "=1+1", "p": 0.25}]).strip())
        id,p
        '=1+1,0.25
    """
    buffer = io.StringIO()
    writer = csv.writer(buffer, lineterminator="\n")
    writer.writerow(columns)
    for row in rows:
        writer.writerow([_cell(row.get(name)) for name in columns])
    return buffer.getvalue()


def _cell(value: object) -> str:
    if value is None:
        return ""
    if isinstance(value, float):
        return f"{value:.6g}"
    return spreadsheet_cell(str(value))


def table_response(
    kind: str, name: str, columns: Sequence[str], rows: list[dict[str, Any]], **about: Any
) -> Response:
    """Return a table to download, as ``kind``: ``csv`` or ``json`` (with ``about`` beside it)."""
    if kind == "csv":
        headers = {"content-disposition": f'attachment; filename="{name}.csv"'}
        return Response(csv_text(columns, rows), media_type="text/csv", headers=headers)
    return JSONResponse({**about, name: rows})
