"""Records in memory: parts, wholes, truth; inputs stay as they are."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from predictions_instances import RECORDS, random_record

from credibly import InputError, Predictions

each_record = pytest.mark.parametrize("record", RECORDS.values(), ids=RECORDS.keys())


@each_record
def test_a_record_equals_itself_and_no_changed_one(record):
    again = record[:]
    assert again == record
    assert record != "a record"
    assert record.select(record.labels[::-1]) == record or record.num_labels > 1
    changed = record.probabilities.copy()
    changed[0, 0] = 0.5
    assert Predictions(changed, *_rest(record)) != record
    if record.targets is not None:
        assert record != Predictions(record.probabilities, record.labels, record.ids)
    with pytest.raises(TypeError, match="unhashable"):
        hash(record)


def _rest(record: Predictions) -> tuple:
    return record.labels, record.ids, record.targets, record.scores, record.metadata


def test_tensors_lists_and_class_indices_are_welcome():
    record = Predictions.from_arrays(
        probabilities=torch.tensor([[0.5, 0.25], [1.0, 0.0]], dtype=torch.bfloat16),
        targets=torch.tensor([1, -1]),
        labels=np.array(["dog", "cat"]),
        ids=[7, 8],
    )
    assert record.ids.tolist() == ["7", "8"]
    assert record.targets is not None
    np.testing.assert_array_equal(record.targets, [[0, 1], [-1, -1]])
    assert record.probabilities.dtype == np.float32
    boolean = Predictions.from_arrays(
        probabilities=[[0.5]], labels=["dog"], targets=np.array([[True]])
    )
    assert boolean.targets is not None
    assert boolean.targets.dtype == np.int8


def test_inputs_stay_as_they_are(tmp_path):
    probabilities = np.random.default_rng(0).random((6, 2), dtype=np.float32)
    targets = np.array([[1, 0], [-1, -1], [0, 0], [1, 1], [0, 1], [1, -1]], dtype=np.int8)
    kept = probabilities.copy(), targets.copy()
    metadata = {"seed": 1}
    record = Predictions.from_arrays(
        probabilities=probabilities, targets=targets, labels=["a", "b"], metadata=metadata
    )
    record.write(tmp_path / "p.parquet")
    record[3:].select(["b"]).mapped(lambda values: 1 - values)
    np.testing.assert_array_equal(probabilities, kept[0])
    np.testing.assert_array_equal(targets, kept[1])
    assert metadata == {"seed": 1}


def test_no_rows_may_be_picked_but_not_written(tmp_path):
    empty = random_record()[[]]
    assert len(empty) == 0
    with pytest.raises(InputError, match="at least one row; got none"):
        empty.write(tmp_path / "p.parquet")
    assert list(tmp_path.iterdir()) == []
