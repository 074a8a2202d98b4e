"""What a file of another program holds, before anything of it is declared."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from credibly.checks import InputError
from credibly.predictions.importers import KINDS, file_kind, open_file
from credibly.predictions.npz import array_headers

CELL = 40  # characters of a cell


@dataclass(frozen=True)
class FilePreview:
    """The names in a file, and how it begins.

    Attributes:
        rows: how many there are, as its columns or its first array say.
        names: of the columns, or of the arrays.
        kinds: what each holds, such as ``double`` or ``float32 (60, 3)``.
        cells: the first rows of the columns, as text; none for arrays.
        tabular: whether it has columns, not arrays.
    """

    rows: int
    names: list[str]
    kinds: list[str]
    cells: list[list[str]]
    tabular: bool


def preview_file(path: str | os.PathLike[str], rows: int = 5) -> FilePreview:
    """Return the names in a CSV, Parquet, Arrow, ``.npz`` or ``.npy`` file and its first rows.

    Raises:
        InputError: if the file is of another kind, or damaged.

    Example:
        >>> import pathlib, tempfile
        >>> path = pathlib.Path(tempfile.mkdtemp()) / "scores.csv"
        >>> _ = path.write_text("id,cat\\n007,0.5\\n")
        >>> preview_file(path).names, preview_file(path).cells
        (['id', 'cat'], [['007', '0.5']])
    """
    path = Path(path)
    kind = file_kind(path)
    if kind == "pt":
        known = ", ".join(ending for ending, other in KINDS.items() if other != "pt")
        raise InputError(f"{path} must be one of {known}.")
    if kind in ("npz", "npy"):
        headers = array_headers(path)
        kinds = [f"{dtype} {shape}" for shape, dtype in headers.values()]
        first = next((shape for shape, _ in headers.values() if shape), (0,))
        return FilePreview(int(first[0]), list(headers), kinds, [], tabular=False)
    _, table = open_file(path, kind=kind)
    assert table is not None
    head = table.slice(0, rows).to_pydict()
    cells = [
        [_short(column[row]) for column in head.values()] for row in range(min(rows, len(table)))
    ]
    kinds = [str(field.type) for field in table.schema]
    return FilePreview(table.num_rows, list(table.column_names), kinds, cells, tabular=True)


def _short(value: Any) -> str:
    text = "" if value is None else str(value)
    return text if len(text) <= CELL else text[: CELL - 1] + "…"
