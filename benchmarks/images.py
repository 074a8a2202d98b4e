"""How fast image files become batches, beside what one would write with PIL or simplejpeg.

    python -m benchmarks images

A folder of JPEGs of 500 × 375 pixels, made from the two photographs of scikit-learn. First images
per CPU second in one process, to batches of float tensors without augmentation; then wall time
and CPU time with 0, 1 and 2 workers. simplejpeg is left
out where it is not installed. How much of a bare loop's speed training on images keeps is measured
by ``python -m benchmarks throughput``.
"""

from __future__ import annotations

import os
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import torch
from PIL import Image
from sklearn.datasets import load_sample_images

import credibly as cr
from benchmarks.__main__ import show
from benchmarks.timing import in_turns, median, ratio
from credibly.data import images as _images
from credibly.data.torch_datasets import stream

FILES, WIDTH, HEIGHT = 256, 500, 375
SIDES = (224, 96)
WORKERS = (0, 1, 2)
BATCH = 32
FAST = find_spec("simplejpeg") is not None


def run() -> None:
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as folder:
        data = photographs(Path(folder))
        show([_decoding(data, side) for side in SIDES])
        show([_with_workers(data, workers) for workers in WORKERS])


def photographs(folder: Path) -> cr.data.Data:
    """Write JPEGs cut from real photographs, and return them as rows with one label."""
    generator = np.random.default_rng(0)
    sources = [Image.fromarray(pixels) for pixels in load_sample_images().images]
    names = [f"{number}.jpg" for number in range(FILES)]
    for number, name in enumerate(names):
        source = sources[number % len(sources)]
        share = generator.uniform(0.5, 0.85)
        width, height = source.width * share, source.height * share
        left = generator.uniform(0, source.width - width)
        top = generator.uniform(0, source.height - height)
        box = (left, top, left + width, top + height)
        source.resize((WIDTH, HEIGHT), box=box).save(folder / name, quality=90)
    images = _images.ImageFiles(folder, names, source=str(folder))
    return cr.data.Data(["photograph"], np.ones((FILES, 1), np.float32), images=images)


def _decoding(data: cr.data.Data, side: int) -> dict[str, object]:
    folder, names = data.images.folder, data.images.names
    encoded = [(folder / name).read_bytes() for name in names[:BATCH]]
    dataset = data.torch_dataset(train=False, image_size=side)
    rows = torch.arange(BATCH)
    paths = [folder / name for name in names[:BATCH]]
    cases: dict[str, Callable[[], object]] = {
        "plain PIL": lambda: _batch(_by_pil(path, side) for path in paths),
        "ours, PIL": lambda: _without_simplejpeg(lambda: dataset.batch(rows)),
    }
    if FAST:
        from simplejpeg import decode_jpeg  # pyright: ignore[reportMissingImports]

        def by_simplejpeg(path: Path) -> np.ndarray:
            pixels = Image.fromarray(decode_jpeg(path.read_bytes()))
            return np.asarray(pixels.resize((side, side), Image.Resampling.BILINEAR))

        cases["plain simplejpeg"] = lambda: _batch(by_simplejpeg(path) for path in paths)
        cases["ours, simplejpeg"] = lambda: dataset.batch(rows)
    seconds = in_turns(cases, repeats=9, at_least=0.0)
    speeds = {name: f"{BATCH / median(seconds[name]):,.0f}/s" for name in cases}
    faster = {
        f"{name} / plain PIL": f"{1 / ratio(seconds, name, 'plain PIL'):.2f}"
        for name in cases
        if name != "plain PIL"
    }
    kilobytes = sum(map(len, encoded)) / len(encoded) / 1000
    return {"to": f"{side} px", "kB per file": f"{kilobytes:.0f}", **speeds, **faster}


def _by_pil(path: Path, side: int) -> np.ndarray:
    with Image.open(path) as image:
        return np.asarray(image.convert("RGB").resize((side, side), Image.Resampling.BILINEAR))


def _batch(pixels: Iterator[np.ndarray]) -> torch.Tensor:
    return torch.from_numpy(np.stack(list(pixels))).permute(0, 3, 1, 2).float().div_(255)


@contextmanager
def _pil_alone() -> Iterator[None]:
    before = _images._fast_jpeg
    _images._fast_jpeg = lambda: None  # pyright: ignore[reportAttributeAccessIssue]
    try:
        yield
    finally:
        _images._fast_jpeg = before


def _without_simplejpeg(decode: Callable[[], object]) -> None:
    with _pil_alone():
        decode()


def _with_workers(data: cr.data.Data, workers: int) -> dict[str, object]:
    """Read every file four times, as an epoch of training does: workers start once per epoch."""
    dataset = data.torch_dataset(train=True, image_size=SIDES[0])
    batches: Any = torch.arange(len(data)).repeat(4).split(BATCH)
    count = 4 * len(data)
    wall, own, total = [], [], []
    for _ in range(3):
        start, before = time.perf_counter(), os.times()
        for inputs, _, _ in stream(dataset, batches, workers):
            inputs.sum()
        after = os.times()
        wall.append((time.perf_counter() - start) / count)
        spent = [end - begin for begin, end in zip(before, after, strict=True)]
        own.append(sum(spent[:2]) / count)
        total.append(sum(spent[:4]) / count)  # with children that have ended
    return {
        "workers": workers,
        "images per second of wall time, best": f"{1 / min(wall):,.0f}",
        "CPU ms per image, all processes": f"{1000 * statistics.median(total):.2f}",
        "of it in the training process": f"{1000 * statistics.median(own):.2f}",
    }


if __name__ == "__main__":
    run()
