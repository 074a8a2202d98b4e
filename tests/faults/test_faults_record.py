"""The counts in docs/reliability.md are those of the records."""

from __future__ import annotations

from pathlib import Path

from chaos import RECORDS, read_records, table


def test_the_page_has_the_table_of_the_records():
    page = Path(__file__).parents[2] / "docs/reliability.md"
    found = page.read_text(encoding="utf-8").split("<!-- counts -->\n")
    assert len(found) == 3, "the table stands between two lines <!-- counts -->"
    assert found[1].strip() == table(read_records(RECORDS)), (
        "run `python tests/faults/chaos.py --table tests/faults/records`"
    )
