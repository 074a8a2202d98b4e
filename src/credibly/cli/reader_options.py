"""Flags for the options of data readers, made from the table that ``credibly.data`` declares."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from credibly.cli.command import with_fields
from credibly.data import OPTIONS, SHARED

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

FLAGS = {name: option for name, option in {**SHARED, **OPTIONS}.items() if option.flag}


def with_reader_options(own: type[object], leave_out: Sequence[str] = ()) -> Any:
    """Return the options of a command with a flag for every reader option, None by default."""
    fields = []
    for name, option in FLAGS.items():
        if name in leave_out:
            continue
        kind: Any = tuple[option.kind, ...] if option.many else option.kind
        metadata = {"help": option.help, "choices": option.choices}
        fields.append((name, kind | None, dataclasses.field(default=None, metadata=metadata)))
    return with_fields(own, fields)


def reader_options(options: DataclassInstance) -> dict[str, Any]:
    """Return the reader options that a flag or a file gives, for ``credibly.data.load``."""
    names = [field.name for field in dataclasses.fields(options) if field.name in FLAGS]
    values = {name: getattr(options, name) for name in names}
    return {name: value for name, value in values.items() if value is not None}
