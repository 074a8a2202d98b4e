"""Deciding: numbers equal brute force, the exported command makes the same sets."""

from __future__ import annotations

import re
import shlex
from html import unescape

import httpx
import numpy as np
import pyarrow.parquet as pq
import pytest
from starlette.testclient import TestClient

from credibly import Predictions
from credibly.app.server import create_app
from credibly.cli import main
from credibly.decide import Cost, Recall, Threshold


@pytest.fixture(scope="module")
def client(address):
    with httpx.Client(base_url=address, timeout=30) as client:
        yield client


@pytest.fixture(scope="module")
def ours(shelf):
    return Predictions.read(shelf / "ours.parquet")


def drawn(rows=3000, labels=4, seed=0):
    rng = np.random.default_rng(seed)
    p = rng.random((rows, labels)).astype(np.float32) ** 2
    y = (rng.random(p.shape) < p).astype(np.int8)
    y[rng.random(p.shape) < 0.1] = -1
    return p, y


def decided(tmp_path, *drawings, **rule):
    """Return the page of a rule by cost for each of some files."""
    paths = [tmp_path / f"{number}.parquet" for number in range(len(drawings))]
    for path, (p, y) in zip(paths, drawings, strict=True):
        labels = [f"l{t}" for t in range(p.shape[1])]
        one = Predictions.from_arrays(probabilities=p, targets=y, labels=labels, coding="unknown")
        one.write(path)
    client = TestClient(create_app(paths, hosts=["testserver"]))
    pages = []
    for file in range(len(paths)):
        answer = client.get("/decide", params={"file": file, "by": "cost", **rule})
        assert answer.status_code == 200
        pages.append(answer.text)
    return pages


def costs(page):
    """Return the measured cost, its interval, and the cost that is expected."""
    measured = page.partition('id="cost">')[2].partition("</dl>")[0]
    return [float(value) for value in re.findall(r"\d+(?:\.\d+)?(?:e-\d+)?", measured)][:5]


@pytest.mark.parametrize(("miss", "alarm"), [(1, 1), (5, 1), (0.2, 3)])
def test_the_curve_is_the_cost_at_every_threshold(tmp_path, miss, alarm):
    p, y = drawn()
    (page,) = decided(tmp_path, (p, y), miss=miss, false_alarm=alarm)
    chart = page.partition("Cost per row, without review")[2].partition("</svg>")[0]
    points = re.search(r'<polyline class="curve" points="(.*?)"', chart)[1].split()
    heights = np.array([float(point.partition(",")[2]) for point in points])
    thresholds = np.linspace(0, 1, len(points)).astype(np.float32)
    wrong = np.array(
        [
            miss * ((y == 1) & (p < t)).sum() + alarm * ((y == 0) & (p >= t)).sum()
            for t in thresholds
        ]
    )
    # The chart is linear in the cost, so heights and costs tell one another.
    slope, start = np.polyfit(wrong / len(p), heights, 1)
    np.testing.assert_allclose(heights, start + slope * wrong / len(p), atol=0.06)
    said = re.search(r"The lowest, ([\d.]+), is at ([\d.]+) %", chart)
    assert float(said[1]) == pytest.approx(wrong.min() / len(p), rel=1e-3)
    best = float(said[2]) / 100  # calibrated: where theory puts it
    assert abs(best - alarm / (alarm + miss)) < 0.1


def test_the_interval_covers_the_true_cost(tmp_path):
    rng = np.random.default_rng(99)
    p = rng.random(4_000_000).astype(np.float32) ** 2
    known = rng.random(p.shape) >= 0.1
    wrong = (rng.random(p.shape) < p) != (p >= 1 / 6)
    price = np.where(p >= 1 / 6, 1, 5)
    true = 4 * (wrong * known * price).mean()  # of four labels
    pages = decided(tmp_path, *(drawn(600, seed=seed) for seed in range(90)), miss=5)
    found = [costs(page) for page in pages]
    covered = np.mean([low <= true <= high for _, low, high, *_ in found])
    assert 0.86 <= covered <= 0.995
    assert Cost(5, 1).bounds == pytest.approx((1 / 6, 1 / 6))


@pytest.mark.parametrize("review", [None, 0.3])
def test_the_outcome_counts_every_known_entry_once(tmp_path, review):
    p, y = drawn()
    cost = Cost(5, 1, review)
    (page,) = decided(tmp_path, (p, y), miss=5, **({} if review is None else {"review": review}))
    table = page.partition('<table id="confusion">')[2].partition("</table>")[0]
    cells = re.findall(r"<td[^>]*>([\d,]+)", table)
    hits, looked_at, misses, alarms, looked_absent, rejected = (
        int(cell.replace(",", "")) for cell in cells
    )
    low, high = (np.float32(bound) for bound in cost.bounds)
    sets, looks = p >= high, (p >= low) & (p < high)
    assert hits + looked_at + misses + alarms + looked_absent + rejected == (y >= 0).sum()
    assert hits == (sets & (y == 1)).sum()
    assert alarms == (sets & (y == 0)).sum()
    assert misses == (~sets & ~looks & (y == 1)).sum()
    assert looked_at + looked_absent == (looks & (y >= 0)).sum()
    paid = 5 * misses + alarms + (review or 0) * (looked_at + looked_absent)
    measured, *_, expected = costs(page)
    assert measured == pytest.approx(paid / len(p), rel=5e-3)
    known = np.where(y >= 0, p, np.nan)
    by_row = [cost.expected(row[~np.isnan(row)][None])[0] for row in known]
    assert expected == pytest.approx(np.mean(by_row), rel=5e-3)


def test_bars_keep_every_row(tmp_path):
    rng = np.random.default_rng(0)
    p = (rng.random((500, 100)) < rng.random((500, 1))).astype(np.float32)
    labels = [f"l{t}" for t in range(100)]
    Predictions.from_arrays(probabilities=p, labels=labels).write(tmp_path / "p.parquet")
    client = TestClient(create_app([tmp_path / "p.parquet"], hosts=["testserver"]))
    page = client.get("/decide?by=threshold&threshold=0.5").text
    table = page.partition('<table class="bars" id="histogram">')[2].partition("</table>")[0]
    counts = [int(count) for count in re.findall(r"<td>(\d+)</td>", table)]
    assert 2 < len(counts) <= 16
    assert sum(counts) == 500


def command_of(text):
    found = re.search(r'id="command">(.*?)</code>', text)
    return shlex.split(unescape(found[1]))


RULES = [
    ({"miss": 5, "false_alarm": 2}, Cost(5, 2)),
    ({"miss": 5, "review": 0.25}, Cost(5, 1, 0.25)),
    ({"by": "threshold", "threshold": 0.3}, Threshold(0.3)),
    ({"by": "recall", "recall": 0.8}, Recall(0.8, ("probability", 0.1))),
]


@pytest.mark.parametrize(("parameters", "decision"), RULES, ids=str)
def test_the_exported_command_makes_the_sets_of_the_page(
    client, ours, tmp_path, parameters, decision
):
    arguments = command_of(client.get("/decide", params=parameters).text)
    assert arguments[0] == "credibly"
    out = tmp_path / "sets.parquet"
    assert main([*arguments[1:-1], str(out), "--quiet"]) == 0
    table = pq.read_table(out).to_pydict()
    found = dict(zip(table["id"], map(set, table["labels"]), strict=True))
    if isinstance(decision, Recall):
        decision.fit(ours.probabilities, ours.targets)
    sets = decision.for_labels(ours.labels).predict(ours.probabilities)
    document = client.get("/api/thresholds", params=parameters).json()
    limits = np.array([document["thresholds"][name] for name in ours.labels], np.float32)
    np.testing.assert_array_equal(ours.probabilities >= limits, sets)
    for row, id in enumerate(ours.ids):
        names = {name for name, on in zip(ours.labels, sets[row], strict=True) if on}
        assert found[id] == names


@pytest.mark.parametrize(
    ("path", "status"),
    [
        ("/decide?miss=-1", 422),
        ("/decide?miss=nan", 422),
        ("/decide?label=frok", 422),
        ("/decide?by=size&average_size=1000", 200),
    ],
)
def test_impossible_costs_are_explained(client, path, status):
    answer = client.get(path)
    assert answer.status_code == status
    assert "Traceback" not in answer.text
