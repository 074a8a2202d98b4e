"""``credibly completion bash``: a script that completes commands, flags and values in a shell."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from importlib import import_module

from credibly.cli.command import Flag, flags_of, option

WORDS = "CREDIBLY_WORDS"
"""Environment variable in which a script sends the words up to the cursor, each with an end."""

SCRIPTS = {
    "bash": """# Completion of credibly for bash.
_credibly() {
  local IFS=$'\\n' words
  words="$(printf '%s\\037' "${COMP_WORDS[@]:1:COMP_CWORD}")"
  COMPREPLY=($(CREDIBLY_WORDS="$words" credibly completion bash 2>/dev/null | cut -f1))
  if [ ${#COMPREPLY[@]} -eq 0 ]; then
    COMPREPLY=($(compgen -f -- "${COMP_WORDS[COMP_CWORD]}"))
  fi
}
complete -o filenames -F _credibly credibly
""",
    "zsh": """#compdef credibly
# Completion of credibly for zsh.
_credibly() {
  local -a found
  local typed="$(printf '%s\\037' "${(@)words[2,CURRENT]}")"
  found=(${(f)"$(CREDIBLY_WORDS="$typed" credibly completion zsh 2>/dev/null | cut -f1)"})
  if (( $#found )); then compadd -- $found; else _files; fi
}
if [ "$funcstack[1]" = "_credibly" ]; then _credibly "$@"; else compdef _credibly credibly; fi
""",
    "fish": """# Completion of credibly for fish.
function __credibly
  set -l typed (commandline -opc) "$(commandline -ct)"
  set -lx CREDIBLY_WORDS (printf '%s\\037' $typed[2..])
  credibly completion fish 2>/dev/null
end
complete -c credibly -a '(__credibly)'
""",
}
SHELLS = tuple(SCRIPTS)


@dataclass(frozen=True, kw_only=True)
class Options:
    """Print a completion script for bash, zsh or fish.

    Examples:
      credibly completion bash > ~/.local/share/bash-completion/completions/credibly
      credibly completion zsh > "${fpath[1]}/_credibly"
      credibly completion fish > ~/.config/fish/completions/credibly.fish

    Args:
        shell: bash, zsh or fish
    """

    shell: str = option(positional=True, choices=SHELLS)


def run(options: Options) -> None:
    from credibly.cli.terminal import write

    words = os.environ.get(WORDS)
    if words is None:
        write(SCRIPTS[options.shell])
    else:
        write("".join(f"{each}\n" for each in candidates(words.split("\x1f")[:-1])))


def candidates(words: Sequence[str]) -> list[str]:
    """Return completions of the last of the words after ``credibly``, with help after a tab.

    Example:
        >>> [each.partition("\\t")[0] for each in candidates(["train", "--loss", "sp"])]
        ['spa']
    """
    from credibly.cli import COMMANDS, module_name

    *before, last = words or [""]
    if not before:
        modules = {name: import_module(module_name(name)) for name in COMMANDS}
        known = {name: (each.Options.__doc__ or "").strip() for name, each in modules.items()}
        return _matching({**known, "--help": "", "--version": ""}, last)
    if before[0] not in COMMANDS:
        return []
    every = flags_of(import_module(module_name(before[0])).Options)
    flags = {each.flag: each for each in every if not each.positional}
    if before[-1] in flags:
        return _matching(dict.fromkeys(_values(flags[before[-1]]), ""), last)
    named = {name: each.help for name, each in flags.items()}
    if last.startswith("-"):
        return _matching({**named, "--config": "TOML file with any of these options"}, last)
    positional = [value for each in every if each.positional for value in _values(each)]
    return _matching(dict.fromkeys(positional, ""), last)


def _values(flag: Flag) -> Iterable[str]:
    """Return the possible values of a flag, if they are known."""
    from credibly import names

    if flag.name == "preset":
        from credibly.papers import PRESETS

        return PRESETS
    known: dict[str, Iterable[str]] = {
        "loss": names.LOSSES,
        "losses": names.LOSSES,
        "model": (*names.MODELS, *names.MODEL_PREFIXES),
        "data": ("digits", "synthetic", *(f"{kind}:" for kind in names.READERS)),
    }
    return map(str, flag.choices or known.get(flag.name, ()))


def _matching(known: dict[str, str], start: str) -> list[str]:
    found = {name: text for name, text in known.items() if name.startswith(start)}
    return [f"{name}\t{text.partition(chr(10))[0]}" for name, text in found.items()]
