"""What the fits find, against independent references."""

import numpy as np
import pytest
from numpy.testing import assert_allclose
from scipy.optimize import minimize
from sklearn.isotonic import IsotonicRegression
from sklearn.linear_model import LogisticRegression

from credibly import InputError
from credibly.calibrate import Affine, Beta, Isotonic, PerLabel, Temperature


def sigmoid(log_odds):
    return 1 / (1 + np.exp(-log_odds))


def draw(rows=2000, labels=4, seed=0, slope=2.0, shift=1.0):
    noise = np.random.default_rng(seed)
    truth = noise.normal(-1.0, 1.5, (rows, labels))
    targets = (noise.random(truth.shape) < sigmoid(truth)).astype(int)
    return slope * truth + shift, targets, truth


def test_affine_equals_logistic_regression():
    log_odds, targets, _ = draw()
    found = Affine().fit(log_odds, targets)
    reference = LogisticRegression(C=np.inf, tol=1e-10).fit(
        log_odds.reshape(-1, 1), targets.ravel()
    )
    # The weak prior moves the fit by far less than its standard error of about 0.02.
    assert found.slope == pytest.approx(reference.coef_[0, 0], abs=1e-4)
    assert found.intercept == pytest.approx(reference.intercept_[0], abs=1e-3)


def test_affine_with_weights_and_unknowns_equals_logistic_regression():
    log_odds, targets, _ = draw(seed=1)
    targets[::5, 1] = -1
    weights = np.random.default_rng(1).random(targets.shape) * 3
    found = Affine().fit(log_odds, targets, weights)
    known = targets >= 0
    reference = LogisticRegression(C=np.inf, tol=1e-10).fit(
        log_odds[known][:, None], targets[known], sample_weight=weights[known]
    )
    assert found.slope == pytest.approx(reference.coef_[0, 0], abs=1e-4)
    assert found.intercept == pytest.approx(reference.intercept_[0], abs=1e-3)


def test_temperature_equals_regression_without_intercept():
    log_odds, targets, _ = draw(seed=2, shift=0.0)
    found = Temperature().fit(log_odds, targets)
    reference = LogisticRegression(C=np.inf, tol=1e-10, fit_intercept=False)
    reference.fit(log_odds.reshape(-1, 1), targets.ravel())
    assert found.slope == pytest.approx(reference.coef_[0, 0], abs=1e-4)


def test_beta_equals_regression_on_both_ends():
    log_odds, targets, truth = draw(rows=4000, seed=3)
    log_odds = np.where(truth > 0, 3 * truth, truth)  # bent at ½, as beta maps are
    found = Beta().fit(log_odds, targets)
    g = log_odds.reshape(-1, 1)
    ends = np.hstack([-np.logaddexp(0, -g), np.logaddexp(0, g)])
    reference = LogisticRegression(C=np.inf, tol=1e-10).fit(ends, targets.ravel())
    assert_allclose([found.slope_low, found.slope_high], reference.coef_[0], atol=2e-3)
    assert found.slope_low > 1.5 * found.slope_high


def test_isotonic_equals_scikit_learn_away_from_the_ends():
    log_odds, targets, _ = draw(seed=4)
    found = sigmoid(Isotonic().fit(log_odds, targets).transform(log_odds))
    reference = IsotonicRegression().fit_transform(log_odds.ravel(), targets.ravel())
    inside = (reference > 0) & (reference < 1)
    assert inside.mean() > 0.9
    assert_allclose(found.ravel()[inside], reference[inside], atol=1e-12)


def test_isotonic_never_says_never():
    log_odds = np.arange(10.0)[:, None]
    found = Isotonic().fit(log_odds, log_odds >= 4)
    rates = sigmoid(found.transform(log_odds)).ravel()
    assert_allclose(rates, [0.5 / 5] * 4 + [1 - 0.5 / 7] * 6)


def test_the_floor_is_the_rate_of_what_was_called_impossible():
    """A plateau of −inf with 1 % positives: probability 0 costs infinitely much, 1 % the least."""
    noise = np.random.default_rng(6)
    log_odds, targets, _ = draw(rows=5000, seed=6, slope=1.0, shift=0.0)
    plateau = noise.random(targets.shape) < 0.3
    log_odds[plateau] = -np.inf
    targets[plateau] = noise.random(plateau.sum()) < 0.01
    found = Affine().fit(log_odds, targets)
    rate = targets[plateau].mean()
    assert sigmoid(found.transform(np.array([[-np.inf]]))).item() == pytest.approx(rate, rel=0.3)
    assert found.slope == pytest.approx(1.0, abs=0.1)


def test_a_few_extreme_mistakes_do_not_flatten_the_slope():
    log_odds, targets, _ = draw(rows=5000, seed=7, slope=1.0, shift=0.0)
    log_odds[:40, 0], targets[:40, 0] = -60.0, 1
    log_odds[40:1000, 0], targets[40:1000, 0] = -60.0, 0
    assert Affine().fit(log_odds, targets).slope == pytest.approx(1.0, abs=0.1)


def test_shared_fit_is_the_best_of_its_kind():
    """Nelder–Mead on the plain formula finds nothing better, limits fitted and all."""
    noise = np.random.default_rng(8)
    log_odds = noise.normal(-2, 3, (500, 2))
    targets = (noise.random((500, 2)) < 0.05 + 0.9 * sigmoid(3 * log_odds)).astype(float)
    log_odds = np.where(log_odds < -4, -np.inf, 4 * log_odds)
    found = Affine().fit(log_odds, targets)

    def cost(parameters):
        a, b, low = parameters
        g = np.exp(a) * log_odds + b
        g = np.where(g < low, low - 1 + 1 / (1 + np.maximum(low - g, 0)), g)
        return np.sum(np.logaddexp(0, g) - targets * g)

    start = [np.log(found.slope), found.intercept, found.floor]
    best = minimize(cost, start, method="Nelder-Mead", options={"xatol": 1e-6, "fatol": 1e-8})
    assert found.floor > -np.log(2001) + 1
    assert cost(start) <= best.fun + 0.5


def hierarchical(rows, labels, spread, seed):
    """Labels whose own slope and intercept differ from the shared ones by ``spread``."""
    noise = np.random.default_rng(seed)
    truth = noise.normal(-2.0, 2.0, (rows, labels))
    targets = (noise.random(truth.shape) < sigmoid(truth)).astype(int)
    slope = np.exp(noise.normal(0, spread / 2, labels))
    return (truth - noise.normal(0, spread, labels)) / slope, targets, truth


def kl(log_odds, truth):
    p, q = sigmoid(truth), sigmoid(log_odds)
    return float(np.mean(p * np.log(p / q) + (1 - p) * np.log((1 - p) / (1 - q))))


@pytest.mark.parametrize(("rows", "spread"), [(100, 1.0), (1000, 0.7), (100, 0.0)])
def test_shrinking_beats_one_map_for_all_and_separate_maps(rows, spread):
    shared, shrunk, separate = 0.0, 0.0, 0.0
    for seed in range(4):
        log_odds, targets, truth = hierarchical(rows, 12, spread, seed)
        shared += kl(Affine().fit(log_odds, targets).transform(log_odds), truth)
        shrunk += kl(PerLabel().fit(log_odds, targets).transform(log_odds), truth)
        columns = [
            Affine().fit(log_odds[:, [i]], targets[:, [i]]).transform(log_odds[:, [i]])
            for i in range(12)
        ]
        separate += kl(np.hstack(columns), truth)
    if spread:
        assert shrunk < 0.2 * shared
        assert shrunk < 1.05 * separate
    else:
        assert shrunk < 0.2 * separate


def test_labels_alike_stay_with_the_shared_map():
    log_odds, targets, _ = draw(rows=1000, labels=10, seed=9)
    found = PerLabel().fit(log_odds, targets)
    assert_allclose(found.slopes, found.slope, rtol=0.1)


def test_a_label_without_known_rows_takes_the_shared_map():
    log_odds, targets, _ = hierarchical(300, 5, 1.0, 10)
    targets[:, 3] = -1
    found = PerLabel().fit(log_odds, targets)
    assert found.slopes[3] == pytest.approx(found.slope, rel=1e-6)
    assert found.intercepts[3] == pytest.approx(found.intercept, abs=1e-6)


def test_a_label_with_few_known_rows_is_shrunk_more():
    log_odds, targets, _ = hierarchical(2000, 8, 0.8, 11)
    at = log_odds.mean()

    def share_of_own_way(rows):
        known = np.where(np.arange(2000)[:, None] < [rows] + [2000] * 7, targets, -1)
        found = PerLabel().fit(log_odds, known)
        alone = Affine().fit(log_odds[:, :1], known[:, :1])
        shared = found.slope * at + found.intercept
        own = alone.slope * at + alone.intercept
        return (found.slopes[0] * at + found.intercepts[0] - shared) / (own - shared)

    assert 0 < share_of_own_way(30) < share_of_own_way(200) < share_of_own_way(2000) < 1.05


def test_per_label_refuses_other_numbers_of_labels():
    log_odds, targets, _ = draw(rows=50)
    with pytest.raises(InputError, match="must have 4 columns"):
        PerLabel().fit(log_odds, targets).transform(log_odds[:, :2])


def test_fitting_takes_little_memory():
    import tracemalloc

    log_odds, targets, _ = draw(rows=20_000, labels=40)
    log_odds, targets = log_odds.astype(np.float32), targets.astype(np.int8)
    Affine().fit(log_odds, targets)
    tracemalloc.start()
    Affine().fit(log_odds, targets)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 20e6  # a float64 copy of one array alone would take 6.4 MB, ten of them 64
