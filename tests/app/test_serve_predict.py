"""What reaches the network has the shape of the run, and predictions at once are few."""

from __future__ import annotations

import io
import threading
import time
from types import SimpleNamespace

import numpy as np
import pytest
from PIL import Image
from serve_labels import LABELS
from serve_models import Run, app_with
from starlette.testclient import TestClient

from credibly import Predictions
from credibly.app.server import create_app
from credibly.decide import AverageSize

AT_ONCE = 2
"""Predictions that the server makes at once."""


@pytest.fixture
def served(monkeypatch):
    """Serve a file with a run."""
    return lambda path, run: TestClient(app_with(path, run, monkeypatch))


def png(width, height, mode="L"):
    file = io.BytesIO()
    Image.new(mode, (width, height)).save(file, "PNG")
    return file.getvalue()


def post(client, image, **query):
    headers = {"content-type": "application/octet-stream"}
    return client.post("/api/predict/image", content=image, params=query, headers=headers)


@pytest.mark.parametrize("shape", [(1, 16, 16), (3, 8, 12)])
@pytest.mark.parametrize("size", [(16, 16), (5, 900), (4000, 4000)])
def test_an_image_is_scaled_to_the_shape_of_the_run(served, shelf, shape, size):
    run = Run(Predictions.read(shelf / "ours.parquet"), shape=shape)
    with served(shelf / "ours.parquet", run) as client:
        assert post(client, png(*size)).status_code == 200
    warm_up, seen = run.seen  # a row is predicted before the first request is answered
    assert warm_up == seen
    assert seen == (1, *shape[1:]) if shape[0] == 1 else (1, *shape[1:], shape[0])


def test_a_huge_image_is_refused(served, shelf):
    run = Run(Predictions.read(shelf / "ours.parquet"))
    with served(shelf / "ours.parquet", run) as client:
        answer = post(client, png(8000, 8000))
    assert answer.status_code == 400
    assert "25,000,000 pixels" in answer.json()["error"]
    assert len(run.seen) == 1  # the row of the warm-up


def test_what_is_no_image_is_refused(served, shelf):
    with served(shelf / "ours.parquet", Run(Predictions.read(shelf / "ours.parquet"))) as client:
        for body in (b"", b"GIF89a", png(9, 9)[:40]):
            answer = post(client, body)
            assert answer.status_code in (400, 422)
            assert answer.json()["error"]


def test_rows_times_pixels_are_capped(served, shelf):
    run = Run(Predictions.read(shelf / "ours.parquet"), shape=(3, 2000, 2000))
    with served(shelf / "ours.parquet", run) as client:
        answer = post(client, png(30, 30))
        assert answer.status_code == 400
        assert "1 × 2000 × 2000 × 3" in answer.json()["error"]
        rows = client.post("/api/predict", json={"features": [[0.0] * 2001] * 1000})
        assert rows.status_code == 400
    assert len(run.seen) == 1  # the row of the warm-up


def test_predictions_at_once_are_bounded_and_others_are_told_when_to_come_back(
    served, shelf, monkeypatch
):
    monkeypatch.setattr("credibly.app.store.model.WAIT_SECONDS", 0.05)
    run = Run(Predictions.read(shelf / "ours.parquet"), wait=0.6)
    with served(shelf / "ours.parquet", run) as client:
        while client.get("/api/ready").status_code == 503:  # the warm-up takes a turn, too
            time.sleep(0.05)
        answers = []
        threads = [
            threading.Thread(target=lambda: answers.append(post(client, png(16, 16))))
            for _ in range(AT_ONCE + 4)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert post(client, png(16, 16)).status_code == 200  # the places are free again
    assert run.most == AT_ONCE
    statuses = [answer.status_code for answer in answers]
    assert statuses.count(200) == AT_ONCE
    busy = [answer for answer in answers if answer.status_code == 503]
    assert len(busy) == 4
    assert all(int(answer.headers["retry-after"]) > 0 for answer in busy)


@pytest.mark.parametrize("size", [0.5, 1, 2.5, len(LABELS)])
def test_sets_are_those_of_the_decision_that_is_shown(served, shelf, tmp_path, size):
    rows = Predictions.read(shelf / "ours.parquet")
    tied = np.round(rows.probabilities, 1)  # many labels at the threshold
    rows = Predictions.from_arrays(
        probabilities=tied, targets=rows.targets, labels=rows.labels, ids=rows.ids
    )
    path = tmp_path / "tied.parquet"
    rows.write(path)
    order = np.arange(len(LABELS))[::-1]  # a run whose labels stand in another order
    turned = Predictions.from_arrays(
        probabilities=tied[:, order], labels=[rows.labels[t] for t in order], ids=rows.ids
    )
    for given in (rows, turned):
        run = Run(given, kind="features", shape=(3,))
        with served(path, run) as client:
            body = {"features": [[0.0] * 3] * 20, "average_size": size}
            answer = client.post("/api/predict", json=body)
            assert answer.status_code == 200, answer.json()
            shown = client.get("/api/sets", params={"average_size": size}).json()
        fitted = AverageSize(size).fit(given.probabilities)
        expected = fitted.predict(given.probabilities[:20])
        sets = [[given.labels[t] for t in np.flatnonzero(row)] for row in expected]
        assert answer.json()["sets"] == sets
        assert shown["mean_size"] <= size


def test_a_set_for_other_labels_is_refused(served, shelf):
    rows = Predictions.read(shelf / "ours.parquet").select(LABELS[:2])
    run = Run(rows, kind="features", shape=(3,))
    with served(shelf / "ours.parquet", run) as client:
        body = {"features": [[0.0] * 3], "average_size": 1}
        answer = client.post("/api/predict", json=body)
    assert answer.status_code == 400
    assert "labels of the run" in answer.json()["error"]


def test_health_is_answered_while_every_worker_is_busy(shelf, monkeypatch):
    at_once = 3  # searches
    started = threading.Barrier(at_once + 1)
    release = threading.Event()

    def slow(self, query, top):
        started.wait(10)
        release.wait(20)
        raise SystemError("never used")

    app = create_app([shelf / "ours.parquet"], hosts=["testserver"])
    with TestClient(app, raise_server_exceptions=False) as client:
        monkeypatch.setattr(type(app.app.state.served.files[0]), "search", slow)
        threads = [
            threading.Thread(target=lambda: client.get("/api/search?q=fork"))
            for _ in range(at_once)
        ]
        for thread in threads:
            thread.start()
        started.wait(10)
        begin = time.monotonic()
        assert client.get("/api/health").status_code == 200
        assert time.monotonic() - begin < 1
        release.set()
        for thread in threads:
            thread.join()


def test_a_request_that_takes_too_long_is_answered_and_one_too_many_too(shelf, monkeypatch):
    monkeypatch.setattr("credibly.app.server.guard.REQUEST_SECONDS", 1.5)
    release = threading.Event()
    app = create_app([shelf / "ours.parquet"], hosts=["testserver"])
    with TestClient(app) as client:
        state = app.app.state.served
        monkeypatch.setattr(type(state.files[0]), "search", lambda *_: release.wait(20))
        late = client.get("/api/search?q=fork")
        assert late.status_code == 503
        assert "longer than" in late.json()["error"]
        assert late.headers["retry-after"]
        # The late one is still worked on.
        monkeypatch.setattr("credibly.app.server.guard.MOST_REQUESTS", 1)
        many = client.get("/api/search?q=fork")
        assert many.status_code == 503
        assert "being worked on" in many.json()["error"]
        assert client.get("/api/health").status_code == 200
        release.set()


def test_a_deleted_file_is_told_without_a_traceback(shelf, tmp_path):
    path = tmp_path / "gone.parquet"
    path.write_bytes((shelf / "theirs.parquet").read_bytes())
    with TestClient(create_app([path], hosts=["testserver"])) as client:
        path.unlink()
        answer = client.get("/api/label", params={"name": "fork"})
    assert answer.status_code in (400, 500)
    assert "read" in answer.json()["error"]


def test_the_run_of_a_model_keeps_its_own_decision(served, shelf):
    rows = Predictions.read(shelf / "ours.parquet")
    run = Run(rows, kind="features", shape=(3,))
    run.pipeline.decision = SimpleNamespace(predict=lambda p: np.zeros(p.shape, bool))
    with served(shelf / "ours.parquet", run) as client:
        answer = client.post("/api/predict", json={"features": [[0.0] * 3]})
    assert answer.json()["sets"] == [[]]
