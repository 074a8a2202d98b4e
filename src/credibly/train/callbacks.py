"""Callbacks of training, and the log with one JSON object per epoch."""

from __future__ import annotations

import json
import sys
import time
import warnings
from pathlib import Path
from typing import TYPE_CHECKING

from credibly.checks import InputError
from credibly.files import atomic_path
from credibly.types import JsonObject
from credibly.untrusted.budget import read_bytes
from credibly.untrusted.documents import parse_json

if TYPE_CHECKING:
    from rich.progress import Progress

LINE_SECONDS = 60.0
"""How often a line says how far training is, where there is no terminal for a bar."""

WORTH_SAYING = 10.0
"""Seconds from which on an estimate is shown."""


def in_words(seconds: float) -> str:
    """Return a duration in one or two digits.

    Example:
        >>> in_words(45), in_words(400), in_words(9000)
        ('45 s', '7 min', '2.5 h')
    """
    if seconds < 90:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 5400 else f"{seconds / 3600:.1f} h"


class Callback:
    """Receive the progress of training. The base class ignores it.

    Example:
        >>> class Printer(Callback):
        ...     def on_epoch(self, figures):
        ...         print(figures["epoch"], figures["nll"])
    """

    def on_linear_probe(self, figures: JsonObject) -> None:
        """Receive the metrics of each penalty while the last layer is solved.

        Args:
            figures: ``l2``, and ``nll``, ``map``, ``ace`` of the held-out rows. Training starts
                from the last layer with the lowest ``nll``.
        """

    def on_estimate(self, figures: dict[str, float]) -> None:
        """Receive the estimated time and memory before training on images.

        Args:
            figures: ``seconds`` and ``epochs``, if all epochs are trained; ``bytes`` of memory
                needed and ``free``.
        """

    def on_candidate(self, figures: JsonObject) -> None:
        """Receive the model that is trained next, if several are compared.

        Args:
            figures: ``model``, ``number`` (from 1), ``total``, and seconds: ``spent`` and ``left``.
        """

    def on_update(self, done: int, total: int) -> None:
        """Receive the progress after each update of the weights.

        Args:
            done: updates so far.
            total: updates of the whole run.
        """

    def on_epoch(self, figures: JsonObject) -> None:
        """Receive the metrics of each epoch on held-out rows.

        Args:
            figures: ``epoch`` (from 1), ``loss``, ``nll``, ``map``, ``ace``, ``learning_rate``,
                ``best_epoch``.
        """


class ProgressBar(Callback):
    """Show what is being trained, the latest metrics and the time left, in terminals and notebooks.

    Args:
        title: what is trained.

    Example:
        >>> bar = ProgressBar()  # cr.train.fit(…, callback=bar)
        >>> bar.on_update(1, 1)
    """

    def __init__(self, title: str = "training") -> None:
        self._bar: Progress | None = None
        self._title, self._figures = title, ""
        self._begun = self._written = time.monotonic()

    def _show(self, text: str, completed: float | None = None, total: float | None = None) -> None:
        if not (sys.stderr.isatty() or "ipykernel" in sys.modules):  # importing rich takes time
            return self._write(text, completed or 0.0, total or 1.0)
        if self._bar is None:
            from rich.console import Console
            from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

            columns = TextColumn("{task.description}", markup=False), BarColumn()
            console = Console(stderr=True)
            self._bar = Progress(*columns, TimeRemainingColumn(), console=console, transient=True)
            self._bar.add_task(text, total=None)
            self._bar.start()
        self._bar.update(
            self._bar.task_ids[0],
            description=f"{self._title}{text}",
            completed=completed,
            total=total,
        )

    def _write(self, text: str, completed: float, total: float) -> None:
        now = time.monotonic()
        if completed and now > self._written + LINE_SECONDS:
            self._written, share = now, completed / total
            left = in_words((now - self._begun) * (1 / share - 1))
            print(f"{self._title}{text} · {share:.0%}, about {left} left", file=sys.stderr)

    def close(self) -> None:
        """Remove the bar."""
        if self._bar is not None:
            self._bar.stop()
            self._bar = None

    def on_estimate(self, figures: dict[str, float]) -> None:
        needed, free = (f"{figures[name] / 1e9:.1f} GB" for name in ("bytes", "free"))
        epochs = f"{figures['epochs']:.0f} epochs" if figures["epochs"] > 1 else "1 epoch"
        text = f"Estimate: {in_words(figures['seconds'])} for {epochs}, {needed} of memory."
        if figures["seconds"] > WORTH_SAYING:
            print(text, file=sys.stderr)
        if figures["bytes"] > figures["free"]:
            warnings.warn(
                f"Training needs about {needed} of memory, and {free} are free. Lower `batch_size` "
                "(`accumulate` keeps the size of a step) or `image_size`.",
                stacklevel=2,
            )

    def on_linear_probe(self, figures: JsonObject) -> None:
        self._show(f" · last layer · l2 {figures['l2']:g} · nll {figures['nll']:.4f}")

    def on_candidate(self, figures: JsonObject) -> None:
        of = f"{figures['model']}, model {figures['number']} of {figures['total']}"
        time = f"{figures['spent']:.0f} s spent, about {figures['left']:.0f} s left"
        done = figures["spent"], figures["spent"] + figures["left"]
        self._show(f" · {of} · {time}", completed=done[0], total=done[1])

    def on_update(self, done: int, total: int) -> None:
        self._show(self._figures, completed=done, total=total)
        if done >= total:
            self.close()

    def on_epoch(self, figures: JsonObject) -> None:
        keys = [key for key in ("loss", "l2", "nll", "map", "ace") if key in figures]
        shown = ", ".join(f"{key} {figures[key]:.3g}" for key in keys)
        self._figures = f" · {'fit' if 'l2' in figures else 'epoch'} {figures['epoch']} · {shown}"


# The log ----------------------------------------------------------------------------------------


class Log(Callback):
    """Write each epoch to the run's ``log.jsonl``, then call ``inner``.

    If an epoch is repeated after a crash, its line is replaced, so the file always reads as one
    uninterrupted run.
    """

    def __init__(self, folder: Path, inner: Callback) -> None:
        self.path, self.inner = folder / "log.jsonl", inner
        self.lines = read_log(self.path)  # a damaged log is an error before training starts
        self.on_linear_probe, self.on_candidate = inner.on_linear_probe, inner.on_candidate
        self.on_update, self.on_estimate = inner.on_update, inner.on_estimate

    def on_epoch(self, figures: JsonObject) -> None:
        self.lines = [line for line in self.lines if line["epoch"] < figures["epoch"]]
        self.lines.append(figures)
        with atomic_path(self.path) as beside:
            text = "".join(json.dumps(line) + "\n" for line in self.lines)
            beside.write_text(text, encoding="utf-8")
        self.inner.on_epoch(figures)


def read_log(path: Path) -> list[JsonObject]:
    """Return the epochs of a run so far, from its ``log.jsonl``; none if the file does not exist.

    Example:
        >>> import tempfile
        >>> path = Path(tempfile.mkdtemp()) / "log.jsonl"
        >>> _ = path.write_text('{"epoch": 1, "nll": 0.25}\\n')
        >>> read_log(path)
        [{'epoch': 1, 'nll': 0.25}]

    Raises:
        InputError: if a line is not the JSON object of an epoch.
    """
    if not path.exists():
        return []
    lines = read_bytes(path, "json").decode("utf-8", "replace").splitlines()
    return [_epoch(path, number, line) for number, line in enumerate(lines, start=1) if line]


def _epoch(path: Path, number: int, line: str) -> JsonObject:
    try:
        figures = parse_json(line, f"{path} must be JSON")
    except InputError:
        figures = None
    if not isinstance(figures, dict) or not isinstance(figures.get("epoch"), int):
        raise InputError(
            f"{path}, line {number} must be a JSON object with `epoch`; got {line[:40]!r}. Remove "
            "the line; the run does not need it."
        )
    return figures
