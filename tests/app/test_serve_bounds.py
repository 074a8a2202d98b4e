"""What a server holds on to has a bound, however long it runs and however many ask."""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor
from threading import Event, Lock, Thread

import numpy as np
import pytest
from starlette.testclient import TestClient

from credibly import InputError, Predictions
from credibly.app.server import create_app

WORKERS = 8
KEPT = 256


@pytest.fixture
def app(shelf):
    return create_app([shelf / "ours.parquet"], hosts=["testserver"])


@pytest.fixture
def served(app):
    """The file that is served, as the pages see it."""
    return app.app.state.served.files[0]


def test_requests_beyond_the_workers_wait(app, served, monkeypatch):
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

    monkeypatch.setattr(type(served), "search", slow)
    with TestClient(app) as client, ThreadPoolExecutor(4 * WORKERS) as pool:
        answers = list(pool.map(lambda _: client.get("/api/search?q=fork"), range(4 * WORKERS)))
    assert {answer.status_code for answer in answers} == {400}
    assert 1 < most <= WORKERS


def test_budgets_remembered_are_the_latest(served):
    first = served.budget(1.0)
    for number in range(1, KEPT + 1):
        latest = served.budget(1 + number / 100)
        assert latest.average_size == 1 + number / 100
    assert served.budget(1 + KEPT / 100) is latest
    assert served.budget(1.0) is not first


@pytest.mark.parametrize("name", ["index", "sample", "uncalibrated"])
def test_those_who_ask_first_wait_for_one_reading(served, name):
    with ThreadPoolExecutor(8) as pool:
        found = list(pool.map(lambda _: getattr(served, name), range(8)))
    assert all(one is found[0] for one in found)


def test_labels_are_read_once(served, monkeypatch):
    first = served.label_report("fork")
    monkeypatch.setattr(served, "column", lambda label: pytest.fail("read again"))
    assert served.label_report("fork") is first


def test_no_page_waits_for_the_index(served, monkeypatch):
    """The frame of every page asks whether there is a state before calibration."""
    reading, free = Event(), Event()

    def slow(path, **options):
        reading.set()
        free.wait(60)

    monkeypatch.setattr("credibly.retrieve.Index.read", slow)
    Thread(target=lambda: served.index, daemon=True).start()
    assert reading.wait(60)
    with ThreadPoolExecutor(1) as pool:
        try:
            assert pool.submit(lambda: served.uncalibrated).result(timeout=20) is not None
        finally:
            free.set()


def test_work_that_takes_long_is_told_and_done_once(shelf, served, monkeypatch):
    free, calls, work = Event(), [], type(served)._first_look

    def slow(self):
        calls.append(1)
        free.wait(60)
        return work(self)

    monkeypatch.setattr(type(served), "_first_look", slow)
    monkeypatch.setattr("credibly.app.server.background.WAIT", 0.05)
    with TestClient(create_app([shelf / "ours.parquet"], hosts=["testserver"])) as client:
        for _ in range(3):
            told = client.get("/")
            assert told.status_code == 202
            assert "judging the probabilities, 400 rows and 7 labels" in told.text
        assert client.get("/?q=%2Bfork").status_code == 200  # search does not wait
        free.set()
        monkeypatch.setattr("credibly.app.server.background.WAIT", 60.0)
        assert client.get("/").status_code == 200
    assert len(calls) == 1


def test_a_failure_in_the_background_is_told_and_tried_again(shelf, served, monkeypatch):
    problems, work = [InputError("the file is gone")], type(served)._first_look

    def failing(self):
        if problems:
            raise problems.pop()
        return work(self)

    monkeypatch.setattr(type(served), "_first_look", failing)
    client = TestClient(create_app([shelf / "ours.parquet"], hosts=["testserver"]))
    told = client.get("/api/overview")
    assert (told.status_code, told.json()["error"]) == (400, "the file is gone")
    assert client.get("/api/overview").status_code == 200


def test_the_sample_from_memory_is_that_of_the_file(tmp_path, monkeypatch):
    rng = np.random.default_rng(0)
    p = rng.random((2500, 3)).astype(np.float32)
    y = rng.integers(-1, 2, p.shape).astype(np.int8)
    order = rng.permutation(2500)
    whole = Predictions.from_arrays(
        probabilities=p, targets=y, labels=list("abc"), ids=[f"{k:04d}" for k in order]
    )
    whole.write(tmp_path / "p.parquet")
    monkeypatch.setattr("credibly.app.store.files.SAMPLE", 1000)
    client = TestClient(create_app([tmp_path / "p.parquet"], hosts=["testserver"]))
    assert client.get("/api/search?q=a").status_code == 200  # all rows are in memory now
    found = client.get("/api/row?id=0007").json()["neighbours"]
    places = {id: k for k, id in enumerate(whole.ids)}
    for each in found:
        row, other = p[places["0007"]], p[places[each["id"]]]
        apart = np.linalg.norm(np.sqrt(row) - np.sqrt(other)) / np.sqrt((row + other).sum())
        assert each["distance"] == pytest.approx(apart, abs=1e-3)
    known = [row["known"] for row in client.get("/api/atlas").json()["labels"]]
    assert all(600 < count < 730 for count in known)  # of 1,000 rows
