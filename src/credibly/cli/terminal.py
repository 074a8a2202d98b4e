"""Output of commands: tables, JSON and progress, on streams that accept any text.

This module handles closed streams, encodings with missing letters, control characters and signals.
"""

from __future__ import annotations

import logging
import math
import os
import re
import select
import signal
import sys
import threading
import time
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from io import StringIO, TextIOWrapper
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rich.console import RenderableType

    from credibly.cli.command import Printed

LINE_SECONDS = 30.0

Advance = Callable[..., None]
"""Called with the amount of work done since the last call, and the text to show."""

# Characters that a terminal would act on instead of showing them: control characters (C0, DEL, C1),
# line and paragraph separators, and marks that change the direction of text.
_CONTROLS = "\x00-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069"
_UNSAFE = re.compile(f"[{_CONTROLS}]")
_UNSAFE_IN_TEXT = re.compile(f"(?!\n)[{_CONTROLS}]")

# For streams that cannot show the letters of tables and messages.
_PLAIN = str.maketrans(
    {"–": "-", "—": "-", "−": "-", "…": "...", "±": "+-", "×": "x", "·": "-", "→": "->", "≥": ">="}
)


INTERRUPTED = "\ncredibly: interrupted"


def prepare_streams() -> None:
    """Make standard streams usable, even if they are closed or cannot encode some letters.

    A closed descriptor would be reused by the next opened file, and messages would be written into
    that file.
    """
    while True:
        descriptor = os.open(os.devnull, os.O_RDWR)
        if descriptor > 2:
            os.close(descriptor)
            break
    for name in ("stdout", "stderr"):
        if getattr(sys, name) is None:
            setattr(sys, name, open(os.devnull, "w", encoding="utf-8"))  # noqa: SIM115
        stream = getattr(sys, name)
        if isinstance(stream, TextIOWrapper):  # not a stream of a notebook or a test
            stream.reconfigure(errors="backslashreplace")


def is_unicode() -> bool:
    """Return whether stdout can show any letter."""
    return (sys.stdout.encoding or "utf-8").lower().replace("-", "").startswith("utf")


def safe(text: str) -> str:
    r"""Return text for one table cell: control characters become escapes.

    Example:
        >>> safe("\x1b[31mred\n")
        '\\x1b[31mred\\n'
    """
    return _UNSAFE.sub(_escaped, text)


def safe_text(text: str) -> str:
    """Return text of several lines: control characters other than line breaks become escapes."""
    return _UNSAFE_IN_TEXT.sub(_escaped, text)


def _escaped(match: re.Match[str]) -> str:
    return ascii(match[0])[1:-1]


def write(text: str) -> None:
    """Write text to stdout."""
    sys.stdout.write(text if is_unicode() else text.translate(_PLAIN))


def complain(text: str) -> None:
    """Write a message to stderr; ignore a closed stream."""
    with suppress(OSError, ValueError):
        print(safe_text(text), file=sys.stderr, flush=True)


@contextmanager
def logs(level: str | None) -> Iterator[logging.Logger]:
    """Yield the logger of the command line; with a level, it and the libraries log to stderr."""
    root, log = logging.getLogger(), logging.getLogger("credibly")
    if level is None:
        yield log
        return
    handler, before = logging.StreamHandler(sys.stderr), root.level
    handler.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(name)s: %(message)s"))
    root.addHandler(handler)
    root.setLevel(level.upper())
    try:
        yield log
    finally:
        root.removeHandler(handler)
        root.setLevel(before)


@contextmanager
def plain_warnings(show_line: Callable[[str], None]) -> Iterator[None]:
    """Show warnings of this package as one line each, without their location in the source."""
    package, usual = str(Path(__file__).parents[1]), warnings.showwarning

    def show(message: Warning | str, category: type[Warning], filename: str, *rest: Any) -> None:
        if category is UserWarning and filename.startswith(package):
            show_line(str(message))
        else:
            usual(message, category, filename, *rest)

    with warnings.catch_warnings():
        warnings.showwarning = show
        yield


def reader_is_gone() -> bool:
    """Return whether stdout is a pipe that its reader has closed, and detach it if so.

    Python flushes stdout at its exit. Without this function, it would report the error again.
    """
    try:
        pipe = select.poll()
        pipe.register(sys.stdout.fileno(), 0)
        gone = any(event & select.POLLERR for _, event in pipe.poll(0))
    except AttributeError:  # no polling on this system: assume that the error is right
        gone = True
    except (OSError, ValueError):  # not a pipe
        gone = False
    if gone:
        detach()
    return gone


def detach() -> None:
    """Discard all further output to stdout."""
    with suppress(OSError, ValueError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


@contextmanager
def interruptible() -> Iterator[list[int]]:
    """Turn SIGINT and SIGTERM into ``KeyboardInterrupt``; yield the list of signals that arrived.

    Count the signals in the list, because a library may replace the exception by its own. During
    the import of a library, the process ends at once: an exception there can abort it with a core
    dump.
    """
    arrived: list[int] = []
    if threading.current_thread() is not threading.main_thread():
        yield arrived
        return

    def handle(number: int, frame: FrameType | None) -> None:
        arrived.append(number)
        if _importing(frame):
            complain(INTERRUPTED)
            os._exit(128 + number)
        raise KeyboardInterrupt

    before = {number: signal.signal(number, handle) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield arrived
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _importing(frame: FrameType | None) -> bool:
    while frame is not None:
        if frame.f_code.co_filename.startswith("<frozen importlib"):
            return True
        frame = frame.f_back
    return False


# Results ----------------------------------------------------------------------------------------

# Control characters that JSON does not escape, but a terminal would act on.
_NOT_SHOWN = re.compile("[\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069]")


def print_table(
    title: str,
    columns: Sequence[str],
    rows: Sequence[Sequence[object]],
    limit: int | None = None,
) -> None:
    """Print a table on stdout; the first column is text, the others are numbers.

    Of more rows than ``limit``, the rest is counted.

    Cells are shown literally (a label ``[red]`` keeps its brackets), with control characters
    escaped. Floats have four digits, NaN is a dash. In a pipe or a file, nothing is cut to the
    width of a screen.
    """
    from rich import box
    from rich.table import Table
    from rich.text import Text

    if title:  # apart from the table, which would wrap it to its own width
        print_text(title)
    table = Table(box=box.SIMPLE_HEAD if is_unicode() else box.ASCII2)
    for place, name in enumerate(columns):
        justify = "left" if place == 0 else "right"
        table.add_column(Text(safe(name)), justify=justify, overflow="fold")
    for row in rows[:limit]:
        table.add_row(*(Text(safe(cell(value))) for value in row))
    _print(table)
    if limit is not None and len(rows) > limit:
        print_text(f"{len(rows) - limit:,} more: see --json.")


def print_text(text: str) -> None:
    """Print plain text on stdout, wrapped only on a terminal."""
    from rich.text import Text

    _print(Text(safe_text(text)))


def cell(value: object) -> str:
    """Return one cell as text.

    Example:
        >>> cell(0.123456), cell(3e-7), cell(1234567), cell(float("nan")), cell("dog")
        ('0.1235', '< 0.0001', '1,234,567', '–', 'dog')
    """
    if value is None or (isinstance(value, float) and math.isnan(value)):
        return "–"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int):
        return f"{value:,}"
    if isinstance(value, float):
        return "< 0.0001" if 0 < value < 5e-5 else f"{value:,.4f}"
    return str(value)


def print_json(document: Mapping[str, object]) -> None:
    """Print one JSON document on stdout. NaN and infinities become null."""
    import json

    from credibly.arrays import plain

    text = json.dumps(plain(document), indent=2, ensure_ascii=not is_unicode(), allow_nan=False)
    write(_NOT_SHOWN.sub(lambda match: f"\\u{ord(match[0]):04x}", text) + "\n")


def tell(options: Printed, document: Mapping[str, object], show: str | Callable[[], None]) -> None:
    """Print a result as the options request: as JSON, as words or tables, or not at all."""
    if options.json:
        print_json(document)
    elif not options.quiet:
        show() if callable(show) else print_text(show)


@contextmanager
def progress(
    description: str, total: float | None = None, *, quiet: bool = False
) -> Iterator[Advance]:
    """Show a bar on stderr until the work is done; yield ``advance(amount, text="")``.

    ``text`` is shown after the description.

    If stderr is not a terminal, a line reports the progress every ``LINE_SECONDS``. With ``quiet``,
    nothing is shown.

    Example:
        >>> with progress("reading", total=3) as advance:
        ...     advance(3)
    """
    if quiet:
        yield lambda amount, text="": None
        return
    if not sys.stderr.isatty():
        with _lines(description, total) as advance:
            yield advance
        return
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn
    from rich.progress import TimeRemainingColumn as TimeLeft

    name = TextColumn("{task.description}", markup=False)  # names may contain ":x:" or "[red]"
    columns = (name, BarColumn(), TaskProgressColumn(), TimeLeft())
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task(safe(description), total=total)

        def advance(amount: float, text: str = "") -> None:
            bar.update(task, advance=amount, description=safe(description + text))

        yield advance


@contextmanager
def _lines(description: str, total: float | None) -> Iterator[Advance]:
    """Write a line of progress to stderr at intervals, for logs."""
    done, shown, start, end = 0.0, description, time.monotonic(), threading.Event()
    first: tuple[float, float] | None = None  # a resumed run has work behind it

    def write_lines() -> None:
        while not end.wait(LINE_SECONDS):
            now, share, left = time.monotonic(), f"{done / total:.0%}, " if total else "", ""
            if total and first and done > first[1]:
                seconds = (now - first[0]) * (total - done) / (done - first[1])
                left = f", about {seconds:.0f} seconds left"
            complain(f"{shown}: {share}{now - start:.0f} seconds{left}")

    def advance(amount: float, text: str = "") -> None:
        nonlocal done, first, shown
        done, shown = done + amount, description + text
        first = first or (time.monotonic(), done)

    thread = threading.Thread(target=write_lines, daemon=True)
    thread.start()
    try:
        yield advance
    finally:
        end.set()
        thread.join()


def _print(content: RenderableType) -> None:
    """Render for the width of the terminal, then write, because rich exits on a closed pipe."""
    from rich.console import Console

    terminal = sys.stdout.isatty()
    width = None if terminal else 100_000
    rendered = StringIO()
    console = Console(file=rendered, width=width, force_terminal=terminal or None, emoji=False)
    console.print(content)
    write(rendered.getvalue())
