"""MATLAB files of Stanford Cars."""

from __future__ import annotations

import io
from collections.abc import Iterable

import numpy as np

from fuzz.targets import FolderAttack

MODULES = (
    "credibly.papers.datasets.transfer",
    "credibly.papers.datasets.mat",
    "credibly.data.rows",
)
FIELDS = ("class", "relative_im_path", "test")


def cars(compress: bool) -> bytes:
    """``cars_annos.mat`` with two cars."""
    from scipy.io import savemat

    notes = np.empty((1, 2), dtype=[(field, object) for field in FIELDS])
    notes[0] = [(1, "car_ims/1.jpg", 0), (2, "car_ims/2.jpg", 1)]
    names = np.empty((1, 2), dtype=object)
    names[0] = ["Hummer", "Acura"]
    file = io.BytesIO()
    savemat(file, {"annotations": notes, "class_names": names}, do_compression=compress)
    return file.getvalue()


class Target(FolderAttack):
    """``data.load("cars:FOLDER")``, annotations and class names in one file."""

    def __init__(self) -> None:
        super().__init__()
        for name in ("1.jpg", "2.jpg"):
            self.put(f"car_ims/{name}", b"")

    def seeds(self) -> Iterable[bytes]:
        yield cars(compress=False)
        yield cars(compress=True)

    def read(self, data: bytes) -> None:
        from credibly import data as reader

        self.put("cars_annos.mat", data)
        reader.load(f"cars:{self.folder}")
