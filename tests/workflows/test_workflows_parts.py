"""Sums of pieces give the numbers of the whole, whatever the pieces are."""

from copy import deepcopy

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from credibly import InputError, Predictions, write_sets
from credibly.decide import AverageSize, Recall
from credibly.predictions import Dataset
from credibly.review import label_issues
from credibly.targets import SparseTargets
from credibly.workflows import FitRows, calibrate_dataset, predict_dataset

LABELS = ["fork", "apple", "knife", "dining table", 'q"q', "never"]


def rows_of(count, seed=0):
    rng = np.random.default_rng(seed)
    odds = rng.normal(-1.5, 2, (count, len(LABELS)))
    truth = (rng.random(odds.shape) < 1 / (1 + np.exp(-0.7 * odds + 0.3))).astype(np.int8)
    truth[:, -1] = 0
    truth[rng.random(truth.shape) < 0.05] = -1
    truth[::50] = -1
    return Predictions.from_arrays(
        probabilities=np.round(1 / (1 + np.exp(-odds)), 3).astype(np.float32),
        targets=truth,
        labels=LABELS,
        ids=[f"{seed}-{row}" for row in range(count)],
    )


@pytest.fixture(scope="module")
def parts(tmp_path_factory):
    folder = tmp_path_factory.mktemp("parts")
    for part in range(4):
        rows_of(300 + part, part).write(folder / f"{part}.parquet")
    return folder


def test_sets_are_fitted_on_fewer_rows_where_there_are_many(parts, tmp_path):
    options = {"values_in_memory": 100 * 6, "fit_rows": FitRows(rows=400)}
    found = write_sets(parts, AverageSize(2), tmp_path / "sets.parquet", **options)
    assert found.rows - found.held_out_rows == 100


@pytest.mark.parametrize("decision", [AverageSize(2), Recall(0.8)], ids=repr)
def test_sets_of_parts_are_those_of_one_file(decision, parts, tmp_path):
    one = write_sets(parts, deepcopy(decision), tmp_path / "one.parquet")
    out = tmp_path / "parts"
    many = write_sets(parts, deepcopy(decision), out)
    assert many.decision.state() == one.decision.state()
    assert (many.numbers, many.sizes) == (pytest.approx(one.numbers), one.sizes)
    tables = [pq.read_table(path) for path in sorted(out.iterdir())]
    together = pa.concat_tables(tables).to_pylist()
    assert together == pq.read_table(tmp_path / "one.parquet").to_pylist()


@pytest.mark.parametrize("top", [0, 7, 400])
def test_issues_of_files_are_those_of_the_table(top, parts):
    files, table = (
        label_issues(parts, top=top),
        label_issues(Predictions.read(parts), top=top),
    )
    assert files.issues == table.issues
    # The bins are equal but for rounding, which the search for the curve's minimum enlarges.
    for one, other in zip([files.total, *files.errors], [table.total, *table.errors], strict=True):
        assert (one.label, one.known) == (other.label, other.known)
        assert one.expected == pytest.approx(other.expected, rel=0.01, abs=0.1)


def test_issues_of_files_with_the_most_probable_labels(tmp_path):
    labels = [f"label-{place}" for place in range(5000)]
    Predictions.from_arrays(
        top=[[7, 3], [99, 0], [5, -1]],
        probabilities=[[0.9, 0.2], [0.8, 0.1], [0.95, 0.0]],
        labels=labels,
        targets=SparseTargets.from_lists([[7], [0], []], num_labels=5000),
        ids=["a", "b", "c"],
    ).write(tmp_path / "top.parquet")
    found = label_issues(tmp_path / "top.parquet", min_probability=0.0, top=3)
    assert [(each.id, each.label, each.kind) for each in found] == [
        ("c", "label-5", "missing"),
        ("b", "label-0", "extra"),
        ("b", "label-99", "missing"),
    ]


@pytest.mark.parametrize("rows", [100, 2**24 + 1000])
def test_rows_to_fit_on_do_not_depend_on_the_stretch(rows):
    choice = FitRows(fraction=0.3, seed=5).choose(rows, "rows")
    whole = choice.mask_of(0, rows)
    assert whole.mean() == pytest.approx(0.3, abs=0.02)
    for first, count in ((0, 1), (3, 50), (rows - 13, 13), (rows // 2 - 5, 33)):
        np.testing.assert_array_equal(choice.mask_of(first, count), whole[first : first + count])
    other = FitRows(fraction=0.3, seed=6).choose(rows, "rows").mask_of(0, rows)
    assert abs(np.corrcoef(whole, other)[0, 1]) < 0.3
    assert FitRows(fraction=0.5).choose(rows, "rows", most=20).mask_of(0, rows).sum() < 60


def test_a_folder_that_holds_files_is_not_written_into(parts):
    with pytest.raises(InputError, match="must be a new or empty folder"):
        calibrate_dataset(parts, parts)


def test_a_file_that_changed_between_passes_is_refused(parts, tmp_path):
    rows_of(50).write(tmp_path / "p.parquet")
    dataset = Dataset(tmp_path / "p.parquet")
    piece, reader = dataset.pieces()[0], dataset.piece_reader
    rows_of(40).write(tmp_path / "p.parquet")
    with pytest.raises(InputError, match="was changed after it was opened"):
        list(reader.batches(piece))


@pytest.fixture(scope="module")
def exported(tmp_path_factory):
    pytest.importorskip("onnxruntime")
    from credibly import data, train

    folder = tmp_path_factory.mktemp("run")
    rng = np.random.default_rng(0)
    features = rng.normal(size=(300, 4)).astype(np.float32)
    targets = (features[:, :2] > 0).astype(np.int8)
    named = pa.table({f"f{place}": features[:, place] for place in range(4)})
    rows = data.from_arrays(features=named, targets=targets, labels=["a", "b"])
    run = train.fit(rows, train.recipe(model="linear", epochs=1), folder=folder / "run")
    train.export(run, folder / "model.onnx")
    table = {f"f{place}": features[:, place] for place in range(4)}
    for part in range(2):
        some = slice(150 * part, 150 * part + 150)
        columns = {name: column[some] for name, column in table.items()}
        truth = {name: targets[some, place] for place, name in enumerate("ab")}
        pq.write_table(pa.table({**columns, **truth}), folder / f"{part}.parquet")
    return folder, run, rows


def test_an_exported_model_predicts_tables(exported, tmp_path):
    folder, run, rows = exported
    tables = tmp_path / "tables"
    tables.mkdir()
    for part in range(2):
        (tables / f"{part}.parquet").write_bytes((folder / f"{part}.parquet").read_bytes())
    result = predict_dataset(folder / "model.onnx", tables, tmp_path / "out")
    written = Predictions.read(tmp_path / "out")
    assert (result.rows, result.files) == (300, 2)
    expected = run.predict(rows)
    np.testing.assert_allclose(written.probabilities, expected.probabilities, atol=1e-4)
    np.testing.assert_array_equal(written.targets, rows.targets)
    assert list(written.ids) == [str(row) for row in range(300)]
    narrow = pq.read_table(tables / "0.parquet").drop_columns(["f3"])
    pq.write_table(narrow, tmp_path / "narrow.parquet")
    with pytest.raises(InputError, match="must have the 4 features"):
        predict_dataset(folder / "model.onnx", tmp_path / "narrow.parquet", tmp_path / "other")
    (tmp_path / "new.csv").write_text("f0,f1,f2,f3\n0,0,0,0\n")
    with pytest.raises(InputError, match=r"complete Parquet file; .*[^.]\. For other tables, pred"):
        predict_dataset(folder / "model.onnx", tmp_path / "new.csv", tmp_path / "other")


def test_an_exported_model_reads_tables_as_its_run_does(exported, tmp_path):
    from credibly import data, train
    from credibly.cli import main

    _, _, rows = exported
    table = pa.table({f"f{place}": rows.features[:, place] for place in range(4)})
    table = table.append_column("patient", pa.array([f"p{row}" for row in range(300)]))
    signed = np.where(rows.targets[:, 0] == 1, 1, -1)  # "unknown" or "absent": the option says
    pq.write_table(table.append_column("a", pa.array(signed)), tmp_path / "t.parquet")
    given = data.load(tmp_path / "t.parquet", labels=["a"], id_column="patient", coding="signed")
    run = train.fit(given, train.Linear())
    train.export(run, tmp_path / "model.onnx")
    words = ["predict", str(tmp_path / "model.onnx"), str(tmp_path / "t.parquet"), "--quiet"]
    assert main([*words, "--out", str(tmp_path / "stored")]) == 0
    stored = Predictions.read(tmp_path / "stored")
    assert list(stored.ids) == [f"p{row}" for row in range(300)]
    assert stored.targets[:, 0].tolist() == (signed == 1).tolist()
    assert main([*words, "--coding", "unknown", "--out", str(tmp_path / "given")]) == 0
    assert Predictions.read(tmp_path / "given").targets[:, 0].tolist() == signed.tolist()
