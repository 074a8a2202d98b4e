"""Decode uploaded images in processes of their own, with limits of time and memory.

A job is a line of JSON, ``where``, ``shape`` and ``max_pixels``, and then the file. The answer is a
line of JSON, ``error`` or ``shape``, and then the pixels.
"""

from __future__ import annotations

import io
import json
import os
from queue import LifoQueue
from typing import Any

from credibly.child_processes import Limits, Worker, serve_jobs

LIMITS = Limits(memory=2 * 2**30, seconds=10)


class ImageDecoder:
    """Workers that decode images.

    Args:
        at_once: how many; they start when they are first needed.
        seconds: until an image that is not decoded is given up.
    """

    def __init__(self, at_once: int, seconds: float = 20.0) -> None:
        self._idle: LifoQueue[Worker] = LifoQueue()
        self._workers = [Worker(__name__, seconds) for _ in range(at_once)]
        for worker in self._workers:
            self._idle.put(worker)

    def decode(self, content: bytes, shape: tuple[int, ...], where: str, max_pixels: int) -> Any:
        """Return the pixels of an image, scaled to the (channels, height, width) of a network.

        Raises:
            InputError: if the file is no image, or takes too many pixels, too much time or memory.
        """
        import numpy as np

        from credibly.checks import InputError

        head = {"where": where, "shape": shape, "max_pixels": max_pixels}
        worker = self._idle.get()
        try:
            output = worker.ask(json.dumps(head).encode() + b"\n" + content)
        finally:
            self._idle.put(worker)
        if output is None:
            raise InputError(
                f"{where} must be an image that decodes within {LIMITS.seconds} seconds and "
                f"{LIMITS.memory // 2**30} GB; this one does not. Scale it down first."
            )
        line, _, pixels = output.partition(b"\n")
        answer = json.loads(line)
        if "error" in answer:
            raise InputError(str(answer["error"]))
        return np.frombuffer(pixels, dtype=np.uint8).reshape(answer["shape"])

    def close(self) -> None:
        """End the workers."""
        for worker in self._workers:
            worker.close()


def _answer(job: bytes) -> bytes:
    from credibly.checks import InputError

    line, _, content = job.partition(b"\n")
    try:
        return _decoded(content, **json.loads(line))
    except InputError as error:
        return json.dumps({"error": str(error)}).encode()


def _decoded(content: bytes, where: str, shape: list[int], max_pixels: int) -> bytes:
    from PIL import Image

    from credibly.data import decode_image

    channels, height, width = shape
    size = (width, height)
    with decode_image(io.BytesIO(content), where, at_least=size, max_pixels=max_pixels) as image:
        scaled = image.convert("L" if channels == 1 else "RGB").resize(
            size, Image.Resampling.BILINEAR, reducing_gap=2.0
        )
    found = (height, width) if channels == 1 else (height, width, channels)
    return json.dumps({"shape": found}).encode() + b"\n" + scaled.tobytes()


if __name__ == "__main__":
    os.environ["OPENBLAS_NUM_THREADS"] = "1"  # its threads would take the memory that is allowed
    serve_jobs(_answer, LIMITS)
