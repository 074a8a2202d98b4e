"""The REST API: right numbers, plain errors, nothing served that should not be."""

from __future__ import annotations

import shutil
import socket
import subprocess
import sys

import httpx
import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from serve_labels import LABELS
from serve_pages import PAGES

from credibly import Predictions, metrics
from credibly.app.server import create_app
from credibly.cli import main
from credibly.decide import AverageSize


@pytest.fixture(scope="module")
def client(address):
    with httpx.Client(base_url=address, timeout=30) as client:
        yield client


@pytest.fixture(scope="module")
def ours(shelf):
    return Predictions.read(shelf / "ours.parquet")


BODY_LIMIT = 10 * 2**20
"""Bytes of a request."""


def test_health_says_what_is_served(client):
    health = client.get("/api/health").json()
    assert health["status"] == "ok"
    assert [one["rows"] for one in health["predictions"]] == [400, 400]


def test_search_ranks_by_the_product(client, ours):
    found = client.get("/api/search", params={"q": '+fork -knife "dining table"', "top": 5}).json()
    p = {name: ours.probabilities[:, t].astype(float) for t, name in enumerate(ours.labels)}
    joint = p["fork"] * (1 - p["knife"]) * p["dining table"]
    best = np.argsort(-joint, kind="stable")[:5]
    assert [hit["id"] for hit in found["results"]] == [ours.ids[row] for row in best]
    assert found["expected_hits"] == pytest.approx(joint.sum(), rel=1e-6)
    assert found["results"][0]["conditions"]["+fork"] == pytest.approx(p["fork"][best[0]])


def test_before_calibration_is_the_link_alone(client, ours):
    before = client.get("/api/search", params={"q": "+fork", "top": 1, "raw": True}).json()
    sigmoid = 1 / (1 + np.exp(-ours.scores[:, 0].astype(float)))
    assert before["expected_hits"] == pytest.approx(sigmoid.sum(), rel=1e-5)
    refused = client.get("/api/search", params={"q": "+fork", "file": 1, "raw": True})
    assert refused.status_code == 400
    assert (
        "before calibration" in refused.json()["error"] or "calibrator" in refused.json()["error"]
    )


@pytest.mark.parametrize("label", LABELS)
def test_label_statistics_are_the_metrics(client, ours, label):
    about = client.get("/api/label", params={"name": label}).json()
    t = ours.labels.index(label)
    p, y = ours.probabilities[:, [t]], ours.targets[:, [t]]
    assert about["average_precision"] == pytest.approx(float(metrics.average_precision(p, y)[0]))
    expected = metrics.reliability(p, y)
    np.testing.assert_array_equal(about["reliability"]["counts"], expected.counts)
    column, truth = p[:, 0], y[:, 0]
    groups = about["rows_to_look_at"]
    for name, mask, best in (
        ("right", (truth == 1) & (column >= 0.5), column),
        ("wrong", (truth == 0) & (column >= 0.5), column),
        ("missed", (truth == 1) & (column < 0.5), -column),
        ("borderline", truth >= 0, -np.abs(column - 0.5)),
    ):
        listed = [list(ours.ids).index(each["id"]) for each in groups[name]]
        assert mask[listed].all()
        assert best[listed].tolist() == sorted(best[mask].tolist(), reverse=True)[: len(listed)]


@pytest.mark.parametrize("size", [0.5, 1, 2.5, 7])
def test_sets_meet_the_budget(client, ours, size):
    budget = client.get("/api/sets", params={"average_size": size}).json()
    sets = AverageSize(size).fit(ours.probabilities).predict(ours.probabilities)
    assert budget["mean_size"] == pytest.approx(sets.sum(1).mean())
    assert sum(budget["histogram"]) == 400


BAD = [
    ("/api/search?q=frok", 400, "fork"),
    ("/api/search?q=", 400, "at least one label"),
    ("/api/search?q=(fork", 400, ""),
    ("/api/search?q=fork&top=0", 422, "top"),
    ("/api/search?q=fork&top=99999", 422, "top"),
    ("/api/search?q=fork&file=7", 400, "predictions files"),
    ("/api/label?name=frok", 400, "fork"),
    ("/api/sets?average_size=-1", 422, "average_size"),
    ("/api/sets?average_size=nan", 422, "average_size"),
    ("/api/sets?average_size=99", 400, "average_size"),
    ("/api/nothing", 404, ""),
]


@pytest.mark.parametrize(("path", "status", "says"), BAD)
def test_bad_requests_are_explained_as_json(client, path, status, says):
    answer = client.get(path)
    assert answer.status_code == status
    assert says in answer.json()["error"]


def test_a_long_query_is_refused(client):
    assert client.get("/api/search", params={"q": "fork " * 1000}).status_code == 422
    assert client.get("/api/search", params={"q": "f" * 9000}).status_code == 414


ESCAPES = [
    "../secret",
    "../secret.png",
    "img/../../secret.png",
    "/etc/passwd",
    "img/out",
    "img/out.png",
    "img/page.html",
    "img",
    "",
    "img/000\x00.png",
    "..%2fsecret.png",
    "img/" + "a" * 900,
]


@pytest.mark.parametrize("name", ESCAPES)
def test_nothing_outside_the_image_folder_is_served(client, name):
    assert client.get("/image", params={"id": name}).status_code in (404, 422)


def test_images_are_found_with_and_without_their_ending(client):
    for name in ("img/002", "img/002.png"):
        answer = client.get("/image", params={"id": name})
        assert answer.status_code == 200
        assert answer.headers["content-type"] == "image/png"


def test_other_hosts_are_refused(client, address):
    for host in ("evil.example", "127.0.0.1.evil.example", "evil.example:8000", ""):
        assert client.get("/api/health", headers={"host": host}).status_code == 421
    port = address.rpartition(":")[2]
    assert client.get("/api/health", headers={"host": f"localhost:{port}"}).status_code == 200


def test_other_sites_cannot_post(client):
    body = {"features": [[1.0]]}
    for headers in ({"origin": "http://evil.example"}, {"sec-fetch-site": "cross-site"}):
        assert client.post("/api/predict", json=body, headers=headers).status_code == 403
    assert client.post("/api/predict", json=body).status_code == 400  # no model here
    assert "--run" in client.post("/api/predict", json=body).json()["error"]


def test_large_bodies_are_refused(address):
    host, port = address.removeprefix("http://").split(":")
    with socket.create_connection((host, int(port)), timeout=10) as raw:
        head = ["POST /api/predict HTTP/1.1", f"Host: {host}", f"Content-Length: {BODY_LIMIT + 1}"]
        raw.sendall("\r\n".join([*head, "", ""]).encode())
        assert b" 413 " in raw.recv(200)

    def stream():
        for _ in range(BODY_LIMIT // 2**20 + 1):
            yield b" " * 2**20

    with httpx.Client(base_url=address) as other:  # the refusal closes the connection
        assert other.post("/api/predict", content=stream()).status_code == 413


def test_every_answer_carries_the_headers(client):
    for path in ("/", "/api/health", "/nothing", "/static/app.js"):
        headers = client.get(path).headers
        assert "default-src 'none'" in headers["content-security-policy"]
        assert headers["x-content-type-options"] == "nosniff"


@pytest.mark.parametrize("path", [*PAGES, "/?q=%2Bfork"])
def test_pages_render_and_names_stay_text(client, path):
    page = client.get(path)
    assert page.status_code == 200
    assert "<b>bold</b>" not in page.text


def test_files_are_compared_once_and_equal_names_are_told_apart(shelf):
    again = shelf / "again"
    again.mkdir()
    shutil.copy(shelf / "ours.parquet", again)
    served = create_app([shelf / "ours.parquet", again / "ours.parquet"]).app.state.served
    assert [file.name for file in served.files] == [shelf.name, "again"]
    first = served.comparing.known(60)
    assert served.comparing.known().measured[0] is first.measured[0]


def test_every_label_has_a_page(client):
    for label in LABELS:
        page = client.get("/label", params={"name": label})
        assert page.status_code == 200
        assert "<b>bold" not in page.text


def test_the_description_lists_what_exists(client):
    paths = client.get("/openapi.json").json()["paths"]
    assert {"/api/search", "/api/label", "/api/sets", "/api/predict", "/api/health"} <= set(paths)
    assert all(path.startswith("/api/") for path in paths)


TEXT = st.text(max_size=40)
KEYS = ["q", "name", "top", "file", "book", "raw", "average_size", "id", "prefix", "limit"]


@settings(max_examples=60, deadline=None, suppress_health_check=list(HealthCheck))
@given(
    path=st.sampled_from([*(page.partition("?")[0] for page in PAGES), "/image", "/api/search",
                          "/api/label", "/api/sets", "/api/labels"]),
    parameters=st.dictionaries(
        st.sampled_from(KEYS),
        st.one_of(TEXT, st.integers().map(str), st.floats().map(str), st.sampled_from(LABELS)),
        max_size=5,
    ),
)  # fmt: skip
def test_no_request_breaks_the_server(client, path, parameters):
    assert client.get(path, params=parameters).status_code < 500


@settings(max_examples=40, deadline=None, suppress_health_check=list(HealthCheck))
@given(body=st.one_of(st.binary(max_size=200), st.sampled_from([b"{}", b'{"features": [[1], []]}',
       b'{"features": [[1e999]]}', b"[" * 5000])))  # fmt: skip
def test_no_body_breaks_the_server(client, body):
    headers = {"content-type": "application/json"}
    for path in ("/api/predict", "/api/predict/image"):
        assert client.post(path, content=body, headers=headers).status_code < 500


def test_a_used_port_is_explained(shelf, capsys):
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = str(taken.getsockname()[1])
        assert main(["serve", str(shelf / "ours.parquet"), "--port", port]) == 2
    assert "cannot be used" in capsys.readouterr().err


def test_the_address_is_printed_when_the_server_answers(shelf):
    command = [sys.executable, "-m", "credibly", "serve", str(shelf / "ours.parquet")]
    process = subprocess.Popen([*command, "--port", "0"], stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        where = process.stdout.readline().split()[0]
        assert httpx.get(f"{where}/api/health", timeout=60).status_code == 200
    finally:
        process.terminate()
        process.communicate(timeout=60)


def test_broken_predictions_are_explained(shelf, tmp_path, capsys):
    broken = tmp_path / "broken.parquet"
    broken.write_bytes((shelf / "ours.parquet").read_bytes()[:500])
    assert main(["serve", str(broken)]) == 2
    assert "broken.parquet" in capsys.readouterr().err


def test_labels_seen_together_and_joint_search(tmp_path):
    from fastapi.testclient import TestClient

    from credibly.retrieve import Joint

    rng = np.random.default_rng(0)
    kinds = rng.random(400) < 0.5  # a cat or a dog, never both
    truth = np.stack([kinds, ~kinds, rng.random(400) < 0.3], axis=1).astype(int)
    chances = np.tile([0.5, 0.5, 0.3], (400, 1))
    labels = ["cat", "dog", 'say "x" \\ <b>']
    Predictions.from_arrays(probabilities=chances, targets=truth, labels=labels).write(
        tmp_path / "p.parquet"
    )
    joint = Joint(2).fit(chances, truth, labels)
    local = {"base_url": "http://127.0.0.1"}
    with TestClient(create_app([tmp_path / "p.parquet"], joint=joint), **local) as client:
        found = client.get("/api/search", params={"q": "+cat +dog"}).json()
        assert found["expected_hits"] < 20
        for name in labels:
            page = client.get("/label", params={"name": name})
            assert page.status_code == 200
            assert "Labels that appear with it" in page.text
            assert "<b>" not in page.text
        page = client.get("/", params={"q": "+cat", "also": "true"}).text
        assert "with these" in page
        assert "/explore?q=%2Bcat+%2Bdog" in page
    with TestClient(create_app([tmp_path / "p.parquet"]), **local) as client:
        assert client.get("/api/search", params={"q": "+cat +dog"}).json()["expected_hits"] > 90
        assert "Labels that appear with these" in client.get("/", params={"q": "+cat"}).text


def test_names_are_found_without_their_accents(tmp_path):
    from starlette.testclient import TestClient

    names = ["Café", "cafeteria", "Zürich", "decaf"]
    Predictions.from_arrays(probabilities=np.full((2, 4), 0.5), labels=names).write(
        tmp_path / "p.parquet"
    )
    app = create_app([tmp_path / "p.parquet"], hosts=["testserver"])
    with TestClient(app) as client:
        for asked, found in (
            ("CAFE", names[:2]),
            ("zur", ["Zürich"]),
            ("caf", ["Café", "cafeteria", "decaf"]),
        ):
            assert client.get("/api/labels", params={"prefix": asked}).json()["labels"] == found
