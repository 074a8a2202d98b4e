"""From dataclass to flags and a file and back; exit codes; an instant --help."""

from __future__ import annotations

import json
import resource
import subprocess
import sys
import types
from dataclasses import dataclass
from importlib import import_module
from typing import Any, Literal

import numpy as np
import pytest

import credibly.cli
from credibly import InputError
from credibly.cli import COMMANDS, main, module_name, terminal
from credibly.cli.command import build_parser, flags_of, option, resolve

HEAVY = ("torch", "numba", "matplotlib", "numpy", "pyarrow", "scipy", "sklearn", "duckdb", "rich")


@dataclass(frozen=True, kw_only=True)
class Options:
    """Try every kind of option: 100 % of them.

    More words.

    Args:
        paths: files
        size: a required number
        rows: a whole number
        names: a list
        kind: one of
            50 %
        seed: seed
        json: JSON
    """

    paths: tuple[str, ...] = option(positional=True)
    size: float
    rows: int | None = None
    names: tuple[str, ...] = ()
    kind: Literal["a", "b"] = "a"
    seed: int = 0
    json: bool = False


def parse(*argv: str) -> Any:
    named = "--config" in argv
    parser = build_parser({"try": Options}, file_may_complete=named)
    arguments = vars(parser.parse_args(["try", *argv]))
    arguments.pop("command")
    return resolve(Options, arguments)


@pytest.mark.parametrize("command", COMMANDS)
def test_every_flag_has_help(command):
    options = import_module(module_name(command)).Options
    assert [flag.shown for flag in flags_of(options) if not flag.help] == []


def test_flags_fill_the_fields():
    given = parse("x", "y", "--size", "2", "--names", "u,v", "--rows", "3", "--json", "--kind", "b")
    assert given == Options(
        paths=("x", "y"), size=2.0, names=("u", "v"), rows=3, json=True, kind="b"
    )
    assert parse("x", "--size", "2") == Options(paths=("x",), size=2.0)


def test_a_file_fills_the_same_fields_and_flags_win(tmp_path):
    config = tmp_path / "run.toml"
    config.write_text('paths = ["x"]\nsize = 3\nnames = ["u", "v"]\nseed = 5\njson = true\n')
    given = parse("--config", str(config), "--seed", "6")
    assert given == Options(paths=("x",), size=3.0, names=("u", "v"), seed=6, json=True)
    assert parse("z", "--config", str(config)).paths == ("z",)


BAD_FILES = {
    "misspelt": ("seeed = 1", r"unknown option 'seeed'. Did you mean 'seed'"),
    "text for a number": ('size = "3"', r"'size' must be a number; got \"3\""),
    "fraction for whole": ("rows = 2.5", r"'rows' must be a whole number; got 2.5"),
    "bool for a number": ("seed = true", r"'seed' must be a whole number; got true"),
    "number for a bool": ("json = 1", r"'json' must be true or false; got 1"),
    "wrong list": ("names = [1]", r"'names' must be a list of texts; got \[1\]"),
    "other choice": ('kind = "c"', r"'kind' must be one of a, b; got 'c'"),
    "table": ("[seed]\nx = 1", r"'seed' must be a whole number"),
    "not TOML": ("seed =", r"must be a TOML file"),
    "incomplete": ("seed = 1", r"`paths` must be given, as an argument or in .*run.toml"),
}


@pytest.mark.parametrize(("text", "message"), BAD_FILES.values(), ids=BAD_FILES.keys())
def test_a_bad_file_is_explained(text, message, tmp_path):
    config = tmp_path / "run.toml"
    config.write_text(text)
    with pytest.raises(InputError, match=message):
        parse("--config", str(config))


@pytest.mark.parametrize(
    "argv",
    [[], ["x"], ["--size", "1"], ["x", "--size", "big"], ["x", "--siz", "1"], ["x", "--kind", "c"]],
)
def test_a_bad_command_line_ends_with_2(argv, capsys):
    with pytest.raises(SystemExit) as stopped:
        parse(*argv)
    assert stopped.value.code == 2
    assert "error:" in capsys.readouterr().err


def _command(run: Any) -> Any:
    @dataclass(frozen=True, kw_only=True)
    class NoOptions:
        """Nothing."""

    return types.SimpleNamespace(Options=NoOptions, run=run)


def _raise(error: BaseException) -> Any:
    def run(options: Any) -> int:
        raise error

    return run


OUTCOMES = {
    "done": (lambda options: None, 0, ""),
    "own code": (lambda options: 7, 7, ""),
    "bad input": (_raise(InputError("x must hold.")), 2, "credibly try: x must hold.\n"),
    "no memory": (_raise(MemoryError()), 2, "credibly try: there is not enough memory"),
    "a pipe of its own": (_raise(BrokenPipeError(32, "Broken pipe")), 2, "credibly try: Broken"),
    "no file": (
        _raise(FileNotFoundError(2, "No such file", "f")),
        2,
        "credibly try: there is no file f.",
    ),
    "interrupted": (_raise(KeyboardInterrupt()), 130, "credibly: interrupted"),
}


@pytest.mark.parametrize(("run", "code", "words"), OUTCOMES.values(), ids=OUTCOMES.keys())
def test_exit_codes_and_one_sentence_on_stderr(run, code, words, monkeypatch, capsys):
    monkeypatch.setattr(credibly.cli, "COMMANDS", ("try",))
    monkeypatch.setattr(credibly.cli, "import_module", lambda name: _command(run))
    assert main(["try"]) == code
    shown = capsys.readouterr()
    assert words in shown.err
    assert shown.out == ""


def test_a_defect_is_not_hidden(monkeypatch):
    monkeypatch.setattr(credibly.cli, "COMMANDS", ("try",))
    monkeypatch.setattr(credibly.cli, "import_module", lambda name: _command(_raise(KeyError("x"))))
    with pytest.raises(KeyError):
        main(["try"])


@pytest.mark.skipif(sys.platform != "linux", reason="limits the address space")
@pytest.mark.parametrize(
    "error", ["SystemError('error return without exception set')", "KeyError()"]
)
@pytest.mark.parametrize(("left", "code"), [(2**24, 2), (2**30, 1)])
def test_an_error_where_memory_has_ended_says_so(error, left, code):
    program = (
        "import credibly.cli as c, types, dataclasses, resource\n"
        "O = dataclasses.make_dataclass('O', [], frozen=True)\n"
        "def run(options):\n"
        "    used = int(open('/proc/self/statm').read().split()[0]) * resource.getpagesize()\n"
        f"    resource.setrlimit(resource.RLIMIT_AS, (used + {left}, used + {left}))\n"
        f"    raise {error}\n"
        "c.COMMANDS = ('try',)\n"
        "c.import_module = lambda name: types.SimpleNamespace(Options=O, run=run)\n"
        "raise SystemExit(c.main(['try']))\n"
    )
    ended = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert ended.returncode == code
    assert ("Traceback" in ended.stderr) == (code == 1)
    assert ("not enough memory" in ended.stderr) == (code == 2)


def test_a_closed_pipe_is_no_error():
    program = (
        "import credibly.cli as c, types, dataclasses\n"
        "O = dataclasses.make_dataclass('O', [], frozen=True)\n"
        "def run(options):\n"
        "    for _ in range(100_000): print('x' * 100)\n"
        "c.COMMANDS = ('try',)\n"
        "c.import_module = lambda name: types.SimpleNamespace(Options=O, run=run)\n"
        "raise SystemExit(c.main(['try']))\n"
    )
    with subprocess.Popen(
        [sys.executable, "-c", program], stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as job:
        assert job.stdout is not None
        assert job.stderr is not None
        job.stdout.readline()
        job.stdout.close()
        assert job.wait() == 0
        assert job.stderr.read() == b""


def test_help_of_every_command_imports_nothing_heavy():
    program = (
        "import sys, io, contextlib\n"
        "from credibly.cli import main, COMMANDS\n"
        "for argv in [['--help'], ['--version'], *([name, '--help'] for name in COMMANDS)]:\n"
        "    with contextlib.suppress(SystemExit), contextlib.redirect_stdout(io.StringIO()):\n"
        "        main(argv)\n"
        f"print([name for name in {HEAVY!r} if name in sys.modules])\n"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert done.stdout.strip() == "[]", done.stdout + done.stderr


def test_help_takes_less_than_0_3_s_of_cpu():
    spent = []
    for _ in range(3):
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        subprocess.run(
            [sys.executable, "-m", "credibly", "--help"], check=True, capture_output=True
        )
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        spent.append(after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime)
    assert min(spent) < 0.3, spent


def test_help_names_every_command(capsys):
    assert main([]) == 0
    text = capsys.readouterr().out
    assert all(name in text for name in COMMANDS)


def test_tables_show_cells_as_they_are_and_cut_nothing(capsys):
    long = "x" * 300
    terminal.print_table("title", ["[bold]", "n"], [["[red]", 1], [long, float("nan")]])
    shown = capsys.readouterr().out
    assert "[bold]" in shown
    assert "[red]" in shown
    assert long in shown
    assert "\x1b" not in shown


def test_json_is_one_plain_document(capsys):
    terminal.print_json(
        {"a": np.float32(0.5), "b": np.array([1, 2]), "c": float("inf"), "狗": [np.nan, None, True]}
    )
    shown = capsys.readouterr().out
    assert json.loads(shown) == {"a": 0.5, "b": [1, 2], "c": None, "狗": [None, None, True]}


def test_progress_is_silent_where_nobody_watches(capsys):
    with terminal.progress("working", total=2) as advance:
        advance(1)
    shown = capsys.readouterr()
    assert (shown.out, shown.err) == ("", "")
