"""SVMlight files and files of the extreme classification repository."""

from __future__ import annotations

from collections.abc import Iterable

from fuzz.targets import FolderAttack

MODULES = (
    "credibly.data.xc",
    "credibly.data.rows",
    "credibly.data.sparse_rows",
    "credibly.targets",
)


class Target(FolderAttack):
    """``data.load(FILE.svm)``; behind a NUL byte, the test rows of a folder read by ``xc:``."""

    def seeds(self) -> Iterable[bytes]:
        yield b"2 3 5000\n0,4999 0:0.5 2:1\n 1:2e-3\n"
        yield b"2 9000 3\n0 8999:0.5 2:1\n1 7:-2\n"
        yield b"1 0:1\n0,1 2:3 # comment\n\n"
        yield b"1 2 3\n2 0:1\n\x001 2 3\n0 1:1\n"

    def read(self, data: bytes) -> None:
        from credibly import data as reader

        rows, split, test = data.partition(b"\0")
        if not split:
            reader.load(self.put("rows.svm", rows))
            return
        self.put("xc/train.txt", rows)
        self.put("xc/test.txt", test)
        reader.load(f"xc:{self.folder / 'xc'}")
