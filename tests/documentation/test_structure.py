"""The page on the architecture has the figures of the source."""

from __future__ import annotations

import re

import pytest
from benchmarks import structure


def test_the_page_has_the_figures_of_the_source():
    page = structure.PAGE.read_text(encoding="utf-8")
    table = page.split(structure.BEGIN)[1].split(structure.END)[0]
    said = {
        name: int(count.replace(",", ""))
        for name, count in re.findall(r"^\| ([^|]+) \| ([\d,]+) \|", table, re.MULTILINE)
    }
    for name, count in structure.shape().items():
        assert said[name] == pytest.approx(count, rel=0.02, abs=1), "run `--write`"
