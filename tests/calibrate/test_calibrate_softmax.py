"""Maps for labels that exclude each other keep rows summing to one."""

import numpy as np
import pytest
import torch
from numpy.testing import assert_allclose
from scipy.optimize import minimize
from scipy.special import expit, log_softmax, softmax

from credibly import InputError, calibrate

NAMES = ["softmax-temperature", "vector"]


def log_odds(shares):
    return np.log(shares) - np.log1p(-shares)


def draw(rows=1500, labels=4, seed=0, none=False):
    """Return softmax log-odds, sharper than the truth and shifted, and targets."""
    noise = np.random.default_rng(seed)
    scores = noise.normal(0, 1.5, (rows, labels + none))
    targets = np.array([noise.multinomial(1, row) for row in softmax(scores, axis=1)])
    bent = 2 * scores
    bent[:, :labels] += np.linspace(0, 1, labels)
    return log_odds(softmax(bent, axis=1)[:, :labels]), targets[:, :labels]


@pytest.mark.parametrize("none", [False, True])
@pytest.mark.parametrize("name", NAMES)
def test_rows_sum_to_what_they_should(name, none):
    odds, targets = draw(none=none)
    fitted = calibrate.from_name(name).fit(odds, targets)
    sums = expit(fitted.transform(odds)).sum(axis=1)
    if none:
        assert (sums < 1).all()
        assert_allclose(sums.mean(), targets.sum(axis=1).mean(), atol=0.03)
    else:
        assert_allclose(sums, 1, atol=1e-9)


@pytest.mark.parametrize("none", [False, True])
@pytest.mark.parametrize("name", NAMES)
def test_the_fit_minimises_cross_entropy(name, none):
    """Against a general minimiser of the sum written out, with the priors."""
    odds, targets = draw(none=none)
    shares = expit(odds)
    truth = targets.astype(float)
    if none:
        shares = np.c_[shares, 1 - shares.sum(axis=1)]
        truth = np.c_[truth, 1 - truth.sum(axis=1)]
    scores, labels = np.log(shares), targets.shape[1]

    def cost(theta):
        moved = np.exp(theta[0]) * scores
        moved[:, :labels] += theta[1:] if name == "vector" else 0.0
        prior = 0.5 * (theta[0] / 3) ** 2 + 0.5 * (theta[1:] ** 2).sum()
        return prior - (truth * log_softmax(moved, axis=1)).sum()

    found = minimize(cost, np.zeros(1 + labels * (name == "vector"))).x
    fitted = calibrate.from_name(name).fit(odds, targets)
    assert_allclose(fitted.slope, np.exp(found[0]), rtol=1e-4)
    if name == "vector":
        assert_allclose(fitted.biases, found[1:], atol=2e-4)


@pytest.mark.parametrize("none", [False, True])
@pytest.mark.parametrize("name", NAMES)
def test_state_and_module_are_the_map(name, none):
    odds, targets = draw(none=none)
    fitted = calibrate.from_name(name).fit(odds, targets)
    again = calibrate.from_state(fitted.state())
    assert np.array_equal(again.transform(odds), fitted.transform(odds))
    module = fitted.to_module()(torch.from_numpy(odds))
    assert_allclose(expit(module.numpy()), expit(fitted.transform(odds)), atol=1e-9)


@pytest.mark.parametrize("name", NAMES)
def test_certain_rows_stay_rows(name):
    odds, targets = draw()
    fitted = calibrate.from_name(name).fit(odds, targets)
    certain = np.array([[np.inf, -np.inf, -np.inf, -np.inf], [800.0, -800.0, -900.0, -1000.0]])
    found = expit(fitted.transform(certain))
    assert_allclose(found.sum(axis=1), 1)
    assert (found[:, 0] > 0.99).all()


@pytest.mark.parametrize("name", NAMES)
def test_unknown_labels_take_no_part(name):
    odds, targets = draw()
    part = odds.copy()
    targets[:, 3] = np.where(np.arange(len(targets)) % 2, -1, targets[:, 3])
    first = calibrate.from_name(name).fit(odds, targets).state()
    part[targets < 0] = 5.0  # what stands there does not matter to the row
    part[targets < 0] = odds[targets < 0]
    assert calibrate.from_name(name).fit(part, targets).state() == first


@pytest.mark.parametrize("name", NAMES)
def test_labels_on_their_own_are_refused(name):
    odds, targets = draw()
    with pytest.raises(InputError, match="sum to at most 1 in each row"):
        calibrate.from_name(name).fit(odds + 2, targets)
