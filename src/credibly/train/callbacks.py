"""What is called while a run trains, and the log: one JSON object per epoch."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from credibly.checks import InputError
from credibly.files import atomic_path


class Callback:
    """Receive training progress. The base class ignores it.

    Example:
        >>> class Printer(Callback):
        ...     def on_epoch(self, figures):
        ...         print(figures["epoch"], figures["nll"])
    """

    def on_linear_probe(self, figures: dict[str, Any]) -> None:
        """Receive what each penalty gives while the last layer is solved, before any update.

        Args:
            figures: ``l2``, and ``nll``, ``map``, ``ace`` of the held-out rows. The lowest ``nll``
                is that of the last layer which training starts from.
        """

    def on_update(self, done: int, total: int) -> None:
        """Receive the progress after each update of the weights.

        Args:
            done: updates so far.
            total: updates of the whole run.
        """

    def on_epoch(self, figures: dict[str, Any]) -> None:
        """Receive the metrics of each epoch on held-out rows.

        Args:
            figures: ``epoch`` (from 1), ``loss``, ``nll``, ``map``, ``ace``, ``learning_rate``,
                ``best_epoch``.
        """


class ProgressBar(Callback):
    """Show a bar with the figures of the last epoch, in terminals and notebooks.

    Example:
        >>> bar = ProgressBar()  # cr.train.fit(…, callback=bar)
        >>> bar.on_update(1, 1)
    """

    def __init__(self) -> None:
        self._bar: Any = None
        self._figures = ""

    def _show(self, text: str, **progress: Any) -> None:
        if self._bar is None:
            from rich.console import Console
            from rich.progress import Progress

            console = Console(stderr=True)
            shown = console.is_terminal or console.is_jupyter
            self._bar = Progress(console=console, disable=not shown)
            self._bar.add_task(text, total=None)
            self._bar.start()
        self._bar.update(0, description=text, **progress)

    def on_linear_probe(self, figures: dict[str, Any]) -> None:
        self._show(f"last layer · l2 {figures['l2']:g} · nll {figures['nll']:.4f}")

    def on_update(self, done: int, total: int) -> None:
        self._show(f"training{self._figures}", completed=done, total=total)
        if done >= total:
            self._bar.stop()
            self._bar = None

    def on_epoch(self, figures: dict[str, Any]) -> None:
        self._figures = f" · epoch {figures['epoch']}"
        if "nll" in figures:
            self._figures += f" · nll {figures['nll']:.4f}"


class LoggingCallback(Callback):
    """Write each epoch to the run's log, then call ``inner``."""

    def __init__(self, log: Log, inner: Callback) -> None:
        self.log, self.inner = log, inner

    def on_linear_probe(self, figures: dict[str, Any]) -> None:
        self.inner.on_linear_probe(figures)

    def on_update(self, done: int, total: int) -> None:
        self.inner.on_update(done, total)

    def on_epoch(self, figures: dict[str, Any]) -> None:
        self.log.add(figures)
        self.inner.on_epoch(figures)


# The log ----------------------------------------------------------------------------------------


class Log:
    """``log.jsonl`` of a run, and TensorBoard events where asked for.

    An epoch that is done again after a crash replaces its line, so the file always reads as one
    uninterrupted run.
    """

    def __init__(self, folder: Path, tensorboard: bool = False) -> None:
        self.path = folder / "log.jsonl"
        read_log(self.path)  # a damaged log is an error before any work is done
        self.events = _events(folder / "tensorboard") if tensorboard else None

    def add(self, figures: dict[str, Any]) -> None:
        """Append one epoch's figures; ``figures["epoch"]`` counts from 1."""
        lines = [line for line in read_log(self.path) if line["epoch"] < figures["epoch"]]
        with atomic_path(self.path) as beside:
            text = "".join(json.dumps(line) + "\n" for line in [*lines, figures])
            beside.write_text(text, encoding="utf-8")
        if self.events is not None:
            for name in sorted(set(figures) - {"epoch"}):
                self.events.add_scalar(name, figures[name], figures["epoch"])
            self.events.flush()


def read_log(path: Path) -> list[dict[str, Any]]:
    """Return the epochs of a run so far, from its ``log.jsonl``; none if there is no file.

    Example:
        >>> import tempfile
        >>> path = Path(tempfile.mkdtemp()) / "log.jsonl"
        >>> _ = path.write_text('{"epoch": 1, "nll": 0.25}\\n')
        >>> read_log(path)
        [{'epoch': 1, 'nll': 0.25}]

    Raises:
        InputError: for a line that is not the JSON object of an epoch.
    """
    if not path.exists():
        return []
    lines = path.read_text(encoding="utf-8", errors="replace").splitlines()
    return [_epoch(path, number, line) for number, line in enumerate(lines, start=1) if line]


def _epoch(path: Path, number: int, line: str) -> dict[str, Any]:
    try:
        figures = json.loads(line)
    except (ValueError, RecursionError):
        figures = None
    if not isinstance(figures, dict) or not isinstance(figures.get("epoch"), int):
        raise InputError(
            f"{path}, line {number} must be a JSON object with `epoch`; got {line[:40]!r}. Remove "
            "the line: the run goes on without it."
        )
    return figures


def _events(folder: Path) -> Any:
    try:
        from torch.utils.tensorboard import SummaryWriter
    except ImportError as error:
        raise InputError(
            f"`tensorboard` needs the tensorboard package ({error}). "
            "Install it with `pip install tensorboard`, or leave the option out."
        ) from error
    return SummaryWriter(str(folder))
