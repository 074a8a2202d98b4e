"""What a table's columns are, by their training rows; errors name all columns and what to do."""

import gzip
import warnings

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from PIL import Image

import credibly as cr
from credibly.cli import main

TRAIN = 0  # what `split` says of a row


def load(folder, text, name="rows.csv", encoding="utf-8", **options):
    content = text.encode(encoding)
    path = folder / name
    path.write_bytes(gzip.compress(content) if name.endswith(".gz") else content)
    return cr.data.load(path, **options)


def table(name, *cells):
    """Return a CSV file with one feature column; its last row is a test row."""
    lines = [f"{cell},{row % 2},train" for row, cell in enumerate(cells)]
    lines[-1] = lines[-1].replace("train", "test")
    return "\n".join([f"{name},y:a,split", *lines, ""])


FEATURES = {
    "numbers": (table("x", "1", "2.5", " 3 "), {"x": [1, 2.5, 3]}),
    "a gap in training": (
        table("x", "1", "NA", "3"),
        {"x": [1, None, 3], "x (missing)": [0, 1, 0]},
    ),
    "a gap in the test rows": (table("x", "1", "2", ""), {"x": [1, 2, None]}),
    "yes and no": (table("x", "yes", "No", "YES"), {"x": [1, 0, 1]}),
    "true and false": (table("x", "True", "FALSE", "true"), {"x": [1, 0, 1]}),
    "a category of the test rows": (
        table("x", "b", "a", "b", "c"),
        {"x=b": [1, 0, 1, 0], "x=a": [0, 1, 0, 0]},
    ),
    "one sex": (table("x", "f", "f", "m"), {"x=f": [1, 1, 0]}),
    "dates": (
        table("x", "1970-01-01", "1970-02-02 12:00", "1970-01-02T00:00:00Z"),
        {
            "x (days)": [0, 32.5, 1],
            "x (month)": [1, 2, 1],
            "x (weekday)": [3, 0, 4],
            "x (hour)": [0, 12, 0],
        },
    ),
    "days first": (
        table("x", "31.01.1970", "01.02.1970", "1970-01-02"),
        {
            "x (days)": [30, 31, 1],
            "x (month)": [1, 2, 1],
            "x (weekday)": [5, 6, 4],
            "x (hour)": [0, 0, 0],
        },
    ),
    "codes with few numbers": (
        table("x", "A1", "B2", "7", "A1"),
        {"x=7": [0, 0, 1, 0], "x=A1": [1, 0, 0, 1], "x=B2": [0, 1, 0, 0]},
    ),
}


@pytest.mark.parametrize(("text", "expected"), FEATURES.values(), ids=FEATURES)
def test_a_column_becomes_features(text, expected, tmp_path):
    data = load(tmp_path, text, calibration=0)
    assert data.feature_names == list(expected)
    found = np.stack([np.array(cells, dtype=float) for cells in expected.values()], axis=1)
    np.testing.assert_array_equal(data.features, found.astype(np.float32))


LEFT_OUT = {
    "patient_id": ([f"P{row}" for row in range(60)], "'patient_id' left out: .* as ids have"),
    "PatientId": (range(100, 160), "'PatientId' left out: .* as ids have"),
    "surname": ([f"N{row}" for row in range(60)], "'surname' left out: .* as ids have"),
    "remark": (
        [f"patient {row} came from house no{row}" for row in range(60)],
        "'remark' left out: nearly every row has a different value",
    ),
    "spare": ([""] * 60, "'spare' left out: empty in the training rows"),
}


@pytest.mark.parametrize("name", LEFT_OUT)
def test_columns_that_are_no_features_are_left_out_and_said(name, tmp_path):
    cells, said = LEFT_OUT[name]
    rows = pd.DataFrame({"x": np.arange(60.0), name: cells, "y:a": np.arange(60) % 2})
    with pytest.warns(UserWarning, match=said):
        data = cr.data.load(rows)
    assert data.feature_names == ["x"]


def test_frequent_words_of_a_text_become_features():
    notes = [f"Case {row}: a {'Dry' if row % 3 else 'bad'} cough, n{row}" for row in range(60)]
    rows = pd.DataFrame({"x": np.arange(60.0), "note": notes, "y:a": np.arange(60) % 2})
    rows.loc[7, "note"] = None
    with pytest.warns(UserWarning, match="To train on the text only, pass `text='note'`"):
        data = cr.data.load(rows, calibration=0)
    assert data.feature_names == ["x", "note: bad", "note (missing)"]  # others: nearly all or one
    expected = np.arange(60) % 3 == 0
    np.testing.assert_array_equal(data.features[:, 1:].T, [expected, np.arange(60) == 7])
    assert str(data.preparation) == "1 numeric, 1 text (1 word); missing cells in note"


@pytest.mark.parametrize("name", ["paid", "store_id", "PassengerIdle"])
def test_numbers_that_repeat_or_are_only_called_like_ids_are_features(name):
    cells = np.arange(60) if name == "PassengerIdle" else np.arange(60) // 2
    rows = pd.DataFrame({name: cells, "y:a": np.arange(60) % 2})
    assert cr.data.load(rows).feature_names == [name]


def test_the_preparation_knows_training_rows_alone():
    rng = np.random.default_rng(0)
    rows = pd.DataFrame({"town": rng.choice(list("abcdefgh"), 60), "y:a": rng.integers(0, 2, 60)})
    data = cr.data.load(rows)
    seen = sorted(set(rows["town"][data.split == TRAIN]))
    assert sorted(data.feature_names) == [f"town={town}" for town in seen]
    changed = rows.assign(town=np.where(data.split == TRAIN, rows["town"], "z"))
    assert cr.data.load(changed).feature_names == data.feature_names


def test_ids_are_those_of_the_column_that_is_named(tmp_path):
    text = "who,x,y:a\nann,1,0\nbob,2,1\ncyd,3,1\n"
    data = load(tmp_path, text, id_column="who")
    assert (data.ids.tolist(), data.feature_names) == (["ann", "bob", "cyd"], ["x"])
    with pytest.raises(cr.InputError, match=r"no column 'whom'\. Did you mean 'who'"):
        load(tmp_path, text, id_column="whom")


@pytest.mark.parametrize("name", ["rows.csv", "rows.csv.gz", "rows.tsv.gz"])
@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "latin-1", "cp1252"])
def test_csv_files_packed_or_in_latin_1_read_alike(name, encoding, tmp_path):
    text = "größe,y:weiß\n1,0\n2,1\n3,1\n"
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        data = load(tmp_path, text, name, encoding)
    assert (data.feature_names, data.labels) == (["größe"], ["weiß"])
    said = [str(each.message) for each in caught]
    assert len(said) == (encoding in ("latin-1", "cp1252"))
    assert all("not UTF-8, so it is read as Latin-1" in each for each in said)


def test_labels_may_contain_a_comma(tmp_path):
    rows = pd.DataFrame(
        {"x": np.arange(40.0), "pain, chest": np.arange(40) % 2, "fever": ["no", "yes"] * 20}
    )
    rows.to_csv(tmp_path / "rows.csv", index=False)
    options = {"labels": '"pain, chest",fever', "model": "linear", "out": tmp_path / "run"}
    given = [f"--{name}={value}" for name, value in options.items()]
    assert main(["train", str(tmp_path / "rows.csv"), *given, "--quiet"]) == 0
    assert cr.load(tmp_path / "run").labels == ["pain, chest", "fever"]


REFUSED = {
    "several columns": (
        "age,bmi,y:a\nold,1,1\n1,2,0\n3,3,0\n4,x,0\n5,6,1\n",
        {"test": 0, "calibration": 0},
        r"row 2, column 'age' must be a number; got 'old'; row 5, column 'bmi' must be a number; "
        r"got 'x'. Correct these cells, or leave them empty",
    ),
    "decimal commas": (
        "age;y:a\n3,5;1\n4,5;0\n",
        {"test": 0, "calibration": 0},
        "column 'age' must be a number; got '3,5'",
    ),
    "days or months": (
        "seen,left,y:a\n01/02/2024,03/04/2024,1\n02/03/2024,05/06/2024,0\n",
        {"test": 0, "calibration": 0},
        r"'seen' \(dates such as '01/02/2024', day/month or month/day.*'left' \(dates.*`ignore`",
    ),
    "labels in words": (
        "x,y:a,y:b\n1,perhaps,1\n2,0,maybe\n",
        {},
        "row 2, column 'y:a' must be a number; got 'perhaps'; row 3, column 'y:b'",
    ),
    "no labels among many columns": (
        ",".join(f"c{column}" for column in range(16)) + "\n" + ",".join("1" * 16) + "\n",
        {},
        r"c9, … \(6 more\)",
    ),
}


@pytest.mark.parametrize(("text", "options", "match"), REFUSED.values(), ids=REFUSED)
def test_what_does_not_fit_is_named_all_at_once(text, options, match, tmp_path):
    with pytest.raises(cr.InputError, match=match):
        load(tmp_path, text, **options)


@pytest.mark.parametrize("cells", [[["u"], []] * 30, [{"a": 1}] * 60], ids=["lists", "objects"])
def test_columns_of_lists_and_objects_are_named(cells):
    rows = pa.table({"x": np.arange(60.0), "t": cells, "y:a": np.arange(60) % 2})
    with pytest.raises(cr.InputError, match=r"'t' \(cells of type (list|struct)"):
        cr.data.load(rows)


@pytest.mark.parametrize("folder", ["", "pictures"])
def test_images_in_a_folder_or_with_an_ending_are_told_the_options(folder, tmp_path, capsys):
    (tmp_path / folder).mkdir(exist_ok=True)
    for name in "abc":
        Image.new("L", (4, 4)).save(tmp_path / folder / f"{name}.jpg")
    (tmp_path / "rows.csv").write_text("image,y:x\na,1\nb,0\nc,1\n")
    with pytest.raises(
        cr.InputError,
        match=r"3 of 3 images are missing: a, b, c. Add them. .* pass `images` or `suffix`",
    ):
        cr.data.load(tmp_path / "rows.csv")
    command = ["train", str(tmp_path / "rows.csv"), "--out", str(tmp_path / "run")]
    assert main(command) == 2
    assert "pass --images or --suffix" in capsys.readouterr().err
    given = {"images": tmp_path / folder} if folder else {}
    found = cr.data.load(tmp_path / "rows.csv", suffix=".jpg", **given)
    assert found.ids.tolist() == ["a", "b", "c"]
