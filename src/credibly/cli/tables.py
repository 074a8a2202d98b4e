"""Print results: a table for people, one JSON document for programs, progress on stderr."""

from __future__ import annotations

import math
import re
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from io import StringIO
from typing import TYPE_CHECKING, Any

from credibly.cli.terminal import complain, is_unicode, safe, safe_text, write

if TYPE_CHECKING:
    from credibly.cli.command import Printed

LINE_SECONDS = 30.0

# Controls that JSON leaves as they are, and that a terminal would act on.
_NOT_SHOWN = re.compile("[\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069]")


def print_table(title: str, columns: Sequence[str], rows: Sequence[Sequence[object]]) -> None:
    """Print a table on stdout; the first column is text, the others are numbers.

    Cells are shown as they are (a label called ``[red]`` stays that) except for control
    characters, which are escaped. Floats have four digits, NaN is a dash. Into a pipe or a file
    nothing is cut to the width of a screen.
    """
    from rich import box
    from rich.table import Table
    from rich.text import Text

    table = Table(
        title=Text(safe(title)) if title else None,
        box=box.SIMPLE_HEAD if is_unicode() else box.ASCII2,
        title_justify="left",
    )
    for place, name in enumerate(columns):
        justify = "left" if place == 0 else "right"
        table.add_column(Text(safe(name)), justify=justify, overflow="fold")
    for row in rows:
        table.add_row(*(Text(safe(cell(value))) for value in row))
    _print(table)


def print_text(text: str) -> None:
    """Print plain words on stdout, wrapped on a terminal only."""
    _print(safe_text(text), markup=False, highlight=False)


def cell(value: object) -> str:
    """Return one cell as text.

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


def print_json(document: Mapping[str, object]) -> None:
    """Print one JSON document on stdout; numpy values become plain, NaN and infinities null."""
    import json

    text = json.dumps(plain(document), indent=2, ensure_ascii=not is_unicode(), allow_nan=False)
    write(_NOT_SHOWN.sub(lambda match: f"\\u{ord(match[0]):04x}", text) + "\n")


def tell(options: Printed, document: Mapping[str, object], show: str | Callable[[], None]) -> None:
    """Print a result as the options ask: its JSON document, or words or tables, or nothing."""
    if options.json:
        print_json(document)
    elif not options.quiet:
        show() if callable(show) else print_text(show)


def plain(value: Any) -> Any:
    """Return ``value`` in terms of JSON.

    Example:
        >>> plain({"a": (1, float("nan")), 2: None})
        {'a': [1, None], '2': None}
    """
    from numpy import generic, ndarray

    if isinstance(value, (ndarray, generic)):
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
    """Show a bar on stderr until the work is done; yield ``advance(amount)``.

    Where stderr is not a terminal, a line says how far the work is, every ``LINE_SECONDS``. Nothing
    is shown when ``quiet``.

    Example:
        >>> with progress("reading", total=3) as advance:
        ...     advance(3)
    """
    if quiet:
        yield lambda amount: None
        return
    if not sys.stderr.isatty():
        with _lines(description, total) as advance:
            yield advance
        return
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn
    from rich.progress import TimeRemainingColumn as TimeLeft

    name = TextColumn("{task.description}", markup=False)  # ":x:" and "[red]" may be names
    columns = (name, BarColumn(), TaskProgressColumn(), TimeLeft())
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task(safe(description), total=total)
        yield lambda amount: bar.advance(task, amount)


@contextmanager
def _lines(description: str, total: float | None) -> Iterator[Callable[[float], None]]:
    """Write a line to stderr now and then, for logs."""
    done, start, end = [0.0], time.monotonic(), threading.Event()

    def write_lines() -> None:
        while not end.wait(LINE_SECONDS):
            share = f"{done[0] / total:.0%}, " if total else ""
            complain(f"{description}: {share}{time.monotonic() - start:.0f} seconds")

    def advance(amount: float) -> None:
        done[0] += amount

    thread = threading.Thread(target=write_lines, daemon=True)
    thread.start()
    try:
        yield advance
    finally:
        end.set()
        thread.join()


def _print(content: Any, **settings: Any) -> None:
    """Render for the width of the terminal, then write: rich ends the process on a closed pipe."""
    from rich.console import Console

    terminal = sys.stdout.isatty()
    width = None if terminal else 100_000
    rendered = StringIO()
    console = Console(file=rendered, width=width, force_terminal=terminal or None, emoji=False)
    console.print(content, **settings)
    write(rendered.getvalue())
