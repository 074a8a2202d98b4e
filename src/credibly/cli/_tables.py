"""What a command shows: a table for people, one JSON document for programs, progress on stderr."""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any


def print_table(title: str, columns: Sequence[str], rows: Sequence[Sequence[Any]]) -> None:
    """A table on stdout; the first column is text, the others are figures.

    Cells are shown as they are (a label called ``[red]`` stays that); floats with four digits,
    NaN as a dash. Into a pipe or a file nothing is cut to the width of a screen.
    """
    from rich import box
    from rich.table import Table
    from rich.text import Text

    table = Table(title=Text(title) if title else None, box=box.SIMPLE_HEAD, title_justify="left")
    for place, name in enumerate(columns):
        table.add_column(Text(name), justify="left" if place == 0 else "right", overflow="fold")
    for row in rows:
        table.add_row(*(Text(cell(value)) for value in row))
    _console().print(table)


def print_text(text: str) -> None:
    """Plain words on stdout, wrapped on a terminal only."""
    _console().print(text, markup=False, highlight=False)


def cell(value: Any) -> str:
    """One cell as text.

    Example:
        >>> cell(0.123456), cell(1234567), cell(float("nan")), cell(None), cell("dog")
        ('0.1235', '1,234,567', '–', '–', 'dog')
    """
    if value is None or (isinstance(value, float) and math.isnan(value)):
        return "–"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int):
        return f"{value:,}"
    if isinstance(value, float):
        return f"{value:.4f}" if 1e-4 <= abs(value) < 1e6 or value == 0 else f"{value:.3g}"
    return str(value)


def print_json(document: Mapping[str, Any]) -> None:
    """One JSON document on stdout; numpy values become plain ones, NaN and infinities null."""
    import json

    print(json.dumps(plain(document), indent=2, ensure_ascii=False, allow_nan=False))


def plain(value: Any) -> Any:
    """``value`` in terms of JSON.

    Example:
        >>> plain({"a": (1, float("nan")), 2: None})
        {'a': [1, None], '2': None}
    """
    if hasattr(value, "tolist"):  # numpy arrays and scalars
        value = value.tolist()
    if isinstance(value, Mapping):
        return {str(key): plain(part) for key, part in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain(part) for part in value]
    if isinstance(value, float) and not math.isfinite(value):
        return None
    if value is None or isinstance(value, (bool, int, float, str)):
        return value
    return str(value)


@contextmanager
def progress(
    description: str, total: float | None = None, *, quiet: bool = False
) -> Iterator[Callable[[float], None]]:
    """A bar on stderr that goes away when done; yields ``advance(amount)``.

    Silent when ``quiet`` or when stderr is not a terminal.

    Example:
        >>> with progress("reading", total=3) as advance:
        ...     advance(3)
    """
    if quiet or not sys.stderr.isatty():
        yield lambda amount: None
        return
    from rich.console import Console
    from rich.progress import Progress

    with Progress(console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task(description, total=total)
        yield lambda amount: bar.advance(task, amount)


def _console() -> Any:
    from rich.console import Console

    return Console(file=sys.stdout, width=None if sys.stdout.isatty() else 100_000)
