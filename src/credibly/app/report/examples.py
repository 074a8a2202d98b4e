"""The worst rows of a report: what was missed, what was given wrongly, as image or text."""

from __future__ import annotations

import base64
import io
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from credibly.checks import InputError
from credibly.data.image_files import ImageFolder, decode_image
from credibly.predictions import Predictions
from credibly.types import Array

SHOWN = 400
"""Characters of a text."""
SIDE = 176
"""Pixels of the longer side of an image."""
MOST_BYTES = 3_000_000
"""Bytes of all images of a report; further examples are left out."""


@dataclass(frozen=True)
class Example:
    """One row with the label that is most wrong in it.

    Attributes:
        id, label: which entry.
        kind: ``"missed"`` or ``"false alarm"`` at a threshold of one half, ``"present"`` or
            ``"absent"`` where no mistakes are left; ``"most certain"`` without truth.
        probability: of the label.
        text: of the row, shortened; empty without one.
        image: of the row, small, as a data address; empty without one.
        size: width and height of the image.
    """

    id: str
    label: str
    kind: str
    probability: float
    text: str = ""
    image: str = ""
    size: tuple[int, int] = (0, 0)


class ExampleMaker:
    """Finds examples and keeps their images within ``MOST_BYTES`` over all methods.

    Args:
        count: examples of each method.
        texts: texts by row id.
        images: where images of rows lie.
    """

    def __init__(
        self, count: int, texts: Mapping[str, str] | None, images: ImageFolder | None
    ) -> None:
        self.count = count
        self._texts = texts or {}
        self._images = images
        self._left = MOST_BYTES
        self._made: dict[str, tuple[str, tuple[int, int]]] = {}

    @property
    def full(self) -> bool:
        """Return whether images were left out because they would have been too many bytes."""
        return self._left <= 0

    def examples(self, one: Predictions) -> list[Example]:
        """Return the worst rows, missed labels and false alarms in turns, each row once."""
        found: list[Example] = []
        seen: set[int] = set()
        orders = [_entries(score) for score in _scores(one).items()]
        while orders and len(found) < self.count:
            for order in list(orders):
                if len(found) >= self.count:
                    break
                made = self._next(one, order, seen)
                if made is None:
                    orders.remove(order)
                else:
                    found.append(made)
        return found

    def _next(
        self, one: Predictions, order: Iterator[tuple[str, int, int]], seen: set[int]
    ) -> Example | None:
        for kind, row, label in order:
            id = str(one.ids[row])
            if row in seen or not (id in self._texts or self._has_image(id)):
                continue
            image, size = self._image(id)
            if not image and id not in self._texts:
                continue
            seen.add(row)
            probability = float(one.probabilities[row, label])
            text = _shortened(self._texts.get(id, ""))
            word = _kind(kind, probability)
            return Example(id, one.labels[label], word, probability, text, image, size)
        return None

    def _has_image(self, id: str) -> bool:
        return self._images is not None and self._left > 0 and self._images.find(id) is not None

    def _image(self, id: str) -> tuple[str, tuple[int, int]]:
        path = None if self._images is None else self._images.find(id)
        if path is None or self._left <= 0:
            return "", (0, 0)
        try:
            address, size = thumbnail(path)
        except InputError:  # damaged
            return "", (0, 0)
        self._left -= len(address)
        return (address, size) if self._left > 0 else ("", (0, 0))


def _scores(one: Predictions) -> dict[str, Array]:
    """Return how wrong every entry is, by kind; −1 where it is not of that kind."""
    p, y = one.probabilities, one.targets
    if y is None or not (y >= 0).any():
        return {"most certain": p}
    return {
        "present": np.where(y >= 0.5, 1 - p, -1.0),
        "absent": np.where((y >= 0) & (y < 0.5), p, -1.0),
    }


def _kind(truth: str, probability: float) -> str:
    if truth == "present":
        return "missed" if probability < 0.5 else truth
    return "false alarm" if truth == "absent" and probability >= 0.5 else truth


def _entries(score: tuple[str, Array]) -> Iterator[tuple[str, int, int]]:
    """Yield kind, row and label of the worst entry of each row, the worst rows first."""
    kind, values = score
    worst = values.max(axis=1)
    for row in np.argsort(-worst, kind="stable").tolist():
        if worst[row] < 0:
            return
        yield kind, row, int(values[row].argmax())


def thumbnail(path: Path) -> tuple[str, tuple[int, int]]:
    """Return a small copy of an image as a data address, with its width and height.

    Raises:
        InputError: for a file that does not decode.
    """
    with decode_image(path, str(path), at_least=(SIDE, SIDE)) as image:
        plain = image.convert("RGB")
    plain.thumbnail((SIDE, SIDE))
    coded = {kind: _coded(plain, kind) for kind in ("JPEG", "PNG")}
    kind = min(coded, key=lambda each: len(coded[each]))  # drawings are smaller as PNG
    text = base64.b64encode(coded[kind]).decode("ascii")
    return f"data:image/{kind.lower()};base64,{text}", plain.size


def _coded(image: object, kind: str) -> bytes:
    from PIL import Image

    assert isinstance(image, Image.Image)
    buffer = io.BytesIO()
    image.save(buffer, kind, **({"quality": 75} if kind == "JPEG" else {"optimize": True}))
    return buffer.getvalue()


def _shortened(text: str) -> str:
    return text if len(text) <= SHOWN else f"{text[: SHOWN - 1]}…"
