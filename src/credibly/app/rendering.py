"""What pages of the app, the report and notebooks are made of: templates, styles, small pictures.

Jinja2 escapes every name from a file.
"""

from __future__ import annotations

import hashlib
import math
import re
from collections.abc import Iterable, Sequence
from functools import lru_cache
from importlib.resources import files
from typing import TYPE_CHECKING

from markupsafe import Markup, escape

from credibly import __version__
from credibly.arrays import plain
from credibly.checks import require
from credibly.notebook import counted
from credibly.retrieve import Query
from credibly.untrusted.images import decode_image

if TYPE_CHECKING:
    from pathlib import Path

    from jinja2 import Environment
    from PIL.Image import Image

    from credibly.app.statistics.comparisons import Cell, Difference


STATIC = {
    "app.js": "text/javascript",
    "hover.js": "text/javascript",
    "theme.js": "text/javascript",
    "charts.css": "text/css",
    "style.css": "text/css",
    "icon.svg": "image/svg+xml",
}


@lru_cache(maxsize=len(STATIC))
def static_file(name: str) -> tuple[bytes, str]:
    """Return a file of the app and a text that changes with it."""
    content = (files("credibly.app") / "static" / name).read_bytes()
    return content, hashlib.sha256(content).hexdigest()[:12]


@lru_cache(maxsize=1)
def environment() -> Environment:
    """Return the templates, with the filters that all of them use."""
    require("serve", "jinja2")
    from jinja2 import Environment, PackageLoader, StrictUndefined

    made = Environment(
        loader=PackageLoader("credibly.app", "templates"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    made.filters["percent"] = percent
    made.filters["significant"] = significant
    made.filters["metric"] = metric
    made.filters["change"] = metric_change
    made.filters["share"] = lambda value: f"{100 * value:.0f} %" if value == value else "–"
    made.filters["amount"] = lambda value: f"{value:,.0f}" if value % 1 == 0 else significant(value)
    made.filters["finite"] = plain
    made.filters["code"] = _code
    made.filters["counted"] = counted
    made.globals["metric_interval"] = metric_interval
    made.globals["decimals"] = decimals
    made.globals["column_decimals"] = column_decimals
    made.globals["version"] = __version__
    made.globals["article"] = lambda name: "an" if name[:1].lower() in "aeio" else "a"
    made.globals["wanted"] = wanted
    made.globals["static"] = lambda name: f"/static/{name}?v={static_file(name)[1]}"
    return made


def wanted(label: str, unwanted: str | None = None) -> str:
    """Return the query for one label, without another where one is given.

    Example:
        >>> wanted("dining table", "fork")
        '+"dining table" -fork'
    """
    return str(Query((label,), () if unwanted is None else (unwanted,)))


def static_text(*names: str) -> str:
    """Return style sheets or scripts of the app, for pages that hold everything themselves."""
    folder = files("credibly.app") / "static"
    return "".join((folder / name).read_text(encoding="utf-8") for name in names)


def small_copy(path: Path, side: int) -> Image:
    """Return an image scaled down to a longer side of so many pixels, in colour.

    Raises:
        InputError: for a file that does not decode.
    """
    with decode_image(path, path.name, at_least=(side, side)) as image:
        small = image.convert("RGB")
    small.thumbnail((side, side))
    return small


def _code(text: str) -> Markup:
    """Return text with what stands in backticks as code."""
    return Markup(re.sub(r"`+([^`]+)`+", r"<code>\1</code>", str(escape(text))))


def percent(value: float) -> str:
    """Return a probability or share for people; one that is only nearly 0 or 1 is not called so.

    Example:
        >>> percent(0.25), percent(0.0002), percent(0.9998), percent(0.0)
        ('25.0 %', '< 0.1 %', '> 99.9 %', '0.0 %')
    """
    if value != value:
        return "–"
    if 0 < value < 0.0005:
        return "< 0.1 %"
    return "> 99.9 %" if 0.9995 <= value < 1 else f"{100 * value:.1f} %"


def significant(value: float, digits: int = 3) -> str:
    """Return a number alone with so many significant digits, the last zeros too, in full.

    Example:
        >>> significant(0.26), significant(2), significant(1234.5), significant(float("nan"))
        ('0.260', '2.00', '1,234', '–')
    """
    if not math.isfinite(value):
        return "–"
    if abs(value) < 1e-6:
        return "≈ 0" if value else "0"
    return f"{value:,.{decimals([float(value)], digits)}f}"


def decimals(values: Iterable[object], digits: int = 3) -> int:
    """Return how many decimals all numbers of a column get: those of its largest number.

    Example:
        >>> decimals([0.26, 0.0312, float("nan")]), decimals([0.0312]), decimals([None])
        (3, 4, 2)
    """
    sizes = [abs(x) for x in values if isinstance(x, (int, float)) and math.isfinite(x)]
    rounded = f"{max(sizes, default=0.0):.{digits - 1}e}"  # 0.9996 has the digits of 1
    return max(0, digits - 1 - int(rounded.split("e")[1]))


def column_decimals(rows: Iterable[Sequence[Cell | Difference]]) -> list[int]:
    """Return the decimals of each column of numbers with intervals."""
    return [
        decimals([x for each in column for x in (each.estimate, each.low, each.high)])
        for column in zip(*rows, strict=True)
    ]


def metric(value: float, name: str, places: int | None = None) -> str:
    """Return a metric for people: a log loss or Brier score with three digits, a share in percent.

    ``places`` are the decimals of its column.

    Example:
        >>> metric(0.26, "NLL"), metric(0.0421, "ACE"), metric(float("nan"), "mAP@y")
        ('0.260', '4.2 %', '–')
        >>> metric(0.0312, "NLL", 3)
        '0.031'
    """
    if name.casefold() not in _NOT_SHARES:
        return percent(value)
    return significant(value) if places is None or value != value else f"{value:.{places}f}"


def metric_interval(low: float, high: float, name: str, places: int | None = None) -> str:
    """Return the interval of a metric; none of them can be less than 0.

    Example:
        >>> metric_interval(0.031, 0.052, "ACE"), metric_interval(-0.01, 0.2, "NLL", 3)
        ('3.1 – 5.2 %', '0.000 – 0.200')
    """
    low, high = max(low, 0.0), max(high, 0.0)
    return f"{metric(low, name, places).removesuffix(' %')} – {metric(high, name, places)}"


def metric_change(value: float, name: str, places: int | None = None) -> str:
    """Return the difference of two values of a metric: shares in points of percent.

    Example:
        >>> metric_change(-0.01234, "NLL"), metric_change(0.0421, "ACE")
        ('−0.0123', '+4.21 points')
    """
    if name.casefold() not in _NOT_SHARES:
        shown = f"{abs(100 * value):.2f} points"
    else:
        shown = metric(abs(value), name, places)
    return shown if not value else f"{'+' if value > 0 else '−'}{shown}"


_NOT_SHARES = ("nll", "brier", "log_loss", "loss")
