"""A predictions file that is replaced while the server runs: every answer is of the new file."""

from __future__ import annotations

import os
import shutil

import pytest
from serve_pages import PAGES
from starlette.testclient import TestClient

from credibly import Predictions
from credibly.app.server import create_app

API = [
    "/api/labels",
    "/api/search?q=fork",
    "/api/search?q=fork&raw=true",
    "/api/label?name=fork",
    "/api/sets?average_size=2",
]
ADDRESSES = [*API, *(page for page in PAGES if page not in ("/docs", "/try", "/import"))]


@pytest.fixture
def served(shelf, tmp_path):
    """A server over one file, and its path."""
    path = tmp_path / "ours.parquet"
    shutil.copy(shelf / "ours.parquet", path)
    with TestClient(create_app([path], hosts=["testserver"])) as client:
        yield client, path


def settled(client, address):
    """Return the answer, asked for again while the server says that it still works on it."""
    while (answer := client.get(address)).status_code == 202 or "retry-after" in answer.headers:
        pass
    return answer


def put(rows: Predictions, path) -> None:
    """Write a file as every writer here does: beside, and then renamed."""
    rows.write(path)
    os.utime(path, ns=(1, path.stat().st_mtime_ns + 1))


@pytest.mark.parametrize("address", ADDRESSES)
def test_every_answer_is_of_the_file_as_it_is_now(address, served, shelf):
    client, path = served
    before = settled(client, address)
    put(Predictions.read(shelf / "ours.parquet")[:150], path)
    after = settled(client, address)
    with TestClient(create_app([path], hosts=["testserver"])) as fresh:
        expected = settled(fresh, address)
    assert (after.status_code, after.text) == (expected.status_code, expected.text)
    if address in ("/", *API[1:]):
        assert after.text != before.text


@pytest.mark.parametrize("address", ADDRESSES)
def test_a_file_that_is_gone_is_told_and_back_when_it_is_back(address, served, shelf):
    client, path = served
    before = settled(client, address)
    path.rename(path.with_suffix(".away"))
    gone = client.get(address)
    assert gone.status_code == 500
    assert "can no longer be read. there is no file" in gone.text
    path.with_suffix(".away").rename(path)
    assert settled(client, address).text == before.text


def test_a_file_that_is_gone_before_the_first_page_is_told(served):
    client, path = served
    path.unlink()
    for address in ("/", "/labels?raw=true", "/api/labels"):
        answer = client.get(address)
        assert answer.status_code == 500
        assert "can no longer be read. there is no file" in answer.text


def test_a_damaged_file_is_told(served):
    client, path = served
    assert settled(client, "/api/search?q=fork").status_code == 200
    path.write_bytes(b"PAR1 not at all")
    for address in ADDRESSES:
        answer = client.get(address)
        assert answer.status_code == 500
        assert "ours.parquet" in answer.text
    assert client.get("/api/health").status_code == 200


def test_what_was_made_of_two_versions_is_not_sent(served, shelf, monkeypatch):
    client, path = served
    while client.get("/api/ready").status_code != 200:  # the server searches once by itself
        pass
    state = client.app.app.state.served
    search = state.files[0].search

    def replaced_meanwhile(*arguments):
        found = search(*arguments)
        put(Predictions.read(shelf / "ours.parquet")[:100], path)
        return found

    monkeypatch.setattr(state.files[0], "search", replaced_meanwhile)
    answer = settled(client, "/api/search?q=fork")
    assert answer.status_code == 503
    assert "replaced" in answer.json()["error"]
    assert settled(client, "/api/search?q=fork").status_code == 200


def test_of_several_files_only_the_replaced_one_is_opened_again(shelf, tmp_path):
    for name in ("ours.parquet", "theirs.parquet"):
        shutil.copy(shelf / name, tmp_path / name)
    paths = [tmp_path / "ours.parquet", tmp_path / "theirs.parquet"]
    with TestClient(create_app(paths, hosts=["testserver"])) as client:
        before = list(client.app.app.state.served.files)
        put(Predictions.read(shelf / "theirs.parquet")[:50], paths[1])
        rows = [each["rows"] for each in client.get("/api/health").json()["predictions"]]
        assert rows == [400, 400]  # health looks at no file
        client.get("/api/labels")
        rows = [each["rows"] for each in client.get("/api/health").json()["predictions"]]
        assert rows == [400, 50]
        files = client.app.app.state.served.files
        assert files[0] is before[0]
        paths[1].unlink()
        assert client.get("/api/search?q=fork&file=0").status_code == 200
        assert client.get("/api/search?q=fork&file=1").status_code == 500
