"""What the pages say of rescued ASL scores is what the record of the study says."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from benchmarks.studies import rescue_epochs

ROOT = Path(__file__).parents[2]
RECORD = (ROOT / "benchmarks/results/calibration.md").read_text(encoding="utf-8")
PAGE = (ROOT / "docs/benchmarks/quality.md").read_text(encoding="utf-8")
LINES = [line for line in rescue_epochs._records() if line["what"] == "epochs"]


@pytest.mark.parametrize("line", LINES, ids=lambda line: f"{line['epochs']} epochs")
def test_what_calibrate_chooses_is_within_one_percent_of_the_best_column(line):
    columns = [line[name]["NLL"] for name in rescue_epochs.COLUMNS if name != "auto"]
    assert line["auto"]["NLL"] <= 1.01 * min(columns)
    assert line["auto"]["mAP"] >= line["mAP of the scores"] - 1e-9


def test_the_record_has_every_training_and_fifteen_draws_of_every_number_of_rows():
    assert [line["epochs"] for line in LINES] == list(rescue_epochs.EPOCHS)
    draws = {}
    for line in rescue_epochs._records():
        if line["what"] == "rows":
            draws.setdefault((line["set"], line["rows"]), set()).add(line["draw"])
    for name in rescue_epochs.SETS:
        for rows in rescue_epochs.ROWS[1:]:
            assert len(draws[name, rows]) == rescue_epochs.DRAWS


def test_the_tables_of_the_pages_are_those_of_the_record():
    rows = re.findall(r"^\| (?!-)(.*?) \|$", rescue_epochs._tables(), re.MULTILINE)
    for name in rescue_epochs.SETS:  # the pages have longer names
        rows = [row.removeprefix(f"{name} | ") for row in rows]
    shown = [row for row in rows if not row.startswith("NLL")]
    assert len(shown) == 1 + len(rescue_epochs.EPOCHS) + len(rescue_epochs.SETS)
    assert [row for row in shown if f"{row} |\n" not in RECORD] == []
    for row in shown[1:4]:
        epochs, sigmoid, link, *_, chosen, _ = row.split(" | ")
        assert f"| {epochs.partition(' ')[0]} | {sigmoid} | {link} | {chosen} |" in PAGE


def test_the_curve_of_the_guide_is_that_of_the_record():
    guide = (ROOT / "docs/guide/calibration.md").read_text(encoding="utf-8")
    for name, shown in (("voc2012", "VOC features"), ("coco80-features", "COCO features")):
        row = re.search(rf"^\| {name} \| (.*) \| [\d.]+ \|$", rescue_epochs._tables(), re.MULTILINE)
        assert row is not None
        assert f"| {shown}, {rescue_epochs.SETS[name]} epochs | {row[1]} |" in guide


def test_what_is_said_of_few_rows_is_what_the_record_says():
    few = dict(
        re.findall(
            r"^\| (voc2012|coco80-features) \| (.*) \|$", rescue_epochs._tables(), re.MULTILINE
        )
    )
    voc, coco = ([float(cell) for cell in few[name].split(" | ")] for name in rescue_epochs.SETS)
    place = {number: k for k, number in enumerate(rescue_epochs.ROWS)}
    assert f"VOC: {voc[0]:.0f} % to {voc[place[50]]} % above the limit" in RECORD
    assert min(coco[place[n]] for n in (10, 20, 50)) > coco[0]
    assert f"and 500 bring it to {coco[place[500]]} %" in RECORD
