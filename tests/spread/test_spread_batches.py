"""How many rows are read or written at a time changes no result."""

from __future__ import annotations

import dataclasses
from copy import deepcopy

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from local_session import LocalSession
from spread_rows import RECORDS, ROWS, rows, top_rows, write

import credibly as cr
from credibly import InputError, decide
from credibly.executors import Spark
from credibly.predictions import Dataset, Predictions, Writer
from credibly.workflows import calibrate_dataset

each_record = pytest.mark.parametrize("name", RECORDS)
each_limit = pytest.mark.parametrize("batch_rows", [1, 7])


def in_groups(record, path, size=20):
    """Write a file of several row groups."""
    with Writer(path, record.labels, row_group_rows=size) as writer:
        writer.append(record)
    assert pq.ParquetFile(path).metadata.num_row_groups == -(-ROWS // size)
    return path


def assert_same(found, expected):
    assert set(found) == set(expected)
    for name in expected:
        np.testing.assert_allclose(found[name], expected[name], rtol=1e-9, err_msg=name)


@each_record
@pytest.mark.parametrize("size", [1, 7, 20, 1000])
def test_row_groups_of_any_size_hold_the_same_rows(name, size, tmp_path):
    record = RECORDS[name]()
    with Writer(tmp_path / "p.parquet", record.labels, row_group_rows=size) as writer:
        writer.append(record)
    groups = Dataset(tmp_path / "p.parquet").shards[0].group_rows
    assert groups == [min(size, ROWS - first) for first in range(0, ROWS, size)]
    read = Predictions.read(tmp_path / "p.parquet")
    assert dataclasses.replace(read, metadata=record.metadata) == record


@each_record
@each_limit
def test_a_piece_numbers_the_rows_of_its_batches(name, batch_rows, tmp_path):
    record = RECORDS[name]()
    path = in_groups(record, tmp_path / "p.parquet")
    dataset = Dataset(path, batch_rows=batch_rows)
    reader, seen = dataset.piece_reader, 0
    pieces = dataset.pieces(cells=300)
    assert len(pieces) > 2
    for piece in pieces:
        for first, batch in reader.batches(piece):
            assert first == seen
            assert len(batch) <= batch_rows
            assert batch.ids.tolist() == record.ids[first : first + len(batch)].tolist()
            seen += len(batch)
    assert seen == ROWS


@pytest.mark.parametrize("labels_at_once", [2, 1000])
def test_a_bad_value_is_named_by_its_row_in_the_file(labels_at_once, tmp_path):
    path = in_groups(rows(), tmp_path / "p.parquet")
    table = pq.read_table(path)
    values = table["p:knife"].to_numpy().copy()
    values[93] = 1.5
    column = table.column_names.index("p:knife")
    table = table.set_column(column, "p:knife", pa.array(values))
    pq.write_table(table, tmp_path / "bad.parquet", row_group_size=50)
    dataset = Dataset(tmp_path / "bad.parquet", batch_rows=7, labels_at_once=labels_at_once)
    with pytest.raises(InputError, match=r"1\.5 at row 93, column 'p:knife'"):
        list(dataset.batches())
    with pytest.raises(InputError, match=r"1\.5 at row 93, column 'p:knife'"):
        list(dataset.piece_reader.batches(dataset.pieces()[0]))


def test_rows_kept_by_a_mask_are_those_of_the_mask(tmp_path):
    record = rows()
    path = in_groups(record, tmp_path / "p.parquet")
    keep = np.random.default_rng(0).random(ROWS) < 0.3
    for limits in ({"batch_rows": 7}, {"batch_rows": 7, "labels_at_once": 2}):
        found = Dataset(path, **limits).read(rows=keep)
        np.testing.assert_array_equal(found.probabilities, record.probabilities[keep])


@each_record
def test_evaluation_does_not_depend_on_batches(name, tmp_path):
    record = RECORDS[name]()
    record.write(tmp_path / "p.parquet")
    in_groups(record, tmp_path / "groups.parquet")
    expected = cr.evaluate(tmp_path / "p.parquet")
    for path in ("p.parquet", "groups.parquet"):
        found = cr.evaluate(tmp_path / path, batch_rows=7)
        assert_same(found.numbers, expected.numbers)
        assert_same(found.by_label, expected.by_label)
    # The values of four labels at a time.
    found = cr.evaluate(tmp_path / "p.parquet", rows_in_memory=ROWS)
    assert_same(found.by_label, expected.by_label)


@each_record
def test_intervals_do_not_depend_on_batches(name, tmp_path):
    path = in_groups(RECORDS[name](), tmp_path / "p.parquet")
    options = {"intervals": True, "resampled_rows": 0}
    expected = cr.evaluate(path, **options).intervals
    assert expected
    assert_same(cr.evaluate(path, **options, batch_rows=7).intervals, expected)


def test_calibration_does_not_depend_on_batches(tmp_path):
    folder = write(rows(scores=True), tmp_path / "shards", 2)
    one = calibrate_dataset(folder, tmp_path / "one", "asl")
    many = calibrate_dataset(
        folder, tmp_path / "many", "asl", batch_rows=7, executor=Spark(LocalSession())
    )
    assert many.fitted.tolist() == one.fitted.tolist()
    found, expected = (Predictions.read(tmp_path / name) for name in ("many", "one"))
    np.testing.assert_allclose(found.probabilities, expected.probabilities, rtol=1e-6)
    for stage, numbers in one.stages.items():
        for name, value in numbers.items():
            assert many.stages[stage][name] == pytest.approx(value, rel=1e-6)


RULES = [
    decide.AverageSize(2),
    decide.AverageSize(2, ("probability", 0.1)),
    decide.Threshold(0.4),
    decide.Cost(5, 1, review=0.5),
]


@pytest.mark.parametrize("rule", RULES, ids=repr)
@pytest.mark.parametrize("make", [rows, top_rows])
def test_sets_do_not_depend_on_batches(rule, make, tmp_path):
    path = in_groups(make(), tmp_path / "p.parquet")
    expected = cr.write_sets(path, deepcopy(rule), tmp_path / "sets.parquet")
    table = pq.read_table(tmp_path / "sets.parquet")
    found = cr.write_sets(path, deepcopy(rule), tmp_path / "sets.parquet", batch_rows=7)
    assert_same(found.numbers, expected.numbers)
    assert found.to_dict() | {"numbers": 0} == expected.to_dict() | {"numbers": 0}
    assert pq.read_table(tmp_path / "sets.parquet").equals(table)


@pytest.mark.parametrize("bad", [0, -1, 2.5, "many"])
def test_limits_are_whole_numbers(bad, tmp_path):
    rows().write(tmp_path / "p.parquet")
    with pytest.raises(InputError, match="`batch_rows` must be a whole number of at least 1; got"):
        cr.evaluate(tmp_path / "p.parquet", batch_rows=bad)
    with pytest.raises(InputError, match="`row_group_rows` must be a whole number of at least 1"):
        Writer(tmp_path / "q.parquet", ["a"], row_group_rows=bad)
