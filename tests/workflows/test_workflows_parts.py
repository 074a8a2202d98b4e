"""Sums of pieces give the numbers of the whole, whatever the pieces are."""

from copy import deepcopy

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from credibly import InputError, Predictions, calibrate, evaluate, metrics, write_sets
from credibly.decide import AverageSize, Recall
from credibly.engines import Here
from credibly.metrics import RankCounts, average_precision, ranked_total
from credibly.predictions import Dataset
from credibly.review import label_issues
from credibly.targets import SparseTargets
from credibly.workflows import FitRows, calibrate_parts, predict_parts
from credibly.workflows.evaluation import _evaluate_spread
from credibly.workflows.probability_maps import as_log_odds
from credibly.workflows.set_parts import write_set_parts
from credibly.workflows.tallies import EvaluationTally, RankTally, Tallies

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


@pytest.mark.parametrize("most", [10, 70, 10**6])
@pytest.mark.parametrize("kind", ["hard", "soft", "signed scores"])
def test_ranges_of_values_add_up_to_average_precision(kind, most):
    rng = np.random.default_rng(0)
    values = np.round(rng.normal(0.3, 0.5, (500, 3)), 2).astype(np.float32)  # ties
    targets = rng.integers(-1, 2, values.shape).astype(np.float64)
    if kind == "soft":
        targets = np.where(targets == 1, 0.7, targets)
    if kind != "signed scores":
        values = np.abs(values)
    targets[:, 2] = np.minimum(targets[:, 2], 0)  # no positive
    counts = RankCounts(3)
    for rows in np.array_split(np.arange(500), 3):
        other = RankCounts(3)
        other.update(values[rows], targets[rows])
        counts.add(other.state())
    plan = counts.plan(most)
    assert (plan.num_ranges(0) > 3) == (most < 100)
    totals = np.zeros(3)
    for label in range(3):
        for part in range(plan.num_ranges(label)):
            some = plan.select(label, part, values[:, label], targets[:, label])
            totals[label] += ranked_total(*some, *plan.above(label, part))
    expected = average_precision(values, targets, coding="unknown")
    np.testing.assert_allclose(plan.average_precisions(totals), expected, rtol=1e-12)


def test_an_evaluation_by_sums_is_that_of_the_whole(parts):
    spread = _evaluate_spread(
        Dataset(parts), Here(), bins=15, min_count=30, advance=lambda share: None
    )
    whole = evaluate(parts)
    for name, value in whole.numbers.items():
        tolerance = 1e-4 if name == "zero-label AUROC" else 1e-12
        assert spread.numbers[name] == pytest.approx(value, rel=tolerance, nan_ok=True), name
    np.testing.assert_array_equal(spread.by_label["known"], whole.by_label["known"])
    np.testing.assert_array_equal(spread.by_label["rate"], whole.by_label["rate"])
    np.testing.assert_allclose(spread.by_label["AP"], whole.by_label["AP"], rtol=1e-12)


@pytest.mark.parametrize("soft", [False, True])
def test_a_tally_does_not_depend_on_the_order_of_pieces(soft, parts):
    dataset = Dataset(parts)
    empty = Tallies(evaluation=EvaluationTally(6, soft=soft), ranks=RankTally(6))
    states = []
    for piece in dataset.pieces(cells=300):
        one = deepcopy(empty)
        for first_row, batch in dataset.piece_reader.batches(piece):
            one.update(batch, first_row)
        states.append(one.state())
    assert len(states) == 4
    forth, back = deepcopy(empty), deepcopy(empty)
    for state in states:
        forth.add(state)
    for state in reversed(states):
        back.add(state)
    for name, array in forth.state().items():
        np.testing.assert_allclose(back.state()[name], array, rtol=1e-12)


@pytest.mark.parametrize("method", ["temperature", "affine", "beta", "per-label"])
def test_a_calibrator_of_bins_is_near_that_of_entries(method, parts, tmp_path):
    result = calibrate_parts(parts, tmp_path / "out", method=method)
    rows = Predictions.read(parts)
    fitted = FitRows().choose(len(rows), "rows").mask_of(0, len(rows))
    odds = as_log_odds(rows.probabilities)
    exact = calibrate.from_name(method).fit(odds[fitted], rows.targets[fitted], coding="unknown")
    for name, value in exact.state().items():
        if name != "calibrator":
            np.testing.assert_allclose(result.calibrator.state()[name], value, atol=2e-5)
    written = Predictions.read(tmp_path / "out")
    assert list(written.ids) == list(rows.ids)
    np.testing.assert_array_equal(written.targets, rows.targets)
    held = ~fitted
    nll = metrics.log_loss(written.probabilities[held], rows.targets[held], coding="unknown")
    assert result.stages[f"+ {method}"]["NLL"] == pytest.approx(nll, rel=1e-9)
    assert (result.rows, result.fitted_rows) == (len(rows), fitted.sum())


@pytest.mark.parametrize("decision", [AverageSize(2), Recall(0.8)], ids=repr)
def test_sets_of_parts_are_those_of_one_file(decision, parts, tmp_path):
    one = write_sets(parts, deepcopy(decision), tmp_path / "one.parquet")
    out = tmp_path / "parts"
    many = write_set_parts(parts, deepcopy(decision), out, FitRows(), engine="duckdb")
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
    found = label_issues(tmp_path / "top.parquet", min_disagreement=0.5)
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
        calibrate_parts(parts, parts)
    with pytest.raises(InputError, match="must be a folder, for a file per piece"):
        calibrate_parts(parts, parts / "x.parquet")


def test_a_file_that_changed_between_passes_is_refused(parts, tmp_path):
    rows_of(50).write(tmp_path / "p.parquet")
    dataset = Dataset(tmp_path / "p.parquet")
    piece, reader = dataset.pieces()[0], dataset.piece_reader
    rows_of(40).write(tmp_path / "p.parquet")
    with pytest.raises(InputError, match="has changed since it was opened"):
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
    run = train.fit(rows, folder / "run", train.Settings(model="linear", epochs=1))
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
    result = predict_parts(folder / "model.onnx", tables, tmp_path / "out")
    written = Predictions.read(tmp_path / "out")
    assert (result.rows, result.files) == (300, 2)
    expected = run.predict(rows)
    np.testing.assert_allclose(written.probabilities, expected.probabilities, atol=1e-4)
    np.testing.assert_array_equal(written.targets, rows.targets)
    assert list(written.ids) == [str(row) for row in range(300)]
    narrow = pq.read_table(tables / "0.parquet").drop_columns(["f3"])
    pq.write_table(narrow, tmp_path / "narrow.parquet")
    with pytest.raises(InputError, match="must have the 4 features"):
        predict_parts(folder / "model.onnx", tmp_path / "narrow.parquet", tmp_path / "other")
