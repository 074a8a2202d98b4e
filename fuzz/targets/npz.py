"""npz files, as data and as predictions."""

from __future__ import annotations

import io
import zipfile
from collections.abc import Iterable

import numpy as np

from fuzz.targets import FolderAttack

MODULES = (
    *("credibly.data.loading", "credibly.data.rows"),
    "credibly.predictions.foreign_files",
)
NAMES = ("features", "images", "targets", "labels", "ids", "split", "truth", "probabilities")
END = b"\xff\xfe"


class Target(FolderAttack):
    """The first byte: whole files as they come (0, 1), or members of a sound archive (2, 3).

    A damaged archive fails its checksums early; with the members alone mutated, headers and cells
    are reached as well.
    """

    def seeds(self) -> Iterable[bytes]:
        arrays: dict[str, np.ndarray] = {
            "features": np.eye(3, 2, dtype=np.float32),
            "targets": np.array([[1, 0], [0, -1], [0, 0]], dtype=np.int8),
            "labels": np.array(["a", "b"]),
        }
        yield b"0" + _archive({name: _member(array) for name, array in arrays.items()})
        yield b"2" + END.join(
            bytes([NAMES.index(name)]) + _member(array) for name, array in arrays.items()
        )
        shares = np.array([[0.5, 0.25], [1.0, 0.0]])
        yield b"1" + _archive({"probabilities": _member(shares)})
        yield b"3" + END.join([b"\x07" + _member(shares), b"\x02" + _member(np.array([1, 0]))])
        yield b"2" + END.join([b"\x00" + _member(np.eye(2)), b"\x02" + _member(np.array([1, 0]))])

    def read(self, data: bytes) -> None:
        from credibly import Predictions
        from credibly import data as reader

        content = data[1:]
        if data[:1] in (b"2", b"3"):
            parts = [part for part in content.split(END) if part]
            content = _archive({NAMES[part[0] % len(NAMES)]: part[1:] for part in parts})
        path = self.put("some.npz", content)
        if data[:1] in (b"1", b"3"):
            Predictions.from_values(path, "probabilities")
        else:
            reader.load(path)


def _member(array: np.ndarray) -> bytes:
    file = io.BytesIO()
    np.save(file, array, allow_pickle=False)
    return file.getvalue()


def _archive(members: dict[str, bytes]) -> bytes:
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w") as archive:
        for name, content in members.items():
            archive.writestr(f"{name}.npy", content)
    return file.getvalue()
