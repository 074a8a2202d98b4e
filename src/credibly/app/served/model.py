"""The trained run behind ``/api/predict``: what goes in, how many at once, which set comes out."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from credibly.app.server.image_worker import ImageDecoder
from credibly.app.server.limits import Turns
from credibly.checks import InputError
from credibly.data.columns import match_columns, without_names
from credibly.decide import Decision
from credibly.types import Array

MOST_PIXELS = 25_000_000
"""Pixels of an uploaded image; a small file can hold a huge one."""

MOST_VALUES = 2_000_000
"""Numbers that reach the network in one request: rows × channels × pixels, or rows × features."""

MOST_CHARACTERS = 1_000_000
"""Characters of all texts of one request."""

AT_ONCE = 2
"""Predictions at once: each takes memory for all activations of the network."""

WAIT_SECONDS = 2.0


class Model:
    """A trained run, with inputs brought to its shape and a bound on predictions at once."""

    def __init__(self, run: Any) -> None:
        self.run = run
        self._turns = Turns(AT_ONCE, "predictions are being made")
        self._decoder = ImageDecoder(AT_ONCE)

    async def in_turn(self, work: Callable[[], Any]) -> Any:
        """Return what ``work`` returns, in a thread, once fewer than ``AT_ONCE`` are at work."""

        def done() -> Any:
            try:
                return work()
            except InputError as error:
                problem = str(error)
            # Its traceback would keep the parsed rows alive until the answer is sent, and by then
            # others are at work.
            raise InputError(problem)

        return await self._turns.run(done, WAIT_SECONDS)

    def warm_up(self) -> None:
        """Predict one row of zeros: what is imported and compiled on first use is there then."""
        shape = tuple(self.run.data["shape"])
        if self.run.data["kind"] == "features":
            self.run.predict(np.zeros((1, *shape), dtype=np.float32))
        elif self.run.data["kind"] == "images":
            channels, height, width = shape
            size = (1, height, width) if channels == 1 else (1, height, width, channels)
            self.run.predict(np.zeros(size, dtype=np.uint8))

    def named_rows(self, rows: list[dict[str, float]]) -> tuple[Array, list[str]]:
        """Return rows of features by name in the order of training, and the names left out."""
        if self.feature_names is None:
            raise InputError(f"{without_names('this model')} Send lists of numbers.")
        self._check_size(sum(len(row) for row in rows))
        ordered, ignored = [], {}
        for number, row in enumerate(rows):
            where = f"row {number} of `features`"
            order, extra = match_columns(list(row), self.feature_names, where)
            values = list(row.values())
            ordered.append([values[place] for place in order])
            ignored.update(dict.fromkeys(extra))
        return self.rows(ordered), list(ignored)

    def rows(self, rows: list[list[float]]) -> Array:
        """Return rows of features, in the order of training, as an array."""
        width = len(rows[0])
        if any(len(row) != width for row in rows):
            raise InputError("every row of `features` must have the same length.")
        self._check_size(len(rows), width)
        array = np.array(rows, dtype=np.float32)
        if not np.isfinite(array).all():
            raise InputError("`features` must be finite numbers.")
        return array

    def predict_image(self, content: bytes, decide: Callable[[], Decision | None]) -> Any:
        """Return probabilities and the set of one image file, scaled to the shape of the run."""
        if self.kind != "images":
            raise InputError(f"this model takes {self.kind}; post them to /api/predict.")
        return self.predict_array(self.pixels(content, "the body of the request")[None], decide)

    def pixels(self, content: bytes, where: str) -> Array:
        """Return an image file as the network sees it; ``where`` is what errors begin with."""
        shape = tuple(self.run.data["shape"])
        return self._decoder.decode(content, shape, where, MOST_PIXELS)

    def close(self) -> None:
        """End the processes that decode images."""
        self._decoder.close()

    @property
    def kind(self) -> str:
        """Return what the rows of the run are: features, images, text or text with regions."""
        return str(self.run.data["kind"])

    @property
    def feature_names(self) -> list[str] | None:
        """Return the names of the features, in the order of training; None where not known."""
        return self.run.data.get("feature_names")

    @property
    def text_columns(self) -> int:
        """Return how many texts a row of the run has; 0 where rows are something else."""
        return int(self.run.data["shape"][0]) if self.run.data["kind"] == "text" else 0

    def predict_texts(
        self, texts: list[list[str]], decide: Callable[[], Decision | None]
    ) -> dict[str, Any]:
        """Return probabilities and sets for texts, each row a list of its columns."""
        if not self.text_columns:
            raise InputError(f"this model takes {self.run.data['kind']}, not texts.")
        for row, columns in enumerate(texts):
            if len(columns) != self.text_columns:
                raise InputError(
                    f"every row of `texts` must hold {self.text_columns} text(s); row {row} holds "
                    f"{len(columns)}."
                )
        total = sum(len(text) for columns in texts for text in columns)
        if total > MOST_CHARACTERS:
            raise InputError(
                f"a request must hold at most {MOST_CHARACTERS:,} characters; got {total:,}. Send "
                "fewer texts, or use `credibly predict`."
            )
        return self._predicted(texts, decide)

    def predict_array(self, array: Array, decide: Callable[[], Decision | None]) -> dict[str, Any]:
        """Return probabilities and sets for an array of rows, of features or of pixels."""
        self._check_size(*array.shape)
        return self._predicted(array, decide)

    def _predicted(self, rows: Any, decide: Callable[[], Decision | None]) -> dict[str, Any]:
        predictions = self.run.predict(rows)
        decision = decide() or self.run.pipeline.rule
        sets = decision.predict(predictions.probabilities)
        labels = predictions.labels
        return {
            "labels": labels,
            "probabilities": predictions.probabilities.tolist(),
            "sets": [[name for name, on in zip(labels, row, strict=True) if on] for row in sets],
            "decision": repr(decision),
        }

    @staticmethod
    def _check_size(*shape: int) -> None:
        if int(np.prod(shape)) > MOST_VALUES:
            sizes = " × ".join(map(str, shape))
            raise InputError(
                f"a request must hold at most {MOST_VALUES:,} numbers; got {sizes}. Send fewer "
                "rows, or use `credibly predict`."
            )
