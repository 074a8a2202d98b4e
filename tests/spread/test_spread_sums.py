"""Rows in 1, 2, 5 or 17 files, summed apart, stored and added, give what one pass gives."""

from __future__ import annotations

import io
from copy import deepcopy
from pathlib import Path

import numpy as np
import pytest
from local_session import LocalSession
from spread_rows import RECORDS, ROWS, rows, splits, top_rows, write

import credibly as cr
from credibly import calibrate, decide, metrics
from credibly.calibrate.histogram import LogOddsHistogram
from credibly.review import label_issues
from credibly.workflows import calibrate_parts

PARTS = (1, 2, 5, 17)  # from 16 on, sums are added on the workers first
each_number = pytest.mark.parametrize("parts", PARTS)


def stored(state):
    """Return what arrives elsewhere."""
    buffer = io.BytesIO()
    np.savez(buffer, **state)
    with np.load(io.BytesIO(buffer.getvalue()), allow_pickle=False) as arrays:
        return dict(arrays)


def added(make, update, parts):
    """Sums of parts, each made apart, sent and added."""
    whole = make()
    for part in splits(parts)[::-1]:
        mine = make()
        update(mine, part)
        whole.add(stored(mine.state()))
    return whole


# The accumulators themselves ---------------------------------------------------------------------


def running_numbers(each):
    diagram = each.reliability()
    return {
        **each.summary(),
        "rows": each.rows,
        "known": each.known,
        "by label": each.by_label(),
        "diagram": [diagram.counts, diagram.confidence, diagram.frequency],
        "terms": each.top_k_f1_terms(),
    }


def accumulators():
    """Each accumulator of the metrics: how it is made, fed with rows, and read."""
    record, top = rows(), top_rows()
    p, y = record.probabilities, record.targets
    whole, ranks, zero = metrics.Running(6), metrics.RankCounts(6), metrics.ZeroLabelCounts()
    whole.update(p, y)
    ranks.update(p, y)
    zero.update(p, y)
    estimates = {**metrics.summary(p, y), **zero.numbers(5)}
    weights = metrics.inverse_propensities(np.arange(1, 41), ROWS)
    return {
        "Running": (
            lambda: metrics.Running(6),
            lambda each, part: each.update(p[part], y[part]),
            running_numbers,
        ),
        "ZeroLabelCounts": (
            metrics.ZeroLabelCounts,
            lambda each, part: each.update(p[part], y[part]),
            lambda each: each.numbers(6),
        ),
        "RankCounts": (
            lambda: metrics.RankCounts(6),
            lambda each, part: each.update(p[part], y[part]),
            lambda each: [vars(each.plan(most=20)), vars(each.influence())],
        ),
        "GroupSums": (
            lambda: metrics.GroupSums(whole, ranks.influence(), zero, groups=64),
            lambda each, part: each.update(p[part], y[part], first_row=part.start),
            lambda each: each.intervals(estimates),
        ),
        "TopGroupSums": (
            lambda: metrics.TopGroupSums(5, groups=64),
            lambda each, part: each.update(
                top.top[part],
                top.probabilities[part],
                top.targets[part],
                top.all_targets[part],
                first_row=part.start,
            ),
            lambda each: each.intervals(dict.fromkeys(("P@1", "nDCG@5", "R@5", "NLL"), 0.4)),
        ),
        "TopLabels": (
            lambda: metrics.TopLabels(5),
            lambda each, part: each.update(top.top[part], top.all_targets[part]),
            lambda each: [each.precision(), each.ndcg(), each.recall()],
        ),
        "TopLabels, weighted": (
            lambda: metrics.TopLabels(5, weights),
            lambda each, part: each.update(top.top[part], top.all_targets[part]),
            lambda each: [each.precision(), each.ndcg()],
        ),
        "LogOddsHistogram": (
            lambda: LogOddsHistogram(6),
            lambda each, part: each.update(np.log((p[part] + 0.01) / (1.01 - p[part])), y[part]),
            lambda each: [*each.entries(), each.fit(calibrate.PerLabel()).state()],
        ),
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
@pytest.mark.parametrize("name", accumulators())
def test_sums_of_parts_are_the_sums_of_the_whole(name, parts):
    make, update, read = accumulators()[name]
    once = make()
    update(once, slice(0, ROWS))
    assert_same(read(added(make, update, parts)), read(once))


def test_merged_runs_are_the_run_of_both():
    record = rows()
    one, two, both = (metrics.Running(6) for _ in range(3))
    one.update(record.probabilities[:90], record.targets[:90])
    two.update(record.probabilities[90:], record.targets[90:])
    both.update(record.probabilities, record.targets)
    one.merge(two)
    assert_same(running_numbers(one), running_numbers(both))


# What is made of them ----------------------------------------------------------------------------


def close(found, expected):
    # Elsewhere the confidence of a row is counted in bins of 6e-5.
    loose = {name: 1e-3 if name == "zero-label AUROC" else 1e-9 for name in expected}
    assert set(found) == set(expected)
    for name, value in expected.items():
        assert found[name] == pytest.approx(value, rel=loose[name], nan_ok=True), name


@each_number
@pytest.mark.parametrize("name", RECORDS)
def test_evaluation_does_not_depend_on_the_parts(name, parts, tmp_path):
    folder = write(RECORDS[name](), tmp_path / "shards", parts)
    here = cr.evaluate(folder)
    spread = cr.evaluate(folder, engine="spark", session=LocalSession())
    close(spread.numbers, here.numbers)
    assert_same(spread.by_label, here.by_label)


@pytest.mark.parametrize("name", RECORDS)
def test_intervals_do_not_depend_on_the_parts(name, tmp_path):
    found = [
        cr.evaluate(
            write(RECORDS[name](), tmp_path / f"{parts}", parts),
            intervals=True,
            engine="spark",
            session=LocalSession(),
        ).intervals
        for parts in (1, 5, 17)
    ]
    assert found[0]
    for other in found[1:]:
        assert_same(other, found[0])


@pytest.mark.parametrize("method", ["affine", "per-label"])
@pytest.mark.parametrize("loss", [None, "asl"])
def test_calibration_does_not_depend_on_the_parts(method, loss, tmp_path):
    record, options = rows(scores=True), {"loss": loss, "method": method}
    whole = calibrate_parts(write(record, tmp_path / "1", 1), tmp_path / "whole", **options)
    for parts in PARTS[1:]:
        result = calibrate_parts(
            write(record, tmp_path / f"{parts}", parts),
            tmp_path / f"calibrated {parts}",
            **options,
            engine="spark",
            session=LocalSession(),
        )
        assert (result.rows, result.fitted_rows) == (ROWS, whole.fitted_rows)
        assert_same(result.stages, whole.stages, rtol=1e-6)  # of float32
        written, expected = (cr.Predictions.read(Path(each.out)) for each in (result, whole))
        np.testing.assert_allclose(written.probabilities, expected.probabilities, rtol=1e-6)
        assert written.ids.tolist() == expected.ids.tolist()


def test_calibration_counts_the_rows_it_fits_on(tmp_path):
    folder = write(rows(), tmp_path / "shards", 5)
    half = cr.workflows.FitRows(rows=77)
    result = calibrate_parts(
        folder, tmp_path / "out", fit_rows=half, engine="spark", session=LocalSession()
    )
    assert result.fitted_rows == 77


@each_number
@pytest.mark.parametrize(
    "rule",
    [decide.AverageSize(2), decide.Recall(0.8), decide.TopK(2), decide.Cost(5, 1, review=0.5)],
    ids=repr,
)
def test_sets_do_not_depend_on_the_parts(rule, parts, tmp_path):
    folder = write(rows(), tmp_path / "shards", parts)
    one = cr.write_sets(folder, deepcopy(rule), tmp_path / "one.parquet")
    many = cr.write_sets(
        folder, deepcopy(rule), tmp_path / "many", engine="spark", session=LocalSession()
    )
    assert many.decision.state() == one.decision.state()
    assert many.sizes == one.sizes
    assert (many.rows, many.held_out_rows) == (one.rows, one.held_out_rows)
    assert_same(many.numbers, one.numbers)


@each_number
@pytest.mark.parametrize("name", ["plain", "top labels"])
def test_label_issues_do_not_depend_on_the_parts(name, parts, tmp_path):
    folder = write(RECORDS[name](), tmp_path / "shards", parts)
    one = label_issues(folder, top=40, min_disagreement=0.5)
    many = label_issues(
        folder, top=40, min_disagreement=0.5, engine="spark", session=LocalSession()
    )
    assert many.to_dict()["issues"] == one.to_dict()["issues"]
    # The estimate is a fit, which stops at a slightly other place if sums differ in their last bit.
    assert many.total.expected == pytest.approx(one.total.expected, rel=1e-2)
    assert len(one) == 40
