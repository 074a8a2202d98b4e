"""The tables of studies in benchmarks/results are those of their records."""

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize(
    ("page", "study", "made"),
    [
        ("benchmarks/results/default.md", "default", ("default", "--table")),
        ("docs/benchmarks/quality.md", "summary", ("default", "--summary")),
        ("benchmarks/results/default.md", "maps", ("maps", "--table")),
        ("benchmarks/results/limits.md", "limits", ("limits", "--table")),
    ],
)
def test_the_page_shows_its_records(page, study, made):
    command = [sys.executable, "-m", f"benchmarks.studies.{made[0]}", made[1]]
    made = subprocess.run(command, cwd=ROOT, capture_output=True, check=True, encoding="utf-8")
    text = (ROOT / page).read_text(encoding="utf-8")
    start, end = (f"<!-- {study} study: {mark} -->" for mark in ("start", "end"))
    assert text.partition(start)[2].partition(end)[0].strip() == made.stdout.strip()
