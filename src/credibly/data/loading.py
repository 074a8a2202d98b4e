"""``load``: find the reader of a name, a file or ``KIND:PATH``, and complete the split."""

from __future__ import annotations

import dataclasses
import os
import warnings
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import pyarrow as pa

from credibly import checks
from credibly.arrays import column_names, is_sparse_matrix, to_numpy
from credibly.checks import InputError, input_file, listed, located, nearest
from credibly.data.images import LazyImages
from credibly.data.preparation import Columns, Preparation
from credibly.data.readers import (
    EMBEDDED,
    FRAME,
    KINDS,
    SHARED,
    Reader,
    all_readers,
)
from credibly.data.rows import Data, default_labels, unknown_targets
from credibly.data.splits import CALIBRATION, TEST, TRAIN, hold_out, split_rows
from credibly.targets import MANY_LABELS, Coding, SparseTargets
from credibly.types import Array, ArrayLike, ArrowTable, JsonObject
from credibly.untrusted.arrays import read_arrays
from credibly.untrusted.budget import worded

Source: TypeAlias = str | os.PathLike[str] | Data | ArrowTable
_ENDINGS = {ending: kind for kind, reader in KINDS.items() for ending in reader.endings}


def load(
    source: Source,
    *,
    seed: int = 0,
    test: float | None = None,
    calibration: float = 0.2,
    val: str = "calibrate",
    labels: Sequence[str] | None = None,
    skip_bad_images: bool = False,
    **options: object,
) -> Data:
    """Read rows from ``digits``, ``synthetic``, a file, ``KIND:PATH`` or a data frame.

    A published split is kept. If there is none, the share ``test`` (default 0.2) of the rows become
    test rows. If no validation rows are published, the share ``calibration`` of the training rows
    are held out. Both draws depend on ``seed`` and are stratified, so rare labels appear in each
    part.

    Args:
        source: what to read. A data frame (pandas, polars, pyarrow) is read as a table, see
            docs/guide/data.md. ``Data`` is returned unchanged.
        seed: of the split; for embedded data, of all randomness.
        test: share of test rows, if no split is published.
        calibration: share of the training rows to hold out, if no validation rows are
            published; 0 for none.
        val: use of published validation rows: ``"calibrate"``, or ``"train"`` for papers that
            count them as training rows.
        labels: the expected label names, in the order of ``targets``. Data with fixed labels
            must have exactly these. In a table, they are columns, or names in a column of
            lists.
        skip_bad_images: decode every image once and skip those that cannot be decoded
            (``data.skipped`` names them). Otherwise such an image is an error when it is
            reached.
        options: options of the reader or of the embedded data, such as ``coding`` for tables or
            ``n`` for digits; see docs/guide/data.md.

    Example:
        >>> load("synthetic", n=1000, seed=3)
        Data(1,000 rows: 560 train, 140 calibration, 300 test; 20 labels, 2.36 per row; features 20)
    """
    shared = {"test": test, "calibration": calibration, "val": val, "labels": labels}
    return _load(source, options, shared, seed=seed, skip_bad_images=skip_bad_images)


def load_new(
    source: Source,
    *,
    labels: Sequence[str],
    preparation: Preparation | None = None,
    reader: Mapping[str, object] | None = None,
    seed: int = 0,
    skip_bad_images: bool = False,
    **options: object,
) -> Data:
    """Read rows to predict, for a model with known labels and features.

    Args:
        source: what to read.
        labels: labels of the model. If a table has none of them, all are unknown.
        preparation: of the model. Columns of a table are matched by name. None: all columns
            that are not labels are used as numbers, by position.
        reader: the options of the reader for the training data. They are the defaults of
            ``options``, as far as this source supports them.
        seed: as for ``load``.
        skip_bad_images: as for ``load``.
        options: of the reader; ``test``, ``calibration`` and ``val`` as for ``load``.

    Raises:
        InputError: as for ``load``, and for missing features; the message names all of them.
    """
    stored = reader if reader and not isinstance(source, Data) else {}
    taken = {*_reader_of(source)[1].options(), *SHARED} - {"labels"} if stored else ()
    given = {name: stored[name] for name in stored if name in taken} | options
    embedded = isinstance(source, str) and source in EMBEDDED
    shared = {name: given.pop(name, default) for name, default in _DEFAULTS.items()}
    shared["labels"] = None if embedded else labels
    known = {"preparation": preparation, "to_predict": True}
    return _load(source, given, shared, known, seed=seed, skip_bad_images=skip_bad_images)


def _reader_of(source: Source) -> tuple[str, Reader, Path | ArrowTable | None]:
    """Return the name of the source, its reader, and the reader's input. Embedded data: None."""
    if isinstance(source, ArrowTable):
        return "a data frame", FRAME, source
    if not isinstance(source, (str, os.PathLike)):
        raise InputError(
            f"data must be a name, a file, KIND:PATH or a data frame; got "
            f"{type(source).__name__}. For arrays, call "
            "`cr.data.from_arrays(features=…, targets=…)`."
        )
    name = str(source)
    if name in EMBEDDED:
        return name, EMBEDDED[name], None
    kind, _, rest = name.partition(":")
    known = rest and kind in all_readers()
    path = Path(rest if known else name).expanduser()
    if not known:
        ending = "".join(path.suffixes[-2:] if path.suffix.lower() == ".gz" else [path.suffix])
        kind = _ENDINGS.get(ending.lower(), "")
        if not kind or path.is_dir():
            raise InputError(_not_understood(name, path))
    if not path.exists():
        raise InputError(f"{path} does not exist. Give a file or folder that does.")
    if not path.is_dir():
        input_file(path)
    return kind, all_readers()[kind], path


_DEFAULTS: JsonObject = {"test": None, "calibration": 0.2, "val": "calibrate"}


def _load(
    source: Source,
    options: JsonObject,
    shared: JsonObject,
    known: JsonObject | None = None,
    *,
    seed: int,
    skip_bad_images: bool,
) -> Data:
    """Read rows with the options of a reader and those ``shared`` by all readers.

    ``known`` are fields of ``TableLayout`` that are not options of a reader.
    """
    val, labels = shared["val"], shared["labels"]
    checks.choice("val", val, ("calibrate", "train"))
    if isinstance(source, Data):
        return source
    if isinstance(labels, str):
        raise InputError(f"`labels` must be a list of names; got {labels!r}. Pass [{labels!r}].")
    stored = options | {
        name: shared[name] for name in shared if shared[name] != _DEFAULTS.get(name)
    }
    given = {name: _plain(value) for name, value in stored.items()}
    name, reader, content = _reader_of(source)
    if labels is not None and "labels" in reader.options():
        options = {**options, "labels": list(labels)}
    check_options(name, reader, options)
    if content is None:
        shares = {each: shared[each] for each in ("test", "calibration")}
        shares = {each: share for each, share in shares.items() if share is not None}
        data = _in_order(reader.function(seed=seed, **shares, **options), labels)
        return dataclasses.replace(data, reader=given)
    if reader.layout:  # options on the columns of a table
        from credibly.data.tables import TableLayout

        columns = {name: options[name] for name in options if name in reader.layout}
        others = {name: options[name] for name in options if name not in reader.layout}
        options = {"layout": TableLayout(**columns, **(known or {})), **others}
    data = _in_order(reader.function(content, **options), labels)
    data = _without_bad_images(data, skip_bad_images)
    if val == "train":
        split = np.where(data.split == CALIBRATION, TRAIN, data.split)
        data = dataclasses.replace(data, split=split)
    return _split(data, (seed, shared["test"], shared["calibration"]), given, bool(known))


def from_arrays(
    *,
    targets: ArrayLike | SparseTargets,
    features: Any = None,
    images: ArrayLike | None = None,
    texts: Sequence[str] | Sequence[Sequence[str]] | None = None,
    labels: Sequence[str] | None = None,
    weights: ArrayLike | None = None,
    coding: Coding | None = None,
    test: float = 0.2,
    calibration: float = 0.2,
    seed: int = 0,
) -> Data:
    """Return rows from arrays in memory, split as ``load`` splits a file.

    Args:
        targets: (n, L), class indices of shape (n,), or ``SparseTargets``; see
            ``credibly.targets``.
        features: (n, d) numbers; a data frame, which is prepared like a table; or a
            ``scipy.sparse`` matrix, which stays sparse. Give ``features``, ``images`` or
            ``texts``.
        images: (n, h, w[, c]) uint8.
        texts: n texts, or n pairs of texts.
        labels: names of the labels; by default ``label-0``, ``label-1``, ….
        weights: (n,) the weight of each row in training, selection and calibration.
        coding: the meaning of −1 if ``targets`` contains only −1 and +1.
        test: share of test rows.
        calibration: share of the other rows to hold out.
        seed: of the split.

    Example:
        >>> from_arrays(features=np.eye(10), targets=np.arange(10) % 2)
        Data(10 rows: 6 train, 2 calibration, 2 test; 2 labels, 1.00 per row; features 10)
    """
    truth = targets if isinstance(targets, SparseTargets) else to_numpy(targets)
    names = column_names(features)
    columns = None
    if names is not None:
        columns = Columns(pa.table(features).select(names), "`features`")
        features = None
    rows = Data(
        labels=_label_names(truth, labels),
        targets=truth,
        features=features if features is None or is_sparse_matrix(features) else to_numpy(features),
        columns=columns,
        images=None if images is None else to_numpy(images),
        texts=texts,
        weights=None if weights is None else to_numpy(weights),
        augmentation="none" if images is None else "shift",
        coding=coding,
    )
    return _split(rows, (seed, test, calibration))


def _label_names(targets: Array | SparseTargets, given: Sequence[str] | Array | None) -> list[str]:
    """Return the given label names, or default names, one per label of the targets."""
    if given is not None:
        return list(given)
    if isinstance(targets, SparseTargets):
        return default_labels(targets.num_labels)
    classes = targets.ndim == 1 and targets.dtype.kind in "iu"
    return default_labels(int(targets.max(initial=0)) + 1 if classes else targets.shape[-1])


NPZ_KEYS = (
    *("features", "images", "targets", "labels", "ids", "split", "truth", "human_probabilities"),
    *("target_offsets", "target_indices", "target_values"),
)


def read_npz(
    path: Path, *, labels: Sequence[str] | None = None, coding: Coding | None = None
) -> Data:
    """Read the layout of docs/guide/data.md. Nothing in the file is executed (no pickle)."""
    arrays = read_arrays(path, NPZ_KEYS, only=True)
    names, held = arrays.pop("labels", labels), sorted(arrays)
    targets, sparse = arrays.get("targets"), "target_indices" in arrays
    given: JsonObject = {key: arrays.get(key) for key in ("ids", "split", "features", "images")}
    if given["features"] is None and given["images"] is None:
        raise InputError(f"{path} must hold `features` or `images`; it holds {held}.")
    if sparse and (targets is not None or "target_offsets" not in arrays):
        raise InputError(
            f"{path} must hold either `targets`, or `target_offsets` and `target_indices`; it "
            f"holds {held}."
        )
    if targets is None and names is None and not sparse:
        raise InputError(f"{path} must hold `targets`, or at least `labels` to predict.")
    with worded(f"{path} must hold numbers where they belong"):  # not text
        with located(str(path)):
            if sparse:
                indices, coding = arrays["target_indices"], "unknown"
                names = default_labels(int(indices.max(initial=0)) + 1) if names is None else names
                values = arrays.get("target_values")
                targets = SparseTargets(arrays["target_offsets"], indices, len(names), values)
                targets = targets if len(names) >= MANY_LABELS else targets.dense()
            elif targets is None:
                inputs = given["images"] if given["features"] is None else given["features"]
                targets = unknown_targets(len(inputs), 0 if names is None else len(names))
            names = _label_names(targets, names)
        return Data(
            labels=names,
            targets=targets,
            coding=coding,
            **given,
            truth=arrays.get("truth", arrays.get("human_probabilities")),
            source=path.name,
            # No flips: a mirrored image may have other labels.
            augmentation="none" if given["images"] is None else "shift",
        )


def load_texts(
    source: str | os.PathLike[str] | Data,
    labels: Sequence[str],
    *,
    text: Sequence[str] | None = None,
) -> dict[str, str]:
    """Return the texts of a data source by row id, to show them beside predictions.

    Args:
        source: the source of the predicted rows.
        labels: the labels of the predictions.
        text: the columns of the texts, if their names are not standard.

    Example:
        >>> load_texts(from_arrays(texts=["good", "bad"], targets=[[1], [0]]), ["label-0"])
        {'0': 'good', '1': 'bad'}
    """
    options: JsonObject = {} if text is None else {"text": list(text)}
    rows = load_new(source, labels=labels, **options)
    if rows.texts is None:
        raise InputError(
            f"{rows.source} must hold texts to show; it holds {rows.kind}. Name the column of the "
            "texts."
        )
    return {str(key): rows.text(row) for row, key in enumerate(rows.ids)}


def _not_understood(name: str, path: Path) -> str:
    if path.is_dir():
        return (
            f"{name} is a folder. Say how to read it, for example imagefolder:{name} or "
            f"coco:{name}."
        )
    kinds = ", ".join(f"{kind}:PATH" for kind in all_readers())
    hint = nearest(name.partition(":")[0], [*EMBEDDED, *all_readers()])
    hint = hint if hint.startswith("Did") else ""
    return (
        f"data must be one of {', '.join(EMBEDDED)}, a file ({', '.join(_ENDINGS)}) or "
        f"one of {kinds}; got {name!r}. {hint}"
    ).strip()


def check_options(name: str, reader: Reader, options: Mapping[str, object]) -> None:
    """Check that ``reader`` supports these options, and that their values have the right type.

    Raises:
        InputError: naming the source, the option, and the supported options.

    Example:
        >>> check_options("xc", KINDS["xc"], {"year": 7})
        Traceback (most recent call last):
        ...
        credibly.checks.InputError: xc has no option 'year'; it has labels, test, calibration, val.
    """
    taken = reader.options()
    known = [*taken, *(option for option in SHARED if option not in taken)]
    for option, value in options.items():
        if option not in taken:
            hint = nearest(option, known)
            hint = f" {hint}" if hint.startswith("Did") else ""
            listed = ", ".join(known)
            raise InputError(f"{name} has no option {option!r}; it has {listed}.{hint}")
        declared = taken[option]
        listed_values = isinstance(value, Iterable) and not isinstance(value, str)
        parts = list(value) if isinstance(value, Iterable) and declared.many else [value]
        fits = not declared.many or listed_values
        if value is not None and not (fits and all(checks.fits(declared.kind, x) for x in parts)):
            kind = checks.type_words(declared.kind, many=declared.many)
            raise InputError(f"`{option}` of {name} must be {kind}; got {value!r:.80}.")


def _in_order(data: Data, labels: Sequence[str] | None) -> Data:
    """Return ``data`` with labels in the order of ``labels``, which must be the same names."""
    if labels is None or list(labels) == data.labels:
        return data
    wanted = [str(label) for label in labels]
    expected = set(wanted)
    place = {label: number for number, label in enumerate(data.labels)}
    for label in wanted:
        if label not in place:
            raise InputError(
                f"{data.source} must have the {len(wanted)} labels asked for; it has no {label!r}. "
                f"{nearest(label, data.labels)}"
            )
    for label in data.labels:
        if label not in expected:
            raise InputError(
                f"{data.source} must have only the {len(wanted)} labels that were asked for; it "
                f"also has {label!r}."
            )
    order = [place[label] for label in wanted]
    truth = None if data.truth is None else data.truth[:, order]
    if isinstance(data.targets, SparseTargets):
        targets = data.targets.relabelled(np.argsort(order))
    else:
        targets = data.targets[:, order]
    return dataclasses.replace(data, labels=wanted, targets=targets, truth=truth)


def _without_bad_images(data: Data, skip: bool) -> Data:
    if not isinstance(data.images, LazyImages):
        return data
    missing = data.images.missing()
    if not skip:
        if missing:
            absent = [data.images.names[row] for row in missing]
            raise InputError(
                f"{data.source}: {len(missing)} of {len(data)} images are missing: "
                f"{listed(absent, str, 3)}. Add them. If they are in another folder or lack their "
                "ending, pass `images` or `suffix`. Or load with `skip_bad_images=True` to leave "
                "them out."
            )
        return data
    bad = {*missing, *(row for row, _ in data.images.bad())}
    good = np.array([row for row in range(len(data)) if row not in bad], dtype=int)
    skipped = tuple(str(data.ids[row]) for row in sorted(bad))
    if not len(good):
        raise InputError(f"{data.source}: none of its {len(data)} images can be decoded.")
    return dataclasses.replace(data.take(good), skipped=skipped)


def _split(
    data: Data,
    parts: tuple[int, float | None, float],
    reader: Mapping[str, object] | None = None,
    to_predict: bool = False,
) -> Data:
    """Return ``data`` with the published split completed; without one, all rows are in training."""
    seed, test, calibration = parts
    calibration = checks.fraction("calibration", calibration, high_open=True)
    split = data.split
    if (split == TRAIN).all():
        share = 0.2 if test is None else test
        split = split_rows(data.targets, test=share, calibration=calibration, seed=seed)
    elif not (split == CALIBRATION).any() and calibration > 0:
        split = hold_out(data.targets, split, calibration, seed)
    if test is not None and (data.split == TEST).any() and not to_predict:
        raise InputError(f"{data.source} has published test rows. Leave `test` out.")
    published = int((data.split == CALIBRATION).sum())
    if published and not calibration and not to_predict:
        warnings.warn(
            f"{data.source} has published validation rows ({published:,}). They stay held out "
            "with `calibration` 0. To train on them, pass `val='train'`.",
            stacklevel=4,
        )
    drawn = not published and bool((split == CALIBRATION).any())
    return _prepared(dataclasses.replace(data, split=split, drawn=drawn, reader=reader or {}))


def _plain(value: object) -> object:
    """Return an option as a value that can be stored in a file."""
    if isinstance(value, Iterable) and not isinstance(value, str):
        return [_plain(part) for part in value]
    return value if isinstance(value, (str, bool, int, float)) else str(value)


def _prepared(data: Data) -> Data:
    """Return ``data`` with features prepared from its columns, fitted on its training rows."""
    if data.columns is None:
        return data
    train = np.flatnonzero(data.split == TRAIN)
    fitted = Preparation.fit(data.columns.take(train) if len(train) else data.columns)
    where = data.columns.where
    for kind, sentence in _SAID.items():
        names = [column.name for column in fitted.columns if column.type == kind]
        if names:
            warnings.warn(sentence.format(where, listed(names), names[0]), stacklevel=4)
    return dataclasses.replace(
        data,
        features=fitted.transform(data.columns),
        feature_names=fitted.feature_names,
        columns=None if fitted.is_plain else data.columns,
        preparation=fitted,
    )


_SAID = {
    "id": "{0}: {1} left out: nearly every row has a different value, as ids have. To use a column "
    "as ids, pass `id_column={2!r}`.",
    "text": "{0}: {1} gives one feature per frequent word. To train on the text only, pass "
    "`text={2!r}`.",
    "empty": "{0}: {1} left out: empty in the training rows.",
}
