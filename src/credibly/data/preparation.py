"""The preparation of a table: columns of any type become a matrix of numbers. Runs store it."""

from __future__ import annotations

import re
import warnings
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Literal, get_args

import numpy as np
import pyarrow as pa
import pyarrow.compute

from credibly.checks import InputError, fits_memory, listed
from credibly.types import Array, JsonObject

if TYPE_CHECKING:
    from credibly.data.rows import Data


def match_columns(
    found: Sequence[str], wanted: Sequence[str], where: str
) -> tuple[list[int], list[str]]:
    """Return the index in ``found`` of each name of ``wanted``, and the names that are not wanted.

    Args:
        found: names of the columns of the input.
        wanted: names of the features, in the order of training.
        where: prefix of errors: a file, a data frame, a row.

    Raises:
        InputError: that names all missing columns and all unknown ones.

    Example:
        >>> match_columns(["bmi", "note", "age"], ["age", "bmi"], "new.csv")
        ([2, 0], ['note'])
        >>> match_columns(["years"], ["age"], "a.csv")
        Traceback (most recent call last):
        ...
        credibly.checks.InputError: a.csv must have the 1 features of the model, by name; missing: \
'age'; not known: 'years'. Rename or add them.
    """
    index = {name: place for place, name in enumerate(found)}
    known = set(wanted)
    missing = [name for name in wanted if name not in index]
    extra = [name for name in found if name not in known]
    if missing:
        beside = f"; not known: {listed(extra)}" if extra else ""
        raise InputError(
            f"{where} must have the {len(wanted)} features of the model, by name; "
            f"missing: {listed(missing)}{beside}. Rename or add them."
        )
    return [index[name] for name in wanted], extra


def warn_of_position(model: object, where: str) -> None:
    """Warn in one sentence that the columns of ``where`` are matched by position."""
    warnings.warn(
        f"{without_names(model)} The columns of {where} are matched by position.", stacklevel=3
    )


def without_names(model: object) -> str:
    """Return the sentence that a run or an exported model has no feature names."""
    return (
        f"{model} does not store the names of its features, because it was trained on an array or "
        "by version 0.2."
    )


# Preparation ------------------------------------------------------------------------------------

pc: Any = pyarrow.compute  # its functions are created at import, invisible to type checkers

Type = Literal["numeric", "yes/no", "categorical", "date", "text", "id", "empty"]
LEFT_OUT = ("id", "empty")
MAX_CATEGORIES = 100
"""Categories of a column that get a feature, the most frequent first; the others are all zeros."""

MAX_WORDS = 200
"""Words of a text column that get a feature, the most frequent first."""

WORD = re.compile(r"\w{2,}")
WORD_ROWS = 0.02, 0.5
"""Least and largest share of the cells that such a word occurs in."""

MISSING = ("?", "NA", "N/A", "n/a", "<NA>", "nan", "NaN", "null", "NULL")
"""Cells that say that nothing is known."""

WORDS = {"yes": 1, "true": 1, "y": 1, "t": 1, "no": 0, "false": 0, "n": 0, "f": 0}
DATE_PARTS = ("days", "month", "weekday", "hour")
"""Days since 1970 with the time of day as a fraction; month 1–12; Monday 0; hour. All in UTC."""

ISO = "ISO"
DATE_FORMATS = [
    day + time
    for day in ("%Y/%m/%d", "%d.%m.%Y", "%d/%m/%Y", "%m/%d/%Y")
    for time in ("", " %H:%M", " %H:%M:%S")
]
ID_NAME = re.compile(r"(?i:(.*[_\W])?(id|uuid|guid))|.*[a-z]I[dD]")
NUMBER_LIKE = r"^[-+$€£]?[0-9][0-9.,]*\s?%?$"  # RE2: also 3,5 and 40 %, which must be corrected
MANY_WORDS = 4
UNREADABLE = (pa.ArrowInvalid, pa.ArrowNotImplementedError)
"""What Arrow raises for cells that do not have a type."""


@dataclass(frozen=True)
class TableColumn:
    """The type of one column of a table, found from its training rows.

    Attributes:
        name: of the column.
        type: of its cells.
        values: the categories or words, most frequent first.
        format: of dates in text: ``ISO`` or as for ``strptime``.
        missing: whether cells are missing; a further feature then marks them.
    """

    name: str
    type: Type = "numeric"
    values: tuple[str, ...] = ()
    format: str = ISO
    missing: bool = False

    @property
    def feature_names(self) -> list[str]:
        """Return the names of the features made of the column."""
        if self.type in LEFT_OUT:
            return []
        names = [self.name]
        if self.type == "categorical":
            names = [f"{self.name}={value}" for value in self.values]
        if self.type == "text":
            names = [f"{self.name}: {word}" for word in self.values]
        if self.type == "date":
            names = [f"{self.name} ({part})" for part in DATE_PARTS]
        return [*names, f"{self.name} (missing)"] if self.missing else names

    def features(self, cells: pa.ChunkedArray) -> list[Array]:
        """Return one array per feature; NaN where a number or a date is missing."""
        cells = without_blanks(cells)
        if self.type == "categorical":
            index = pc.index_in(cells.cast(pa.string()), value_set=pa.array(self.values))
            places = pc.fill_null(index, -1).to_numpy()
            found = [(places == place).astype(np.float32) for place in range(len(self.values))]
        elif self.type == "text":
            index = {word: place for place, word in enumerate(self.values)}
            present = np.zeros((len(index), len(cells)), dtype=np.float32)
            for row, words in enumerate(_words(cells)):
                present[[index[word] for word in words if word in index], row] = 1
            found = list(present)
        elif self.type == "date":
            found = _date_parts(as_dates(cells, self.format))
        else:
            found = [as_numbers(cells)]
        return [*found, cells.is_null().to_numpy().astype(np.float32)] if self.missing else found

    def fits(self, cells: pa.ChunkedArray) -> bool:
        """Return whether all cells have the type of the column."""
        try:
            self.features(cells)
        except UNREADABLE:
            return False
        return True


@dataclass(frozen=True)
class Columns:
    """Columns of a table that become features, with the names of the table and its first row."""

    table: pa.Table
    where: str = "the table"
    first_row: int = 0

    def __len__(self) -> int:
        return self.table.num_rows

    def take(self, rows: Array) -> Columns:
        """Return these rows, in this order."""
        return Columns(self.table.take(rows), self.where)


@dataclass(frozen=True)
class Preparation:
    """How the columns of a table become a matrix of numbers.

    It is fitted on training rows, without their labels, and stored in the run, so every row is
    prepared in the same way. Numbers do not change, yes/no becomes 1 and 0, each category and each
    frequent word of a text becomes a feature that is 1 or 0, and a date becomes four features. A
    missing number or date is NaN. Networks replace it by the mean of the training rows, and trees
    handle it as a separate branch. If training rows had missing cells, a further feature is 1 for a
    missing cell. Ids and empty columns are ignored.

    Example:
        >>> cells = {"age": [60, None], "colour": ["red", "blue"], "smoker": ["yes", "no"]}
        >>> patients = Columns(pa.table(cells))
        >>> preparation = Preparation.fit(patients)
        >>> preparation.feature_names
        ['age', 'age (missing)', 'colour=blue', 'colour=red', 'smoker']
        >>> preparation.transform(patients).tolist()
        [[60.0, 0.0, 0.0, 1.0, 1.0], [nan, 1.0, 1.0, 0.0, 0.0]]
        >>> str(preparation)
        '1 numeric, 1 yes/no, 1 categorical (one-hot, 2 features); missing cells in age'
    """

    columns: tuple[TableColumn, ...]

    @classmethod
    def of_numbers(cls, names: Sequence[str]) -> Preparation:
        """Return the preparation that uses columns of numbers unchanged."""
        return cls(tuple(TableColumn(name) for name in names))

    @classmethod
    def fit(cls, rows: Columns) -> Preparation:
        """Find the types of the columns from training rows.

        Raises:
            InputError: if columns contain lists, or if dates may be day/month or month/day.
        """
        columns = zip(rows.table.column_names, rows.table.columns, strict=True)
        found = [(name, _fitted(name, column)) for name, column in columns]
        wrong = [f"{name!r} ({problem})" for name, problem in found if isinstance(problem, str)]
        if wrong:
            raise InputError(
                f"{rows.where}: features must be numbers, yes/no, categories or dates; got "
                f"{listed(wrong, str)}. Change these columns, or leave them out by `ignore`."
            )
        return cls(tuple(column for _, column in found if isinstance(column, TableColumn)))

    @classmethod
    def of_run(cls, data: JsonObject, where: str) -> Preparation | None:
        """Return the preparation that a run or an exported model stores, or None without names."""
        names = data.get("feature_names")  # version 0.2 did not write this field
        if data.get("preparation") is not None:
            return cls.from_state(data["preparation"], where)
        return None if names is None else cls.of_numbers(names)

    @property
    def _used(self) -> list[TableColumn]:
        # Texts in runs of earlier versions have no features.
        return [column for column in self.columns if column.feature_names]

    @property
    def names(self) -> list[str]:
        """Return the columns that rows must have."""
        return [column.name for column in self._used]

    @property
    def feature_names(self) -> list[str]:
        """Return the names of the columns of the matrix."""
        return [name for column in self.columns for name in column.feature_names]

    @property
    def is_plain(self) -> bool:
        """Return whether the features are the columns, unchanged."""
        return self.feature_names == [column.name for column in self.columns]

    def transform(self, rows: Columns, *, new: bool = False) -> Array:
        """Return the matrix of a table, float32 (rows, features).

        Args:
            rows: a table with these columns, in any order.
            new: whether to warn of columns and categories that are not in the training data.

        Raises:
            InputError: that names all columns that are missing or have invalid cells.
        """
        table, where = rows.table, rows.where
        order, extra = match_columns(table.column_names, self.names, where)
        fits_memory(f"the features of {where}", table.num_rows, len(self.feature_names))
        matrix = np.empty((table.num_rows, len(self.feature_names)), dtype=np.float32)
        wrong, place = [], 0
        for column, number in zip(self._used, order, strict=True):
            cells = table.column(number)
            try:
                found = column.features(cells)
            except UNREADABLE:
                row = _first_wrong(column, cells)
                words = {"numeric": "a number", "yes/no": "yes or no"}
                asked = words.get(column.type, f"a {column.type}")
                wrong.append(
                    f"row {row + rows.first_row}, column {column.name!r} must be {asked}; got "
                    f"{cells[row].as_py()!r:.60}"
                )
                continue
            with np.errstate(over="ignore"):  # infinite ones are refused, by row and column
                for values in found:
                    matrix[:, place], place = values, place + 1
        if wrong:
            raise InputError(
                f"{where}, {'; '.join(wrong)}. Correct these cells, or leave them empty if they "
                "are missing."
            )
        if new:
            known = {column.name for column in self.columns}
            unused = [name for name in extra if name not in known]
            if unused:
                many = "s" if len(unused) > 1 else ""
                warnings.warn(
                    f"{where}: column{many} {listed(unused)} left out: not a feature of the model.",
                    stacklevel=2,
                )
            counts = [f"{name!r} ({count:,})" for name, count in self.unseen(rows).items()]
            if counts:
                warnings.warn(
                    f"{where}: cells with a category that the training rows did not have, by "
                    f"column: {listed(counts, str)}. They count as none of the known categories.",
                    stacklevel=3,
                )
        return matrix

    def unseen(self, rows: Columns) -> dict[str, int]:
        """Return, by column, the number of cells with a category unknown from training."""
        counts = {}
        for column in self.columns:
            if column.type == "categorical":
                known = without_blanks(rows.table.column(column.name)).drop_null()
                index = pc.index_in(known.cast(pa.string()), value_set=pa.array(column.values))
                counts[column.name] = index.null_count
        return {name: count for name, count in counts.items() if count}

    def applied(self, rows: Data) -> Data:
        """Return rows with the features of this preparation in place of their own.

        Columns are matched by name. A matrix without names is matched by position.
        """
        if rows.feature_names == self.feature_names or rows.features is None:
            return rows
        columns = rows.columns
        if columns is None:
            names = rows.feature_names
            if names is None and rows.features.shape[1] == len(self.names):
                names = self.names
            if names is None:
                return rows  # prepared before, or of a width that is checked elsewhere
            columns = Columns(pa.table(list(rows.features.T), names), rows.source)
        features = self.transform(columns, new=True)
        names = self.feature_names
        return replace(rows, features=features, feature_names=names, columns=None)

    def state(self) -> list[JsonObject] | None:
        """Return plain values for a file, or None if the features are the unchanged columns."""
        if self.is_plain:
            return None
        plain = asdict(TableColumn(""))
        return [
            {key: value for key, value in asdict(column).items() if value != plain[key]}
            for column in self.columns
        ]

    @classmethod
    def from_state(cls, state: object, where: str) -> Preparation:
        """Return the preparation stored in a file; ``where`` is the prefix of errors."""
        problem = f"{where}: `preparation` must be a list of columns, each with a name and a type."
        if not isinstance(state, list):
            raise InputError(problem)
        columns = []
        for each in state:
            try:
                column = TableColumn(**{**each, "values": tuple(each.get("values", ()))})
            except (TypeError, AttributeError):
                raise InputError(problem) from None
            texts = (column.name, column.format, *column.values)
            if column.type not in get_args(Type) or not all(isinstance(t, str) for t in texts):
                raise InputError(problem)
            columns.append(column)
        return cls(tuple(columns))

    def __str__(self) -> str:
        """Return a one-line summary of the features."""
        said = []
        for kind in get_args(Type):
            these = [column for column in self.columns if column.type == kind]
            text = f"{len(these)} {kind}"
            if kind == "categorical":
                text += f" (one-hot, {sum(len(column.values) for column in these)} features)"
            if kind == "text":
                count = sum(len(column.values) for column in these)
                text += f" ({count} {'word' if count == 1 else 'words'})"
            if kind == "date":
                text += f" ({len(DATE_PARTS)} parts)"
            if kind in LEFT_OUT:
                text += f" ignored ({listed([column.name for column in these], str, 10)})"
            said += [text] if these else []
        gaps = [column.name for column in self.columns if column.missing]
        return ", ".join(said) + (f"; missing cells in {listed(gaps, str, 10)}" if gaps else "")


def without_blanks(cells: pa.ChunkedArray) -> pa.ChunkedArray:
    """Return cells with markers of missing values as nulls, and categories as their values."""
    if pa.types.is_dictionary(cells.type):
        cells = cells.cast(cells.type.value_type)
    if pa.types.is_floating(cells.type):
        return pc.if_else(pc.is_nan(cells), pa.scalar(None, cells.type), cells)
    if cells.type not in (pa.string(), pa.large_string(), pa.string_view()):
        return cells
    trimmed = pc.utf8_trim_whitespace(cells.cast(pa.string()))
    blank = pc.is_in(trimmed, value_set=pa.array(["", *MISSING]))
    return pc.if_else(blank, pa.scalar(None, pa.string()), trimmed)


def as_numbers(cells: pa.ChunkedArray) -> Array:
    """Return cells as numbers: yes and true as 1, no and false as 0, missing cells as NaN.

    Raises:
        pa.ArrowInvalid: if a cell is none of these.
    """
    try:
        numbers = cells.cast(pa.float64(), safe=pa.types.is_string(cells.type))
    except pa.ArrowInvalid:
        index = pc.index_in(pc.utf8_lower(cells), value_set=pa.array(list(WORDS)))
        digits = pa.array([str(value) for value in WORDS.values()])
        numbers = pc.coalesce(digits.take(index), cells).cast(pa.float64())
    return pc.fill_null(numbers, float("nan")).to_numpy()


def as_dates(cells: pa.ChunkedArray, format: str) -> pa.ChunkedArray:
    """Return cells as instants in UTC. Texts are in ISO format or in ``format``.

    Raises:
        pa.ArrowInvalid: if a cell is not a date.
    """
    if pa.types.is_string(cells.type):
        instants = {text: _instant(text, format) for text in pc.unique(cells).to_pylist()}
        found = [instants[text] for text in cells.to_pylist()]
        return pa.chunked_array([pa.array(found, pa.timestamp("us"))])
    if not (pa.types.is_temporal(cells.type) or pa.types.is_null(cells.type)):
        raise pa.ArrowInvalid("not a date")
    return cells.cast(pa.timestamp("us"), safe=False)


def _instant(text: str | None, format: str) -> datetime | None:
    if text is None:
        return None
    try:
        found = datetime.fromisoformat(text)
    except ValueError:
        try:
            found = datetime.strptime(text, format)
        except ValueError as error:
            raise pa.ArrowInvalid(str(error)) from None
    return found if found.tzinfo is None else found.astimezone(UTC).replace(tzinfo=None)


def _date_parts(dates: pa.ChunkedArray) -> list[Array]:
    days = pc.divide(dates.cast(pa.int64()).cast(pa.float64()), 86_400e6)
    parts = (days, pc.month(dates), pc.day_of_week(dates), pc.hour(dates))
    return [pc.fill_null(part.cast(pa.float64()), float("nan")).to_numpy() for part in parts]


def _fitted(name: str, column: pa.ChunkedArray) -> TableColumn | str:
    """Return the type of a column, or the problem with it."""
    cells = without_blanks(column)
    known = cells.drop_null()
    missing, kind = len(known) < len(cells), known.type
    if not len(known):
        return TableColumn(name, "empty")
    if pa.types.is_nested(kind):
        return f"cells of type {kind}"
    distinct = pc.count_distinct(known).as_py()
    if ID_NAME.fullmatch(name) and distinct == len(cells) and not pa.types.is_floating(kind):
        return TableColumn(name, "id")
    if pa.types.is_boolean(kind):
        return TableColumn(name, "yes/no", missing=missing)
    if pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_decimal(kind):
        return TableColumn(name, missing=missing)
    if pa.types.is_date(kind) or pa.types.is_timestamp(kind):
        return TableColumn(name, "date", missing=missing)
    if not pa.types.is_string(kind):
        return f"cells of type {kind}"
    words = set(pc.unique(pc.utf8_lower(known)).to_pylist())
    if words <= {*WORDS, "0", "1"} and {WORDS[word] for word in words & set(WORDS)} == {0, 1}:
        return TableColumn(name, "yes/no", missing=missing)
    formats = _date_formats(known)
    if len(formats) > 1:
        return f"dates such as {known[0].as_py()!r}, day/month or month/day; write 2024-03-31"
    if formats:
        return TableColumn(name, "date", format=formats[0], missing=missing)
    numbers = pc.match_substring_regex(known, NUMBER_LIKE)
    if 2 * pc.sum(numbers).as_py() >= len(known):  # if only some are, ``transform`` names the cell
        return TableColumn(name, missing=missing)
    if 2 * distinct > len(known):
        spaces = pc.sum(pc.count_substring(known, " ")).as_py()
        if spaces >= (MANY_WORDS - 1) * len(known):
            return _fitted_text(name, known, missing)
        if distinct > 20:
            return TableColumn(name, "id")
    counts = [(-each["counts"], each["values"]) for each in pc.value_counts(known).to_pylist()]
    values = tuple(value for _, value in sorted(counts)[:MAX_CATEGORIES])
    return TableColumn(name, "categorical", values, missing=missing)


def _fitted_text(name: str, known: pa.ChunkedArray, missing: bool) -> TableColumn:
    """Return a column of texts with its frequent words, or one to ignore if it has none."""
    counts = Counter(word for words in _words(known) for word in words)
    least, most = (share * len(known) for share in WORD_ROWS)
    words = sorted((-n, word) for word, n in counts.items() if max(least, 2) <= n <= most)
    if not words:
        return TableColumn(name, "id")
    return TableColumn(name, "text", tuple(word for _, word in words[:MAX_WORDS]), missing=missing)


def _words(cells: pa.ChunkedArray) -> list[set[str]]:
    """Return the different words of each cell, in lower case."""
    texts = pc.utf8_lower(cells.cast(pa.string())).to_pylist()
    return [set(WORD.findall(text or "")) for text in texts]


def _date_formats(known: pa.ChunkedArray) -> list[str]:
    """Return the formats that fit all cells: two if day and month are ambiguous."""
    if not re.match(r"\d{4}[-/]\d\d?[-/]\d|\d\d?[./]\d\d?[./]\d{4}", known[0].as_py()):
        return []

    def fitting(formats: Sequence[str]) -> list[str]:
        return [each for each in formats if TableColumn("", "date", format=each).fits(known)]

    return fitting([ISO]) or fitting(DATE_FORMATS)


def _first_wrong(column: TableColumn, cells: pa.ChunkedArray) -> int:
    """Return the first row whose cell does not fit the column."""
    first, end = 0, len(cells)
    while end - first > 1:
        middle = (first + end) // 2
        if column.fits(cells.slice(first, middle - first)):
            first = middle
        else:
            end = middle
    return first
