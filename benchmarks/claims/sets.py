"""Data sets by name; a name and a seed give the same rows anywhere.

``voc2012`` … are files of the evaluation folder (CREDIBLY_DATA, or ``../shared/data``). A name may
go on: ``tinyimagenet:50`` has 50 of its classes, ``tinyimagenet:tail`` is thinned to a long tail,
``tinyimagenet:120+80`` strips the labels of 80 classes but keeps their rows, ``digits:through-bce``
has features of a network trained on other digits (``transfer``). ``NAME@search`` has no test rows
of NAME: a quarter of its training rows stands in for them.

``coco80-images``, ``voc2012-images`` and ``ucmerced-images`` are images; ``coco80-images:1500`` is
a draw of 1500 training rows, a third as many held-out rows, and 1500 test rows, the same for every
seed. ``cifar100:50`` has images of 50 classes, outside the test rows 100 of each, 5000 at most;
``cifar100:60+40`` has those of all, 40 of each, and no label for two of every five classes that are
alike; ``cifar100:all`` has every image, a tenth of the training images held out;
``flowers102:tail`` is Flowers-102, thinned to a long tail; ``flowers102:through-bce`` has
features of a network trained on 50 classes of CIFAR-100 (``transfer``).
``benchmarks.claims.assets`` makes both files.

``reuters``, ``goemotions`` and ``banking`` are texts (``benchmarks.studies.text`` says where the
files come from): many labels, many labels, one of 77. ``goemotions:4000`` is a draw as above.

``python -m benchmarks.claims.sets NAME --seed 1 --out rows.npz`` writes one as a file; those of
images and texts are parquet files (``kind_of_file``).
"""

from __future__ import annotations

import argparse
import dataclasses
import os
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.studies.training import data_file
from credibly import data
from credibly.data import Data
from credibly.data.splits import CALIBRATION, TEST, TRAIN, hold_out, split_rows

MULTI_LABEL = ("voc2012", "scene", "yeast", "emotions", "bibtex", "medical", "digits", "synthetic")
IMAGES = {
    "coco80-images": "coco80.parquet",
    "voc2012-images": "voc2012-images.parquet",
    "ucmerced-images": "ucmerced.parquet",
}
TEST_IMAGES = 1500
TEXTS = ("reuters", "goemotions", "banking")
ASSETS = ("cifar100", "flowers102")
"""Files made from public repositories, in the folder CREDIBLY_ASSETS."""

PARTS = {TRAIN: "train", TEST: "test", CALIBRATION: "calibration"}

HELD_OUT_OF_ALL = 0.1
CIFAR_PER_CLASS = 100
CIFAR_IMAGES = 5000
CIFAR_PER_CLASS_OF_ALL = 40
CIFAR_GROUPS = (
    "beaver dolphin otter seal whale",
    "aquarium_fish flatfish ray shark trout",
    "orchid poppy rose sunflower tulip",
    "bottle bowl can cup plate",
    "apple mushroom orange pear sweet_pepper",
    "clock keyboard lamp telephone television",
    "bed chair couch table wardrobe",
    "bee beetle butterfly caterpillar cockroach",
    "bear leopard lion tiger wolf",
    "bridge castle house road skyscraper",
    "cloud forest mountain plain sea",
    "camel cattle chimpanzee elephant kangaroo",
    "fox porcupine possum raccoon skunk",
    "crab lobster snail spider worm",
    "baby boy girl man woman",
    "crocodile dinosaur lizard snake turtle",
    "hamster mouse rabbit shrew squirrel",
    "maple_tree oak_tree palm_tree pine_tree willow_tree",
    "bicycle bus motorcycle pickup_truck train",
    "lawn_mower rocket streetcar tank tractor",
)
"""CIFAR-100's coarse classes; the first three of each keep their labels in ``cifar100:60+40``."""

TAIL = (100, 4)
FLOWERS_TAIL = (60, 4)
"""Training rows of the most and the least frequent class of ``tinyimagenet:tail`` and
``flowers102:tail``."""

EMBEDDED = {
    "digits": lambda seed: data.digits(4000, seed=seed),
    "digits:few": lambda seed: data.digits(300, seed=seed),
    "digits:one": lambda seed: data.digits(4000, seed=seed, counts=(0, 1), blur=0.9, clutter=1.0),
    "digits:6+4": lambda seed: with_labels(data.digits(4000, seed=seed, counts=(0, 1)), range(6)),
    "synthetic": lambda seed: data.synthetic(8000, num_features=40, curvature=0.5, seed=seed),
    "synthetic:dependent": lambda seed: data.synthetic(
        8000, num_features=40, curvature=0.5, dependence=0.5, seed=seed
    ),
}


@lru_cache(maxsize=2)
def rows(name: str, seed: int) -> Data:
    """The rows of ``name``, split by ``seed``: published test rows, 20 % of the others held out."""
    name, _, purpose = name.partition("@")
    source = f"{name}@{purpose}" if purpose else name
    found = dataclasses.replace(_rows(name, seed), source=source)
    return _without_test(found, seed) if purpose else found


def _rows(name: str, seed: int) -> Data:
    if name in EMBEDDED:
        return EMBEDDED[name](seed)
    file, _, form = name.partition(":")
    if file in TEXTS or file in IMAGES:
        images = file in IMAGES
        read = data.load(data_file(IMAGES[file]), seed=seed) if images else _texts(file, seed)
        if not form:
            return read
        chosen, split = _drawn(read, int(form), seed)
        return dataclasses.replace(read.take(chosen), split=split)
    if form.startswith("through-"):
        from benchmarks.claims import transfer

        loss = form.removeprefix("through-")
        if file == "digits":
            return transfer.through_scenes(loss, seed)
        return transfer.through_cifar(_rows("cifar100:50", seed), _asset(file, seed), loss, seed)
    if file in ASSETS:
        read = _asset(file, seed)
        if form == "all":
            split = np.where(read.split == TEST, TEST, TRAIN)
            split = hold_out(read.targets, split, HELD_OUT_OF_ALL, seed)
            return dataclasses.replace(read, split=split)
        if form == "tail":
            return _thinned(read, seed, FLOWERS_TAIL)
        if "+" in form:
            fewer = _some_images(read, seed, CIFAR_PER_CLASS_OF_ALL)
            kept = {name for group in CIFAR_GROUPS for name in group.split()[:3]}
            return with_labels(fewer, [k for k, name in enumerate(read.labels) if name in kept])
        some = _some_classes(read, int(form))
        return _some_images(some, seed, min(CIFAR_PER_CLASS, CIFAR_IMAGES // int(form)))
    read = data.load(data_file(f"{file}.npz"), seed=seed)
    if not form:
        return read
    if form == "tail":
        return _thinned(read, seed, TAIL)
    if "+" in form:
        return with_labels(read, _kept_classes(read))
    return _some_classes(read, int(form))


def _asset(file: str, seed: int) -> Data:
    path = Path(os.environ.get("CREDIBLY_ASSETS", ".")) / f"{file}.npz"
    return data.load(path, seed=seed)


def _drawn(read: Data, number: int, seed: int) -> tuple[Any, Any]:
    """Row numbers of a draw and their parts; ``number`` training rows."""
    rest = np.random.default_rng(seed).permutation(np.flatnonzero(read.split != TEST))
    test = np.random.default_rng(0).permutation(np.flatnonzero(read.split == TEST))[:TEST_IMAGES]
    held_out = rest[number : number + number // 3]
    chosen = np.concatenate([rest[:number], held_out, test])
    sizes = (min(number, len(rest)), len(held_out), len(test))
    return chosen, np.repeat(np.array([TRAIN, CALIBRATION, TEST], np.int8), sizes)


def _texts(name: str, seed: int) -> Data:
    """Texts with labels by name, read through a file as any user's are."""
    import tempfile

    from benchmarks.studies.text import SETS, write_jsonl

    with tempfile.TemporaryDirectory() as folder:
        write_jsonl(SETS[name](), Path(folder, f"{name}.jsonl"))
        return data.load(Path(folder, f"{name}.jsonl"), seed=seed)


def _without_test(read: Data, seed: int) -> Data:
    """The training rows alone, a quarter of them as test rows."""
    kept = read.take(np.flatnonzero(read.split != TEST))
    split = split_rows(kept.targets, test=0.25, calibration=0.2, seed=1000 + seed)
    return dataclasses.replace(kept, split=split)


def _some_classes(read: Data, number: int) -> Data:
    """Rows of the first ``number`` classes in an order that does not depend on the seed."""
    chosen = np.sort(np.random.default_rng(0).permutation(read.num_labels)[:number])
    inside = read.take(np.flatnonzero(read.targets[:, chosen].any(axis=1)))
    return dataclasses.replace(
        inside, labels=[read.labels[k] for k in chosen], targets=inside.targets[:, chosen]
    )


def _some_images(read: Data, seed: int, per_class: int) -> Data:
    """Some training images of each class, a fifth of them held out; all test images."""
    generator = np.random.default_rng(seed)
    classes = read.targets.argmax(axis=1)
    kept = [np.flatnonzero(read.split == TEST)]
    for label in range(read.num_labels):
        own = np.flatnonzero((classes == label) & (read.split != TEST))
        kept.append(generator.permutation(own)[:per_class])
    some = read.take(np.sort(np.concatenate(kept)))
    split = np.where(some.split == TEST, TEST, TRAIN)
    return dataclasses.replace(some, split=hold_out(some.targets, split, 0.2, seed))


def _thinned(read: Data, seed: int, tail: tuple[int, int]) -> Data:
    """Training rows of each class between two numbers, evenly in log; all test rows."""
    high, low = tail
    counts = np.geomspace(high, low, read.num_labels).round().astype(int)
    order = np.random.default_rng(0).permutation(read.num_labels)
    generator = np.random.default_rng(seed)
    classes = read.targets.argmax(axis=1)
    kept = [np.flatnonzero(read.split == TEST)]
    for place, label in enumerate(order):
        own = np.flatnonzero((classes == label) & (read.split != TEST))
        kept.append(generator.permutation(own)[: counts[place]])
    thinned = read.take(np.sort(np.concatenate(kept)))
    split = np.where(thinned.split == TEST, TEST, TRAIN)
    return dataclasses.replace(thinned, split=hold_out(thinned.targets, split, 0.2, seed))


def _kept_classes(read: Data) -> list[int]:
    """Three of every five similar classes: greedy groups by the distance of class means."""
    train = read.part("train")
    assert train.features is not None
    sums = train.targets.T @ train.features
    means = sums / train.targets.sum(axis=0)[:, None]
    left, kept = list(range(read.num_labels)), []
    while left:
        away = np.square(means[left] - means[left[0]]).sum(axis=1)
        group = [left[k] for k in np.argsort(away, kind="stable")[:5]]
        kept += sorted(group)[:3]
        left = [k for k in left if k not in group]
    return sorted(kept)


def with_labels(read: Data, kept: range | list[int]) -> Data:
    """The same rows with only the labels ``kept``: rows of other classes have none."""
    chosen = list(kept)
    return dataclasses.replace(
        read,
        labels=[read.labels[k] for k in chosen],
        targets=read.targets[:, chosen],
        truth=None,
    )


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.claims.sets")
    parser.add_argument("name")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", required=True)
    arguments = parser.parse_args()
    write(arguments.name, rows(arguments.name, arguments.seed), Path(arguments.out))


def kind_of_file(name: str) -> str:
    """The end of the name of a file that holds the rows of ``name``."""
    return "parquet" if name.partition(":")[0] in (*IMAGES, *TEXTS) else "npz"


def write(name: str, found: Data, out: Path) -> None:
    """Write rows so that ``credibly train`` reads them with the parts they have here."""
    if found.texts is not None:
        _write_texts(found, out)
    elif kind_of_file(name) == "parquet":
        _write_images(name, found, out)
    else:
        arrays: dict[str, Any] = {
            name: getattr(found, name)
            for name in ("features", "images", "targets", "ids", "split", "truth")
            if getattr(found, name) is not None
        }
        np.savez_compressed(out, labels=np.array(found.labels), **arrays)


def _write_texts(found: Data, out: Path) -> None:
    """A column for each label, so that one without a row stays."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    columns: dict[str, Any] = {
        "id": found.ids.tolist(),
        "text": found.texts[:, 0].tolist(),
        "split": [PARTS[part] for part in found.split],
    }
    own = {f"y:{label}": found.dense_targets[:, k] for k, label in enumerate(found.labels)}
    pq.write_table(pa.table({**columns, **own}), out)


def _write_images(name: str, found: Data, out: Path) -> None:
    """The rows of ``found`` of the file they come from, with the parts they have here."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    table = pq.read_table(data_file(IMAGES[name.partition(":")[0]]))
    place = {str(row): number for number, row in enumerate(table["id"].to_pylist())}
    table = table.take([place[row] for row in found.ids.tolist()])
    parts = pa.array([PARTS[part] for part in found.split])
    pq.write_table(table.set_column(table.column_names.index("split"), "split", parts), out)


if __name__ == "__main__":
    main()
