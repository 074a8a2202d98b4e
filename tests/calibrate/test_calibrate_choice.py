"""Properties of the choice of a calibrator on left-out rows."""

import numpy as np
import pytest
from numpy.testing import assert_allclose

from credibly import InputError, calibrate
from credibly.calibrate import choose
from credibly.names import CALIBRATORS

LABELWISE = tuple(name for name in CALIBRATORS if name != "isotonic")
EXCLUSIVE = ("none", "softmax-temperature", "vector")


def sigmoid(log_odds):
    return 1 / (1 + np.exp(-log_odds))


def draw(rows=3000, labels=4, seed=0):
    """Return true log-odds and targets."""
    noise = np.random.default_rng(seed)
    truth = noise.normal(-1.0, 1.5, (rows, labels))
    return truth, (noise.random(truth.shape) < sigmoid(truth)).astype(np.int8)


def draw_one_each(rows=3000, labels=4, seed=0):
    """Return scores whose softmax is the truth, and targets with one label per row."""
    noise = np.random.default_rng(seed)
    scores = noise.normal(0, 2.0, (rows, labels))
    shares = np.exp(scores) / np.exp(scores).sum(axis=1, keepdims=True)
    return scores, np.array([noise.multinomial(1, row) for row in shares])


def softmax_log_odds(scores):
    shares = np.exp(scores - scores.max(axis=1, keepdims=True))
    shares /= shares.sum(axis=1, keepdims=True)
    return np.log(shares) - np.log1p(-shares)


DAMAGE = {
    "none": lambda g: g,
    "temperature": lambda g: 3 * g,
    "affine": lambda g: 2 * g + 3,
    "beta": lambda g: np.where(g > 0, 4 * g, 0.5 * g) + 0.5,
    "per-label": lambda g: g * np.array([0.4, 1.0, 2.5, 1.0]) + np.array([0, 2, 0, -2]),
    "isotonic": lambda g: np.sign(g + 1) * np.abs(g + 1) ** 3,
}


def row_losses(name, odds, targets, folds=5, seed=0):
    """Return the out-of-fold log loss of each row, by exact fits, written out."""
    rows = np.random.default_rng(seed).permutation(len(odds))
    fold = np.empty(len(odds), int)
    fold[rows] = np.arange(len(odds)) % folds
    mapped = np.empty(odds.shape)
    for held in range(folds):
        fitted = calibrate.from_name(name).fit(odds[fold != held], targets[fold != held])
        mapped[fold == held] = fitted.transform(odds[fold == held])
    known = targets >= 0
    cost = np.logaddexp(0, mapped) - np.where(known, targets, 0) * mapped
    return np.where(known, cost, 0).sum(axis=1), known.sum(axis=1)


@pytest.mark.parametrize("name", DAMAGE)
def test_the_map_that_undoes_the_damage_is_found(name):
    truth, targets = draw(seed=12)
    names = (*LABELWISE, *(["isotonic"] if name == "isotonic" else []))
    found = choose({"scores": DAMAGE[name](truth)}, targets, names=names)
    assert found.calibrator.name == name


@pytest.mark.parametrize("name", ["softmax-temperature", "vector", "none"])
def test_the_softmax_map_that_undoes_the_damage_is_found(name):
    scores, targets = draw_one_each()
    damage = {
        "none": scores,
        "softmax-temperature": 3 * scores,
        "vector": 2 * scores + np.arange(4),
    }
    found = choose({"scores": softmax_log_odds(damage[name])}, targets, exclusive=True)
    assert found.calibrator.name == name
    assert [each.calibrator for each in found.candidates] == list(EXCLUSIVE)


@pytest.mark.parametrize("unknown", [False, True])
def test_losses_and_errors_are_those_of_exact_fits_on_other_rows(unknown):
    """Fits and losses in bins agree with fits on the entries to far less than their errors."""
    truth, targets = draw(rows=400, seed=3)
    if unknown:
        targets[::3, 1], targets[5:30] = -1, -1
    odds = 1.7 * truth + 0.4
    keep = (targets >= 0).any(axis=1)
    odds, targets = odds[keep], targets[keep]
    found = {each.calibrator: each for each in choose({"scores": odds}, targets).candidates}
    exact = {name: row_losses(name, odds, targets) for name in LABELWISE}
    means = {name: cost.sum() / mass.sum() for name, (cost, mass) in exact.items()}
    lowest = min(means, key=lambda name: means[name])
    for name, (cost, mass) in exact.items():
        assert_allclose(found[name].log_loss, means[name], atol=5e-5)
        apart = cost - exact[lowest][0] - mass * (means[name] - means[lowest])
        error = np.sqrt((apart**2).sum() * len(mass) / (len(mass) - 1)) / mass.sum()
        assert_allclose(found[name].error, error, rtol=0.02, atol=1e-6)


@pytest.mark.parametrize("seed", range(10))
@pytest.mark.parametrize("rows", [8, 30, 200])
def test_the_choice_is_beaten_by_no_other_by_more_than_one_standard_error(rows, seed):
    truth, targets = draw(rows=rows, seed=seed)
    stages = {"link": truth * 0.7, "raw": truth * 2 + 1}
    found = choose(stages, targets)
    losses = {(one.stage, one.calibrator): one for one in found.candidates}
    chosen = losses[found.stage, found.calibrator.name]
    assert chosen.above_best <= chosen.error
    assert list(losses) == [(stage, name) for name in LABELWISE for stage in stages]
    simpler = list(losses.values())[: list(losses.values()).index(chosen)]
    if rows == 200:  # one of them is beaten by the lowest, or by another
        assert all(one.above_best > 0 for one in simpler)


def test_the_stage_that_knows_more_is_chosen():
    truth, targets = draw(seed=5)
    found = choose({"link": np.maximum(truth, -1.0), "raw": 2 * truth + 1}, targets)
    assert (found.stage, found.calibrator.name) == ("raw", "affine")


def test_of_equal_stages_the_first_is_chosen():
    truth, targets = draw(seed=5)
    assert choose({"link": 2 * truth + 1, "raw": 4 * truth}, targets).stage == "link"


def test_a_probability_of_zero_that_happened_is_never_left_as_it_is():
    truth, targets = draw(seed=6)
    truth[targets[:, 0] == 1, 0] = -np.inf
    found = choose({"given": truth}, targets)
    assert found.calibrator.name != "none"
    assert found.candidates[0].log_loss == np.inf


def test_few_rows_of_scores_that_are_right_are_left_alone():
    names = []
    for seed in range(20):
        truth, targets = draw(rows=12, labels=3, seed=seed)
        names.append(choose({"scores": truth}, targets).calibrator.name)
    assert names.count("none") > 10


def test_a_map_that_makes_ties_is_taken_only_when_it_is_asked_for():
    noise = np.random.default_rng(0)
    odds = noise.normal(0, 2, (4000, 2))
    targets = (noise.random((4000, 2)) < np.where(odds > 0, 0.9, 0.1)).astype(np.int8)  # a step
    assert choose({"scores": odds}, targets).calibrator.strict
    named = choose({"scores": odds}, targets, names=tuple(CALIBRATORS))
    assert named.calibrator.name == "isotonic"


def test_the_choice_depends_on_the_seed_alone():
    truth, targets = draw(rows=300)
    first = choose({"scores": truth}, targets, seed=5)
    assert first.candidates == choose({"scores": truth}, targets, seed=5).candidates
    assert first.candidates != choose({"scores": truth}, targets, seed=6).candidates


def test_the_choice_of_very_many_rows_is_made_on_some(monkeypatch):
    truth, targets = draw(rows=2000)
    whole = choose({"scores": 2 * truth + 1}, targets)
    monkeypatch.setattr("credibly.calibrate.auto.MAX_ENTRIES", 2000)
    some = choose({"scores": 2 * truth + 1}, targets)
    assert some.candidates != whole.candidates
    assert some.calibrator.state() == whole.calibrator.state()  # fitted on all rows


def test_one_row_is_too_few_to_compare():
    found = choose({"scores": np.zeros((3, 2))}, np.array([[1, 0], [-1, -1], [-1, -1]]))
    assert found.calibrator.name == "none"
    assert found.candidates == ()
    with pytest.raises(InputError, match="calibration needs known targets"):
        choose({"scores": np.zeros((3, 2))}, np.full((3, 2), -1), coding="unknown")


def test_weights_count_as_repeated_rows():
    truth, targets = draw(rows=200)
    weights = np.ones(200)
    weights[:50] = 0
    some = choose({"scores": 2 * truth}, targets, weights)
    less = choose({"scores": 2 * truth[50:]}, targets[50:])
    assert some.calibrator.name == less.calibrator.name
    assert_allclose(some.candidates[0].log_loss, less.candidates[0].log_loss)
