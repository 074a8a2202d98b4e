"""A cluster of one master and two workers gives the numbers of one machine."""

from copy import deepcopy

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from spark_rows import rows_of, write_parts

from credibly import InputError, Predictions, evaluate, write_sets
from credibly.decide import AverageSize, BestF, Recall, TopK
from credibly.executors import Spark
from credibly.review import label_issues
from credibly.targets import SparseTargets
from credibly.workflows import calibrate_dataset, predict_dataset

WHOLE = {"known", "rate"}  # of integers alone


def assert_same_numbers(spark, local):
    assert (spark.rows, spark.labels) == (local.rows, local.labels)
    assert set(spark.numbers) == set(local.numbers)
    for name, value in local.numbers.items():
        assert spark.numbers[name] == pytest.approx(value, rel=1e-9, nan_ok=True), name
    for name, column in local.by_label.items():
        if name in WHOLE:
            np.testing.assert_array_equal(spark.by_label[name], column)
        np.testing.assert_allclose(spark.by_label[name], column, rtol=1e-9)


def test_evaluate_gives_the_numbers_of_one_machine(parts, session):
    assert_same_numbers(evaluate(parts, executor=Spark(session)), evaluate(parts))


def test_evaluate_with_scores_and_soft_truth(session, tmp_path):
    arrays = rows_of(300)
    soft = np.where(arrays["targets"] < 0, -1, arrays["targets"] * 0.8 + 0.1).astype(np.float32)
    scores = np.log(arrays["probabilities"] + 1e-3).astype(np.float32)
    rows = Predictions.from_arrays(**{**arrays, "targets": soft, "scores": scores})
    rows.write(tmp_path / "p.parquet")
    path = tmp_path / "p.parquet"
    assert_same_numbers(evaluate(path, executor=Spark(session)), evaluate(path))


def test_evaluate_files_with_the_most_probable_labels(session, tmp_path):
    rng = np.random.default_rng(0)
    for part in range(3):
        top = np.argsort(rng.random((200, 50)), axis=1)[:, :7]
        chances = -np.sort(-rng.random((200, 7)), axis=1)
        truth = SparseTargets.from_lists([row[:2] for row in top], num_labels=50)
        Predictions.from_arrays(
            top=top,
            probabilities=chances,
            labels=[f"l{i}" for i in range(50)],
            targets=truth,
            ids=[f"{part}-{row}" for row in range(200)],
        ).write(tmp_path / f"{part}.parquet")
    spark, local = evaluate(tmp_path, executor=Spark(session)), evaluate(tmp_path)
    assert spark.numbers == pytest.approx(local.numbers, rel=1e-9)


DECISIONS = [AverageSize(2), AverageSize(1.5, "expected"), Recall(0.8), BestF(1.0), TopK(2)]


@pytest.mark.parametrize("decision", DECISIONS, ids=repr)
def test_sets_are_those_of_one_machine(decision, parts, session, tmp_path):
    local = write_sets(parts, deepcopy(decision), tmp_path / "local.parquet")
    spark = write_sets(parts, deepcopy(decision), tmp_path / "spark", executor=Spark(session))
    assert spark.decision.state() == local.decision.state()
    assert (spark.rows, spark.held_out_rows, spark.sizes) == (
        local.rows,
        local.held_out_rows,
        local.sizes,
    )
    assert spark.numbers == pytest.approx(local.numbers, rel=1e-12)
    written = sorted((tmp_path / "spark").iterdir())
    tables = [pq.read_table(path).to_pylist() for path in written]
    assert [row for table in tables for row in table] == pq.read_table(
        tmp_path / "local.parquet"
    ).to_pylist()


@pytest.mark.parametrize("method", ["auto", "per-label"])
def test_calibrated_shards_are_those_of_one_machine(method, parts, session, tmp_path):
    spark = calibrate_dataset(parts, tmp_path / "spark", method=method, executor=Spark(session))
    local = calibrate_dataset(parts, tmp_path / "local", method=method)
    assert spark.calibrator.state() == local.calibrator.state()
    assert spark.stages == local.stages
    one, other = (Predictions.read(tmp_path / name) for name in ("spark", "local"))
    np.testing.assert_array_equal(one.probabilities, other.probabilities)
    assert list(one.ids) == list(Predictions.read(parts).ids)
    assert evaluate(tmp_path / "spark").numbers["NLL"] < evaluate(parts).numbers["NLL"]


def test_label_issues_are_those_of_one_machine(parts, session):
    spark = label_issues(parts, top=50, executor=Spark(session))
    local = label_issues(Predictions.read(parts), top=50)
    assert spark.issues == local.issues
    assert spark.total.known == local.total.known
    assert spark.total.expected == pytest.approx(local.total.expected, rel=0.01)


def test_ids_that_are_there_twice_are_named(session, tmp_path):
    rows = Predictions.from_arrays(**rows_of(20))
    rows.write(tmp_path / "a.parquet")
    rows[5:9].write(tmp_path / "b.parquet")
    with pytest.raises(InputError, match="ids must be different; '0-"):
        evaluate(tmp_path, executor=Spark(session))


def test_a_bad_value_is_named_with_its_file(session, tmp_path):
    write_parts(tmp_path, parts=2, count=50)
    path = sorted(tmp_path.iterdir())[1]
    table = pq.read_table(path)
    place = table.schema.get_field_index("p:apple")
    values = table.column(place).to_numpy().copy()
    values[7] = 1.5
    pq.write_table(table.set_column(place, "p:apple", pa.array(values)), path)
    with pytest.raises(InputError, match=r"part 1 \[x\].parquet: probabilities must lie in"):
        evaluate(tmp_path, executor=Spark(session))


def test_an_exported_model_predicts_tables(session, tmp_path):
    pytest.importorskip("onnxruntime")
    from credibly import data, train

    rng = np.random.default_rng(0)
    features = rng.normal(size=(240, 4)).astype(np.float32)
    targets = (features[:, :2] > 0).astype(np.int8)
    named = pa.table({f"f{place}": features[:, place] for place in range(4)})
    rows = data.from_arrays(features=named, targets=targets, labels=["a", "b"])
    run = train.fit(rows, train.recipe(model="linear", epochs=1), folder=tmp_path / "run")
    train.export(run, tmp_path / "model.onnx")
    (tmp_path / "tables").mkdir()
    for part in range(3):
        some = slice(80 * part, 80 * part + 80)
        table = pa.table({f"f{place}": features[some, place] for place in range(4)})
        pq.write_table(table, tmp_path / "tables" / f"{part}.parquet")
    model, tables = tmp_path / "model.onnx", tmp_path / "tables"
    spark = predict_dataset(model, tables, tmp_path / "spark", executor=Spark(session))
    predict_dataset(model, tables, tmp_path / "here")
    assert (spark.rows, spark.files) == (240, 3)
    assert Predictions.read(tmp_path / "spark") == Predictions.read(tmp_path / "here")
