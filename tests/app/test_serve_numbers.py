"""One number, one value: label page, atlas, report and metrics agree, whatever is known."""

from __future__ import annotations

import csv
import io
import re

import numpy as np
import pytest
from starlette.testclient import TestClient

from credibly import Predictions, metrics
from credibly.app import report
from credibly.app.server import create_app
from credibly.targets import Targets

LABELS = ["1", "two", "three"]


@pytest.fixture(scope="module")
def partial(tmp_path_factory):
    """Predictions whose truth is known for some entries only, in another share for each label."""
    rng = np.random.default_rng(3)
    p = rng.random((3000, 3)).astype(np.float32)
    y = (rng.random(p.shape) < p**1.3).astype(np.int8)
    y[rng.random(p.shape) < [0.1, 0.5, 0.8]] = -1
    one = Predictions.from_arrays(
        probabilities=p,
        targets=y,
        labels=LABELS,
        ids=[f"{row:04d}" for row in range(3000)],
        coding="unknown",
    )
    path = tmp_path_factory.mktemp("partial") / "p.parquet"
    one.write(path)
    return path, one


@pytest.fixture(scope="module")
def client(partial):
    with TestClient(create_app([partial[0]], hosts=["testserver"])) as client:
        yield client


@pytest.mark.parametrize("label", LABELS)
def test_every_page_gives_a_label_the_same_numbers(client, partial, label):
    _, one = partial
    t = LABELS.index(label)
    p, y = one.probabilities[:, [t]], one.targets[:, [t]]
    known = y[:, 0] >= 0
    error = float(metrics.calibration_error(p, Targets(y), "ace", min_count=30))
    precision = float(metrics.average_precision(p, Targets(y))[0])
    about = client.get("/api/label", params={"name": label}).json()
    assert about["calibration_error"] == pytest.approx(error)
    assert about["average_precision"] == pytest.approx(precision)
    assert (about["known"], about["present"]) == (known.sum(), y[known].sum())
    assert about["known_expected"] == pytest.approx(p[known].sum(dtype=float))
    table = list(csv.DictReader(io.StringIO(client.get("/api/atlas?format=csv").text)))[t]
    assert int(table["known"]) == known.sum()
    assert float(table["rate"]) == pytest.approx(y[known, 0].mean(), rel=1e-4)
    assert float(table["expected rate"]) == pytest.approx(p[known, 0].mean(), rel=1e-4)
    assert float(table["ACE"]) == pytest.approx(error, rel=1e-4)
    text = report.render({"one": one}, resamples=5)
    listed = text[text.index('<section aria-labelledby="labels">') :]
    cells = re.search(rf"<tr><td>{label}</td>(.*?)</tr>", listed)[1]
    assert f"<td>{100 * error:.1f} %</td>" in cells
    assert f"<td>{100 * precision:.1f} %</td>" in cells


def test_a_condition_that_is_not_wanted_is_said_in_words(client):
    text = client.get("/", params={"q": "-1 +two", "top": 3}).text
    assert "no 1</abbr>" in text
    assert not re.search(r">\s*-1 <span>", text)


def test_a_sample_is_called_one(partial):
    text = report.render({"one": partial[1]}, resamples=5, total_rows={"one": 1_000_000})
    assert "Measured on a random sample of 3,000 of 1,000,000 rows" in text


def test_without_truth_nothing_is_shown_as_zero(tmp_path):
    one = Predictions.from_arrays(probabilities=np.full((20, 2), 0.3), labels=["a", "b"])
    one.write(tmp_path / "p.parquet")
    with TestClient(create_app([tmp_path / "p.parquet"], hosts=["testserver"])) as client:
        for path in ("/", "/labels", "/label?name=a", "/decide", "/errors?kind=borderline"):
            assert client.get(path).status_code == 200
        cells = re.findall(r"<td[^>]*>(.*?)</td>", client.get("/labels").text)
        assert cells.count("–") >= 2 * 4
        table = client.get("/api/atlas").json()["labels"]
        assert {row["AP"] for row in table} == {row["rate"] for row in table} == {None}


def test_a_report_tells_how_far_it_is(partial):
    told = []
    report.render({"one": partial[1]}, resamples=5, advance=told.append)
    assert len(told) >= 3  # one file: its page, the comparison, the page as a whole
    assert sum(told) == pytest.approx(1, abs=0.01)
