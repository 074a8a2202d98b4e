"""Reviewing through the server: the queue of ``cr.review``, decisions kept, numbers anew."""

from __future__ import annotations

import csv
import html
import io
import re
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from scipy.special import expit
from starlette.testclient import TestClient

from credibly import Predictions, metrics
from credibly.app.server import create_app
from credibly.checks import InputError
from credibly.review import Review, ReviewLog, apply_reviews, label_issues


@pytest.fixture(scope="module")
def path(shelf, tmp_path_factory):
    """A file whose model is sure, with 8 % of the truth flipped."""
    rng = np.random.default_rng(1)
    labels = Predictions.read(shelf / "ours.parquet").labels
    odds = rng.normal(-1, 6, (400, len(labels)))
    targets = (rng.random(odds.shape) < expit(odds)) ^ (rng.random(odds.shape) < 0.08)
    given = {"labels": labels, "ids": [f"img/{i:03d}" for i in range(400)]}
    flipped = Predictions.from_arrays(probabilities=expit(odds), targets=targets, **given)
    flipped.write(path := tmp_path_factory.mktemp("review") / "flipped.parquet")
    return path


@pytest.fixture(scope="module")
def ours(path):
    return Predictions.read(path)


@pytest.fixture
def log(tmp_path):
    return tmp_path / "corrections.jsonl"


@pytest.fixture
def client(path, log):
    app = create_app([path], hosts=["testserver"], annotate=log)
    with TestClient(app) as client:
        yield client


def post(client, *reviews, who="Ana"):
    body = {
        "who": who,
        "reviews": [dict(zip(("id", "label", "value"), r, strict=True)) for r in reviews],
    }
    return client.post("/api/reviews", json=body)


def queue(client, **parameters):
    page = client.get("/review", params={"view": "grid", "top": 200, **parameters}).text
    tiles = re.findall(r'<li class="tile" data-id="([^"]*)" data-label="([^"]*)"', page)
    return [tuple(map(html.unescape, tile)) for tile in tiles]


def test_the_queue_is_that_of_inspect(client, ours):
    issues = label_issues(ours, top=None)
    listed = client.get("/api/entries", params={"kind": "probably-wrong"}).json()
    assert listed["total"] == len(issues)
    found = [(each["id"], each["label"]) for each in listed["entries"]]
    assert set(found) == {(each.id, each.label) for each in issues}
    surest = {(each.id, each.label): each.error_probability for each in issues}
    keys = [surest[each] for each in found]
    np.testing.assert_allclose(keys, sorted(keys, reverse=True), atol=1e-6)
    assert queue(client) == found[:200]


def test_decided_entries_leave_the_queue_and_stay_in_the_log(client, ours, log):
    first, second = queue(client)[:2]
    assert post(client, (*first, "present"), (*second, "unsure")).json() == {
        "saved": 2,
        "decided": 2,
    }
    assert not {first, second} & set(queue(client))
    assert post(client, (*first, "absent"), who="Bo").json()["decided"] == 2
    assert [each.who for each in ReviewLog(log).entries()] == ["Ana", "Ana", "Bo"]
    table = list(csv.DictReader(io.StringIO(client.get("/api/reviews?format=csv").text)))
    assert [(row["id"], row["value"], row["who"]) for row in table] == [
        (first[0], "absent", "Bo"),
        (second[0], "unsure", "Ana"),
    ]


def test_progress_counts_labels_of_the_queue_alone(client, ours):
    listed = queue(client)
    other = next((id, "fork") for id in ours.ids if (id, "fork") not in listed)
    post(client, (*listed[0], "present"), (*other, "present"))
    total = label_issues(ours, kinds=["missing", "extra"]).wrong
    for page in ("/review", "/"):
        text = client.get(page).text
        assert 'id="decided" data-decided="1">1<' in text
        assert f"{total:,}" in text


def test_another_program_may_add_to_the_log(client, log):
    entry = queue(client)[0]
    ReviewLog(log).append([Review(*entry, 1)], who="elsewhere")
    assert entry not in queue(client)


BAD = [
    ({"id": "nobody", "label": "fork", "value": "present"}, 400, "no row"),
    ({"id": "img/001", "label": "frok", "value": "present"}, 400, "fork"),
    ({"id": "img/001", "label": "fork", "value": "perhaps"}, 422, "value"),
    ({"id": "img/001", "label": "fork"}, 422, "value"),
    ({"id": "x" * 1001, "label": "fork", "value": "present"}, 422, "id"),
]


@pytest.mark.parametrize(("review", "status", "says"), BAD, ids=lambda value: str(value)[:40])
def test_a_bad_decision_is_refused_and_none_of_its_request_is_kept(
    client, log, review, status, says
):
    good = {"id": "img/002", "label": "fork", "value": "present"}
    answer = client.post("/api/reviews", json={"reviews": [good, review]})
    assert answer.status_code == status
    assert says in answer.json()["error"]
    assert ReviewLog(log).entries() == []


def test_decisions_must_come_as_json_from_this_site(client, log):
    assert client.post("/api/reviews", data={"a": "b"}).status_code == 400
    body = {"reviews": [{"id": "img/002", "label": "fork", "value": "present"}]}
    answer = client.post("/api/reviews", json=body, headers={"origin": "http://evil.example"})
    assert answer.status_code == 403
    assert not log.exists()


def test_what_cannot_be_saved_is_said(client, monkeypatch):
    def full(*arguments, **options):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("credibly.review.reviews.append_lines", full)
    answer = post(client, ("img/002", "fork", "present"))
    assert answer.status_code == 507
    assert "No space left" in answer.json()["error"]
    assert "nothing was saved" in answer.json()["error"]


def test_many_reviewers_at_once_lose_nothing(client, log):
    def one(number):
        return post(client, (f"img/{number:03d}", "fork", "absent"), who=f"r{number}").status_code

    with ThreadPoolExecutor(8) as pool:
        assert set(pool.map(one, range(40))) == {200}
    assert {each.who for each in ReviewLog(log).entries()} == {f"r{n}" for n in range(40)}


def test_the_effect_is_that_of_the_corrected_file(client, ours):
    chosen = [
        (*entry, "present" if n % 2 else "absent") for n, entry in enumerate(queue(client)[:20])
    ]
    post(client, *chosen)
    reviews = [Review(id, label, int(value == "present")) for id, label, value in chosen]
    corrected = apply_reviews(ours, reviews)
    changed = int((corrected.targets != ours.targets).sum())
    text = client.get("/review/effect").text
    assert f'<strong id="changed">{changed}</strong>' in text
    for label in {label for _, label, _ in chosen}:
        for rows in (ours.select([label]), corrected.select([label])):
            (precision,) = metrics.average_precision(rows.probabilities, rows.targets)
            assert f"<td>{100 * precision:.1f} %</td>" in text
            assert f"<td>{rows.targets.sum()}</td>" in text


def test_without_a_log_nothing_is_decided(shelf):
    app = create_app([shelf / "ours.parquet"], hosts=["testserver"])
    with TestClient(app) as client:
        assert "--annotate" in client.get("/review").text
        assert client.get("/review/effect").status_code == 200
        answer = post(client, ("img/002", "fork", "present"))
        assert answer.status_code == 400
        assert "--annotate" in answer.json()["error"]


@pytest.mark.parametrize("name", ["ours.parquet", "log.csv", "images"])
def test_the_log_is_a_file_of_its_own(shelf, name):
    with pytest.raises(InputError):
        create_app([shelf / "ours.parquet"], annotate=shelf / name)
