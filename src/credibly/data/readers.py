"""The readers by name, and the options that each takes.

The general formats are declared here. A reader of a particular data set is found by its name in
the entry-point group ``credibly.readers``: any installed package may add some. The command line
reads this module for its flags, so it imports nothing that takes time.
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
from typing import Any

from credibly import names

GROUP = "credibly.readers"
"""The entry-point group of readers: NAME = "module:function"."""

GIVEN_BY_LOAD = ("seed", "test", "calibration")
"""Arguments that ``load`` gives to embedded data; they are no options of a reader."""


@dataclass(frozen=True)
class Option:
    """An option of a reader.

    Attributes:
        kind: type of its value, or of each value where ``many``.
        help: one line for the command line.
        many: whether it is a list.
        choices: the values it may have, if they are few.
    """

    kind: type
    help: str = ""
    many: bool = False
    choices: tuple[str, ...] | None = None


@dataclass(frozen=True)
class Reader:
    """The function that reads one kind of source.

    Attributes:
        where: ``module:function``. The function takes the path, and its options by name, and
            returns ``Data``.
        endings: endings of files that are read without ``KIND:`` before the path.
        layout: the fields of ``TableLayout`` that it takes together, as its second argument.
    """

    where: str
    endings: tuple[str, ...] = ()
    layout: tuple[str, ...] = ()

    @property
    def function(self) -> Callable[..., Any]:
        """Import the function."""
        module, _, name = self.where.partition(":")
        return getattr(import_module(module), name)

    def options(self) -> dict[str, Option]:
        """Return the arguments of the function that have a default, by their annotations."""
        function = self.function
        hints = typing.get_type_hints(function)
        documented = dict(re.findall(r"^ +(\w+): (.*)", inspect.getdoc(function) or "", re.M))
        own = {
            name: _option(hints.get(name, str), documented.get(name, ""))
            for name, argument in inspect.signature(function).parameters.items()
            if argument.default is not argument.empty and name not in GIVEN_BY_LOAD
        }
        return {name: SHARED.get(name) or OPTIONS[name] for name in self.layout} | own


def _option(hint: Any, help: str) -> Option:
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
            "label names in order; of a table, the label columns; quote a name with a comma",
            many=True,
        ),
        "test": Option(float, "share of test rows, where no split is published"),
        "calibration": Option(float, "share of training rows held out, where none are published"),
        "val": Option(
            str, "published validation rows are held out, or train", choices=("calibrate", "train")
        ),
    }
)
"""Options that ``load`` itself takes for every source."""

OPTIONS: Mapping[str, Option] = MappingProxyType(
    {
        "coding": Option(
            str,
            "meaning of −1 in targets of only −1 and +1: signed (absent) or unknown",
            choices=("signed", "unknown"),
        ),
        "label_column": Option(str, "column of a table that holds label names"),
        "separator": Option(
            str, "separator of the names in that column; none: the cell is one name"
        ),
        "text": Option(str, "column of a table that holds texts; two for pairs", many=True),
        "image_column": Option(str, "column of a table that holds image paths or bytes"),
        "images": Option(str, "folder that the image paths of a table start from"),
        "suffix": Option(str, "ending to append to the image paths of a table, e.g. .jpg"),
        "id_column": Option(str, "column of a table that holds the ids of its rows"),
        "ignore": Option(str, "columns of a table to leave out", many=True),
        "delimiter": Option(str, "character between the cells of a CSV file"),
        "xml": Option(str, "file that names the labels of an ARFF file"),
    }
)
"""Options of the general formats: the flags that ``credibly train --help`` lists."""

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
        "npz": Reader("credibly.data.npz:read_npz", (".npz",)),
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
    """Return the readers of ``KIND:PATH``: general formats, the papers' data sets, and others'.

    The papers' data sets are entry points, too; ``names.READERS`` also has them, so that they are
    found where the package runs from its source tree, which has no list of entry points.
    """
    from importlib.metadata import entry_points

    others = {point.name: Reader(point.value) for point in entry_points(group=GROUP)}
    own = {name: Reader(where) for name, where in names.READERS.items()}
    return MappingProxyType({**others, **own, **KINDS})
