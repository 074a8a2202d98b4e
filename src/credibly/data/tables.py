"""Interpret the columns of a table as labels, features, images, texts, ids and split."""

from __future__ import annotations

import re
import warnings
from collections import Counter
from collections.abc import Callable, Sequence, Set
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute

from credibly.checks import InputError, listed, located, nearest
from credibly.data.class_folders import SPLIT_NAMES, published_parts
from credibly.data.images import EncodedImages, ImageFiles
from credibly.data.preparation import MISSING, Columns, Preparation, TableColumn
from credibly.data.rows import MOST_COLUMNS, Data, listed_targets, unknown_targets
from credibly.data.splits import TRAIN
from credibly.targets import Coding, SparseTargets, allowed, as_decoded, decode, first_invalid
from credibly.types import Array, JsonObject
from credibly.untrusted.budget import utf8
from credibly.untrusted.images import EXTENSIONS

pc: Any = pyarrow.compute  # its functions are created at import, invisible to type checkers

ID_NAMES = ("id", "ids", "image_id", "row_id")
SPLIT_COLUMNS = ("split", "set", "subset", "part", "partition")
IMAGE_NAMES = (
    *("image", "images", "path", "file", "filename", "file_name", "image_path", "filepath"),
    *("img", "image_name"),
)
LIST_NAMES = ("labels", "label", "tags", "classes", "class", "categories", "category", "targets")
SEPARATORS = ("|", ";", ",", " ")
TEXT_NAMES = ("text", "texts", "sentence", "comment", "document", "content", "review", "body")
FEATURE_LISTS = ("features", "embedding", "embeddings")
LISTS = (pa.ListType, pa.LargeListType, pa.FixedSizeListType)
WHOLE = "none"
"""The separator of cells that are one name each."""

NUMBERS = TableColumn("")
SAVED_INDEX = re.compile(r"(Unnamed: 0(\.\d+)*|__index_level_\d+__)?")
"""What the index of a pandas frame is called in a file."""


@dataclass(frozen=True)
class TableLayout:
    """Options on the columns of a table. Other columns are recognised by name and content."""

    labels: Sequence[str] | None = None
    label_column: str | None = None
    separator: str | None = None
    text: Sequence[str] | None = None
    image_column: str | None = None
    images: str | None = None
    suffix: str = ""
    ignore: Sequence[str] = ()
    coding: Coding | None = None
    id_column: str | None = None
    preparation: Preparation | None = None
    """Of the model, for rows to predict; None takes columns of numbers by position."""
    to_predict: bool = False
    """Whether the labels may all be absent: they are what is asked for."""
    first_row: int = 0
    """What errors call the first row: 2 for a CSV file, whose first line is the header."""


def from_table(table: pa.Table, path: Path, layout: TableLayout) -> Data:
    """Return the rows of a table. Errors name file, row and column of an invalid cell."""
    reader = _TableReader(table, path, layout)
    split = reader.split()
    image_column = reader.image_column() if layout.text is None else None
    texts = reader.texts() if image_column is None else None
    ids = reader.ids(image_column)
    pictures = None if image_column is None else reader.columns.pop(image_column)
    reader.only_features = pictures is None and texts is None
    labels, targets = reader.targets(split)
    images = None if pictures is None else reader.images(pictures, ids)
    features = reader.features() if reader.only_features else {}
    if texts is not None and layout.text is None and not layout.to_predict:
        reader.warn_of_features()
    if ids is None and isinstance(images, ImageFiles):
        ids = np.array([name.removesuffix(layout.suffix) for name in images.names])
    return Data(
        labels=labels,
        targets=as_decoded(targets),
        ids=ids,  # pyright: ignore[reportArgumentType]
        split=split,
        **features,
        images=images,
        texts=texts,
        source=path.name,
        augmentation="none" if images is None else "crop+flip",
    )


class _TableReader:
    """Take columns out of a table, one use at a time. The remaining columns are features."""

    def __init__(self, table: pa.Table, path: Path, layout: TableLayout) -> None:
        names = table.column_names
        twice = next((name for name, times in Counter(names).items() if times > 1), None)
        if twice is not None:
            raise InputError(f"{path}: columns must have different names; {twice!r} appears twice.")
        self.columns = {name: _plain(table.column(name)) for name in names}
        self.rows, self.path, self.layout = table.num_rows, path, layout
        self.only_features = True
        prepared = layout.preparation
        self.known_features = frozenset(prepared.names if prepared is not None else ())
        absent = [name for name in layout.ignore if name not in self.columns]
        if absent and not layout.to_predict:
            self._must_have(absent[0])
        for name in set(layout.ignore).difference(absent):
            del self.columns[name]
        self.index = self._saved_index()

    def ids(self, image_column: str | None) -> Array | None:
        name = self.layout.id_column
        if name is None or (self.layout.to_predict and name not in self.columns):
            name = self._by_name(ID_NAMES)
        else:
            self._must_have(name)
        if name is None and image_column is None:
            return self.index
        if name is None or name == image_column:
            return None
        if pa.types.is_nested(self.columns[name].type):
            raise InputError(
                f"{self.path}: column {name!r} must hold one id per row; its cells are lists or "
                "objects. Name another column as `id_column`, or rename this one."
            )
        return np.array(self.columns.pop(name).cast(pa.string()).to_pylist(), dtype=str)

    def _saved_index(self) -> Array | None:
        """Take out the index that pandas wrote as a column; return its cells."""
        found = None
        for name in filter(SAVED_INDEX.fullmatch, list(self.columns)):
            if pa.types.is_nested(self.columns[name].type):
                continue
            cells = self.columns[name].cast(pa.string()).to_pylist()
            if None in cells or len(set(cells)) < len(cells) or any("." in cell for cell in cells):
                continue  # a feature without a name
            del self.columns[name]
            found = np.array(cells) if found is None else found
            warnings.warn(
                f"{self.path}: column {name!r} is a saved pandas index. It is not a feature; it "
                "gives the ids if no other column does.",
                stacklevel=2,
            )
        return found

    def split(self) -> Array:
        name = self._by_name(SPLIT_COLUMNS)
        if name is None:
            return np.zeros(self.rows, dtype=np.int8)
        cells = [str(cell).strip().lower() for cell in self.columns.pop(name).to_pylist()]
        known: dict[str, int] = {**SPLIT_NAMES, "0": 0, "1": 1, "2": 2}
        for row, cell in enumerate(cells):
            if cell not in known:
                raise InputError(
                    f"{self._at(row)}, column {name!r} must be train, test or calibration (or 0, "
                    f"1, 2); got {cell!r}."
                )
        parts = published_parts({cell: known[cell] for cell in dict.fromkeys(cells)})
        return np.array([parts[cell] for cell in cells], dtype=np.int8)

    def texts(self) -> Array | None:
        """Return the columns that ``text`` names, or a column with a standard name of texts."""
        names = self._text_columns()
        if not names:
            return None
        for name in names:
            self._must_have(name)
        cells = [text_cells(self.columns.pop(name), name, self._at) for name in names]
        matrix = np.empty((self.rows, len(names)), dtype=object)
        for place, column in enumerate(cells):
            matrix[:, place] = column
        return matrix

    def _text_columns(self) -> list[str]:
        given = self.layout.text
        if given is not None:
            if isinstance(given, str) or not 1 <= len(given) <= MOST_COLUMNS:
                raise InputError(
                    f"`text` must be a list of one or two columns of {self.path}; got {given!r}."
                )
            if self.layout.image_column is not None:
                raise InputError(
                    f"{self.path}: rows are texts or images; got `text` and `image_column`."
                )
            if len(set(given)) < len(given):
                raise InputError(f"`text` must be two different columns; got {given[0]!r} twice.")
            return list(given)
        found = self._by_name(TEXT_NAMES)
        if found is None or found in {*(self.layout.labels or ()), self.layout.label_column}:
            return []
        cells = self.columns[found]
        return [found] if pa.types.is_string(cells.type) and not NUMBERS.fits(cells) else []

    def image_column(self) -> str | None:
        given = self.layout.image_column
        if given is not None:
            self._must_have(given)
            return given
        for name, column in self.columns.items():
            if (
                name.lower() in IMAGE_NAMES
                and not pa.types.is_floating(column.type)
                and name not in self.known_features
            ):
                return name
        for name, column in self.columns.items():
            cells = column.slice(0, 20).to_pylist() if pa.types.is_string(column.type) else []
            if cells and all(cell and cell.lower().endswith(EXTENSIONS) for cell in cells):
                return name
        return None

    def images(self, column: pa.ChunkedArray, ids: Array | None) -> ImageFiles | EncodedImages:
        if pa.types.is_struct(column.type):
            fields = [field.name for field in column.type]
            if "bytes" in fields and pc.struct_field(column, "bytes").null_count < self.rows:
                column = pc.struct_field(column, "bytes")
            elif "path" in fields:
                column = pc.struct_field(column, "path")
        if pa.types.is_binary(column.type) or pa.types.is_large_binary(column.type):
            names = [str(row) for row in range(self.rows)] if ids is None else ids.tolist()
            return EncodedImages(column, names, source=str(self.path))
        folder = self.path.parent if self.layout.images is None else Path(self.layout.images)
        names = [f"{cell}{self.layout.suffix}" for cell in column.to_pylist()]
        return ImageFiles(folder, names, source=str(self.path))

    def targets(self, split: Array) -> tuple[list[str], Array | SparseTargets]:
        """Return labels and targets: columns ``y:NAME``, those in ``labels``, or one of lists."""
        given = self.layout.labels
        marked = [name for name in self.columns if name.startswith("y:")]
        if marked and (self.layout.label_column is None or self.layout.to_predict):
            names = [name.removeprefix("y:") for name in marked]
            return names, self._matrix(marked)
        there = self.columns.keys() - self.known_features
        absent = [name for name in given or () if name not in there]
        if given is not None and not absent:
            self._refuse_list_as_label(given)
            return list(given), self._matrix(list(given))
        column = self.layout.label_column
        if self.layout.to_predict and column not in self.columns:
            column = None
        if column is None and len(absent) == len(given or ()):
            column = self._by_name(LIST_NAMES)
        if column is not None:
            self._must_have(column)
            return self._lists(column, split)
        if given is None:
            return self._rest_as_labels()
        if self.layout.to_predict and len(absent) == len(given):
            return list(given), unknown_targets(self.rows, len(given))
        raise self._no_label_columns(absent)

    def _refuse_list_as_label(self, given: Sequence[str]) -> None:
        if len(given) != 1 or NUMBERS.fits(self.columns[given[0]]):
            return
        raise InputError(
            f"{self.path}: a label column must hold 0 and 1; column {given[0]!r} holds text"
            f"{_first(self.columns[given[0]])}. If its cells list label names, pass "
            f'`label_column="{given[0]}"` instead.'
        )

    def _no_label_columns(self, absent: Sequence[str]) -> InputError:
        hints = [nearest(name, self.columns) for name in absent]
        hints = [hint for hint in hints if hint.startswith("Did")] or [nearest("", self.columns)]
        listed = ", ".join(repr(name) for name in absent)
        return InputError(
            f"{self.path} has no column for label {listed}. {' '.join(dict.fromkeys(hints))}"
        )

    def _rest_as_labels(self) -> tuple[list[str], Array]:
        """Return every remaining column as a label, for images or texts."""
        names = list(self.columns)
        if self.only_features:
            raise InputError(
                f"{self.path} must say which columns are labels: name them y:NAME, pass "
                f"`labels=[…]`, or put label names into one column called labels. "
                f"Its columns: {listed(names, str, 10)}."
            )
        if not names:
            raise InputError(
                f"{self.path} must have a column of labels beside the images or texts."
            )
        return names, self._matrix(names)

    def _matrix(self, names: list[str]) -> Array:
        table = pa.table({name: self.columns.pop(name) for name in names})
        if not names:
            return np.zeros((self.rows, 0))
        marks = Preparation.of_numbers(names)
        targets = marks.transform(Columns(table, str(self.path), self.layout.first_row))
        coding = self.layout.coding
        place = first_invalid(targets, coding=coding)
        if place is not None:
            row, column = place
            raise InputError(
                f"{self._at(row)}, column {names[column]!r} must be {allowed(coding)}; got "
                f"{targets[place]:g}."
            )
        with located(str(self.path)):
            return decode(targets, coding=coding)

    def _lists(self, name: str, split: Array) -> tuple[list[str], Array | SparseTargets]:
        if self.layout.coding is not None:
            raise InputError(
                f"{self.path}: `coding` is for columns of numbers; column {name!r} holds label "
                "names. Leave `coding` out."
            )
        cells = self.columns.pop(name).to_pylist()
        where = f"{self.path}, column {name!r}"
        given = None if self.layout.labels is None else [str(label) for label in self.layout.labels]
        missing = frozenset(MISSING).difference(given or ())
        cells = [None if _says_nothing(cell, missing) else cell for cell in cells]
        separator = self._separator(cells, given, where)
        rows = [_names(cell, separator) for cell in cells]
        for row, names in enumerate(rows):
            if not missing.isdisjoint(names):
                said = next(each for each in names if each in missing)
                beside = next((each for each in names if each not in missing), said)
                raise InputError(
                    f"{self._at(row)}, column {name!r}: {said!r} stands beside {beside!r}. A cell "
                    f"must hold {said!r} alone if its labels are unknown. If {said!r} is a label, "
                    "name all labels by `labels`."
                )
        labels = given
        if labels is None:
            # Labels that only test rows have cannot be learned.
            held = split == TRAIN if (split == TRAIN).any() else np.ones(self.rows, dtype=bool)
            labels = sorted({label for row in np.flatnonzero(held) for label in rows[row]})
        unknown = [row for row, cell in enumerate(cells) if cell is None]
        return labels, listed_targets(
            rows, labels, where, first_row=self.layout.first_row, unknown=unknown
        )

    def _separator(
        self, cells: Sequence[object], labels: Sequence[str] | None, where: str
    ) -> str | None:
        """Return the separator of the names in a cell, or None if a cell is one name.

        Raises:
            InputError: if spaces may be separators or parts of names.
        """
        if self.layout.separator is not None:
            return None if self.layout.separator == WHOLE else self.layout.separator
        texts = {cell.strip() for cell in cells if isinstance(cell, str) and cell.strip()}
        if labels is not None:
            for separator in (None, *SEPARATORS):
                if {name for text in texts for name in _names(text, separator)} <= set(labels):
                    return separator
        found = next((s for s in SEPARATORS[:3] if any(s in text for text in texts)), None)
        words = {word for text in texts for word in text.split()}
        if found is None and labels is None and len(words) < len(texts):
            raise InputError(
                f"{where} has {len(texts)} different cells, made of {len(words)} words. Pass "
                f'`separator=" "` for {len(words)} labels, of which a cell lists several, or '
                f'`separator="{WHOLE}"` for {len(texts)} labels, whose names contain spaces.'
            )
        return found

    def features(self) -> JsonObject:
        """Return the fields of ``Data`` for the remaining columns, or features to predict."""
        for name in FEATURE_LISTS:
            column = self.columns.get(name)
            if column is not None and isinstance(column.type, LISTS):
                return {"features": self._feature_list(name)}
        names = self._others()
        if not names:
            raise InputError(f"{self.path} must have columns of features or of image paths.")
        table = pa.table({name: self.columns[name] for name in names})
        columns = Columns(table, str(self.path), self.layout.first_row)
        if not self.layout.to_predict:
            return {"columns": columns}
        prepared = self.layout.preparation or Preparation.of_numbers(names)
        return {
            "features": prepared.transform(columns, new=True),
            "feature_names": prepared.feature_names,
        }

    def warn_of_features(self) -> None:
        """Warn that the other columns are not used with texts."""
        names = self._others()
        if names:
            warnings.warn(
                f"{self.path} is read as texts; {listed(names, limit=10)} left out. To confirm, "
                "name the column of the texts in `text`. To train on the other columns, name it "
                "in `ignore`.",
                stacklevel=2,
            )

    def _others(self) -> list[str]:
        """Return the remaining columns, without probabilities and scores of predictions."""
        return [name for name in self.columns if not name.startswith(("p:", "s:"))]

    def _feature_list(self, name: str) -> Array:
        cells = self.columns.pop(name).to_pylist()
        sizes = [0 if cell is None else len(cell) for cell in cells]
        wrong = next((row for row, size in enumerate(sizes) if size != sizes[0]), None)
        if wrong is not None:
            raise InputError(
                f"{self._at(wrong)}, column {name!r} must hold {sizes[0]} numbers like the first "
                f"row; got {sizes[wrong]}."
            )
        return np.array(cells, dtype=np.float32).reshape(self.rows, -1)

    def _by_name(self, names: Sequence[str]) -> str | None:
        # Features of the model are features, even if their name suggests another use.
        others = (name for name in self.columns if name not in self.known_features)
        return next((name for name in others if name.lower() in names), None)

    def _must_have(self, name: str) -> None:
        if name not in self.columns:
            raise InputError(f"{self.path} has no column {name!r}. {nearest(name, self.columns)}")

    def _at(self, row: int) -> str:
        return f"{self.path}, row {row + self.layout.first_row}"


def _says_nothing(cell: object, missing: Set[str]) -> bool:
    """Return whether the labels of a row are unknown."""
    if isinstance(cell, list):
        return bool(cell) and all(_says_nothing(part, missing) for part in cell)
    return cell is None or cell != cell or (isinstance(cell, str) and cell.strip() in missing)


def _names(cell: object, separator: str | None) -> list[str]:
    """Return the label names in one cell: a list, or text with a separator."""
    if cell is None:
        return []
    whole = isinstance(cell, list) or separator is None
    parts = (cell if isinstance(cell, list) else [cell]) if whole else str(cell).split(separator)
    return [str(part).strip() for part in parts if str(part).strip()]


def _plain(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """Return a column of categories or long texts as a column of plain values."""
    kind = column.type
    if pa.types.is_dictionary(kind):
        kind = kind.value_type
    if pa.types.is_large_string(kind) or pa.types.is_string_view(kind):
        kind = pa.string()
    return column if kind == column.type else column.cast(kind)


# Columns of texts ------------------------------------------------------------------------------


def text_cells(column: pa.ChunkedArray, name: str, at: Callable[[int], str]) -> list[str]:
    """Return the texts of a column; a missing cell is an empty text.

    Args:
        column: of a table.
        name: of the column.
        at: maps a row number to the file and row for errors.
    """
    kind = column.type
    cells = column.to_pylist()
    if pa.types.is_binary(kind) or pa.types.is_large_binary(kind):
        cells = [utf8(cell or b"", f"{at(row)}, column {name!r}") for row, cell in enumerate(cells)]
    elif not (pa.types.is_string(kind) or pa.types.is_null(kind)):
        raise InputError(
            f"{at(0)}, column {name!r} must hold texts; it holds {kind}"
            f"{_first(column)}. Name the column of the texts by `text`."
        )
    cells = [cell or "" for cell in cells]
    _refuse_numbers(cells, name, at)
    return cells


def _refuse_numbers(cells: Sequence[str], name: str, at: Callable[[int], str]) -> None:
    """Raise for a column in which every text is a number, such as a score or an id."""
    filled = [row for row, cell in enumerate(cells) if cell.strip()]
    try:
        numbers = [float(cells[row]) for row in filled]
    except ValueError:
        return
    if len(numbers) > 1:
        raise InputError(
            f"{at(filled[0])}, column {name!r} must hold texts; all its {len(filled):,} cells are "
            f"numbers, the first {cells[filled[0]]!r:.40}. Name the column of the texts by `text`."
        )


def _first(column: pa.ChunkedArray) -> str:
    first = next((cell for cell in column.to_pylist() if cell), None)
    return "" if first is None else f", the first {first!r:.40}"
