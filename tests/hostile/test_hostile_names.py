"""Names that programs take for something else (formulas, emoji, markup), and private paths."""

from __future__ import annotations

import io
import itertools
import os
import re

import numpy as np
import pytest

import credibly as cr
from credibly.app.report import write as write_report
from credibly.cli import main, terminal
from credibly.files import append_lines, atomic_path, spreadsheet_cell, spreadsheet_text

STARTS = ("", "'", "''", "=", "+", "-", "@", "\t", "\r", "a", "1", "-1", "'-1", "'=")
TEXTS = sorted({"".join(parts) for parts in itertools.product(STARTS, STARTS, ("", "x"))})


def test_different_texts_are_different_cells_and_come_back():
    cells = [spreadsheet_cell(text) for text in TEXTS]
    assert len(set(cells)) == len(TEXTS)
    assert [spreadsheet_text(cell) for cell in cells] == TEXTS


def test_no_cell_is_a_formula():
    for text in TEXTS:
        cell = spreadsheet_cell(text)
        number = re.fullmatch(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?", cell)
        assert number or not cell.startswith(("=", "+", "-", "@", "\t", "\r"))


def test_a_decision_hits_the_row_it_was_made_for(tmp_path):
    ids = ["=x", "'=x", "''=x", "x"]
    predictions = cr.Predictions.from_arrays(
        probabilities=np.full((4, 1), 0.99), targets=np.zeros((4, 1)), labels=["a"], ids=ids
    )
    cr.review.label_issues(predictions).write(tmp_path / "queue.csv")
    for id in ids:
        queue = (tmp_path / "queue.csv").read_text("utf-8").splitlines()
        cell = spreadsheet_cell(id)
        filled = [line + "1" if line.split(",")[1] == cell else line for line in queue]
        (tmp_path / "done.csv").write_text("\n".join(filled) + "\n", "utf-8")
        reviews = cr.review.read_reviews(tmp_path / "done.csv")
        assert [each.id for each in reviews] == [id]


NAMES = (":x:", ":smile:", "[red]a[/red]", "[/]", ":warning:")


def test_labels_are_shown_as_they_are(capsys):
    terminal.print_text(" ".join(NAMES))
    terminal.print_table("", ["label"], [[name] for name in NAMES])
    shown = capsys.readouterr().out
    assert all(shown.count(name) == 2 for name in NAMES)


def test_a_bar_shows_names_as_they_are(capsys, monkeypatch):
    class Terminal(io.StringIO):
        def isatty(self):
            return True

    stream = Terminal()
    monkeypatch.setattr("sys.stderr", stream)
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", "200")
    for name in NAMES:
        with terminal.progress(name, total=1) as advance:
            advance(1)
        assert name in stream.getvalue()


def test_work_that_takes_long_writes_lines_where_there_is_no_terminal(capsys, monkeypatch):
    monkeypatch.setattr(terminal, "LINE_SECONDS", 0.01)
    said = ""
    with terminal.progress("reading p.parquet", total=4) as advance:
        advance(1)
        while said.count("\n") < 2:
            said += capsys.readouterr().err
    assert "reading p.parquet: 25%, 0 seconds" in said
    with terminal.progress("reading", total=4, quiet=True) as advance:
        advance(1)
    assert capsys.readouterr().err == ""


def test_the_time_left_is_that_of_the_work_of_this_process(capsys, monkeypatch):
    monkeypatch.setattr(terminal, "LINE_SECONDS", 0.01)
    said, now = "", [0.0]
    monkeypatch.setattr(terminal.time, "monotonic", lambda: now[0])
    with terminal.progress("training", total=100) as advance:
        advance(50)  # done before an interruption
        now[0] = 20.0
        advance(10)
        while "60%" not in said:
            said += capsys.readouterr().err
    assert "training: 60%, 20 seconds, about 80 seconds left\n" in said


def test_a_short_evaluation_writes_no_line(tmp_path, capsys):
    predictions = cr.Predictions.from_arrays(
        probabilities=np.linspace(0, 1, 20)[:, None],
        targets=np.arange(20)[:, None] % 2,
        labels=["a"],
    )
    predictions.write(tmp_path / "p.parquet")
    assert main(["evaluate", str(tmp_path / "p.parquet")]) == 0
    assert capsys.readouterr().err == ""


def test_a_report_holds_no_folder_of_this_machine(tmp_path):
    predictions = cr.Predictions.from_arrays(
        probabilities=np.linspace(0, 1, 40).reshape(20, 2),
        targets=np.arange(40).reshape(20, 2) % 2,
        labels=["a", "b"],
        metadata={"data": f"imagefolder:{tmp_path}/secret/photos", "loss": "bce"},
    )
    folder = tmp_path / "home" / "run"
    folder.mkdir(parents=True)
    predictions.write(folder / "predictions.parquet")
    write_report([folder / "predictions.parquet"], tmp_path / "report.html", resamples=5)
    page = (tmp_path / "report.html").read_text("utf-8")
    assert str(tmp_path) not in page
    assert "run/predictions.parquet" in page
    assert "secret/photos" in page


@pytest.mark.parametrize("broken", ["fsync", "replace"])
def test_an_error_of_the_disk_names_the_file(broken, tmp_path, monkeypatch, capsys):
    def fail(*_, **__):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, broken, fail)
    with (
        pytest.raises(OSError, match=r"No space left.*p\.txt") as caught,
        atomic_path(tmp_path / "p.txt") as beside,
    ):
        beside.write_text("x")
    assert caught.value.filename == str(tmp_path / "p.txt")
    if broken == "fsync":
        with pytest.raises(OSError, match=r"No space left.*log\.jsonl"):
            append_lines(tmp_path / "log.jsonl", ["{}"])
