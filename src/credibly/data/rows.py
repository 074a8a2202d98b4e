"""The type ``Data``: rows with their labels and split. Readers return it, and training takes it."""

from __future__ import annotations

import dataclasses
import hashlib
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from credibly import checks
from credibly.arrays import column_names, is_sparse_matrix
from credibly.checks import InputError, fits_memory, located, nearest
from credibly.data.sparse_rows import SparseRows
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
PER_ROW = (*INPUTS, "targets", "ids", "split", "truth", "weights", "columns", "regions", "encoded")
"""Attributes with an entry for each row."""
AUGMENTATIONS = ("none", "shift", "shift+flip", "crop+flip", "imagenet")


@dataclass(frozen=True, eq=False, repr=False)
class Data:
    """``n`` rows of features, images or texts, and the known values of ``L`` labels.

    Attributes:
        labels: names of the labels.
        targets: (n, L) float32: 1 present, 0 absent, values between them soft, −1 unknown.
            Class indices of shape (n,) and NaN are accepted too, see ``credibly.targets``. With
            very many labels, they are ``SparseTargets``; ``dense_targets`` is the matrix in
            both cases.
        ids: (n,) unique strings; by default the row numbers.
        split: (n,) int8: 0 train, 1 test, 2 calibration; by default all train.
        drawn: whether ``load`` drew the calibration rows from the training rows. Otherwise the
            source names them.
        features: (n, d) float32, or None for other inputs. A ``scipy.sparse`` matrix stays
            sparse, as ``sparse_features``.
        sparse_features: features that are mostly zero (``SparseRows``).
        feature_names: names of the columns of ``features``; by default those of a data frame,
            and None for arrays. A run matches features by these names.
        columns: the source of ``features`` (``Columns``), if they are not just numbers.
        preparation: converts ``columns`` to ``features``; a run stores it.
        reader: the options passed to ``load``; a run stores them.
        images: (n, h, w, c) uint8 in memory, or files that are decoded on access.
        texts: (n, 1) or (n, 2) strings, one text or a pair per row.
        regions: features of image regions per row, in addition to its text.
        encoded: the output of a model's encoder for the texts (``Encoded``); ``encoded_by``
            sets it, and training needs it.
        truth: (n, L) true probabilities if they are known (NaN if unknown), or None.
        weights: (n,) the weight of each row, at least 0; by default 1.
        source: the origin of the rows, without the folder, so data can be moved.
        augmentation: changes of images in training that preserve the labels.
        skipped: ids of images that could not be decoded and were skipped on request.
        coding: the meaning of −1 if ``targets`` contains only −1 and +1: ``"signed"`` (absent)
            or ``"unknown"``. Decoded targets always use the second.

    Example:
        >>> rows = Data(["cat"], np.array([[1.0], [0.0], [-1.0]]), features=np.eye(3))
        >>> rows.part("train").ids.tolist()
        ['0', '1', '2']
        >>> rows
        Data(3 rows: 3 train, 0 calibration, 0 test; 1 label, 0.50 per row; features 3)
    """

    labels: list[str]
    targets: Array | SparseTargets
    ids: Array = None  # pyright: ignore[reportAssignmentType] - set below
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
    reader: Mapping[str, object] = field(default_factory=dict)
    _decoded: object = field(default=None, repr=False, compare=False)
    """The targets if they were decoded before, so that a copy of the rows need not decode them."""

    def __post_init__(self) -> None:
        with located(self.source):
            self._decode(vars(self))  # the class is frozen
            self._check()

    def _decode(self, own: dict[str, Any]) -> None:
        """Convert every field to its type."""
        own["labels"] = names = [str(label) for label in self.labels]
        if not names or not all(names):
            raise InputError(f"labels must be one or more non-empty names; got {names[:5]}.")
        twice = next((name for name, count in Counter(names).items() if count > 1), None)
        if twice is not None:
            raise InputError(f"labels must be different names; {twice!r} appears twice.")
        own["targets"] = own["_decoded"] = _targets(self)
        own["coding"] = "unknown"
        rows = len(self.targets)
        own["ids"] = np.asarray(np.arange(rows) if self.ids is None else self.ids).astype(str)
        own["split"] = np.asarray(np.zeros(rows) if self.split is None else self.split, np.int8)
        if is_sparse_matrix(self.features):
            own["sparse_features"], own["features"] = SparseRows(self.features), None
        if self.feature_names is None and self.features is not None:
            own["feature_names"] = column_names(self.features)
        for name, dtype in (("features", "f4"), ("truth", "f4"), ("weights", "f8")):
            if own[name] is not None:
                own[name] = np.asarray(own[name], dtype)
        if isinstance(self.images, np.ndarray) and self.images.ndim == 3:
            own["images"] = self.images[..., None]
        if self.texts is not None:
            own["texts"] = text_matrix(self.texts)

    def _check(self) -> None:
        rows = len(self.targets)
        given = [name for name in INPUTS if getattr(self, name) is not None]
        given = given or ["columns"] * (self.columns is not None)
        if len(given) != 1:
            raise InputError(
                f"give one of `features`, `images` and `texts`; got "
                f"{' and '.join(given) or 'none of them'}."
            )
        if self.regions is not None and self.texts is None:
            raise InputError("`regions` need `texts` (the questions); got none.")
        for name in (*PER_ROW[len(INPUTS) + 1 :], *given):
            value = getattr(self, name)
            if name in ("ids", "split", "weights") and value is not None and value.ndim != 1:
                raise InputError(f"`{name}` must hold one value per row; got shape {value.shape}.")
            if value is not None and len(value) != rows:
                name = self.kind if name in given else name
                raise InputError(
                    f"`{name}` must have a row for each of the {rows} rows of `targets`; "
                    f"got {len(value)}."
                )
        unique, counts = np.unique(self.ids, return_counts=True)
        if len(unique) < rows:
            raise InputError(
                f"ids must be different, because predictions are matched by id; "
                f"{str(unique[counts > 1][0])!r} appears {int(counts.max())} times."
            )
        strange = ~np.isin(self.split, list(PARTS.values()))
        if strange.any():
            row = int(strange.argmax())
            raise InputError(
                f"`split` must be 0 (train), 1 (test) or 2 (calibration); "
                f"got {self.split[row].item()!r} at row {row}."
            )
        if self.features is not None:
            self._check_features(self.features)
        if self.sparse_features is not None:
            self.sparse_features.check()
        images = self.images
        if isinstance(images, np.ndarray) and (
            images.dtype != np.uint8 or images.ndim != 4 or images.shape[3] not in (1, 3)
        ):
            raise InputError(
                "`images` must be uint8 of shape (rows, height, width) or (…, 1 or 3 channels); "
                f"got {images.dtype}, {images.shape}."
            )
        if self.truth is not None and self.truth.shape != self.targets.shape:
            raise InputError(
                f"`truth` must have the shape of `targets`, {self.targets.shape}; "
                f"got {self.truth.shape}."
            )
        weights = self.weights
        if weights is not None and not ((weights >= 0) & (weights < np.inf)).all():
            raise InputError(
                "`weights` must be finite and at least 0; got NaN, infinite or negative weights."
            )
        checks.choice("augmentation", self.augmentation, AUGMENTATIONS)

    def _check_features(self, features: Array) -> None:
        names = self.feature_names
        if features.ndim != 2:
            raise InputError(f"`features` must have shape (rows, features); {features.shape}.")
        # The sum is finite unless an entry is not finite or it overflows: one fast pass, no copy.
        finite = np.isfinite(features.sum(dtype=np.float64))
        bad = np.zeros((0, 0), bool) if finite else np.isinf(features)
        if bad.any():
            row, column = (int(i) for i in np.argwhere(bad)[0])
            raise InputError(
                f"features must not be infinite; {int(bad.sum())} are, the first in row "
                f"{row} (id {str(self.ids[row])!r}), column {column}: {features[row, column]}. "
                "Use NaN for a missing value."
            )
        if names is not None and (len(names) != features.shape[1] or len(set(names)) < len(names)):
            raise InputError(
                f"`feature_names` must be {features.shape[1]} different names, one per column of "
                f"features; got {len(set(names))}."
            )

    @property
    def kind(self) -> Kind:
        """Return the type of input."""
        if self.texts is not None:
            return "text" if self.regions is None else "text+regions"
        return "features" if self.images is None else "images"

    @property
    def num_labels(self) -> int:
        return len(self.labels)

    @property
    def decoded(self) -> Targets | SparseTargets:
        """Return the decoded targets."""
        return self.targets if isinstance(self.targets, SparseTargets) else Targets(self.targets)

    @property
    def dense_targets(self) -> Array:
        """Return the targets as a matrix. Raise if sparse targets do not fit into memory."""
        return self.decoded.dense()

    @property
    def has_truth(self) -> bool:
        """Return whether any target is known."""
        return self.decoded.num_known > 0

    @property
    def input_shape(self) -> tuple[int, ...] | None:
        """Return the shape of a model's input, or None if images differ in size.

        It is (d,) for features, (c, h, w) for images, (columns,) for texts and (columns, regions,
        width) for texts with regions.
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
        """Return the text of one row. The texts of a pair are separated by a blank line."""
        if self.texts is None:
            raise InputError(f"{self.source} holds {self.kind}, not texts.")
        return "\n\n".join(self.texts[row])

    def part(self, name: str) -> Data:
        """Return the rows of ``"train"``, ``"calibration"`` or ``"test"``, or ``"all"`` rows."""
        checks.choice("part", name, [*PARTS, "all"])
        return self if name == "all" else self.take(np.flatnonzero(self.split == PARTS[name]))

    def take(self, rows: Array) -> Data:
        """Return these rows, in this order. A contiguous range is not copied."""
        rows = np.asarray(rows)
        rows = np.flatnonzero(rows) if rows.dtype == bool else rows.astype(np.int64)
        contiguous = len(rows) > 0 and (np.diff(rows) == 1).all()
        index = slice(int(rows[0]), int(rows[-1]) + 1) if contiguous else rows
        chosen = {}
        for name in PER_ROW:
            held = getattr(self, name)
            if isinstance(held, (np.ndarray, SparseTargets)):
                chosen[name] = held[index]
            elif held is not None:
                chosen[name] = held.take(rows)
        return dataclasses.replace(self, **chosen, _decoded=chosen["targets"])

    def encoded_by(self, encode: Callable[[Array], Encoded]) -> Data:
        """Return the same rows with the encoded texts that ``encode`` returns."""
        if self.texts is None:
            raise InputError(f"{self.source} holds {self.kind}, not texts.")
        return dataclasses.replace(self, encoded=encode(self.texts))

    def fingerprint(self) -> str:
        """Return a hash of labels, ids, targets, split, source and inputs (for files, their names).

        Reading the same rows again gives the same hash, even if the folder has moved.
        """
        return self._fingerprint

    @cached_property
    def _fingerprint(self) -> str:
        digest = hashlib.sha256()
        for text in (self.source, "\0".join(self.labels), "\0".join(self.ids.tolist())):
            digest.update(f"{len(text)}\0{text}".encode())
        targets: Any = self.targets
        arrays = [targets]
        if isinstance(targets, SparseTargets):
            arrays = [targets.offsets, targets.indices, targets.values, targets.known]
        arrays = [each for each in (*arrays, self.split) if each is not None]
        for name in (*INPUTS, "regions", "weights"):
            held = getattr(self, name)
            if held is not None:
                arrays += held.arrays() if isinstance(held, SparseRows) else [held]
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
        return digest.hexdigest()

    def torch_dataset(self, train: bool, **options: Any) -> TorchRows:
        """Return a torch dataset of (input, target, row number); ``options`` of ``TorchRows``, and
        of ``Augment``, such as ``cutout=0.3``.

        Images are float32 (c, h, w) in [0, 1]. If ``train`` is set, they are augmented.
        Augmentation depends only on ``seed``, on the epoch set by ``dataset.set_epoch(e)`` and on
        the row, so a resumed run sees the same images. ``dataset.batch(rows)`` returns many rows at
        once. Without ``train``, the whole image is resized to ``image_size``. With ``eval_crop``,
        its shorter side is resized to that many pixels, and the centre is cut out.
        """
        from credibly.data.torch_datasets import TorchRows

        return TorchRows(self, train=train, **options)

    def __repr__(self) -> str:
        return f"Data({self})"

    def __str__(self) -> str:
        counts = [f"{int((self.split == part).sum()):,} {name}" for name, part in PARTS.items()]
        counts = [counts[0], counts[2], counts[1]]
        known = self.decoded
        share = float(known.row_counts().sum()) / max(int(known.known_rows().sum()), 1)
        shape = "×".join(map(str, self.input_shape)) if self.input_shape else "from files"
        if self.texts is not None:
            shape = "in 2 columns" if self.texts.shape[1] == 2 else ""
        if self.sparse_features is not None:
            shape += " (sparse)"
        plural = "" if self.num_labels == 1 else "s"
        return (
            f"{len(self):,} rows: {', '.join(counts)}; {self.num_labels} label{plural}, "
            f"{share:.2f} per row; {f'{self.kind} {shape}'.strip()}"
        )


def _targets(data: Data) -> Array | SparseTargets:
    targets, count = data.targets, len(data.labels)
    if targets is data._decoded and targets.shape[1] == count:
        return targets
    if isinstance(targets, SparseTargets):
        if targets.num_labels != count:
            raise InputError(
                f"`targets` must be of the {count:,} labels; got {targets.num_labels:,}."
            )
        return targets
    array = np.asarray(targets)
    if array.dtype.kind == "f":  # averaging can leave a rounding error above 1
        array = array.astype(np.float32, copy=False)
    given = Targets(array) if isinstance(targets, Targets) else array
    decoded = decode(given, coding=data.coding, num_labels=count)
    if array.dtype == np.float32 and np.array_equal(decoded, array):
        return array  # no copy: parts of large data remain views
    return decoded.astype(np.float32, copy=False)


# Targets of readers ------------------------------------------------------------------------------

UNNAMED = 1_000_000


def default_labels(count: int, most: int = UNNAMED) -> list[str]:
    """Return default names of labels: ``label-00``, ``label-01``, ….

    Raises:
        InputError: for more than ``most`` labels, a sign of wrong class indices.
    """
    if count > most:
        raise InputError(
            f"class indices must lie below {most:,} where `labels` are not given; got "
            f"{count - 1:,}. Give `labels`, or check the targets."
        )
    width = len(str(count - 1))
    return [f"label-{label:0{width}d}" for label in range(count)]


def class_targets(classes: Array, num_labels: int, where: str) -> Array:
    """Return one row per class index; −1 gives a row of unknown labels."""
    with located(where):
        return one_hot(classes, num_labels)


def unknown_targets(rows: int, num_labels: int) -> Array:
    """Return unknown targets, for rows to predict."""
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
    """Return one row per list of label names. Names that are not in ``labels`` are an error.

    Rows listed in ``unknown`` are unknown. From ``MANY_LABELS`` labels, targets are sparse.
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
    """Return one row per list of label numbers: a matrix, or sparse from ``MANY_LABELS`` labels."""
    known = np.ones(len(rows), dtype=bool)
    known[list(unknown)] = False
    with located(where):
        sparse = SparseTargets.from_lists(rows, num_labels)
        if not known.all():
            sparse = SparseTargets(sparse.offsets, sparse.indices, num_labels, known=known)
        return sparse if num_labels >= MANY_LABELS else sparse.dense()


MOST_COLUMNS = 2
"""A text, or a pair such as question and passage."""


def text_matrix(texts: object) -> Array:
    """Return texts as an array of objects of shape (rows, columns), one or two columns.

    Example:
        >>> text_matrix(["a cat", ""]).shape, text_matrix([["is it?", "yes"]]).shape
        ((2, 1), (1, 2))
    """
    matrix = np.asarray(texts, dtype=object)
    matrix = matrix[:, None] if matrix.ndim == 1 else matrix
    if matrix.ndim != 2 or not 1 <= matrix.shape[1] <= MOST_COLUMNS:
        raise InputError(
            f"texts must be one text per row, or a pair; got an array of shape {matrix.shape}."
        )
    for place, cell in enumerate(matrix.flat):
        if not isinstance(cell, str):
            row, column = divmod(place, matrix.shape[1])
            raise InputError(
                f"texts must be strings; got {cell!r:.80} in row {row}, column {column}."
            )
    return matrix
