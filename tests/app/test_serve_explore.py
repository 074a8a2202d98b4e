"""Rows and entries: the same as by brute force, whatever the view; tables that are safe to open."""

from __future__ import annotations

import csv
import io
import json
import re

import httpx
import numpy as np
import pytest
from starlette.testclient import TestClient

from credibly import Predictions
from credibly.app.server import create_app
from credibly.decide import AverageSize, Cost
from credibly.retrieve import probability


@pytest.fixture(scope="module")
def client(address):
    with httpx.Client(base_url=address, timeout=30) as client:
        yield client


@pytest.fixture(scope="module")
def ours(shelf):
    return Predictions.read(shelf / "ours.parquet")


@pytest.fixture(scope="module")
def theirs(shelf):
    return Predictions.read(shelf / "theirs.parquet")


def brute(ours, theirs, kind, label, *, threshold=0.5, low=0.0, high=1.0, truth="any"):
    """Return the entries of a view, as sets of (id, label), and the key of each."""
    found = {}
    for t, name in enumerate(ours.labels):
        if label not in ("", name):
            continue
        for row, id in enumerate(ours.ids):
            p, y = float(ours.probabilities[row, t]), int(ours.targets[row, t])
            other = float(theirs.probabilities[row, t])
            keep = {
                "missed": (y == 1 and p < threshold, 1 - p),
                "false-alarm": (y == 0 and p >= threshold, p),
                "not-annotated": (y == -1 and p >= threshold, p),
                "borderline": (True, -abs(p - threshold)),
                "disagreement": ((p >= threshold) != (other >= threshold), abs(p - other)),
            }[kind]
            facets = low <= p <= high
            facets &= {"any": True, "known": y >= 0, "unknown": y < 0}[truth]
            if keep[0] and facets:
                found[str(id), name] = keep[1]
    return found


VIEWS = [
    {"kind": "missed", "label": "fork"},
    {"kind": "missed", "label": ""},
    {"kind": "false-alarm", "label": "", "low": 0.7, "high": 0.9},
    {"kind": "false-alarm", "label": "dining table", "threshold": 0.2},
    {"kind": "not-annotated", "label": ""},
    {"kind": "borderline", "label": "apple", "truth": "known"},
    {"kind": "borderline", "label": "apple", "truth": "unknown"},
    {"kind": "disagreement", "label": ""},
]


@pytest.mark.parametrize("view", VIEWS, ids=str)
def test_a_view_is_what_brute_force_finds(client, ours, theirs, view):
    expected = brute(ours, theirs, **view)
    answer = client.get("/api/entries", params=view).json()
    assert answer["total"] == len(expected)
    listed = [(each["id"], each["label"]) for each in answer["entries"]]
    assert set(listed) == set(expected)
    keys = [expected[each] for each in listed]
    np.testing.assert_allclose(keys, sorted(keys, reverse=True), atol=1e-6)


def tiles(page):
    return re.findall(r'<li class="tile" data-id="([^"]+)"', page)


@pytest.mark.parametrize("query", ["", "fork", "+fork -apple", "fork | apple"])
@pytest.mark.parametrize(("low", "high"), [(0.3, 0.6), (0.9, 1), (0, 0.4)])
def test_all_rows_have_a_range_of_probabilities(client, ours, query, low, high):
    p = probability(query, ours.probabilities, ours.labels) if query else ours.probabilities.max(1)
    inside = {str(ours.ids[row]) for row in np.flatnonzero((p >= low) & (p <= high))}
    page = client.get("/explore", params={"q": query, "low": low, "high": high, "top": 200})
    assert page.status_code == 200
    assert 'name="low"' in page.text
    shown = tiles(page.text)
    assert len(shown) == min(200, len(inside))
    assert set(shown) <= inside
    if query:
        expected = float(re.search(r'data-expected="([^"]+)"', page.text)[1])
        assert expected == pytest.approx(p[(p >= low) & (p <= high)].sum())
        assert f"among {len(inside)} rows" in page.text
    else:
        assert f'data-rows="{len(inside)}"' in page.text


def test_links_of_the_rail_keep_the_range(client):
    page = client.get("/explore?low=0.3&high=0.6").text
    links = re.findall(
        r'href="(/explore\?[^"]*q=[^"]*)"', page.split('id="rail"')[1].split("</ul>")[0]
    )
    assert len(links) == 14
    assert all("low=0.3" in link and "high=0.6" in link for link in links)


@pytest.mark.parametrize("query", ["", "fork"])
def test_an_impossible_range_of_all_rows_is_said_beside_the_field(client, query):
    answer = client.get("/explore", params={"q": query, "low": 0.9, "high": 0.1})
    assert answer.status_code == 422
    said = re.search(r'data-problem-of="high">(.*?)</span>', answer.text)[1]
    assert said == "must be at least 0.9; got 0.1"
    assert re.search(r'class="[^"]*stale" id="tiles"', answer.text)


def test_a_range_without_rows_says_so(client):
    assert "No row matches with a probability" in client.get("/explore?low=0.999999&q=fork").text
    assert "There are none." in client.get("/explore?low=0&high=0.000001").text


def test_a_list_in_small_blocks_is_the_whole_list(shelf, monkeypatch):
    def listed():
        app = create_app([shelf / "ours.parquet"], hosts=["testserver"])
        return TestClient(app).get("/api/entries?kind=borderline").json()

    whole = listed()
    monkeypatch.setattr("credibly.app.store.store.BLOCK_CELLS", 400)
    assert listed() == whole
    monkeypatch.setattr("credibly.app.store.store.MOST_ENTRIES", 50)
    few = listed()
    assert few["total"] == whole["total"] == 400 * 7
    assert few["entries"] == whole["entries"][:50]


RULES = [
    ({}, 0.5, lambda p: p >= 0.5),
    ({"threshold": 0.3}, 0.3, lambda p: p >= np.float32(0.3)),
    ({"miss": 5}, 1 / 6, lambda p: Cost(5).predict(p)),
    ({"average_size": 2}, None, lambda p: AverageSize(2).fit(p).predict(p)),
]


@pytest.mark.parametrize(
    ("parameters", "threshold", "sets"), RULES, ids=[str(rule[0]) for rule in RULES]
)
def test_a_row_shows_its_probabilities_and_the_set_of_the_rule(
    client, ours, parameters, threshold, sets
):
    row = 17
    answer = client.get("/api/row", params={"id": ours.ids[row], **parameters}).json()
    expected = sets(ours.probabilities)[row]
    for each in answer["labels"]:
        t = ours.labels.index(each["label"])
        assert each["probability"] == pytest.approx(float(ours.probabilities[row, t]))
        assert each["chosen"] == expected[t]
        assert each["truth"] == (None if ours.targets[row, t] < 0 else ours.targets[row, t])
        if threshold is not None:
            assert each["threshold"] == pytest.approx(threshold)
    values = [each["probability"] for each in answer["labels"]]
    assert values == sorted(values, reverse=True)


def test_neighbours_are_the_rows_at_the_smallest_distance(client, ours):
    p = ours.probabilities.astype(float)
    answer = client.get("/api/row", params={"id": "img/007"}).json()
    total = p.sum(1) + p[7].sum()
    distance = np.sqrt(((np.sqrt(p) - np.sqrt(p[7])) ** 2).sum(1) / total)
    nearest = np.argsort(distance)[1:9]
    assert [each["id"] for each in answer["neighbours"]] == [ours.ids[row] for row in nearest]
    found = [each["distance"] for each in answer["neighbours"]]
    np.testing.assert_allclose(found, distance[nearest], atol=1e-3)


@pytest.mark.parametrize(
    ("path", "status", "says"),
    [
        ("/api/row?id=nobody", 400, "no row"),
        ("/row?id=nobody", 400, "no row"),
        ("/row", 422, "id"),
        ("/api/entries?label=frok", 400, "fork"),
        ("/api/entries?kind=odd", 422, "kind"),
        ("/errors?low=0.9&high=0.1", 422, "must be at least 0.9"),
        ("/errors?low=nan", 422, "low"),
        ("/errors?start=999999", 422, "start"),
        ("/errors?kind=disagreement&against=0", 400, "itself"),
    ],
)
def test_impossible_views_are_explained(client, path, status, says):
    answer = client.get(path)
    assert answer.status_code == status
    assert says in answer.text


def test_one_file_cannot_disagree(shelf):
    client = TestClient(create_app([shelf / "ours.parquet"], hosts=["testserver"]))
    answer = client.get("/api/entries?kind=disagreement")
    assert answer.status_code == 400
    assert "two files" in answer.json()["error"]


def test_tables_are_safe_in_spreadsheets_and_whole(client, tmp_path):
    ids = ["=HYPERLINK(1)", 'a "b", c\nd']
    Predictions.from_arrays(probabilities=[[0.25]] * 2, labels=["x"], ids=ids).write(
        tmp_path / "p.parquet"
    )
    other = TestClient(create_app([tmp_path / "p.parquet"], hosts=["testserver"]))
    text = other.get("/api/entries?kind=borderline&format=csv").text
    cells = [
        (row["id"], row["probability"], row["truth"]) for row in csv.DictReader(io.StringIO(text))
    ]
    assert cells == [("'=HYPERLINK(1)", "0.25", ""), (ids[1], "0.25", "")]
    answer = client.get("/api/entries", params={"kind": "missed", "format": "csv"})
    assert answer.headers["content-type"].startswith("text/csv")
    listed = list(csv.DictReader(io.StringIO(answer.text)))
    same = client.get("/api/entries", params={"kind": "missed"}).json()["entries"]
    assert [(each["id"], each["label"]) for each in listed] == [
        (each["id"], each["label"]) for each in same
    ]


def test_chosen_entries_come_back_as_a_table(client, ours):
    form = [("entry", json.dumps(["img/003", "fork"])), ("entry", json.dumps(["img/004", "apple"]))]
    answer = client.post("/api/export", data={"entry": [value for _, value in form]})
    assert answer.status_code == 200
    assert [each["probability"] for each in answer.json()["entries"]] == pytest.approx(
        [float(ours.probabilities[3, 0]), float(ours.probabilities[4, 1])]
    )


@pytest.mark.parametrize(
    "entry", ["", "[]", "{", '["img/003"]', '["img/003", "frok"]', '["nobody", "fork"]', "3"]
)
def test_bad_choices_are_explained(client, entry):
    answer = client.post("/api/export", data={"entry": entry})
    assert answer.status_code == 400
    assert answer.json()["error"]


def test_other_sites_cannot_post(client):
    answer = client.post(
        "/api/export", data={"entry": '["img/003", "fork"]'}, headers={"origin": "http://evil"}
    )
    assert answer.status_code == 403
