"""Lists of labels: SVMlight files, CSR arrays and list columns, dense or sparse by their number."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from credibly import InputError, data
from credibly.targets import SparseTargets

LISTS = [[1, 4000], [], [5, 0, 2], [4000]]
FEATURES = np.array([[0.5, 0, 1], [0, 0, 0], [0, 2, 0], [1, 1, 1]], np.float32)


def lines(lists, base=""):
    rows = []
    for labels, values in zip(lists, FEATURES, strict=False):
        pairs = [f"{place}:{value}" for place, value in enumerate(values) if value]
        rows.append(" ".join([",".join(map(str, labels)), *pairs]))
    return base + "\n".join(rows) + "\n"


def dense(lists, count):
    matrix = np.zeros((len(lists), count), np.float32)
    for row, labels in enumerate(lists):
        matrix[row, labels] = 1
    return matrix


@pytest.mark.parametrize("count", [4001, 5000])
def test_a_file_with_a_first_line_keeps_labels_nobody_has(tmp_path, count):
    path = tmp_path / "rows.svm"
    path.write_text(lines(LISTS, f"4 3 {count}\n"))
    rows = data.load(path)
    assert isinstance(rows.targets, SparseTargets) == (count >= 4096)
    np.testing.assert_array_equal(rows.dense_targets, dense(LISTS, count))
    np.testing.assert_array_equal(rows.features, FEATURES)
    assert f"{count} labels" in repr(rows)


def test_a_folder_of_the_repository_has_its_split(tmp_path):
    (tmp_path / "train.txt").write_text(lines(LISTS, "4 3 5000\n"))
    (tmp_path / "test.txt").write_text(lines(LISTS[:2], "2 3 5000\n"))
    rows = data.load(f"xc:{tmp_path}", calibration=0.0)
    assert rows.split.tolist() == [0, 0, 0, 0, 1, 1]
    np.testing.assert_array_equal(rows.part("test").dense_targets, dense(LISTS[:2], 5000))


def test_csr_arrays_and_list_columns_give_the_same_rows(tmp_path):
    expected = SparseTargets.from_lists(LISTS, 5000)
    np.savez(
        tmp_path / "rows.npz",
        features=FEATURES,
        target_offsets=expected.offsets,
        target_indices=expected.indices,
        labels=[f"l{i}" for i in range(5000)],
    )
    names = [[f"l{i}" for i in row] for row in LISTS] + [None]
    table = pa.table({"features": [*FEATURES.tolist(), [0, 0, 0]], "labels": names})
    pq.write_table(table, tmp_path / "rows.parquet")
    from_npz = data.load(tmp_path / "rows.npz", calibration=0.0)
    labels = [f"l{i}" for i in range(5000)]
    from_lists = data.load(tmp_path / "rows.parquet", labels=labels, label_column="labels")
    np.testing.assert_array_equal(from_npz.dense_targets, expected.dense())
    np.testing.assert_array_equal(from_lists.dense_targets[:4], expected.dense())
    assert (from_lists.dense_targets[4] == -1).all()


def test_sparse_and_dense_targets_are_split_alike():
    generator = np.random.default_rng(0)
    matrix = (generator.random((300, 40)) < 0.04).astype(np.float32)
    sparse = SparseTargets.from_dense(matrix)
    features = np.zeros((300, 1))
    for seed in range(10):
        one, other = (
            data.from_arrays(features=features, targets=targets, seed=seed).split
            for targets in (sparse, matrix)
        )
        np.testing.assert_array_equal(one, other)


def test_rows_of_rare_labels_reach_every_part_where_labels_are_very_many():
    lists = [[row] for row in range(1000)]
    targets = SparseTargets.from_lists(lists, 5000)
    rows = data.from_arrays(features=np.zeros((1000, 1)), targets=targets, calibration=0.25)
    np.testing.assert_array_equal(np.bincount(rows.split), [600, 200, 200])


@pytest.mark.parametrize("width", [4000, 200_000])
def test_many_features_stay_sparse_in_any_order_of_their_numbers(tmp_path, width):
    pairs = [f"{width - 1}:2 7:0.5", "", "9:1 8:-3"]
    text = "\n".join(f"{row} {each}" for row, each in enumerate(pairs))
    (tmp_path / "rows.svm").write_text(f"3 {width} 3\n{text}\n")
    rows = data.load(tmp_path / "rows.svm", calibration=0.0, test=0.0)
    assert (rows.sparse_features is not None) == (width >= 4096)
    expected = np.zeros((3, width), np.float32)
    expected[0, [7, width - 1]] = 0.5, 2
    expected[2, [8, 9]] = -3, 1
    found = rows.features if rows.features is not None else rows.sparse_features.dense()
    np.testing.assert_array_equal(found, expected)


def test_train_and_test_files_may_name_different_features(tmp_path):
    (tmp_path / "train.txt").write_text("0 5000:1\n1 3:1\n")
    (tmp_path / "test.txt").write_text("1 9000:1\n")
    rows = data.load(f"xc:{tmp_path}", calibration=0.0)
    assert rows.input_shape == (9001,)
    assert rows.part("test").sparse_features.matrix.indices.tolist() == [9000]


def test_the_first_line_may_claim_millions_of_labels(tmp_path):
    (tmp_path / "rows.svm").write_text("2 3 2812281\n2812280 0:1\n7 1:1\n")
    rows = data.load(tmp_path / "rows.svm", calibration=0.0, test=0.0)
    assert len(rows.labels) == 2_812_281
    assert rows.targets.label_counts()[[7, 2_812_280]].tolist() == [1, 1]


BAD = {
    "a feature twice": ("1 0:1 0:2\n", "line 1 must hold each feature once"),
    "a feature number too large": (f"1 {2**40}:1\n", "must be below"),
    "too many features claimed": (f"1 {2**40} 3\n1 0:1\n", "line 1: there must be at most"),
    "too many labels claimed": (f"1 3 {2**40}\n1 0:1\n", "at most 8,388,608 labels"),
    "too large a label number": (f"{2**40} 0:1\n", "below 1,000,000"),
    "a label beyond those claimed": ("2 3 5\n4 0:1\n5 1:1\n", "line 3: .* label numbers below 5"),
    "a feature beyond those claimed": ("1 3 5\n1 3:1\n", "line 2: feature numbers must be below 3"),
    "an infinite value": ("1 5000:inf\n", "row 0, column 5000"),
    "fewer rows than claimed": ("9 3 5\n1 0:1\n", "must hold 9 rows"),
    "a word": ("1,dog 0:1\n", "line 1 must be"),
    "a negative label": ("-3 0:1\n", "must be at least 0"),
    "nothing": ("\n", "it has none"),
    "bytes": ("\xff\xfe", "plain text"),
}


@pytest.mark.parametrize("case", BAD)
def test_broken_files_are_refused_with_their_line(tmp_path, case):
    text, message = BAD[case]
    (tmp_path / "rows.svm").write_bytes(text.encode("latin-1"))
    with pytest.raises(InputError, match=message):
        data.load(tmp_path / "rows.svm")


BAD_CSR = {
    "a label out of range": ({"target_indices": [0, 9, 1]}, r"must lie in \[0, 3\]; got 9"),
    "a label twice": ({"target_indices": [0, 0, 1]}, "twice"),
    "offsets that end early": ({"target_offsets": [0, 1, 2]}, "must go from 0 to"),
    "too few rows": ({"target_offsets": [0, 3]}, "row"),
}


@pytest.mark.parametrize("case", BAD_CSR)
def test_broken_csr_targets_are_refused(tmp_path, case):
    change, message = BAD_CSR[case]
    arrays = {"target_offsets": [0, 2, 3], "target_indices": [0, 1, 1], **change}
    np.savez(tmp_path / "rows.npz", features=FEATURES[:2], labels=list("abcd"), **arrays)
    with pytest.raises(InputError, match=message) as caught:
        data.load(tmp_path / "rows.npz")
    assert "rows.npz" in str(caught.value)


def test_labels_out_of_range_are_refused(tmp_path):
    (tmp_path / "rows.svm").write_text("7 0:1\n")
    with pytest.raises(InputError, match=r"must lie in \[0, 1\]; got 7 in row 0"):
        data.load(tmp_path / "rows.svm", labels=["a", "b"])
