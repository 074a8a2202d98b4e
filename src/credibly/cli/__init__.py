"""The command line: ``credibly COMMAND …``. One file per command.

A command module has a frozen dataclass ``Options`` (its docstring is the help text) and
``run(options) -> int | None``. ``run`` imports heavy modules after it has checked the arguments, so
``--help`` is instant and a misspelt name is an immediate error.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from importlib import import_module
from keyword import iskeyword
from traceback import clear_frames

# In the order of `credibly --help`.
COMMANDS: tuple[str, ...] = (
    "demo",
    "train",
    "predict",
    "import",
    "evaluate",
    "calibrate",
    "sets",
    "review",
    "search",
    "joint",
    "compare",
    "papers",
    "report",
    "serve",
    "audit",
    "export",
    "check",
    "warmup",
    "completion",
)


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command.

    Args:
        argv: the arguments; by default those of the process.

    Returns:
        The exit code: 0 done, 2 bad input, 130 interrupted, 143 terminated.
    """
    from credibly.cli import terminal

    argv = list(sys.argv[1:] if argv is None else argv)
    terminal.prepare_streams()
    with terminal.interruptible() as signals:
        try:
            return _run(argv)
        except BaseException as error:
            if signals or isinstance(error, KeyboardInterrupt):
                terminal.complain(terminal.INTERRUPTED)
                terminal.detach()
                return 128 + (signals[0] if signals else 2)
            raise


def _run(argv: list[str]) -> int:
    from credibly.cli import terminal
    from credibly.cli.command import build_parser, resolve, stdout_for_dash, with_named_readers
    from credibly.cli.errors import OUT_OF_MEMORY, in_flags, sentence
    from credibly.memory_limits import lacks_memory

    wanted = argv[:1] if argv[:1] and argv[0] in COMMANDS else COMMANDS
    modules = {name: import_module(module_name(name)) for name in wanted}
    classes = {name: with_named_readers(each.Options, argv) for name, each in modules.items()}
    named = any(text == "--config" or text.startswith("--config=") for text in argv)
    parser = build_parser(classes, file_may_complete=named)
    arguments = vars(parser.parse_args(argv))
    command = arguments.pop("command", None)
    if command is None:
        parser.print_help()
        return 0
    from credibly.checks import InputError

    module, options = modules[command], classes[command]

    def say(text: str) -> None:
        terminal.complain(f"credibly {command}: {in_flags(text, options, arguments)}")

    with terminal.logs(arguments.pop("log_level", None)) as log:
        try:
            given = resolve(options, arguments)
            log.info("%s %s", command, arguments)
            with terminal.plain_warnings(say), stdout_for_dash(given) as ready:
                code = module.run(ready) or 0
            sys.stdout.flush()  # a closed pipe shows here, before the exit code is decided
            log.info("%s ends with exit code %s", command, code)
            return code
        except Exception as error:
            if lacks_memory(error) and not isinstance(error, InputError):
                clear_frames(error.__traceback__)  # they refer to the objects that fill the memory
                terminal.complain(f"credibly {command}: {OUT_OF_MEMORY}")
                return 2
            if not isinstance(error, (InputError, OSError, UnicodeEncodeError)):
                raise
            if isinstance(error, BrokenPipeError) and terminal.reader_is_gone():
                return 0  # the reader, such as `head`, has stopped
            log.debug("where it was refused", exc_info=True)
            say(sentence(error))
            _drop_unwritable_output()
            return 2


def module_name(command: str) -> str:
    """Return the module of a command; Python keywords get an underscore at the end."""
    return f"credibly.cli.{command}_" if iskeyword(command) else f"credibly.cli.{command}"


def _drop_unwritable_output() -> None:
    """Discard output that stdout cannot take (a full disk). Otherwise Python's exit would retry."""
    from credibly.cli import terminal

    try:
        sys.stdout.flush()
    except (OSError, ValueError):
        terminal.detach()
