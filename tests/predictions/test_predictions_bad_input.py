"""Every complaint names the file, the row and the column, and says what to do."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from predictions_instances import random_record, write_pieces

from credibly import InputError, Predictions
from credibly.predictions import Dataset

GOOD = {"id": ["a", "b", "c"], "p:dog": [0.1, 0.2, 0.3], "y:dog": [1, 0, None]}

BAD_COLUMNS = {
    "above 1": ({"p:dog": [0.1, 4.1, 0.3]}, r"in \[0, 1\]; got 4.1 at row 1, column 'p:dog'.*loss"),
    "below 0": ({"p:dog": [0.1, 0.2, -1e-9]}, r"got -1e-09 at row 2, column 'p:dog'"),
    "just above 1": ({"p:dog": [0.1, 1 + 1e-12, 0]}, r"lie in \[0, 1\]; got 1 at row 1"),
    "NaN": ({"p:dog": [0.1, 0.2, float("nan")]}, r"must not be NaN; row 2, column 'p:dog' is"),
    "null": ({"p:dog": [0.1, None, 0.3]}, r"'p:dog' must have a number in every row; row 1"),
    "text": ({"p:dog": ["0.1", "x", "0.3"]}, r"'p:dog' must hold numbers; .*first 'x' in row 1"),
    "odd truth": ({"y:dog": [0, 7, 1]}, r"targets must be 0, 1, .*got 7 at row 1, column 'y:dog'"),
    "score NaN": ({"s:dog": [0.0, float("nan"), 1]}, r"scores must not be NaN; row 1, column 's:"),
    "alike ids": ({"id": ["a", "b", "a"]}, r"ids must be different; 'a' is the id of rows 0 and 2"),
    "no id": ({"id": ["a", None, "c"]}, r"every row must have an id; row 1 has none"),
    "label of nothing": ({"p:": [0.1, 0.2, 0.3]}, r"label 1 has an empty name"),
    "truth of one": ({"p:cat": [0.1, 0.2, 0.3]}, r"must (have|be) a column 'y:cat'"),
}


@pytest.mark.parametrize(("change", "message"), BAD_COLUMNS.values(), ids=BAD_COLUMNS.keys())
def test_bad_cells_are_named_by_file_row_and_column(change, message, tmp_path):
    message = message.replace(".*first 'x' in row 1", "it holds string")  # seen before any row
    path = tmp_path / "bad.parquet"
    pq.write_table(pa.table({**GOOD, **change}), path, row_group_size=2)
    before = path.read_bytes()
    with pytest.raises(InputError, match=f"bad.parquet: .*{message}"):
        Predictions.read(path)
    assert path.read_bytes() == before


@pytest.mark.parametrize(("change", "message"), BAD_COLUMNS.values(), ids=BAD_COLUMNS.keys())
def test_a_foreign_reader_complains_alike(change, message, tmp_path):
    path = tmp_path / "bad.parquet"
    pq.write_table(pa.table({**GOOD, **change}), path)
    with pytest.raises(InputError, match=f"bad.parquet: .*{message}"):
        Predictions.from_values(path, "probabilities")


def test_columns_that_a_predictions_file_needs(tmp_path):
    path = tmp_path / "bad.parquet"
    pq.write_table(pa.table({"p:dog": [0.5]}), path)
    with pytest.raises(InputError, match=r"bad.parquet: .*must have a column 'id'"):
        Predictions.read(path)
    pq.write_table(pa.table({"id": ["a"], "price": [3.5]}), path)
    with pytest.raises(
        InputError, match=r"not a predictions file: .*columns: id, price.*credibly import FILE"
    ):
        Predictions.read(path)
    document = json.dumps({"version": "1.0", "labels": ["dog", "cat"]})
    table = pa.table({"id": ["a"], "p:dog": [0.5]}).replace_schema_metadata({"credibly": document})
    pq.write_table(table, path)
    with pytest.raises(InputError, match=r"must have a column 'p:cat'"):
        Predictions.read(path)
    pq.write_table(table.replace_schema_metadata({"credibly": "[]"}), path)
    with pytest.raises(InputError, match=r"bad.parquet: the metadata .*JSON object with a version"):
        Predictions.read(path)


@pytest.mark.parametrize("keep", [0, 3, 4, 200, -1, -9])
def test_a_cut_off_file_says_so(keep, tmp_path):
    path = tmp_path / "p.parquet"
    random_record().write(path)
    path.write_bytes(path.read_bytes()[:keep])
    with pytest.raises(
        InputError, match=r"p.parquet (must be a complete Parquet|is an empty file)"
    ):
        Predictions.read(path)


def test_damage_inside_a_file_says_so(tmp_path):
    path = tmp_path / "p.parquet"
    random_record(2000).write(path)
    content = bytearray(path.read_bytes())
    content[3000:9000] = bytes(6000)
    path.write_bytes(content)
    with pytest.raises(InputError, match=r"p.parquet must be a complete Parquet file"):
        Predictions.read(path)


def test_files_that_are_not_there_or_hold_nothing(tmp_path):
    with pytest.raises(FileNotFoundError, match=r"there is no file .*nowhere.parquet"):
        Predictions.read(tmp_path / "nowhere.parquet")
    with pytest.raises(FileNotFoundError, match=r"there is no file .*nowhere.npz"):
        Predictions.from_values(tmp_path / "nowhere.npz", "probabilities")
    with pytest.raises(InputError, match=r"must hold Parquet files \(\*.parquet\); it has none"):
        Predictions.read(tmp_path)
    pq.write_table(pa.table(GOOD).slice(0, 0), tmp_path / "none.parquet")
    with pytest.raises(InputError, match=r"none.parquet must have at least one row"):
        Predictions.read(tmp_path / "none.parquet")
    with pytest.raises(InputError, match=r"none.parquet: must have at least one row"):
        Predictions.from_values(tmp_path / "none.parquet", "probabilities")


def test_parts_with_other_labels_are_named(tmp_path):
    random_record(4, ["dog", "cat"]).write(tmp_path / "part-0.parquet")
    random_record(4, ["dog", "cow"]).write(tmp_path / "part-1.parquet")
    with pytest.raises(InputError, match=r"part-1.parquet lacks 'cat' and has 'cow' besid"):
        Predictions.read(tmp_path)
    random_record(4, ["dog", "cat"]).write(tmp_path / "part-1.parquet")
    with pytest.raises(
        InputError, match=r"ids must be different; 'row 0' is the id of rows 0 and 4"
    ):
        Predictions.read(tmp_path)
    with pytest.raises(InputError, match=r"ids must be different; 'row 0'"):
        Dataset(tmp_path).check_ids()


CSV_FILES = {
    "empty": ("", "must be a CSV file with a header"),
    "header only": ("id,dog\n", "must have at least one row"),
    "ragged": ("id,dog\na,0.5\nb,0.5,0.5\n", "must be a CSV file with a header; .*Expected 2"),
    "text": ("id,dog\na,0.5\nb,half\n", "column 'dog' must hold numbers; .*'half' in row 1"),
    "gap": ("id,dog\na,0.5\nb,\n", "'dog' must have a number in every row; row 1"),
    "scores": ("id,dog\na,0.5\nb,-3.5\n", r"got -3.5 at row 1, column 'p:dog'.*loss"),
    "twice": ("id,dog,dog\na,0.5,0.5\n", "'dog' appears twice"),
    "no labels": ("id\na\n", "must name at least one label"),
}


@pytest.mark.parametrize(("text", "message"), CSV_FILES.values(), ids=CSV_FILES.keys())
def test_bad_csv_files_are_explained(text, message, tmp_path):
    (tmp_path / "bad.csv").write_text(text)
    with pytest.raises(InputError, match=rf"bad.csv:? .*{message}"):
        Predictions.from_values(tmp_path / "bad.csv", "probabilities")


def _npz(path: Path, **arrays: np.ndarray) -> Path:
    np.savez(path, **arrays)  # pyright: ignore[reportArgumentType]
    return path


def test_bad_npz_files_are_explained(tmp_path):
    path = tmp_path / "bad.npz"
    flat = np.zeros(3)
    with pytest.raises(InputError, match=r"bad.npz: must hold an array `scores`.*holds scores \(3"):
        Predictions.from_values(_npz(path, scores=flat), "probabilities")
    probabilities = np.full((2, 2), 0.5)
    with pytest.raises(InputError, match=r"`ids` must have 2 rows, as the others; got 3"):
        Predictions.from_values(_npz(path, probabilities=probabilities, ids=flat), "probabilities")
    with pytest.raises(InputError, match=r"plain arrays \(no pickled objects\)"):
        Predictions.from_values(
            _npz(path, probabilities=probabilities, ids=np.array([{}, 1])), "probabilities"
        )
    with pytest.raises(InputError, match=r"class indices .* lie in \[0, 1\].*got 2 in row 1"):
        Predictions.from_values(
            _npz(path, probabilities=probabilities, targets=np.array([0, 2])), "probabilities"
        )
    with pytest.raises(InputError, match=r"with 3 labels; got \(2, 2\)"):
        Predictions.from_values(
            _npz(path, probabilities=probabilities, labels=np.array(["a", "b", "c"])),
            "probabilities",
        )
    path.write_bytes(path.read_bytes()[:50])
    with pytest.raises(InputError, match=r"bad.npz must be a complete .npz file"):
        Predictions.from_values(path, "probabilities")


def test_bad_arrays_are_explained(tmp_path):
    make = Predictions.from_arrays
    half = np.full((2, 2), 0.5)
    with pytest.raises(InputError, match=r"labels must be different; 'a' appears twice"):
        make(probabilities=half, labels=["a", "a"])
    with pytest.raises(InputError, match=r"with 1 labels; got \(2, 2\)"):
        make(probabilities=half, labels=["a"])
    with pytest.raises(InputError, match=r"`targets` must have as many rows .* 2; got 3"):
        make(probabilities=half, labels=["a", "b"], targets=np.zeros((3, 2)))
    with pytest.raises(InputError, match=r"`ids` must have one entry per row, 2; got 1"):
        make(probabilities=half, labels=["a", "b"], ids=["x"])
    with pytest.raises(InputError, match=r"must be numbers; got dtype <U1"):
        make(probabilities=[["a", "b"]], labels=["a", "b"])
    with pytest.raises(InputError, match=r"must not have the key 'labels'"):
        make(probabilities=half, labels=["a", "b"], metadata={"labels": 1}).write(tmp_path / "p")
    with pytest.raises(InputError, match=r"must be JSON.*not JSON serializable"):
        make(probabilities=half, labels=["a", "b"], metadata={"x": object()}).write(tmp_path / "p")
    with pytest.raises(InputError, match=r"not valid Unicode"):
        make(probabilities=half, labels=["a", "\ud800"])


def test_bad_requests_are_explained(tmp_path):
    record = random_record(5, ["dog", "cat"])
    record.write(tmp_path / "p.parquet")
    with pytest.raises(InputError, match=r"p.parquet has no label 'dgo'. Did you mean 'dog'"):
        Predictions.read(tmp_path / "p.parquet", labels=["dgo"])
    with pytest.raises(InputError, match=r"p.parquet has 5 rows; index 9 is out of bounds"):
        Predictions.read(tmp_path / "p.parquet", rows=[9])
    with pytest.raises(InputError, match=r"must pick at least one row"):
        Predictions.read(tmp_path / "p.parquet", rows=[])
    with pytest.raises(InputError, match=r"slice, indices or a mask; got 3"):
        record[3]  # pyright: ignore[reportArgumentType]
    with pytest.raises(InputError, match=r"no label 'cow'"):
        record.select(["cow"])
    with pytest.raises(InputError, match=r"labels must agree; the batch lacks 'cat'"):
        write_pieces(tmp_path / "q.parquet", [record, record.select(["dog"])])
    with pytest.raises(InputError, match=r"layout of the first batch, with scores and targets"):
        write_pieces(tmp_path / "q.parquet", [record, Predictions(*bare_fields(record))])


def bare_fields(record: Predictions) -> tuple:
    return record.probabilities, record.labels, record.ids
