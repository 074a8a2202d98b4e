"""The command line: ``credibly COMMAND …``. One file per command.

A command module has a frozen dataclass ``Options`` (its docstring is the help text) and
``run(options) -> int | None``. Heavy imports go inside ``run``, so ``--help`` stays instant.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from importlib import import_module
from typing import Any

from credibly.cli._command import build_parser, resolve
from credibly.cli._errors import in_flags, sentence

# In the order of `credibly --help`.
COMMANDS: tuple[str, ...] = (
    "demo",
    "train",
    "predict",
    "evaluate",
    "calibrate",
    "sets",
    "search",
    "compare",
    "report",
    "serve",
    "audit",
    "export",
)


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command; the result is the exit code (0 done, 2 bad input, 130 interrupted)."""
    argv = list(sys.argv[1:] if argv is None else argv)
    modules = {name: import_module(f"credibly.cli.{name}") for name in COMMANDS}
    named = any(text == "--config" or text.startswith("--config=") for text in argv)
    parser = build_parser(modules, file_may_complete=named)
    arguments = vars(parser.parse_args(argv))
    command = arguments.pop("command", None)
    if command is None:
        parser.print_help()
        return 0
    from credibly.checks import InputError

    options: Any = None
    try:
        options = resolve(modules[command].Options, arguments)
        result = modules[command].run(options) or 0
        sys.stdout.flush()  # a closed pipe shows here, not after the exit code is decided
        return result
    except BrokenPipeError:
        # The reader (`head`) has enough. Python's exit would flush once more and complain.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except (InputError, OSError, MemoryError) as error:
        text = sentence(error)
        print(
            f"credibly {command}: {in_flags(text, options) if options else text}", file=sys.stderr
        )
        return 2
    except KeyboardInterrupt:
        print(f"\ncredibly {command}: interrupted", file=sys.stderr)
        return 130
