"""CSV files, as data, as predictions and as queues."""

from __future__ import annotations

from collections.abc import Iterable

from fuzz.targets import FolderAttack

MODULES = (
    *("credibly.data.table_files", "credibly.data.tables", "credibly.data.rows"),
    *("credibly.predictions.foreign_files", "credibly.predictions.validation"),
    "credibly.review.reviews",
)


class Target(FolderAttack):
    """``data.load`` (0), ``Predictions.from_values`` (1, 2), ``read_queue`` and decisions (3)."""

    def seeds(self) -> Iterable[bytes]:
        yield b"0id,split,y:cat,y:dog,f1,f2\na,train,1,0,0.5,2\nb,test,?,1,-1,3e4\n"
        yield b"0id;labels;x\n1;a|b;0.1\n2;;0.2\n3;b;nan\n"
        yield b'0image,cat,dog\n"x/1.png",1,0\nx/2.png,,-1\n'
        yield b"1id,p:cat,p:dog,y:cat,y:dog\na,0.5,1e-3,1,\nb,0,1,0,1\n"
        yield b"1cat,dog,split\n0.5,0.25,0\n1,0,2\n"
        yield b"2id,s:cat,s:dog\na,-3,4\nb,1,0\n"
        yield b"2id,s:cat,s:dog\na,-3,4\nb,inf,0\n"

        yield b"3id,label,probability,decision\na,cat,0.9,1\n'=b,dog,0.1,\n"

    def read(self, data: bytes) -> None:
        from credibly import Predictions
        from credibly import data as reader
        from credibly.review.reviews import read_queue, read_reviews

        path = self.put("some.csv", data[1:])
        if data[:1] == b"1":
            Predictions.from_values(path, "probabilities")
        elif data[:1] == b"2":
            Predictions.from_values(path, "logits", loss="bce")
        elif data[:1] == b"3":
            read_queue(path)
            read_reviews(path)
        else:
            reader.load(path)
