"""The first page: one number for one thing, in every place that shows it."""

from __future__ import annotations

import html
import json
import re

import numpy as np
import pytest
from fastapi.testclient import TestClient

from credibly import Predictions, review
from credibly.app.server import create_app
from credibly.cli import main


@pytest.fixture(scope="module")
def drawn(tmp_path_factory):
    """Four labels, two of which go together; some truth is flipped, some unknown or unsure."""
    rng = np.random.default_rng(0)
    kitchen = rng.random(3000) < 0.3
    rates = np.stack([np.where(kitchen, 0.6, 0.05)] * 2 + [np.full(3000, 0.2)] * 2, axis=1)
    y = (rng.random(rates.shape) < rates).astype(np.int8)
    p = np.clip(np.where(y == 1, 0.93, 0.05) + rng.normal(0, 0.04, y.shape), 0, 1)
    unsure = rng.random(y.shape) < 0.03  # a contradiction there is not probably wrong
    p[unsure], y[unsure] = 0.6, rng.random(unsure.sum()) < 0.6
    flipped = rng.random(y.shape) < 0.01
    y[flipped] = 1 - y[flipped]
    y[rng.random(y.shape) < 0.02] = -1
    one = Predictions.from_arrays(
        probabilities=p.astype(np.float32), targets=y, labels=["cup", "fork", "dog", "cat"]
    )
    path = tmp_path_factory.mktemp("overview") / "p.parquet"
    one.write(path)
    return one, path


@pytest.fixture(scope="module")
def client(drawn):
    app = create_app([drawn[1]], hosts=["testserver"], annotate=drawn[1].parent / "log.jsonl")
    with TestClient(app) as client:
        yield client


def test_every_place_counts_the_same_wrong_labels(drawn, client, capsys):
    one, path = drawn
    wrong = review.label_issues(one).wrong
    assert wrong > 20
    assert review.label_issues(path).wrong == wrong
    home = client.get("/").text
    assert f'data-wrong="{wrong}"' in home
    assert f"{wrong:,} labels are probably wrong." in home
    errors = client.get("/errors", params={"kind": "probably-wrong"}).text
    assert f'data-total="{wrong}"' in errors
    assert f"{wrong:,} " in re.search(r'<p class="lead">(.*?)</p>', client.get("/review").text)[1]
    capsys.readouterr()
    assert main(["review", str(path), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["wrong"] == wrong
    assert main(["review", str(path)]) == 0
    assert f"{wrong} labels are probably wrong" in capsys.readouterr().out


def test_wrong_labels_of_a_large_file_are_counted_in_all_rows(drawn, monkeypatch):
    """Other numbers come from a sample; this one is a number of labels to review."""
    monkeypatch.setattr("credibly.app.store.files.SAMPLE", 1000)
    with TestClient(create_app([drawn[1]], hosts=["testserver"])) as client:
        home, errors = (client.get(path).text for path in ("/", "/errors?kind=probably-wrong"))
    assert "Measured on a random sample of 1,000 of 3,000 rows" in home
    total = re.search(r'data-total="(\d+)"', errors)[1]
    assert re.search(r'data-wrong="(\d+)"', home)[1] == total
    assert f"{total} labels are probably wrong." in home


def test_the_first_page_is_graded_by_its_worst_sign(tmp_path):
    """Every probability is nearly right, and twice as many labels are expected as there are."""
    rng = np.random.default_rng(0)
    p = np.full((20_000, 5), 0.02)
    y = (rng.random(p.shape) < 0.01).astype(np.int8)
    one = Predictions.from_arrays(probabilities=p, targets=y, labels=list("abcde"))
    one.write(tmp_path / "p.parquet")
    with TestClient(create_app([tmp_path / "p.parquet"], hosts=["testserver"])) as client:
        page, told = client.get("/").text, client.get("/api/overview").json()
    assert told["grade"] == "poor"
    assert "not calibrated" in page
    assert "well calibrated" not in page
    assert "It expects 2,000 labels where there are" in page


def test_labels_that_occur_together_are_shown_as_more_than_chance(drawn, client):
    one, _ = drawn
    known = np.isin(one.targets[:, :2], (0, 1)).all(1)
    cup, fork = (one.targets[known, k] == 1 for k in (0, 1))
    times = (cup & fork).mean() / (cup.mean() * fork.mean())
    assert times > 2
    words = f"cup and fork: {times:.1f} times as often as by chance"
    for page in ("/", "/pairs"):
        cell = re.search(rf'"{words}"><rect class="cell (\w+)(.*?)</a>', client.get(page).text)
        assert cell[1].startswith("more"), page
        assert f">{times:.1f}×</text>" in cell[2]
    assert "Pairs the model over- or under-expects" in client.get("/pairs").text


def test_pairs_with_too_few_rows_are_not_called_rare(tmp_path):
    y = np.zeros((100, 2), np.int8)
    y[:3, 0] = y[50:53, 1] = 1
    one = Predictions.from_arrays(probabilities=np.full(y.shape, 0.5), targets=y, labels=["a", "b"])
    one.write(tmp_path / "p.parquet")
    page = TestClient(create_app([tmp_path / "p.parquet"], hosts=["testserver"])).get("/pairs").text
    assert 'aria-label="a and b: too few rows to say"><rect class="cell few"' in page


def test_the_threshold_curve_counts_what_a_threshold_returns(drawn, client):
    one, _ = drawn
    curve = json.loads(html.unescape(re.search(r"data-curve='(.*?)'", client.get("/").text)[1]))
    for step in (0, 30, 50, 90, 100):
        sets = one.probabilities >= np.float32(step / 100)
        known, present = one.targets >= 0, one.targets == 1
        found = {"found": (sets & present).sum() / present.sum(), "size": sets.sum(1).mean()}
        for name, share in found.items():
            assert curve[name][step] == pytest.approx(share, abs=0.00051)
        assert curve["empty"][step] == (~sets.any(1)).sum()
        if (sets & known).any():
            right = (sets & present).sum() / (sets & known).sum()
            assert curve["right"][step] == pytest.approx(right, abs=0.00051)


def test_next_steps_are_links_to_pages_that_answer(client):
    steps = re.search(r'<ol class="steps"[^>]*>(.*?)</ol>', client.get("/").text, re.S)[1]
    links = re.findall(r'<a href="([^"]+)"', steps)
    assert len(links) >= 2
    for link in links:
        assert client.get(link.replace("&amp;", "&")).status_code == 200
    assert "credibly serve" not in steps


def test_without_truth_errors_are_not_called_none(tmp_path):
    one = Predictions.from_arrays(probabilities=np.full((20, 2), 0.3), labels=["a", "b"])
    one.write(tmp_path / "p.parquet")
    with TestClient(create_app([tmp_path / "p.parquet"], hosts=["testserver"])) as client:
        page = client.get("/errors").text
        assert "has no truth" in page
        assert 'data-total="0"' not in page
        assert "cannot be judged" in client.get("/").text


def test_every_page_stays_small_with_many_labels(tmp_path):
    rng = np.random.default_rng(0)
    p = rng.random((4000, 1200)).astype(np.float32) ** 4  # every chart has all of its points
    y = (rng.random(p.shape) < p).astype(np.int8)
    names = [f"label {t} with a long name" for t in range(1200)]
    Predictions.from_arrays(probabilities=p, targets=y, labels=names).write(tmp_path / "p.parquet")
    log = tmp_path / "log.jsonl"
    with TestClient(
        create_app([tmp_path / "p.parquet"], hosts=["testserver"], annotate=log)
    ) as client:
        assert client.get("/").text.count('class="multiple"') == 24
        for path in ("/", "/explore", "/errors", "/labels", "/pairs", "/row?id=5", "/review"):
            assert len(client.get(path).content) < 150_000, path
