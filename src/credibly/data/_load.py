"""From what a user types to rows: a name, a file or ``KIND:PATH``."""

from __future__ import annotations

import dataclasses
import inspect
from collections.abc import Callable, Sequence
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np

from credibly import checks
from credibly.checks import InputError, nearest
from credibly.data._images import LazyImages
from credibly.data._rows import Data
from credibly.data._split import CALIBRATION, TEST, TRAIN, hold_out, split_rows

NAMES = {"digits": ("_digits", "digits"), "synthetic": ("_synthetic", "synthetic")}

KINDS = {
    "npz": ("_npz", "read_npz"),
    "parquet": ("_files", "read_parquet"),
    "csv": ("_files", "read_csv"),
    "arff": ("_arff", "read_arff"),
    "imagefolder": ("_folders", "read_imagefolder"),
    "coco": ("_coco", "read_coco"),
    "voc": ("_voc", "read_voc"),
    "wider": ("_attributes", "read_wider"),
    "vispr": ("_attributes", "read_vispr"),
    "nuswide": ("_nuswide", "read_nuswide"),
    "cifar10": ("_cifar", "read_cifar10"),
    "cifar100": ("_cifar", "read_cifar100"),
    "cifar60+40": ("_cifar", "read_cifar60_40"),
    "tinyimagenet": ("_folders", "read_tinyimagenet"),
    "plantnet": ("_folders", "read_plantnet"),
    "hf": ("_huggingface", "read_huggingface"),
}
"""What may stand before the colon, and the reader behind it."""


def load(
    source: str | Path | Data,
    *,
    seed: int = 0,
    test: float | None = None,
    calibration: float = 0.2,
    labels: Sequence[str] | None = None,
    skip_bad_images: bool = False,
    **options: Any,
) -> Data:
    """Rows from ``digits``, ``synthetic``, a file, or ``KIND:PATH``.

    A published split is kept. Where there is none, ``test`` (default 0.2) of the rows become test
    rows; where none are set aside, ``calibration`` of the training rows are held out. Both are
    chosen by ``seed`` and stratified, so that rare labels appear in each part.

    Args:
        source: what to read; rows already read pass through unchanged.
        seed: of the split; for embedded data, of everything random.
        test: share of test rows, where no split is published.
        calibration: share of the training rows to hold out; 0 for none.
        labels: the label names to expect, and their order in ``targets``. Data that fix their
            own labels must have just these; data without any get them, all unknown.
        skip_bad_images: decode every image once and leave out those that do not decode
            (``data.skipped`` names them). Otherwise such an image is an error when it is reached.
        options: of the reader or of the embedded data, such as ``n`` for digits.

    Example:
        >>> load("synthetic", n=1000, seed=3)
        Data(1000 rows: 560 train, 140 calibration, 300 test; 20 labels, 2.36 a row; features 20)
    """
    if isinstance(source, Data):
        return source
    name = str(source)
    if name in NAMES:
        if test is not None:
            options["test"] = test
        maker = _reader(*NAMES[name])
        data = _call(maker, name, seed=seed, calibration=calibration, **options)
        return _in_order(data, labels)
    kind, path = _kind_and_path(name)
    reader = _reader(*KINDS[kind])
    if labels is not None and "labels" in inspect.signature(reader).parameters:
        options["labels"] = list(labels)
    data = _in_order(_call(reader, kind, path, **options), labels)
    data = _without_bad_images(data, skip_bad_images)
    return _split(data, seed, test, calibration)


def _kind_and_path(name: str) -> tuple[str, Path]:
    kind, colon, rest = name.partition(":")
    if colon and kind in KINDS:
        path = Path(rest).expanduser()
    else:
        path = Path(name).expanduser()
        kind = path.suffix.lower().removeprefix(".")
        kind = {"pq": "parquet", "tsv": "csv"}.get(kind, kind)
        if kind not in KINDS or path.is_dir():
            raise InputError(_not_understood(name, path))
    if not path.exists():
        raise InputError(f"{path} does not exist. Give a file or folder that does.")
    return kind, path


def _not_understood(name: str, path: Path) -> str:
    if path.is_dir():
        return f"{name} is a folder; say how to read it, as in imagefolder:{name} or coco:{name}."
    kinds = ", ".join(f"{kind}:PATH" for kind in KINDS)
    hint = nearest(name.partition(":")[0], [*NAMES, *KINDS])
    hint = hint if hint.startswith("Did") else ""
    return (
        f"data must be one of {', '.join(NAMES)}, a file (.npz, .parquet, .csv, .arff) or one of "
        f"{kinds}; got {name!r}. {hint}"
    ).strip()


def _reader(module: str, function: str) -> Callable[..., Data]:
    return getattr(import_module(f"credibly.data.{module}"), function)


def _call(reader: Callable[..., Data], kind: str, *path: Path, **options: Any) -> Data:
    known = list(inspect.signature(reader).parameters)
    for option in options:
        if option not in known:
            raise InputError(
                f"{kind} has no option {option!r}. {nearest(option, known[len(path) :])}"
            )
    return reader(*path, **options)


def _in_order(data: Data, labels: Sequence[str] | None) -> Data:
    """The columns of ``targets`` in the order of ``labels``, which must be the same names."""
    if labels is None or list(labels) == data.labels:
        return data
    known, wanted = set(data.labels), [str(label) for label in labels]
    for label in wanted:
        if label not in known:
            raise InputError(
                f"{data.source} must have the {len(wanted)} labels asked for; it has no {label!r}. "
                f"{nearest(label, data.labels)}"
            )
    extra = next((label for label in data.labels if label not in wanted), None)
    if extra is not None:
        raise InputError(
            f"{data.source} must have just the {len(wanted)} labels asked for; it also has "
            f"{extra!r}."
        )
    order = [data.labels.index(label) for label in wanted]
    truth = None if data.truth is None else data.truth[:, order]
    targets = data.targets[:, order]
    return dataclasses.replace(data, labels=wanted, targets=targets, truth=truth, _hash=[])


def _without_bad_images(data: Data, skip: bool) -> Data:
    if not isinstance(data.images, LazyImages):
        return data
    missing = data.images.missing()
    if not skip:
        if missing:
            listed = ", ".join(data.images.names[row] for row in missing[:3])
            raise InputError(
                f"{data.source}: {len(missing)} of {len(data)} images are missing: {listed}"
                f"{', …' if len(missing) > 3 else ''}. Add them, or load with "
                "skip_bad_images=True to leave them out."
            )
        return data
    bad = {*missing, *(row for row, _ in data.images.bad())}
    good = np.array([row for row in range(len(data)) if row not in bad], dtype=int)
    skipped = tuple(str(data.ids[row]) for row in sorted(bad))
    if not len(good):
        raise InputError(f"{data.source}: not one of its {len(data)} images decodes.")
    return dataclasses.replace(data.take(good), skipped=skipped)


def _split(data: Data, seed: int, test: float | None, calibration: float) -> Data:
    """Complete what is published. A reader without a split leaves every row in training."""
    calibration = checks.fraction("calibration", calibration, high_open=True)
    split = data.split
    if (split == TRAIN).all():
        share = 0.2 if test is None else test
        split = split_rows(data.targets, test=share, calibration=calibration, seed=seed)
    elif not (split == CALIBRATION).any() and calibration > 0:
        split = hold_out(data.targets, split, calibration, seed)
    if test is not None and (data.split == TEST).any():
        raise InputError(
            f"{data.source} publishes its own test rows; leave `test` out to keep them."
        )
    return dataclasses.replace(data, split=split, _hash=[])
