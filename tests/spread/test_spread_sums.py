"""Rows in 1, 2, 5 or 17 files, summed apart, stored and added, give what one pass gives."""

from __future__ import annotations

import io
from copy import deepcopy

import numpy as np
import pytest
from local_session import LocalSession
from spread_rows import RECORDS, ROWS, rows, splits, write

import credibly as cr
from credibly import decide, metrics, retrieve
from credibly.executors import Spark
from credibly.review import label_issues
from credibly.workflows import calibrate_dataset, calibrate_file

PARTS = (1, 2, 5, 17)  # from 16 on, sums are added on the workers first
each_number = pytest.mark.parametrize("parts", PARTS)


def stored(state):
    """Return what arrives elsewhere."""
    buffer = io.BytesIO()
    np.savez(buffer, **state)
    with np.load(io.BytesIO(buffer.getvalue()), allow_pickle=False) as arrays:
        return dict(arrays)


# The accumulators themselves ---------------------------------------------------------------------


def summary_numbers(each):
    precisions = np.full(6, 0.5)
    diagram = each.bins.reliability()
    return {
        **each.numbers(precisions),
        "rows": each.rows,
        "known": each.known,
        "by label": each.by_label(precisions),
        "diagram": [diagram.counts, diagram.confidence, diagram.frequency],
        "ranges": vars(each.ranks.plan(20)),
    }


def assert_same(found, expected, rtol=1e-9):
    if isinstance(expected, dict):
        assert set(found) == set(expected)
        for name in expected:
            assert_same(found[name], expected[name], rtol)
    elif isinstance(expected, list | tuple):
        assert len(found) == len(expected)
        for one, two in zip(found, expected, strict=True):
            assert_same(one, two, rtol)
    elif isinstance(expected, str) or expected is None:
        assert found == expected
    else:
        np.testing.assert_allclose(found, expected, rtol=rtol, atol=1e-12)


@each_number
def test_sums_of_parts_are_the_sums_of_the_whole(parts):
    record = rows()
    once, whole = (metrics.Summary(6, zero=True, ranks=True) for _ in range(2))
    once.update(record.probabilities, record.targets)
    for part in splits(parts)[::-1]:
        mine = metrics.Summary(6, zero=True, ranks=True)
        mine.update(record.probabilities[part], record.targets[part])
        whole.merge(stored(mine.state()))
    assert_same(summary_numbers(whole), summary_numbers(once))


# What is made of them ----------------------------------------------------------------------------


@each_number
@pytest.mark.parametrize("name", RECORDS)
def test_evaluation_does_not_depend_on_the_parts(name, parts, tmp_path):
    folder = write(RECORDS[name](), tmp_path / "shards", parts)
    local = cr.evaluate(folder)
    spread = cr.evaluate(folder, executor=Spark(LocalSession()))
    assert_same(spread.numbers, local.numbers)
    assert_same(spread.by_label, local.by_label)
    # The values of a label in ranges, as past memory.
    ranges = cr.evaluate(folder, executor=Spark(LocalSession()), rows_in_memory=40)
    assert_same(ranges.numbers, local.numbers)


@pytest.mark.parametrize("resampled_rows", [1000, 50])  # rows, or groups of them
@pytest.mark.parametrize("name", RECORDS)
def test_intervals_do_not_depend_on_the_parts(name, resampled_rows, tmp_path):
    found = [
        cr.evaluate(
            write(RECORDS[name](), tmp_path / f"{parts}", parts),
            intervals=True,
            resampled_rows=resampled_rows,
            executor=Spark(LocalSession()),
        ).intervals
        for parts in (1, 5, 17)
    ]
    assert found[0]
    for other in found[1:]:
        assert_same(other, found[0])


@pytest.mark.parametrize("method", ["auto", "per-label"])
@pytest.mark.parametrize("loss", [None, "asl"])
def test_calibration_does_not_depend_on_the_parts(method, loss, tmp_path):
    record, options = rows(scores=True), {"loss": loss, "method": method}
    record.write(tmp_path / "p.parquet")
    whole = calibrate_file(
        tmp_path / "p.parquet", values="logits" if loss else "probabilities", **options
    )
    for parts in PARTS:
        folder, out = write(record, tmp_path / f"{parts}", parts), tmp_path / f"out {parts}"
        result = calibrate_dataset(folder, out, **options, executor=Spark(LocalSession()))
        assert result.calibrator.state() == whole.calibrator.state()
        assert_same(result.stages, whole.stages)
        written = cr.Predictions.read(out)
        np.testing.assert_array_equal(written.probabilities, whole.predictions.probabilities)
        np.testing.assert_array_equal(written.targets, record.targets)
        assert written.ids.tolist() == record.ids.tolist()


def test_calibration_is_fitted_on_drawn_rows_where_there_are_many(tmp_path):
    folder = write(rows(), tmp_path / "shards", 5)
    half = cr.workflows.FitRows(rows=17)
    options = {"fit_rows": half, "values_in_memory": 60 * 6, "method": "affine"}
    local = calibrate_dataset(folder, tmp_path / "local", **options)
    spread = calibrate_dataset(
        folder, tmp_path / "spread", **options, executor=Spark(LocalSession())
    )
    assert len(local.fitted) == len(spread.fitted) == 17
    assert len(local.predictions) == 60
    assert spread.calibrator.state() == local.calibrator.state()
    assert len(cr.Predictions.read(tmp_path / "spread")) == ROWS


@each_number
@pytest.mark.parametrize(
    "rule",
    [decide.AverageSize(2), decide.Recall(0.8), decide.TopK(2), decide.Cost(5, 1, review=0.5)],
    ids=repr,
)
def test_sets_do_not_depend_on_the_parts(rule, parts, tmp_path):
    folder = write(rows(), tmp_path / "shards", parts)
    one = cr.write_sets(folder, deepcopy(rule), tmp_path / "one.parquet")
    many = cr.write_sets(folder, deepcopy(rule), tmp_path / "many", executor=Spark(LocalSession()))
    assert many.decision.state() == one.decision.state()
    assert many.sizes == one.sizes
    assert (many.rows, many.held_out_rows) == (one.rows, one.held_out_rows)
    assert_same(many.numbers, one.numbers)


@each_number
@pytest.mark.parametrize("name", ["plain", "top labels"])
def test_label_issues_do_not_depend_on_the_parts(name, parts, tmp_path):
    folder = write(RECORDS[name](), tmp_path / "shards", parts)
    one = label_issues(folder, top=40, min_probability=0.0)
    many = label_issues(folder, top=40, min_probability=0.0, executor=Spark(LocalSession()))
    assert many.to_dict()["issues"] == one.to_dict()["issues"]
    # The estimate is a fit, which stops at a slightly other place if sums differ in their last bit.
    assert many.total.expected == pytest.approx(one.total.expected, rel=1e-2)
    assert len(one) == 40


@each_number
@pytest.mark.parametrize("joint", [False, True], ids=["independent", "joint"])
def test_workers_search_as_one_machine_does(parts, joint, tmp_path):
    whole = rows()
    model = retrieve.Joint(1).fit(whole.probabilities, whole.targets, whole.labels)
    folder, options = write(whole, tmp_path / "shards", parts), {"joint": model if joint else None}
    for query in ("+fork -knife", "(dog | table) & !apple", "never"):
        local = retrieve.search(folder, query, **options)
        spark = retrieve.search(folder, query, executor=Spark(LocalSession()), **options)
        assert_same(spark.to_dict(), local.to_dict())
