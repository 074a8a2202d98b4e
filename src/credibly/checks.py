"""Check what users pass: values, shapes, options and paths.

Each function raises ``InputError`` if its condition does not hold. Every message says what must
hold, what came, and what to do. Losses check shapes and dtypes only (reading values would stall a
GPU); metrics, decisions and file readers check values too.
"""

from __future__ import annotations

import difflib
import math
import numbers
import os
import stat
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from importlib.util import find_spec
from operator import index
from typing import TYPE_CHECKING, Any

import numpy as np

from credibly.runtime import InputError as InputError
from credibly.types import Array

if TYPE_CHECKING:
    from torch import Tensor


@contextmanager
def located(where: str) -> Iterator[None]:
    """Put ``where`` (a file, a row) before the message of errors raised inside the block.

    Example:
        >>> with located("rows.csv"):
        ...     positive("width", -1)
        Traceback (most recent call last):
        ...
        credibly.checks.InputError: rows.csv: `width` must be a finite number above 0; got -1.
    """
    try:
        yield
    except InputError as error:
        raise InputError(f"{where}: {error}") from None


def require(extra: str, *modules: str) -> None:
    """Raise if a library of an optional extra is not installed; nothing is imported."""
    missing = [name for name in modules if find_spec(name) is None]
    if missing:
        raise InputError(
            f"this needs {', '.join(missing)}, not installed here. "
            f"Run `pip install 'credibly[{extra}]'`."
        )


def nearest(name: str, known: Iterable[str]) -> str:
    """Return a hint: the known name closest to ``name``, or the first known ones.

    Example:
        >>> nearest("fokal", ["bce", "focal", "spa"])
        "Did you mean 'focal'?"
    """
    known = list(known)
    # The time grows with the product of the lengths; a very long name is not a misspelling.
    near = [text for text in known[:5000] if len(text) <= 200] if len(name) <= 200 else []
    close = difflib.get_close_matches(name, near, n=1, cutoff=0.5)
    if close:
        return f"Did you mean {close[0]!r}?"
    if not known:
        return "There are none."
    shown = [text if len(text) <= 80 else f"{text[:80]}…" for text in known[:20]]
    return f"Known: {', '.join(shown)}{', …' if len(known) > 20 else ''}."


def listed(names: Sequence[str], form: Callable[[str], str] = repr, limit: int = 100) -> str:
    """Format names for a message, and the number of further names.

    Example:
        >>> listed(["age", "bmi", "sodium"], limit=2)
        "'age', 'bmi', … (1 more)"
    """
    more = f", … ({len(names) - limit:,} more)" if len(names) > limit else ""
    return ", ".join(form(name) for name in names[:limit]) + more


def positive(name: str, value: float) -> float:
    """Return ``value`` as a float; it must be finite and above 0."""
    if not (_is_finite(value) and value > 0):
        raise InputError(f"`{name}` must be a finite number above 0; got {value!r}.")
    return float(value)


def finite(name: str, value: float) -> float:
    """Return ``value`` as a float; it must be finite."""
    if not _is_finite(value):
        raise InputError(f"`{name}` must be a finite number; got {value!r}.")
    return float(value)


def at_least(name: str, value: float, lowest: float) -> float:
    """Return ``value`` as a float; it must be finite and at least ``lowest``."""
    if not (_is_finite(value) and value >= lowest):
        raise InputError(f"`{name}` must be a finite number of at least {lowest:g}; got {value!r}.")
    return float(value)


def _is_finite(value: float) -> bool:
    try:
        return math.isfinite(value)
    except (TypeError, OverflowError):  # a text; a whole number beyond the range of floats
        return False


def whole_number(name: str, value: object, lowest: int) -> int:
    """Return ``value`` as an int; it must be a whole number of at least ``lowest``.

    Example:
        >>> whole_number("num_labels", 2.5, 1)
        Traceback (most recent call last):
        credibly.checks.InputError: `num_labels` must be a whole number of at least 1; got 2.5.
    """
    try:
        whole = index(value)  # pyright: ignore[reportArgumentType] - raises unless it is a number
    except TypeError:
        whole = lowest - 1
    if whole < lowest or isinstance(value, bool):
        raise InputError(f"`{name}` must be a whole number of at least {lowest}; got {value!r}.")
    return whole


def between(name: str, value: float, low: float, high: float) -> float:
    """Return ``value``; it must be finite and lie in [low, high].

    Example:
        >>> between("port", 99_999, 0, 65_535)
        Traceback (most recent call last):
        ...
        credibly.checks.InputError: `port` must lie between 0 and 65,535; got 99999.
    """
    if not low <= value <= high:
        raise InputError(f"`{name}` must lie between {low:,} and {high:,}; got {value!r}.")
    return value


def fraction(name: str, value: float, *, low_open: bool = False, high_open: bool = False) -> float:
    """Return ``value`` as a float in [0, 1]; options exclude the ends."""
    above = value > 0 if low_open else value >= 0
    below = value < 1 if high_open else value <= 1
    if not (above and below):
        interval = f"{'(' if low_open else '['}0, 1{')' if high_open else ']'}"
        raise InputError(f"`{name}` must lie in {interval}; got {value!r}.")
    return float(value)


def choice(name: str, value: object, known: Sequence[object]) -> Any:
    """Return ``value``, which must be one of ``known``."""
    if value not in known:
        listed = ", ".join(repr(option) for option in known)
        raise InputError(f"`{name}` must be one of {listed}; got {value!r}.")
    return value


def average_size(value: float, num_labels: int | None = None, *, below_one: bool = False) -> float:
    """Return a label budget, from 1 (``below_one``: above 0) to the number of labels."""
    enough = value > 0 if below_one else value >= 1
    if not (math.isfinite(value) and enough) or (num_labels is not None and value > num_labels):
        low = "above 0" if below_one else "at least 1"
        top = "" if num_labels is None else f", {num_labels}"
        raise InputError(
            f"`average_size` must be {low} and at most the number of labels{top}; got {value!r}."
        )
    return float(value)


def fits_memory(what: str, *sizes: int, itemsize: int = 4) -> None:
    """Check that an array of these sizes takes at most a quarter of this machine's memory.

    Call it before allocating an array whose size a file declares.
    """
    needed, limit = math.prod(sizes) * itemsize, _memory() // 4
    if needed > limit:
        shape = " × ".join(f"{size:,}" for size in sizes)
        raise InputError(
            f"{what} must fit into memory; {shape} would take {needed / 2**30:,.1f} GB, and "
            f"{limit / 2**30:,.1f} GB is the limit for one array. Split it, or check the file."
        )


def _memory() -> int:
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (AttributeError, ValueError, OSError):  # not on this system
        return 2**34


# Paths ---------------------------------------------------------------------------------------

_KINDS = (
    (stat.S_ISDIR, "a folder"),
    (stat.S_ISFIFO, "a named pipe"),
    (stat.S_ISSOCK, "a socket"),
    (stat.S_ISCHR, "a device"),
    (stat.S_ISBLK, "a device"),
)


def _kind_of(path: str | os.PathLike[str]) -> str | None:
    """Return what ``path`` is, links followed: None if it does not exist, "" for a plain file."""
    try:
        mode = os.stat(path).st_mode
    except OSError:
        return None
    return next((kind for test, kind in _KINDS if test(mode)), "")


def input_file(path: str | os.PathLike[str]) -> None:
    """Check that ``path``, if it exists, is a plain file. Reading a pipe or device may never end.

    Example:
        >>> input_file("/dev/null")
        Traceback (most recent call last):
        ...
        credibly.checks.InputError: /dev/null must be a file; it is a device. Copy it to one first.
    """
    kind = _kind_of(path)
    if kind == "a folder":
        raise InputError(f"{path} must be a file; it is a folder.")
    if kind:
        raise InputError(f"{path} must be a file; it is {kind}. Copy it to one first.")


def out_can_be_written(
    path: str | os.PathLike[str], name: str = "out", *, folder: bool = False
) -> None:
    """Check before any work that a file (or ``folder``) can be written at ``path``.

    Devices, pipes and sockets are refused. So is a folder in place of a file, or a file in place of
    a folder. Links are followed. The parent folder must exist, or it must be possible to make it.

    Example:
        >>> out_can_be_written("/dev/null")
        Traceback (most recent call last):
        ...
        credibly.checks.InputError: `out` must be a file to write; /dev/null is a device.
    """
    real = os.path.realpath(path)
    kind, what = _kind_of(real), "a folder" if folder else "a file"
    good = ("a folder",) if folder else ("",)
    if kind is not None and kind not in good:
        raise InputError(f"`{name}` must be {what} to write; {path} is {kind or 'a file'}.")
    above = real if folder and kind is not None else os.path.dirname(real)
    while _kind_of(above) is None and os.path.dirname(above) != above:
        above = os.path.dirname(above)
    if _kind_of(above) != "a folder":
        raise InputError(
            f"`{name}` must be {what} in a folder; {above} is not a folder; got {path}."
        )
    if not os.access(above, os.W_OK | os.X_OK):
        raise InputError(f"`{name}` must be {what} that can be written; {above} is read-only.")


def fits(kind: object, value: object) -> bool:
    """Return whether a plain value can be used as ``bool``, ``int``, ``float`` or ``str``.

    The conversion must lose nothing. A number is never read as true or false, cut or rounded.

    Example:
        >>> fits(float, 3), fits(int, 3.0), fits(int, True), fits(str, "a")
        (True, False, False, True)
    """
    if kind is bool or isinstance(value, bool):
        return kind is bool and isinstance(value, bool)
    if kind is str:
        return isinstance(value, (str, os.PathLike))
    if isinstance(value, numbers.Integral):
        return (kind is int and abs(int(value)) < 2**63) or (
            kind is float and abs(int(value)) <= 2**53
        )
    return kind is float and isinstance(value, numbers.Real)


def type_words(kind: object, *, many: bool = False) -> str:
    """Return what a message calls a type of plain values.

    Example:
        >>> type_words(int), type_words(str, many=True)
        ('a whole number', 'a list of texts')
    """
    words: dict[object, tuple[str, str]] = {
        bool: ("true or false", "true or false"),
        int: ("a whole number", "whole numbers"),
        float: ("a number", "numbers"),
        str: ("text", "texts"),
    }
    one, several = words[kind]
    return f"a list of {several}" if many else one


# Tensors, in losses --------------------------------------------------------------------------


def float_scores(scores: Tensor) -> None:
    """Check that scores are a floating-point tensor."""
    if not hasattr(scores, "is_floating_point"):
        raise InputError(
            f"`scores` must be a torch tensor; got {type(scores).__name__}. "
            "Convert with `torch.as_tensor(scores)`."
        )
    if not scores.is_floating_point():
        raise InputError(
            f"`scores` must be floating point; got {scores.dtype}. Pass the model's raw outputs, "
            "not predicted classes."
        )


def matrix_scores(scores: Tensor, scores_per_label: int = 1) -> None:
    """Check that scores are (rows, labels), or (rows, 2 × labels) for losses with two heads."""
    float_scores(scores)
    if scores.ndim != 2:
        raise InputError(
            f"`scores` must have shape (rows, labels); got {tuple(scores.shape)}. "
            "Flatten leading dimensions into rows first."
        )
    if scores.shape[1] % scores_per_label:
        raise InputError(
            f"`scores` must have {scores_per_label} columns per label; got {scores.shape[1]}. "
            f"Give the model {scores_per_label} × labels outputs (`loss.scores_per_label`)."
        )


def same_shape(scores: Tensor, targets: Tensor) -> None:
    """Check that targets have the shape of the scores; class indices were converted before."""
    if scores.shape != targets.shape:
        raise InputError(
            f"`targets` must have the shape of the scores, {tuple(scores.shape)}, or be integer "
            f"class indices of shape {tuple(scores.shape[:-1])}; got {tuple(targets.shape)}, "
            f"{targets.dtype}."
        )


def can_read_values(tensor: Tensor) -> bool:
    """Return whether Python may read the values: not on the meta device, nor while tracing.

    ``torch.compile``, ``torch.func.grad``, ``torch.func.vmap`` and modes that replace all
    operators, such as ``FakeTensorMode``, work on tensors without values.
    """
    import torch

    if torch.compiler.is_compiling() or tensor.is_meta:
        return False
    native = torch._C
    return not (native._are_functorch_transforms_active() or native._len_torch_dispatch_stack())


def label_weight(weight: Tensor, num_labels: int | None = None) -> Tensor:
    """Return label weights as a float vector; they must be non-negative, one per label."""
    import torch

    vector = torch.as_tensor(weight)
    vector = vector if vector.is_floating_point() else vector.float()
    if vector.ndim != 1 or (num_labels is not None and len(vector) != num_labels):
        labels = "labels" if num_labels is None else str(num_labels)
        raise InputError(
            f"`label_weight` must have one number per label, shape ({labels},); "
            f"got {tuple(vector.shape)}."
        )
    return _not_negative("label_weight", vector)


def row_weight(weight: Tensor, scores: Tensor) -> Tensor:
    """Return row weights, shape (rows,); they must be non-negative."""
    rows = scores.shape[0]
    if weight.shape not in ((rows,), (rows, 1)):
        raise InputError(
            f"`weight` must have one number per row, shape ({rows},) or ({rows}, 1), because this "
            f"loss couples the labels of a row; got {tuple(weight.shape)}."
        )
    return _not_negative("weight", weight.reshape(rows))


def entry_weight(weight: Tensor, scores: Tensor) -> Tensor:
    """Return non-negative weights that multiply entries: one per row, or one per entry."""
    shape = tuple(scores.shape)
    if weight.shape not in (shape, shape[:-1], (*shape[:-1], 1)):
        raise InputError(
            f"`weight` must have one number per row, shape {shape[:-1]}, or per entry, {shape}; "
            f"got {tuple(weight.shape)}. Weights of labels go to the constructor, `label_weight=`."
        )
    weight = weight[..., None] if weight.shape == shape[:-1] else weight
    return _not_negative("weight", weight)


def _not_negative(name: str, weight: Tensor) -> Tensor:
    # Values are checked on the CPU only: on a GPU, the check would stall the device.
    if weight.device.type == "cpu" and can_read_values(weight) and not bool((weight >= 0).all()):
        worst = weight.min().item()
        raise InputError(
            f"`{name}` must not hold negative numbers or NaN; got {worst:g}. A weight of 0 leaves "
            "an entry out of the sum."
        )
    return weight


# Arrays, in metrics, calibrators and decisions ------------------------------------------------


def matrix(name: str, array: Array) -> Array:
    """Return ``array``, which must be two-dimensional: (rows, labels)."""
    if array.ndim != 2:
        raise InputError(f"`{name}` must have shape (rows, labels); got {array.shape}.")
    return array


def same_shapes(**arrays: Array) -> None:
    """Check that all arrays have the same shape."""
    shapes = {name: array.shape for name, array in arrays.items()}
    if len(set(shapes.values())) > 1:
        listed = ", ".join(f"`{name}` {shape}" for name, shape in shapes.items())
        raise InputError(f"shapes must agree; got {listed}.")


def no_nan(name: str, array: Array) -> Array:
    """Return ``array``, which must not contain NaN."""
    bad = np.isnan(array)
    if bad.any():
        first = tuple(int(i) for i in np.argwhere(bad)[0])
        raise InputError(
            f"`{name}` must not contain NaN; got {int(bad.sum())}, the first at {first}. "
            "Drop those rows, or mark their targets −1 (unknown) and fill in any number."
        )
    return array


def probabilities(array: Array, name: str = "probabilities") -> Array:
    """Return ``array``, which must lie in [0, 1] and must not contain NaN."""
    no_nan(name, array)
    if array.size and (array.min() < 0 or array.max() > 1):
        raise InputError(
            f"`{name}` must lie in [0, 1]; got [{array.min():.6g}, {array.max():.6g}]. "
            "If these are scores, call `loss.probabilities(scores)` first."
        )
    return array
