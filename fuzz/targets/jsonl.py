"""JSON lines, as data; JSON documents that this package wrote."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import suppress

import numpy as np

from fuzz.targets import FolderAttack

MODULES = (
    *("credibly.data.table_files", "credibly.data.tables", "credibly.untrusted.documents"),
    *("credibly.runtime", "credibly.review.reviews", "credibly.train.run_folder"),
)


class Target(FolderAttack):
    """``data.load(FILE.jsonl)`` (0), a saved map (1), an export of Label Studio (2), logs (3)."""

    def seeds(self) -> Iterable[bytes]:
        yield b'0{"id": "a", "x": 1.5, "labels": ["u"]}\n{"id": "b", "x": null, "labels": []}\n'
        yield b'0{"text": "one two", "y:a": 1, "y:b": 0}\n\n{"text": "three", "y:a": 0, "y:b": 1}\n'
        yield b'1{"pipeline": 1, "loss": "bce", "calibrator": null, "decision": null}'
        yield b'1{"pipeline": 1, "calibrator": {"calibrator": "affine", "slope": 1}}'
        yield (
            b'2[{"data": {"id": "1", "check": [{"value": "a"}]}, "annotations": '
            b'[{"result": [{"value": {"choices": ["a"]}}]}]}]'
        )

        yield b'3{"id": "a", "label": "cat", "value": "present", "who": "", "when": ""}\n'
        yield b'3{"epoch": 1, "nll": 0.25}\n{"epoch": 2, "nll": 0.125}\n'

    def read(self, data: bytes) -> None:
        from credibly import InputError, Pipeline
        from credibly import data as reader
        from credibly.review import label_studio
        from credibly.review.reviews import ReviewLog
        from credibly.runtime import load
        from credibly.train import read_log

        kind = data[:1]
        path = self.put("some.jsonl" if kind == b"0" else "some.json", data[1:])
        if kind == b"1":
            with suppress(InputError):
                Pipeline.read(path)
            load(path).sets(np.array([[-1.0, 2.0]]))
        elif kind == b"2":
            label_studio.read_reviews(path)
        elif kind == b"3":
            with suppress(InputError):
                read_log(path)
            ReviewLog(path).reviews()
        else:
            reader.load(path)
