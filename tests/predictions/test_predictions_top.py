"""Files with the most probable labels of each row: write, read, measure, calibrate, search."""

from __future__ import annotations

import dataclasses
import json

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import credibly as cr
from credibly import InputError, Predictions, decide, metrics, write_sets
from credibly.cli import main
from credibly.predictions import Dataset, Writer
from credibly.retrieve import search
from credibly.targets import SparseTargets
from credibly.workflows import calibrate_dataset

LABELS = [f"label-{i}" for i in range(60)]
ROWS, K = 300, 8


def dense(seed=0, k=K):
    """Probabilities of which the k largest of each row are above 0, and truth drawn from them."""
    generator = np.random.default_rng(seed)
    probabilities = generator.random((ROWS, len(LABELS))).astype(np.float32) ** 4
    order = np.argsort(-probabilities, axis=1)
    for row, columns in enumerate(order[:, k:]):
        probabilities[row, columns] = 0
    truth = (generator.random(probabilities.shape) < probabilities**1.5).astype(np.int8)
    truth[:5] = 0
    return probabilities, truth


def as_top(probabilities, truth=None, k=K, **options):
    top = np.argsort(-probabilities, axis=1, kind="stable")[:, :k]
    return Predictions.from_arrays(
        top=top,
        probabilities=np.take_along_axis(probabilities, top, 1),
        labels=LABELS,
        targets=None if truth is None else SparseTargets.from_dense(truth),
        ids=[f"row-{i:04d}" for i in range(len(top))],
        **options,
    )


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    folder = tmp_path_factory.mktemp("top")
    probabilities, truth = dense()
    as_top(probabilities, truth).write(folder / "top.parquet")
    cr.Predictions.from_arrays(
        probabilities=probabilities,
        targets=truth,
        labels=LABELS,
        ids=[f"row-{i:04d}" for i in range(ROWS)],
    ).write(folder / "wide.parquet")
    return folder


def test_what_is_written_is_read(tmp_path):
    probabilities, truth = dense()
    rows = as_top(probabilities, truth, scores=np.zeros((ROWS, K)), metadata={"loss": "spa"})
    rows.write(tmp_path / "top.parquet")
    dataset = Dataset(tmp_path / "top.parquet")
    assert (dataset.top, dataset.num_rows, dataset.labels) == (True, ROWS, LABELS)
    read = list(dataset.batches(rows=70))
    assert [len(each) for each in read] == [70, 70, 70, 70, 20]
    for name in ("top", "probabilities", "scores", "ids"):
        together = np.concatenate([vars(each)[name] for each in read])
        np.testing.assert_array_equal(together, vars(rows)[name])
    np.testing.assert_array_equal(
        np.concatenate([each.all_targets.dense() for each in read]), truth
    )
    assert read[0].metadata["loss"] == "spa"
    stored = json.loads(pq.read_metadata(tmp_path / "top.parquet").metadata[b"credibly"])
    assert stored["version"] == "2.0"


def test_rows_may_hold_different_numbers_of_labels_and_unknown_truth(tmp_path):
    truth = SparseTargets([0, 1, 1, 1], [3], 60, known=[True, True, False])
    rows = Predictions.from_arrays(
        top=[[3, 5], [7, -1], [-1, -1]],
        probabilities=[[0.2, 0.9], [0.4, 0.0], [0.0, 0.0]],
        labels=LABELS,
        targets=truth,
    )
    rows.write(tmp_path / "top.parquet")
    (read,) = Dataset(tmp_path / "top.parquet").batches()
    np.testing.assert_array_equal(read.top, [[5, 3], [7, -1], [-1, -1]])
    np.testing.assert_array_equal(read.targets, [[0, 1], [0, -1], [-1, -1]])


def test_search_finds_what_search_in_one_column_per_label_finds(files):
    for query in ("+label-3", "+label-3 -label-9", "(label-3 | label-4) & !label-5", "label-1"):
        top, wide = (search(files / name, query, top=7) for name in ("top.parquet", "wide.parquet"))
        found = [hit for hit in wide.hits if hit.probability > 0]
        assert top.ids == [hit.id for hit in found]
        np.testing.assert_allclose(top.probabilities, [hit.probability for hit in found], rtol=1e-6)
        assert [hit.truth for hit in top.hits] == [hit.truth for hit in found]
        assert top.expected_hits == pytest.approx(wide.expected_hits, rel=1e-5)
        assert (top.known_rows, top.known_hits) == (wide.known_rows, wide.known_hits)


def test_evaluate_gives_ranking_and_calibration_of_held_labels(files):
    numbers = cr.evaluate(files / "top.parquet").numbers
    probabilities, truth = dense()
    order = np.argsort(-probabilities, axis=1, kind="stable")
    hits = np.take_along_axis(truth, order, 1)
    assert numbers["precision@3"] == pytest.approx(hits[:, :3].mean())
    held = np.take_along_axis(probabilities, order[:, :K], 1), hits[:, :K]
    expected = metrics.calibration_error(*held, "ece")
    assert numbers["ECE, held labels"] == pytest.approx(expected)
    assert numbers["NLL, held labels"] == pytest.approx(metrics.log_loss(*held))


def test_intervals_are_as_wide_as_those_of_resampled_rows(files):
    result = cr.evaluate(files / "top.parquet", intervals=True)
    assert list(result.intervals) == list(result.numbers)
    assert all(
        low <= result.numbers[name] <= high for name, (low, high) in result.intervals.items()
    )
    (rows,) = Dataset(files / "top.parquet").batches()
    rng = np.random.default_rng(1)
    held = rows.probabilities, rows.targets
    draws = {"precision@1": [], "nDCG@3": [], "recall@5": [], "NLL, held labels": []}
    for _ in range(500):
        drawn = rng.integers(0, ROWS, ROWS)
        top, truth = rows.top[drawn], rows.all_targets[drawn]
        draws["precision@1"].append(metrics.precision_at_k(top, truth, 1)[0])
        draws["nDCG@3"].append(metrics.ndcg_at_k(top, truth, 3)[2])
        draws["recall@5"].append(metrics.recall_at_k(top, truth, 5)[4])
        draws["NLL, held labels"].append(metrics.log_loss(held[0][drawn], held[1][drawn]))
    for name, values in draws.items():
        low, high = result.intervals[name]
        assert high - low == pytest.approx(np.diff(np.quantile(values, [0.025, 0.975]))[0], rel=0.2)


def test_intervals_of_batches_are_those_of_the_whole(files):
    whole = cr.evaluate(files / "top.parquet", intervals=True)
    batches = cr.evaluate(files / "top.parquet", intervals=True, batch_rows=33)
    assert {"precision@5", "NLL, held labels", "ECE, held labels"} <= set(whole.intervals)
    for name, limits in batches.intervals.items():
        assert limits == pytest.approx(whole.intervals[name]), name


def test_a_table_of_all_labels_is_left_out(files, capsys):
    assert main(["evaluate", str(files / "top.parquet"), "--by-label"]) == 0
    assert "no table" in capsys.readouterr().out


def test_a_map_is_fitted_on_some_of_the_drawn_rows_and_measured_on_others(files, tmp_path):
    found = calibrate_dataset(
        files / "top.parquet", tmp_path / "out.parquet", method="affine", values_in_memory=64 * 60
    )
    assert 100 < len(found.fitted) < 400
    assert 100 < len(found.held_out) < 400


def test_calibration_lowers_the_log_loss_of_held_labels(files, tmp_path, capsys):
    out = tmp_path / "calibrated.parquet"
    assert main(["calibrate", str(files / "top.parquet"), "--out", str(out), "--json"]) == 0
    before, after = (cr.evaluate(path).numbers for path in (files / "top.parquet", out))
    assert after["NLL, held labels"] < before["NLL, held labels"]
    assert after["precision@5"] == pytest.approx(before["precision@5"])
    assert main(["evaluate", str(out)]) == 0
    assert main(["check", str(out)]) == 0
    assert "nDCG@5" in capsys.readouterr().out


def test_a_joint_model_needs_a_column_per_label(files):
    joint = cr.retrieve.Joint.independent(LABELS)
    for source in (files / "top.parquet", Predictions.read(files / "top.parquet")):
        with pytest.raises(InputError, match="a joint model needs one column per label"):
            search(source, "+label-3", joint=joint)


@pytest.mark.parametrize("name", ["top.parquet", "wide.parquet"])
def test_search_of_a_table_is_search_of_its_file(files, name):
    for query in ("+label-3", "+label-3 -label-9", "(label-3 | label-4) & !label-5", "label-1"):
        sources = files / name, Predictions.read(files / name)
        file, table = (search(each, query, top=7) for each in sources)
        assert table.ids == file.ids
        np.testing.assert_allclose(table.probabilities, file.probabilities, rtol=1e-6)
        known = (table.known_rows, table.known_hits)
        assert known == (file.known_rows, file.known_hits)


def test_selected_labels_have_a_column_each_in_both_storages(files):
    names = ["label-9", "label-3", "label-59"]
    one, other = (Predictions.read(files / f"{name}.parquet") for name in ("top", "wide"))
    assert one.top is not None
    for rows in (one.select(names), Predictions.read(files / "top.parquet", names)):
        assert rows.top is None
        np.testing.assert_array_equal(rows.probabilities, other.select(names).probabilities)
        np.testing.assert_array_equal(rows.targets, other.select(names).targets)
    some = [17, 3, 250]
    read = Predictions.read(files / "top.parquet", names, some)
    np.testing.assert_array_equal(read.probabilities, other[some].select(names).probabilities)


def test_entries_and_counts_do_not_depend_on_the_storage(files):
    one, other = (Predictions.read(files / f"{name}.parquet") for name in ("top", "wide"))
    for rows in (one, other):
        assert rows.held.shape == rows.label_indices.shape == rows.targets.shape
        cells = np.zeros((ROWS, len(LABELS)), np.float32)
        np.put_along_axis(cells, rows.label_indices.astype(int), rows.probabilities, 1)
        np.testing.assert_array_equal(cells, other.probabilities)
    np.testing.assert_array_equal(one.present_counts(), other.present_counts())
    assert one != other


def test_shards_may_have_their_labels_in_another_order(files, tmp_path):
    rows = Predictions.read(files / "top.parquet")
    rows[:100].write(tmp_path / "0.parquet")
    rows[100:].reordered(LABELS[::-1]).write(tmp_path / "1.parquet")
    assert Predictions.read(tmp_path) == rows
    names = ["label-9", "label-3"]
    assert Predictions.read(tmp_path, names) == rows.select(names)
    numbers = cr.evaluate(files / "top.parquet").numbers
    assert cr.evaluate(tmp_path).numbers == pytest.approx(numbers)
    with pytest.raises(InputError, match="this table has"):
        rows.reordered(LABELS[:-1])


def test_rows_of_a_shard_without_truth_are_unknown(files, tmp_path):
    rows = Predictions.read(files / "top.parquet")
    rows[:100].write(tmp_path / "0.parquet")
    lacking = dataclasses.replace(rows[100:], targets=None, all_targets=None)
    lacking.write(tmp_path / "1.parquet")
    read = Predictions.read(tmp_path)
    np.testing.assert_array_equal(read.targets[:100], rows.targets[:100])
    assert (read.targets[100:] == -1).all()
    assert (read.present_counts()[100:] == 0).all()
    numbers = cr.evaluate(tmp_path).numbers
    alone = cr.evaluate(tmp_path / "0.parquet").numbers
    assert numbers == pytest.approx(alone)


def test_two_layouts_in_one_folder_are_refused(files):
    with pytest.raises(InputError, match="must hold files of one layout"):
        Dataset(files)


@pytest.mark.parametrize("command", [["sets", "--recall", "0.9"]])
def test_commands_that_need_a_column_per_label_say_so(files, tmp_path, command, capsys):
    out = ["--out", str(tmp_path / "x.parquet")]
    code = main([command[0], str(files / "top.parquet"), *command[1:], *out])
    assert code != 0
    assert "holds only the most probable labels of each row" in capsys.readouterr().err


def test_one_file_has_one_layout(tmp_path):
    probabilities, _ = dense()
    with Writer(tmp_path / "x.parquet", LABELS) as writer:
        writer.append(as_top(probabilities))
        with pytest.raises(InputError, match="layout of the first"):
            writer.append(Predictions.from_arrays(probabilities=probabilities, labels=LABELS))


BAD = {
    "a label out of range": ({"top": [[99]]}, r"must lie in \[0, 59\]; got 99 in row 0"),
    "a label twice": ({"top": [[3, 3]], "probabilities": [[0.5, 0.4]]}, "holds one twice"),
    "a probability above 1": ({"probabilities": [[1.5]]}, "must lie in"),
    "shapes that differ": ({"probabilities": [[0.5, 0.1]]}, "must have the shape of `top`"),
    "targets of other rows": (
        {"targets": SparseTargets.from_lists([[], []], 60)},
        "`targets` must have shape",
    ),
}


@pytest.mark.parametrize("case", BAD)
def test_bad_arrays_are_refused(case):
    fields, message = BAD[case]
    with pytest.raises(InputError, match=message):
        Predictions.from_arrays(
            **{"top": [[1]], "probabilities": [[0.5]], "labels": LABELS, **fields}
        )


def test_lists_of_different_lengths_in_a_file_are_refused(files, tmp_path):
    table = pq.read_table(files / "top.parquet")
    short = pa.array([row[:-1] for row in table["p"].to_pylist()], pa.list_(pa.float32()))
    broken = table.set_column(table.schema.get_field_index("p"), "p", short)
    metadata = pq.read_metadata(files / "top.parquet").metadata
    kept = {b"credibly": metadata[b"credibly"]}
    pq.write_table(broken.replace_schema_metadata(kept), tmp_path / "broken.parquet")
    with pytest.raises(InputError, match="must be equally long"):
        list(Dataset(tmp_path / "broken.parquet").batches())


def rewritten(source, out, change):
    """Write the rows of a file with other lists of true labels, its metadata kept."""
    table = pq.read_table(source)
    truth = pa.array([change(row) for row in table["y"].to_pylist()], pa.list_(pa.int32()))
    broken = table.set_column(table.schema.get_field_index("y"), "y", truth)
    kept = {b"credibly": pq.read_metadata(source).metadata[b"credibly"]}
    pq.write_table(broken.replace_schema_metadata(kept), out)
    return out


BROKEN_TRUTH = {
    "a label out of range": (lambda row: [*row, 60], r"must lie in \[0, 59\]; got 60"),
    "a negative label": (lambda row: [-1, *row], r"must lie in \[0, 59\]; got -1"),
    "a label twice": (lambda row: [3, 3], "twice"),
}


@pytest.mark.parametrize("case", BROKEN_TRUTH)
def test_true_labels_of_a_file_are_checked_with_its_name(files, tmp_path, case):
    change, message = BROKEN_TRUTH[case]
    path = rewritten(files / "top.parquet", tmp_path / "broken.parquet", change)
    for read in (lambda: list(Dataset(path).batches()), lambda: cr.evaluate(path)):
        with pytest.raises(InputError, match=message) as caught:
            read()
        assert "broken.parquet" in str(caught.value)


def test_true_labels_in_any_order_are_the_same_truth(files, tmp_path):
    path = rewritten(files / "top.parquet", tmp_path / "turned.parquet", lambda row: row[::-1])
    one, other = Dataset(files / "top.parquet").read(), Dataset(path).read()
    np.testing.assert_array_equal(one.all_targets.dense(), other.all_targets.dense())
    assert cr.evaluate(path).numbers == cr.evaluate(files / "top.parquet").numbers


def test_ids_that_are_alike_in_two_files_are_refused(files, tmp_path):
    for name in ("0.parquet", "1.parquet"):
        (tmp_path / name).write_bytes((files / "top.parquet").read_bytes())
    with pytest.raises(InputError, match="row-0000"):
        Dataset(tmp_path).read()


@pytest.mark.parametrize(
    "rule",
    [decide.TopK(2), decide.AverageSize(1.5), decide.Threshold(0.5), decide.Cost(miss=2)],
    ids=repr,
)
@pytest.mark.parametrize("ending", ["parquet", "csv"])
def test_sets_of_top_labels_are_those_of_a_column_per_label(rule, ending, tmp_path):
    rng = np.random.default_rng(0)
    chances = rng.random((300, 6)).astype(np.float32)
    truth = (rng.random(chances.shape) < chances).astype(np.int8)
    labels, ids = list("abcdef"), [str(row) for row in range(300)]
    given = {"labels": labels, "ids": ids}
    Predictions.from_arrays(probabilities=chances, targets=truth, **given).write(
        tmp_path / "all.parquet"
    )
    order = np.argsort(-chances, axis=1)
    Predictions.from_arrays(
        top=order,
        probabilities=np.take_along_axis(chances, order, axis=1),
        targets=SparseTargets.from_lists([np.flatnonzero(row) for row in truth], num_labels=6),
        **given,
    ).write(tmp_path / "top.parquet")
    results = [
        write_sets(tmp_path / f"{name}.parquet", rule, tmp_path / f"{name}-sets.{ending}")
        for name in ("all", "top")
    ]
    assert results[1].numbers == pytest.approx(results[0].numbers)
    assert results[1].sizes == results[0].sizes
    one, other = (tmp_path / f"{name}-sets.{ending}" for name in ("all", "top"))
    if ending == "csv":
        assert one.read_text() == other.read_text()
    else:
        assert pq.read_table(one).to_pylist() == pq.read_table(other).to_pylist()


def test_sets_of_top_labels_count_labels_that_rows_do_not_hold(tmp_path):
    Predictions.from_arrays(
        top=[[0, 1], [2, -1]],
        probabilities=[[0.9, 0.6], [0.8, 0.0]],
        labels=[f"l{place}" for place in range(9)],
        targets=SparseTargets.from_lists([[0, 7, 8], [2]], num_labels=9),
    ).write(tmp_path / "top.parquet")
    result = write_sets(tmp_path / "top.parquet", decide.Threshold(0.0), tmp_path / "sets.parquet")
    assert result.sizes == {1: 1, 2: 1}
    assert result.numbers["coverage"] == 2 / 4
    assert result.numbers["precision"] == 2 / 3
    with pytest.raises(InputError, match="is fitted on the truth of all labels"):
        write_sets(tmp_path / "top.parquet", decide.Recall(0.9), tmp_path / "sets.parquet")
