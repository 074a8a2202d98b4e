"""Turn a frozen dataclass into flags, and flags or a TOML file into the dataclass.

The options of the general data formats are flags of every command that reads data. The options of a
data set that is read as ``KIND:PATH`` are flags if the command line or its TOML file names it.
"""

from __future__ import annotations

import argparse
import dataclasses
import inspect
import itertools
import json
import re
import types
import typing
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NewType, NoReturn, TypeAlias

from credibly import __version__
from credibly.cli.terminal import safe_text, write
from credibly.data.readers import KINDS, OPTIONS, SHARED, Option, all_readers
from credibly.train.recipes import RECIPES, owners, type_hints
from credibly.types import JsonObject

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

    OptionsType: TypeAlias = type[DataclassInstance]


def input_error(message: str) -> Exception:
    """Return an ``InputError``, whose module is loaded only now."""
    from credibly.checks import InputError

    return InputError(message)


LOG_LEVELS = ("debug", "info", "warning", "error")


File = NewType("File", str)
"""A path; the help text calls its value FILE."""


def option(default: object = dataclasses.MISSING, **about: object) -> Any:
    """Declare a field of an ``Options`` dataclass about which its type says too little.

    Args:
        default: the default value; without it, the field is required.
        about: ``positional``, whether it is given without a flag; ``choices``, the allowed
            values; ``metavar``, the name of its value in the help text; ``between``, the
            smallest and the largest number allowed; ``flag``, its name on the command line, if
            the name of the field is a Python keyword (``as``); ``argument``, its name in errors
            of the library, if it differs from the field; ``stdout``, for ``out``: the
            ending of the file that ``-`` writes to stdout, by ``format`` if it depends on the
            format.
    """
    return dataclasses.field(default=default, metadata=about)


_ARGUMENT = re.compile(r"^ +(\w+): (.*(?:\n {6,}.*)*)", re.MULTILINE)


@dataclasses.dataclass(frozen=True)
class Flag:
    """A field of an ``Options`` dataclass as a flag or a positional argument.

    Attributes:
        name: of the field.
        kind: the type of one value.
        many: whether several values can be given.
        default: the default value; ``MISSING`` if it must be given.
        help: its line among the ``Args`` of the docstring.
        about: as for ``option``.
    """

    name: str
    kind: Callable[..., object]
    many: bool
    default: object
    help: str
    about: Mapping[str, Any]

    @property
    def required(self) -> bool:
        return self.default is dataclasses.MISSING

    @property
    def positional(self) -> bool:
        return bool(self.about.get("positional"))

    @property
    def flag(self) -> str:
        """Return how it is given, such as ``--average-size``."""
        return "--" + (self.about.get("flag") or self.name).replace("_", "-")

    @property
    def shown(self) -> str:
        """Return what messages call it: the flag, or the name of the positional argument."""
        return self.about.get("metavar", self.name.upper()) if self.positional else self.flag

    @property
    def choices(self) -> tuple[object, ...]:
        return tuple(self.about.get("choices") or ())


def flags_of(options: OptionsType) -> list[Flag]:
    """Return the flags of a command: types and defaults of its fields, help of its docstrings.

    Example:
        >>> from credibly.cli.check import Options
        >>> [(each.shown, each.kind.__name__) for each in flags_of(Options)][-2:]
        [('--against', 'str'), ('--false-alarms', 'float')]
    """
    hints, words, titles = typing.get_type_hints(options), {}, {}
    for own in reversed(options.__mro__):
        titles |= dict.fromkeys(vars(own).get("__annotations__", ()), vars(own).get("TITLE", ""))
        arguments = inspect.cleandoc(own.__doc__ or "").partition("\nArgs:\n")[2]
        words |= {name: " ".join(text.split()) for name, text in _ARGUMENT.findall(arguments)}
    found = []
    for field in dataclasses.fields(options):
        hint, many, about = hints[field.name], False, dict(field.metadata)
        if typing.get_origin(hint) in (types.UnionType, typing.Union):
            hint = next(part for part in typing.get_args(hint) if part is not type(None))
        if typing.get_origin(hint) is tuple:
            hint, many = typing.get_args(hint)[0], True
        if typing.get_origin(hint) is Literal:
            about.setdefault("choices", typing.get_args(hint))
            hint = str
        if titles.get(field.name):
            about.setdefault("group", titles[field.name])
        if isinstance(hint, NewType):
            about.setdefault("metavar", hint.__name__.upper())
            hint = hint.__supertype__
        text = about.get("help") or words.get(field.name, "")
        found.append(Flag(field.name, hint, many, field.default, text, about))
    return found


@dataclasses.dataclass(frozen=True, kw_only=True)
class Printed:
    """Options of every command that prints a result. They come last in its help.

    Args:
        json: print the result as JSON
        quiet: print only errors and the result
    """

    json: bool = False
    quiet: bool = False

    @property
    def silent(self) -> bool:
        """Return whether nothing but errors and the result is printed."""
        return self.json or self.quiet


@dataclasses.dataclass(frozen=True, kw_only=True)
class Partial:
    """The option of commands that read folders of shards.

    Args:
        partial: read a folder of shards even if some are missing
    """

    partial: bool = False


@dataclasses.dataclass(frozen=True, kw_only=True)
class WithTexts:
    """Options of commands that show the texts of rows.

    Args:
        texts: data with the texts of the rows
        text: with --texts: the column with the texts
    """

    texts: str | None = option(None, metavar="DATA")
    text: tuple[str, ...] | None = None


@dataclasses.dataclass(frozen=True, kw_only=True)
class Scanned(Partial, Printed):
    """Options of commands that read predictions of any size.

    Args:
        engine: local: this machine; spark: a cluster
    """

    engine: Literal["local", "spark"] = "local"


def refuse(options: DataclassInstance, names: Sequence[str], why: str) -> None:
    """Raise if one of these options has another value than its default."""
    for each in flags_of(type(options)):
        if each.name in names and getattr(options, each.name) != each.default:
            raise input_error(f"{each.flag} cannot be combined with {why}.")


def with_flags(
    own: type[object], owner: str, flags: Mapping[str, tuple[Any, JsonObject]]
) -> OptionsType:
    """Return the ``Options`` of a command with additional flags, None by default.

    Args:
        own: the options.
        owner: the name by which ``given`` selects them: ``recipe`` or ``reader``.
        flags: by name, the type of the value, and further arguments of ``option``.
    """
    fields = [
        (name, kind | None, dataclasses.field(default=None, metadata={**about, "owner": owner}))
        for name, (kind, about) in flags.items()
    ]
    names = {"__doc__": own.__doc__}
    return dataclasses.make_dataclass(
        "Options", fields, bases=(own,), frozen=True, kw_only=True, namespace=names
    )


def given(options: DataclassInstance, owner: str) -> JsonObject:
    """Return the options of the recipe or the reader that flags or a file set."""
    own = [each.name for each in dataclasses.fields(options) if each.metadata.get("owner") == owner]
    return {name: value for name in own if (value := getattr(options, name)) is not None}


def with_reader_options(own: type[object], leave_out: Sequence[str] = ()) -> OptionsType:
    """Return the options of a command with those of the general formats."""
    general = {**SHARED, **OPTIONS}
    return with_flags(own, "reader", _flags({k: general[k] for k in general if k not in leave_out}))


def with_named_readers(options: OptionsType, argv: Sequence[str]) -> OptionsType:
    """Return ``options`` with the options of the data sets in ``argv``, such as ``coco:PATH``.

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
    further = {name: found[name] for name in found if name not in names}
    return with_flags(options, "reader", _flags(further)) if further else options


def _sources(argv: Sequence[str]) -> list[str]:
    """Return the data that a TOML file names. Errors of the file are reported later."""
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


def _flags(options: Mapping[str, Option]) -> dict[str, tuple[type, JsonObject]]:
    return {
        name: (
            tuple[each.kind, ...] if each.many else each.kind,
            {"help": each.help, "choices": each.choices, "group": "data files"},
        )
        for name, each in options.items()
    }


def with_recipe_options(own: type[object], leave_out: Sequence[str] = ()) -> OptionsType:
    """Return the options of a command with a flag for every option of a recipe.

    They are None by default, and grouped by the recipes that have them.
    """
    found = {
        field.name: (field, type_hints(recipe)[field.name])
        for recipe in RECIPES.values()
        for field in dataclasses.fields(recipe)
        if field.name not in leave_out
    }
    flags: dict[str, tuple[type, JsonObject]] = {}
    for name in sorted(found, key=lambda each: (-len(owners(each)), _group(each))):
        field, hint = found[name]
        about = {"help": HELP.get(name, field.metadata["help"]), "group": _group(name)}
        if field.default not in (None, False, ()) and "default" not in about["help"]:
            about["help"] += f" (default: {field.default})"
        flags[name] = (hint, {**about, "choices": field.metadata["choices"]})
    probe = "train only the last layer, to its optimum, on features of a frozen network"
    flags["probe"] = (bool, {"help": probe, "group": _group("max_length")})
    return with_flags(own, "recipe", flags)


HELP = {
    "model": "linear, mlp, forest, boosting, tfidf, cnn, timm:NAME …; see docs/guide/training.md. "
    "auto: for features, the best of several models; for images and texts, their usual model "
    "(default: auto)",
    "select": "metric of the held-out rows that chooses the epoch or the penalty; last keeps the "
    "last epoch (default: nll)",
}
"""Help texts of options that mean more than one thing."""


def _group(name: str) -> str:
    """Return the title of a group of flags: the recipes that have the option."""
    having = owners(name)
    if name == "model" or len(having) == len(RECIPES):
        return "every recipe"
    return f"recipe {', '.join(having)}"


def build_parser(
    commands: Mapping[str, OptionsType], *, file_may_complete: bool = False
) -> argparse.ArgumentParser:
    """Return a parser with a sub-parser for each command.

    Args:
        commands: the ``Options`` of each command, by its name.
        file_may_complete: whether a TOML file is named, which may contain required options.
    """
    parser = _CommandParser(
        prog="credibly",
        description="Classifiers with zero, one or many labels, and probabilities to act on.",
        epilog="`credibly COMMAND --help` explains one command. Start with `credibly demo`.",
    )
    parser.add_argument("--version", action="version", version=f"credibly {__version__}")
    parsers = parser.add_subparsers(dest="command", metavar="COMMAND", title="commands")
    shared = {each.name for kind in (Scanned, WithTexts) for each in dataclasses.fields(kind)}
    for name, options in commands.items():
        text = inspect.cleandoc(options.__doc__ or "").partition("\n\nArgs:\n")[0]
        flags = sorted(flags_of(options), key=lambda each: each.name in shared)
        needed = [
            each.shown if each.positional else f"{each.flag} {_metavar(each)}"
            for each in sorted(flags, key=lambda each: not each.positional)
            if each.required
        ]
        sub = parsers.add_parser(
            name,
            usage=" ".join(["credibly", name, *needed, "[options]"]),
            help=text.splitlines()[0].replace("%", "%%"),
            description=text,
            formatter_class=argparse.RawDescriptionHelpFormatter,
            argument_default=argparse.SUPPRESS,
            allow_abbrev=False,
        )
        groups: dict[str, argparse._ActionsContainer] = {"": sub}
        for each in flags:
            title = str(each.about.get("group", ""))
            if title not in groups:
                groups[title] = sub.add_argument_group(title)
            _add(groups[title], each, each.required and not file_may_complete)
        sub.add_argument("--config", metavar="FILE", help="TOML file with any of these options")
        sub.add_argument(
            "-v",
            dest="log_level",
            action="store_const",
            const="info",
            help="log progress to stderr; the same as --log-level info",
        )
        sub.add_argument(
            "--log-level", choices=LOG_LEVELS, help="log to stderr; debug adds tracebacks of errors"
        )
        sub.known = (*(each.flag for each in flags), "--config", "--log-level")
    parser.known = tuple(commands)
    return parser


class _CommandParser(argparse.ArgumentParser):
    """A parser that suggests the nearest known name for a misspelt command or flag."""

    known: tuple[str, ...] = ()
    """The commands, or the flags of one command."""

    def parse_known_args(self, args: Any = None, namespace: Any = None) -> Any:  # pyright: ignore
        command = (args or ["-"])[0]
        if self.prog == "credibly" and not command.startswith("-") and command not in self.known:
            self.error(f"there is no command {command!r}.{self._hint(command)}")
        namespace, rest = super().parse_known_args(args, namespace)
        if rest:  # in the parser of the command, which knows its flags
            flag = next((text for text in rest if text.startswith("-")), "").partition("=")[0]
            self.error(f"unrecognized arguments: {' '.join(rest)}.{self._hint(flag)}")
        return namespace, rest

    def error(self, message: str) -> NoReturn:
        message += "" if message.endswith((".", "?")) else "."
        if "required: QUERY" in message:
            message += " A query must not begin with -; write '!knife' instead of '-knife'."
        self.exit(2, safe_text(f"{self.prog}: error: {message} Try `{self.prog} --help`.") + "\n")

    def _hint(self, name: str) -> str:
        from difflib import get_close_matches

        close = get_close_matches(name, self.known, n=1, cutoff=0.6)
        return f" Did you mean {close[0]}?" if close else ""


def _add(parser: argparse._ActionsContainer, flag: Flag, required: bool) -> None:
    settings: JsonObject = {"help": _help(flag), "metavar": _metavar(flag)}
    settings["choices"] = flag.choices or None
    if flag.positional:
        if flag.many or not required:
            settings["nargs"] = "?" if not flag.many else "+" if required else "*"
        parser.add_argument(flag.name, type=_reader(flag.kind), **settings)
    elif flag.kind is bool and "owner" in flag.about:
        action = argparse.BooleanOptionalAction
        parser.add_argument(flag.flag, dest=flag.name, action=action, help=settings["help"])
    elif flag.kind is bool:
        unset: JsonObject = {"dest": flag.name, "default": argparse.SUPPRESS}
        parser.add_argument(flag.flag, action="store_true", help=settings["help"], **unset)
    else:
        # Comma-separated, so a list never takes the next positional argument.
        kind = _list_of(flag.kind) if flag.many else _reader(flag.kind)
        parser.add_argument(flag.flag, dest=flag.name, type=kind, required=required, **settings)


def _metavar(flag: Flag) -> str | None:
    """Return what the help text calls a value; None for the listed choices."""
    usual = flag.name.upper()
    if not flag.positional:
        usual = "A,B" if flag.many else {int: "N", float: "X"}.get(flag.kind, usual)
    return flag.about.get("metavar", None if flag.choices and not flag.positional else usual)


COMMA = re.compile(r',(?![^(]*\))(?=(?:[^"]*"[^"]*")*[^"]*$)')
"""Between values: not inside brackets, nor inside quotes, as in --labels '"pain, chest",fever'."""


def _reader(kind: Callable[..., object]) -> Callable[[str], object]:
    """Return the conversion of a text; errors of argparse call the type by its name."""

    def read(text: str) -> object:
        return kind(text)

    read.__name__ = {int: "whole number", float: "number"}.get(kind, "text")
    return read


def _list_of(kind: Callable[..., object]) -> Callable[[str], tuple[object, ...]]:
    def parse(text: str) -> tuple[object, ...]:
        return tuple(kind(part.strip('"')) for part in COMMA.split(text) if part)

    parse.__name__ = f"list of {_reader(kind).__name__}s"
    return parse


def _help(flag: Flag) -> str:
    default = flag.default
    if isinstance(default, tuple):
        default = ",".join(map(str, default))
    silent = flag.required or default is None or default is False or default == ""
    return (flag.help + ("" if silent else f" (default: {default})")).replace("%", "%%")


def resolve(options: OptionsType, arguments: JsonObject) -> Any:
    """Set the options from defaults, then the TOML file, then flags; later values override."""
    from credibly.checks import between

    config = arguments.get("config")
    values = _from_toml(options, Path(config)) if config else {}
    for key, value in arguments.items():
        if key != "config":
            values[key] = tuple(value) if isinstance(value, list) else value
    for flag in flags_of(options):
        if flag.required and values.get(flag.name) in (None, ()):
            raise input_error(f"`{flag.name}` must be given, as an argument or in {config}.")
        if flag.required and values[flag.name] in ("", ("",)):
            raise input_error(f"`{flag.name}` must not be empty.")
        limits = flag.about.get("between")
        if limits and values.get(flag.name) is not None:
            between(flag.name, values[flag.name], *limits)
    return options(**values)


@contextmanager
def stdout_for_dash(options: DataclassInstance) -> Iterator[Any]:
    """Yield options in which ``--out -`` is a temporary file, which is printed at the end."""
    from tempfile import TemporaryDirectory

    values = vars(options)
    if values.get("out") != "-":
        yield options
        return
    field = next(each for each in dataclasses.fields(options) if each.name == "out")
    ending = field.metadata.get("stdout")
    ending = ending.get(values["format"], ".csv") if isinstance(ending, Mapping) else ending
    if ending is None or values.get("json"):
        alone = "--json also writes there; leave it out" if ending else "name a file"
        raise input_error(f"--out - writes text to stdout; {alone}.")
    with TemporaryDirectory() as folder:
        path = Path(folder) / f"out{ending}"
        yield dataclasses.replace(options, **{"out": str(path), "quiet": True})
        write(path.read_text(encoding="utf-8"))


def _from_toml(options: OptionsType, path: Path) -> JsonObject:
    from credibly.checks import fits, nearest, type_words
    from credibly.untrusted.documents import read_toml

    table = read_toml(path, "configuration")
    flags = {flag.name: flag for flag in flags_of(options)}
    values: JsonObject = {}
    for key, value in table.items():
        name = key.replace("-", "_")
        if name not in flags:
            raise input_error(f"{path}: unknown option {key!r}. {nearest(name, flags)}")
        kind, many, choices = flags[name].kind, flags[name].many, flags[name].choices
        parts = value if many and isinstance(value, list) else [value]
        if not all(fits(kind, part) for part in parts):
            got = json.dumps(value, default=str, ensure_ascii=False)
            raise input_error(f"{path}: {key!r} must be {type_words(kind, many=many)}; got {got}.")
        for part in parts:
            if isinstance(part, str) and "\0" in part:
                raise input_error(f"{path}: {key!r} must not contain a null character.")
            if choices and part not in choices:
                listed = ", ".join(map(str, choices))
                raise input_error(f"{path}: {key!r} must be one of {listed}; got {part!r:.80}.")
        converted = tuple(kind(part) for part in parts)
        values[name] = converted if many else converted[0]
    return values
