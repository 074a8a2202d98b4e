"""The standard streams: closed ones, encodings that lack a letter, control characters, signals."""

from __future__ import annotations

import logging
import os
import re
import select
import signal
import sys
import threading
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from io import TextIOWrapper
from pathlib import Path
from types import FrameType
from typing import Any

# What a terminal would act on instead of showing it: control characters (C0, DEL, C1), line and
# paragraph separators, marks that change the direction of text.
_CONTROLS = "\x00-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069"
_UNSAFE = re.compile(f"[{_CONTROLS}]")
_UNSAFE_IN_TEXT = re.compile(f"(?!\n)[{_CONTROLS}]")

# For streams that cannot show the letters that tables and messages use.
_PLAIN = str.maketrans(
    {"–": "-", "—": "-", "−": "-", "…": "...", "±": "+-", "×": "x", "·": "-", "→": "->", "≥": ">="}
)


INTERRUPTED = "\ncredibly: interrupted"


def prepare_streams() -> None:
    """Make standard streams usable: closed ones lead nowhere, no text fails to be written.

    A closed descriptor would otherwise be given to the next file that is opened, and messages
    would be written into that file.
    """
    while True:
        descriptor = os.open(os.devnull, os.O_RDWR)
        if descriptor > 2:
            os.close(descriptor)
            break
    if sys.stdout is None:
        sys.stdout = open(os.devnull, "w", encoding="utf-8")  # noqa: SIM115
    if sys.stderr is None:
        sys.stderr = open(os.devnull, "w", encoding="utf-8")  # noqa: SIM115
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, TextIOWrapper):  # not what a notebook or a test puts there
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
    """Write a message to stderr; nothing happens if nobody reads it."""
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
    """Show warnings of this package as one line each, without the place in its source."""
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

    Python flushes stdout at its exit; without this it would complain there once more.
    """
    try:
        pipe = select.poll()
        pipe.register(sys.stdout.fileno(), 0)
        gone = any(event & select.POLLERR for _, event in pipe.poll(0))
    except AttributeError:  # no polling on this system: believe the error
        gone = True
    except (OSError, ValueError):  # no pipe at all
        gone = False
    if gone:
        detach()
    return gone


def detach() -> None:
    """Let whatever is still written to stdout go nowhere."""
    with suppress(OSError, ValueError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


@contextmanager
def interruptible() -> Iterator[list[int]]:
    """Turn SIGINT and SIGTERM into ``KeyboardInterrupt``; yield the list of signals that arrived.

    The list counts: a library may turn the exception into one of its own. While a library is
    being imported, the process ends at once: an exception there can abort it with a core dump.
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
