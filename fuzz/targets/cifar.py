"""CIFAR's records and lists of names."""

from __future__ import annotations

from collections.abc import Iterable

from fuzz.targets import FolderAttack

MODULES = ("credibly.papers.datasets.cifar", "credibly.data.rows")
KINDS = {b"0": "cifar10", b"1": "cifar100"}
LAYOUTS = {
    "cifar10": ("batches.meta.txt", "data_batch_1.bin", "test_batch.bin"),
    "cifar100": ("fine_label_names.txt", "train.bin", "test.bin"),
}


class Target(FolderAttack):
    """``data.load("cifar10:FOLDER")`` and the two of CIFAR-100: names, a NUL byte, records.

    A record is a byte here, one more than the class of a black image; behind a second NUL byte
    stands the file of test records as it is.
    """

    def seeds(self) -> Iterable[bytes]:
        yield b"0cat\ndog\n\x00\x01\x02\x01"
        yield b"1cat\ndog\n\x00\x01\x01\x00" + bytes(3074)
        yield b"2a\nb\nc\nd\ne\n\x00\x01\x02\x03\x04"

    def read(self, data: bytes) -> None:
        from credibly import data as reader

        kind = KINDS.get(data[:1], "cifar60+40")
        names, train, test = LAYOUTS["cifar10" if kind == "cifar10" else "cifar100"]
        words, _, rest = data[1:].partition(b"\0")
        classes, _, raw = rest.partition(b"\0")
        label_bytes = 1 if kind == "cifar10" else 2
        records = b"".join(bytes([each - 1] * label_bytes) + bytes(3072) for each in classes[:50])
        folder = self.put(f"{kind}/{names}", words).parent
        self.put(f"{kind}/{train}", records)
        self.put(f"{kind}/{test}", raw or records)
        reader.load(f"{kind}:{folder}")
