"""Properties of the choice of a calibrator."""

import numpy as np

from credibly import calibrate


def scores(rows: int, slope: float, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Return log-odds that are ``slope`` times too steep, and targets."""
    noise = np.random.default_rng(seed)
    truth = noise.normal(-1, 2, (rows, 3))
    return slope * truth, (noise.random((rows, 3)) < 1 / (1 + np.exp(-truth))).astype(np.int8)


def test_few_rows_of_scores_that_are_right_are_left_alone():
    names = [calibrate.choose(*scores(12, 1.0, seed)).name for seed in range(20)]
    assert names.count("none") > 10


def test_scores_that_are_off_are_mended():
    odds, targets = scores(1000, 3.0)
    assert calibrate.choose(odds + 1, targets, names=calibrate.SIMPLE).name != "none"


def test_a_map_that_makes_ties_is_taken_only_when_it_is_asked_for():
    noise = np.random.default_rng(0)
    odds = noise.normal(0, 2, (4000, 2))
    targets = (noise.random((4000, 2)) < np.where(odds > 0, 0.9, 0.1)).astype(np.int8)  # a step
    assert calibrate.choose(odds, targets).strict
    chosen = calibrate.choose(odds, targets, names=tuple(calibrate.CALIBRATORS))
    assert chosen.name == "isotonic"
