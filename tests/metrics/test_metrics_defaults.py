"""A streaming metric without options gives what its function gives without options."""

from __future__ import annotations

import inspect

import numpy as np
import pytest
import torch

from credibly import metrics

PAIRS = {
    "CalibrationError": metrics.calibration_error,
    "LogLoss": metrics.log_loss,
    "Brier": metrics.brier,
    "AveragePrecision": metrics.average_precision,
}
# Averages of precision are over labels by default in a stream, one per label in the function; the
# stream counts in bins, of which there are many.
OWN = {"AveragePrecision": {"average", "bins"}}


def test_every_streaming_metric_has_a_function():
    assert set(PAIRS) == set(metrics.streaming.__all__)


def defaults(function):
    found = inspect.signature(function).parameters.values()
    return {each.name: each.default for each in found if each.default is not each.empty}


@pytest.mark.parametrize("name", PAIRS)
def test_defaults_are_those_of_the_function(name):
    mine = defaults(getattr(metrics.streaming, name).__init__)
    theirs = defaults(PAIRS[name])
    shared = mine.keys() & theirs.keys() - OWN.get(name, set())
    assert {key: mine[key] for key in shared} == {key: theirs[key] for key in shared}
    assert shared or name in OWN


@pytest.mark.parametrize("name", [name for name in PAIRS if name not in OWN])
def test_values_without_options_are_those_of_the_function(name):
    rng = np.random.default_rng(0)
    p = torch.from_numpy(rng.random((300, 6)).astype(np.float32))
    y = torch.from_numpy(rng.integers(-1, 2, (300, 6)))
    y[:, 0] = torch.clamp(y[:, 0], min=0)
    p[0, 0], y[0, 0] = 0.0, 1  # a certain probability that is wrong
    stream = getattr(metrics.streaming, name)(6)
    for start in range(0, 300, 70):
        stream.update(p[start : start + 70], y[start : start + 70])
    found, expected = stream.compute(), PAIRS[name](p, y)
    np.testing.assert_allclose(found, expected, rtol=1e-9)


def test_a_summary_has_the_defaults_of_its_accumulator_and_of_the_functions():
    made = defaults(metrics.Summary.__init__)
    for function in (metrics.summary, metrics.summary_intervals):
        mine = defaults(function)
        assert mine["min_count"] == defaults(metrics.Summary.numbers)["min_count"]
        assert mine["bins"] == made["bins"] == defaults(metrics.calibration_error)["bins"]
