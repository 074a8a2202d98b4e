"""Decode targets: define what each value of a target means.

=====================  =======================================================================
value                  meaning
=====================  =======================================================================
1                      the label is present
0                      the label is absent
between 0 and 1        soft: the probability that the label is present
−1, −100 or NaN        unknown (−100 is torch's ``ignore_index``, NaN a missing value of a table)
class index            shape (rows,): this label is present, all others absent; −1 or −100: unknown
=====================  =======================================================================

A matrix of only −1 and +1 has two possible meanings, so you must choose one:
``coding="signed"`` (−1 absent, 0 unknown) or ``coding="unknown"`` (−1 unknown: positives only).

Losses do not inspect values, because that would stall a GPU. In losses, every negative number and
NaN is unknown. All other functions read targets once through ``decode`` or `Targets`.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, NoReturn, TypeAlias

import numpy as np

from credibly import checks
from credibly.arrays import aligned, is_tensor, to_numpy
from credibly.types import Array, ArrayLike

if TYPE_CHECKING:
    import torch
    from torch import Tensor

UNKNOWN = -1
"""The value that stands for an unknown label once targets are decoded."""

IGNORED = (-1, -100)
"""Whole numbers that mean unknown in what users pass."""

MANY_LABELS = 4096
"""From so many labels on, lists of labels are kept as ``SparseTargets``, predictions hold the most
probable labels of each row, and training computes last layer and loss in one."""

CODINGS = ("signed", "unknown")
Coding: TypeAlias = Literal["signed", "unknown"]


@dataclass(frozen=True, eq=False, repr=False)
class Targets:
    """Decoded targets. Every function that takes targets takes these and does not decode again.

    The constructor does not check its argument. ``Targets.of`` decodes what a user passes.

    Attributes:
        matrix: (rows, labels): 1 present, 0 absent, −1 unknown, soft in between.

    Example:
        >>> targets = Targets.of(np.array([[1, -1], [-1, 1]]), coding="signed")
        >>> targets, targets[:1].matrix
        (Targets(2 rows, 2 labels), array([[1, 0]], dtype=int8))
    """

    matrix: Array

    @classmethod
    def of(cls, targets: TargetsLike, **options: Any) -> Targets:
        """Return decoded targets; ``options`` are those of ``decode``."""
        return cls(decode(targets, **options))

    @classmethod
    def beside(cls, values: ArrayLike, targets: TargetsLike, name: str, **options: Any) -> Targets:
        """Return decoded targets with the rows and columns of ``values``; ``options`` as in ``of``.

        Rows and columns of data frames are matched by name. Errors call the values ``name``. If
        ``values`` have shape (rows,), targets of that shape belong to one label.
        """
        shape, ordered = np.shape(values), aligned(values, targets, name)
        if len(shape) == 1 and np.shape(ordered) == shape:
            ordered = to_numpy(ordered)[:, None]
        return cls.of(ordered, num_labels=shape[1] if len(shape) == 2 else None, **options)

    @property
    def shape(self) -> tuple[int, ...]:
        """Return (rows, labels)."""
        return self.matrix.shape

    def __len__(self) -> int:
        return len(self.matrix)

    def __getitem__(self, rows: Any) -> Targets:
        """Return some rows, or some entries, of the matrix."""
        return Targets(self.matrix[rows])

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> Array:
        """Return the matrix, for numpy."""
        if copy is None:  # numpy 1 does not accept None
            return np.asarray(self.matrix, dtype=dtype)
        return np.array(self.matrix, dtype=dtype, copy=copy)

    # Shared with ``SparseTargets`` ------------------------------------------------------------

    @property
    def num_known(self) -> int:
        """Return the number of known entries, present or absent."""
        return int((self.matrix >= 0).sum())

    @property
    def hard(self) -> bool:
        """Return whether every target is 0 or 1, so that none is soft or unknown."""
        return bool(((self.matrix == 0) | (self.matrix == 1)).all())

    def label_counts(self) -> Array:
        """Return the number of rows with each label; a soft target counts as its value."""
        return self.matrix.sum(axis=0, dtype=np.float64, where=self.matrix >= 0)

    def row_counts(self) -> Array:
        """Return the number of labels of each row; a soft target counts as its value."""
        return self.matrix.sum(axis=1, dtype=np.float64, where=self.matrix >= 0)

    def known_counts(self) -> Array:
        """Return the number of rows in which each label is known."""
        return (self.matrix >= 0).sum(axis=0)

    def known_rows(self) -> Array:
        """Return whether each row has a known entry."""
        return np.any(self.matrix >= 0, axis=1)

    def dense(self) -> Array:
        """Return the matrix."""
        return self.matrix

    def __repr__(self) -> str:
        rows, labels = self.shape
        return f"Targets({rows:,} rows, {labels:,} labels)"


def as_decoded(targets: Any) -> Any:
    """Return decoded targets as `Targets`; return None and sparse targets unchanged.

    Example:
        >>> as_decoded(np.array([[1, -1]]))
        Targets(1 rows, 2 labels)
    """
    return Targets(targets) if isinstance(targets, np.ndarray) else targets


TargetsLike: TypeAlias = "ArrayLike | Targets"
"""What functions take as targets: what a user has, or targets that were decoded before."""


def decode(
    targets: TargetsLike,
    *,
    coding: Coding | None = None,
    num_labels: int | None = None,
    soft: bool = True,
    whole: bool = True,
    name: str = "targets",
) -> Array:
    """Return targets as a (rows, labels) matrix of 1, 0, soft values and −1 for unknown.

    Args:
        targets: a matrix coded as in the table of this module, or integer class indices of shape
            (rows,) with ``num_labels``.
        coding: how to read a matrix of only −1 and +1: ``"signed"`` (−1 is absent, 0 unknown) or
            ``"unknown"`` (−1 is unknown). Only needed for such a matrix.
        num_labels: the number of labels; the matrix must have as many columns.
        soft: whether values between 0 and 1 are allowed.
        whole: whether ``targets`` are all targets. A part of them cannot show whether the coding
            is ambiguous. In that case add up the ``tally`` of the parts and call ``check_tally``.
        name: the name of the argument in errors.

    Returns:
        int8 if all values are whole numbers, otherwise the float dtype of ``targets``.

    Raises:
        InputError: if a value has no meaning, if the matrix is ambiguous and ``coding`` is not
            given, or if ``coding`` contradicts the values.

    Example:
        >>> decode(np.array([[1.0, np.nan, 0.0]]))
        array([[ 1, -1,  0]], dtype=int8)
        >>> decode(np.array([[1, -1], [-1, 1]]), coding="signed")
        array([[1, 0],
               [0, 1]], dtype=int8)
        >>> decode(np.array([2, -1]), num_labels=3)
        array([[ 0,  0,  1],
               [-1, -1, -1]], dtype=int8)
    """
    if isinstance(targets, Targets):
        matrix = _of_labels(targets.matrix, num_labels, name)
        return matrix if soft or matrix.dtype == np.int8 else _decode(matrix, soft, name)
    array = to_numpy(targets)
    if coding is not None:
        checks.choice("coding", coding, CODINGS)
    if array.dtype.kind not in "buif":
        raise checks.InputError(
            f"`{name}` must be numbers or booleans; got dtype {array.dtype}. "
            "Turn label names into a 0/1 matrix first."
        )
    if array.ndim == 1 and array.dtype.kind in "iu" and num_labels is not None:
        if coding == "signed":
            raise checks.InputError(
                f'`coding="signed"` needs a matrix of −1 and +1; `{name}` holds class indices of '
                f"shape {array.shape}. Leave `coding` out."
            )
        return one_hot(array, num_labels, name=name)
    _of_labels(checks.matrix(name, array), num_labels, name)
    if coding == "signed":
        if whole:
            check_tally(tally(array), coding, name=name)
        return from_signed(array, name=name)
    decoded = _decode(array, soft, name)
    # −100 and NaN are unknown in both codings. Only −1 makes a matrix ambiguous.
    if whole and coding is None and is_ambiguous(decoded) and bool((array == UNKNOWN).any()):
        refuse_ambiguous(name)
    return decoded


def is_ambiguous(targets: Array) -> bool:
    """Return whether decoded targets contain only −1 and +1.

    Example:
        >>> is_ambiguous(np.array([[1, -1]])), is_ambiguous(np.array([[1, -1, 0]]))
        (True, False)
    """
    if not targets.size or targets.min() >= 0 or targets.max() != 1:
        return False
    # Most matrices have a 0 early, so check block by block and stop at the first 0.
    flat = targets.reshape(-1)
    step = 1 << 20
    return all(
        bool((np.abs(flat[start : start + step]) == 1).all()) for start in range(0, flat.size, step)
    )


def tally(targets: ArrayLike) -> Array:
    """Return the number of targets that are −1, 0, 1 and between 0 and 1.

    Example:
        >>> tally(np.array([[1, -1, 0.5, np.nan]]))
        array([1, 0, 1, 1])
    """
    array = to_numpy(targets)
    between = np.count_nonzero((array > 0) & (array < 1)) if array.dtype.kind == "f" else 0
    return np.array([*(np.count_nonzero(array == value) for value in (-1, 0, 1)), between])


def check_tally(counts: ArrayLike, coding: Coding | None, *, name: str = "targets") -> None:
    """Raise if targets with this ``tally`` are ambiguous or contradict ``coding``."""
    minus, zero, plus, soft = (int(count) for count in to_numpy(counts))
    if coding is None and minus and plus and not zero and not soft:
        refuse_ambiguous(name)
    if coding == "signed" and zero and not minus:
        raise checks.InputError(
            f'`{name}` with `coding="signed"` must hold −1 for absent labels; got none, and 0 '
            "would mean unknown. Leave `coding` out if 0 means absent."
        )


def refuse_ambiguous(name: str = "targets") -> NoReturn:
    """Raise an error that explains both meanings of −1."""
    raise checks.InputError(
        f"`{name}` must say what −1 means; got only −1 and +1, which can be read two ways. "
        'Pass `coding="signed"` if −1 means absent, or `coding="unknown"` if −1 means unknown. '
        "A function without `coding` takes `cr.targets.Targets.of(targets, coding=…)`."
    )


def one_hot(indices: ArrayLike, num_labels: int, *, name: str = "targets") -> Array:
    """Return class indices as an int8 matrix; −1 and −100 give a row of unknowns.

    Example:
        >>> one_hot(np.array([1, -100]), 2)
        array([[ 0,  1],
               [-1, -1]], dtype=int8)
    """
    array = check_indices(indices, num_labels, name=name)
    unknown = array < 0
    checks.fits_memory(f"`{name}`", len(array), num_labels, itemsize=1)
    matrix = np.zeros((len(array), num_labels), dtype=np.int8)
    known = np.flatnonzero(~unknown)
    matrix[known, array[known]] = 1
    matrix[unknown] = UNKNOWN
    return matrix


def check_indices(
    indices: ArrayLike, num_labels: int | None = None, *, name: str = "targets"
) -> Array:
    """Return integer class indices of shape (rows,): each is below ``num_labels``, −1 or −100.

    Example:
        >>> check_indices(np.array([1, -100]), 2)
        array([   1, -100])
    """
    array = to_numpy(indices)
    if array.ndim != 1 or array.dtype.kind not in "iu":
        raise checks.InputError(
            f"`{name}` of shape (rows,) must be integer class indices; got {array.dtype} of shape "
            f"{array.shape}."
        )
    bad = (array < 0) & ~np.isin(array, IGNORED)
    if num_labels is not None:
        bad |= array >= num_labels
    if bad.any():
        row = int(bad.argmax())
        allowed = "be at least 0" if num_labels is None else f"lie in [0, {num_labels - 1}]"
        labels = "" if num_labels is None else f" There are {num_labels} labels."
        raise checks.InputError(
            f"class indices in `{name}` must {allowed} or be −1 (unknown); got {array[row]} in row "
            f"{row}.{labels}"
        )
    return array


def from_signed(targets: ArrayLike, *, name: str = "targets") -> Array:
    """Return decoded targets of a matrix coded 1 (present), −1 (absent), 0, −100 or NaN (unknown).

    Unlike ``decode``, it does not check for ambiguity. Use it for formats whose coding is certain.

    Example:
        >>> from_signed(np.array([[1, -1, 0]]))
        array([[ 1,  0, -1]], dtype=int8)
    """
    array = to_numpy(targets)
    _must_mean(array, name, coding="signed")
    decoded = np.full(array.shape, UNKNOWN, dtype=np.int8)
    decoded[array == 1] = 1
    decoded[array == -1] = 0
    return decoded


def allowed(coding: Coding | None = None, *, soft: bool = True) -> str:
    """Return the values that are valid with ``coding``, as text for errors."""
    if coding == "signed":
        return "1 (present), −1 (absent) or 0 (unknown)"
    return "0, 1, −1 (unknown) or soft in [0, 1]" if soft else "0, 1 or −1 (unknown)"


def first_invalid(
    targets: Array, *, coding: Coding | None = None, soft: bool = True
) -> tuple[int, ...] | None:
    """Return the index of the first value that is not valid with ``coding``, or None.

    Example:
        >>> first_invalid(np.array([[0, 1], [7, -1]]))
        (1, 0)
    """
    valid = np.isin(targets, IGNORED)
    if targets.dtype.kind == "f":
        valid |= np.isnan(targets)
    if soft and coding != "signed":
        valid |= (targets >= 0) & (targets <= 1)
    else:
        valid |= (targets == 0) | (targets == 1)
    if valid.all():
        return None
    return tuple(int(place) for place in np.argwhere(~valid)[0])


def tensor_matrix(scores: Tensor, targets: Tensor) -> Tensor:
    """Return targets in the dtype and shape of ``scores``, without stalling the device.

    Each class index becomes one row; an index below 0 gives a row of unknown targets.
    """
    if targets.dtype == scores.dtype and targets.shape == scores.shape:
        return targets
    integer = not targets.is_floating_point() and str(targets.dtype) != "torch.bool"
    if integer and targets.ndim == scores.ndim - 1:
        targets = tensor_one_hot(targets, scores.shape[-1], scores.dtype)
    checks.same_shape(scores, targets)
    return targets.to(scores.dtype)


def tensor_one_hot(indices: Tensor, num_labels: int, dtype: torch.dtype) -> Tensor:
    """Return class indices as a 0/1 matrix; an index below 0 gives a row of unknown targets.

    Values are checked on the CPU only: on another device, the check would stall it.
    """
    import torch

    if indices.device.type == "cpu" and indices.numel() and checks.can_read_values(indices):
        low, high = int(indices.min()), int(indices.max())
        if high >= num_labels or (low < UNKNOWN and low not in IGNORED):
            raise checks.InputError(
                f"class indices must lie in [0, {num_labels - 1}] or be −1 (unknown); "
                f"got [{low}, {high}]. The model has {num_labels} labels."
            )
    columns = torch.arange(num_labels, device=indices.device)
    matrix = (indices[..., None] == columns).to(dtype)
    return matrix.masked_fill((indices < 0)[..., None], UNKNOWN)


def unknown_to_minus_one(targets: Tensor) -> Tensor:
    """Return float targets with −1 for every unknown one, which is any negative number or NaN.

    A NaN would enter the gradients as 0 × NaN even if the value is masked.

    Example:
        >>> import torch
        >>> unknown_to_minus_one(torch.tensor([0.25, torch.nan, -100.0]))
        tensor([ 0.2500, -1.0000, -1.0000])
    """
    import torch

    return torch.where(targets >= 0, targets, -1.0)


def _of_labels(matrix: Array, num_labels: int | None, name: str) -> Array:
    """Return the matrix after checking that it has one column per label."""
    if num_labels is not None and matrix.shape[1] != num_labels:
        raise checks.InputError(
            f"`{name}` must have one column per label, {num_labels}; got {matrix.shape[1]}."
        )
    return matrix


def _decode(array: Array, soft: bool, name: str) -> Array:
    if array.dtype == bool:
        return array.view(np.int8)
    whole = _whole(array)
    if whole is not None:
        if whole.size and whole.min() < UNKNOWN:
            whole = np.where(whole == -100, np.int8(UNKNOWN), whole)
        if not whole.size or (whole.min() >= UNKNOWN and whole.max() <= 1):
            return whole
    _must_mean(array, name, soft=soft)
    return np.where(array >= 0, array, array.dtype.type(UNKNOWN))


def _must_mean(array: Array, name: str, *, coding: Coding | None = None, soft: bool = True) -> None:
    """Raise for the first value that has no meaning."""
    place = first_invalid(array, coding=coding, soft=soft)
    if place is not None:
        how = "" if coding is None else f' with `coding="{coding}"`'
        raise checks.InputError(
            f"`{name}`{how} must be {allowed(coding, soft=soft)}; got {array[place].item()!r} at "
            f"{place}."
        )


def _whole(array: Array) -> Array | None:
    """Return ``array`` as int8 if it contains only small whole numbers and NaN, else None."""
    if array.dtype == np.int8:
        return array
    if array.dtype.kind == "f":
        missing = np.isnan(array)
        if missing.any():
            array = np.where(missing, array.dtype.type(UNKNOWN), array)
    with np.errstate(invalid="ignore", over="ignore"):
        whole = array.astype(np.int8)
    return whole if np.array_equal(whole, array) else None


# Many labels -------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False, repr=False)
class SparseTargets:
    """Targets that store the present labels of each row; every other label is absent.

    Rows are stored as in a CSR matrix: the labels of row ``i`` are
    ``indices[offsets[i]:offsets[i + 1]]``. The constructor sorts the labels of a row if necessary.

    Attributes:
        offsets: (rows + 1,) start of each row in ``indices``, followed by its length.
        indices: label indices, in increasing order and without repetition within a row.
        num_labels: the number of labels.
        values: one target per entry of ``indices`` (soft, or −1 for unknown); None if all are 1.
        known: (rows,) whether anything is known about a row; None if every row is known. An
            unknown row has no entries.

    Example:
        >>> targets = SparseTargets.from_lists([[2, 0], [], [1]], num_labels=4)
        >>> targets
        SparseTargets(3 rows, 4 labels, 3 entries)
        >>> targets[:2].dense()
        array([[1., 0., 1., 0.],
               [0., 0., 0., 0.]], dtype=float32)
        >>> targets.label_counts()
        array([1., 1., 1., 0.])
    """

    offsets: Array
    indices: Array
    num_labels: int
    values: Array | None = None
    known: Array | None = None

    def __post_init__(self) -> None:
        own = vars(self)  # the class is frozen
        own["offsets"] = _whole_numbers("offsets", self.offsets)
        own["indices"] = _whole_numbers("indices", self.indices)
        own["num_labels"] = checks.whole_number("num_labels", self.num_labels, 1)
        self._check_offsets()
        if self.values is not None:
            values = np.asarray(self.values)
            _must_have_length("values", values, "entry", len(self.indices))
            decoded = decode(values[None], coding="unknown", name="values")[0].astype(np.float32)
            own["values"] = None if (decoded == 1).all() else decoded
        if self.known is not None:
            known = np.asarray(self.known, dtype=bool)
            _must_have_length("known", known, "row", len(self))
            entries = ~known & (np.diff(self.offsets) > 0)
            if entries.any():
                raise checks.InputError(
                    "a row that is not known must have no labels; row "
                    f"{int(entries.argmax())} has some."
                )
            own["known"] = None if known.all() else known
        self._check_indices()

    def _check_offsets(self) -> None:
        offsets, count = self.offsets, len(self.indices)
        if not len(offsets) or offsets[0] != 0 or offsets[-1] != count:
            ends = f"{offsets[0]} to {offsets[-1]}" if len(offsets) else "nothing"
            raise checks.InputError(
                f"`offsets` of sparse targets must go from 0 to the number of entries, "
                f"{count:,}; got {ends}."
            )
        falling = np.diff(offsets) < 0
        if falling.any():
            raise checks.InputError(
                f"`offsets` of sparse targets must not fall; row {int(falling.argmax())} has a "
                "negative length."
            )

    def _check_indices(self) -> None:
        outside = (self.indices < 0) | (self.indices >= self.num_labels)
        if outside.any():
            place = int(outside.argmax())
            raise checks.InputError(
                f"label numbers must lie in [0, {self.num_labels - 1}]; got {self.indices[place]} "
                f"in row {self._row_of(place)}. There are {self.num_labels:,} labels."
            )
        same_row = np.ones(max(len(self.indices) - 1, 0), dtype=bool)
        inner = self.offsets[1:-1]
        same_row[inner[(inner > 0) & (inner < len(self.indices))] - 1] = False
        steps = np.diff(self.indices)
        if (same_row & (steps < 0)).any():
            order = np.lexsort((self.indices, self.entry_rows()))
            vars(self)["indices"] = self.indices[order]
            if self.values is not None:
                vars(self)["values"] = self.values[order]
            steps = np.diff(self.indices)
        twice = same_row & (steps == 0)
        if twice.any():
            place = int(twice.argmax())
            raise checks.InputError(
                f"each label must appear once per row; label {self.indices[place]} appears twice "
                f"in row {self._row_of(place)}. Remove the repetition."
            )

    def _row_of(self, place: int) -> int:
        return int(np.searchsorted(self.offsets, place, side="right")) - 1

    @classmethod
    def from_lists(cls, rows: Iterable[Iterable[int]], num_labels: int) -> SparseTargets:
        """Return targets from one list of label indices per row.

        Example:
            >>> SparseTargets.from_lists([[5], []], num_labels=10).row_counts()
            array([1., 0.])
        """
        lists = [np.asarray(list(row), dtype=np.int64) for row in rows]
        sizes = [len(row) for row in lists]
        indices = np.concatenate(lists) if lists else np.zeros(0, np.int64)
        return cls(np.concatenate([[0], np.cumsum(sizes, dtype=np.int64)]), indices, num_labels)

    @classmethod
    def from_dense(cls, targets: ArrayLike) -> SparseTargets:
        """Return targets from a decoded (rows, labels) matrix; every value except 0 is stored.

        Example:
            >>> SparseTargets.from_dense(np.array([[0, 0.5, 0], [-1, 0, 1]])).values
            array([ 0.5, -1. ,  1. ], dtype=float32)
        """
        array = checks.matrix("targets", to_numpy(targets))
        rows, columns = np.nonzero(array)
        offsets = np.searchsorted(rows, np.arange(len(array) + 1))
        values = array[rows, columns].astype(np.float32)
        return _trusted(offsets, columns, array.shape[1], None if (values == 1).all() else values)

    @classmethod
    def from_csr(cls, matrix: Any) -> SparseTargets:
        """Return targets from a scipy CSR matrix or a torch sparse CSR tensor.

        Example:
            >>> from scipy import sparse
            >>> SparseTargets.from_csr(sparse.csr_matrix([[0, 1], [1, 1]]))
            SparseTargets(2 rows, 2 labels, 3 entries)
        """
        if not is_tensor(matrix):
            matrix = matrix.tocsr()
            return cls(matrix.indptr, matrix.indices, matrix.shape[1], matrix.data)
        pieces = (matrix.crow_indices(), matrix.col_indices(), matrix.values())
        offsets, indices, values = map(to_numpy, pieces)
        return cls(offsets, indices, matrix.shape[1], values)

    @classmethod
    def from_classes(cls, classes: ArrayLike, num_labels: int) -> SparseTargets:
        """Return targets from one class index per row; a negative index makes the row unknown.

        Example:
            >>> SparseTargets.from_classes(np.array([2, -1]), 3).dense()
            array([[ 0.,  0.,  1.],
                   [-1., -1., -1.]], dtype=float32)
        """
        array = to_numpy(classes).astype(np.int64)
        known = array >= 0
        offsets = np.concatenate([[0], np.cumsum(known)])
        return cls(offsets, array[known], num_labels, None, None if known.all() else known)

    @classmethod
    def unknown(cls, rows: int, num_labels: int) -> SparseTargets:
        """Return targets of rows about which nothing is known.

        Example:
            >>> SparseTargets.unknown(2, 1000).num_known
            0
        """
        return cls.from_classes(np.full(rows, UNKNOWN), num_labels)

    @property
    def shape(self) -> tuple[int, int]:
        """Return (rows, labels)."""
        return len(self), self.num_labels

    @property
    def num_known(self) -> int:
        """Return the number of known entries, present or absent."""
        rows = len(self) if self.known is None else int(self.known.sum())
        hidden = 0 if self.values is None else int((self.values < 0).sum())
        return rows * self.num_labels - hidden

    @property
    def hard(self) -> bool:
        """Return whether every target is 0 or 1, so that none is soft or unknown."""
        return self.known is None and (self.values is None or bool((self.values == 1).all()))

    def __len__(self) -> int:
        return len(self.offsets) - 1

    def __getitem__(self, rows: slice | Sequence[int] | Array) -> SparseTargets:
        """Return the selected rows, in the order of the selection."""
        chosen = np.arange(len(self))[rows]
        sizes = np.diff(self.offsets)[chosen]
        offsets = np.concatenate([[0], np.cumsum(sizes)])
        place = np.arange(offsets[-1]) + np.repeat(self.offsets[chosen] - offsets[:-1], sizes)
        values = None if self.values is None else self.values[place]
        known = None if self.known is None else self.known[chosen]
        return _trusted(offsets, self.indices[place], self.num_labels, values, known)

    def relabelled(self, numbers: ArrayLike) -> SparseTargets:
        """Return the same rows with label ``i`` moved to ``numbers[i]``, a permutation."""
        moved = to_numpy(numbers)[self.indices]
        return SparseTargets(self.offsets, moved, self.num_labels, self.values, self.known)

    def __repr__(self) -> str:
        return (
            f"SparseTargets({len(self):,} rows, {self.num_labels:,} labels, "
            f"{len(self.indices):,} entries)"
        )

    def entry_rows(self) -> Array:
        """Return the row of each entry of ``indices``."""
        return np.repeat(np.arange(len(self)), np.diff(self.offsets))

    def entry_values(self) -> Array:
        """Return the target of each entry of ``indices`` as float32; −1 is unknown."""
        if self.values is None:
            return np.ones(len(self.indices), dtype=np.float32)
        return self.values

    def label_counts(self) -> Array:
        """Return the number of rows with each label; a soft target counts as its value."""
        weights = np.maximum(self.entry_values(), 0)
        return np.bincount(self.indices, weights=weights, minlength=self.num_labels)

    def known_counts(self) -> Array:
        """Return the number of rows in which each label is known."""
        rows = len(self) if self.known is None else int(self.known.sum())
        hidden = self.indices[self.entry_values() < 0]
        return rows - np.bincount(hidden, minlength=self.num_labels)

    def known_rows(self) -> Array:
        """Return whether each row has a known entry."""
        hidden = self.entry_rows()[self.entry_values() < 0]
        known = np.bincount(hidden, minlength=len(self)) < self.num_labels
        return known if self.known is None else known & self.known

    def row_counts(self) -> Array:
        """Return the number of labels of each row; a soft target counts as its value."""
        weights = np.maximum(self.entry_values(), 0)
        return np.bincount(self.entry_rows(), weights=weights, minlength=len(self))

    def dense(self) -> Array:
        """Return a (rows, labels) float32 matrix. Use it with few rows or few labels.

        Raises:
            InputError: if the matrix does not fit into memory.
        """
        checks.fits_memory("dense targets", *self.shape)
        matrix = np.zeros(self.shape, dtype=np.float32)
        if self.known is not None:
            matrix[~self.known] = UNKNOWN
        matrix[self.entry_rows(), self.indices] = self.entry_values()
        return matrix

    def at(self, columns: ArrayLike) -> Array:
        """Return the targets of some labels of each row.

        Args:
            columns: (rows, k) label indices.

        Returns:
            (rows, k) float32; −1 is unknown.

        Example:
            >>> SparseTargets.from_lists([[2, 0], [1]], 4).at(np.array([[0, 1], [1, 3]]))
            array([[1., 0.],
                   [1., 0.]], dtype=float32)
        """
        from scipy import sparse

        asked = to_numpy(columns)
        parts = self.entry_values(), self.indices, self.offsets
        rows = np.broadcast_to(np.arange(len(self))[:, None], asked.shape)
        found = sparse.csr_matrix(parts, self.shape)[rows.ravel(), asked.ravel()]
        result = np.asarray(found).reshape(asked.shape)
        if self.known is not None:
            result[~self.known] = UNKNOWN
        return result


def _trusted(
    offsets: Array,
    indices: Array,
    num_labels: int,
    values: Array | None,
    known: Array | None = None,
) -> SparseTargets:
    """Return targets from arrays that were checked before."""
    made = object.__new__(SparseTargets)
    rest = {"num_labels": num_labels, "values": values, "known": known}
    vars(made).update(offsets=offsets, indices=indices, **rest)
    return made


def _whole_numbers(name: str, values: object) -> Array:
    array = np.asarray(values)
    if array.ndim != 1 or (array.size and array.dtype.kind not in "iu"):
        raise checks.InputError(
            f"`{name}` of sparse targets must be whole numbers of shape (n,); got {array.dtype} "
            f"of shape {array.shape}."
        )
    return array.astype(np.int64, copy=False)


def _must_have_length(name: str, array: Array, what: str, count: int) -> None:
    if array.shape != (count,):
        raise checks.InputError(
            f"`{name}` of sparse targets must have one value per {what}, {count:,}; got shape "
            f"{array.shape}."
        )
