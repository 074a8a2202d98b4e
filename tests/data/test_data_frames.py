"""Data frames and arrays in memory give the rows that the same content in a file gives."""

import dataclasses

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import credibly as cr

COLUMNS = {
    "x": [0.5, 1.5, -2.0, 3.0, 4.0],
    "z": [1, 2, 3, 4, 5],
    "wet": [1, 0, 1, 0, 1],
    "cold": [0.3, 1.0, None, 0.0, 0.9],
}
FRAMES = {"pandas": pd.DataFrame, "pyarrow": pa.table}
each_frame = pytest.mark.parametrize("make", FRAMES.values(), ids=FRAMES.keys())
try:
    import polars

    FRAMES["polars"] = polars.DataFrame
except ImportError:
    pass


def load(source, **options):
    return cr.data.load(source, labels=["wet", "cold"], test=0.0, calibration=0, **options)


@each_frame
def test_a_frame_gives_what_its_file_gives(make, tmp_path):
    data = load(make(COLUMNS))
    pq.write_table(pa.table(COLUMNS), tmp_path / "t.parquet")
    file = load(tmp_path / "t.parquet")
    np.testing.assert_array_equal(data.features, file.features)
    np.testing.assert_array_equal(data.targets, file.targets)
    np.testing.assert_array_equal(data.split, file.split)
    assert (data.labels, data.ids.tolist()) == (file.labels, file.ids.tolist())
    assert data.targets[:, 1] == pytest.approx([0.3, 1, -1, 0, 0.9])


@each_frame
def test_a_frame_without_labels_explains_itself(make):
    with pytest.raises(cr.InputError, match=r"data frame must say which columns .*`labels=\[…\]`"):
        cr.data.load(make(COLUMNS))
    with pytest.raises(cr.InputError, match="data frame has no column for label 'dry'"):
        cr.data.load(make(COLUMNS), labels=["wet", "dry"])
    with pytest.raises(cr.InputError, match="a data frame has no option 'year'; it has labels"):
        load(make(COLUMNS), year=2014)
    with pytest.raises(cr.InputError, match="data frame, row 1, column 'x' must be a number"):
        load(make({**COLUMNS, "x": ["1", "two", "3", "4", "5"]}))


def test_an_index_gives_the_ids_and_is_no_feature():
    frame = pd.DataFrame(COLUMNS, index=["a", "b", "c", "d", "e"])
    assert load(frame).ids.tolist() == ["a", "b", "c", "d", "e"]
    some = pd.DataFrame(COLUMNS).iloc[[3, 1]]
    assert load(some).ids.tolist() == ["3", "1"]
    assert load(some).features.tolist() == [[3, 4], [1.5, 2]]
    named = frame.rename_axis("row").assign(id=["p", "q", "r", "s", "t"])
    assert load(named).ids.tolist() == ["p", "q", "r", "s", "t"]
    assert load(named).features.shape == (5, 2)


def test_categories_and_booleans_are_plain_values():
    frame = (
        pd.DataFrame(COLUMNS)
        .astype({"wet": bool})
        .assign(split=pd.Categorical(["train", "train", "test", "train", "test"]))
    )
    data = cr.data.load(frame, labels=["wet", "cold"], calibration=0)
    assert data.targets[:, 0].tolist() == [1, 0, 1, 0, 1]
    assert data.split.tolist() == [0, 0, 1, 0, 1]


def test_a_signed_frame_is_asked_about():
    frame = pd.DataFrame({"x": [1.0, 2.0], "wet": [1, -1], "cold": [-1, 1]})
    with pytest.raises(cr.InputError, match="data frame: `targets` must say what −1 means"):
        load(frame)
    assert load(frame, coding="signed").targets.tolist() == [[1, 0], [0, 1]]


# Arrays ----------------------------------------------------------------------------------------


def test_arrays_are_split_as_a_file_is(tmp_path):
    generator = np.random.default_rng(0)
    features = generator.normal(size=(50, 3)).astype(np.float32)
    targets = (generator.random((50, 4)) < 0.3).astype(float)
    np.savez(tmp_path / "t.npz", features=features, targets=targets)
    file = cr.data.load(tmp_path / "t.npz", seed=3)
    data = cr.data.from_arrays(features=features, targets=targets, seed=3)
    assert dataclasses.replace(data, source=file.source).fingerprint() == file.fingerprint()


def test_arrays_take_classes_images_and_codings():
    classes = cr.data.from_arrays(images=np.zeros((9, 4, 4), np.uint8), targets=np.arange(9) % 3)
    assert (classes.kind, classes.num_labels) == ("images", 3)
    signed = np.array([[1, -1], [-1, 1]] * 5)
    with pytest.raises(cr.InputError, match="must say what −1 means"):
        cr.data.from_arrays(features=np.eye(10), targets=signed)
    data = cr.data.from_arrays(
        features=np.eye(10), targets=signed, coding="signed", labels=["a", "b"]
    )
    assert data.targets[0].tolist() == [1, 0]


@pytest.mark.parametrize("source", [np.ones((3, 2)), [1, 2], 7, None])
def test_what_is_no_source_explains_itself(source):
    with pytest.raises(cr.InputError, match=r"`cr\.data\.from_arrays\(features=…, targets=…\)`"):
        cr.data.load(source)
