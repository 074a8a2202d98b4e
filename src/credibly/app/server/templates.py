"""Filling templates. Jinja2 escapes every name that comes from a file."""

from __future__ import annotations

import hashlib
import math
from functools import lru_cache
from importlib.resources import files
from typing import Any
from urllib.parse import urlencode

from fastapi import Request
from fastapi.responses import HTMLResponse, JSONResponse, Response

from credibly import __version__
from credibly.app.served.address import kept, rule_words
from credibly.checks import require
from credibly.retrieve import Query

STATIC = {
    "app.js": "text/javascript",
    "theme.js": "text/javascript",
    "style.css": "text/css",
    "icon.svg": "image/svg+xml",
}


@lru_cache(maxsize=len(STATIC))
def static_file(name: str) -> tuple[bytes, str]:
    """Return a file of the app and a text that changes with it."""
    content = (files("credibly.app") / "static" / name).read_bytes()
    return content, hashlib.sha256(content).hexdigest()[:12]


@lru_cache(maxsize=1)
def _environment() -> Any:
    require("serve", "jinja2")
    from jinja2 import Environment, PackageLoader, StrictUndefined

    environment = Environment(
        loader=PackageLoader("credibly.app", "templates"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters["percent"] = lambda value: f"{100 * value:.1f} %"
    environment.filters["finite"] = _finite
    environment.globals["version"] = __version__
    environment.globals["wanted"] = wanted
    environment.globals["static"] = lambda name: f"/static/{name}?v={static_file(name)[1]}"
    return environment


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
        _environment()
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
    return HTMLResponse(text, status)


def failure(request: Request, status: int, message: str) -> Response:
    """Return an error as JSON for programs and as a page for people."""
    if request.url.path.startswith("/api/"):
        return JSONResponse({"error": message}, status)
    return page(request, "error.html", status, message=message)


def _finite(columns: dict[str, list[float]]) -> dict[str, list[float | None]]:
    """Return columns with None for NaN, which JSON cannot hold."""
    return {
        name: [value if math.isfinite(value) else None for value in column]
        for name, column in columns.items()
    }


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


def wanted(label: str, unwanted: str | None = None) -> str:
    """Return the query for one label, without another where one is given.

    Example:
        >>> wanted("dining table", "fork")
        '+"dining table" -fork'
    """
    return str(Query((label,), () if unwanted is None else (unwanted,)))
