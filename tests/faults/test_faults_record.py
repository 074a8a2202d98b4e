"""The counts on the pages about reliability are those of the records."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from chaos import RECORDS, read_records, table, totals

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize(
    ("page", "made"),
    [("benchmarks/results/reliability.md", table), ("docs/benchmarks/reliability.md", totals)],
)
def test_the_page_has_the_table_of_the_records(page, made):
    found = (ROOT / page).read_text(encoding="utf-8").split("<!-- counts -->\n")
    assert len(found) == 3, "the table stands between two lines <!-- counts -->"
    assert found[1].strip() == made(read_records(RECORDS)), (
        "run `python tests/faults/chaos.py --table tests/faults/records`"
    )


def test_the_page_has_the_counts_of_this_version():
    page = (ROOT / "docs/benchmarks/reliability.md").read_text(encoding="utf-8")
    for name in ("version-0.3", "version-0.3-last-code", "version-0.3-merged"):
        record = json.loads((RECORDS / f"{name}.json").read_text(encoding="utf-8"))
        kills, errors, losses = (
            sum(found["faults"] for found in record[attack].values())
            for attack in ("kill", "error", "power")
        )
        assert f"{kills} kills, {errors} failing operations, {losses} power losses" in page
    load = json.loads((ROOT / "benchmarks/results/load.json").read_text(encoding="utf-8"))
    assert (load["minutes"], load["wrong"]) == (30, 0)
    assert f"{load['answered']:,} requests in 30 minutes" in page
    assert f"{load['busy']} told to come back" in page
    again = json.loads((ROOT / "benchmarks/results/load-last-code.json").read_text("utf-8"))
    assert (again["minutes"], again["wrong"]) == (30, 0)
    assert f"{again['answered']:,} requests | 0 wrong, {again['busy']} told to come back" in page
    for moment in ("at_rest_after_warm_up", "at_rest_at_the_end"):
        assert f"{again['memory_mb'][moment]:,} MB" in page
    fuzzed = json.loads((ROOT / "fuzz/record.json").read_text(encoding="utf-8"))
    targets = {path.stem for path in (ROOT / "fuzz/targets").glob("[a-z]*.py")}
    assert set(fuzzed) == targets
    assert min(fuzzed.values()) >= 10_000
    assert f"{sum(fuzzed.values()):,} executions over {len(targets)} targets" in page
