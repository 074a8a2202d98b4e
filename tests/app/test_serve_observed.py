"""How often a label was right at a probability: against counting by hand."""

from __future__ import annotations

import re

import numpy as np
import pytest
from serve_models import Run, app_with
from starlette.testclient import TestClient

from credibly import Predictions
from credibly.metrics import proportion_interval


@pytest.fixture
def said(tmp_path, monkeypatch):
    """What the page says of one label at several probabilities, beside known rows."""

    def ask(p, y, values):
        # Rows without truth, so that the rows asked for are like known ones and as sure.
        more = [*values, *[0.5] * (len(p) // 20 + 1)]
        one = np.full((len(p) + len(more), 2), 0.5, dtype=np.float32)
        one[:, 0] = [*p, *more]
        truth = np.full(one.shape, -1)
        truth[: len(p), 0] = y
        path = tmp_path / "p.parquet"
        Predictions.from_arrays(
            probabilities=one, targets=truth, labels=["x", "y"], coding="unknown"
        ).write(path)
        found = []
        for value in values:
            row = Predictions.from_arrays(probabilities=[[value, 0.5]], labels=["x", "y"])
            client = TestClient(app_with(path, Run(row, "features", (1,)), monkeypatch))
            page = client.get("/try?features=1").text
            table = page.partition('<table id="tried-labels">')[2].partition("</table>")[0]
            (cells,) = [line for line in table.split("<tr>") if "name=x" in line]
            last = cells.rpartition("</svg>")[2]
            found.append(" ".join(re.sub(r"<[^>]+>", " ", last).split()))
        return found

    return ask


def by_hand(p, y, value):
    """Return how many of the nearest known rows there are, and how many have the label."""
    rows = sorted((abs(float(a) - value), b) for a, b in zip(p, y, strict=True) if b >= 0)
    inside = [(d, b) for d, b in rows if d <= 0.1]
    if len(inside) > 200:
        inside = [(d, b) for d, b in inside if d <= inside[199][0]]
    return len(inside), sum(b for _, b in inside)


@pytest.mark.parametrize("rows", [60, 2000])
def test_the_share_is_that_of_the_nearest_known_rows(said, rows):
    rng = np.random.default_rng(rows)
    p = (rng.integers(0, 21, rows) / 20).astype(np.float32)  # many are as near as each other
    y = rng.integers(-1, 2, rows)
    values = [0.02, 0.31, 0.5, 0.98]
    for value, words in zip(values, said(p, y, values), strict=True):
        count, present = by_hand(p, y, np.float32(value))
        if count < 20:
            assert words.endswith(f"too few known rows: {count}")
            continue
        low, high = proportion_interval(present, count)
        share = f"{100 * present / count:.1f} % {100 * low:.0f} – {100 * high:.0f} %"
        assert f" {share} {count:,} rows, " in words


def test_a_calibrated_label_is_right_as_often_as_it_says(said):
    rng = np.random.default_rng(0)
    p = rng.random(20_000)
    values = np.linspace(0.05, 0.95, 20).tolist()
    inside = 0
    for value, words in zip(values, said(p, rng.random(p.shape) < p, values), strict=True):
        assert "200 rows, " in words
        low, high = map(float, re.search(r"(\d+) – (\d+) %", words).groups())
        inside += low - 0.5 <= 100 * value <= high + 0.5
    assert inside >= 16  # 95 % of 20 are 19


def test_without_near_rows_nothing_is_claimed(said):
    (words,) = said([0.1, 0.2], [1, -1], [0.9])
    assert words.endswith("too few known rows: 0")
