"""Rows that are exchangeable with the reference rarely raise an alarm; shifted ones do."""

from __future__ import annotations

import json

import numpy as np
import pytest

import credibly as cr
from credibly.cli import main

LABELS = ["a", "b", "c", "d", "e"]


def drawn(rows: int, seed: int, shift: float = 0.0, *, truth: bool = True, ties: bool = False):
    generator = np.random.default_rng(seed)
    log_odds = generator.normal(size=(rows, 5)) + generator.normal(size=(rows, 1)) - 1
    log_odds[:, 1] += shift
    probabilities = 1 / (1 + np.exp(-log_odds))
    if ties:
        probabilities = np.round(probabilities, 1)
    targets = (generator.random(probabilities.shape) < probabilities).astype(int)
    return cr.Predictions.from_arrays(
        probabilities=probabilities, targets=targets if truth else None, labels=LABELS
    )


@pytest.mark.parametrize("truth", [True, False])
@pytest.mark.parametrize("ties", [True, False])
@pytest.mark.parametrize("rows", [20, 300])
def test_false_alarms_are_as_rare_as_promised(rows: int, ties: bool, truth: bool):
    level, draws = 0.2, 100
    alarms = sum(
        cr.workflows.drift(
            drawn(rows, seed, truth=truth, ties=ties),
            drawn(400, 10_000 + seed, truth=truth, ties=ties),
            false_alarms=level,
        ).drifted
        for seed in range(draws)
    )
    assert alarms <= level * draws + 3 * np.sqrt(level * (1 - level) * draws)


@pytest.mark.parametrize("truth", [True, False])
def test_a_shift_of_one_label_is_found_and_named(truth: bool):
    found = cr.workflows.drift(drawn(2000, 1, shift=0.7, truth=truth), drawn(2000, 2, truth=truth))
    assert [label.label for label in found.labels if label.drifted] == ["b"]
    assert "b" in str(found)


def test_labels_are_matched_by_name():
    new, reference = drawn(500, 1), drawn(500, 2)
    turned = cr.Predictions.from_arrays(
        probabilities=new.probabilities[:, ::-1], targets=new.targets[:, ::-1], labels=LABELS[::-1]
    )
    assert cr.workflows.drift(turned, reference) == cr.workflows.drift(new, reference)
    other = cr.Predictions.from_arrays(probabilities=new.probabilities, labels=list("abcdx"))
    with pytest.raises(cr.InputError, match=r"lacks .*'e'.* has .*'x'"):
        cr.workflows.drift(other, reference)


def test_the_command_says_whether_new_rows_differ(tmp_path, capsys):
    drawn(800, 1, shift=0.9).write(tmp_path / "new.parquet")
    drawn(800, 2).write(tmp_path / "reference.parquet")
    drawn(800, 3).write(tmp_path / "same.parquet")
    against = ["--against", str(tmp_path / "reference.parquet"), "--json"]
    assert main(["check", str(tmp_path / "new.parquet"), *against]) == 1
    document = json.loads(capsys.readouterr().out)
    assert document["drifted"]
    assert document["false_alarms"] == 0.01
    assert main(["check", str(tmp_path / "same.parquet"), *against[:2]]) == 0
    assert "No difference was found" in capsys.readouterr().out
