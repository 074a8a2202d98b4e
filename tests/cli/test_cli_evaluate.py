"""The numbers of a file read in pieces are those of the whole in memory."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from credibly import Predictions, metrics
from credibly.cli import main

LABELS = ["dog", "[red] cat", "no truth", "no positive", "e"]


def record(*, scores: bool = False, soft: bool = False, zero: bool = True) -> Predictions:
    """Rows without labels, rows all unknown, a label without positives and one without truth.

    Without ``zero`` there is no row of which it is known that it has no label.
    """
    rows, rng = 240, np.random.default_rng(0)
    rates = rng.beta(0.4, 1.2, (rows, len(LABELS)))
    truth = (rng.random(rates.shape) < rates).astype(np.float32)
    truth[::6], truth[1::17], truth[2::9, 0] = 0, -1, -1
    truth[:, 3] = np.minimum(truth[:, 3], 0)
    truth[:, 2] = -1
    if not zero:
        truth[(truth <= 0).all(axis=1), 1] = -1
    if soft:
        truth = np.where(truth == 1, 0.75, truth)
    probabilities = np.round(rates**0.7, 2)  # ties, and exact zeros and ones
    return Predictions.from_arrays(
        probabilities=probabilities,
        targets=truth,
        labels=LABELS,
        scores=np.log(rates + 1e-3) if scores else None,
    )


RECORDS = {
    "plain": record(),
    "scores": record(scores=True),
    "soft": record(soft=True),
    "no zero-label row": record(zero=False),
}
each_record = pytest.mark.parametrize("name", RECORDS)


def evaluate(capsys, *argv: str) -> dict:
    assert main(["evaluate", *argv, "--json"]) == 0
    shown = capsys.readouterr()
    assert shown.err == ""
    return json.loads(shown.out)


def write(name: str, folder: Path) -> str:
    path = folder / f"{name}.parquet"
    RECORDS[name].write(path)
    return str(path)


@each_record
def test_pieces_give_the_numbers_of_the_whole(name, tmp_path, capsys):
    whole = RECORDS[name]
    found = evaluate(capsys, write(name, tmp_path))["files"][0]
    expected = metrics.summary(whole.probabilities, whole.targets, whole.scores)
    numbers = {key: np.nan if each is None else each for key, each in found["numbers"].items()}
    assert numbers == pytest.approx(expected, rel=1e-9, nan_ok=True)
    assert list(found["numbers"]) == list(expected)
    assert found["rows"] == len(whole)
    assert found["labels_without_truth"] == ["no truth"]
    assert ("zero-label AUROC" in expected) == (name in ("plain", "scores"))


@each_record
def test_labels_one_by_one(name, tmp_path, capsys):
    whole = RECORDS[name]
    assert whole.targets is not None
    found = evaluate(capsys, write(name, tmp_path), "--by-label")["files"][0]["by_label"]
    assert list(found) == LABELS
    for place, label in enumerate(LABELS):
        p, y = whole.probabilities[:, place], whole.targets[:, place]
        known = y >= 0
        assert found[label]["known"] == known.sum()
        if not known.any():
            assert found[label]["rate"] is None
            assert found[label]["ACE"] is None
            continue
        assert found[label]["rate"] == pytest.approx(y[known].mean(), rel=1e-6)
        assert found[label]["mean probability"] == pytest.approx(p[known].mean(), rel=1e-6)
        assert found[label]["NLL"] == pytest.approx(metrics.log_loss(p, y), rel=1e-9)


@pytest.mark.parametrize("bins", [15, 7])
def test_intervals_hold_the_numbers(bins, tmp_path, capsys):
    path = write("plain", tmp_path)
    found = evaluate(capsys, path, "--intervals", "--bins", str(bins))["files"][0]
    assert set(found["intervals"]) == set(found["numbers"])
    for name in ("mAP@y", "mAP@x", "NLL", "Brier"):
        low, high = found["intervals"][name]
        assert low <= found["numbers"][name] <= high
    whole = RECORDS["plain"]
    options = {"bins": bins, "min_count": 30}
    ace = metrics.calibration_error(whole.probabilities, whole.targets, **options)
    assert found["numbers"]["ACE"] == pytest.approx(float(ace))


def test_the_table_has_a_column_a_file_and_names_what_it_left_out(tmp_path, capsys):
    paths = [write("plain", tmp_path), write("scores", tmp_path)]
    assert main(["evaluate", *paths, "--by-label", "--quiet"]) == 0
    shown = capsys.readouterr()
    assert "plain.parquet" in shown.out
    assert "scores.parquet" in shown.out
    assert "[red] cat" in shown.out
    assert "1 of 5 labels have no known truth" in shown.out
    assert shown.err == ""


def table(capsys, *argv: str) -> list[str]:
    assert main(["evaluate", *argv]) == 0
    lines = [line.split("  ") for line in capsys.readouterr().out.splitlines() if line.strip()]
    return [next(part for part in line if part.strip()).strip() for line in lines][2:]


def test_by_default_the_table_has_what_people_expect(tmp_path, capsys):
    path = write("no zero-label row", tmp_path)
    usual = ["rows", "labels", "mAP@y", "ACE", "NLL", "micro F1", "macro F1"]
    left_out = "1 of 5"
    assert [name for name in table(capsys, path) if left_out not in name] == usual
    more = table(capsys, path, "--papers")
    assert {"mAP@x", "Brier", "AUROC", "F1-top-4"} <= set(more)
    zero = table(capsys, write("plain", tmp_path))
    assert {"IN accuracy", "OUT MMC", "F1-top-4"} <= set(zero)
    assert "Brier" not in zero


def test_the_table_of_labels_is_scikit_learns_report(tmp_path, capsys):
    from sklearn.metrics import classification_report, roc_auc_score

    whole = RECORDS["plain"]
    path = write("plain", tmp_path)
    found = evaluate(capsys, path, "--by-label", "--intervals")["files"][0]
    known = whole.targets >= 0
    micro = classification_report(
        whole.targets[known], whole.probabilities[known] >= 0.5, output_dict=True
    )["1"]
    for ours, theirs in (("precision", "precision"), ("recall", "recall"), ("F1", "f1-score")):
        assert found["micro"][ours] == pytest.approx(micro[theirs])
    for place, label in enumerate(LABELS):
        known = whole.targets[:, place] >= 0
        if not known.any():
            continue
        y, p = whole.targets[known, place], whole.probabilities[known, place]
        report = classification_report(y, p >= 0.5, output_dict=True, zero_division=0)
        expected = report.get("1", report.get("1.0"))
        if expected is not None:
            row = found["by_label"][label]
            assert row["precision"] == pytest.approx(expected["precision"])
            assert row["recall"] == pytest.approx(expected["recall"])
            assert row["F1"] == pytest.approx(expected["f1-score"])
            low, high = metrics.proportion_interval(((p >= 0.5) & (y == 1)).sum(), (y == 1).sum())
            assert row["intervals"]["recall"] == pytest.approx([low, high])
            low, high = row["intervals"]["F1"]
            assert low <= row["F1"] <= high
            if len(set(y)) > 1:
                assert row["AUROC"] == pytest.approx(roc_auc_score(y, p))
    lines = table(capsys, path, "--by-label")
    assert {"mean over labels", "all entries"} <= set(lines)


def test_a_note_says_why_ace_and_mce_are_missing(tmp_path, capsys):
    path = write("plain", tmp_path)
    assert main(["evaluate", path, "--min-count", "100000"]) == 0
    shown = capsys.readouterr().out
    assert "ACE and MCE need bins with at least 100000 entries; lower --min-count." in shown
    assert next(line.split() for line in shown.splitlines() if "ACE" in line) == ["ACE", "–"]
    assert main(["evaluate", path, "--min-count", "0"]) == 0
    assert "--min-count" not in capsys.readouterr().out


def test_files_of_one_name_are_told_apart_by_their_folders_alone(tmp_path, capsys):
    for folder in ("a", "b"):
        RECORDS["plain"].write(tmp_path / folder / "predictions.parquet")
    paths = [str(tmp_path / folder / "predictions.parquet") for folder in ("a", "b")]
    assert main(["evaluate", *paths]) == 0
    head = capsys.readouterr().out.splitlines()[1]
    assert head.split() == ["a/predictions.parquet", "b/predictions.parquet"]
    assert main(["evaluate", paths[0], paths[0]]) == 0
    assert f"{paths[0]} (2)" in capsys.readouterr().out


def test_a_folder_of_parts_is_evaluated_as_one(tmp_path, capsys):
    whole = RECORDS["plain"]
    whole[:100].write(tmp_path / "parts" / "a.parquet")
    whole[100:].write(tmp_path / "parts" / "b.parquet")
    one = evaluate(capsys, write("plain", tmp_path))["files"][0]["numbers"]
    other = evaluate(capsys, str(tmp_path / "parts"))["files"][0]["numbers"]
    assert one == pytest.approx(other)


def test_bad_input_is_one_sentence_and_2(tmp_path, capsys):
    good = RECORDS["plain"]
    bare = Predictions(good.probabilities, good.labels, good.ids)
    bare.write(tmp_path / "bare.parquet")
    unknown = replace(good, targets=np.full_like(good.targets, -1))
    unknown.write(tmp_path / "unknown.parquet")
    good.select(LABELS[:2]).write(tmp_path / "fewer.parquet")
    alike = Predictions(
        good.probabilities, good.labels, np.array(["a"] * len(good), object), good.targets
    )
    alike[:1].write(tmp_path / "alike" / "0.parquet")
    alike[1:2].write(tmp_path / "alike" / "1.parquet")
    whole = write("plain", tmp_path)
    (tmp_path / "cut.parquet").write_bytes(Path(whole).read_bytes()[:-20])
    cases = {
        "bare.parquet": "--as probabilities --truth FILE --out predictions.parquet",
        "unknown.parquet": "all of it is unknown",
        "alike": "ids must be different; 'a' is the id of rows 0 and 1",
        "cut.parquet": "must be a complete Parquet file",
        "nowhere.parquet": "there is no file",
    }
    for name, message in cases.items():
        assert main(["evaluate", str(tmp_path / name)]) == 2
        shown = capsys.readouterr()
        assert message in shown.err
        assert name in shown.err
        assert shown.out == ""
        assert shown.err.count("\n") == 1
    assert main(["evaluate", whole, str(tmp_path / "fewer.parquet")]) == 2
    assert "labels must agree" in capsys.readouterr().err
    assert main(["evaluate", whole, "--bins", "0"]) == 2
    assert "--bins must" in capsys.readouterr().err


def test_errors_name_nothing_of_python(tmp_path, capsys):
    good = record()
    good.write(tmp_path / "good.parquet")
    good.select(LABELS[:2]).write(tmp_path / "fewer.parquet")
    Predictions(good.probabilities, good.labels, good.ids).write(tmp_path / "bare.parquet")
    pq.write_table(pa.table({"id": ["a"], "dog": [0.5]}), tmp_path / "plain.parquet")
    top = {"top": [[1, 0]], "probabilities": [[0.5, 0.25]], "targets": [[1, 0]]}
    Predictions.from_arrays(labels=["a", "b"], **top).write(tmp_path / "top.parquet")
    files = {path.stem: str(path) for path in tmp_path.iterdir()}
    refused = (
        ["evaluate", files["good"], files["fewer"]],
        ["evaluate", files["bare"]],
        ["evaluate", files["plain"]],
        ["review", files["bare"]],
        ["joint", "fit", files["top"], "--out", str(tmp_path / "joint.json")],
        ["sets", files["good"], "--best-f", "1", "--fit-on", files["fewer"], "--out", "x.csv"],
        ["check", files["fewer"], "--against", files["good"]],
    )
    for arguments in refused:
        assert main(arguments) == 2, arguments
        said = capsys.readouterr().err
        assert not re.search(r"Predictions|\bcr\.|Python|\w=\w", said), said
