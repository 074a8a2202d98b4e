"""Label sets of a file: the rule's own, in a documented layout, counted on rows it has not seen."""

from __future__ import annotations

import csv
import json
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest

from credibly import Predictions, decide, metrics
from credibly.cli import main
from credibly.predictions import Writer

LABELS = ["dog", 'a, "b"', "狗", "d", "e", "f"]


def record(rows: int = 300, seed: int = 0, *, single: bool = False) -> Predictions:
    rng = np.random.default_rng(seed)
    rates = rng.beta(0.5, 1.0, (rows, len(LABELS)))
    truth = (rng.random(rates.shape) < rates).astype(np.int8)
    truth[::6], truth[1::17] = 0, -1
    truth[:, 3] = np.minimum(truth[:, 3], 0)
    if single:
        rates /= rates.sum(1, keepdims=True)
        truth = np.array([rng.multinomial(1, row) for row in rates], dtype=np.int8)
    return Predictions.from_arrays(
        probabilities=np.round(rates, 2),
        targets=truth,
        labels=LABELS,
        ids=[f"{seed}/{row}" for row in range(rows)],
    )


@pytest.fixture
def path(tmp_path: Path) -> str:
    record().write(tmp_path / "p.parquet")
    return str(tmp_path / "p.parquet")


def run(capsys, *argv: str) -> dict:
    assert main(["sets", *argv, "--json"]) == 0
    shown = capsys.readouterr()
    assert shown.err == ""
    return json.loads(shown.out)


def read_sets(path: Path) -> tuple[list[str], list[list[str]], list[list[float]], np.ndarray]:
    if path.suffix == ".csv":
        with path.open(newline="", encoding="utf-8") as file:
            rows = list(csv.DictReader(file))
        return (
            [row["id"] for row in rows],
            [json.loads(row["labels"]) for row in rows],
            [json.loads(row["probabilities"]) for row in rows],
            np.array([row["held_out"] == "true" for row in rows]),
        )
    table = pq.read_table(path)
    columns = [table.column(name).to_pylist() for name in table.column_names]
    assert table.column_names == ["id", "labels", "probabilities", "held_out"]
    return columns[0], columns[1], columns[2], np.array(columns[3])


RULES = {
    "average size": ["--average-size", "2"],
    "average size, no guarantee": ["--average-size", "1.5", "--guarantee", "none"],
    "average size, probability": ["--average-size", "2", "--guarantee", "0.1"],
    "top k": ["--top-k", "2"],
    "threshold": ["--threshold", "0.4"],
    "best F": ["--best-f", "1"],
}


@pytest.mark.parametrize("ending", ["parquet", "csv"])
@pytest.mark.parametrize("rule", RULES)
def test_the_file_holds_the_sets_of_the_rule(rule, ending, path, tmp_path, capsys):
    out = tmp_path / f"sets.{ending}"
    found = run(capsys, path, *RULES[rule], "--out", str(out))
    ids, labels, probabilities, held_out = read_sets(out)
    whole = record()
    assert ids == whole.ids.tolist()
    decision = decide.from_state(found["decision"])
    sets = decision.predict(whole.probabilities)
    for row in range(len(whole)):
        expected = {LABELS[column] for column in np.flatnonzero(sets[row])}
        assert set(labels[row]) == expected
        assert probabilities[row] == sorted(probabilities[row], reverse=True)
        listed = [whole.probabilities[row, LABELS.index(name)] for name in labels[row]]
        np.testing.assert_allclose(probabilities[row], listed, atol=1e-6)
    assert found["held_out_rows"] == held_out.sum()
    assert found["statement"] == decision.statement
    assert whole.targets is not None
    truth = whole.targets[held_out]
    numbers = found["numbers"]
    assert numbers["average size"] == pytest.approx(metrics.set_size(sets[held_out]))
    error = sets[held_out].sum(axis=1).std() / np.sqrt(held_out.sum())
    assert numbers["its standard error"] == pytest.approx(error)
    assert numbers["coverage"] == pytest.approx(metrics.set_coverage(sets[held_out], truth))
    assert numbers["precision"] == pytest.approx(metrics.precision(sets[held_out], truth))
    assert numbers["F1"] == pytest.approx(metrics.f1(sets[held_out], truth))
    counts = np.bincount(sets[held_out].sum(1), minlength=sets.shape[1] + 1)
    assert found["sizes"] == {str(k): v for k, v in enumerate(counts.tolist()) if v}


@pytest.mark.parametrize("rule", ["average size", "best F"])
def test_a_rule_sees_only_the_rows_it_is_fitted_on(rule, path, tmp_path, capsys):
    out = tmp_path / "sets.parquet"
    found = run(capsys, path, *RULES[rule], "--out", str(out), "--fraction", "0.3", "--seed", "4")
    held_out = read_sets(out)[3]
    assert (~held_out).sum() == 90
    part = record()[~held_out]
    kind = decide.BestF(1) if rule == "best F" else decide.AverageSize(2, "expected")
    assert kind.fit(part.probabilities, part.targets).state() == found["decision"]
    other = run(capsys, path, *RULES[rule], "--out", str(out), "--fraction", "0.3", "--seed", "5")
    assert (read_sets(out)[3] != held_out).any()
    assert other["held_out_rows"] == found["held_out_rows"]


def test_another_file_to_fit_on(path, tmp_path, capsys):
    fit = record(120, seed=1)
    with Writer(tmp_path / "fit.parquet", LABELS[::-1]) as writer:
        writer.append(fit)
        writer.append(record()[:10])
    shared = Predictions.read(tmp_path / "fit.parquet")
    out = tmp_path / "sets.parquet"
    arguments = [path, "--average-size", "2", "--out", str(out)]
    found = run(capsys, *arguments, "--fit-on", str(tmp_path / "fit.parquet"))
    held_out = read_sets(out)[3]
    assert not held_out[:10].any()
    assert held_out[10:].all()
    aligned = shared.select(LABELS)
    expected = decide.AverageSize(2, "expected").fit(aligned.probabilities).state()
    assert found["decision"] == expected


def test_coverage_is_for_single_labels(tmp_path, capsys):
    record(400, single=True).write(tmp_path / "p.parquet")
    out = str(tmp_path / "sets.parquet")
    found = run(capsys, str(tmp_path / "p.parquet"), "--coverage", "0.8", "--out", out)
    assert found["decision"]["decision"] == "coverage"
    assert 0.7 < found["numbers"]["coverage"] < 0.9


def test_the_statement_and_the_rule_stay_with_the_file(path, tmp_path, capsys):
    out = tmp_path / "sets.parquet"
    assert main(["sets", path, "--average-size", "2", "--out", str(out)]) == 0
    document = json.loads(pq.read_schema(out).metadata[b"credibly"])
    assert document["kind"] == "sets"
    shown = capsys.readouterr().out
    assert document["statement"] in shown
    assert "at most 2 labels in expectation" in shown
    assert decide.from_state(document["decision"]).statement == document["statement"]
    assert main(["sets", path, "--average-size", "2", "--out", str(out), "--quiet"]) == 0
    assert capsys.readouterr().out == ""


def test_without_truth_there_are_sizes_alone(tmp_path, capsys):
    whole = record()
    Predictions(whole.probabilities, whole.labels, whole.ids).write(tmp_path / "p.parquet")
    out = str(tmp_path / "sets.parquet")
    found = run(capsys, str(tmp_path / "p.parquet"), "--top-k", "1", "--out", out)
    assert found["numbers"] == {"average size": 1.0, "its standard error": 0.0}


def test_bad_input_is_one_sentence_and_2_and_nothing_is_written(path, tmp_path, capsys):
    record().select(LABELS[:2]).write(tmp_path / "fewer.parquet")
    record()[:3].write(tmp_path / "small.parquet")
    out = tmp_path / "sets.parquet"
    before = sorted(tmp_path.iterdir())
    cases = {
        "exactly one of --average-size": [path],
        "got --average-size and --top-k": [path, "--average-size", "2", "--top-k", "1"],
        "--average-size must be above 0": [path, "--average-size", "7"],
        "needs at least": [str(tmp_path / "small.parquet"), "--average-size", "1"],
        "labels must agree": [path, "--best-f", "1", "--fit-on", str(tmp_path / "fewer.parquet")],
        "must have rows that are not in": [path, "--best-f", "1", "--fit-on", path],
        "exactly one true label": [path, "--coverage", "0.9"],
        "--threshold must lie": [path, "--threshold", "2"],
        "--fraction must lie": [path, "--best-f", "1", "--fraction", "1"],
        "there is no file": [str(tmp_path / "nowhere.parquet"), "--top-k", "1"],
    }
    for message, argv in cases.items():
        assert main(["sets", *argv, "--out", str(out)]) == 2, message
        shown = capsys.readouterr()
        assert message in shown.err
        assert (shown.out, shown.err.count("\n")) == ("", 1)
    assert main(["sets", path, "--top-k", "1", "--out", path]) == 2
    assert "--out must not be an input" in capsys.readouterr().err
    assert main(["sets", path, "--top-k", "1", "--out", "sets.txt"]) == 2
    assert "must end in .parquet or .csv" in capsys.readouterr().err
    assert sorted(tmp_path.iterdir()) == before


NEW_RULES = {
    "recall": (["--recall", "0.8"], decide.Recall(0.8)),
    "recall with a risk": (
        ["--recall", "0.8", "--guarantee", "0.1"],
        decide.Recall(0.8, ("probability", 0.1)),
    ),
    "recall by label": (["--recall", "0.8", "--per", "label"], decide.Recall(0.8, per="label")),
    "precision": (["--precision", "0.5"], decide.Precision(0.5)),
    "least precision": (
        ["--best-f", "1", "--min-precision", "0.5"],
        decide.BestF(1, min_precision=0.5),
    ),
    "by name": (
        ["--threshold", '0.4,dog=0.2,"a, ""b""=0.9"'],
        decide.Threshold({"dog": 0.2, LABELS[1]: 0.9}, default=0.4),
    ),
    "cost": (
        ["--cost", "miss=5,false-alarm=1,review=0.3"],
        decide.Cost(miss=5, false_alarm=1, review=0.3),
    ),
}


@pytest.mark.parametrize(("flags", "rule"), NEW_RULES.values(), ids=NEW_RULES)
def test_every_rule_writes_the_sets_it_gives_in_python(flags, rule, tmp_path, capsys):
    fit_on, other = record(seed=1), record(seed=2)
    fit_on.write(tmp_path / "fit.parquet")
    other.write(tmp_path / "p.parquet")
    out = tmp_path / "sets.parquet"
    given = ["sets", str(tmp_path / "p.parquet"), "--fit-on", str(tmp_path / "fit.parquet")]
    assert main([*given, *flags, "--out", str(out), "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    expected = rule.for_labels(LABELS).fit(fit_on.probabilities, fit_on.targets, coding="unknown")
    assert found["statement"] == expected.statement
    sets, review = expected.predict(other.probabilities), expected.to_review(other.probabilities)
    table = pq.read_table(out)
    for row, names in enumerate(table["labels"].to_pylist()):
        assert set(names) == {LABELS[k] for k in np.flatnonzero(sets[row])}
    assert ("review" in table.column_names) == expected.reviews
    if expected.reviews:
        assert sum(map(len, table["review"].to_pylist())) == review.sum() > 0
        assert main([*given, *flags, "--out", str(tmp_path / "sets.csv")]) == 0
        with (tmp_path / "sets.csv").open(newline="") as file:
            assert [json.loads(row["review"]) for row in csv.DictReader(file)] == table[
                "review"
            ].to_pylist()


WRONG = {
    "risk": (["--recall", "0.9", "--guarantee", "soon"], "--guarantee must be expected"),
    "risk above 1": (["--recall", "0.9", "--guarantee", "2"], "--guarantee must lie in"),
    "expected precision": (["--precision", "0.9", "--guarantee", "expected"], "--guarantee of P"),
    "unknown name": (["--threshold", "0.5,dgo=0.2"], "no label 'dgo' to threshold. Did you mean"),
    "a size of 0": (["--average-size", "0"], "--average-size must be"),
    "no number": (["--threshold", "dog=high"], "--threshold must be numbers"),
    "no miss": (["--cost", "review=1"], "--cost must be like miss=5"),
    "misspelt cost": (["--cost", "mis=1"], "--cost must be like miss=5"),
    "lonely": (["--top-k", "1", "--min-precision", "0.5"], "--min-precision needs --best-f"),
}


@pytest.mark.parametrize(("flags", "words"), WRONG.values(), ids=WRONG)
def test_mistakes_in_rules_are_answered_in_flags(flags, words, tmp_path, capsys):
    import re

    record().write(tmp_path / "p.parquet")
    out = tmp_path / "sets.parquet"
    assert main(["sets", str(tmp_path / "p.parquet"), *flags, "--out", str(out)]) == 2
    assert re.search(words, capsys.readouterr().err)
    assert not out.exists()


def test_a_rule_that_needs_the_truth_says_which_file_lacks_it(tmp_path, capsys):
    from dataclasses import replace

    replace(record(), targets=None).write(tmp_path / "p.parquet")
    given = ["sets", str(tmp_path / "p.parquet"), "--out", str(tmp_path / "s.csv")]
    assert main([*given, "--recall", "0.9"]) == 2
    assert "p.parquet must have the truth, columns 'y:<label>'" in capsys.readouterr().err
