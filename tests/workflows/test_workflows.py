"""What a command does can be called from Python, with the same result."""

from __future__ import annotations

import json
import subprocess
import sys

import numpy as np
import pytest

import credibly as cr
from credibly import InputError
from credibly.cli import main
from credibly.workflows import FitRows, calibrate_file

LABELS = ["dog", "cat", "狗", "never"]


def record(rows: int = 200, seed: int = 0) -> cr.Predictions:
    """Rows without labels, rows all unknown, and a label without positives."""
    rng = np.random.default_rng(seed)
    rates = rng.beta(0.5, 1.0, (rows, len(LABELS)))
    truth = (rng.random(rates.shape) < rates).astype(np.int8)
    truth[::6], truth[1::17], truth[:, 3] = 0, -1, np.minimum(truth[:, 3], 0)
    return cr.Predictions.from_arrays(
        probabilities=rates, targets=truth, labels=LABELS, scores=np.log(rates / (1 - rates))
    )


@pytest.fixture
def path(tmp_path):
    record().write(tmp_path / "p.parquet")
    return str(tmp_path / "p.parquet")


def printed(capsys, *argv: str) -> dict:
    assert main([*argv, "--json"]) == 0
    return json.loads(capsys.readouterr().out)


def plain(document: dict) -> dict:
    """Through JSON and back: numpy values become plain ones, keys become text."""
    return json.loads(json.dumps(document, default=lambda value: value.item()))


@pytest.mark.parametrize("settings", [{}, {"bins": 5, "min_count": 3}, {"intervals": True}])
def test_evaluate_gives_what_the_command_prints(path, settings, capsys):
    flags = [
        part
        for name, value in settings.items()
        for part in (f"--{name.replace('_', '-')}", *([] if value is True else [str(value)]))
    ]
    shown = printed(capsys, "evaluate", path, *flags)["files"][0]
    result = cr.evaluate(path, **settings)
    assert plain(result.to_dict()) == shown
    assert f"{result.numbers['NLL']:.4f}" in repr(result)


def test_files_of_other_labels_are_not_compared(path, tmp_path, capsys):
    record().select(LABELS[:2]).write(tmp_path / "fewer.parquet")
    assert main(["evaluate", str(path), str(tmp_path / "fewer.parquet")]) == 2
    assert "labels must agree" in capsys.readouterr().err


def test_csv_and_npz_files_are_evaluated_as_the_predictions_they_hold(path, tmp_path, capsys):
    whole = record()
    assert whole.targets is not None
    lines = [",".join(["id", *LABELS, *(f"y:{name}" for name in LABELS)])]
    for row, (p, y) in enumerate(zip(whole.probabilities, whole.targets, strict=True)):
        cells = [*map(repr, p.tolist()), *("" if value < 0 else str(value) for value in y)]
        lines.append(",".join([str(row), *cells]))
    (tmp_path / "x.csv").write_text("\n".join(lines), encoding="utf-8")
    arrays = {"probabilities": whole.probabilities, "targets": whole.targets}
    np.savez(tmp_path / "x.npz", labels=np.array(LABELS), **arrays)  # pyright: ignore
    whole = cr.Predictions(whole.probabilities, whole.labels, whole.ids, whole.targets)
    whole.write(tmp_path / "x.parquet")  # without scores, as the others
    expected = cr.evaluate(tmp_path / "x.parquet").numbers
    for name in ("x.csv", "x.npz"):
        result = cr.evaluate(tmp_path / name)
        assert result.numbers == pytest.approx(expected, rel=1e-6)
        assert result.path == str(tmp_path / name)
    assert main(["evaluate", str(tmp_path / "x.csv")]) == 0
    assert "x.csv" in capsys.readouterr().out
    (tmp_path / "bare.csv").write_text("id,dog\n0,0.5\n")
    with pytest.raises(InputError, match=r"bare\.csv must have the truth"):
        cr.evaluate(tmp_path / "bare.csv")


DECISIONS = {
    "--average-size 2": cr.decide.AverageSize(2, "expected"),
    "--best-f 1": cr.decide.BestF(1),
    "--top-k 2": cr.decide.TopK(2),
    "--threshold 0.3": cr.decide.Threshold(0.3),
}


@pytest.mark.parametrize("flags", DECISIONS)
def test_write_sets_gives_what_the_command_prints(flags, path, tmp_path, capsys):
    out = str(tmp_path / "sets.csv")
    shown = printed(capsys, "sets", path, *flags.split(), "--seed", "3", "--out", out)
    first = (tmp_path / "sets.csv").read_bytes()
    result = cr.write_sets(path, DECISIONS[flags], out, fit_rows=FitRows(seed=3))
    assert plain(result.to_dict()) == shown
    assert (tmp_path / "sets.csv").read_bytes() == first
    assert result.decision.statement in repr(result)


@pytest.mark.parametrize("loss", ["bce", "asl", "twl", "quasibinary", "role(average_size=2)"])
def test_calibrate_scores_gives_what_a_file_of_them_gives(loss, path, tmp_path, capsys):
    whole = record()
    out = str(tmp_path / "out.parquet")
    shown = printed(capsys, "calibrate", path, "--loss", loss, "--seed", "2", "--out", out)
    result = cr.calibrate_scores(
        whole.scores, whole.targets, loss, labels=LABELS, fit_rows=FitRows(seed=2)
    )
    assert plain(result.to_dict()) == {name: shown[name] for name in result.to_dict()}
    np.testing.assert_array_equal(
        result.predictions.probabilities, cr.Predictions.read(out).probabilities
    )
    from_file = calibrate_file(path, loss, fit_rows=FitRows(seed=2))
    assert from_file.to_dict() == result.to_dict()
    *stages, statement = repr(result).splitlines()
    assert [line.partition("  ")[0] for line in stages[1:]] == list(result.stages)
    assert "changes NLL by" in statement
    again = cr.Pipeline.from_state(plain(result.pipeline.state()))
    probabilities = again.probabilities(whole.scores).astype(np.float32)
    np.testing.assert_array_equal(probabilities, result.predictions.probabilities)


def test_calibrate_scores_takes_class_indices_tensors_two_heads_and_a_loss():
    import torch

    rng = np.random.default_rng(0)
    scores = torch.from_numpy(rng.normal(size=(120, 6)).astype(np.float32))
    classes = torch.from_numpy(rng.integers(0, 3, 120))
    result = cr.calibrate_scores(scores, classes, "avgk(average_size=2)")
    assert result.predictions.probabilities.shape == (120, 3)
    given = cr.calibrate_scores(scores, classes, cr.losses.BCE())
    assert given.predictions.labels == [str(place) for place in range(6)]


def test_signed_targets_must_be_declared():
    rng = np.random.default_rng(0)
    scores = rng.normal(size=(100, 2))
    signed = np.where(rng.random((100, 2)) < 0.4, 1, -1)
    with pytest.raises(InputError, match='coding="signed"'):
        cr.calibrate_scores(scores, signed, "bce")
    result = cr.calibrate_scores(scores, signed, "bce", coding="signed")
    np.testing.assert_array_equal(result.predictions.targets, signed > 0)


@pytest.mark.parametrize(
    ("fit_rows", "message"),
    [
        ({"fraction": 1.0}, r"`fraction` must lie in \(0, 1\)"),
        ({"rows": 0}, "must lie between 1 and 9"),
        ({"rows": 10}, "must lie between 1 and 9"),
        ({"seed": -1}, "`seed` must be"),
    ],
)
def test_rows_to_fit_on_leave_some_to_judge_by(fit_rows, message):
    with pytest.raises(InputError, match=message):
        FitRows(**fit_rows).draw(np.arange(10), "rows")
    with pytest.raises(InputError, match="there must be at least 2"):
        FitRows().draw(np.arange(1), "rows")
    fitted, others = FitRows(rows=3, seed=1).draw(np.arange(5, 15), "rows")
    assert sorted([*fitted, *others]) == list(range(5, 15))


def test_importing_the_package_is_instant():
    code = (
        "import sys, credibly.workflows; print([m for m in ('torch', 'numpy') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_large_files_give_the_numbers_of_small_ones(path):
    kept = cr.evaluate(path)
    counted = cr.evaluate(path, rows_in_memory=50)
    assert list(counted.numbers) == list(kept.numbers)
    for name, value in kept.numbers.items():
        rounded = 1e-3 if name == "zero-label AUROC" else 1e-6
        assert counted.numbers[name] == pytest.approx(value, abs=rounded, nan_ok=True)
    for name, column in kept.by_label.items():
        np.testing.assert_allclose(counted.by_label[name], column, rtol=1e-9)
