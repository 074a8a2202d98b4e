"""A fitted rule is stored with its labels and applied to other files."""

from __future__ import annotations

import json
import re

import numpy as np
import pyarrow.parquet as pq
import pytest

import credibly as cr
from credibly.cli import main

LABELS = ["cat", "dog", "owl", "salt, pepper"]
NOISE = np.random.default_rng(0)
PROBABILITIES = NOISE.beta(0.6, 1.2, (900, 4)).astype(np.float32)
TARGETS = (NOISE.random(PROBABILITIES.shape) < PROBABILITIES).astype(np.int8)
SINGLE = np.eye(4, dtype=np.int8)[PROBABILITIES.argmax(axis=1)]
RULES = [
    ["--average-size", "1.5"],
    ["--recall", "0.9"],
    ["--recall", "0.9", "--per", "label"],
    ["--precision", "0.6", "--per", "label"],
    ["--best-f", "1"],
    ["--top-k", "2"],
    ["--threshold", "0.5,cat=0.3"],
    ["--cost", "miss=5,false-alarm=1,review=0.5"],
    ["--coverage", "0.9"],
]


def write(path, rows, order, targets=TARGETS):
    cr.Predictions.from_arrays(
        probabilities=PROBABILITIES[rows][:, order],
        targets=targets[rows][:, order],
        labels=[LABELS[place] for place in order],
        ids=[f"row {row}" for row in rows],
    ).write(path)
    return str(path)


def sets_of(path):
    table = pq.read_table(path)
    return [set(names) for names in table["labels"].to_pylist()]


@pytest.mark.parametrize("rule", RULES, ids=" ".join)
def test_a_stored_rule_gives_its_own_sets_in_any_order_of_columns(rule, tmp_path, capsys):
    truth = SINGLE if rule[0] == "--coverage" else TARGETS
    held = write(tmp_path / "held.parquet", range(500), range(4), truth)
    new = write(tmp_path / "new.parquet", range(500, 900), range(4), truth)
    turned = write(tmp_path / "turned.parquet", range(500, 900), [2, 0, 3, 1], truth)
    saved = ["--save", str(tmp_path / "rule.json")]
    fitted = [] if rule[0] in ("--top-k", "--threshold", "--cost") else ["--fit-on", held]
    out = [str(tmp_path / name) for name in ("direct.parquet", "a.parquet", "b.parquet")]
    assert main(["sets", new, *rule, *fitted, "--out", out[0], *saved, "--json"]) == 0
    direct = json.loads(capsys.readouterr().out)
    for source, target in ((new, out[1]), (turned, out[2])):
        assert main(["sets", source, "--apply", saved[1], "--out", target, "--json"]) == 0
        applied = json.loads(capsys.readouterr().out)
        assert applied["thresholds"] == direct["thresholds"]
        assert applied["numbers"] == pytest.approx(direct["numbers"])
        assert sets_of(target) == sets_of(out[0])
    assert cr.Pipeline.read(saved[1]).labels == LABELS


def test_thresholds_are_shown_by_label(tmp_path, capsys):
    file = write(tmp_path / "p.parquet", range(900), range(4))
    out = ["--out", str(tmp_path / "sets.csv")]
    assert main(["sets", file, "--best-f", "1", *out]) == 0
    shown = capsys.readouterr().out
    assert "threshold" in shown
    assert all(name in shown for name in LABELS)


@pytest.mark.parametrize(
    ("arguments", "match"),
    [
        (["--apply", "rule.json", "--fit-on", "p.parquet"], "leave out --fit-on"),
        (["--apply", "rule.json", "--top-k", "2"], "exactly one of"),
        (["--apply", "other.json"], "cow"),
        (["--apply", "bare.json"], "must hold a rule and the names of its labels"),
        (["--top-k", "2", "--map", "rule.json"], "--map needs --save"),
        (["--top-k", "2", "--map", "other.json", "--save", "x.json"], "must have the labels"),
    ],
)
def test_what_does_not_fit_is_refused(arguments, match, tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    write(tmp_path / "p.parquet", range(900), range(4))
    rule = cr.decide.TopK(2)
    cr.Pipeline(decision=rule, labels=LABELS).write("rule.json")
    cr.Pipeline(decision=rule, labels=["cow", *LABELS[1:]]).write("other.json")
    cr.Pipeline(decision=rule).write("bare.json")
    assert main(["sets", "p.parquet", *arguments, "--out", "sets.parquet"]) == 2
    assert re.search(match, capsys.readouterr().err.replace("\n", " "))


def test_a_map_and_a_rule_become_one_file(tmp_path):
    """The exported sets are those that the rule promises, from the scores themselves."""
    scores = NOISE.normal(size=(600, 4))
    targets = NOISE.random(scores.shape) < 1 / (1 + np.exp(-2 * scores))
    done = cr.calibrate_scores(scores, targets, "bce", labels=LABELS)
    done.pipeline.write(tmp_path / "map.json")
    done.predictions[done.held_out].write(tmp_path / "p.parquet")
    files = {"out": "sets.csv", "map": "map.json", "save": "model.json"}
    flags = [word for k, v in files.items() for word in (f"--{k}", str(tmp_path / v))]
    assert main(["sets", str(tmp_path / "p.parquet"), "--recall", "0.9", *flags, "--quiet"]) == 0
    found = cr.runtime.load(tmp_path / "model.json").sets(scores)
    rows = cr.Pipeline.read(tmp_path / "model.json")
    np.testing.assert_array_equal(found, rows.rule.predict(done.predictions.probabilities))
    assert 0.85 < found[targets].mean() < 0.97


def test_maps_and_pipelines_are_one_format_and_old_maps_load(tmp_path):
    scores = NOISE.normal(size=(400, 4))
    targets = NOISE.random(scores.shape) < 1 / (1 + np.exp(-2 * scores))
    done = cr.calibrate_scores(scores, targets, "bce", labels=LABELS)
    done.pipeline.write(tmp_path / "map.json")
    read = cr.Pipeline.read(tmp_path / "map.json")
    assert read.labels == LABELS
    expected = done.pipeline.probabilities(scores)
    np.testing.assert_array_equal(read.probabilities(scores), expected)
    state = done.pipeline.state()
    del state["labels"]
    old = {"map": 1, "values": "logits", "labels": LABELS, "pipeline": state}
    (tmp_path / "old.json").write_text(json.dumps(old))
    for name in ("map.json", "old.json"):
        again = cr.Pipeline.read(tmp_path / name)
        assert again.labels == LABELS
        np.testing.assert_array_equal(again.probabilities(scores), expected)


@pytest.mark.filterwarnings("always")
def test_rows_that_fitted_a_map_or_a_rule_are_not_passed_off_as_held_out(tmp_path, capsys):
    held = write(tmp_path / "held.parquet", range(400), range(4))
    new = write(tmp_path / "new.parquet", range(400, 900), range(4))
    rule, fitted, out = (str(tmp_path / name) for name in ("r.json", "m.json", "o.parquet"))
    names = ["all", "judged", "again", "other"]
    every, judged, again, other = (str(tmp_path / f"{name}.parquet") for name in names)

    def warned(*command):
        assert main([*command, "--json"]) == 0
        return capsys.readouterr().err

    calibrate = ["calibrate", held, "--as", "probabilities", "--method", "affine"]
    assert warned(*calibrate, "--out", every, "--save", fitted) == ""
    assert warned(*calibrate, "--keep", "judged", "--out", judged) == ""
    assert warned("calibrate", held, "--apply", fitted, "--out", again) == ""
    assert warned("calibrate", new, "--apply", fitted, "--out", other) == ""
    use = ["--average-size", "2", "--out", out]
    for path in (every, again):
        said = "holds 100 % of the rows that its calibration map was fitted on"
        assert said in warned("sets", path, *use)
        assert said in warned("evaluate", path)
    for path in (judged, other):
        assert warned("sets", path, *use) == warned("evaluate", path) == ""
    assert warned("sets", held, *use, "--save", rule) == ""
    apply = ["--apply", rule, "--out", out]
    assert "holds 100 % of the rows that this rule was fitted on" in warned("sets", held, *apply)
    assert warned("sets", new, *apply) == ""
    # Row numbers are nobody's ids: equal ones say nothing.
    unnamed = cr.Predictions.from_arrays(probabilities=PROBABILITIES, labels=LABELS)
    unnamed.write(tmp_path / "unnamed.parquet")
    assert warned("sets", str(tmp_path / "unnamed.parquet"), *use, "--save", rule) == ""
    assert warned("sets", str(tmp_path / "unnamed.parquet"), *apply) == ""
