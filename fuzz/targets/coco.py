"""COCO's annotations."""

from __future__ import annotations

import json
from collections.abc import Iterable

from fuzz.targets import FolderAttack

MODULES = ("credibly.papers.datasets.coco", "credibly.untrusted.documents", "credibly.data.rows")
WHOLE = {
    "categories": [{"id": 1, "name": "cat"}, {"id": 7, "name": "dog"}],
    "images": [{"id": 5, "file_name": "a.jpg"}, {"id": 6, "file_name": "b.jpg"}],
    "annotations": [{"image_id": 5, "category_id": 7}, {"image_id": 6, "category_id": 1}],
}


class Target(FolderAttack):
    """``data.load("coco:FOLDER")`` with both files alike, so that categories agree."""

    def __init__(self) -> None:
        super().__init__()
        for part in ("train2014", "val2014"):
            for name in ("a.jpg", "b.jpg"):
                self.put(f"{part}/{name}", b"")

    def seeds(self) -> Iterable[bytes]:
        yield json.dumps(WHOLE).encode()
        yield json.dumps({**WHOLE, "annotations": []}).encode()
        yield json.dumps({**WHOLE, "images": {"id": 1}}).encode()

    def read(self, data: bytes) -> None:
        from credibly import data as reader

        for part in ("train", "val"):
            self.put(f"annotations/instances_{part}2014.json", data)
        reader.load(f"coco:{self.folder}")
