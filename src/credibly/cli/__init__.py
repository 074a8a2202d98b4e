"""The command line: ``credibly COMMAND …``. One file a command; adding one is adding its file.

A command module has a frozen dataclass ``Options`` (its docstring is the help text) and
``run(options) -> int | None``. Heavy imports go inside ``run``, so ``--help`` stays instant.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from importlib import import_module

from credibly.cli._command import build_parser, resolve

# In the order of `credibly --help`.
COMMANDS: tuple[str, ...] = ()


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command; the result is the exit code (0 done, 2 bad input, 130 interrupted)."""
    modules = {name: import_module(f"credibly.cli.{name}") for name in COMMANDS}
    parser = build_parser(modules)
    arguments = vars(parser.parse_args(argv))
    command = arguments.pop("command", None)
    if command is None:
        parser.print_help()
        return 0
    from credibly._checks import InputError

    try:
        return modules[command].run(resolve(modules[command].Options, arguments)) or 0
    except (InputError, OSError) as error:
        print(f"credibly {command}: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print(f"\ncredibly {command}: interrupted", file=sys.stderr)
        return 130
