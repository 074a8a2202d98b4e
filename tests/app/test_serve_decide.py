"""Deciding: numbers equal brute force, the exported command makes the same sets."""

from __future__ import annotations

import re
import shlex
from html import unescape

import httpx
import numpy as np
import pyarrow.parquet as pq
import pytest

from credibly import Predictions
from credibly.app.statistics.decisions import cost_curve, outcome, size_bars, threshold_counts
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


@pytest.mark.parametrize(("miss", "alarm"), [(1, 1), (5, 1), (0.2, 3)])
def test_the_curve_is_the_cost_at_every_threshold(miss, alarm):
    p, y = drawn()
    curve = cost_curve(threshold_counts(p, y), miss, alarm)
    for place in (0, 1, 33, 100, 199, 200):
        t = curve.thresholds[place]
        wrong = miss * ((y == 1) & (p < t)).sum() + alarm * ((y == 0) & (p >= t)).sum()
        assert curve.cost[place] == pytest.approx(wrong / len(p))
    assert (curve.low <= curve.cost).all()
    assert (curve.cost <= curve.high).all()
    assert abs(curve.best - alarm / (alarm + miss)) < 0.1  # calibrated: where theory puts it


def test_the_interval_covers_the_true_cost():
    cost = Cost(5, 1)
    p, y = drawn(400_000, seed=99)
    true = outcome(p, y, cost).cost
    found = [outcome(*drawn(600, seed=seed), cost) for seed in range(200)]
    covered = np.mean([one.low <= true <= one.high for one in found])
    assert 0.9 <= covered <= 0.99
    assert cost.bounds == pytest.approx((1 / 6, 1 / 6))


@pytest.mark.parametrize("review", [None, 0.3])
def test_the_outcome_counts_every_known_entry_once(review):
    p, y = drawn()
    cost = Cost(5, 1, review)
    found = outcome(p, y, cost)
    low, high = (np.float32(bound) for bound in cost.bounds)
    sets, looks = p >= high, (p >= low) & (p < high)
    assert found.known == (y >= 0).sum()
    assert found.hits == (sets & (y == 1)).sum()
    assert found.false_alarms == (sets & (y == 0)).sum()
    assert found.misses == (~sets & ~looks & (y == 1)).sum()
    assert found.looked == (looks & (y >= 0)).sum()
    paid = 5 * found.misses + found.false_alarms + (review or 0) * found.looked
    assert found.cost == pytest.approx(paid / len(p))
    known = np.where(y >= 0, p, np.nan)
    by_row = [cost.expected(row[~np.isnan(row)][None])[0] for row in known]
    assert found.expected == pytest.approx(np.mean(by_row), rel=1e-5)


def test_bars_keep_every_row():
    counts = list(range(1000))
    bars = size_bars(counts)
    assert len(bars) <= 16
    assert sum(count for _, count in bars) == sum(counts)


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
