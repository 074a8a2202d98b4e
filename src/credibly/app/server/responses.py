"""Filling templates. Jinja2 escapes every name that comes from a file."""

from __future__ import annotations

import csv
import io
import math
import time
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING
from urllib.parse import urlencode

from fastapi import Request
from fastapi.responses import HTMLResponse, JSONResponse, Response

from credibly.app.rendering import environment, wanted
from credibly.app.server.background import Busy
from credibly.app.server.guard import below_root
from credibly.app.store.store import kept, rule_words
from credibly.arrays import plain
from credibly.files import spreadsheet_cell
from credibly.types import JsonObject

if TYPE_CHECKING:
    from credibly.app.server.application import AppState


def state_of(request: Request) -> AppState:
    """Return what the server was started with, unless the request has waited too long."""
    if time.monotonic() > request.scope.get("deadline", math.inf):
        raise Busy("this request waited too long for its turn")
    return request.app.state.served


def page(request: Request, template: str, status: int = 200, **values: object) -> HTMLResponse:
    """Return a page made from a template, which sees the state of the server and ``values``."""
    served = request.app.state.served
    query = dict(request.query_params)
    asked = query.get("file", "")
    number = int(asked) if asked.isdecimal() and int(asked) < len(served.files) else 0

    def address(path: str, **changes: object) -> str:
        """Return a link that keeps which file is looked at, before calibration or not, by rule."""
        merged = {**kept(query), **changes}
        given = {name: value for name, value in merged.items() if value is not None}
        return path + "?" + urlencode(given) if given else path

    text = (
        environment()
        .get_template(template)
        .render(
            served=served,
            address=address,
            kept=kept(query),
            path=request.url.path,
            query=query,
            number=number,
            raw=query.get("raw") == "true",
            rule_chip=rule_words(query),
            **values,
        )
    )
    return HTMLResponse(below_root(text, request.app.state.root_path), status)


def failure(request: Request, status: int, message: str) -> Response:
    """Return an error as JSON for programs and as a page for people."""
    if request.url.path.startswith("/api/"):
        return JSONResponse({"error": message}, status)
    return page(request, "error.html", status, message=message)


def both_labels(first: str, second: str, *, file: int = 0, raw: bool = False) -> str:
    """Return the address of the rows that carry two labels.

    Example:
        >>> both_labels("fork", "apple", file=1)
        '/explore?q=%2Bfork+%2Bapple&file=1'
    """
    asked: dict[str, object] = {"q": f"{wanted(first)} {wanted(second)}"}
    asked |= {"file": file} if file else {}
    asked |= {"raw": "true"} if raw else {}
    return "/explore?" + urlencode(asked)


def csv_text(rows: Iterable[Sequence[object]]) -> str:
    """Return rows as CSV; no cell is run as a formula by a spreadsheet.

    Example:
        >>> print(csv_text([["id", "p"], ["=1+1", 0.25]]).strip())
        id,p
        '=1+1,0.25
    """
    buffer = io.StringIO()
    writer = csv.writer(buffer, lineterminator="\n")
    for row in rows:
        numbers = (f"{value:.7g}" if isinstance(value, float) else value for value in row)
        writer.writerow([spreadsheet_cell(n) if isinstance(n, str) else n for n in numbers])
    return buffer.getvalue()


def table_response(
    kind: str, name: str, columns: Sequence[str], rows: list[JsonObject], **about: object
) -> Response:
    """Return a table to download, as ``kind``: ``csv`` or ``json`` (with ``about`` beside it)."""
    rows = plain(rows)
    if kind == "csv":
        headers = {"content-disposition": f'attachment; filename="{name}.csv"'}
        cells = ([row.get(each) for each in columns] for row in rows)
        return Response(csv_text([columns, *cells]), media_type="text/csv", headers=headers)
    return JSONResponse({**about, name: rows})
