"""SVMlight files with several labels per row, and data of the extreme classification repository.

A row is ``label,label feature:value feature:value``. In files of the repository, the first line has
the numbers of rows, features and labels. Label and feature numbers start at 0.
"""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from credibly.checks import InputError, located
from credibly.data.rows import UNNAMED, Data, default_labels, numbered_targets
from credibly.data.sparse_rows import MANY_FEATURES, SparseRows
from credibly.data.splits import TEST, TRAIN
from credibly.targets import as_decoded
from credibly.untrusted.budget import read_rows

TRAIN_FILES = ("train.txt", "train.svm", "train.svmlight", "train.libsvm")

MOST_FEATURES = 2**31
"""Larger feature numbers are a mistake in the file."""

MOST_LABELS = 2**23
"""The first line may claim so many labels; without it, label numbers end at a million."""


@dataclass
class _ParsedRows:
    """The rows of one file during reading; features and values of all rows are concatenated."""

    labels: list[list[int]] = field(default_factory=list)
    counts: array[int] = field(default_factory=lambda: array("q"))
    features: array[int] = field(default_factory=lambda: array("q"))
    values: array[float] = field(default_factory=lambda: array("f"))
    num_features: int = 0
    num_labels: int = 0
    claimed: tuple[int, int] | None = None  # features and labels, by the first line


def read_xc(path: Path, *, labels: Sequence[str] | None = None) -> Data:
    """Read a file, or a folder with ``train.txt`` and ``test.txt`` as its split.

    Features become a dense matrix, or stay sparse from ``MANY_FEATURES`` features. Very many labels
    stay sparse too. ``labels`` names the labels in the order of their numbers.
    """
    train = path
    if path.is_dir():
        named = [path / name for name in TRAIN_FILES if (path / name).exists()]
        if not named:
            raise InputError(f"{path} must hold one of {', '.join(TRAIN_FILES)}; it has none.")
        train = named[0]
    files = [(train, TRAIN)]
    test = train.with_name(train.name.replace("train", "test", 1))
    if path.is_dir() and test.exists():
        files.append((test, TEST))
    parts = [_read(file) for file, _ in files]
    width = max(part.num_features for part in parts)
    count = max(part.num_labels for part in parts) if labels is None else len(labels)
    from scipy import sparse

    with located(str(path)):
        most = MOST_LABELS if all(part.claimed for part in parts) else UNNAMED
        names = default_labels(count, most) if labels is None else list(labels)
        targets = numbered_targets([row for part in parts for row in part.labels], count, str(path))
        counts, columns, values = (
            np.concatenate([np.frombuffer(getattr(part, name), kind) for part in parts])
            for name, kind in (("counts", "i8"), ("features", "i8"), ("values", "f4"))
        )
        starts = np.concatenate([[0], np.cumsum(counts)])
        shape = (len(counts), max(width, 1))
        rows = SparseRows(sparse.csr_matrix((values, columns, starts), shape=shape))
        dense = rows.dense() if width < MANY_FEATURES else None
    return Data(
        labels=names,
        targets=as_decoded(targets),
        split=np.repeat([kind for _, kind in files], [len(part.labels) for part in parts]),
        features=dense,
        sparse_features=rows if dense is None else None,
        source=path.name,
    )


def _read(path: Path) -> _ParsedRows:
    rows = _ParsedRows()
    expected = 0
    for number, content in enumerate(read_rows(path), start=1):
        try:
            line = content.decode("ascii").split("#", 1)[0].rstrip()
        except UnicodeDecodeError as error:
            raise InputError(f"{path} must be plain text of numbers; {error}.") from error
        cells = line.split()
        if number == 1 and len(cells) == 3 and all(cell.isdigit() for cell in cells):
            expected, *claimed = map(int, cells)
            for name, count, most in zip(
                ("features", "labels"), claimed, (MOST_FEATURES, MOST_LABELS), strict=True
            ):
                if count > most:
                    raise InputError(
                        f"{path}, line 1: there must be at most {most:,} {name}; got {count:,}."
                    )
            rows.claimed = rows.num_features, rows.num_labels = claimed[0], claimed[1]
            continue
        # If the first line contains the number of rows, an empty line is an empty row.
        if not cells and len(rows.labels) >= expected:
            continue
        _add(rows, line, cells, f"{path}, line {number}")
    if expected and expected != len(rows.labels):
        raise InputError(
            f"{path} must hold {expected:,} rows, as its first line says; it holds "
            f"{len(rows.labels):,}. The file may be incomplete."
        )
    if not rows.labels:
        raise InputError(f"{path} must hold rows; it has none.")
    return rows


def _add(rows: _ParsedRows, line: str, cells: list[str], where: str) -> None:
    first = cells[0] if cells and ":" not in cells[0] and not line[0].isspace() else ""
    pairs = [cell.partition(":") for cell in (cells[1:] if first else cells)]
    try:
        labels = [int(part) for part in first.split(",") if part]
        features = [int(place) for place, _, _ in pairs]
        values = [float(value) for _, _, value in pairs]
    except ValueError:
        raise InputError(
            f"{where} must be `label,label feature:value …` with whole numbers before each colon; "
            f"got {line[:80]!r}."
        ) from None
    if min(labels, default=0) < 0 or min(features, default=0) < 0:
        raise InputError(f"{where}: label and feature numbers must be at least 0; {line[:80]!r}.")
    if max(features, default=0) >= MOST_FEATURES:
        raise InputError(
            f"{where}: feature numbers must be below {MOST_FEATURES:,}; {line[:80]!r}."
        )
    if len(set(features)) < len(features):
        raise InputError(f"{where} must hold each feature once; {line[:80]!r}.")
    rows.labels.append(labels)
    rows.counts.append(len(features))
    rows.features.extend(features)
    rows.values.extend(values)
    rows.num_features = max(rows.num_features, max(features, default=-1) + 1)
    rows.num_labels = max(rows.num_labels, max(labels, default=-1) + 1)
    if rows.claimed is not None and (rows.num_features, rows.num_labels) != rows.claimed:
        raise InputError(
            f"{where}: feature numbers must be below {rows.claimed[0]:,} and label numbers below "
            f"{rows.claimed[1]:,}, as the first line says; got {line[:80]!r}."
        )
