"""Closed and narrow streams, odd names, signals: no traceback, the right exit code."""

from __future__ import annotations

import csv
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

from credibly import InputError, Predictions, decide
from credibly.cli import main, terminal

HOSTILE = [
    "\x1b[31mred",
    "a\nb",
    "back\x08",
    "c1\x9b2J",
    "bidi\u202etxt",
    "=cmd()",
    "狗",
    "del\x7f",
]

PROGRAM = """
import sys, types, dataclasses, time
import credibly.cli as cli
from credibly.cli import terminal
O = dataclasses.make_dataclass('O', [], frozen=True)
def run(options):
    {body}
cli.COMMANDS = ('try',)
cli.import_module = lambda name: types.SimpleNamespace(Options=O, run=run)
raise SystemExit(cli.main(['try']))
"""


def shell(command: str, **environment: str) -> subprocess.CompletedProcess[bytes]:
    return subprocess.run(
        ["bash", "-c", command], capture_output=True, env={**os.environ, **environment}, timeout=120
    )


def program(tmp_path: Path, body: str) -> str:
    path = tmp_path / "program.py"
    path.write_text(PROGRAM.format(body=body), encoding="utf-8")
    return f"{sys.executable} {path}"


TABLE = "terminal.print_table('a – b', ['–', '狗'], [['±' * 90, float('nan')]] * 1000)"
JSON = "terminal.print_json({'狗–': '\\x9b\\u202e'})"


@pytest.mark.parametrize("body", [TABLE, JSON, "print('x' * 10**6)"])
@pytest.mark.parametrize("ending", ["| head -1", "| true", ">&-", "2>&-", ">&- 2>&-", "<&-"])
def test_closed_streams_are_no_error(body, ending, tmp_path):
    done = shell(f"set -o pipefail; {program(tmp_path, body)} {ending}")
    assert done.returncode == 0
    assert done.stderr == b""


def test_a_full_disk_behind_stdout_is_one_sentence(tmp_path):
    done = shell(f"{program(tmp_path, TABLE)} > /dev/full")
    assert done.returncode == 2
    assert done.stderr == b"credibly try: No space left on device\n"


@pytest.mark.parametrize("encoding", ["ascii", "latin-1", "utf-8"])
@pytest.mark.parametrize("body", [TABLE, JSON, "raise cli._errors.InputError('狗 – ±')"])
def test_any_encoding_of_the_terminal_will_do(encoding, body, tmp_path):
    body = body.replace("cli._errors.InputError", "__import__('credibly').InputError")
    done = shell(program(tmp_path, body), PYTHONIOENCODING=encoding, LC_ALL="C")
    assert done.returncode == (2 if "raise" in body else 0)
    assert b"Traceback" not in done.stderr
    if body == JSON:
        assert json.loads(done.stdout.decode(encoding)) == {"狗–": "\x9b\u202e"}
        assert b"\x9b" not in done.stdout


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
@pytest.mark.parametrize(
    "body",
    [
        "print('ready', flush=True); time.sleep(60)",
        # A library that turns an interrupt of its own import into another exception.
        "print('ready', flush=True)\n    try: time.sleep(60)\n    except BaseException: 1 / 0",
    ],
)
def test_signals_end_a_command_without_a_traceback(number, code, body, tmp_path):
    command = program(tmp_path, body).split()
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as job:
        assert job.stdout is not None
        assert job.stderr is not None
        job.stdout.readline()
        job.send_signal(number)
        assert job.wait(30) == code
        assert job.stderr.read().strip() == b"credibly: interrupted"


@pytest.mark.parametrize("delay", [0.3, 0.6, 1.0, 1.5])
def test_an_interrupt_while_libraries_are_imported(delay):
    command = [sys.executable, "-m", "credibly", "audit", "spa"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as job:
        time.sleep(delay)
        job.send_signal(signal.SIGINT)
        _, errors = job.communicate(timeout=60)
    if job.returncode == -signal.SIGINT:
        pytest.skip("Python itself had not started yet")
    if job.returncode == 0:
        pytest.skip("the command had ended before the signal came")
    assert job.returncode == 130
    assert b"Traceback" not in errors


@pytest.mark.parametrize("text", HOSTILE)
def test_control_characters_are_escaped(text, capsys):
    terminal.print_table(text, [text], [[text]])
    terminal.print_text(text)
    shown = capsys.readouterr().out
    for character in "\x1b\x08\x9b\u202e\x7f":
        assert character not in shown


def test_letters_and_line_breaks_are_not_escaped(capsys):
    terminal.print_text("狗 – é\nb\x1b")
    assert capsys.readouterr().out == "狗 – é\nb\\x1b\n"


def hostile_file(path: Path) -> Path:
    rng = np.random.default_rng(0)
    p = rng.random((40, len(HOSTILE))).astype(np.float32)
    ids = [f"{HOSTILE[row % len(HOSTILE)]}{row}" for row in range(40)]
    targets = (rng.random(p.shape) < p).astype(np.int8)
    Predictions.from_arrays(probabilities=p, targets=targets, labels=HOSTILE, ids=ids).write(path)
    return path


def test_hostile_labels_and_ids_never_reach_the_terminal_raw(tmp_path, capsys):
    path = str(hostile_file(tmp_path / "p.parquet"))
    out = str(tmp_path / "sets.csv")
    for argv in (
        ["evaluate", path, "--by-label"],
        ["evaluate", path, "--by-label", "--json"],
        ["search", path, "+狗", "--explain"],
        ["search", path, "+狗", "--json"],
        ["search", path, "+\x1b[31m"],
        ["sets", path, "--top-k", "2", "--out", out],
        ["sets", path, "--top-k", "2", "--out", "\x1b[31m.txt"],
    ):
        main(argv)
        shown = capsys.readouterr()
        for character in "\x1b\x08\x9b\u202e\x7f":
            assert character not in shown.out + shown.err, argv


def test_csv_cells_are_no_formulas(tmp_path):
    ids = ["=1+1", "+a", "-b", "@c", "\tx", "-5", "+1e3", "plain"]
    path = tmp_path / "p.parquet"
    Predictions.from_arrays(probabilities=np.full((8, 1), 0.5), labels=["=a"], ids=ids).write(path)
    from credibly.workflows import write_sets

    write_sets(path, decide.TopK(1), tmp_path / "sets.csv")
    with (tmp_path / "sets.csv").open(newline="", encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    assert [row["id"] for row in rows] == ["'=1+1", "'+a", "'-b", "'@c", "'\tx", *ids[5:]]
    assert not any(row["labels"].startswith(("=", "+", "-", "@")) for row in rows)


def test_file_names_that_are_no_text(tmp_path, capfd):
    folder = os.fsencode(tmp_path) + b"/\xff\xfe"
    os.mkdir(folder)
    name = os.fsdecode(folder)
    good = str(hostile_file(tmp_path / "p.parquet"))
    odd = f"{name}/p.parquet"
    assert main(["sets", good, "--top-k", "1", "--out", f"{name}/sets.csv"]) == 0
    assert main(["evaluate", f"{name}/nowhere.parquet"]) == 2
    Path(odd).write_bytes(Path(good).read_bytes())
    capfd.readouterr()
    for argv in (["evaluate", odd], ["evaluate", odd, "--json"], ["search", odd, "+狗"]):
        code = main(argv)
        shown = capfd.readouterr()
        assert code in (0, 2)
        assert (shown.err == "") == (code == 0)
        assert shown.err.count("\n") == (1 if code else 0)


MESSAGES = {
    "`false_alarms` must be above 0.": "--false-alarms must be above 0.",
    '`against="signed"` or `against="unknown"`.': "--against signed or --against unknown.",
    "`path` must agree.": "PATH must agree.",
    "`targets` stay, and `loss.link(x)` too.": "`targets` stay, and `loss.link(x)` too.",
    "x.npz: `against` is an array here.": "x.npz: `against` is an array here.",
}


@pytest.mark.parametrize(("text", "expected"), MESSAGES.items())
def test_errors_name_flags(text, expected, monkeypatch, capsys):
    def refuse(options):
        raise InputError(text)

    monkeypatch.setattr("credibly.cli.check.run", refuse)
    assert main(["check", "x.npz"]) == 2
    assert capsys.readouterr().err == f"credibly check: {expected}\n"


TEXTS = {
    "sets --top-k 1": "id,labels,probabilities,held_out\n",
    "review --format label-studio": "[",
    "report --resamples 2": "<!doctype html>",
}


@pytest.mark.parametrize("line", TEXTS)
def test_a_dash_prints_what_would_be_written(line, tmp_path, capsys):
    path = str(hostile_file(tmp_path / "p.parquet"))
    command, *rest = line.split()
    assert main([command, path, *rest, "--out", "-"]) == 0
    assert capsys.readouterr().out.lower().startswith(TEXTS[line])
    assert main([command, path, *rest, "--out", "-", "--json"]) == 2
    assert "--json also writes there" in capsys.readouterr().err
    assert [each.name for each in tmp_path.iterdir()] == ["p.parquet"]


def test_logs_say_what_was_asked_for_and_where_it_was_refused(tmp_path, capsys):
    path = str(hostile_file(tmp_path / "p.parquet"))
    assert main(["evaluate", path, "--min-count", "3", "-v"]) == 0
    assert "INFO credibly: evaluate {'predictions'" in capsys.readouterr().err
    assert main(["evaluate", "nowhere.parquet", "--log-level", "debug"]) == 2
    shown = capsys.readouterr().err
    assert "Traceback" in shown
    assert shown.splitlines()[-1].startswith("credibly evaluate: ")


@pytest.mark.parametrize(
    ("argv", "hint"),
    [
        (["trian"], "Did you mean train?"),
        (["train", "digits", "--out", "x", "--epoch", "3"], "Did you mean --epochs?"),
        (["sets", "x", "--averge-size=3", "--out", "y"], "Did you mean --average-size?"),
        (["train", "digits", "--out", "x", "--optimizer", "adamW"], "choose from 'adamw', 'adam'"),
        (["evaluate", "x", "--\x1b[31m"], "unrecognized arguments: --\\x1b[31m"),
    ],
)
def test_misspelt_commands_and_flags_get_a_suggestion(argv, hint, capsys):
    with pytest.raises(SystemExit) as ended:
        main(argv)
    assert ended.value.code == 2
    shown = capsys.readouterr()
    assert hint in shown.err
    assert (shown.out, shown.err.count("\n")) == ("", 1)


ABSURD = [
    "evaluate x --bins 1000000000",
    "evaluate x --bins 0",
    "evaluate x --seed -1",
    "serve x --port 99999",
    "serve x --port -1",
    "report x --resamples 1000000000000",
    "audit bce --num-labels 1000000000000",
    "search x dog --top 0",
    "predict run digits --out x --shards 1000000000",
    "compare digits --out x --seeds 100000000",
    "compare digits --out x --jobs 100000",
    "demo --rows 1000000000000",
    "train digits --out x --hidden 2147483648",
    "train digits --out x --batch-size 1000000000000",
    "train digits --out x --image-size 10000000",
    "train digits --out x --workers 1000000",
    "train digits --out x --epochs 999999999999",
]


@pytest.mark.parametrize("line", ABSURD)
def test_absurd_values_are_one_sentence(line, capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert main(line.split()) == 2
    shown = capsys.readouterr()
    flag = next(word for word in line.split() if word.startswith("--") and word != "--out")
    assert f"{flag} must" in shown.err
    assert (shown.out, shown.err.count("\n")) == ("", 1)
    assert not any(tmp_path.iterdir())
