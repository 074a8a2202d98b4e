"""Behind a proxy and for programs: prefix, hosts, scores, missing values, metrics, workers."""

from __future__ import annotations

import contextlib
import json
import os
import re
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import httpx
import numpy as np
import pytest
from serve_pages import PAGES
from starlette.testclient import TestClient

import credibly as cr
from credibly.app.server import create_app

LABELS = ["flu", "cold"]
ADDRESS = re.compile(r'\b(?:href|src|action|formaction|data-poll)="([^"#?][^"]*)"')


@pytest.fixture(scope="module")
def clinic(tmp_path_factory):
    """A run on a table with missing cells, and a saved map."""
    folder = tmp_path_factory.mktemp("clinic")
    rng = np.random.default_rng(0)
    age, bmi = rng.normal(50, 10, 400).round(1), rng.normal(25, 3, 400).round(1)
    truth = rng.random((2, 400)) < 1 / (1 + np.exp(-np.stack([age - 50, bmi - 25]) / 3))
    lines = ["id,age,bmi,flu,cold"]
    for row in range(400):
        cells = [f"p{row}", str(age[row]), "" if row % 7 == 0 else str(bmi[row])]
        lines.append(",".join([*cells, *(str(int(each[row])) for each in truth)]))
    (folder / "patients.csv").write_text("\n".join(lines))
    data = cr.data.load(folder / "patients.csv", labels=LABELS)
    run = cr.train.fit(data, cr.train.Linear(loss="spa"), folder=folder / "run")
    scores = rng.normal(size=(300, 2))
    result = cr.calibrate_scores(scores, rng.random((300, 2)) < 0.3, loss="bce", labels=LABELS)
    result.pipeline.write(folder / "map.json")
    return folder, run


def served(folder, **options):
    return TestClient(create_app([], run=folder / "run", hosts=["testserver"], **options))


@pytest.mark.parametrize("stripped", [True, False], ids=["proxy strips it", "proxy keeps it"])
def test_every_address_of_every_page_is_below_the_root_path(shelf, clinic, stripped):
    before = "" if stripped else "/lab/credibly"
    app = create_app(
        [shelf / "ours.parquet", shelf / "theirs.parquet"],
        images=shelf / "images",
        annotate=shelf / "corrections.jsonl",
        run=clinic[0] / "run",
        hosts=["testserver"],
        root_path="/lab/credibly/",
    )
    files = set()
    with TestClient(app) as client:
        for path in PAGES:
            page = client.get(before + path, follow_redirects=False)
            assert page.status_code in (200, 303), path
            found = ADDRESS.findall(page.text)
            assert page.status_code == 303 or len(found) > 5
            assert [each for each in found if not each.startswith("/lab/credibly/")] == [], path
            assert page.headers.get("location", "/lab/credibly/").startswith("/lab/credibly/")
            files |= {each for each in found if "/static/" in each}
        assert len(files) == 6
        assert {client.get(each).status_code for each in files} == {200}
        refused = client.get(f"{before}/", headers={"host": "x", "accept": "text/html"})
        assert 'href="/lab/credibly/static/style.css"' in refused.text
        assert client.get("/openapi.json").json()["servers"] == [{"url": "/lab/credibly"}]
    with pytest.raises(cr.InputError, match="must be a path such as /credibly"):
        create_app([], root_path="credibly?")


def test_a_server_for_everybody_answers_to_addresses_and_to_names_it_was_given(shelf):
    given = create_app([shelf / "ours.parquet"], hosts=["localhost", "0.0.0.0", "photos.example"])
    alone = create_app([shelf / "ours.parquet"], hosts=["localhost"])

    def status(app, host):
        client = TestClient(app)  # without its warm-up
        return client.get("/api/health", headers={"host": host}).status_code

    hosts = ["localhost:80", "10.1.2.3:8000", "[fe80::1]", "photos.example", "evil.example"]
    assert [status(given, host) for host in hosts] == [200, 200, 200, 200, 421]
    assert [status(alone, host) for host in hosts] == [200, 421, 421, 421, 421]
    refused = TestClient(alone).get("/api/health", headers={"host": "10.1.2.3"})
    assert "--allow-host" in refused.json()["error"]


def test_null_is_a_missing_value_as_in_training(clinic):
    folder, run = clinic
    (folder / "new.csv").write_text("age,bmi\n61,\n40,22.5\n")
    expected = run.predict(folder / "new.csv").probabilities
    with served(folder) as client:
        for features in (
            [[61, None], [40, 22.5]],
            [{"age": 61, "bmi": None}, {"bmi": 22.5, "age": 40}],
        ):
            answer = client.post("/api/predict", json={"features": features})
            assert answer.status_code == 200, answer.text
            np.testing.assert_allclose(answer.json()["probabilities"], expected, rtol=1e-6)
        for features, says in (
            ([[61, 1e999]], "finite"),
            ([[61, "x"]], "row 0, column 1"),
            ([], "JSON list"),
            ([[1, 2]] * 1001, "1,000 rows"),
            ([{"age": 61}], "missing: 'bmi'"),
        ):
            body = json.dumps({"features": features})
            kind = {"content-type": "application/json"}
            answer = client.post("/api/predict", content=body, headers=kind)
            assert answer.status_code == 400
            assert says in answer.json()["error"]


def test_scores_become_probabilities_and_sets_by_the_run_or_the_map(clinic):
    folder, run = clinic
    rows = np.array([[0.3, -2.0], [4.0, 0.0]], dtype=np.float32)
    saved = cr.runtime.load(folder / "map.json")
    kinds = [(served(folder), run.pipeline), (served(folder, map=folder / "map.json"), saved)]
    for client, pipeline in kinds:
        for body in (
            rows.tolist(),
            [dict(zip(LABELS, row, strict=True)) for row in rows.tolist()],
            [{"cold": cold, "flu": flu} for flu, cold in rows.tolist()],
        ):
            answer = client.post("/api/scores", json={"scores": body}).json()
            np.testing.assert_allclose(answer["probabilities"], pipeline.probabilities(rows))
            chosen = [[name in each for name in LABELS] for each in answer["sets"]]
            assert chosen == pipeline.sets(rows).tolist()
        for wrong, says in (
            ([[1.0]], "2 numbers per row; got 1"),
            ([[1.0, None]], "got null"),
            ({"flu": 1.0}, "by name: 'flu', 'cold'"),
            (3, "JSON list"),
        ):
            answer = client.post("/api/scores", json={"scores": wrong})
            assert answer.status_code == 400
            assert says in answer.json()["error"]
    nothing = TestClient(create_app([], hosts=["testserver"]))
    assert "--map" in nothing.post("/api/scores", json={"scores": [[1.0]]}).json()["error"]


def test_metrics_count_requests_and_ready_says_when_all_is_warm(clinic):
    with served(clinic[0]) as client:
        while client.get("/api/ready").json() == {"ready": False}:
            time.sleep(0.05)
        assert client.get("/api/ready").status_code == 200
        client.post("/api/predict", json={"features": [[61, 20]]})
        client.post("/api/predict", json={"features": "none"})
        answer = client.get("/metrics")
    assert answer.headers["content-type"] == "text/plain; version=0.0.4; charset=utf-8"
    lines = [line for line in answer.text.splitlines() if not line.startswith("#")]
    values = {name: float(value) for name, value in (line.rsplit(" ", 1) for line in lines)}
    assert values["credibly_ready"] == 1
    assert values['credibly_requests_total{kind="predict",status="2xx"}'] == 1
    assert values['credibly_requests_total{kind="predict",status="4xx"}'] == 1
    assert values['credibly_request_seconds_count{kind="predict"}'] == 2
    assert values['credibly_request_seconds_sum{kind="predict"}'] > 0
    assert values['credibly_requests_in_progress{kind="predict"}'] == 0


@contextlib.contextmanager
def started(*words):
    code = "import sys; from credibly.cli import main; sys.exit(main(sys.argv[1:]))"
    command = [sys.executable, "-c", code, "serve", *map(str, words), "--port", "0", "--quiet"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            yield process, process.stdout.readline().split()[0]
        finally:
            process.terminate()


@contextlib.contextmanager
def half_sent(address, body):
    """A request whose second half is not sent yet."""
    host, port = re.match(r"http://([^:]+):(\d+)", address).groups()
    content = json.dumps(body).encode()
    head = f"POST /api/scores HTTP/1.1\r\nHost: {host}\r\nContent-Type: application/json\r\n"
    with socket.create_connection((host, int(port)), timeout=60) as connection:
        connection.sendall(f"{head}Content-Length: {len(content)}\r\n\r\n".encode() + content[:9])
        yield connection, content[9:]


def children(process):
    return [
        int(each)
        for task in Path(f"/proc/{process}/task").iterdir()
        for each in (task / "children").read_text().split()
    ]


@pytest.mark.skipif(not Path("/proc/self/task").exists(), reason="needs Linux")
def test_workers_share_one_port_are_replaced_and_stop_together(clinic):
    map = clinic[0] / "map.json"
    # While workers start, requests wait in the queue of the port for as long as that takes.
    patient = httpx.Client(timeout=120)
    with started("--map", map, "--workers", 2) as (process, address), patient as client:
        body = {"scores": [[0.0, 0.0]]}
        answers = [httpx.post(f"{address}/api/scores", json=body, timeout=120) for _ in range(6)]
        assert {each.status_code for each in answers} == {200}
        text = client.get(f"{address}/metrics").text
        assert 'credibly_requests_total{kind="predict",status="2xx"} 6' in text
        assert client.get(f"{address}/import").status_code == 404
        while len(first := children(process.pid)) < 2:
            time.sleep(0.1)
        os.kill(first[0], signal.SIGKILL)
        while len(now := children(process.pid)) < 2 or first[0] in now:
            time.sleep(0.1)
        with half_sent(address, body) as (connection, rest):
            while 'in_progress{kind="predict"} 1' not in client.get(f"{address}/metrics").text:
                time.sleep(0.05)
            begin = time.monotonic()
            process.terminate()
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(1)
            connection.sendall(rest)
            answer = b"".join(iter(lambda: connection.recv(2**16), b""))
        assert answer.startswith(b"HTTP/1.1 200")
        assert b'"probabilities"' in answer
        assert process.wait(60) == 128 + signal.SIGTERM
        assert time.monotonic() - begin < 30
        assert not any(Path(f"/proc/{each}").exists() for each in {*first, *now})
    wrong = ["serve", "--map", "none.json", "--workers", "2"]
    done = subprocess.run(
        [sys.executable, "-m", "credibly", *wrong], capture_output=True, text=True
    )
    assert done.returncode == 2
    assert done.stderr.count("none.json") == 1
    with pytest.raises(cr.InputError, match="written by one process"):
        create_app([], annotate=clinic[0] / "x.jsonl", workers=2)
