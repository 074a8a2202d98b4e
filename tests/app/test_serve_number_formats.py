"""People read percent and two or three significant digits on every page."""

from __future__ import annotations

import re

import pytest
from fastapi.testclient import TestClient
from serve_pages import PAGES, long_numbers
from serve_runs import write_run

from credibly import Predictions, metrics
from credibly.app import rendering, report
from credibly.app.server import create_app

MORE = [f"/compare?by={name}" for name in ("NLL", "ACE", "mAP@y")]
MORE += ["/decide?by=cost&miss=7&review=0.3", "/decide?by=size&average_size=2", "/row?id=img%2F003"]


@pytest.fixture(scope="module")
def client(shelf, tmp_path_factory):
    files = [shelf / "ours.parquet", shelf / "theirs.parquet"]
    log = tmp_path_factory.mktemp("log") / "log.jsonl"
    with TestClient(create_app(files, hosts=["testserver"], annotate=log)) as client:
        decided = [{"id": f"img/{n:03d}", "label": "fork", "value": "present"} for n in range(9)]
        assert client.post("/api/reviews?file=0", json={"who": "a", "reviews": decided}).is_success
        yield client


@pytest.mark.parametrize("path", [*PAGES, *MORE])
def test_no_number_has_more_than_three_significant_digits_after_the_point(client, path):
    answer = client.get(path)
    assert answer.status_code == 200
    assert long_numbers(answer.text) == []


def test_training_curves_and_reports_have_no_long_numbers(shelf, tmp_path):
    write_run(tmp_path / "runs" / "one", "bce", 5)
    write_run(tmp_path / "runs" / "two", "spa", 5, noise=0.5, seed=1)
    with TestClient(create_app([tmp_path / "runs"], hosts=["testserver"])) as client:
        assert long_numbers(client.get("/compare").text) == []
    both = {name: Predictions.read(shelf / f"{name}.parquet") for name in ("ours", "theirs")}
    page, _, metadata = report.render(both, resamples=20).partition('<h2 id="made">')
    assert metadata, "the JSON of the files"
    assert long_numbers(page) == []


def test_a_metric_is_shown_alike_in_compare_and_report(client, shelf):
    one = Predictions.read(shelf / "ours.parquet")
    expected = metrics.summary(one.probabilities, one.targets)
    pages = client.get("/compare").text, report.render({"ours": one}, resamples=5)
    for page in pages:
        for name in ("mAP@y", "ACE"):
            assert f">{100 * expected[name]:.1f} %</span>" in page
        assert re.search(rf">{expected['NLL']:.3f}</span>", page)


def columns(page):
    """Yield the first number of every cell with a point, by column of each table."""
    for table in re.findall(r"<table.*?</table>", page, re.S):
        rows = [
            re.findall(r"<t[dh][^>]*>(.*?)</t[dh]>", row, re.S)
            for row in re.findall(r"<tr.*?</tr>", table, re.S)
        ]
        widest = max(map(len, rows))
        for column in zip(*(row for row in rows if len(row) == widest), strict=True):
            texts = (re.sub(r"<[^>]*>", " ", cell) for cell in column)
            yield [found[0] for text in texts if (found := re.search(r"\d[\d,]*\.\d+", text))]


@pytest.mark.parametrize("path", [*PAGES, *MORE, "report"])
def test_numbers_of_a_column_have_the_same_decimals(client, shelf, path):
    if path == "report":
        both = {name: Predictions.read(shelf / f"{name}.parquet") for name in ("ours", "theirs")}
        page = report.render(both, resamples=20)
    else:
        page = client.get(path).text
    for column in columns(page):
        assert len({len(number.partition(".")[2]) for number in column}) <= 1, column


@pytest.mark.parametrize("value", [0.26, 1.1, 2, 123.4, 0.0312])
def test_a_number_alone_has_three_significant_digits_the_last_zeros_too(value):
    digits = rendering.significant(value).replace(".", "").lstrip("0")
    assert len(digits) == 3
    assert float(rendering.significant(value)) == pytest.approx(value, rel=5e-3)


@pytest.mark.browser
def test_the_slider_writes_numbers_as_the_server_does(page):
    page.goto("/")
    words = page.locator("#cut-words")
    for at in (0.07, 0.5, 0.93):
        page.locator("#cut").fill(str(at))
        said = words.inner_text()
        page.goto(f"/?threshold={at}")
        assert words.inner_text() == said
