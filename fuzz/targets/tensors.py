"""``.pt`` files of tensors, as predictions."""

from __future__ import annotations

import io
import warnings
import zipfile
from collections.abc import Iterable

from fuzz.targets import FolderAttack

MODULES = ("credibly.untrusted.tensors",)


class Target(FolderAttack):
    """What the worker reads, in this process: a whole file, or behind ``0`` its pickle alone.

    A damaged archive fails early; with the pickle alone mutated, torch's list of what may be made
    and our conversion are reached as well.
    """

    def seeds(self) -> Iterable[bytes]:
        import torch

        scores = torch.tensor([[0.25, -1.5], [2.0, 0.5]])
        contents = (
            scores,
            {"scores": scores.bfloat16(), "labels": ["a", "b"], "ids": ["x", "y"]},
            {"logits": scores.T, "targets": [[1, 0], [0, 1]]},
            {"scores": scores.to_sparse()},
            {"scores": scores[:1].expand(1000, 2)},
        )
        for content in contents:
            file = io.BytesIO()
            torch.save(content, file)
            yield b"1" + file.getvalue()
            with zipfile.ZipFile(file) as archive:
                member = next(n for n in archive.namelist() if n.endswith("data.pkl"))
                yield b"0" + archive.read(member)
        yield b"1"

    def read(self, data: bytes) -> None:
        from credibly.untrusted.tensors import load_tensors

        content = data[1:] if data[:1] != b"0" else _archive(data[1:])
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            load_tensors(self.put("some.pt", content), "scores", ())


def _archive(pickle: bytes) -> bytes:
    """Return a file of torch.save with this pickle and one storage."""
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w") as archive:
        archive.writestr("archive/data.pkl", pickle)
        archive.writestr("archive/byteorder", b"little")
        archive.writestr("archive/data/0", b"\0" * 16)
        archive.writestr("archive/version", b"3\n")
    return file.getvalue()
