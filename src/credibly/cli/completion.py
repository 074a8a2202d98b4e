"""``credibly completion bash``: a script that completes commands and flags in a shell."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib import import_module
from typing import Any

from credibly.cli.command import flag_of, option

SHELLS = ("bash", "zsh", "fish")


@dataclass(frozen=True, kw_only=True)
class Options:
    """Print a script that completes commands, flags and their values in a shell.

    Examples:
      credibly completion bash > ~/.local/share/bash-completion/completions/credibly
      credibly completion zsh > "${fpath[1]}/_credibly"
      credibly completion fish > ~/.config/fish/completions/credibly.fish
    """

    shell: str = option(help="bash, zsh or fish", positional=True, choices=SHELLS, metavar="SHELL")


def run(options: Options) -> int:
    from credibly.cli.terminal import write

    makers = {"bash": bash, "zsh": zsh, "fish": fish}
    write(makers[options.shell](all_flags()))
    return 0


@dataclass(frozen=True)
class Flag:
    """A flag of a command: its help text, and the values that it may have."""

    name: str
    help: str
    values: tuple[str, ...]


def all_flags() -> dict[str, tuple[str, list[Flag]]]:
    """Return the summary and the flags of every command."""
    from credibly.cli import COMMANDS, module_name

    found = {}
    for command in COMMANDS:
        options: Any = import_module(module_name(command)).Options
        summary = (options.__doc__ or "").strip().splitlines()[0]
        found[command] = (summary, [_flag(field) for field in dataclasses.fields(options)])
    return found


def _flag(field: dataclasses.Field[object]) -> Flag:
    name = "" if field.metadata.get("positional") else flag_of(field)
    choices: Sequence[object] = field.metadata.get("choices") or ()
    return Flag(name, str(field.metadata.get("help", "")), tuple(map(str, choices)))


def _names(flags: Sequence[Flag]) -> list[str]:
    return [*(flag.name for flag in flags if flag.name), "--config", "--help"]


def bash(commands: Mapping[str, tuple[str, list[Flag]]]) -> str:
    """Return the script for bash."""
    cases, values = [], []
    for command, (_, flags) in commands.items():
        cases.append(f"    {command}) words='{' '.join(_names(flags))}' ;;")
        for flag in flags:
            if flag.values and flag.name:
                values.append(f"    {command}:{flag.name}) words='{' '.join(flag.values)}' ;;")
            elif flag.values:
                cases[-1] = f"    {command}) words='{' '.join([*flag.values, *_names(flags)])}' ;;"
    return f"""# Completion of credibly for bash.
_credibly() {{
  local word="${{COMP_WORDS[COMP_CWORD]}}" before="${{COMP_WORDS[COMP_CWORD-1]}}" words=''
  if [ "$COMP_CWORD" -eq 1 ]; then
    COMPREPLY=($(compgen -W '{" ".join(commands)} --help --version' -- "$word"))
    return
  fi
  case "${{COMP_WORDS[1]}}:$before" in
{chr(10).join(values)}
  esac
  if [ -n "$words" ]; then
    COMPREPLY=($(compgen -W "$words" -- "$word"))
    return
  fi
  case "${{COMP_WORDS[1]}}" in
{chr(10).join(cases)}
  esac
  if [[ "$word" == -* ]] || [ "${{COMP_WORDS[1]}}" = completion ]; then
    COMPREPLY=($(compgen -W "$words" -- "$word"))
  else
    COMPREPLY=($(compgen -f -- "$word"))
  fi
}}
complete -o filenames -F _credibly credibly
"""


def zsh(commands: Mapping[str, tuple[str, list[Flag]]]) -> str:
    """Return the script for zsh."""
    listed = "\n".join(
        f"    {_quoted(f'{name}:{_zsh(summary)}')}" for name, (summary, _) in commands.items()
    )
    cases = []
    for command, (_, flags) in commands.items():
        specs = [_quoted(_zsh_spec(flag)) for flag in flags if flag.name]
        last = [flag for flag in flags if not flag.name and flag.values]
        rest = f"'*:value:({' '.join(last[0].values)})'" if last else "'*:file:_files'"
        cases.append(f"    {command}) _arguments {' '.join(specs)} {rest} ;;")
    return f"""#compdef credibly
# Completion of credibly for zsh.
_credibly() {{
  local -a commands
  commands=(
{listed}
  )
  if (( CURRENT == 2 )); then
    _describe 'command' commands
    return
  fi
  local command="$words[2]"
  shift words
  (( CURRENT-- ))
  case "$command" in
{chr(10).join(cases)}
  esac
}}
if [ "$funcstack[1]" = "_credibly" ]; then _credibly "$@"; else compdef _credibly credibly; fi
"""


def _zsh(text: str) -> str:
    return text.replace("\\", "").replace("[", "(").replace("]", ")").replace(":", "\\:")


def _zsh_spec(flag: Flag) -> str:
    value = f":value:({' '.join(flag.values)})" if flag.values else ":value:_files"
    return f"{flag.name}[{_zsh(flag.help)}]{value}"


def fish(commands: Mapping[str, tuple[str, list[Flag]]]) -> str:
    """Return the script for fish."""
    lines = ["# Completion of credibly for fish."]
    for command, (summary, flags) in commands.items():
        lines.append(
            f"complete -c credibly -f -n __fish_use_subcommand -a {command} -d {_quoted(summary)}"
        )
        here = f"-n '__fish_seen_subcommand_from {command}'"
        for flag in flags:
            values = f" -x -a {_quoted(' '.join(flag.values))}" if flag.values else ""
            name = f" -l {flag.name.removeprefix('--')}" if flag.name else ""
            if name or values:
                lines.append(f"complete -c credibly {here}{name}{values} -d {_quoted(flag.help)}")
    return "\n".join(lines) + "\n"


def _quoted(text: str) -> str:
    return "'" + text.replace("'", "’") + "'"
