"""The readers by name, and the options of each.

This module declares the general formats. Readers of specific data sets are entry points of the
group ``credibly.readers``, and any installed package can add some. The command line reads its flags
from this module, so the module must be fast to import.
"""

from __future__ import annotations

import inspect
import re
import types
import typing
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache
from importlib import import_module
from types import MappingProxyType
from typing import TYPE_CHECKING

from credibly import names

if TYPE_CHECKING:
    from credibly.data.rows import Data

GROUP = "credibly.readers"
"""The entry-point group of readers: NAME = "module:function"."""

GIVEN_BY_LOAD = ("seed", "test", "calibration")
"""Arguments that ``load`` passes to embedded data; they are not options of a reader."""


@dataclass(frozen=True)
class Option:
    """An option of a reader.

    Attributes:
        kind: type of its value, or of each value if ``many``.
        help: one line for the command line.
        many: whether it is a list.
        choices: the allowed values, if there are only a few.
    """

    kind: type
    help: str = ""
    many: bool = False
    choices: tuple[str, ...] | None = None


@dataclass(frozen=True)
class Reader:
    """A function that reads one type of source.

    Attributes:
        where: ``module:function``. The function takes a path and options by name, and returns
            ``Data``.
        endings: file endings that need no ``KIND:`` before the path.
        layout: fields of ``TableLayout`` that the function takes as its second argument.
    """

    where: str
    endings: tuple[str, ...] = ()
    layout: tuple[str, ...] = ()

    @property
    def function(self) -> Callable[..., Data]:
        """Import the function."""
        module, _, name = self.where.partition(":")
        return getattr(import_module(module), name)

    def options(self) -> dict[str, Option]:
        """Return the arguments of the function that have a default, as options."""
        function = self.function
        hints = typing.get_type_hints(function)
        entries = re.findall(r"^ +(\w+): (.*(?:\n {8}.*)*)", inspect.getdoc(function) or "", re.M)
        documented = {name: " ".join(text.replace("``", "").split()) for name, text in entries}
        own = {
            name: _option(hints.get(name, str), documented.get(name, ""))
            for name, argument in inspect.signature(function).parameters.items()
            if argument.default is not argument.empty and name not in GIVEN_BY_LOAD
        }
        return {name: SHARED.get(name) or OPTIONS[name] for name in self.layout} | own


def _option(hint: type, help: str) -> Option:
    if typing.get_origin(hint) in (types.UnionType, typing.Union):
        hint = next(part for part in typing.get_args(hint) if part is not types.NoneType)
    arguments = typing.get_args(hint)
    if typing.get_origin(hint) is typing.Literal:
        return Option(str, help, choices=arguments)
    return Option(arguments[0], help, many=True) if arguments else Option(hint, help)


SHARED: Mapping[str, Option] = MappingProxyType(
    {
        "labels": Option(
            str,
            "label names in order; for a table, its label columns; quote names that contain "
            "a comma",
            many=True,
        ),
        "test": Option(float, "share of test rows, if the data have no published split"),
        "calibration": Option(
            float,
            "share of the training rows to hold out for calibration, if the data have no "
            "published split",
        ),
        "val": Option(
            str,
            "calibrate: hold out published validation rows; train: train on them",
            choices=("calibrate", "train"),
        ),
    }
)
"""Options that ``load`` takes for every source."""

OPTIONS: Mapping[str, Option] = MappingProxyType(
    {
        "coding": Option(
            str,
            "meaning of −1 if all targets are −1 or +1; signed: absent; unknown: unknown",
            choices=("signed", "unknown"),
        ),
        "label_column": Option(str, "column of a table with lists of label names"),
        "separator": Option(str, "separator of the names in that column; none: one name per cell"),
        "text": Option(str, "column of a table with texts; two columns for pairs", many=True),
        "image_column": Option(str, "column of a table with image paths or bytes"),
        "images": Option(str, "folder that image paths of a table are relative to"),
        "suffix": Option(str, "ending to append to image paths of a table, e.g. .jpg"),
        "id_column": Option(str, "column of a table with the ids of its rows"),
        "ignore": Option(str, "columns of a table to ignore", many=True),
        "delimiter": Option(str, "character that separates the cells of a CSV file"),
        "xml": Option(str, "file with the label names of an ARFF file"),
    }
)
"""Options of the general formats, which ``credibly train --help`` lists as flags."""

LAYOUT = (
    *("labels", "label_column", "separator", "text", "image_column", "images", "suffix"),
    *("id_column", "ignore", "coding"),
)
"""Options that say what the columns of a table are: the fields of ``TableLayout``."""

EMBEDDED: Mapping[str, Reader] = MappingProxyType(
    {
        "digits": Reader("credibly.data.embedded:digits"),
        "synthetic": Reader("credibly.data.embedded:synthetic"),
    }
)
"""Names that make their own rows."""

_TABLES = "credibly.data.table_files"
KINDS: Mapping[str, Reader] = MappingProxyType(
    {
        "npz": Reader("credibly.data.loading:read_npz", (".npz",)),
        "parquet": Reader(f"{_TABLES}:read_parquet", (".parquet", ".pq"), LAYOUT),
        "csv": Reader(f"{_TABLES}:read_csv", (".csv", ".tsv", ".csv.gz", ".tsv.gz"), LAYOUT),
        "jsonl": Reader(f"{_TABLES}:read_jsonl", (".jsonl", ".ndjson", ".jsonl.gz"), LAYOUT),
        "arff": Reader("credibly.data.arff:read_arff", (".arff",)),
        "xc": Reader("credibly.data.xc:read_xc", (".svm", ".svmlight", ".libsvm")),
        "imagefolder": Reader("credibly.data.class_folders:read_imagefolder"),
        "hf": Reader(
            "credibly.data.huggingface:read_huggingface",
            layout=tuple(name for name in LAYOUT if name not in ("images", "suffix")),
        ),
    }
)
"""The general formats, by what stands before the colon of ``KIND:PATH``."""

FRAME = Reader(f"{_TABLES}:read_frame", layout=LAYOUT)
"""The reader of data frames."""


@cache
def all_readers() -> Mapping[str, Reader]:
    """Return the readers of ``KIND:PATH``: general formats, papers' data sets, and other packages'.

    ``names.READERS`` repeats the entry points of the papers' data sets, because a source tree that
    is not installed has no entry points.
    """
    from importlib.metadata import entry_points

    others = {point.name: Reader(point.value) for point in entry_points(group=GROUP)}
    own = {name: Reader(where) for name, where in names.READERS.items()}
    return MappingProxyType({**others, **own, **KINDS})
