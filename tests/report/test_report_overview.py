"""Where to begin: labels that are wrong come first, and every command that is offered runs."""

from __future__ import annotations

import hashlib
import re
import shlex

import numpy as np
import pytest
from reported import atlas, predictions, served

from credibly import metrics
from credibly.app import report
from credibly.cli import main
from credibly.targets import Targets


def overview(one, path):
    one.write(path)
    return served(path).get("/api/overview").json()


def drawn(rows=4000, labels=4, seed=0, off=()):
    """Truth drawn from p; the probabilities of labels in ``off`` are half as high as they say."""
    rng = np.random.default_rng(seed)
    p = rng.uniform(0.05, 0.95, (rows, labels)).astype(np.float32)
    rates = np.where(np.isin(np.arange(labels), off), 0.5, 1.0)
    return p, (rng.random(p.shape) < p * rates).astype(np.int8)


def test_labels_that_are_off_come_first(tmp_path):
    p, y = drawn(off=(2,))
    (first, *_) = overview(predictions(p, y, list("abcd")), tmp_path / "p")["labels_to_fix"]
    assert first["label"] == "c"
    assert "too high" in first["why"]
    assert f"{y[:, 2].sum():,}" in first["why"]


def test_a_label_without_skill_is_to_be_fixed_and_good_ones_are_not(tmp_path):
    rng = np.random.default_rng(0)
    y = (rng.random((3000, 2)) < 0.3).astype(np.int8)
    p = np.column_stack([np.where(y[:, 0], 0.97, 0.01), np.full(3000, 0.3)])
    (found,) = overview(predictions(p, y, ["x", "y"]), tmp_path / "p")["labels_to_fix"]
    assert found["label"] == "y"
    assert "badly ranked" in found["why"]


def flipped(rows=1500):
    """Sharp probabilities, and a truth of which one label in fifty is turned around."""
    rng = np.random.default_rng(0)
    p = 1 / (1 + np.exp(-rng.normal(0, 12, (rows, 4))))
    right = rng.random(p.shape) < p
    return p, (right ^ (rng.random(p.shape) < 0.02)).astype(np.int8)


def test_every_command_that_is_offered_runs(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    p, y = flipped()
    steps = overview(predictions(p, y, list("abcd")), "my file.parquet")["steps"]
    commands = [shlex.split(step["command"]) for step in steps]
    assert [command[1] for command in commands] == ["calibrate", "review", "sets", "report"]
    for command in commands:
        assert main([*command[1:], "--quiet"]) == 0


def test_without_truth_the_next_step_is_to_bring_it(tmp_path):
    found = overview(predictions(np.full((5, 2), 0.4), None, ["a", "b"]), tmp_path / "p.parquet")
    assert found["labels_to_fix"] == []
    assert "--truth" in found["steps"][0]["command"]


def test_the_noise_floor_is_what_right_probabilities_show(tmp_path):
    p, y = drawn(3000, 3)
    for t, row in enumerate(atlas(predictions(p, y), tmp_path)):
        chance = metrics.calibration_noise(p[:, [t]], Targets(y[:, [t]]), repeats=60, min_count=30)
        assert row["noise"] == pytest.approx(float(chance), rel=0.12)


def test_pairs_count_rows_where_both_are_known(tmp_path):
    p, y = drawn(500, 3)
    y[:100, 0] = -1
    predictions(p, y, list("abc"), coding="unknown").write(tmp_path / "p.parquet")
    page = served(tmp_path / "p.parquet").get("/pairs").text
    real, expected = re.search(r'title="a and b: (\d+) real, ([\d.]+) expected"', page).groups()
    both = (y[:, 0] >= 0) & (y[:, 1] >= 0)
    assert int(real) == ((y[:, 0] == 1) & (y[:, 1] == 1)).sum()
    assert float(expected) == pytest.approx((p[both, 0] * p[both, 1]).sum(), abs=0.051)


def test_the_report_says_where_to_begin_and_which_file_it_is_of(tmp_path):
    p, y = drawn(400, off=(2,))
    path = tmp_path / "mine.parquet"
    predictions(p, y, list("abcd")).write(path)
    text = report.write([path], tmp_path / "r.html", resamples=5).read_text()
    assert "Labels to fix first" in text
    assert hashlib.sha256(path.read_bytes()).hexdigest() in text
    assert "mine.parquet" in text
    assert str(tmp_path) not in text  # reports are mailed
