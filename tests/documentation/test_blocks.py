"""Every code block of the documentation is run, or the page says why not."""

from __future__ import annotations

import os
import re
import runpy
import sys
from pathlib import Path
from typing import Any

import pytest

sys.path.insert(0, str(Path(__file__).parent))
sys.path.insert(0, str(Path(__file__).parents[1] / "users"))
import blocks
import tasks

from credibly import Predictions, compare
from credibly.cli import COMMANDS, demo, main

ROOT = Path(__file__).parents[2]
SETUP = Path(__file__).parent / "pages"
"""``world.py`` is run before a page of docs/, then the page's own file where there is one."""

PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", ROOT / "SECURITY.md"]
PAGES += sorted(path for path in (ROOT / "docs").rglob("*.md"))
BLOCKS = {str(path.relative_to(ROOT)): blocks.read(path) for path in PAGES}
ON_THEIR_OWN = ("README.md", "docs/start.md", "docs/tutorials/")
"""Pages whose code must run as it stands, without a setup."""

REFRESH = os.environ.get("CREDIBLY_OUTPUTS") == "write"
"""Write what blocks print into the pages instead of comparing: `make outputs`."""


def _names(page: str) -> dict[str, Any]:
    if page.startswith(ON_THEIR_OWN):
        return {"__name__": "page"}
    names = runpy.run_path(str(SETUP / "world.py"))
    own = SETUP / f"{Path(page).stem}.py"
    return runpy.run_path(str(own), names) if own.exists() else names


@pytest.fixture(autouse=True)
def no_server_is_left():
    yield
    blocks.stop()


@pytest.mark.parametrize(
    "page", [page for page, found in BLOCKS.items() if any(b.is_run for b in found)]
)
@pytest.mark.filterwarnings("default")
def test_the_blocks_of_the_page_run(page, tmp_path, monkeypatch, capfd):
    monkeypatch.chdir(tmp_path)
    names = _names(page)
    path, outputs = ROOT / page, []
    for block in BLOCKS[page]:
        if not block.is_run:
            continue
        printed = blocks.run(block, names, page, lambda: "".join(capfd.readouterr()))
        if block.prints is None:
            continue
        outputs.append(printed)
        now = blocks.shown_lines(printed, block.limit)
        if not REFRESH:
            assert blocks.agrees(block.prints, now), f"{page}:{block.line}: `make outputs`\n{now}"
    for task in tasks.TASKS.get(page, ()):
        task(names)
    if REFRESH and outputs:
        text = path.read_text(encoding="utf-8")
        path.write_text(blocks.refreshed(text, outputs), encoding="utf-8")


START = ROOT / "docs" / "start.md"
DEMO = re.compile(r"(<!-- what the demo prints -->\n```text\n)(.*?)(?=```)", re.DOTALL)


def test_the_start_page_has_the_words_that_the_demo_prints(tmp_path, monkeypatch, capfd):
    monkeypatch.chdir(tmp_path)
    small = [] if REFRESH else ["--rows", "300", "--epochs", "1"]
    assert main(["demo", "--quiet", *small]) == 0
    printed = blocks.shown_lines(capfd.readouterr().out.rpartition("\n\n")[0], None)  # no seconds
    if REFRESH:
        page = DEMO.sub(lambda found: found[1] + printed, START.read_text(encoding="utf-8"))
        START.write_text(page, encoding="utf-8")

    def words(text: str) -> list[str]:
        return re.sub(r"(asl|bce|bce\+twl)-seed0|right|wrong|[\d.,%─]+", "", text).split()

    shown = DEMO.search(START.read_text(encoding="utf-8"))
    assert shown is not None
    assert words(shown[2]) == words(printed), "`make outputs`"
    assert Path("demo/report.html").stat().st_size > 10_000
    assert Predictions.read("demo/runs/asl-seed0/predictions.parquet").scores is not None


def test_the_start_page_has_the_numbers_of_the_demo(tmp_path):
    """One loss of three, because that takes half a minute. Networks that are trained on processors
    of two kinds differ by up to 0.01 in these numbers.
    """
    recipe = demo.recipe(demo.Options())
    scenery = {"n": demo.Options().rows, "clutter": demo.CLUTTER}
    found = compare(
        "digits", tmp_path, ["bce+twl"], seeds=1, recipe=recipe, data_options=scenery, threads=1
    )
    row = re.search(r"^ +bce\+twl (.*)$", START.read_text(encoding="utf-8"), re.MULTILINE)
    assert row is not None
    shown = re.findall(r"(?<!±)\d\.\d+", row[1])
    values = [found.losses["bce+twl"][name]["mean"] for name in demo.COLUMNS]
    assert [float(number) for number in shown] == pytest.approx(values, abs=0.02)


def test_outputs_are_compared_to_the_last_printed_digit():
    assert blocks.agrees("NLL 0.2298 in 3.1 s\n ──", "NLL  0.2299 in 12 s")
    assert not blocks.agrees("NLL 0.2298", "NLL 0.2300")
    assert blocks.agrees("565 labels, 1.3e-08 apart", "566 labels, 1.8e-08 apart")
    assert not blocks.agrees("rows 3,000", "rows 3,016")
    assert not blocks.agrees("rows 30", "rows 31")
    assert not blocks.agrees("1.3e-03 apart", "1.8e-03 apart")
    assert not blocks.agrees("2 rows", "2 hits")


def test_tutorials_show_what_they_print():
    tutorials = [found for page, found in BLOCKS.items() if page.startswith("docs/tutorials/")]
    assert len(tutorials) == 5
    for found in tutorials:
        assert any(block.prints or block.language == "console" for block in found)


@pytest.mark.parametrize("page", BLOCKS)
def test_a_block_that_is_not_run_says_why(page):
    silent = [
        f"{page}:{block.line} ({block.language or 'no language'})"
        for block in BLOCKS[page]
        if not block.is_run and block.language != "text" and not block.reason
    ]
    assert silent == [], "run it, or put `<!-- not run: why -->` above it"


def test_most_blocks_are_run():
    # Recipes for other programs (a proxy, a container) cannot be run here.
    code = [block for found in BLOCKS.values() for block in found if block.language in blocks.RUN]
    assert len(code) > 100
    assert sum(block.is_run for block in code) > 0.75 * len(code)


USE = re.compile(r"credibly ([a-z]+)\b([^\n]*(?:\\?\n +(?! |credibly )[^\n]*)*)")


def _uses() -> set[tuple[str, str]]:
    """Commands and options that blocks show without running them."""
    uses = set()
    for found in BLOCKS.values():
        for block in found:
            if not block.is_run:
                for command, rest in USE.findall(block.code):
                    uses |= {(command, option) for option in re.findall(r"--[a-z][a-z-]*", rest)}
    return uses


@pytest.mark.parametrize("command", sorted({command for command, _ in _uses()}))
def test_options_that_are_only_shown_exist(command, capsys):
    assert command in COMMANDS
    # Options of a reader are listed where the command names its data.
    code = [block.code for found in BLOCKS.values() for block in found if not block.is_run]
    kinds = {
        kind for text in code for kind in re.findall(rf"credibly {command} (\w[\w+-]*:)", text)
    }
    text = ""
    for words in ([], *([f"{kind}x"] for kind in sorted(kinds))):
        with pytest.raises(SystemExit):
            main([command, *words, "--help"])
        text += capsys.readouterr().out
    assert [
        option for name, option in sorted(_uses()) if name == command and option not in text
    ] == []
