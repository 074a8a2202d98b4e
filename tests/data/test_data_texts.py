"""Texts as rows: every kind of table, every script, and what must be refused with its place."""

import gzip
import json

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import credibly as cr
from credibly.cli import main
from credibly.data import Data, SparseRows

TEXTS = [
    "a plain comment",
    "",
    'quotes, "commas"\nand lines',
    "東京都は日本の首都です",
    "Привет, мир",
    "مرحبا بالعالم",
    "สวัสดีชาวโลก",
    "👩‍👩‍👧 emoji \u200d and \x00-free",
    "long " * 2000,
    "the end",
]
TOXIC = [0, 1, 0, -1, 1, 0, 1, 0, 1, 0]
SPLIT = ["train"] * 6 + ["test"] * 2 + ["calibration"] * 2


def table():
    ids = [f"c{row}" for row in range(len(TEXTS))]
    toxic = [None if value < 0 else value for value in TOXIC]
    return pa.table({"id": ids, "comment": TEXTS, "toxic": toxic, "split": SPLIT, "note": ids})


def write_csv(path, delimiter=","):
    import csv

    with path.open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file, delimiter=delimiter)
        writer.writerow(table().column_names)
        for row in table().to_pylist():
            writer.writerow(["" if cell is None else cell for cell in row.values()])


def write_jsonl(path):
    lines = [json.dumps(row, ensure_ascii=False) for row in table().to_pylist()]
    content = "\n".join(lines).encode()
    path.write_bytes(gzip.compress(content) if path.suffix == ".gz" else content)


def write_hf(path):
    (path / "data").mkdir(parents=True)
    rows = table()
    for part in ("train", "test", "calibration"):
        chosen = rows.filter(pa.compute.equal(rows["split"], part)).drop_columns(["split"])
        name = "validation" if part == "calibration" else part
        pq.write_table(chosen, path / "data" / f"{name}-00000-of-00001.parquet")


WRITERS = {
    "comments.csv": write_csv,
    "comments.tsv": lambda path: write_csv(path, "\t"),
    "comments.parquet": lambda path: pq.write_table(table(), path),
    "comments.jsonl": write_jsonl,
    "comments.jsonl.gz": write_jsonl,
    "hf:comments": write_hf,
}


@pytest.mark.parametrize("name", WRITERS)
def test_every_kind_of_file_gives_the_same_rows(name, tmp_path):
    kind, _, file = name.rpartition(":")
    WRITERS[name](tmp_path / file)
    source = f"{kind}:{tmp_path / file}" if kind else tmp_path / file
    rows = cr.data.load(source, text=["comment"], labels=["toxic"])
    order = np.argsort(rows.ids)
    assert rows.kind == "text"
    assert rows.texts[order, 0].tolist() == TEXTS
    assert rows.targets[order, 0].tolist() == TOXIC
    assert np.bincount(rows.split).tolist() == [6, 2, 2]


def test_pairs_frames_and_column_names_that_tell():
    frame = pa.table({"question": ["is it?", "why?"], "passage": ["yes", ""], "y:ok": [1, 0]})
    pairs = cr.data.load(frame, text=["question", "passage"])
    assert pairs.texts.tolist() == [["is it?", "yes"], ["why?", ""]]
    assert pairs.input_shape == (2,)
    assert pairs.text(0) == "is it?\n\nyes"
    with pytest.warns(UserWarning, match="read as texts; 'passage' left out"):
        single = cr.data.load(frame.rename_columns(["text", "passage", "y:ok"]))
    assert single.texts.shape == (2, 1)


def test_soft_and_listed_labels_follow_the_rules_of_tables():
    soft = cr.data.load(pa.table({"text": ["a", "b"], "y:x": [0.3, None]}))
    assert soft.targets[:, 0].tolist() == [np.float32(0.3), -1]
    listed = cr.data.load(pa.table({"text": ["a", "b"], "labels": ["x|z", None]}))
    assert listed.labels == ["x", "z"]
    assert listed.targets.tolist() == [[1, 1], [-1, -1]]


def test_the_fingerprint_tells_texts_apart():
    def rows(*texts):
        return Data(["x"], np.zeros((2, 1)), texts=list(texts)).fingerprint()

    assert rows("a", "bc") == rows("a", "bc")
    assert len({rows("a", "bc"), rows("ab", "c"), rows("bc", "a")}) == 3


def test_a_row_longer_than_a_block_of_the_reader(tmp_path):
    long = "word " * 500_000
    (tmp_path / "x.csv").write_text(f'text,y:a\n"{long}",1\nshort,0\n', encoding="utf-8")
    rows = cr.data.load(tmp_path / "x.csv")
    assert sorted(len(text) for text in rows.texts[:, 0]) == [5, len(long)]


BROKEN = {
    "no such column": (b"comment,y:a\nx,1\n", {"text": ["coment"]}, "no column 'coment'.*comment"),
    "numbers": (
        b"score,y:a\n1.5,1\n2,0\n",
        {"text": ["score"]},
        r"x\.csv, row 2, column 'score' must hold texts; all its 2 cells are numbers",
    ),
    "not UTF-8": (
        b"id,comment,y:a\n1,fine \xc3\xa9,1\n2,caf\xe9 now,0\n",
        {"text": ["comment"]},
        r"x\.csv, row 3, column 'comment' must be UTF-8 text; byte 0xe9 at 3",
    ),
    "three columns": (b"a,b,c,y:a\nx,y,z,1\n", {"text": ["a", "b", "c"]}, "one or two columns"),
    "one column twice": (b"a,y:a\nx,1\n", {"text": ["a", "a"]}, "two different columns"),
    "no labels": (b"comment\nx\ny\n", {}, "column of labels beside the images or texts"),
    "a label of words": (
        b"comment,y:a\nx,perhaps\n",
        {"text": ["comment"]},
        r"x\.csv, row 2, column 'y:a' must be a number; got 'perhaps'",
    ),
    "texts and images": (
        b"comment,image,y:a\nx,a.png,1\n",
        {"text": ["comment"], "image_column": "image"},
        "texts or images",
    ),
}


@pytest.mark.parametrize("case", BROKEN)
def test_what_is_wrong_is_named_with_file_row_and_column(case, tmp_path):
    content, options, words = BROKEN[case]
    (tmp_path / "x.csv").write_bytes(content)
    with pytest.raises(cr.InputError, match=words):
        cr.data.load(tmp_path / "x.csv", **options)


LINES = {
    b'{"text": "a", "y:x": 1}\nnot json\n': r"x\.jsonl, row 2 must be a JSON object",
    b'{"text": "a", "y:x": 1}\n["a"]\n': r"x\.jsonl, row 2 must be a JSON object; got",
    b'{"text": "a", "y:x": 1}\n{"text": "\xff"}\n': r"row 2 must be UTF-8 text; byte 0xff",
    b'{"text": "a", "y:x": 1}\n{"text": ["b"], "y:x": 0}\n': "row 2, column 'text' must be of",
    b"\n\n": "one JSON object per line; it is empty",
}


@pytest.mark.parametrize("content", LINES, ids=LINES.values())
def test_a_bad_line_is_named(content, tmp_path):
    (tmp_path / "x.jsonl").write_bytes(content)
    with pytest.raises(cr.InputError, match=LINES[content]):
        cr.data.load(tmp_path / "x.jsonl")


def test_invalid_text_in_parquet_is_named(tmp_path):
    broken = pa.array([b"fine", b"caf\xe9"]).view(pa.string())
    pq.write_table(pa.table({"text": broken, "y:a": [1, 0]}), tmp_path / "x.parquet")
    with pytest.raises(cr.InputError, match=r"x\.parquet, row 1, column 'text' must be UTF-8"):
        cr.data.load(tmp_path / "x.parquet", text=["text"])


@pytest.mark.parametrize(
    ("texts", "words"),
    [([["a", "b", "c"]], "or a pair"), ([1, 2], "must be strings; got 1 in row 0")],
)
def test_arrays_of_something_else_are_refused(texts, words):
    with pytest.raises(cr.InputError, match=words):
        Data(["x"], np.zeros((len(texts), 1)), texts=texts)


def test_texts_by_id_show_what_predictions_are_about(tmp_path, capsys):
    write_csv(tmp_path / "c.csv")
    found = cr.Predictions.from_arrays(
        probabilities=np.linspace(0, 1, 10)[:, None],
        labels=["toxic"],
        ids=[f"c{row}" for row in range(10)],
    )
    found.write(tmp_path / "p.parquet")
    command = ["search", str(tmp_path / "p.parquet"), "toxic", "--json", "--texts"]
    assert main([*command, str(tmp_path / "c.csv"), "--text", "comment"]) == 0
    shown = {row["id"]: row["text"] for row in json.loads(capsys.readouterr().out)["results"]}
    assert shown["c4"] == TEXTS[4]
    (tmp_path / "n.csv").write_text("x,y:toxic\n1,0\n2,1\n")
    assert main([*command, str(tmp_path / "n.csv")]) == 2
    assert "must hold texts to show; it holds features" in capsys.readouterr().err


# Encoded rows ----------------------------------------------------------------------------------


def test_a_sparse_batch_is_the_rows_of_the_matrix():
    from scipy import sparse

    dense = np.random.default_rng(0).random((7, 5)) * (np.arange(35).reshape(7, 5) % 3 == 0)
    dense[2] = 0
    rows = SparseRows(sparse.csr_matrix(dense.astype(np.float32)))
    chosen = np.array([6, 2, 2, 0])
    bag, truth = rows.batch(chosen), dense[chosen]
    counts = np.diff([*bag["starts"].tolist(), len(bag["terms"])])
    built = np.zeros(truth.shape)
    built[np.repeat(np.arange(len(truth)), counts), bag["terms"]] = bag["values"]
    assert np.allclose(built, truth)
    assert np.array_equal(rows.take(chosen).matrix.toarray(), rows.matrix[chosen].toarray())


@pytest.mark.parametrize(
    ("name", "says"),
    [("", "features must be numbers"), ("id", "column 'id' must hold one id per row")],
)
def test_a_column_of_empty_lists_is_refused_by_name(tmp_path, name, says):
    row = f'{{"{name}": [], "x": 1, "y:a": 1}}\n'
    (tmp_path / "x.jsonl").write_text(2 * row)
    with pytest.raises(cr.InputError, match=says):
        cr.data.load(tmp_path / "x.jsonl")
