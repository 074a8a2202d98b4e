"""Decode uploaded images in processes of their own, with limits of time and memory."""

from __future__ import annotations

import io
import os
from queue import LifoQueue
from typing import TYPE_CHECKING

from credibly.checks import InputError
from credibly.child_processes import Worker, array_jobs, serve_jobs
from credibly.memory_limits import Limits

if TYPE_CHECKING:
    from credibly.types import Array

LIMITS = Limits(memory=2 * 2**30, seconds=10)
SECONDS = 20.0
"""Until an image that is not decoded is given up."""


class ImageDecoder:
    """So many workers that decode images; they start when they are first needed."""

    def __init__(self, at_once: int) -> None:
        self._idle: LifoQueue[Worker] = LifoQueue()
        self._workers = [Worker(__name__, SECONDS) for _ in range(at_once)]
        for worker in self._workers:
            self._idle.put(worker)

    def decode(self, content: bytes, shape: tuple[int, ...], where: str, max_pixels: int) -> Array:
        """Return the pixels of an image, scaled to the (channels, height, width) of a network.

        Raises:
            InputError: if the file is no image, or takes too many pixels, too much time or memory.
        """
        job = {"where": where, "shape": shape, "max_pixels": max_pixels}
        worker = self._idle.get()
        try:
            found = worker.ask_arrays(job, content)
        finally:
            self._idle.put(worker)
        if found is None:
            raise InputError(
                f"{where} must be an image that decodes within {LIMITS.seconds} seconds and "
                f"{LIMITS.memory // 2**30} GB; this one does not. Scale it down first."
            )
        return found["pixels"]

    def close(self) -> None:
        """End the workers."""
        for worker in self._workers:
            worker.close()


def _decoded(content: bytes, where: str, shape: list[int], max_pixels: int) -> dict[str, Array]:
    import numpy as np
    from PIL import Image

    from credibly.untrusted.images import decode_image

    channels, height, width = shape
    size = (width, height)
    with decode_image(io.BytesIO(content), where, at_least=size, max_pixels=max_pixels) as image:
        scaled = image.convert("L" if channels == 1 else "RGB").resize(
            size, Image.Resampling.BILINEAR, reducing_gap=2.0
        )
    return {"pixels": np.asarray(scaled)}


if __name__ == "__main__":
    os.environ["OPENBLAS_NUM_THREADS"] = "1"  # its threads would take the memory that is allowed
    serve_jobs(array_jobs(_decoded), LIMITS)
