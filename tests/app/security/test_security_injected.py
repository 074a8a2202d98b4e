"""Labels, ids and parameters stay text, whoever shows or stores them."""

from __future__ import annotations

import itertools
import json
from html.parser import HTMLParser
from urllib.parse import quote

import pytest
from attacks import HOSTILE, MARK
from serve_pages import PAGES

from credibly import Predictions
from credibly.app import report
from credibly.retrieve import Index, Query, search


def wanted(name, *unwanted):
    """Return the query for one label, without others."""
    return str(Query((name,), unwanted))


class Elements(HTMLParser):
    """Every element and attribute a browser would see."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: set[str] = set()
        self.attributes: list[tuple[str, str | None]] = []
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        self.tags.add(tag)
        self.attributes += attrs


def assert_harmless(page: str) -> None:
    found = Elements(page)
    assert MARK not in found.tags
    for name, value in found.attributes:
        assert not name.startswith("on"), name
        if name in ("href", "src", "action", "xlink:href"):
            assert not (value or "").strip().lower().startswith(("javascript:", "data:text"))
    assert ">49<" not in page.replace(" ", "")  # a template that was evaluated


@pytest.mark.parametrize("path", [page for page in PAGES if "?" not in page])
def test_names_stay_text_on_every_page(client, path):
    for query in ({"q": wanted(HOSTILE[0])}, {"q": f"<{MARK}>", "top": "3"}):
        page = client.get(path, params=query)
        assert page.status_code in (200, 400)
        assert_harmless(page.text)


@pytest.mark.parametrize("name", HOSTILE)
def test_a_hostile_label_has_a_page_and_is_searched_for(client, name):
    page = client.get("/label", params={"name": name})
    assert page.status_code == 200
    assert_harmless(page.text)
    query = wanted(name)
    assert_harmless(client.get("/", params={"q": query}).text)
    answer = client.get("/api/search", params={"q": query, "top": 3})
    assert answer.headers["content-type"] == "application/json"
    assert len(answer.json()["results"]) == 3


@pytest.mark.parametrize("value", HOSTILE)
def test_hostile_parameters_come_back_as_text(client, value):
    requests = [("/", key) for key in ("q", "file", "book", "raw", value)]
    requests += [("/label", "name"), ("/decide", "average_size"), ("/image", "id")]
    requests += [(f"/{quote(value)}", "q"), ("/labels", value)]
    for path, key in requests:
        page = client.get(path, params={key: value})
        assert page.status_code < 500
        assert_harmless(page.text)


def test_engines_agree_on_hostile_names(hostile, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    resident = Index.read(hostile)
    for first, second in itertools.pairwise(HOSTILE):
        query = wanted(first, second)
        one, other = resident.search(query, top=5), search(hostile, query, top=5)
        assert [hit.id for hit in one.hits] == [hit.id for hit in other.hits]
        assert one.expected_hits == pytest.approx(other.expected_hits)
    assert not list(tmp_path.iterdir())  # no COPY … TO ran


def test_a_report_of_hostile_names_is_harmless(hostile):
    page = report.render({f"</script><{MARK}>": Predictions.read(hostile)}, resamples=3)
    assert_harmless(page)
    for script in page.split("<script")[1:]:
        assert MARK not in script.partition("</script")[0]


def test_errors_are_json_that_says_no_more_than_it_must(client):
    answer = client.get("/api/search", params={"q": f"<{MARK}"})
    assert answer.headers["content-type"] == "application/json"
    assert set(json.loads(answer.text)) == {"error"}
    assert "Traceback" not in answer.text
    assert ".py" not in answer.text
