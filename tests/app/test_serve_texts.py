"""Texts where people look: pasted into the web app, in search results, in the report."""

from __future__ import annotations

import json

import numpy as np
import pytest
from starlette.testclient import TestClient

import credibly as cr
from credibly.app import report
from credibly.app.server import create_app
from credibly.cli import main

WORDS = ["red", "dog", "tree", "car", "the", "of"]
HOSTILE = "<script>alert(1)</script> red"


@pytest.fixture(scope="module")
def world(tmp_path_factory):
    """A run on a file of texts, and its test predictions."""
    folder = tmp_path_factory.mktemp("texts")
    generator = np.random.default_rng(0)
    texts = [" ".join(generator.choice(WORDS, 4)) for _ in range(120)]
    texts[:3] = [HOSTILE, "", "long " * 500]
    lines = [
        {"id": f"c{row}", "comment": text, "y:red": int("red" in text), "y:dog": int("dog" in text)}
        for row, text in enumerate(texts)
    ]
    file = folder / "comments.jsonl"
    file.write_text("\n".join(map(json.dumps, lines)), encoding="utf-8")
    data = cr.data.load(file)
    run = cr.train.fit(data, cr.train.recipe(), folder=folder / "run")
    run.predict(data).write(folder / "all.parquet")
    return folder


@pytest.fixture(scope="module")
def client(world):
    app = create_app(
        [world / "all.parquet"],
        run=world / "run",
        texts=world / "comments.jsonl",
        hosts=["testserver"],
    )
    return TestClient(app)


def test_a_pasted_text_shows_its_labels(client):
    page = client.get("/try", params={"text": "a red tree"})
    assert page.status_code == 200
    assert '<span class="chip want">red</span>' in page.text
    assert '<span class="chip want">dog</span>' not in page.text
    assert "Try it" in client.get("/").text
    hostile = client.get("/try", params={"text": HOSTILE}).text
    assert "<script>alert" not in hostile
    assert "&lt;script&gt;alert" in hostile


def test_the_api_takes_texts(client):
    found = client.post("/api/predict/text", json={"texts": ["a red dog", ["tree"]]}).json()
    assert found["sets"] == [["red", "dog"], []]
    for body, words in {
        '{"texts": [["a", "b"]]}': "must hold 1 text",
        '{"texts": []}': "texts",
        '{"texts": [7]}': "texts",
        json.dumps({"texts": ["x" * 1_000_001]}): "at most 1,000,000 characters",
    }.items():
        answer = client.post(
            "/api/predict/text", content=body, headers={"content-type": "application/json"}
        )
        assert answer.status_code in (400, 422)
        assert words in answer.json()["error"]
    assert client.post("/api/predict", json={"features": [[1.0]]}).status_code == 400


def test_search_and_label_pages_show_texts_escaped(client):
    page = client.get("/", params={"q": "+red", "top": 200}).text
    assert "&lt;script&gt;alert(1)&lt;/script&gt; red" in page
    assert "<script>alert" not in page
    found = client.get("/api/search", params={"q": "+red", "top": 200}).json()["results"]
    assert {row["id"]: row["text"] for row in found}["c0"] == HOSTILE


def test_without_a_run_on_texts_the_page_says_what_to_do(world):
    client = TestClient(create_app([world / "all.parquet"], hosts=["testserver"]))
    assert "--run RUN" in client.get("/try").text
    assert client.post("/api/predict/text", json={"texts": ["x"]}).status_code == 400


def test_search_on_the_command_line_shows_texts(world, capsys):
    command = [
        "search",
        str(world / "all.parquet"),
        "+red",
        "--texts",
        str(world / "comments.jsonl"),
    ]
    assert main([*command, "--json", "--top", "200"]) == 0
    found = json.loads(capsys.readouterr().out)["results"]
    assert {row["id"]: row["text"] for row in found}["c1"] == ""
    assert main([*command, "--top", "3"]) == 0
    assert "red" in capsys.readouterr().out


def test_the_report_shows_examples_escaped(world, tmp_path):
    predictions = cr.Predictions.read(world / "all.parquet")
    page = report.render({"mine": predictions}, resamples=10)
    assert "Worst rows" not in page
    texts = {str(key): f"{HOSTILE} {key}" for key in predictions.ids}
    page = report.render({"mine": predictions}, resamples=10, texts=texts)
    assert "Worst rows" in page
    assert "&lt;script&gt;alert(1)&lt;/script&gt;" in page
    out = tmp_path / "report.html"
    command = ["report", str(world / "all.parquet"), "--texts", str(world / "comments.jsonl")]
    assert main([*command, "--resamples", "10", "--out", str(out), "--quiet"]) == 0
    assert "Worst rows" in out.read_text(encoding="utf-8")
