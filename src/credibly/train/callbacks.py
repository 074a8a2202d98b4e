"""What training reports while it runs."""

from __future__ import annotations

from credibly.types import JsonObject


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
            figures: ``seconds`` and ``epochs``, if all epochs are trained; the shares of the time
                ``before`` the first update and ``after`` the last; ``bytes`` of memory needed and
                ``free``.
        """

    def on_score(self, done: int, total: int) -> None:
        """Receive the progress of scoring rows before the first update and after the last.

        Args:
            done: rows so far.
            total: rows to score.
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
