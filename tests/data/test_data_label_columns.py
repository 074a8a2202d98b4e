"""Label columns: misspelt names, joined names, unknown labels and saved indices, in any reader."""

from __future__ import annotations

import warnings

import numpy as np
import pandas as pd
import pytest

import credibly as cr
from credibly.cli import main


def jsonl(frame, path):
    frame.to_json(path, orient="records", lines=True)


def huggingface(frame, path):
    (path / "data").mkdir(parents=True)
    frame.to_parquet(path / "data" / "train-00000-of-00001.parquet", index=False)


WRITERS = {
    ".csv": lambda frame, path: frame.to_csv(path, index=False),
    ".tsv": lambda frame, path: frame.to_csv(path, index=False, sep="\t"),
    ".parquet": lambda frame, path: frame.to_parquet(path, index=False),
    ".jsonl": jsonl,
    "hf": huggingface,
}
READERS = [*WRITERS, "pandas"]
each_reader = pytest.mark.parametrize("reader", READERS)


def stored(frame, reader, folder):
    """Return the frame as a source of one kind."""
    if reader == "pandas":
        return frame
    path = folder / f"rows{reader}"
    WRITERS[reader](frame, path)
    return f"hf:{path}" if reader == "hf" else path


def load(frame, reader, folder, **options):
    source = stored(pd.DataFrame(frame), reader, folder)
    return cr.data.load(source, test=0.0, calibration=0, **options)


PATIENTS = {"age": [40, 50, 60.5], "diabetes": [0, 1, 1], "hypertension": [1, 0, 1]}


@each_reader
@pytest.mark.parametrize(
    ("labels", "words"),
    [
        (["diabetis"], "label 'diabetis'.* Did you mean 'diabetes'"),
        (
            ["diabetis", "hypertention"],
            "label 'diabetis', 'hypertention'.*'diabetes'.*'hypertension'",
        ),
        (["diabetes", "hypertention"], "label 'hypertention'.* Did you mean 'hypertension'"),
        (["zzzzzzzz"], "label 'zzzzzzzz'.*Known: age, diabetes, hypertension"),
    ],
)
def test_labels_that_are_no_column_are_refused(reader, labels, words, tmp_path):
    with pytest.raises(cr.InputError, match=f"has no column for {words}"):
        load(PATIENTS, reader, tmp_path, labels=labels)


def test_a_misspelt_label_is_refused_on_the_command_line(tmp_path, capsys):
    pd.DataFrame(PATIENTS).to_csv(tmp_path / "t.csv", index=False)
    command = [
        "train",
        str(tmp_path / "t.csv"),
        "--labels",
        "diabetis",
        "--out",
        str(tmp_path / "r"),
    ]
    assert main(command) == 2
    assert "no column for label 'diabetis'" in capsys.readouterr().err
    assert not (tmp_path / "r").exists()


# Joined names ------------------------------------------------------------------------------------

SCENES = ["0 1", "1 2", "0", "2", "0 2", "1", "0 1 2", ""]
FURNITURE = ["dining table", "traffic light", "stop sign", "dining table", "cat", "cat", "cat", ""]


def scenes(names):
    return {"x": np.arange(len(names), dtype=float), "labels": names}


@each_reader
def test_names_that_may_be_joined_by_spaces_are_asked_about(reader, tmp_path):
    with pytest.raises(cr.InputError, match=r"column 'labels' has 7 .* 3 words") as caught:
        load(scenes(SCENES), reader, tmp_path)
    assert 'Pass `separator=" "` for 3 labels' in str(caught.value)
    assert '`separator="none"` for 7 labels' in str(caught.value)


@each_reader
@pytest.mark.parametrize(("separator", "count"), [(" ", 3), ("none", 7)])
def test_the_answer_is_taken(reader, separator, count, tmp_path):
    data = load(scenes(SCENES), reader, tmp_path, separator=separator)
    assert data.num_labels == count
    assert (data.targets[-1] == 0).all()  # an empty cell: no label
    assert (data.targets[:-1].sum(axis=1) == [[2, 2, 1, 1, 2, 1, 3], [1] * 7][count == 7]).all()


@each_reader
def test_names_that_contain_spaces_are_no_reason_to_ask(reader, tmp_path):
    data = load(scenes(FURNITURE), reader, tmp_path)
    assert data.labels == ["cat", "dining table", "stop sign", "traffic light"]


def test_names_that_share_a_word_are_no_reason_to_ask(tmp_path):
    names = ["bear", "teddy bear", "hot dog", "dog", "baseball bat", "baseball glove", "wine glass"]
    assert load(scenes(names), "pandas", tmp_path).labels == sorted(names)


@pytest.mark.parametrize(
    ("cells", "labels"),
    [
        (["0 1", "1", "0", "1 2", "2"], ["0", "1", "2"]),
        (["a, b", "c", "a, b"], ["a, b", "c"]),
        (["a,b", "c", "a"], ["a", "b", "c"]),
    ],
    ids=["spaces", "names with commas", "commas"],
)
def test_known_labels_say_how_names_are_joined(cells, labels, tmp_path):
    data = load(scenes(cells), "pandas", tmp_path, labels=labels)
    whole = set(cells) <= set(labels)
    assert data.targets[0].sum() == (1 if whole else 2)


def test_the_command_line_asks_in_its_own_words(tmp_path, capsys):
    pd.DataFrame(scenes(SCENES)).to_csv(tmp_path / "t.csv", index=False)
    assert main(["train", str(tmp_path / "t.csv"), "--out", str(tmp_path / "run")]) == 2
    said = capsys.readouterr().err
    assert "Pass --separator ' ' for 3 labels" in said
    assert "or --separator none for 7 labels" in said


# Unknown labels ----------------------------------------------------------------------------------


@each_reader
@pytest.mark.parametrize("missing", ["NA", "nan", "?", " NA ", "N/A", "null", None])
def test_a_cell_that_says_nothing_is_unknown(reader, missing, tmp_path):
    if missing is None and reader in (".csv", ".tsv"):
        pytest.skip("CSV has no other way to write nothing than an empty cell: no label")
    data = load(scenes(["cat|dog", missing, "dog", ""]), reader, tmp_path)
    assert data.labels == ["cat", "dog"]
    assert data.targets.tolist() == [[1, 1], [-1, -1], [0, 1], [0, 0]]


@pytest.mark.parametrize("reader", [".parquet", "pandas", ".jsonl"])
@pytest.mark.parametrize("missing", [["NA"], [None], None])
def test_a_list_that_says_nothing_is_unknown(reader, missing, tmp_path):
    data = load(scenes([["cat", "dog"], missing, ["dog"], []]), reader, tmp_path)
    assert data.labels == ["cat", "dog"]
    assert data.targets.tolist() == [[1, 1], [-1, -1], [0, 1], [0, 0]]


@pytest.mark.parametrize("cells", [["cat|NA", "dog"], [["cat", "NA"], ["dog"]]])
def test_nothing_among_names_is_refused(cells, tmp_path):
    with pytest.raises(cr.InputError, match=r"row 0.*'NA' .*beside 'cat'.*`labels`"):
        load(scenes(cells), "pandas", tmp_path)


def test_a_label_called_na_can_be_named(tmp_path):
    data = load(scenes(["NA|DE", "DE", "NA"]), "pandas", tmp_path, labels=["DE", "NA"])
    assert data.targets.tolist() == [[1, 1], [1, 0], [0, 1]]


# Saved indices -----------------------------------------------------------------------------------


def indexed(index):
    frame = pd.DataFrame({"x": [1.5, 2.5, 3.5, 4.5], "wet": [0, 1, 0, 1]})
    frame.insert(0, *index)
    return frame


@each_reader
@pytest.mark.parametrize(
    "index",
    [
        ("Unnamed: 0", [0, 1, 2, 3]),
        ("Unnamed: 0", [17, 3, 250, 4]),
        ("", [0, 1, 2, 3]),
        ("__index_level_0__", [5, 6, 7, 8]),
        ("Unnamed: 0", ["p1", "p2", "p3", "p4"]),
    ],
)
def test_a_saved_index_gives_the_ids_and_is_said(reader, index, tmp_path):
    with pytest.warns(UserWarning, match="is a saved pandas index.*not a feature.*ids") as caught:
        data = load(indexed(index), reader, tmp_path, labels=["wet"])
    assert len(caught) == 1
    assert data.feature_names == ["x"]
    numbers = range(4) if reader == "pandas" else index[1]  # a frame has an index of its own
    assert data.ids.tolist() == [str(each) for each in numbers]


@pytest.mark.parametrize("reader", [".csv", "pandas"])
def test_a_column_without_a_name_that_counts_nothing_stays(reader, tmp_path):
    data = load(indexed(("Unnamed: 0", [0.5, 1.5, 2.5, 0.5])), reader, tmp_path, labels=["wet"])
    assert data.feature_names == ["Unnamed: 0", "x"]


def test_the_index_that_pandas_writes_to_parquet_is_no_feature(tmp_path):
    frame = pd.DataFrame({"x": [1.5, 2.5], "wet": [0, 1]}, index=[7, 9])
    frame.to_parquet(tmp_path / "t.parquet")
    with pytest.warns(UserWarning, match="'__index_level_0__' is a saved pandas index"):
        data = cr.data.load(tmp_path / "t.parquet", labels=["wet"], test=0.0, calibration=0)
    assert (data.feature_names, data.ids.tolist()) == (["x"], ["7", "9"])


def test_ids_go_before_a_saved_index(tmp_path):
    frame = indexed(("Unnamed: 0", [0, 1, 2, 3])).assign(id=list("abcd"))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        data = load(frame, ".csv", tmp_path, labels=["wet"])
    assert (data.ids.tolist(), data.feature_names) == (["a", "b", "c", "d"], ["x"])
