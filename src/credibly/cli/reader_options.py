"""Flags for the options of data readers.

Those of the general formats are flags of every command that reads data. Those of a data set that
is read as ``KIND:PATH`` are flags where the command line, or its TOML file, names that kind.
"""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from credibly.cli.command import with_fields
from credibly.data.readers import KINDS, OPTIONS, SHARED, Option, all_readers

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

GENERAL = {**SHARED, **OPTIONS}


def with_reader_options(own: type[object], leave_out: Sequence[str] = ()) -> Any:
    """Return the options of a command with those of the general formats, None by default."""
    fields = {name: option for name, option in GENERAL.items() if name not in leave_out}
    return _with_options(own, fields)


def with_named_readers(options: type[DataclassInstance], argv: Sequence[str]) -> Any:
    """Return ``options`` with those of the readers that ``argv`` names, as in ``coco:PATH``.

    Example:
        >>> from credibly.cli.predict import Options
        >>> hasattr(with_named_readers(Options, ["predict", "run", "coco:data"]), "drop_empty")
        True
    """
    names = {field.name for field in dataclasses.fields(options)}
    if not set(OPTIONS) <= names:
        return options
    found: dict[str, Option] = {}
    for kind in {text.partition(":")[0] for text in (*argv, *_sources(argv)) if ":" in text}:
        if kind in all_readers() and kind not in KINDS:
            found |= all_readers()[kind].options()
    return _with_options(options, {name: found[name] for name in found if name not in names})


def _sources(argv: Sequence[str]) -> list[str]:
    """Return the data that a TOML file names; what is wrong with the file is said later."""
    for option, value in itertools.zip_longest(argv, argv[1:], fillvalue=""):
        name, _, joined = option.partition("=")
        if name == "--config":
            from credibly.checks import InputError
            from credibly.untrusted.documents import read_toml

            try:
                return [str(read_toml(Path(joined or value), "configuration").get("data", ""))]
            except (OSError, InputError):
                break
    return []


def _with_options(own: type[object], options: Mapping[str, Option]) -> Any:
    if not options:
        return own
    fields = []
    for name, option in options.items():
        kind: Any = tuple[option.kind, ...] if option.many else option.kind
        metadata = {"help": option.help, "choices": option.choices, "reader": True}
        fields.append((name, kind | None, dataclasses.field(default=None, metadata=metadata)))
    return with_fields(own, fields)


def reader_options(options: DataclassInstance) -> dict[str, Any]:
    """Return the reader options that a flag or a file gives, for ``credibly.data.load``."""
    names = [each.name for each in dataclasses.fields(options) if each.metadata.get("reader")]
    values = {name: getattr(options, name) for name in names}
    return {name: value for name, value in values.items() if value is not None}
