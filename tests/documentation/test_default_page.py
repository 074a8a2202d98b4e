"""The tables of docs/default.md are those of its records."""

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
MARK = "<!-- default study: {} -->"


def test_the_page_shows_its_records():
    command = [sys.executable, "-m", "benchmarks.studies.default", "--table"]
    made = subprocess.run(command, cwd=ROOT, capture_output=True, check=True, encoding="utf-8")
    page = (ROOT / "docs" / "default.md").read_text(encoding="utf-8")
    shown = page.partition(MARK.format("start"))[2].partition(MARK.format("end"))[0]
    assert shown.strip() == made.stdout.strip()
