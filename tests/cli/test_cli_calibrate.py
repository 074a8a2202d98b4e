"""Scores of a model trained elsewhere become calibrated predictions, judged on other rows."""

from __future__ import annotations

import csv
import json
from pathlib import Path

import numpy as np
import pytest
import torch
from scipy.special import expit

from credibly import Pipeline, Predictions, calibrate, losses, metrics
from credibly.cli import main
from credibly.names import CALIBRATORS

LABELS = ["dog", 'dining, "table"', "狗", "never"]
ROWS = 1200


def scores_and_truth(loss: str, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Scores whose log-odds, by the link of ``loss``, are too flat and too high."""
    rng = np.random.default_rng(seed)
    scores = rng.normal(0.3, 1.5, (ROWS, len(LABELS))).astype(np.float32)
    owner = losses.from_name(loss, num_labels=len(LABELS))
    tensor = torch.from_numpy(scores)
    log_odds = (owner.log_odds(tensor) if owner.has_link else tensor).numpy()
    truth = (rng.random(scores.shape) < expit(1.8 * log_odds - 1.0)).astype(np.int8)
    truth[:, 3] = 0
    truth[::7], truth[1::13] = 0, -1
    return scores, truth


def write(path: Path, loss: str, **extra: np.ndarray) -> str:
    scores, truth = scores_and_truth(loss)
    np.savez(path, scores=scores, targets=truth, labels=np.array(LABELS), **extra)  # pyright: ignore
    return str(path)


def run(capsys, *argv: str) -> dict:
    assert main(["calibrate", *argv, "--json"]) == 0
    shown = capsys.readouterr()
    assert shown.err == ""
    return json.loads(shown.out)


LOSSES = ["bce", "spa", "asl", "asl(detach_weight=true)", "focal(gamma_neg=3)", "twl"]


@pytest.mark.parametrize("loss", LOSSES)
def test_the_file_holds_link_then_calibrator(loss, tmp_path, capsys):
    path = write(tmp_path / "s.npz", loss)
    arguments = ["--loss", loss, "--method", "affine", "--out", str(tmp_path / "p.parquet")]
    found = run(capsys, path, *arguments)
    read = Predictions.read(tmp_path / "p.parquet")
    scores, truth = scores_and_truth(loss)
    np.testing.assert_array_equal(read.scores, scores)
    np.testing.assert_array_equal(read.targets, truth)
    assert read.labels == LABELS
    assert read.metadata["loss"] == loss
    assert read.metadata["calibrator"] == found["calibrator"]
    owner = losses.from_name(loss, num_labels=len(LABELS))
    assert read.metadata["link"] == ({"loss": str(owner)} if owner.has_link else None)
    log_odds = Pipeline(owner).link_log_odds(scores)
    final = calibrate.from_state(read.metadata["calibrator"]).transform(log_odds)
    np.testing.assert_allclose(read.probabilities, expit(final), rtol=1e-5, atol=1e-9)
    assert found["fitted_rows"] + found["judged_rows"] == (truth >= 0).any(axis=1).sum()


@pytest.mark.parametrize("loss", LOSSES)
def test_calibration_lowers_log_loss_on_rows_it_has_not_seen(loss, tmp_path, capsys):
    path = write(tmp_path / "s.npz", loss)
    found = run(capsys, path, "--loss", loss, "--out", str(tmp_path / "p.parquet"))
    stages = list(found["stages"].values())
    has_link = losses.from_name(loss, num_labels=4).has_link
    assert len(stages) == (3 if has_link else 2)
    given = min(stage["NLL"] for stage in stages[:-1])
    assert stages[-1]["NLL"] < given
    assert found["nll_change"]["high"] < 0
    change = stages[-1]["NLL"] - given
    assert found["nll_change"]["estimate"] == pytest.approx(change, abs=1e-6)
    assert stages[-1]["mAP@y"] == pytest.approx(stages[0]["mAP@y"])  # the order never changes


def test_numbers_are_those_of_the_judged_rows(tmp_path, capsys):
    path = write(tmp_path / "s.npz", "spa")
    arguments = [path, "--loss", "spa", "--seed", "3", "--fraction", "0.25"]
    found = run(capsys, *arguments, "--keep", "judged", "--out", str(tmp_path / "p.parquet"))
    judged = Predictions.read(tmp_path / "p.parquet")
    known = (scores_and_truth("spa")[1] >= 0).any(axis=1).sum()
    assert found["fitted_rows"] == round(known / 4)
    assert len(judged) == found["judged_rows"] == known - round(known / 4)
    numbers = metrics.summary(judged.probabilities, judged.targets, judged.scores)
    assert list(found["stages"].values())[-1] == pytest.approx(numbers, rel=1e-6)
    whole = run(capsys, *arguments, "--out", str(tmp_path / "q.parquet"))
    assert whole["stages"] == found["stages"]
    assert len(Predictions.read(tmp_path / "q.parquet")) == ROWS


def test_truth_of_judged_rows_does_not_reach_the_calibrator(tmp_path, capsys):
    path = write(tmp_path / "s.npz", "spa")
    arguments = ["--loss", "spa", "--out", str(tmp_path / "p.parquet")]
    first = run(capsys, path, *arguments, "--keep", "judged")
    judged = Predictions.read(tmp_path / "p.parquet").ids.astype(int)
    scores, truth = scores_and_truth("spa")
    truth[judged] = np.where(truth[judged] >= 0, 1 - truth[judged], -1)
    np.savez(tmp_path / "t.npz", scores=scores, targets=truth, labels=np.array(LABELS))
    assert run(capsys, str(tmp_path / "t.npz"), *arguments)["calibrator"] == first["calibrator"]
    other = run(capsys, path, *arguments, "--seed", "1")
    assert other["calibrator"] != first["calibrator"]


def test_a_split_in_the_file_is_kept_to(tmp_path, capsys):
    split = np.arange(ROWS) % 3
    path = write(tmp_path / "s.npz", "spa", split=split)
    out = tmp_path / "p.parquet"
    found = run(capsys, path, "--loss", "spa", "--out", str(out), "--keep", "judged")
    known = (scores_and_truth("spa")[1] >= 0).any(axis=1)
    assert found["fitted_rows"] == (known & (split == 2)).sum()
    expected = np.flatnonzero(known & (split == 1))
    assert Predictions.read(out).ids.astype(int).tolist() == expected.tolist()
    path = write(tmp_path / "t.npz", "spa", split=np.arange(ROWS) % 2)
    found = run(capsys, path, "--loss", "spa", "--out", str(out))
    odd = known & (np.arange(ROWS) % 2 == 1)
    assert found["fitted_rows"] + found["judged_rows"] == odd.sum()


@pytest.mark.parametrize("method", [*CALIBRATORS, "auto"])
def test_every_method_is_at_hand(method, tmp_path, capsys):
    path = write(tmp_path / "s.npz", "spa")
    out = str(tmp_path / "p.parquet")
    found = run(capsys, path, "--loss", "spa", "--method", method, "--out", out)
    names = set(CALIBRATORS) - {"isotonic"}
    assert found["calibrator"]["calibrator"] in (names if method == "auto" else {method})
    assert bool(found["candidates"]) == (method == "auto")
    assert Predictions.read(out).metadata["calibrator"] == found["calibrator"]


def test_a_csv_file_gives_the_same(tmp_path, capsys):
    scores, truth = scores_and_truth("asl")
    with (tmp_path / "s.csv").open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file)
        writer.writerow([*LABELS, *(f"y:{name}" for name in LABELS)])
        for row, cells in zip(scores, truth, strict=True):
            writer.writerow([*map(repr, row.tolist()), *("" if y < 0 else y for y in cells)])
    out = [str(tmp_path / "a.parquet"), str(tmp_path / "b.parquet")]
    one = run(capsys, str(tmp_path / "s.csv"), "--loss", "asl", "--out", out[0])
    two = run(capsys, write(tmp_path / "s.npz", "asl"), "--loss", "asl", "--out", out[1])
    assert one["stages"] == two["stages"]
    first, second = Predictions.read(out[0]), Predictions.read(out[1])
    np.testing.assert_array_equal(first.probabilities, second.probabilities)
    again = run(capsys, out[1], "--loss", "asl", "--out", str(tmp_path / "c.parquet"))
    assert again["stages"] == two["stages"]


def test_two_scores_a_label(tmp_path, capsys):
    scores, _ = scores_and_truth("bce")
    classes = scores[:, :3].argmax(axis=1)
    both = np.concatenate([scores, scores], axis=1)
    np.savez(tmp_path / "s.npz", scores=both, targets=classes, labels=np.array(LABELS))
    loss = "avgk(average_size=2)"
    run(capsys, str(tmp_path / "s.npz"), "--loss", loss, "--out", str(tmp_path / "p.parquet"))
    assert Predictions.read(tmp_path / "p.parquet").probabilities.shape == (ROWS, 4)


def test_the_normaliser_of_the_quasibinary_loss_is_found_on_fitted_rows(tmp_path, capsys):
    rng = np.random.default_rng(0)
    rates = rng.uniform(0.01, 0.6, (ROWS, 4)).astype(np.float32)
    truth = (rng.random(rates.shape) < rates).astype(np.int8)
    np.savez(tmp_path / "s.npz", scores=np.log(rates) + 3, targets=truth)
    out = str(tmp_path / "p.parquet")
    run(capsys, str(tmp_path / "s.npz"), "--loss", "quasibinary", "--method", "none", "--out", out)
    read = Predictions.read(out)
    assert read.metadata["link"]["normalizer"] == pytest.approx(np.exp(3), rel=0.05)
    np.testing.assert_allclose(read.probabilities, rates, rtol=0.06)


def test_the_table_shows_before_and_after(tmp_path, capsys):
    path, out = write(tmp_path / "s.npz", "asl"), str(tmp_path / "p.parquet")
    assert main(["calibrate", path, "--loss", "asl", "--out", out]) == 0
    shown = capsys.readouterr().out
    for words in (
        "sigmoid of the scores",
        "link of the loss",
        "cross-validated log loss",
        "standard error",
        "affine",
        "NLL",
        "not used for fitting",
        "% of the scores lie below the margin",
    ):
        assert words in shown
    assert main(["calibrate", path, "--loss", "asl", "--out", out, "--quiet"]) == 0
    assert capsys.readouterr().out == ""


def test_bad_input_is_one_sentence_and_2_and_nothing_is_written(tmp_path, capsys):
    path = write(tmp_path / "s.npz", "bce")
    scores, truth = scores_and_truth("bce")
    np.savez(tmp_path / "no_truth.npz", scores=scores)
    np.savez(tmp_path / "no_scores.npz", probabilities=expit(scores), targets=truth)
    np.savez(tmp_path / "unknown.npz", scores=scores, targets=np.full_like(truth, -1))
    scores[5, 2] = np.nan
    np.savez(tmp_path / "nan.npz", scores=scores, targets=truth)
    np.savez(tmp_path / "split.npz", scores=truth + 0.5, targets=truth, split=np.full(ROWS, 2))
    before = sorted(tmp_path.iterdir())
    cases = {
        "it has no targets": ["no_truth.npz"],
        "it has no scores": ["no_scores.npz"],
        "rows with known truth": ["unknown.npz"],
        "NaN": ["nan.npz"],
        "`split` must mark": ["split.npz"],
        "there is no file": ["nowhere.npz"],
        "unknown loss 'bcee'": ["s.npz", "--loss", "bcee"],
        "--fraction must lie": ["s.npz", "--fraction", "1"],
        "must lie between 1 and": ["s.npz", "--rows", "1200"],
        "must end in .parquet": ["s.npz", "--out", str(tmp_path / "p.csv")],
        "2 columns per label": ["s.npz", "--loss", "avgk(average_size=2)"],
    }
    for message, (name, *rest) in cases.items():
        argv = [str(tmp_path / name), "--loss", "bce", "--out", str(tmp_path / "p.parquet"), *rest]
        assert main(["calibrate", *argv]) == 2, message
        shown = capsys.readouterr()
        assert message in shown.err
        assert (shown.out, shown.err.count("\n")) == ("", 1)
    assert main(["calibrate", path, "--loss", "bce", "--out", path]) == 2
    assert "--out must not be an input" in capsys.readouterr().err
    assert sorted(tmp_path.iterdir()) == before
