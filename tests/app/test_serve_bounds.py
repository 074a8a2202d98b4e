"""What a server holds on to has a bound, however long it runs and however many ask."""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor
from threading import Lock

import pytest
from starlette.testclient import TestClient

from credibly.app.server import create_app
from credibly.app.server.application import WORKERS
from credibly.app.server.background import KEPT
from credibly.app.store.files import ServedPredictions
from credibly.checks import InputError


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


def test_no_page_waits_for_the_index(shelf, monkeypatch):
    """The frame of every page asks whether there is a state before calibration."""
    from threading import Event, Thread

    from credibly.app.store import files as dense

    reading, free = Event(), Event()

    def slow(path, **options):
        reading.set()
        free.wait(60)

    monkeypatch.setattr(dense.Index, "read", slow)
    served = ServedPredictions(shelf / "ours.parquet")
    Thread(target=lambda: served.index, daemon=True).start()
    assert reading.wait(60)
    with ThreadPoolExecutor(1) as pool:
        try:
            assert pool.submit(lambda: served.uncalibrated).result(timeout=20) is not None
        finally:
            free.set()


def test_work_that_takes_long_is_told_and_done_once(shelf, monkeypatch):
    from threading import Event

    from credibly.app.server import background
    from credibly.app.store import files as dense

    free, calls = Event(), []

    def slow(*arguments, **options):
        calls.append(1)
        free.wait(60)
        return first_look(*arguments, **options)

    from credibly.app.statistics.overview import first_look

    monkeypatch.setattr(dense, "first_look", slow)
    monkeypatch.setattr(background, "WAIT", 0.05)
    with TestClient(create_app([shelf / "ours.parquet"], hosts=["testserver"])) as client:
        for _ in range(3):
            told = client.get("/")
            assert told.status_code == 202
            assert "judging the probabilities, 400 rows and 7 labels" in told.text
        assert client.get("/?q=%2Bfork").status_code == 200  # search does not wait
        free.set()
        monkeypatch.setattr(background, "WAIT", 60.0)
        assert client.get("/").status_code == 200
    assert len(calls) == 1


def test_a_failure_in_the_background_is_told_and_tried_again():
    from credibly.app.server.background import Pending

    problems = [InputError("the file is gone")]

    def work():
        if problems:
            raise problems.pop()

    pending = Pending(work, "reading")
    with pytest.raises(InputError, match="gone"):
        pending.wait(30)
    pending.wait(30)


def test_the_sample_from_memory_is_that_of_the_file(tmp_path, monkeypatch):
    import numpy as np

    from credibly import Predictions
    from credibly.app.store import files as dense

    rng = np.random.default_rng(0)
    p = rng.random((2500, 3)).astype(np.float32)
    y = rng.integers(-1, 2, p.shape).astype(np.int8)
    order = rng.permutation(2500)
    whole = Predictions.from_arrays(
        probabilities=p, targets=y, labels=list("abc"), ids=[f"{k:04d}" for k in order]
    )
    whole.write(tmp_path / "p.parquet")
    monkeypatch.setattr(dense, "SAMPLE", 1000)
    file = ServedPredictions(tmp_path / "p.parquet")
    assert len(file.index) == 2500
    rows = file.sample
    assert len(rows) == len(set(rows.ids)) == 1000
    places = {id: k for k, id in enumerate(whole.ids)}
    where = [places[id] for id in rows.ids]
    np.testing.assert_array_equal(rows.probabilities, whole.probabilities[where])
    np.testing.assert_array_equal(rows.targets, whole.targets[where])
