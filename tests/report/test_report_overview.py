"""Where to begin: labels that are wrong come first, and every command that is offered runs."""

from __future__ import annotations

import hashlib
import shlex
from dataclasses import replace

import numpy as np
import pytest

from credibly import Predictions, metrics
from credibly.app import report
from credibly.app.statistics.labels import label_atlas, label_pairs, summarize_columns
from credibly.app.statistics.overview import first_look
from credibly.cli import main
from credibly.targets import Targets


def drawn(rows=4000, labels=4, seed=0, off=()):
    """Truth drawn from p; the probabilities of labels in ``off`` are half as high as they say."""
    rng = np.random.default_rng(seed)
    p = rng.uniform(0.05, 0.95, (rows, labels)).astype(np.float32)
    rates = np.where(np.isin(np.arange(labels), off), 0.5, 1.0)
    return p, (rng.random(p.shape) < p * rates).astype(np.int8)


def test_labels_that_are_off_come_first():
    p, y = drawn(off=(2,))
    found = first_look(
        Predictions.from_arrays(probabilities=p, targets=y, labels=list("abcd")), "p.parquet"
    )
    assert found.to_fix[0].label == "c"
    assert "too high" in found.to_fix[0].why
    assert f"{y[:, 2].sum():,}" in found.to_fix[0].why


def test_a_label_without_skill_is_to_be_fixed_and_good_ones_are_not():
    rng = np.random.default_rng(0)
    y = (rng.random((3000, 2)) < 0.3).astype(np.int8)
    p = np.column_stack([np.where(y[:, 0], 0.97, 0.01), np.full(3000, 0.3)])
    found = first_look(Predictions.from_arrays(probabilities=p, targets=y, labels=["x", "y"]), "p")
    assert [each.label for each in found.to_fix] == ["y"]
    assert "badly ranked" in found.to_fix[0].why


def flipped(rows=1500):
    """Sharp probabilities, and a truth of which one label in fifty is turned around."""
    rng = np.random.default_rng(0)
    p = 1 / (1 + np.exp(-rng.normal(0, 12, (rows, 4))))
    right = rng.random(p.shape) < p
    return p, (right ^ (rng.random(p.shape) < 0.02)).astype(np.int8)


def test_every_command_that_is_offered_runs(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    p, y = flipped()
    one = Predictions.from_arrays(probabilities=p, targets=y, labels=list("abcd"))
    one.write("my file.parquet")
    steps = first_look(one, "my file.parquet").steps
    commands = [shlex.split(step.command) for step in steps]
    assert [command[1] for command in commands] == ["calibrate", "review", "sets", "report"]
    for command in commands:
        assert main([*command[1:], "--quiet"]) == 0


def test_without_truth_the_next_step_is_to_bring_it():
    one = Predictions.from_arrays(probabilities=np.full((5, 2), 0.4), labels=["a", "b"])
    found = first_look(one, "p.parquet")
    assert found.to_fix == []
    assert "--truth" in found.steps[0].command


def test_the_atlas_has_the_numbers_of_every_table():
    p, y = drawn()
    y[np.random.default_rng(1).random(y.shape) < 0.3] = -1
    one = Predictions.from_arrays(probabilities=p, targets=y, labels=list("abcd"), coding="unknown")
    rows = (label_atlas(one.labels, p, y), summarize_columns(one.labels, p, y))
    atlas, expected = ([replace(row, noise=0.0, flag="") for row in each] for each in rows)
    assert atlas == expected


def test_the_noise_floor_is_what_right_probabilities_show():
    p, y = drawn(3000, 3)
    rows = label_atlas(list("abc"), p, y)
    for t, row in enumerate(rows):
        chance = metrics.calibration_noise(p[:, [t]], Targets(y[:, [t]]), repeats=60, min_count=30)
        assert row.noise == pytest.approx(float(chance), rel=0.12)


def test_pairs_count_rows_where_both_are_known():
    p, y = drawn(500, 3)
    y[:100, 0] = -1
    found = label_pairs(list("abc"), p, y)
    both = (y[:, 0] >= 0) & (y[:, 1] >= 0)
    assert found.real[0, 1] == ((y[:, 0] == 1) & (y[:, 1] == 1)).sum()
    assert found.expected[0, 1] == pytest.approx((p[both, 0] * p[both, 1]).sum(), rel=1e-5)


def test_the_report_says_where_to_begin_and_which_file_it_is_of(tmp_path):
    p, y = drawn(400, off=(2,))
    path = tmp_path / "mine.parquet"
    Predictions.from_arrays(probabilities=p, targets=y, labels=list("abcd")).write(path)
    text = report.write([path], tmp_path / "r.html", resamples=5).read_text()
    assert "Labels to fix first" in text
    assert hashlib.sha256(path.read_bytes()).hexdigest() in text
    assert "mine.parquet" in text
    assert str(tmp_path) not in text  # reports are mailed
