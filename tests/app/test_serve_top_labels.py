"""The web app over files that hold the most probable labels of each row."""

from __future__ import annotations

import re
import time

import httpx
import numpy as np
import pytest
from serve_accessibility import look_at
from serve_browser import listening
from starlette.testclient import TestClient

from credibly import Pipeline, Predictions, metrics
from credibly.app.server import create_app
from credibly.retrieve import search
from credibly.targets import SparseTargets

LABELS = [f"<label> {i}" for i in range(300)]


def rows_of(num_labels, rows, k, labels=None):
    """Different labels in each row, some of them often; truth drawn from the probabilities."""
    generator = np.random.default_rng(0)
    step = 1 + generator.integers(0, (num_labels - 10) // k, rows)
    top = 5 + np.arange(k)[None] * step[:, None]
    top[:, 0] = np.arange(rows) % 5
    values = np.sort(generator.random((rows, k)) ** 3, axis=1)[:, ::-1].astype(np.float32)
    lists = [row[generator.random(k) < p].tolist() for row, p in zip(top, values, strict=True)]
    lists[1] = [*lists[1], num_labels - 1]  # present and not held
    return Predictions.from_arrays(
        top=top,
        probabilities=values,
        labels=labels or [f"l{i}" for i in range(num_labels)],
        targets=SparseTargets.from_lists(lists, num_labels),
        ids=[f"row/{i}" for i in range(rows)],
    )


@pytest.fixture(scope="module")
def rows():
    return rows_of(300, 400, 20, LABELS)


@pytest.fixture(scope="module")
def path(rows, tmp_path_factory):
    file = tmp_path_factory.mktemp("served") / "top.parquet"
    rows.write(file)
    return file


@pytest.fixture(scope="module")
def client(path):
    with listening(create_app([path])) as where, httpx.Client(base_url=where, timeout=60) as one:
        yield one


def test_the_summary_is_that_of_the_metrics(client, rows):
    ranking = client.get("/api/overview").json()["ranking"]
    expected = metrics.precision_at_k(rows.top, rows.all_targets, 20)
    np.testing.assert_allclose(
        [each[1] for each in ranking], expected[[each[0] - 1 for each in ranking]]
    )
    assert f"{100 * expected[4]:.1f} %" in client.get("/").text
    assert client.get("/api/health").json()["predictions"][0]["labels"] == 300


def test_search_in_memory_is_search_in_the_file(client, path):
    query = '+"<label> 2" -"<label> 40"'
    found = client.get("/api/search", params={"q": query, "top": 5}).json()
    expected = search(path, query, top=5)
    assert [hit["id"] for hit in found["results"]] == expected.ids
    assert found["expected_hits"] == pytest.approx(expected.expected_hits)
    page = client.get("/", params={"q": query}).text
    assert f"{expected.expected_hits:,.1f}</strong> hits expected" in page


@pytest.mark.parametrize("query", ["", '+"<label> 2"'])
def test_all_rows_have_a_range_of_probabilities(client, rows, query):
    p = rows.select([LABELS[2]]).probabilities[:, 0] if query else rows.probabilities.max(1)
    low, high = np.quantile(p[p > 0], [0.2, 0.8]).tolist()
    inside = {str(rows.ids[row]) for row in np.flatnonzero((p >= low) & (p <= high))}
    assert 0 < len(inside) < len(rows)
    asked = {"q": query, "low": low, "high": high, "top": 200}
    page = client.get("/explore", params=asked).text
    shown = re.findall(r'<li class="tile" data-id="([^"]+)"', page)
    assert len(shown) == min(200, len(inside))
    assert set(shown) <= inside


def test_a_label_s_page_lists_rows_that_are_wrong(client, rows):
    found = client.get("/api/label", params={"name": LABELS[2]}).json()
    truth, column = rows.all_targets.dense()[:, 2], rows.select([LABELS[2]]).probabilities[:, 0]
    held = (rows.top == 2).any(axis=1)
    assert (found["rows"], found["present"]) == (held.sum(), truth[held].sum())
    alarms = [row for row in np.argsort(-column, kind="stable") if held[row] and not truth[row]]
    listed = [each["id"] for each in found["rows_to_look_at"]["wrong"]]
    assert listed == [rows.ids[row] for row in alarms[: len(listed)]]
    last = client.get("/api/label", params={"name": LABELS[299]}).json()["rows_to_look_at"]
    assert [each["id"] for each in last["missed"]] == ["row/1"]
    page = client.get("/label", params={"name": LABELS[2]}).text
    assert "&lt;label&gt; 2" in page
    assert "<label> 2" not in page
    assert 'role="img"' in page


def test_a_row_s_page_has_what_it_holds_and_what_it_lacks(client, rows):
    found = client.get("/api/row", params={"id": "row/1"}).json()
    labels = [each["label"] for each in found["labels"]]
    assert labels == [*(LABELS[n] for n in rows.top[1]), LABELS[299]]
    assert found["labels"][-1]["probability"] == 0
    page = client.get("/row", params={"id": "row/1"})
    assert page.status_code == 200
    assert "&lt;label&gt; 299" in page.text
    assert client.get("/row", params={"id": "none"}).status_code == 400


@pytest.mark.parametrize("sort", ["excess", "known", "rate", "label"])
def test_labels_are_found_and_paged(client, sort):
    seen, start = [], 0
    while start < 300:
        text = client.get("/labels", params={"sort": sort, "start": start}).text
        seen += [line for line in text.split("<tr><td>") if line.startswith("<a ")]
        start += 75
    assert len(seen) == 300
    some = client.get("/labels", params={"contains": "LABEL> 29", "sort": sort}).text
    assert 'data-found="11"' in some
    assert client.get("/api/labels", params={"prefix": "<label> 29"}).json()["total"] == 11


@pytest.mark.parametrize("page", ["/decide", "/pairs", "/api/sets?average_size=2", "/api/entries"])
def test_every_page_that_needs_all_labels_says_so(client, page):
    answer = client.get(page)
    assert answer.status_code == 400
    text = answer.json()["error"] if page.startswith("/api/") else answer.text
    assert "most probable labels of each row" in text
    home = client.get("/").text
    assert 'href="/labels"' in home
    assert 'href="/decide"' not in home


def test_a_budget_is_not_fitted_on_the_most_probable_labels(path, tmp_path):
    Pipeline("bce", labels=LABELS).write(tmp_path / "map.json")
    with TestClient(create_app([path], map=tmp_path / "map.json", hosts=["testserver"])) as one:
        body = {"scores": [[0.0] * len(LABELS)], "average_size": 2}
        answer = one.post("/api/scores", json=body)
    assert answer.status_code == 400
    assert "most probable labels of each row" in answer.json()["error"]


@pytest.mark.parametrize("page", ["/", "/labels", "/docs", "/static/app.js", "/labels?start=200"])
def test_pages_answer(client, page):
    assert client.get(page).status_code == 200


@pytest.mark.parametrize("page", ["/label?name=none", "/?q=%2Bnone", "/labels?file=1"])
def test_what_is_not_there_is_said(client, page):
    answer = client.get(page)
    assert answer.status_code == 400
    assert "Traceback" not in answer.text


def test_files_of_both_layouts_are_served_beside_each_other(path, tmp_path):
    wide = Predictions.from_arrays(probabilities=[[0.5] * 300], targets=[[1] * 300], labels=LABELS)
    wide.write(tmp_path / "wide.parquet")
    app = create_app([path, tmp_path / "wide.parquet"], annotate=tmp_path / "log.jsonl")
    with listening(app) as where, httpx.Client(base_url=where, timeout=60) as both:
        for file in (0, 1):
            for page in ("/", "/labels", "/explore?q=%22<label> 2%22"):
                found = both.get(page, params={"file": file} if "?" not in page else None)
                assert found.status_code == 200, page
        assert both.get("/decide?file=1").status_code == 200
        assert both.get("/decide").status_code == 400


def test_a_hundred_thousand_labels_stay_fast(tmp_path):
    rows_of(100_000, 2000, 20).write(tmp_path / "top.parquet")
    client = TestClient(create_app([tmp_path / "top.parquet"], hosts=["testserver"]))
    for page in ("/", "/explore?q=l1", "/api/labels?prefix=l"):
        assert client.get(page).status_code == 200
    start = time.process_time()
    for number in range(5):
        for page in (
            f"/api/search?q=%2Bl{number}+-l{number + 1}",
            f"/api/label?name=l{number}",
            f"/api/row?id=row/{number}",
            f"/api/labels?prefix=l{number}",
        ):
            assert client.get(page).status_code == 200
    assert time.process_time() - start < 5


def test_axe_finds_nothing_and_labels_are_suggested(client, open_page):
    page = open_page(base_url=str(client.base_url).rstrip("/"), bypass_csp=True)
    for name, path in {
        "home": "/",
        "search": '/?q=%2B"<label> 2"',
        "labels": "/labels",
        "label": "/label?name=<label> 2",
        "row": "/row?id=row/1",
    }.items():
        page.goto(path)
        look_at(page, f"top-{name}")
    page.goto("/")
    page.fill("#q", "+<label> 29")
    page.wait_for_selector("#suggestions li")
