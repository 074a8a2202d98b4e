"""Features of image regions: TSV lines and arrays; HDF5 where h5py is installed."""

from __future__ import annotations

import base64
import io
from collections.abc import Iterable

import numpy as np

from fuzz.targets import FolderAttack

MODULES = ("credibly.papers.datasets.regions", "credibly.untrusted.arrays")


class Target(FolderAttack):
    """``open_regions`` of a TSV file (0), an ``.npz`` file (1) or an HDF5 file (2)."""

    def seeds(self) -> Iterable[bytes]:
        boxes = np.array([[0, 0, 1, 1]], np.float32)
        features = np.arange(4, dtype=np.float32).reshape(1, 4)
        cells = [
            b"7",
            b"10",
            b"10",
            b"1",
            *(base64.b64encode(a.tobytes()) for a in (boxes, features)),
        ]
        yield b"0" + b"\t".join(cells) + b"\n"
        file = io.BytesIO()
        np.savez(file, x=features, bbox=boxes, image_w=10, image_h=10)
        yield b"1" + file.getvalue()
        try:
            import h5py  # pyright: ignore[reportMissingImports]
        except ImportError:
            return
        file = io.BytesIO()
        with h5py.File(file, "w") as out:
            out["7/features"], out["7/boxes"] = features, boxes
        yield b"2" + file.getvalue()

    def read(self, data: bytes) -> None:
        from credibly.papers.datasets.regions import open_regions

        name = {b"0": "7.tsv", b"1": "arrays/7.npz"}.get(data[:1], "7.h5")
        path = self.put(name, data[1:])
        found = open_regions(path.parent if name.endswith("npz") else path)
        for key in list(found.names):
            found.read(key)
