"""From a frozen dataclass to flags, a TOML file and back: one set of fields fills from both."""

from __future__ import annotations

import argparse
import dataclasses
import inspect
import types
import typing
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any


def option(
    default: Any = dataclasses.MISSING,
    *,
    help: str,
    positional: bool = False,
    choices: Sequence[Any] | None = None,
    metavar: str | None = None,
) -> Any:
    """A field of an ``Options`` dataclass that is also a flag (``--name``) or a positional."""
    metadata = {"help": help, "positional": positional, "choices": choices, "metavar": metavar}
    return dataclasses.field(default=default, metadata=metadata)


def build_parser(
    modules: Mapping[str, Any], *, file_may_complete: bool = False
) -> argparse.ArgumentParser:
    """One parser with a sub-parser for each command module.

    ``file_may_complete``: a TOML file is named, which may hold what is otherwise required.
    """
    parser = argparse.ArgumentParser(
        prog="credibly",
        description="Classifiers with zero, one or many labels, and probabilities to act on.",
        epilog="`credibly COMMAND --help` explains one command. Start with `credibly demo`.",
    )
    parser.add_argument("--version", action="version", version=_version())
    commands = parser.add_subparsers(dest="command", metavar="COMMAND", title="commands")
    for name, module in modules.items():
        text = inspect.cleandoc(module.Options.__doc__ or "").replace("%", "%%")
        sub = commands.add_parser(
            name,
            help=text.splitlines()[0],
            description=text,
            formatter_class=argparse.RawDescriptionHelpFormatter,
            argument_default=argparse.SUPPRESS,
            allow_abbrev=False,
        )
        hints = typing.get_type_hints(module.Options)
        for field in dataclasses.fields(module.Options):
            _add(sub, field, hints[field.name], file_may_complete)
        sub.add_argument("--config", metavar="FILE", help="TOML file with any of these options")
    return parser


def _version() -> str:
    from credibly import __version__

    return f"credibly {__version__}"


def _add(
    parser: argparse.ArgumentParser,
    field: dataclasses.Field[Any],
    hint: Any,
    file_may_complete: bool,
) -> None:
    kind, many = _kind(hint)
    required = _required(field) and not file_may_complete
    settings: dict[str, Any] = {"help": _help(field)}
    if field.metadata.get("choices"):
        settings["choices"] = field.metadata["choices"]
    if field.metadata.get("metavar"):
        settings["metavar"] = field.metadata["metavar"]
    if field.metadata.get("positional"):
        if many:
            settings["nargs"] = "+" if required else "*"
        elif not required:
            settings["nargs"] = "?"
        parser.add_argument(field.name, type=kind, **settings)
        return
    flag = "--" + field.name.replace("_", "-")
    if kind is bool:
        parser.add_argument(flag, action=argparse.BooleanOptionalAction, **settings)
    elif many:
        # Comma-separated, so that a list never swallows a positional.
        settings["type"] = _list_of(kind)
        parser.add_argument(flag, required=required, **settings)
    else:
        parser.add_argument(flag, type=kind, required=required, **settings)


def _list_of(kind: Any) -> Any:
    def parse(text: str) -> tuple[Any, ...]:
        return tuple(kind(part) for part in text.split(",") if part)

    parse.__name__ = f"comma-separated {kind.__name__}"  # what argparse calls it in an error
    return parse


def _required(field: dataclasses.Field[Any]) -> bool:
    return field.default is dataclasses.MISSING and field.default_factory is dataclasses.MISSING


def _help(field: dataclasses.Field[Any]) -> str:
    text = str(field.metadata.get("help", "")).replace("%", "%%")
    if _required(field) or field.default is None or field.default is False or field.default == ():
        return text
    return f"{text} (default: {str(field.default).replace('%', '%%')})"


def _kind(hint: Any) -> tuple[Any, bool]:
    """The scalar type behind a field's annotation, and whether the field holds several."""
    if typing.get_origin(hint) in (types.UnionType, typing.Union):
        hint = next(part for part in typing.get_args(hint) if part is not type(None))
    if typing.get_origin(hint) is tuple:
        return typing.get_args(hint)[0], True
    return hint, False


def resolve(options: type[Any], arguments: Mapping[str, Any]) -> Any:
    """Defaults, then the TOML file, then flags; later ones win."""
    from credibly.checks import InputError

    config = arguments.get("config")
    values = _from_toml(options, Path(config)) if config else {}
    for key, value in arguments.items():
        if key != "config":
            values[key] = tuple(value) if isinstance(value, list) else value
    for field in dataclasses.fields(options):
        if _required(field) and values.get(field.name) in (None, ()):
            raise InputError(f"`{field.name}` must be given, as an argument or in {config}.")
    return options(**values)


def _from_toml(options: type[Any], path: Path) -> dict[str, Any]:
    import tomllib

    from credibly.checks import InputError, nearest

    try:
        table = tomllib.loads(path.read_text(encoding="utf-8"))
    except (ValueError, RecursionError) as error:  # not TOML, not text, absurd numbers or depth
        raise InputError(f"{path} must be a TOML file; {error}.") from error
    hints = typing.get_type_hints(options)
    fields = {field.name: field for field in dataclasses.fields(options)}
    values: dict[str, Any] = {}
    for key, value in table.items():
        name = key.replace("-", "_")
        if name not in fields:
            raise InputError(f"{path}: unknown option {key!r}. {nearest(name, fields)}")
        kind, many = _kind(hints[name])
        parts = value if many and isinstance(value, list) else [value]
        if not all(_fits(kind, part) for part in parts):
            several = "a list of " if many else ""
            raise InputError(f"{path}: {key!r} must be {several}{kind.__name__}; got {value!r}.")
        choices = fields[name].metadata.get("choices")
        for part in parts:
            if choices and part not in choices:
                listed = ", ".join(map(str, choices))
                raise InputError(f"{path}: {key!r} must be one of {listed}; got {part!r}.")
        converted = tuple(kind(part) for part in parts)
        values[name] = converted if many else converted[0]
    return values


def _fits(kind: Any, value: Any) -> bool:
    """Whether a TOML value can stand for ``kind`` without losing anything."""
    if kind is bool or isinstance(value, bool):
        return kind is bool and isinstance(value, bool)
    if kind is float:
        return isinstance(value, float) or (isinstance(value, int) and abs(value) <= 2**53)
    if kind is int:
        return isinstance(value, int) and abs(value) < 2**63
    return isinstance(value, str)
