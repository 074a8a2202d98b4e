"""VOC's annotations and lists."""

from __future__ import annotations

from collections.abc import Iterable

from fuzz.targets import FolderAttack

MODULES = ("credibly.papers.datasets.voc", "credibly.untrusted.documents", "credibly.data.rows")
XML = b"<annotation><object><name>cat</name><difficult>1</difficult></object></annotation>"


class Target(FolderAttack):
    """``data.load("voc:FOLDER")``; behind a NUL byte stands the list of images."""

    def seeds(self) -> Iterable[bytes]:
        yield XML
        yield XML.replace(b"cat", b"&#99;at") + b"\x00one\n"
        yield b'<?xml version="1.0" encoding="UTF-16"?><!-- x --><a b="c"><![CDATA[d]]></a>'
        yield b'<!DOCTYPE a [<!ENTITY b "c">]><a>&b;</a>'

    def read(self, data: bytes) -> None:
        from credibly import data as reader

        xml, _, listed = data.partition(b"\0")
        self.put("ImageSets/Main/train.txt", listed or b"one\n")
        self.put("ImageSets/Main/val.txt", b"two\n")
        for name in ("one", "two"):
            self.put(f"Annotations/{name}.xml", xml)
            self.put(f"JPEGImages/{name}.jpg", b"")
        reader.load(f"voc:{self.folder}")
