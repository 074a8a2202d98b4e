"""Tables of a study in a page, between two marks."""

from __future__ import annotations

from pathlib import Path

ROOT = Path(__file__).parents[2]
RECORD = "benchmarks/results"


def put_tables(page: str, study: str, tables: str) -> None:
    """Replace what stands between the marks of a study on a page of the repository."""
    path = ROOT / page
    start, end = f"<!-- {study} study: start -->", f"<!-- {study} study: end -->"
    before, _, rest = path.read_text(encoding="utf-8").partition(start)
    after = rest.partition(end)[2]
    path.write_text(f"{before}{start}\n\n{tables}\n\n{end}{after}", encoding="utf-8")
