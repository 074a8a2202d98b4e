"""Log-odds for other rates: Bayes' rule, and nothing where nothing changed."""

import numpy as np
import pytest
import torch
from numpy.testing import assert_allclose

from credibly import InputError
from credibly.calibrate import shift_rates

RATES = np.array([0.02, 0.3, 0.7])


def posterior(x, rates):
    """Two Gaussians a label, one apart from the other by 2, in log-odds."""
    densities = [-0.5 * (x - 1) ** 2, -0.5 * (x + 1) ** 2]
    present, absent = np.exp(densities[0]) * rates, np.exp(densities[1]) * (1 - rates)
    return np.log(present / absent)


@pytest.mark.parametrize("wanted", [0.2, np.array([0.5, 0.01, 0.7])], ids=["alike", "each"])
def test_shifting_is_bayes_rule(wanted):
    x = np.random.default_rng(0).normal(size=(50, 3))
    found = shift_rates(posterior(x, RATES), RATES, wanted)
    assert_allclose(found, posterior(x, np.broadcast_to(wanted, 3)), rtol=1e-12)


def test_there_and_back_and_nowhere():
    odds = np.random.default_rng(1).normal(0, 30, (20, 3))
    other = np.array([0.9, 0.1, 0.5])
    assert_allclose(shift_rates(shift_rates(odds, RATES, other), other, RATES), odds, rtol=1e-13)
    assert (shift_rates(odds, RATES, RATES) == odds).all()


def test_certainty_stays_and_kinds_are_kept():
    odds = torch.tensor([[-torch.inf, 0.0, torch.inf]])
    found = shift_rates(odds, RATES, 0.5)
    assert isinstance(found, torch.Tensor)
    assert found.dtype == torch.float32
    assert torch.isinf(found[0, [0, 2]]).all()
    assert shift_rates(np.zeros((1, 3)), RATES, 0.5).dtype == np.float64


def test_rare_labels_catch_up_in_sets_of_the_same_size():
    """One label per row, a tail, then balanced rows."""
    rng = np.random.default_rng(2)
    rates = np.array([0.7, 0.2, 0.1])
    truth = np.repeat([0, 1, 2], 500)
    evidence = 2.0 * np.eye(3)[truth] + rng.normal(size=(1500, 3))
    scores = evidence + np.log(rates)
    log_p = scores - np.log(np.exp(scores).sum(axis=1, keepdims=True))
    odds = log_p - np.log1p(-np.exp(log_p))
    for given, better in ((odds, False), (shift_rates(odds, rates, 1 / 3), True)):
        chosen = given >= np.sort(given, axis=None)[-1500]
        rare = chosen[truth == 2, 2].mean()
        assert (rare > 0.6) == better


@pytest.mark.parametrize(
    ("trained", "wanted", "message"),
    [
        ([0.5, 0.5], 0.5, "one rate per label \\(3\\)"),
        ([0.5, 0.0, 0.5], 0.5, "`trained` must lie between 0 and 1"),
        (RATES, 1.0, "`wanted` must lie between 0 and 1"),
        (RATES, np.nan, "`wanted` must lie between 0 and 1"),
    ],
)
def test_rates_that_are_none_are_refused(trained, wanted, message):
    with pytest.raises(InputError, match=message):
        shift_rates(np.zeros((2, 3)), trained, wanted)
