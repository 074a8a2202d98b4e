"""What a candidate is said to cost, beside what it was measured to cost."""

import pytest

from credibly.train import Network
from credibly.train.auto import Size, estimated_seconds

MEASURED = [
    ("linear", Size(391, 72, 6, 5), 0.63),
    ("linear", Size(1211, 294, 6, 5), 0.6),
    ("linear", Size(333, 1449, 45, 5, 1396), 2.1),
    ("linear", Size(16000, 256, 10, 1), 1.6),
    ("linear", Size(4574, 1280, 20, 1), 6.7),
    ("linear", Size(16000, 256, 200, 1), 24.0),
    ("linear", Size(3904, 1836, 159, 1, 1800), 35.0),
    ("mlp", Size(391, 72, 6, 5), 2.0),
    ("mlp", Size(1500, 103, 14, 5), 7.6),
    ("mlp", Size(333, 1449, 45, 5, 1396), 12.4),
    ("mlp", Size(3904, 1836, 159, 1, 1800), 36.0),
    ("mlp", Size(66200, 256, 80, 1), 130.0),
    ("forest", Size(391, 72, 6, 5), 1.3),
    ("forest", Size(1500, 103, 14, 5), 5.9),
    ("forest", Size(333, 1449, 45, 5, 1396), 2.7),
    ("boosting", Size(129, 43, 7, 5, 8), 0.43),
    ("boosting", Size(326, 31, 12, 5, 3), 0.38),
    ("boosting", Size(391, 72, 6, 5), 0.53),
    ("boosting", Size(322, 271, 19, 5, 96), 2.5),
    ("boosting", Size(1500, 103, 14, 5), 2.9),
    ("boosting", Size(1211, 294, 6, 5), 2.2),
    ("boosting", Size(333, 1449, 45, 5, 1396), 3.0),
    ("boosting", Size(463, 1847, 27, 5, 1828), 1.4),
    ("boosting", Size(1123, 1001, 53, 5, 337), 39.0),
    ("boosting", Size(4573, 1280, 20, 1), 23.0),
    ("boosting", Size(16000, 256, 10, 1), 3.8),
    ("boosting", Size(17215, 500, 22, 1, 379), 12.0),
]
"""CPU seconds of candidates on shared sets, one thread."""


@pytest.mark.parametrize(("name", "size", "measured"), MEASURED)
def test_estimated_cost_is_near_the_measured(name, size, measured):
    assert 0.5 < estimated_seconds(name, size, Network()) / measured < 2
