"""Properties of every calibrator."""

import json
import warnings
from pathlib import Path

import numpy as np
import pytest
import torch
from numpy.testing import assert_allclose, assert_array_equal

from credibly import InputError, calibrate, names
from credibly.calibrate import Affine, Identity, Isotonic

CALIBRATORS = [type(calibrate.from_name(name)) for name in names.CALIBRATORS]
FITTED = [kind for kind in CALIBRATORS if kind is not Identity]
each = pytest.mark.parametrize("kind", CALIBRATORS, ids=lambda kind: kind.name)
each_fitted = pytest.mark.parametrize("kind", FITTED, ids=lambda kind: kind.name)
each_parametric = pytest.mark.parametrize(
    "kind", [kind for kind in FITTED if kind is not Isotonic], ids=lambda kind: kind.name
)


def test_the_names_known_without_torch_are_those_of_the_registry():
    assert [kind.name for kind in CALIBRATORS] == list(names.CALIBRATORS)


@each
def test_every_calibrator_is_listed_in_the_documentation(kind):
    page = (Path(__file__).parents[2] / "docs" / "guide" / "calibration.md").read_text(
        encoding="utf-8"
    )
    assert f"| `{kind.name}` |" in page, "add a row to the table of docs/guide/calibration.md"


def test_every_exported_calibrator_is_in_the_registry():
    exported = [vars(calibrate)[name] for name in calibrate.__all__]
    classes = {kind for kind in exported if isinstance(kind, type)} - {calibrate.Calibrator}
    kinds = {kind for kind in classes if issubclass(kind, calibrate.Calibrator)}
    methods = [name for name in names.METHODS if name != "auto"]
    known = {type(calibrate.from_name(name)) for name in methods}
    assert kinds <= known, "give it its place in CALIBRATORS of src/credibly/names.py"


def sigmoid(log_odds):
    return 1 / (1 + np.exp(-log_odds))


def loss(log_odds, targets):
    known = targets >= 0
    g, y = log_odds[known], targets[known]
    return float(np.mean(y * np.logaddexp(0, -g) + (1 - y) * np.logaddexp(0, g)))


def draw(rows=400, labels=5, seed=0):
    """Overconfident, shifted log-odds; rows without labels, rows of unknowns, a label never on."""
    noise = np.random.default_rng(seed)
    truth = noise.normal(-1.0, 1.5, (rows, labels))
    targets = (noise.random(truth.shape) < sigmoid(truth)).astype(np.int8)
    targets[noise.random(truth.shape) < 0.1] = -1
    targets[:3] = 0
    targets[3:6] = -1
    targets[:, 2] = np.minimum(targets[:, 2], 0)
    return 2.0 * truth + 1.0, targets


@each_fitted
def test_fitting_lowers_the_log_loss_of_miscalibrated_log_odds(kind):
    log_odds, targets = draw()
    fitted = kind().fit(log_odds, targets).transform(log_odds)
    assert loss(fitted, targets) < loss(log_odds, targets) - 0.05


@each
def test_order_within_a_label_is_kept(kind):
    log_odds, targets = draw()
    calibrator = kind().fit(log_odds, targets)
    ramp = np.tile(np.linspace(-40, 40, 2001)[:, None], (1, 5))
    steps = np.diff(calibrator.transform(ramp), axis=0)
    assert (steps >= 0).all() if kind is Isotonic else (steps > 0).all()


@each_fitted
def test_every_output_is_finite_and_infinities_come_out_at_the_ends(kind):
    log_odds, targets = draw()
    calibrator = kind().fit(log_odds, targets)
    rows = np.tile(np.array([-np.inf, -1e300, -1e4, 0.0, 1e4, 1e300, np.inf])[:, None], (1, 5))
    outputs = calibrator.transform(rows)
    assert np.isfinite(outputs).all()
    assert (np.diff(outputs, axis=0) >= 0).all()


@each_fitted
def test_unknown_entries_change_nothing(kind):
    log_odds, targets = draw()
    garbled = np.where(targets < 0, np.nan, log_odds)
    assert kind().fit(garbled, targets).state() == kind().fit(log_odds, targets).state()


@each_fitted
def test_rows_of_unknowns_and_of_weight_zero_are_as_if_absent(kind):
    log_odds, targets = draw()
    known = (targets >= 0).any(axis=1)
    weights = np.ones(len(targets))
    weights[::7] = 0
    first = kind().fit(log_odds, targets, weights).transform(log_odds)
    keep = known & (weights > 0)
    second = kind().fit(log_odds[keep], targets[keep]).transform(log_odds)
    assert_allclose(first, second, rtol=1e-9, atol=1e-9)


@each_fitted
def test_an_integer_weight_is_that_many_copies(kind):
    log_odds, targets = draw()
    copies = np.random.default_rng(1).integers(0, 3, len(targets))
    weighted = kind().fit(log_odds, targets, copies).transform(log_odds)
    repeated = kind().fit(np.repeat(log_odds, copies, 0), np.repeat(targets, copies, 0))
    assert_allclose(weighted, repeated.transform(log_odds), rtol=1e-6, atol=1e-6)


@each_parametric
def test_a_soft_target_is_a_mixture_of_both_hard_ones(kind):
    log_odds, targets = draw()
    soft = np.where(targets < 0, -1.0, 0.25 + 0.5 * targets)
    one = kind().fit(log_odds, soft).transform(log_odds)
    doubled = np.concatenate([np.where(targets < 0, -1, 1), np.where(targets < 0, -1, 0)])
    shares = np.concatenate([soft, 1 - soft])
    both = kind().fit(np.tile(log_odds, (2, 1)), doubled, np.maximum(shares, 0))
    assert_allclose(one, both.transform(log_odds), rtol=1e-6, atol=1e-6)


@each
def test_rows_in_any_order_give_the_same_map(kind):
    log_odds, targets = draw()
    order = np.random.default_rng(2).permutation(len(targets))
    one = kind().fit(log_odds, targets).transform(log_odds)
    other = kind().fit(log_odds[order], targets[order]).transform(log_odds)
    assert_allclose(one, other, rtol=1e-8, atol=1e-8)


@each
def test_labels_in_any_order_give_the_same_map(kind):
    log_odds, targets = draw()
    order = [3, 0, 4, 1, 2]
    one = kind().fit(log_odds, targets).transform(log_odds)
    other = kind().fit(log_odds[:, order], targets[:, order]).transform(log_odds[:, order])
    assert_allclose(one[:, order], other, rtol=1e-6, atol=1e-6)


@each
def test_the_state_survives_json_exactly(kind):
    log_odds, targets = draw()
    calibrator = kind().fit(log_odds, targets)
    again = calibrate.from_state(json.loads(json.dumps(calibrator.state())))
    assert type(again) is kind
    assert_array_equal(again.transform(log_odds), calibrator.transform(log_odds))


@each
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64])
def test_torch_in_torch_out_and_numpy_in_numpy_out(kind, dtype):
    log_odds, targets = draw(rows=60)
    tensor = torch.as_tensor(log_odds).to(dtype)
    calibrator = kind().fit(tensor, torch.as_tensor(targets))
    result = calibrator.transform(tensor)
    assert isinstance(result, torch.Tensor)
    assert result.dtype == (torch.float64 if dtype == torch.float64 else torch.float32)
    plain = calibrator.transform(tensor.double().numpy())
    assert isinstance(plain, np.ndarray)
    assert_allclose(result.numpy(), plain, rtol=1e-6, atol=1e-6)


@each
def test_inputs_are_not_modified(kind):
    log_odds, targets = draw()
    log_odds[0, 0], weights = -np.inf, np.ones(len(targets))
    copies = log_odds.copy(), targets.copy(), weights.copy()
    calibrator = kind().fit(log_odds, targets, weights)
    calibrator.transform(log_odds)
    for before, after in zip(copies, (log_odds, targets, weights), strict=True):
        assert_array_equal(before, after)


ODD = {
    "separable": (np.linspace(-5, 5, 60)[:, None], np.linspace(-5, 5, 60)[:, None] > 0),
    "no positives": (np.random.default_rng(0).normal(size=(50, 2)), np.zeros((50, 2))),
    "no negatives": (np.random.default_rng(0).normal(size=(50, 2)), np.ones((50, 2))),
    "constant": (np.full((50, 2), 3.0), np.random.default_rng(0).integers(0, 2, (50, 2))),
    "all −inf": (np.full((50, 2), -np.inf), np.random.default_rng(0).integers(0, 2, (50, 2))),
    "one entry": (np.ones((1, 1)), np.ones((1, 1), dtype=int)),
    "wide": (1e6 * np.linspace(-1, 1, 90).reshape(30, 3), np.eye(30, 3, dtype=int)),
    "far": (1e5 + np.linspace(-1, 1, 90).reshape(30, 3), np.eye(30, 3, dtype=int)),
}


@each_fitted
@pytest.mark.parametrize("name", ODD)
def test_odd_data_give_a_finite_increasing_map(kind, name):
    log_odds, targets = ODD[name]
    calibrator = kind().fit(log_odds, targets)
    ramp = np.sort(np.concatenate([log_odds, np.full((1, log_odds.shape[1]), 2.5)]), axis=0)
    outputs = calibrator.transform(ramp)
    assert np.isfinite(outputs).all()
    assert (np.diff(outputs, axis=0) >= 0).all()


@each_parametric
def test_probabilities_stay_within_what_the_entries_can_vouch_for(kind):
    log_odds, targets = ODD["separable"]
    outputs = kind().fit(log_odds, targets).transform(log_odds)
    assert np.abs(outputs).max() <= np.log(2 * targets.size + 1) + 1


@each
def test_transforming_before_fitting_says_so(kind):
    if kind is calibrate.Identity:
        return
    with pytest.raises(InputError, match=r"must be fitted first: call `\.fit"):
        kind().transform(np.zeros((1, 1)))


BAD = {
    "no known": (np.zeros((3, 2)), np.full((3, 2), -1), None, "needs known targets"),
    "empty": (np.zeros((0, 2)), np.zeros((0, 2)), None, "needs known targets"),
    "NaN": (np.array([[0.0, np.nan]]), np.array([[1, 0]]), None, r"NaN at \(0, 1\)"),
    "shape": (
        np.zeros((3, 2)),
        np.zeros((2, 2)),
        None,
        r"shapes must agree; got `log_odds` \(3, 2\)",
    ),
    "vector": (np.zeros(3), np.zeros(3), None, r"shape \(rows, labels\)"),
    "target 2": (np.zeros((1, 2)), np.array([[2, 0]]), None, r"must be 0, 1, −1 .* at \(0, 0\)"),
    "class 5": (
        np.zeros((2, 3)),
        np.array([0, 5]),
        None,
        r"class indices .* must lie in \[0, 2\]",
    ),
    "weights": (
        np.zeros((2, 3)),
        np.zeros((2, 3)),
        np.ones(3),
        r"`weights` must have shape \(2,\)",
    ),
    "negative": (np.zeros((2, 3)), np.zeros((2, 3)), -np.ones(2), "finite and at least 0"),
    "weightless": (np.zeros((2, 3)), np.zeros((2, 3)), np.zeros(2), "weight above 0"),
}


@each_fitted
@pytest.mark.parametrize("name", BAD)
def test_bad_input_gets_a_clear_error(kind, name):
    log_odds, targets, weights, message = BAD[name]
    with pytest.raises(InputError, match=message):
        kind().fit(log_odds, targets, weights)


def test_names_and_states_that_do_not_exist_are_refused():
    with pytest.raises(InputError, match="Did you mean 'affine'"):
        calibrate.from_name("afine")
    with pytest.raises(InputError, match="with the key 'calibrator'"):
        calibrate.from_state({"slope": 1.0})
    with pytest.raises(InputError, match="must hold 'intercept'"):
        calibrate.from_state({"calibrator": "affine", "slope": 1.0})


@each_fitted
def test_reversed_scores_warn_and_are_not_turned_around(kind):
    log_odds, targets = draw()
    if kind is Isotonic:
        calibrator = kind().fit(-log_odds, targets)
    else:
        with pytest.warns(UserWarning, match="falls as the log-odds rise"):
            calibrator = kind().fit(-log_odds, targets)
    outputs = calibrator.transform(np.tile(np.linspace(-5, 5, 11)[:, None], (1, 5)))
    assert (np.diff(outputs, axis=0) >= 0).all()


def test_noise_does_not_warn():
    noise = np.random.default_rng(3)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        Affine().fit(noise.normal(size=(200, 3)), noise.integers(0, 2, (200, 3)))


def test_class_indices_equal_their_matrix():
    noise = np.random.default_rng(4)
    log_odds, classes = noise.normal(size=(80, 4)), noise.integers(-1, 4, 80)
    matrix = np.where(classes[:, None] < 0, -1, np.arange(4) == classes[:, None])
    assert Affine().fit(log_odds, classes).state() == Affine().fit(log_odds, matrix).state()


@each_fitted
def test_signed_targets_are_never_guessed(kind):
    noise = np.random.default_rng(3)
    log_odds = noise.normal(0, 2, (200, 3))
    present = noise.random(log_odds.shape) < 1 / (1 + np.exp(-log_odds))
    signed = np.where(present, 1, -1)
    with pytest.raises(InputError, match=r'coding="signed".*coding="unknown"'):
        kind().fit(log_odds, signed)
    found = kind().fit(log_odds, signed, coding="signed").transform(log_odds)
    np.testing.assert_array_equal(found, kind().fit(log_odds, present).transform(log_odds))


def test_choosing_a_calibrator_reads_the_coding_too():
    log_odds = np.random.default_rng(4).normal(0, 2, (200, 3))
    signed = np.where(log_odds > 0.3, 1, -1)
    with pytest.raises(InputError, match="coding"):
        calibrate.choose({"scores": log_odds}, signed)
    found = calibrate.choose({"scores": log_odds}, signed, coding="signed")
    assert found.calibrator.name in set(names.CALIBRATORS) - {"isotonic"}
