"""A run's folder: configuration, weights, calibration, metrics."""

from __future__ import annotations

import struct
from collections.abc import Iterable

import numpy as np

from fuzz.targets import FolderAttack

MODULES = (
    *("credibly.train.run", "credibly.train.run_folder", "credibly.train.recipes"),
    *("credibly.calibrate.auto", "credibly.calibrate.base"),
    *("credibly.decide", "credibly.decide.base"),
)
FILES = ("config.toml", "model.safetensors", "calibration.json", "metrics.json")


class Target(FolderAttack):
    """``credibly.load(RUN)`` with one of its files mutated; the first byte says which.

    4 mutates the weights' header alone, with its length put right.
    """

    def __init__(self) -> None:
        super().__init__()
        _write_run(self.folder)
        self.whole = {name: (self.folder / name).read_bytes() for name in FILES}

    def seeds(self) -> Iterable[bytes]:
        for number, name in enumerate(FILES):
            yield str(number).encode() + self.whole[name]
        yield b"4" + self._header()
        yield b'2{"calibrator": {"calibrator": "isotonic", "x": [0], "y": [1]}, "decision": null}'

    def _header(self) -> bytes:
        weights = self.whole["model.safetensors"]
        (length,) = struct.unpack("<Q", weights[:8])
        return weights[8 : 8 + length]

    def read(self, data: bytes) -> None:
        import credibly

        kind, content = data[:1], data[1:]
        if kind == b"4":
            rest = self.whole["model.safetensors"][8 + len(self._header()) :]
            content = struct.pack("<Q", len(content)) + content + rest
        name = FILES[{b"0": 0, b"1": 1, b"2": 2, b"3": 3}.get(kind, 1)]
        for each, whole in self.whole.items():
            self.put(each, content if each == name else whole)
        credibly.load(self.folder).predict(np.eye(2, dtype=np.float32))


def _write_run(folder) -> None:
    import credibly as cr

    features = np.random.default_rng(0).normal(size=(40, 2))
    rows = cr.data.from_arrays(features=features, targets=features > 0, labels=["a", "b"])
    recipe = cr.train.Network(model="linear", loss="bce", epochs=1, calibrate="affine")
    cr.train.fit(rows, recipe, folder=folder)
    (folder / "manifest.json").unlink()  # which would name each changed file first
