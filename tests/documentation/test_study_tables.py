"""The tables of studies in the documentation are those of their records."""

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize(
    ("page", "study"), [("default.md", "default"), ("default.md", "maps"), ("models.md", "limits")]
)
def test_the_page_shows_its_records(page, study):
    command = [sys.executable, "-m", f"benchmarks.studies.{study}", "--table"]
    made = subprocess.run(command, cwd=ROOT, capture_output=True, check=True, encoding="utf-8")
    text = (ROOT / "docs" / page).read_text(encoding="utf-8")
    start, end = (f"<!-- {study} study: {mark} -->" for mark in ("start", "end"))
    assert text.partition(start)[2].partition(end)[0].strip() == made.stdout.strip()
