"""Folders of runs: found, followed while they train, compared on shared rows."""

from __future__ import annotations

import re
import shutil
import time

import numpy as np
import pytest
from serve_runs import add_epochs, write_predictions, write_run
from starlette.testclient import TestClient

from credibly import Predictions, metrics
from credibly.app.server import create_app
from credibly.checks import InputError


@pytest.fixture
def folder(tmp_path):
    runs = tmp_path / "runs"
    write_run(runs / "good", "bce", 5, noise=0.1)
    write_run(runs / "bad", "spa", 5, noise=1.5, seed=1)
    write_run(runs / "twin", "asl", 5, noise=0.12, seed=2)
    write_run(runs / "training", "bce", 2)
    return runs


@pytest.fixture
def client(folder, monkeypatch):
    monkeypatch.setattr("credibly.app.store.runs.SECONDS", 0.0)
    with TestClient(create_app([folder], hosts=["testserver"])) as opened:
        yield opened


def measured(client):
    deadline = time.monotonic() + 60
    while (answer := client.get("/api/runs").json())["pending"]:
        assert time.monotonic() < deadline
        time.sleep(0.05)
    return answer


def test_every_run_is_listed_with_its_state_and_numbers_of_the_metrics(client, folder):
    answer = measured(client)
    by_name = {each["name"]: each for each in answer["runs"]}
    assert set(by_name) == {"good", "bad", "twin", "training"}
    assert by_name["training"]["file"] is None
    assert by_name["training"]["state"] == "not finished, epoch 2 of 5"
    for name in ("good", "bad", "twin"):
        file = Predictions.read(folder / name / "predictions.parquet")
        expected = metrics.summary(file.probabilities, file.targets)
        found = answer["numbers"][str(by_name[name]["file"])]
        for column in ("NLL", "ACE", "mAP@y"):
            assert found[column]["estimate"] == pytest.approx(expected[column], abs=1e-6)


def test_a_difference_is_clear_only_where_pairs_of_rows_say_so(client):
    measured(client)
    text = client.get("/compare?by=NLL").text
    rows = re.findall(r'<table id="against">.*?</table>', text, re.S)[0]
    listed = re.findall(r'<th scope="row">.*?</svg> (\w+)</th>(.*?)</tr>', rows, re.S)
    found = dict(listed)
    assert set(found) == {"good", "twin"}  # each minus the first, "bad"
    assert "clearly better" in found["good"]
    text = client.get("/compare?first=1&second=2").text  # good and twin differ by noise
    rows = re.findall(r'<table id="against">.*?</table>', text, re.S)[0]
    twin = next(part for part in rows.split("<tr") if "twin</th>" in part)
    nll = twin.split("<td>")[3]
    assert "clearly" not in nll


def compared(tmp_path, *probabilities, targets, by="NLL"):
    """Return a client that serves files with these probabilities of the same rows, measured."""
    paths = [tmp_path / f"file-{number}.parquet" for number in range(len(probabilities))]
    for path, p in zip(paths, probabilities, strict=True):
        labels = [f"l{t}" for t in range(p.shape[1])]
        Predictions.from_arrays(probabilities=p, targets=targets, labels=labels).write(path)
    client = TestClient(create_app(paths, hosts=["testserver"]))
    measured(client)
    return client


def test_paired_intervals_cover_the_resampled_difference(tmp_path):
    """The interval is that of resampling rows of both files together."""
    rng = np.random.default_rng(0)
    p = rng.random((600, 3))
    y = (rng.random(p.shape) < p).astype(np.int8)
    q = np.clip(p + rng.normal(0, 0.1, p.shape), 0.01, 0.99)
    page = compared(tmp_path, p, q, targets=y).get("/compare?first=1&second=0").text
    table = re.search(r'<table id="against">.*?</table>', page, re.S)[0]
    place = re.findall(r"<th scope=\"col\">(?:<abbr[^>]*>)?(\w[\w@]*)", table).index("NLL")
    cell = table.partition("<tbody>")[2].split("<td>")[place]
    estimate, found_low, found_high = (
        float(each.replace("−", "-")) for each in re.findall(r"[+−]\d\.\d+", cell)
    )
    loss = [-(y * np.log(each) + (1 - y) * np.log1p(-each)).mean(1) for each in (p, q)]
    apart = loss[0] - loss[1]
    boot = [apart[rng.integers(0, 600, 600)].mean() for _ in range(4000)]
    low, high = np.quantile(boot, [0.025, 0.975])
    assert estimate == pytest.approx(apart.mean(), abs=1e-4)
    width = high - low
    assert abs(found_low - low) < 0.25 * width
    assert abs(found_high - high) < 0.25 * width
    assert "clearly better" in cell


def test_labels_are_accused_under_a_false_discovery_rate(tmp_path):
    rng = np.random.default_rng(0)
    base = rng.normal(-1, 1, (1000, 300))
    p, q = (1 / (1 + np.exp(-base - rng.normal(0, 0.3, base.shape))) for _ in range(2))
    y = (rng.random(p.shape) < 1 / (1 + np.exp(-base))).astype(np.int8)
    y[rng.random(p.shape) < 0.1] = -1
    worse = q.copy()
    worse[:, :20] = 1 - worse[:, :20]
    client = compared(tmp_path, p, q, worse, targets=y)

    def better(second):
        asked = {"first": 0, "second": second, "by": "NLL"}
        rows = client.get("/api/compare/labels", params=asked).json()["labels"]
        return {int(row["label"][1:]): row["better"] for row in rows}

    assert sum(value != 0 for value in better(1).values()) <= 3  # equally good, 300 labels
    found = better(2)
    assert all(found[label] == 1 for label in range(20))
    assert sum(found[label] != 0 for label in range(20, 300)) <= 4


def test_rows_are_matched_by_id_whatever_their_order(tmp_path):
    write_predictions(tmp_path / "a.parquet", rows=300)
    write_predictions(tmp_path / "b.parquet", rows=300, first=100, noise=0.5)
    whole = Predictions.read(tmp_path / "b.parquet")
    whole[np.random.default_rng(0).permutation(300)].write(tmp_path / "shuffled.parquet")
    names = ("a", "b", "shuffled")
    paths = [tmp_path / f"{name}.parquet" for name in names]
    found = measured(TestClient(create_app(paths, hosts=["testserver"])))
    assert found["rows"] == 200
    first, one, same = (found["numbers"][str(number)] for number in range(3))
    assert one["NLL"] == pytest.approx(same["NLL"], rel=1e-9)
    both = whole[np.isin(whole.ids, Predictions.read(paths[0]).ids)]
    expected = metrics.summary(both.probabilities, both.targets)["NLL"]
    assert one["NLL"]["estimate"] == pytest.approx(expected, abs=1e-6)
    assert first["NLL"]["estimate"] < expected


def test_files_that_cannot_be_compared_say_why(tmp_path, folder, monkeypatch):
    write_run(folder / "elsewhere", "bce", 0, first=600)
    write_run(folder / "others", "bce", 0, labels=("a", "b", "x"))
    (folder / "broken").mkdir()
    (folder / "broken" / "predictions.parquet").write_bytes(b"PAR1 no")
    (folder / "good" / "log.jsonl").write_text("not json\n")
    with TestClient(create_app([folder], hosts=["testserver"])) as client:
        answer = measured(client)
        page = client.get("/compare")
        assert page.status_code == 200
    by_name = {each["name"]: each for each in answer["runs"]}
    assert "rows" in answer["left_out"][str(by_name["elsewhere"]["file"])]
    assert "labels" in answer["left_out"][str(by_name["others"]["file"])]
    assert by_name["broken"]["file"] is None
    assert "log.jsonl, line 1" in by_name["good"]["problem"]
    assert by_name["good"]["file"] is not None  # its predictions are whole
    assert "cannot be read" in page.text


def test_a_run_is_followed_until_it_has_predictions(client, folder):
    measured(client)
    first = client.get("/api/runs")
    tag = first.headers["etag"]
    same = client.get("/api/runs", headers={"if-none-match": tag})
    assert same.status_code == 304
    assert same.content == b""
    add_epochs(folder / "training", 4)
    changed = client.get("/api/runs", headers={"if-none-match": tag})
    assert changed.status_code == 200
    assert "epoch 4 of 5" in changed.text
    write_predictions(folder / "training" / "predictions.parquet", noise=0.4, seed=5)
    (folder / "training" / "calibration.json").write_text("{}")
    answer = measured(client)
    run = next(each for each in answer["runs"] if each["name"] == "training")
    assert run["file"] == 3  # numbers of the others stay what they are
    assert run["state"] == "finished, 4 epochs"
    assert str(run["file"]) in answer["numbers"]
    assert "training" in client.get(f"/labels?file={run['file']}").text


def test_the_home_of_runs_without_predictions_is_the_comparison(tmp_path):
    write_run(tmp_path / "one", "bce", 3)
    with TestClient(create_app([tmp_path], hosts=["testserver"])) as client:
        answer = client.get("/")
        assert answer.url.path == "/compare"
        assert answer.status_code == 200
        assert "epoch 3 of 5" in answer.text
        assert "<polyline" in answer.text
        assert client.get("/labels").status_code == 400


def test_a_folder_must_hold_runs_or_predictions(tmp_path):
    (tmp_path / "empty").mkdir()
    with pytest.raises(InputError, match="must hold predictions"):
        create_app([tmp_path / "empty"])


def test_predictions_of_the_same_rows_in_one_folder_are_files_to_compare(tmp_path):
    write_predictions(tmp_path / "a.parquet", rows=300)
    write_predictions(tmp_path / "b.parquet", rows=300, noise=0.5)
    with TestClient(create_app([tmp_path], hosts=["testserver"])) as client:
        assert set(measured(client)["numbers"]) == {"0", "1"}
    shards = tmp_path / "shards"
    shards.mkdir()
    write_predictions(shards / "part-0.parquet", rows=100)
    write_predictions(shards / "part-1.parquet", rows=100, first=100)
    health = TestClient(create_app([shards], hosts=["testserver"])).get("/api/health").json()
    assert [each["rows"] for each in health["predictions"]] == [200]  # one file in two parts


def test_labels_of_two_runs_as_a_table(client):
    measured(client)
    rows = client.get("/api/compare/labels?first=0&second=1&by=NLL").json()["labels"]
    assert len(rows) == 3
    apart = [abs(row["first"] - row["second"]) for row in rows]
    assert apart == sorted(apart, reverse=True)
    assert all(row["low"] <= row["first"] - row["second"] <= row["high"] for row in rows)
    table = client.get("/api/compare/labels?format=csv").text
    assert table.startswith("label,first,second")
    for wrong in ("first=0&second=0", "first=77"):
        assert client.get(f"/api/compare/labels?{wrong}").status_code == 400


def test_files_looked_at_longest_ago_leave_memory(tmp_path, monkeypatch):
    paths = [tmp_path / f"{name}.parquet" for name in "abcd"]
    for path in paths:
        write_predictions(path, rows=300)
    monkeypatch.setattr("credibly.app.store.store.MOST_BYTES", 2 * 5 * 300 * 3)
    app = create_app(paths, hosts=["testserver"])
    client, files = TestClient(app), app.app.state.served.files
    before = {}
    for number in (0, 1, 2, 3, 2):
        assert client.get(f"/api/search?q=a&file={number}").status_code == 200
        before[number] = files[number].index
    assert [files[n].index is before[n] for n in (2, 3, 0, 1)] == [True, True, False, False]


def test_a_folder_that_goes_away_leaves_the_server_up(client, folder):
    measured(client)
    shutil.rmtree(folder / "training")
    assert {each["name"] for each in client.get("/api/runs").json()["runs"]} == {
        "good",
        "bad",
        "twin",
    }
