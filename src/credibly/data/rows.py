"""Rows, their labels and their parts: what every reader returns and training takes."""

from __future__ import annotations

import dataclasses
import hashlib
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from credibly import checks
from credibly.checks import InputError, fits_memory, located, nearest
from credibly.data.images import LazyImages
from credibly.data.preparation import column_names
from credibly.data.sparse_rows import SparseRows, is_sparse_matrix
from credibly.data.splits import PARTS
from credibly.targets import MANY_LABELS, UNKNOWN, Coding, SparseTargets, Targets, decode, one_hot
from credibly.types import Array

if TYPE_CHECKING:
    from credibly.data.preparation import Columns, Preparation
    from credibly.data.token_rows import Encoded, RegionRows
    from credibly.data.torch_datasets import TorchRows


Augmentation = Literal["none", "shift", "shift+flip", "crop+flip", "imagenet"]
Kind = Literal["features", "images", "text", "text+regions"]
INPUTS = ("features", "sparse_features", "images", "texts")
AUGMENTATIONS = ("none", "shift", "shift+flip", "crop+flip", "imagenet")


@dataclass(frozen=True, eq=False, repr=False)
class Data:
    """``n`` rows of features, images or texts with what is known of ``L`` labels.

    Attributes:
        labels: names of the labels.
        targets: (n, L) float32; 1 present, 0 absent, in between soft, −1 unknown. Class indices
            of shape (n,) and NaN are taken too, see ``credibly.targets``. ``SparseTargets`` where
            there are very many labels; ``dense_targets`` is the matrix in both cases.
        ids: (n,) unique strings; the row numbers if not given.
        split: (n,) int8; 0 train, 1 test, 2 calibration; all train if not given.
        drawn: whether ``load`` drew the calibration rows from the training rows, rather than the
            source naming them.
        features: (n, d) float32, or None for other inputs. A ``scipy.sparse`` matrix is kept
            sparse, as ``sparse_features``.
        sparse_features: features of which few are not zero (``SparseRows``).
        feature_names: names of the columns of ``features``; those of a data frame if not given,
            None for arrays. A run takes its features by these names.
        columns: what ``features`` are made of (``Columns``), where it is more than plain numbers.
        preparation: how ``columns`` become ``features``; a run stores it.
        reader: the options that ``load`` was given; a run stores them.
        images: (n, h, w, c) uint8 in memory, or files that decode when asked for.
        texts: (n, 1) or (n, 2) strings, one text or a pair per row.
        regions: features of the regions of an image per row, beside its text.
        encoded: what the encoder of a model made of the texts (``Encoded``); ``encoded_by`` sets
            it, and training needs it.
        truth: (n, L) true probabilities where somebody knows them (NaN where not), or None.
        weights: (n,) how many rows each counts for, at least 0; all one if not given.
        source: where the rows come from, without the folder, so that data may move.
        augmentation: changes of an image in training that keep its labels.
        skipped: ids of images that did not decode and were left out on request.
        coding: what −1 means where ``targets`` holds only −1 and +1: ``"signed"`` (absent) or
            ``"unknown"``. Decoded targets are always of the second kind.

    Example:
        >>> rows = Data(["cat"], np.array([[1.0], [0.0], [-1.0]]), features=np.eye(3))
        >>> rows.part("train").ids.tolist()
        ['0', '1', '2']
        >>> rows
        Data(3 rows: 3 train, 0 calibration, 0 test; 1 label, 0.5 per row; features 3)
    """

    labels: list[str]
    targets: Array | SparseTargets
    ids: Array = None  # pyright: ignore[reportAssignmentType] - filled in below
    split: Array = None  # pyright: ignore[reportAssignmentType]
    features: Array | None = None
    images: Any = None
    texts: Any = None
    regions: RegionRows | None = None
    encoded: Encoded | None = None
    truth: Array | None = None
    weights: Array | None = None
    source: str = "arrays"
    augmentation: Augmentation = "none"
    skipped: tuple[str, ...] = ()
    coding: Coding | None = None
    drawn: bool = False
    sparse_features: SparseRows | None = None
    feature_names: list[str] | None = None
    columns: Columns | None = None
    preparation: Preparation | None = None
    reader: Mapping[str, Any] = field(default_factory=dict)
    _hash: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        put = lambda name, value: object.__setattr__(self, name, value)  # noqa: E731 - frozen
        put("labels", _labels(self.labels, self.source))
        put("targets", _targets(self))
        put("coding", "unknown")
        rows = len(self.targets)
        put("ids", np.arange(rows).astype(str) if self.ids is None else np.asarray(self.ids))
        split = np.zeros(rows) if self.split is None else np.asarray(self.split)
        put("split", split.astype(np.int8))
        if self.ids.dtype.kind != "U":
            put("ids", self.ids.astype(str))
        if is_sparse_matrix(self.features):
            put("sparse_features", SparseRows(self.features))
            put("features", None)
        if self.features is not None:
            if self.feature_names is None:
                put("feature_names", column_names(self.features))
            put("features", np.asarray(self.features, dtype=np.float32))
        if self.truth is not None:
            put("truth", np.asarray(self.truth, dtype=np.float32))
        if self.weights is not None:
            put("weights", np.asarray(self.weights, dtype=np.float64))
        if isinstance(self.images, np.ndarray) and self.images.ndim == 3:
            put("images", self.images[..., None])
        if self.texts is not None and not _is_text_matrix(self.texts):
            put("texts", text_matrix(self.texts, f"{self.source}: "))
        self._check()

    def _check(self) -> None:
        rows = len(self.targets)
        where = f"{self.source}: "
        given = [name for name in INPUTS if getattr(self, name) is not None]
        given = given or ["columns"] * (self.columns is not None)
        if len(given) != 1:
            raise InputError(
                f"{where}give one of `features`, `images` and `texts`; got "
                f"{' and '.join(given) or 'none of them'}."
            )
        if self.regions is not None and self.texts is None:
            raise InputError(f"{where}`regions` stand beside `texts`, the questions; got none.")
        inputs = getattr(self, given[0])
        beside = {"regions": self.regions, "encoded": self.encoded}
        for name, value in beside.items():
            if value is not None and len(value) != rows:
                raise InputError(
                    f"{where}`{name}` must have a row for each of the {rows} rows; "
                    f"got {len(value)}."
                )
        for name, value in {"ids": self.ids, "split": self.split, self.kind: inputs}.items():
            if name in ("ids", "split") and value.ndim != 1:
                raise InputError(
                    f"{where}`{name}` must hold one value per row; got shape {value.shape}."
                )
            if len(value) != rows:
                raise InputError(
                    f"{where}`{name}` must have a row for each of the {rows} rows of `targets`; "
                    f"got {len(value)}."
                )
        _unique_ids(self.ids, where)
        _known_parts(self.split, where)
        if self.features is not None:
            _check_features(self.features, self.ids, where)
            _check_names(self.feature_names, self.features.shape[1], where)
        if self.sparse_features is not None:
            self.sparse_features.check(where)
        if isinstance(self.images, np.ndarray):
            _image_array(self.images, where)
        if self.truth is not None and self.truth.shape != self.targets.shape:
            raise InputError(
                f"{where}`truth` must have the shape of `targets`, {self.targets.shape}; "
                f"got {self.truth.shape}."
            )
        if self.weights is not None:
            _check_weights(self.weights, rows, where)
        checks.choice("augmentation", self.augmentation, AUGMENTATIONS)

    @property
    def kind(self) -> Kind:
        """Return what a row is."""
        if self.texts is not None:
            return "text" if self.regions is None else "text+regions"
        return "features" if self.images is None else "images"

    @property
    def num_labels(self) -> int:
        return len(self.labels)

    @property
    def decoded(self) -> Targets | SparseTargets:
        """Return the targets as decoded ones, which count themselves."""
        return self.targets if isinstance(self.targets, SparseTargets) else Targets(self.targets)

    @property
    def dense_targets(self) -> Array:
        """Return the targets as a matrix; an error where sparse ones do not fit into memory."""
        return self.decoded.dense()

    @property
    def has_truth(self) -> bool:
        """Return whether any target is known."""
        return self.decoded.num_known > 0

    @property
    def input_shape(self) -> tuple[int, ...] | None:
        """Return the shape of a model's input; None if images differ in size.

        (d,) features, (c, h, w) of images, (columns,) of texts, (columns, regions, width) of texts
        with regions.
        """
        if self.texts is not None:
            beside = () if self.regions is None else self.regions.shape
            return (self.texts.shape[1], *beside)
        if self.features is not None:
            return self.features.shape[1:]
        if self.sparse_features is not None:
            return self.sparse_features.shape[1:]
        if isinstance(self.images, np.ndarray):
            height, width, channels = self.images.shape[1:]
            return (channels, height, width)
        return None

    def __len__(self) -> int:
        return len(self.targets)

    def image(self, row: int) -> Array:
        """Return the image of one row: uint8, (height, width, channels)."""
        if self.images is None:
            raise InputError(f"{self.source} holds {self.kind}, not images.")
        return self.images[row]

    def text(self, row: int) -> str:
        """Return the text of one row; of a pair, both with a blank line between them."""
        if self.texts is None:
            raise InputError(f"{self.source} holds {self.kind}, not texts.")
        return "\n\n".join(self.texts[row])

    def part(self, name: str) -> Data:
        """Return the rows of ``"train"``, ``"calibration"`` or ``"test"``, or ``"all"`` rows."""
        checks.choice("part", name, [*PARTS, "all"])
        return self if name == "all" else self.take(np.flatnonzero(self.split == PARTS[name]))

    def take(self, rows: Array) -> Data:
        """Return these rows, in this order; nothing is copied where they are contiguous."""
        rows = np.asarray(rows)
        rows = np.flatnonzero(rows) if rows.dtype == bool else rows.astype(np.int64)
        index: Any = rows
        if len(rows) and (np.diff(rows) == 1).all():
            index = slice(int(rows[0]), int(rows[-1]) + 1)
        chosen = {
            name: None if getattr(self, name) is None else getattr(self, name)[index]
            for name in ("targets", "ids", "split", "features", "truth", "weights", "texts")
        }
        sparse = self.sparse_features
        if self.columns is not None:
            chosen["columns"] = self.columns.take(rows)
        chosen["sparse_features"] = None if sparse is None else sparse.take(index)
        chosen["regions"] = None if self.regions is None else self.regions.take(rows)
        chosen["encoded"] = None if self.encoded is None else self.encoded.take(rows)
        images = self.images.take(rows) if isinstance(self.images, LazyImages) else self.images
        if isinstance(images, np.ndarray):
            images = images[index]
        return dataclasses.replace(self, **chosen, images=images, _hash=[])

    def relabelled(self, labels: Sequence[str]) -> Data:
        """Return the same rows with other names for their labels."""
        return dataclasses.replace(self, labels=list(labels), _hash=[])

    def named(self, source: str) -> Data:
        """Return the same rows under another ``source``."""
        return dataclasses.replace(self, source=source, _hash=[])

    def encoded_by(self, encode: Callable[[Array], Encoded]) -> Data:
        """Return the same rows with what ``encode`` makes of their texts."""
        if self.texts is None:
            raise InputError(f"{self.source} holds {self.kind}, not texts.")
        return dataclasses.replace(self, encoded=encode(self.texts), _hash=self._hash)

    def fingerprint(self) -> str:
        """Return a hash of labels, ids, targets, split, source and inputs (of files, the names).

        The same rows read again, even after the folder moved, give the same hash.
        """
        if not self._hash:
            digest = hashlib.sha256()
            for text in (self.source, "\0".join(self.labels), "\0".join(self.ids.tolist())):
                digest.update(f"{len(text)}\0{text}".encode())
            inputs = [getattr(self, name) for name in (*INPUTS, "regions", "weights")]
            given = [each for each in inputs if each is not None]
            given = [
                each
                for one in given
                for each in (one.arrays() if isinstance(one, SparseRows) else [one])
            ]
            arrays = [*_target_arrays(self.targets), self.split, *given]
            for array in arrays:
                if isinstance(array, np.ndarray) and array.dtype == object:
                    digest.update(f"{array.shape} texts".encode())
                    for text in array.flat:
                        encoded = text.encode("utf-8", "surrogatepass")
                        digest.update(f"{len(encoded)}\0".encode() + encoded)
                elif isinstance(array, np.ndarray):
                    digest.update(f"{array.shape}{array.dtype}".encode())
                    digest.update(np.ascontiguousarray(array).data)
                else:
                    digest.update("\0".join(array.names).encode())
            self._hash.append(digest.hexdigest())
        return self._hash[0]

    def torch_dataset(self, train: bool, **options: Any) -> TorchRows:
        """Return a torch dataset of (input, target, row number); ``options`` of ``TorchRows``.

        Images come as float32 (c, h, w) in [0, 1], augmented when ``train``: a function of
        ``seed``, the epoch set by ``dataset.set_epoch(e)`` and the row alone, so that a resumed
        run sees the same. ``dataset.batch(rows)`` gives many rows at once. Without ``train`` the
        whole image is brought to ``image_size``; with ``eval_crop`` its shorter side is brought to
        that many pixels, and the middle is cut out.
        """
        from credibly.data.torch_datasets import TorchRows

        return TorchRows(self, train=train, **options)

    def __repr__(self) -> str:
        return f"Data({self})"

    def __str__(self) -> str:
        counts = [f"{int((self.split == part).sum())} {name}" for name, part in PARTS.items()]
        counts = [counts[0], counts[2], counts[1]]
        known = self.decoded
        share = float(known.row_counts().sum()) / max(int(known.known_rows().sum()), 1)
        shape = "×".join(map(str, self.input_shape)) if self.input_shape else "from files"
        if self.texts is not None:
            count = self.texts.shape[1]
            shape = "" if count == 1 else f"in {count} columns"
        if self.sparse_features is not None:
            shape += " (sparse)"
        plural = "" if self.num_labels == 1 else "s"
        return (
            f"{len(self)} rows: {', '.join(counts)}; {self.num_labels} label{plural}, "
            f"{share:.3g} per row; {f'{self.kind} {shape}'.strip()}"
        )


def _is_text_matrix(texts: object) -> bool:
    """Return whether ``texts`` were checked before: parts of large data are not checked again."""
    if not (isinstance(texts, np.ndarray) and texts.dtype == object and texts.ndim == 2):
        return False
    return texts.shape[1] in (1, 2) and all(type(text) is str for text in texts.flat)


def _labels(labels: Any, source: str) -> list[str]:
    names = [str(label) for label in labels]
    if not names or not all(names):
        raise InputError(f"{source}: labels must be one or more non-empty names; got {names[:5]}.")
    if len(set(names)) < len(names):
        twice = next(name for name, count in Counter(names).items() if count > 1)
        raise InputError(f"{source}: labels must be different names; {twice!r} appears twice.")
    return names


def _target_arrays(targets: Array | SparseTargets) -> list[Array]:
    """Return what a fingerprint of targets is made of."""
    if not isinstance(targets, SparseTargets):
        return [targets]
    parts = (targets.offsets, targets.indices, targets.values, targets.known)
    return [part for part in parts if part is not None]


def _targets(data: Data) -> Array | SparseTargets:
    targets, count = data.targets, len(data.labels)
    if isinstance(targets, SparseTargets):
        if targets.num_labels != count:
            raise InputError(
                f"{data.source}: `targets` must be of the {count:,} labels; got "
                f"{targets.num_labels:,}."
            )
        return targets
    array = np.asarray(targets)
    if array.dtype.kind == "f":  # what averaging left a rounding error above 1 is 1
        array = array.astype(np.float32, copy=False)
    with checks.located(data.source):
        given = Targets(array) if isinstance(targets, Targets) else array
        decoded = decode(given, coding=data.coding, num_labels=count)
    if array.dtype == np.float32 and np.array_equal(decoded, array):
        return array  # no copy: parts of large data stay views
    return decoded.astype(np.float32, copy=False)


def _unique_ids(ids: Array, where: str) -> None:
    unique, counts = np.unique(ids, return_counts=True)
    if len(unique) < len(ids):
        raise InputError(
            f"{where}ids must differ, since predictions are found by them; "
            f"{str(unique[counts > 1][0])!r} appears {int(counts.max())} times."
        )


def _known_parts(split: Array, where: str) -> None:
    strange = ~np.isin(split, list(PARTS.values()))
    if strange.any():
        row = int(strange.argmax())
        raise InputError(
            f"{where}`split` must be 0 (train), 1 (test) or 2 (calibration); "
            f"got {split[row]!r} at row {row}."
        )


def _check_weights(weights: Array, rows: int, where: str) -> None:
    if weights.shape != (rows,):
        raise InputError(
            f"{where}`weights` must hold one number for each of the {rows} rows; got shape "
            f"{weights.shape}."
        )
    if not np.isfinite(weights).all() or (weights < 0).any():
        raise InputError(f"{where}`weights` must be finite and at least 0; got others.")


def _check_features(features: Array, ids: Array, where: str) -> None:
    if features.ndim != 2:
        raise InputError(f"{where}`features` must have shape (rows, features); {features.shape}.")
    # The sum is finite unless an entry is not (or the sum overflows): one fast pass, no copy.
    if np.isfinite(features.sum(dtype=np.float64)):
        return
    bad = np.isinf(features)
    if bad.any():
        row, column = (int(i) for i in np.argwhere(bad)[0])
        raise InputError(
            f"{where}features must not be infinite; {int(bad.sum())} are, the first in row "
            f"{row} (id {str(ids[row])!r}), column {column}: {features[row, column]}. "
            "Use NaN for a missing value."
        )


def _check_names(names: list[str] | None, width: int, where: str) -> None:
    if names is not None and (len(names) != width or len(set(names)) < width):
        raise InputError(
            f"{where}`feature_names` must be {width} different names, one per column of features; "
            f"got {len(set(names))}."
        )


def _image_array(images: Array, where: str) -> None:
    if images.dtype != np.uint8 or images.ndim != 4 or images.shape[3] not in (1, 3):
        raise InputError(
            f"{where}`images` must be uint8 of shape (rows, height, width) or (…, 1 or 3 channels);"
            f" got {images.dtype}, {images.shape}."
        )


# Targets of readers ------------------------------------------------------------------------------

UNNAMED = 1_000_000


def default_labels(count: int, most: int = UNNAMED) -> list[str]:
    """Return names for labels that have none: ``label-00``, ``label-01``, ….

    Raises:
        InputError: for more than ``most``, which is a class index gone wrong.
    """
    if count > most:
        raise InputError(
            f"class indices must lie below {most:,} where `labels` are not given; got "
            f"{count - 1:,}. Give `labels`, or check the targets."
        )
    width = len(str(count - 1))
    return [f"label-{label:0{width}d}" for label in range(count)]


def class_targets(classes: Array, num_labels: int, where: str) -> Array:
    """Return one row per class index; −1 gives a row of unknowns."""
    with located(where):
        return one_hot(classes, num_labels)


def unknown_targets(rows: int, num_labels: int) -> Array:
    """Return targets for rows that are only to be predicted."""
    fits_memory("targets", rows, num_labels)
    return np.full((rows, num_labels), UNKNOWN, dtype=np.float32)


def listed_targets(
    rows: Sequence[Iterable[str]],
    labels: Sequence[str],
    where: str,
    *,
    first_row: int = 0,
    unknown: Sequence[int] = (),
) -> Array | SparseTargets:
    """Return one row per list of label names; other names than ``labels`` are an error.

    Rows named in ``unknown`` are unknown. From ``MANY_LABELS`` labels on, targets are sparse.
    """
    column = {label: index for index, label in enumerate(labels)}
    numbers: list[list[int]] = []
    for row, names in enumerate(rows):
        listed = dict.fromkeys(names)
        for name in listed:
            if name not in column:
                raise InputError(
                    f"{where}, row {row + first_row}: label {name!r} is not among the "
                    f"{len(labels)} known ones. {nearest(name, labels)}"
                )
        numbers.append([column[name] for name in listed])
    return numbered_targets(numbers, len(labels), where, unknown)


def numbered_targets(
    rows: Sequence[Sequence[int]], num_labels: int, where: str, unknown: Sequence[int] = ()
) -> Array | SparseTargets:
    """Return one row per list of label numbers: a matrix, or sparse from ``MANY_LABELS`` on."""
    known = np.ones(len(rows), dtype=bool)
    known[list(unknown)] = False
    with located(where):
        sparse = SparseTargets.from_lists(rows, num_labels)
        if not known.all():
            sparse = SparseTargets(sparse.offsets, sparse.indices, num_labels, known=known)
        return sparse if num_labels >= MANY_LABELS else sparse.dense()


MOST_COLUMNS = 2
"""A text, or a pair such as question and passage."""


def text_matrix(texts: object, where: str) -> Array:
    """Return texts as an array of objects of shape (rows, columns), one or two columns.

    Example:
        >>> text_matrix(["a cat", ""], "here").shape, text_matrix([["is it?", "yes"]], "here").shape
        ((2, 1), (1, 2))
    """
    matrix = np.asarray(texts, dtype=object)
    matrix = matrix[:, None] if matrix.ndim == 1 else matrix
    if matrix.ndim != 2 or not 1 <= matrix.shape[1] <= MOST_COLUMNS:
        raise InputError(
            f"{where}texts must be one text per row, or a pair; got an array of shape "
            f"{matrix.shape}."
        )
    for row, cells in enumerate(matrix):
        for column, cell in enumerate(cells):
            if not isinstance(cell, str):
                raise InputError(
                    f"{where}texts must be strings; got {cell!r:.80} in row {row}, column {column}."
                )
    return matrix
