"""CIFAR-10, CIFAR-100 and CIFAR60+40, from the binary version: fixed records, no pickle."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from credibly.checks import InputError
from credibly.data.rows import Data, class_targets
from credibly.data.splits import TEST, TRAIN
from credibly.papers.datasets.folders import holding
from credibly.targets import as_decoded
from credibly.types import Array
from credibly.untrusted.budget import read_bytes
from credibly.untrusted.documents import read_lines

PIXELS = 3 * 32 * 32


def read_cifar10(path: Path) -> Data:
    """Read ``cifar-10-batches-bin``: ``data_batch_1.bin`` … ``5``, ``test_batch.bin``."""
    root = _root(path, "data_batch_1.bin", "cifar-10-binary.tar.gz")
    batches = sorted(root.glob("data_batch_*.bin"))
    train = [_records(file, 1) for file in batches]
    test = _records(root / "test_batch.bin", 1)
    labels = read_lines(root / "batches.meta.txt")
    return _data("cifar10", labels, np.concatenate(train), test, column=0)


def read_cifar100(path: Path) -> Data:
    """Read ``cifar-100-binary``: ``train.bin``, ``test.bin``; the 100 fine labels."""
    root, train, test = _cifar100(path)
    return _data("cifar100", read_lines(root / "fine_label_names.txt"), train, test, column=1)


def read_cifar60_40(path: Path, *, classes_seed: int = 0) -> Data:
    """Read CIFAR-100 without the labels of 2 of the 5 fine classes of each coarse class.

    60 labels remain. The images of the other 40 classes, in training and in test, have no label.
    The original paper does not list the classes.

    Args:
        path: the folder of CIFAR-100, binary version.
        classes_seed: draw of the two classes, whatever the seed of the split.
    """
    root, train, test = _cifar100(path)
    names = read_lines(root / "fine_label_names.txt")
    removed = removed_classes(train[:, :2], classes_seed)
    data = _data("cifar60+40", names, train, test, column=1)
    kept = [index for index in range(len(names)) if index not in removed]
    return Data(
        labels=[names[index] for index in kept],
        targets=data.dense_targets[:, kept],
        ids=data.ids,
        split=data.split,
        images=data.images,
        source="cifar60+40",
        augmentation=data.augmentation,
    )


def removed_classes(coarse_and_fine: Array, seed: int = 0) -> list[int]:
    """Return two fine classes of each coarse class, drawn in the order of the coarse classes."""
    generator = np.random.default_rng(seed)
    removed: list[int] = []
    for coarse in np.unique(coarse_and_fine[:, 0]):
        fine = np.unique(coarse_and_fine[coarse_and_fine[:, 0] == coarse, 1])
        removed += generator.permutation(fine)[:2].tolist()
    return sorted(removed)


def _cifar100(path: Path) -> tuple[Path, Array, Array]:
    root = _root(path, "train.bin", "cifar-100-binary.tar.gz")
    return root, _records(root / "train.bin", 2), _records(root / "test.bin", 2)


def _root(path: Path, file: str, archive: str) -> Path:
    pickled = [*path.glob("**/data_batch_1"), *path.glob("**/cifar-100-python")]
    if pickled or path.name.endswith(("-py", "-python")):
        raise InputError(
            f"{path} holds the Python version, which is pickled and could run any code when it is "
            f"read. Use the binary version ({archive} from the CIFAR page)."
        )
    return holding(path, file)


def _records(file: Path, label_bytes: int) -> Array:
    """Return the records of a file: (n, label bytes + 3072) uint8."""
    if not file.exists():
        raise InputError(f"{file} is missing. This layout needs it.")
    raw = np.frombuffer(read_bytes(file, "records"), dtype=np.uint8)
    if not len(raw) or len(raw) % (label_bytes + PIXELS):
        raise InputError(
            f"{file} must hold whole records of {label_bytes + PIXELS} bytes; it has {len(raw)}. "
            "Download it again."
        )
    return raw.reshape(-1, label_bytes + PIXELS)


def _data(source: str, labels: list[str], train: Array, test: Array, *, column: int) -> Data:
    records = np.concatenate([train, test])
    planes = records[:, -PIXELS:].reshape(-1, 3, 32, 32)
    ids = [f"train-{row:05d}" for row in range(len(train))]
    ids += [f"test-{row:05d}" for row in range(len(test))]
    return Data(
        labels=labels,
        targets=as_decoded(class_targets(records[:, column].astype(int), len(labels), source)),
        ids=np.array(ids),
        split=np.repeat([TRAIN, TEST], [len(train), len(test)]),
        images=np.ascontiguousarray(planes.transpose(0, 2, 3, 1)),
        source=source,
        augmentation="shift+flip",
    )
