"""ARFF files and the XML beside them."""

from __future__ import annotations

from collections.abc import Iterable

from fuzz.targets import FolderAttack

MODULES = ("credibly.data.arff", "credibly.untrusted.documents", "credibly.data.rows")
HEAD = b"@relation 'x: -C 1'\n@attribute 'a b' {0,1}\n@attribute n numeric\n"
XML = b'<labels xmlns="http://mulan.sourceforge.net/labels"><label name="a b"/></labels>'


class Target(FolderAttack):
    """``data.load(FILE.arff)``; the XML stands behind a NUL byte, where there is one."""

    def seeds(self) -> Iterable[bytes]:
        yield HEAD + b"@attribute k {'x y',z,\"w\"}\n@data\n1,2.5,z\n0,?,'x y'\n"
        yield HEAD + b"@data\n{0 1, 1 3}\n{}\n% comment\n{1 -2}\n\x00" + XML
        yield HEAD + b'@data\n1,2\n\x00<?xml version="1.0" encoding="latin-1"?>' + XML

    def read(self, data: bytes) -> None:
        from credibly import data as reader

        table, _, xml = data.partition(b"\0")
        path = self.put("some.arff", table)
        beside = path.with_suffix(".xml")
        beside.unlink(missing_ok=True)
        if xml:
            self.put(beside.name, xml)
        reader.load(path)
