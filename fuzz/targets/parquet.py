"""Predictions files, and foreign Parquet."""

from __future__ import annotations

import io
from collections.abc import Iterable

import numpy as np

from fuzz.targets import FolderAttack

MODULES = (
    *(
        "credibly.predictions.shard",
        "credibly.predictions.file_schema",
        "credibly.predictions.table",
    ),
    "credibly.predictions.validation",
    *("credibly.predictions.foreign_files", "credibly.data.tables"),
)


class Target(FolderAttack):
    """The first byte: damaged files (0–2), or sound ones whose names and metadata are mutated."""

    def seeds(self) -> Iterable[bytes]:
        from credibly import Predictions

        path = self.folder / "seed.parquet"
        Predictions.from_arrays(
            probabilities=np.array([[0.5, 0.25], [1, 0]]),
            targets=np.array([[1, -1], [0, 0]]),
            labels=["a", "b"],
        ).write(path)
        whole = path.read_bytes()
        yield from (kind + whole for kind in (b"0", b"1", b"2"))
        yield b'3{"version": "1.0", "labels": ["a", "b"]}\x00id\x00p:a\x00p:b\x00y:a\x00y:b'
        yield b'3{"version": "1.0", "labels": {"a": 1}, "loss": [1]}\x00id\x00p:a'

    def read(self, data: bytes) -> None:
        from credibly import Predictions
        from credibly import data as reader

        if data[:1] == b"3":
            Predictions.read(self.put("some.parquet", _composed(data[1:])))
            return
        path = self.put("some.parquet", data[1:])
        if data[:1] == b"1":
            Predictions.from_values(path, "probabilities")
        elif data[:1] == b"2":
            reader.load(path)
        else:
            Predictions.read(path)


def _composed(data: bytes) -> bytes:
    import pyarrow as pa
    import pyarrow.parquet as pq

    document, *names = data.split(b"\0")
    texts = [name.decode("utf-8", errors="replace") for name in names]
    cells = {text: [text, "x"] if text == "id" else [0.25, len(text) % 3 - 0.5] for text in texts}
    table = pa.table(cells).replace_schema_metadata({b"credibly": document})
    file = io.BytesIO()
    pq.write_table(table, file)
    return file.getvalue()
