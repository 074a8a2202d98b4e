"""What the papers print: every call of the 81 rows can be made, every test they name exists."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest
import torch
from benchmarks import paper_figures
from benchmarks.claims.page import DOCS, PAGES, printed

import credibly as cr
from credibly.data.readers import all_readers

ROOT = Path(__file__).parents[2]
ROWS = [row for rows in printed().values() for row in rows]
CALLS = sorted({call for row in ROWS for call in re.findall(r"`(cr\.[^`]*)`", row[1])})
COMMANDS = sorted({call for row in ROWS for call in re.findall(r"`(credibly [^`]*)`", row[1])})
KINDS = sorted({kind for row in ROWS for kind in re.findall(r"`([\w+]+):`", row[1])})
OUT = {"train": ["--out", "run"]}
TESTS = sorted({row[2] for row in ROWS})


def test_every_printed_thing_has_a_call_and_a_test_and_stands_on_its_page():
    assert len(ROWS) == 81
    for paper, rows in printed().items():
        text = (ROOT / DOCS / f"{PAGES[paper]}.md").read_text(encoding="utf-8")
        for item, call, test, differs in rows:
            assert call.startswith("`")
            assert f"| {item} | {call} | `{test}` | {differs or 'as printed'} |" in text


@pytest.mark.parametrize("call", CALLS)
def test_a_call_on_the_page_can_be_made(call, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    rng = np.random.default_rng(0)
    probabilities = rng.random((60, 5))
    targets = (rng.random((60, 5)) < probabilities).astype(np.int8)
    cr.Predictions.from_arrays(
        probabilities=probabilities[:, :3], labels=["fork", "apple", "knife"]
    ).write("p.parquet")
    given = {
        "cr": cr,
        "scores": torch.randn(60, 5),
        "rates": torch.rand(60, 5),
        "targets": torch.from_numpy(targets),
        "probabilities": torch.from_numpy(probabilities),
        "sets": torch.from_numpy(probabilities > 0.5),
        "counts": np.array([3, 30, 50, 200, 400]),
    }
    eval(call, given)


@pytest.mark.parametrize("command", COMMANDS)
def test_a_command_on_the_page_parses(command):
    from importlib import import_module

    from credibly.cli import COMMANDS, module_name
    from credibly.cli.command import build_parser, with_named_readers

    argv = [*command.split()[1:], *OUT.get(command.split()[1], [])]
    classes = {name: import_module(module_name(name)).Options for name in COMMANDS}
    parser = build_parser({name: with_named_readers(classes[name], argv) for name in classes})
    arguments = vars(parser.parse_args(argv))
    if preset := arguments.get("preset"):
        assert cr.papers.preset(preset)
    data = str(arguments.get("data", ""))
    if ":" in data:
        assert data.partition(":")[0] in all_readers()


@pytest.mark.parametrize("kind", KINDS)
def test_a_kind_of_data_on_the_page_has_a_reader(kind):
    assert kind in all_readers()


@pytest.mark.parametrize("name", TESTS)
def test_a_test_on_the_page_exists(name):
    file, _, function = name.partition("::")
    path = ROOT / file if file.startswith("tests/") else Path(__file__).parent / file
    assert path.exists(), path
    assert f"def {function}(" in path.read_text(encoding="utf-8")


def test_the_figures_of_the_papers_stand_on_their_page():
    text = paper_figures.PAGE.read_text(encoding="utf-8")
    assert text == paper_figures.page(), "run python -m benchmarks.paper_figures"
    for each in paper_figures.FIGURES:
        picture = (paper_figures.IMAGES / f"{each.file}.svg").read_text(encoding="utf-8")
        assert each.title in picture
        compile(each.lines, each.file, "exec")
