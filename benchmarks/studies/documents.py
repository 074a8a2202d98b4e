"""Tables of a study in a page of the documentation, between two marks."""

from __future__ import annotations

from pathlib import Path

DOCS = Path(__file__).parents[2] / "docs"


def put_tables(page: str, study: str, tables: str) -> None:
    """Replace what stands between the marks of a study on a page."""
    path, start, end = DOCS / page, f"<!-- {study} study: start -->", f"<!-- {study} study: end -->"
    before, _, rest = path.read_text(encoding="utf-8").partition(start)
    after = rest.partition(end)[2]
    path.write_text(f"{before}{start}\n\n{tables}\n\n{end}{after}", encoding="utf-8")
