"""Reports on files that hold the most probable labels of each row."""

from __future__ import annotations

import re
import time

import numpy as np
import pytest
from reported import served

from credibly import InputError, Predictions, metrics
from credibly.app import report
from credibly.cli import main
from credibly.predictions import Writer
from credibly.targets import SparseTargets

LABELS = [f"<label> {i}" for i in range(300)]
ROWS, K = 400, 20


def rows_of(num_labels=300, rows=ROWS, k=K, seed=0, truth=True):
    """Rows that hold k labels drawn by a falling rate, truth drawn from their probabilities."""
    generator = np.random.default_rng(seed)
    top = np.stack([generator.choice(num_labels, k, replace=False) for _ in range(rows)])
    top[:, 0] = np.arange(rows) % 7  # some labels are often held
    for row in top:
        row[1:][row[1:] == row[0]] = num_labels - 1
    keep = [len(set(row)) == k for row in top]
    top = top[keep]
    values = np.sort(generator.random(top.shape) ** 3, axis=1)[:, ::-1].astype(np.float32)
    lists = [row[generator.random(k) < p] for row, p in zip(top, values, strict=True)]
    lists[1] = np.append(lists[1], num_labels - 2)  # present and perhaps not held
    targets = SparseTargets.from_lists([sorted(set(each)) for each in lists], num_labels)
    return Predictions.from_arrays(
        top=top,
        probabilities=values,
        labels=LABELS if num_labels == 300 else [f"l{i}" for i in range(num_labels)],
        targets=targets if truth else None,
    )


@pytest.fixture(scope="module")
def rows():
    return rows_of()


@pytest.fixture(scope="module")
def path(rows, tmp_path_factory):
    file = tmp_path_factory.mktemp("report") / "top.parquet"
    rows.write(file)
    return file


def numbers(page):
    """Return the metrics of the labels held, as the report shows them."""
    table = page.partition("Calibration of the listed labels")[2].partition("</table>")[0]
    names = re.findall(r"<th scope=\"col\">(\w+)&nbsp;", table)
    return dict(zip(names, re.findall(r"<td>(.*?)</td>", table), strict=True))


def test_the_summary_is_that_of_the_labels_held_one_by_one(rows, path):
    client, dense = served(path), rows.all_targets.dense()
    for number in (0, 3, 150, 299):
        where, _ = np.nonzero(rows.top == number)
        values = rows.select([rows.labels[number]]).probabilities[where, 0].astype(np.float64)
        found = client.get("/api/label", params={"name": rows.labels[number]}).json()
        assert found["rows"] == len(where)
        assert found["everywhere"] == dense[:, number].sum()
        assert found["present"] == dense[where, number].sum()
        assert found["expected"] == pytest.approx(values.sum(), rel=1e-6)
    ranking = np.array(client.get("/api/overview").json()["ranking"])
    places = ranking[:, 0].astype(int) - 1
    for column, metric in enumerate(
        (metrics.precision_at_k, metrics.ndcg_at_k, metrics.recall_at_k)
    ):
        expected = metric(rows.top, rows.all_targets, K)[places]
        np.testing.assert_allclose(ranking[:, column + 1], expected)


def test_the_summary_does_not_depend_on_how_rows_are_cut_into_files(rows, path, tmp_path):
    folder = tmp_path / "shards"
    for part, chosen in enumerate((slice(0, 100), slice(100, None))):
        Predictions.from_arrays(
            top=rows.top[chosen],
            probabilities=rows.probabilities[chosen],
            labels=rows.labels,
            targets=rows.all_targets[chosen],
            ids=rows.ids[chosen],
        ).write(folder / f"{part}.parquet")
    pages = [
        report.write([each], tmp_path / "r.html").read_text("utf-8") for each in (path, folder)
    ]
    assert len(numbers(pages[0])) == 5
    assert numbers(pages[0]) == numbers(pages[1])
    one, two = (served(each) for each in (path, folder))
    assert one.get("/api/atlas?format=csv").text == two.get("/api/atlas?format=csv").text
    rankings = [each.get("/api/overview").json()["ranking"] for each in (one, two)]
    np.testing.assert_allclose(*rankings)
    both = Predictions.read(folder)
    np.testing.assert_array_equal(both.top, rows.top)
    np.testing.assert_array_equal(both.all_targets.dense(), rows.all_targets.dense())


def test_a_report_shows_ranking_calibration_and_labels(rows, path, tmp_path):
    out = tmp_path / "report.html"
    assert main(["report", str(path), "--out", str(out), "--json"]) == 0
    page = out.read_text(encoding="utf-8")
    precision = metrics.precision_at_k(rows.top, rows.all_targets, K)[4]
    assert f"{100 * precision:.1f} %" in page
    where = rows.top >= 0
    truth = np.take_along_axis(rows.all_targets.dense(), rows.top, 1)[where][:, None]
    error = metrics.calibration_error(
        rows.probabilities[where][:, None], truth, "ace", min_count=30
    )
    assert numbers(page)["ACE"] == f"{100 * error:.1f} %"
    assert "&lt;label&gt; 0" in page
    assert "<label>" not in page
    assert "left out" in page
    assert page.count("<svg") == 1


def test_a_report_without_truth_says_so(tmp_path):
    rows_of(truth=False).write(tmp_path / "top.parquet")
    report.write([tmp_path / "top.parquet"], tmp_path / "report.html")
    page = (tmp_path / "report.html").read_text(encoding="utf-8")
    assert "has no truth" in page
    assert "<svg" not in page


def test_what_cannot_be_compared_or_shown_is_refused(path, tmp_path):
    wide = Predictions.from_arrays(probabilities=[[0.5] * 300], targets=[[1] * 300], labels=LABELS)
    wide.write(tmp_path / "wide.parquet")
    for files in ([path, tmp_path / "wide.parquet"], [tmp_path / "wide.parquet", path]):
        with pytest.raises(InputError, match="files of one layout"):
            report.write(files, tmp_path / "x.html")
    with pytest.raises(InputError, match="need files with a column per label"):
        report.write([path], tmp_path / "x.html", texts={"0": "a text"})
    assert not (tmp_path / "x.html").exists()


def test_a_hundred_thousand_labels_take_seconds_and_a_small_page(tmp_path):
    labels = [f"l{i}" for i in range(100_000)]
    with Writer(tmp_path / "top.parquet", labels) as writer:
        writer.append(rows_of(num_labels=100_000, rows=2000))
    start = time.process_time()
    report.write([tmp_path / "top.parquet"], tmp_path / "report.html")
    assert time.process_time() - start < 10
    assert (tmp_path / "report.html").stat().st_size < 1_000_000
