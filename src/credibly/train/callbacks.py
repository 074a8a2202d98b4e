"""Callbacks: what is called while a run trains."""

from __future__ import annotations

import warnings
from typing import Any

from credibly.train.log import Log


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
        self._figures = f" · epoch {figures['epoch']} · nll {figures['nll']:.4f}"


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


class Watcher(Callback):
    """Deprecated name of :class:`Callback`, with the methods ``update`` and ``epoch``."""

    def __init_subclass__(cls, **options: object) -> None:
        super().__init_subclass__(**options)
        warnings.warn(
            "`cr.train.Watcher` is now `cr.train.Callback`, with `on_update` and `on_epoch`.",
            DeprecationWarning,
            stacklevel=2,
        )

    def update(self, done: int, total: int) -> None:
        """Receive the progress after each update of the weights."""

    def epoch(self, figures: dict[str, Any]) -> None:
        """Receive the metrics of each epoch."""

    def on_update(self, done: int, total: int) -> None:
        self.update(done, total)

    def on_epoch(self, figures: dict[str, Any]) -> None:
        self.epoch(figures)
