"""What a server holds on to has a bound, however long it runs and however many ask."""

from __future__ import annotations

import gc
import time
import warnings
from concurrent.futures import ThreadPoolExecutor
from threading import Lock

import matplotlib as mpl
import numpy as np
import pytest
from matplotlib.figure import Figure
from starlette.testclient import TestClient

from credibly.checks import InputError
from credibly.serve import create_app
from credibly.serve._app import WORKERS
from credibly.serve._charts import reliability_chart
from credibly.serve._served import KEPT, ServedPredictions


@pytest.fixture
def served(shelf):
    return ServedPredictions(shelf / "ours.parquet")


def test_requests_beyond_the_workers_wait(shelf, monkeypatch):
    lock, now, most = Lock(), 0, 0

    def slow(self, query, top):
        nonlocal now, most
        with lock:
            now += 1
            most = max(most, now)
        time.sleep(0.1)
        with lock:
            now -= 1
        raise InputError("enough")

    monkeypatch.setattr(ServedPredictions, "search", slow)
    app = create_app([shelf / "ours.parquet"], hosts=["testserver"])
    with TestClient(app) as client, ThreadPoolExecutor(4 * WORKERS) as pool:
        answers = list(pool.map(lambda _: client.get("/api/search?q=fork"), range(4 * WORKERS)))
    assert {answer.status_code for answer in answers} == {400}
    assert 1 < most <= WORKERS


def test_budgets_remembered_are_the_latest(served):
    for number in range(KEPT + 20):
        assert served.budget(1 + number / 100).average_size == 1 + number / 100
    assert served.budget.cache_info().currsize == KEPT


@pytest.mark.parametrize("name", ["index", "sample", "uncalibrated"])
def test_those_who_ask_first_wait_for_one_reading(served, name):
    with ThreadPoolExecutor(8) as pool:
        found = list(pool.map(lambda _: getattr(served, name), range(8)))
    assert all(one is found[0] for one in found)


@pytest.mark.parametrize("name", ["label_report", "chart"])
def test_labels_are_read_once_and_remembered_within_a_bound(served, name, monkeypatch):
    ask = getattr(served, name)
    first = ask("fork")
    monkeypatch.setattr(served, "column", lambda label: pytest.fail("read again"))
    assert ask("fork") is first
    assert ask.cache_info().maxsize == KEPT


def test_charts_drawn_at_once_leave_settings_and_filters_as_they_were():
    rng = np.random.default_rng(0)
    p = rng.random((200, 1)).astype(np.float32)
    y = (rng.random(p.shape) < p).astype(np.int8)
    alone = reliability_chart([(None, p, y)], "label", "one")
    before = dict(mpl.rcParams), list(warnings.filters)
    with ThreadPoolExecutor(8) as pool:
        charts = list(
            pool.map(lambda _: reliability_chart([(None, p, y)], "label", "one"), range(24))
        )
    assert set(charts) == {alone}
    assert (dict(mpl.rcParams), list(warnings.filters)) == before


def figures() -> int:
    return sum(type(one) is Figure for one in gc.get_objects())  # isinstance wakes lazy objects


def test_a_drawn_figure_is_not_kept(served):
    """Without waiting for Python to look for objects that only point at each other."""
    gc.collect()
    gc.disable()
    try:
        before = figures()
        assert "<svg" in served.chart("fork")
        assert figures() == before
    finally:
        gc.enable()
