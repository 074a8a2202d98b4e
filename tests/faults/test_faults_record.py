"""The counts on the pages about reliability are those of the records."""

from __future__ import annotations

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
