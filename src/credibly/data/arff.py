"""Read ARFF files of Mulan and MEKA, dense or sparse, with the XML file that names the labels."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np

from credibly.checks import InputError, fits_memory
from credibly.data.rows import Data
from credibly.data.splits import TEST, TRAIN
from credibly.targets import Coding
from credibly.types import Array
from credibly.untrusted.documents import read_layout_text, read_xml

_QUOTED = r"""'((?:[^'\\]|\\.)*)'|"((?:[^"\\]|\\.)*)\""""
_ATTRIBUTE = re.compile(rf"@attribute\s+(?:{_QUOTED}|(\S+))\s+(.*)", re.IGNORECASE)
_CELL = re.compile(rf"\s*(?:{_QUOTED}|([^,]*?))\s*(?:,|$)")

Attribute = tuple[str, tuple[str, ...]]
"""A name, and the values that a cell can have; none for numbers."""


def read_arff(
    path: Path,
    *,
    labels: Sequence[str] | None = None,
    xml: str | None = None,
    coding: Coding | None = None,
) -> Data:
    """Read one file, or ``NAME-train.arff`` together with ``NAME-test.arff`` in the same folder.

    The labels are named by ``xml`` (default: the ``.xml`` file of the same name), by ``labels``, or
    by MEKA's ``-C`` in the name of the relation. An attribute with more than two values becomes one
    feature per value.
    """
    relation, attributes, table = _parse(path)
    split = np.zeros(len(table))
    beside = path.with_name(re.sub(r"-train(?=\.arff$)", "-test", path.name))
    if beside != path and beside.exists():
        _, others, tested = _parse(beside)
        if [name for name, _ in others] != [name for name, _ in attributes]:
            raise InputError(f"{beside} must have the attributes of {path}, in order.")
        table = np.concatenate([table, tested])
        split = np.repeat([TRAIN, TEST], [len(split), len(tested)])
    names = [name for name, _ in attributes]
    chosen = list(labels) if labels is not None else _label_names(path, xml, relation, names)
    missing = [label for label in chosen if label not in names]
    if missing:
        raise InputError(f"{path} has no attribute {missing[0]!r}, but it is named as a label.")
    columns = [names.index(label) for label in chosen]
    features, feature_names = _features(table, attributes, set(columns))
    return Data(
        labels=chosen,
        targets=table[:, columns],
        split=split,
        features=features,
        feature_names=feature_names,
        source=path.name,
        coding=coding,
    )


def _parse(path: Path) -> tuple[str, list[Attribute], Array]:
    lines = read_layout_text(path).splitlines()
    relation, attributes, start = "", [], None
    for number, line in enumerate(lines):
        text = line.strip()
        if not text or text.startswith("%"):
            continue
        keyword = text.split(None, 1)[0].lower()
        if keyword == "@relation":
            relation = text.partition(" ")[2]
        elif keyword == "@attribute":
            attributes.append(_attribute(text, f"{path}, line {number + 1}"))
        elif keyword == "@data":
            start = number + 1
            break
        else:
            raise InputError(
                f"{path}, line {number + 1} must be an ARFF header; got {text[:60]!r}."
            )
    if start is None or not attributes:
        raise InputError(f"{path} must have @attribute lines and @data; it does not.")
    rows = [
        (number, line.strip())
        for number, line in enumerate(lines[start:], start + 1)
        if line.strip() and not line.lstrip().startswith("%")
    ]
    fits_memory(f"{path}", len(rows), len(attributes), itemsize=8)
    table = np.full((len(rows), len(attributes)), np.nan)
    for row, (number, line) in enumerate(rows):
        where = f"{path}, line {number}"
        if line.startswith("{"):
            table[row] = 0  # in sparse rows, missing values are 0, or the first category
            for index, cell in _sparse_cells(line, len(attributes), where):
                table[row, index] = _number(attributes[index], cell, where)
            continue
        cells = _cells(line)
        if len(cells) != len(attributes):
            raise InputError(f"{where} must have {len(attributes)} values; got {len(cells)}.")
        try:
            table[row] = cells
        except ValueError:
            pairs = zip(attributes, cells, strict=True)
            table[row] = [_number(attribute, cell, where) for attribute, cell in pairs]
    return relation, attributes, table


def _number(attribute: Attribute, text: str, where: str) -> float:
    """Return the value of a cell: a number, the index of a category, or NaN for ``?``."""
    name, values = attribute
    if text == "?":
        return float("nan")
    try:
        return float(text)
    except ValueError:
        if text in values:
            return float(values.index(text))
    expected = f"one of {', '.join(values)}" if values else "a number"
    raise InputError(f"{where}: {name} must be {expected}; got {text!r}.")


def _attribute(text: str, where: str) -> Attribute:
    match = _ATTRIBUTE.fullmatch(text)
    if match is None:
        raise InputError(f"{where} must be `@attribute name type`; got {text[:60]!r}.")
    name = _plain(match.groups()[:3])
    kind = match[4].strip()
    if kind.startswith("{") and kind.endswith("}"):
        return name, tuple(_cells(kind[1:-1]))
    if kind.lower().split()[0] in ("numeric", "real", "integer"):
        return name, ()
    raise InputError(
        f"{where}: attributes must be numeric or {{a, b, …}}; {name!r} is {kind!r}. "
        "Turn text into numbers first."
    )


def _cells(line: str) -> list[str]:
    """Return the comma-separated cells of a line; cells with commas are quoted."""
    if "'" not in line and '"' not in line:
        return [cell.strip() for cell in line.split(",")]
    cells, position = [], 0
    while position < len(line):
        match = _CELL.match(line, position)
        if match is None:
            raise InputError(f"unbalanced quotes in {line[:60]!r}.")
        cells.append(_plain(match.groups()))
        position = match.end()
    return cells


def _plain(groups: Sequence[str | None]) -> str:
    """Return the group that matched, with its escaping backslashes removed."""
    return re.sub(r"\\(.)", r"\1", next(text for text in groups if text is not None))


def _sparse_cells(line: str, width: int, where: str) -> Iterator[tuple[int, str]]:
    """Yield the cells of ``{index value, …}``."""
    if not line.endswith("}"):
        raise InputError(f"{where} must end with }}; got {line[-20:]!r}.")
    for cell in _cells(line[1:-1]) if line[1:-1].strip() else []:
        index, _, value = cell.partition(" ")
        if not index.isdecimal() or len(index) > 18 or int(index) >= width:
            raise InputError(
                f"{where}: {cell!r} must be `index value` with an index below {width}."
            )
        yield int(index), value.strip().strip("'\"")


def _label_names(path: Path, xml: str | None, relation: str, names: list[str]) -> list[str]:
    stem = re.sub(r"-(train|test)$", "", path.stem)
    found = [path.with_suffix(".xml"), path.with_name(f"{stem}.xml")]
    file = Path(xml) if xml is not None else next((f for f in found if f.exists()), None)
    if file is not None:
        labels = [_plain([label.get("name") or ""]) for label in read_xml(file).iter("label")]
        if not labels:
            raise InputError(f'{file} must name labels, as in <label name="beach"/>.')
        return labels
    match = re.search(r"-C\s+(-?\d{1,18})(?!\d)", relation)
    if match is not None and 0 < abs(int(match[1])) < len(names):
        count = int(match[1])
        return names[:count] if count > 0 else names[count:]
    raise InputError(
        f"{path} does not say which attributes are labels. Put {found[0].name} beside it (Mulan), "
        "pass this file as `xml`, or name the attributes with `labels`."
    )


def _features(
    table: Array, attributes: list[Attribute], labels: set[int]
) -> tuple[Array, list[str] | None]:
    """Return the features and their names, such as ``colour=red`` for a one-hot value.

    If two names are equal, there are no names, and columns are matched by position.
    """
    made: list[tuple[str, int, float | None]] = []
    for place, (name, values) in enumerate(attributes):
        if place not in labels and len(values) > 2:
            codes = [_number(("", values), value, "") for value in values]
            made += [(f"{name}={v}", place, code) for v, code in zip(values, codes, strict=True)]
        elif place not in labels:
            made.append((name, place, None))
    fits_memory("features", len(table), len(made), itemsize=8)
    columns = (
        table[:, place] if code is None else table[:, place] == code for _, place, code in made
    )
    names = [name for name, _, _ in made]
    features = np.column_stack([np.zeros((len(table), 0)), *columns])
    return features, names if len(set(names)) == len(names) else None
