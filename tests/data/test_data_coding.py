"""Every reader codes targets by one rule: what has two meanings is asked about, never guessed."""

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import credibly as cr
from credibly.data import Data

SIGNED = np.array([[1, -1], [-1, 1], [-1, -1], [1, 1]] * 3)
SOFT = np.array([[0.0, 0.3], [0.6, 0.9], [1.0, 0.0], [0.3, 1.0]] * 10)
FEATURES = np.random.default_rng(0).normal(size=(40, 3))
ARFF = "@relation r\n@attribute x real\n@attribute a real\n@attribute b real\n@data\n"


def write_npz(folder, targets):
    np.savez(
        folder / "t.npz", features=FEATURES[: len(targets)], targets=targets, labels=["a", "b"]
    )
    return str(folder / "t.npz")


def columns(targets):
    features = FEATURES[: len(targets)].T
    return {
        **{f"x{k}": column for k, column in enumerate(features)},
        "y:a": targets[:, 0],
        "y:b": targets[:, 1],
    }


def write_csv(folder, targets):
    table = columns(targets)
    blank = lambda cell: "" if np.isnan(cell) else repr(float(cell))  # noqa: E731
    lines = [",".join(map(blank, row)) for row in zip(*table.values(), strict=True)]
    (folder / "t.csv").write_text("\n".join([",".join(table), *lines]) + "\n")
    return str(folder / "t.csv")


def write_parquet(folder, targets):
    pq.write_table(pa.table(columns(targets)), folder / "t.parquet")
    return str(folder / "t.parquet")


def write_hf(folder, targets):
    (folder / "hf").mkdir()
    pq.write_table(pa.table(columns(targets)), folder / "hf" / "train-00000-of-00001.parquet")
    return f"hf:{folder / 'hf'}"


def write_arff(folder, targets):
    text = lambda cell: "?" if np.isnan(cell) else repr(float(cell))  # noqa: E731
    rows = [f"{k},{text(a)},{text(b)}" for k, (a, b) in enumerate(targets)]
    (folder / "t.arff").write_text(ARFF + "\n".join(rows))
    (folder / "t.xml").write_text('<labels><label name="a"/><label name="b"/></labels>')
    return str(folder / "t.arff")


WRITERS = [write_npz, write_csv, write_parquet, write_hf, write_arff]
each_writer = pytest.mark.parametrize("write", WRITERS, ids=lambda write: write.__name__[6:])


@each_writer
def test_only_minus_one_and_plus_one_is_refused_with_both_meanings_and_the_file(write, tmp_path):
    source = write(tmp_path, SIGNED)
    with pytest.raises(cr.InputError, match=r'`coding="signed"` if .*`coding="unknown"`') as error:
        cr.data.load(source)
    assert source.rpartition("/")[2] in str(error.value)


@each_writer
def test_coding_says_which_meaning(write, tmp_path):
    source = write(tmp_path, SIGNED)
    signed, unknown = (cr.data.load(source, coding=coding) for coding in ("signed", "unknown"))
    np.testing.assert_array_equal(signed.targets, (SIGNED == 1).astype(np.float32))
    np.testing.assert_array_equal(unknown.targets, SIGNED)


@each_writer
def test_a_missing_value_and_minus_hundred_are_unknown(write, tmp_path):
    targets = np.array([[1.0, np.nan], [-100.0, 0.0], [0.5, -1.0]])
    assert cr.data.load(write(tmp_path, targets)).targets.tolist() == [[1, -1], [-1, 0], [0.5, -1]]


@each_writer
def test_positives_beside_missing_values_need_no_coding(write, tmp_path):
    targets = np.array([[1.0, np.nan], [np.nan, 1.0]])
    assert cr.data.load(write(tmp_path, targets)).targets.tolist() == [[1, -1], [-1, 1]]


@each_writer
def test_a_coding_that_contradicts_the_values_is_refused(write, tmp_path):
    source = write(tmp_path, np.array([[1, 0], [0, 1]]))
    with pytest.raises(cr.InputError, match="must hold −1 for absent labels"):
        cr.data.load(source, coding="signed")
    source = write_npz(tmp_path, SIGNED)
    with pytest.raises(cr.InputError, match="`coding` must be one of 'signed', 'unknown'"):
        cr.data.load(source, coding="both")


@each_writer
def test_soft_targets_load_and_split(write, tmp_path):
    data = cr.data.load(write(tmp_path, SOFT), test=0.25, calibration=0.2)
    np.testing.assert_allclose(data.targets, SOFT.astype(np.float32))
    assert np.bincount(data.split).tolist() == [24, 10, 6]
    assert data.part("test").targets.dtype == np.float32


def test_a_value_without_meaning_is_named_with_row_and_column(tmp_path):
    source = write_csv(tmp_path, np.array([[1, -1], [1, 0.5]]))
    with pytest.raises(cr.InputError, match=r"row 3, column 'y:b' must be 1 \(present\).* got 0.5"):
        cr.data.load(source, coding="signed")


def test_coding_of_label_names_or_classes_is_refused(tmp_path):
    (tmp_path / "names.csv").write_text("x,labels\n1,a|b\n2,b\n")
    with pytest.raises(cr.InputError, match="`coding` is for columns of numbers"):
        cr.data.load(tmp_path / "names.csv", coding="signed")
    np.savez(tmp_path / "c.npz", features=np.ones((2, 1)), targets=np.array([0, 1]))
    with pytest.raises(cr.InputError, match="holds class indices"):
        cr.data.load(tmp_path / "c.npz", coding="signed")


def test_published_codings_need_no_flag(tmp_path):
    """A part of WIDER where every person has every attribute said to be there or not."""
    from layout_makers import paint, write

    people = [{"attribute": [1, -1], "bbox": [0, 0, 5, 5]}]
    for part in ("trainval", "test"):
        image = {"file_name": f"{part}.jpg", "targets": people}
        content = {"images": [image], "attribute_id_map": {"0": "Male", "1": "hat"}}
        write(tmp_path / f"wider_attribute_{part}.json", content)
        paint(tmp_path / "Image" / f"{part}.jpg")
    assert cr.data.load(f"wider:{tmp_path}", calibration=0).targets.tolist() == [[1, 0], [1, 0]]


def test_rows_in_memory_follow_the_same_rule():
    with pytest.raises(cr.InputError, match="`targets` must say what −1 means"):
        Data(["a", "b"], SIGNED, features=FEATURES[:12])
    data = Data(["a", "b"], SIGNED, features=FEATURES[:12], coding="signed")
    assert data.targets[0].tolist() == [1, 0]
    classes = Data(["a", "b"], np.array([1, -1]), features=FEATURES[:2])
    assert classes.targets.tolist() == [[0, 1], [-1, -1]]


def test_a_part_without_a_zero_is_not_asked_about_again():
    data = Data(["a", "b"], np.array([[1, -1], [0, 1]]), features=FEATURES[:2])
    assert data.take(np.array([0])).targets.tolist() == [[1, -1]]


def test_a_part_of_decoded_targets_is_a_view():
    data = Data(["a", "b"], SOFT.astype(np.float32), features=FEATURES)
    assert np.shares_memory(data.take(np.arange(3, 9)).targets, data.targets)
