"""Arrow and Feather files, and streams of Hugging Face datasets."""

from __future__ import annotations

import io
from collections.abc import Iterable

import numpy as np

from fuzz.targets import FolderAttack

MODULES = ("credibly.untrusted.tables", "credibly.data.huggingface", "credibly.data.tables")
STATE = b'{"_data_files": [{"filename": "data.arrow"}]}'


class Target(FolderAttack):
    """What the worker reads of a file, in this process (0); ``data.load("hf:FOLDER")`` (1)."""

    def seeds(self) -> Iterable[bytes]:
        import pyarrow as pa
        from pyarrow import feather

        columns = {"id": ["a", "bc"], "label": [0, 1], "x": np.array([0.5, 1]), "t": [["u"], []]}
        table = pa.table(columns)
        for options in ({"compression": "uncompressed"}, {"compression": "zstd"}):
            file = io.BytesIO()
            feather.write_feather(table, file, **options)
            yield b"0" + file.getvalue()
        file = io.BytesIO()
        with pa.ipc.new_stream(file, table.schema) as out:
            out.write_table(table)
        yield b"1" + file.getvalue()

    def read(self, data: bytes) -> None:
        from credibly import data as reader
        from credibly.untrusted import tables

        if data[:1] == b"0":
            tables.load_arrow(self.put("some.arrow", data[1:]))
            return
        self.put("data/state.json", STATE)
        self.put("data/data.arrow", data[1:])
        reader.load(f"hf:{self.folder / 'data'}")
