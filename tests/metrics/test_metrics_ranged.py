"""Average precision by ranges of values equals that of all values at once."""

from __future__ import annotations

import math

import numpy as np
import pytest

from credibly import InputError, metrics

VALUES = {
    "probabilities": lambda g: g.random(2000),
    "rare probabilities": lambda g: g.random(2000) ** 8,
    "scores": lambda g: 5 * g.normal(size=2000),
    "few values": lambda g: g.integers(-3, 4, 2000) / 4,
    "one value": lambda g: np.full(2000, 0.25),
    "both zeros and infinities": lambda g: g.choice([-0.0, 0.0, np.inf, -np.inf, 1.0], 2000),
}


@pytest.mark.parametrize("kind", VALUES)
@pytest.mark.parametrize("most", [1, 37, 500, 10_000])
def test_ranges_give_the_average_precision_of_the_whole(kind, most):
    generator = np.random.default_rng(0)
    values = VALUES[kind](generator).astype(np.float32)
    targets = generator.choice([0, 0, 0, 1, -1], 2000).astype(np.int8)
    calls = []

    def batches():
        calls.append(1)
        return zip(np.array_split(values, 7), np.array_split(targets, 7), strict=True)

    expected = metrics.average_precision(values[:, None], targets[:, None], coding="unknown")[0]
    found = metrics.ranged_average_precision(batches, most=most)
    assert found == pytest.approx(expected, rel=1e-12)
    assert len(calls) >= 2


def test_without_positives_it_is_nan_and_nan_is_refused():
    values = np.float32([0.1, 0.2])
    assert math.isnan(metrics.ranged_average_precision(lambda: [(values, np.array([0, -1]))]))
    with pytest.raises(InputError, match="NaN"):
        metrics.ranged_average_precision(lambda: [(values * np.nan, np.array([0, 1]))])
