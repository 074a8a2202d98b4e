"""``.npz`` files: features or images, targets, labels; optional ids, split, truth."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from credibly.checks import InputError, located
from credibly.data.rows import Data, default_labels, unknown_targets
from credibly.targets import MANY_LABELS, Coding, SparseTargets, decode
from credibly.types import Array
from credibly.untrusted.arrays import read_arrays

KEYS = (
    *("features", "images", "targets", "labels", "ids", "split", "truth", "human_probabilities"),
    *("target_offsets", "target_indices", "target_values"),
)


def read_npz(
    path: Path, *, labels: Sequence[str] | None = None, coding: Coding | None = None
) -> Data:
    """Read the layout of docs/guide/data.md; nothing in the file is executed (no pickle)."""
    arrays = read_arrays(path, KEYS, only=True)
    names = arrays.get("labels", labels)
    inputs = arrays.get("features", arrays.get("images"))
    if inputs is None:
        raise InputError(f"{path} must hold `features` or `images`; it holds {sorted(arrays)}.")
    targets = arrays.get("targets")
    if "target_indices" in arrays:
        return _sparse(path, names, arrays)
    if targets is None:
        if names is None:
            raise InputError(f"{path} must hold `targets`, or at least `labels` to predict.")
        targets = unknown_targets(len(inputs), len(names))
    if targets.ndim == 1:
        highest = int(targets.max(initial=0)) if targets.dtype.kind in "iu" else 0
        with located(str(path)):
            names = default_labels(highest + 1) if names is None else names
            targets, coding = decode(targets, coding=coding, num_labels=len(names)), "unknown"
    with located(str(path)):
        names = default_labels(targets.shape[1]) if names is None else names
    try:
        fields = _fields(path, arrays)
        return Data(labels=list(names), targets=targets, coding=coding, **fields)
    except InputError:
        raise
    except (TypeError, ValueError, OverflowError) as error:  # text where numbers belong
        raise InputError(f"{path} must hold numbers where they belong; {error}.") from error


def _sparse(path: Path, names: Sequence[str] | Array | None, arrays: dict[str, Array]) -> Data:
    """Return rows whose targets are CSR: ``target_offsets``, ``target_indices`` (and values)."""
    if "targets" in arrays or "target_offsets" not in arrays:
        raise InputError(
            f"{path} must hold either `targets`, or `target_offsets` and `target_indices`; it "
            f"holds {sorted(arrays)}."
        )
    indices = arrays["target_indices"]
    with located(str(path)):
        count = int(indices.max(initial=0)) + 1 if names is None else len(names)
        names = default_labels(count) if names is None else names
        targets = SparseTargets(
            arrays["target_offsets"], indices, len(names), arrays.get("target_values")
        )
        kept = targets if len(names) >= MANY_LABELS else targets.dense()
    return Data(labels=list(names), targets=kept, coding="unknown", **_fields(path, arrays))


def _fields(path: Path, arrays: dict[str, Array]) -> dict[str, Any]:
    """Return the other fields of ``Data``."""
    given = {name: arrays.get(name) for name in ("ids", "split", "features", "images")}
    given["truth"] = arrays.get("truth", arrays.get("human_probabilities"))
    # Flips are left out: nothing says that a mirrored image keeps its labels.
    augmentation = "none" if given["images"] is None else "shift"
    return {**given, "source": path.name, "augmentation": augmentation}
