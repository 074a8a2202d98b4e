"""Import on the command line; a map fitted on one file and applied to another."""

from __future__ import annotations

import json

import numpy as np
import onnxruntime
import pandas as pd
import pytest
from scipy.special import expit

import credibly as cr
from credibly import Predictions
from credibly.cli import main
from credibly.workflows import calibrate_scores

LABELS = ["cat", "dog", "cow"]
ROWS = 600


@pytest.fixture
def folder(tmp_path):
    """Validation logits with truth elsewhere, and test logits with columns in another order."""
    rng = np.random.default_rng(0)
    logits = rng.normal(-1, 2, (2 * ROWS, 3)).astype(np.float32)
    truth = (rng.random(logits.shape) < expit(0.5 * logits - 0.5)).astype(int)
    ids = [f"r{row}" for row in range(2 * ROWS)]
    first, last = slice(0, ROWS), slice(ROWS, None)
    np.savez(tmp_path / "val.npz", scores=logits[first], labels=LABELS, ids=ids[first])
    table = pd.DataFrame({"id": ids, **dict(zip(LABELS, truth.T, strict=True))})
    table.to_csv(tmp_path / "y.csv", index=False)
    columns = {LABELS[k]: logits[last][:, k] for k in (2, 0, 1)}
    pd.DataFrame({"id": ids[last], **columns}).to_csv(tmp_path / "test.csv", index=False)
    np.save(tmp_path / "test.npy", logits[last])
    chances = {LABELS[k]: expit(logits[first][:, k]) for k in range(3)}
    pd.DataFrame({"id": ids[first], **chances}).to_csv(tmp_path / "chances.csv", index=False)
    pd.DataFrame({"id": ids[last], "cat": 1.0, "dgo": 1.0, "cow": -1.0}).to_csv(
        tmp_path / "other.csv", index=False
    )
    return tmp_path


def run(folder, *argv: str) -> int:
    named = [str(folder / text) if "." in text and text[0].isalpha() else text for text in argv]
    return main(named)


def test_fit_here_apply_there(folder, capsys):
    fit = ("calibrate", "val.npz", "--truth", "y.csv", "--loss", "bce", "--save", "map.json")
    assert run(folder, *fit) == 0
    expected = cr.Pipeline.read(folder / "map.json").probabilities(np.load(folder / "test.npy"))
    for name in ("test.csv", "test.npy"):
        assert run(folder, "calibrate", name, "--apply", "map.json", "--out", "p.parquet") == 0
        read = Predictions.read(folder / "p.parquet")
        assert read.labels == LABELS
        np.testing.assert_allclose(read.probabilities, expected, atol=1e-6)
    shown = capsys.readouterr().out
    assert "Wrote the map to" in shown
    assert "--apply" in shown


def test_the_map_is_that_of_python(folder):
    run(folder, "calibrate", "val.npz", "--truth", "y.csv", "--loss", "bce", "--save", "map.json")
    truth = pd.read_csv(folder / "y.csv")[LABELS].to_numpy()[:ROWS]
    scores = np.load(folder / "val.npz")["scores"]
    ids = np.load(folder / "val.npz")["ids"]
    result = calibrate_scores(scores, truth, "bce", labels=LABELS, ids=ids)
    result.pipeline.write(folder / "python.json")
    assert (folder / "python.json").read_text() == (folder / "map.json").read_text()


def test_probabilities_are_calibrated_through_their_log_odds(folder, capsys):
    for name, how in (("val.npz", ("--loss", "bce")), ("chances.csv", ("--as", "probabilities"))):
        assert run(folder, "calibrate", name, *how, "--truth", "y.csv", "--save", "m.json") == 0
        calibrator = json.loads((folder / "m.json").read_text())["calibrator"]
        assert calibrator["slope"] == pytest.approx(0.5, abs=0.1)
    assert "probabilities as given" in capsys.readouterr().out
    applied = ("calibrate", "chances.csv", "--apply", "m.json", "--out", "p.parquet")
    assert run(folder, *applied, "--truth", "y.csv") == 0
    applied = Predictions.read(folder / "p.parquet")
    assert applied.targets is not None
    # The map takes what it was fitted on, wherever it is used.
    chances = pd.read_csv(folder / "chances.csv")[LABELS].to_numpy(np.float32)
    assert run(folder, "export", "m.json", "--out", "m.onnx") == 0
    session = onnxruntime.InferenceSession(str(folder / "m.onnx"))
    for found in (
        session.run(["probabilities"], {"inputs": chances})[0],
        cr.runtime.load(folder / "m.json").probabilities(chances),
    ):
        np.testing.assert_allclose(found, applied.probabilities, atol=1e-5)
    with pytest.raises(cr.InputError, match=r"probabilities must lie in \[0, 1\]"):
        cr.runtime.load(folder / "m.json").probabilities(3 * chances)


@pytest.mark.parametrize(("loss", "fits"), [("asl", False), ("bce", True)])
def test_a_loss_that_does_not_fit_is_told_so(loss, fits, folder, capsys):
    flags = ("--truth", "y.csv", "--loss", loss, "--save", "m.json")
    assert run(folder, "calibrate", "val.npz", *flags) == 0
    assert ("a plain sigmoid" in capsys.readouterr().out) != fits
    assert run(folder, "calibrate", "val.npz", *flags, "--json") == 0
    assert json.loads(capsys.readouterr().out)["loss_fits"] is fits


def test_import_writes_a_predictions_file(folder, capsys):
    flags = ("--as", "logits", "--loss", "bce", "--truth", "y.csv", "--out", "p.parquet")
    assert run(folder, "import", "test.csv", *flags) == 0
    assert "600 rows × 3 labels, with truth" in capsys.readouterr().out
    read = Predictions.read(folder / "p.parquet").select(LABELS)
    np.testing.assert_allclose(read.probabilities, expit(np.load(folder / "test.npy")), atol=1e-6)
    assert run(folder, "evaluate", "p.parquet") == 0


IMPORT = ("import", "test.csv", "--out", "p.parquet")
APPLY = ("calibrate", "other.csv", "--apply", "map.json")
WRONG = {
    "no declaration": (IMPORT, "--as probabilities, or --as logits with --loss LOSS"),
    "no loss": ((*IMPORT, "--as", "logits"), "--loss bce"),
    "probabilities": ((*IMPORT, "--as", "probabilities"), "probabilities must lie in"),
    "in the unit interval": (
        ("import", "chances.csv", "--as", "logits", "--loss", "bce", "--out", "p.parquet"),
        "Give --as probabilities if they are, or --certain",
    ),
    "other labels": (
        (*APPLY, "--out", "p.parquet"),
        r"the map was fitted on other labels: .*'dog'.*'dgo'",
    ),
    "no out": (APPLY, r"there is nothing to write; give --out FILE"),
    "a loss for a map": (
        (*APPLY, "--out", "p.parquet", "--loss", "bce"),
        "--loss cannot be combined with --apply",
    ),
    "no map": (
        ("calibrate", "test.csv", "--apply", "y.csv", "--out", "p.parquet"),
        "must be JSON.*--save FILE",
    ),
    "no truth": (
        ("calibrate", "val.npz", "--loss", "bce", "--save", "m.json"),
        r"it has no targets.*--truth|it has no targets",
    ),
    "a loss for probabilities": (
        (
            "calibrate",
            "chances.csv",
            "--as",
            "probabilities",
            "--loss",
            "bce",
            "--save",
            "m.json",
            "--truth",
            "y.csv",
        ),
        "is for logits",
    ),
    "misspelt flag": ((*IMPORT, "--lables", "a"), "Did you mean --labels"),
}


@pytest.mark.parametrize(("argv", "words"), WRONG.values(), ids=WRONG)
def test_mistakes_are_answered_in_flags_and_nothing_is_written(argv, words, folder, capsys):
    import re

    fit = ("calibrate", "val.npz", "--truth", "y.csv", "--loss", "bce", "--save", "map.json")
    run(folder, *fit, "--quiet")
    before = sorted(folder.iterdir())
    try:
        code = run(folder, *argv)
    except SystemExit as stopped:
        code = stopped.code
    assert code == 2
    assert re.search(words, capsys.readouterr().err)
    assert sorted(folder.iterdir()) == before
