"""Arguments and names of files that nobody expects: one sentence in flags, exit code 2."""

from __future__ import annotations

import os

import numpy as np
import pytest

import credibly as cr
from credibly.checks import nearest
from credibly.cli import main

PROBABILITIES = np.random.default_rng(0).random((40, 2))


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """An empty working folder with predictions and a link to itself."""
    monkeypatch.chdir(tmp_path)
    cr.Predictions.from_arrays(
        probabilities=PROBABILITIES, targets=(PROBABILITIES > 0.5).astype(int), labels=["a", "b"]
    ).write("p.parquet")
    os.symlink("loop.csv", "loop.csv")
    np.savez("text.npz", features=PROBABILITIES, targets=np.full((40, 2), "a"))
    np.savez("split.npz", features=PROBABILITIES, targets=np.eye(2)[[0] * 40], split=[7] * 40)
    (tmp_path / "nothing.csv").write_text("id\nx\n")
    (tmp_path / "utf16.csv").write_text("id,a\nx,0.1\n", "utf-16")
    return tmp_path


SETS = ("sets", "p.parquet", "--out", "s.parquet")
IMPORT = ("--as", "probabilities", "--out", "o.parquet")
REFUSED = {
    "a link to itself": (("import", "loop.csv", *IMPORT), "there is no file loop.csv"),
    "an endless F score": ((*SETS, "--best-f", "1e308"), "--best-f must lie between"),
    "half of nothing": (
        (*SETS, "--average-size", "1", "--fraction", "nan"),
        "--fraction must lie in (0, 1); got nan",
    ),
    "zero is given": ((*SETS, "--coverage", "0"), "--coverage must lie in (0, 1); got 0.0"),
    "the level of recall": ((*SETS, "--recall", "1"), "--recall must lie in (0, 1); got 1.0"),
    "more than all": ((*SETS, "--top-k", "9"), "--top-k must be at most the number of labels, 2"),
    "no host": (("serve", "p.parquet", "--host", ""), "--host must not be empty"),
    "no file": (("evaluate", ""), "PREDICTIONS must not be empty"),
    "one name of the file": (
        ("train", "text.npz", "--out", "r"),
        "train: text.npz: `targets` ",
    ),
    "plain numbers": (("train", "split.npz", "--out", "r"), "; got 7 at row 0"),
    "no column": (("train", "nothing.csv", "--labels", "a", "--out", "r"), "There are none."),
    "UTF-16, data": (("train", "utf16.csv", "--labels", "a", "--out", "r"), "must be UTF-8"),
    "UTF-16, import": (
        ("import", "utf16.csv", *IMPORT),
        "must be UTF-8 text; it is UTF-16",
    ),
    "text for a number": (("audit", "asl(gamma_neg='x')"), "must be a finite number of at least 0"),
    "a list for a number": (("audit", "asl(gamma_neg=[1])"), "must be a finite number of at least"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_a_strange_argument_is_refused_in_one_sentence(case, folder, capsys):
    argv, words = REFUSED[case]
    assert main(argv) == 2
    said = capsys.readouterr().err
    assert words in said
    assert len(said.splitlines()) == 1


@pytest.mark.parametrize("option", ["out", "image_folder", "predictions"])
def test_no_name_of_a_file_has_a_null_character(option, folder, capsys):
    value = r'["a\u0000b"]' if option == "predictions" else r'"a\u0000b"'
    (folder / "x.toml").write_text(f"{option} = {value}")
    assert main(["report", *(["p.parquet"] * (option == "out")), "--config", "x.toml"]) == 2
    assert f"'{option}' must not contain a null character" in capsys.readouterr().err


def test_a_row_of_many_labels_is_imported(folder):
    names = ",".join(f"a label with a long name {number}" for number in range(40_000))
    (folder / "wide.csv").write_text(f"id,{names}\nx,{','.join(['0.25'] * 40_000)}\n")
    rows = cr.Predictions.from_values("wide.csv", "probabilities")
    assert rows.probabilities.shape == (1, 40_000)


def test_long_names_are_shortened_in_hints():
    assert nearest("b", ["a" * 1_000_000]) == f"Known: {'a' * 80}…."


def test_only_the_name_that_is_no_text_is_shown(monkeypatch, capsys):
    names = "400\0cat/1.png\0cat/\udcfe.png\0cat/2.png"
    monkeypatch.setattr("credibly.cli.check.run", lambda options: names.encode())
    assert main(["check", "images"]) == 2
    assert "got 'cat/\\udcfe.png'. Rename" in capsys.readouterr().err
