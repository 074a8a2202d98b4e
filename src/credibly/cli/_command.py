"""From a frozen dataclass to flags, a TOML file and back: one set of fields fills from both."""

from __future__ import annotations

import argparse
import dataclasses
import tomllib
import types
import typing
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

_SHARED = ("config",)


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


def build_parser(modules: Mapping[str, Any]) -> argparse.ArgumentParser:
    """One parser with a sub-parser for each command module."""
    parser = argparse.ArgumentParser(
        prog="credibly",
        description="Classifiers with zero, one or many labels, and probabilities to act on.",
        epilog="`credibly COMMAND --help` explains one command. Start with `credibly demo`.",
    )
    parser.add_argument("--version", action="version", version=_version())
    commands = parser.add_subparsers(dest="command", metavar="COMMAND", title="commands")
    for name, module in modules.items():
        text = module.Options.__doc__ or ""
        sub = commands.add_parser(
            name,
            help=text.strip().splitlines()[0],
            description=text,
            formatter_class=argparse.RawDescriptionHelpFormatter,
            argument_default=argparse.SUPPRESS,
        )
        for field in dataclasses.fields(module.Options):
            _add(sub, field, typing.get_type_hints(module.Options)[field.name])
        sub.add_argument("--config", metavar="FILE", help="TOML file with any of these options")
    return parser


def _version() -> str:
    from credibly import __version__

    return f"credibly {__version__}"


def _add(parser: argparse.ArgumentParser, field: dataclasses.Field[Any], hint: Any) -> None:
    kind, many = _kind(hint)
    settings: dict[str, Any] = {"help": _help(field)}
    if field.metadata.get("choices"):
        settings["choices"] = field.metadata["choices"]
    if field.metadata.get("metavar"):
        settings["metavar"] = field.metadata["metavar"]
    if field.metadata.get("positional"):
        required = field.default is dataclasses.MISSING
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
        parser.add_argument(
            flag,
            type=lambda text: tuple(kind(part) for part in text.split(",") if part),
            **settings,
        )
    else:
        parser.add_argument(
            flag, type=kind, required=field.default is dataclasses.MISSING, **settings
        )


def _help(field: dataclasses.Field[Any]) -> str:
    text = str(field.metadata.get("help", "")).replace("%", "%%")
    if field.default in (dataclasses.MISSING, None, False, ()):
        return text
    return f"{text} (default: {field.default})"


def _kind(hint: Any) -> tuple[Any, bool]:
    """The scalar type behind a field's annotation, and whether the field holds several."""
    if typing.get_origin(hint) in (types.UnionType, typing.Union):
        hint = next(part for part in typing.get_args(hint) if part is not type(None))
    if typing.get_origin(hint) is tuple:
        return typing.get_args(hint)[0], True
    return hint, False


def resolve(options: type[Any], arguments: Mapping[str, Any]) -> Any:
    """Defaults, then the TOML file, then flags; later ones win."""
    given = {
        key: tuple(value) if isinstance(value, list) else value for key, value in arguments.items()
    }
    config = given.pop("config", None)
    return options(**{**(_from_toml(options, Path(config)) if config else {}), **given})


def _from_toml(options: type[Any], path: Path) -> dict[str, Any]:
    from credibly._checks import InputError, nearest

    try:
        table = tomllib.loads(path.read_text(encoding="utf-8"))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise InputError(f"{path} must be a TOML file; {error}.") from error
    hints = typing.get_type_hints(options)
    values: dict[str, Any] = {}
    for key, value in table.items():
        name = key.replace("-", "_")
        if name not in hints:
            raise InputError(f"{path}: unknown option {key!r}. {nearest(name, hints)}")
        kind, many = _kind(hints[name])
        try:
            values[name] = tuple(kind(part) for part in value) if many else _convert(kind, value)
        except (TypeError, ValueError) as error:
            raise InputError(f"{path}: {key!r} must be {kind.__name__}; got {value!r}.") from error
    return values


def _convert(kind: Any, value: Any) -> Any:
    if kind is bool and not isinstance(value, bool):
        raise ValueError(value)
    if isinstance(value, (dict, list)):
        raise TypeError(value)
    return kind(value)
