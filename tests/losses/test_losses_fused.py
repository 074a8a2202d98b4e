"""Fused losses: both paths against 50 digits and the plain formula, and how gradients are kept."""

from __future__ import annotations

import gc

import mpmath as mp
import numpy as np
import pytest
import torch
from loss_instances import PATHS
from numba import njit

from credibly import vectormath
from credibly.losses import BCE, SPA, Asymmetric, Focal, LabelPairs, TwoWay

LOSSES = [
    BCE(),
    SPA(),
    SPA(scale_pos=0.5, slope_pos=2.0, shift_pos=-1.0, scale_neg=10.0, slope_neg=0.3),
    Focal(),
    Focal(gamma_pos=0.5, gamma_neg=1.5),
    Focal(gamma_pos=0.0, gamma_neg=3.0),
    Asymmetric(),
    Asymmetric(detach_weight=True),
    Asymmetric(gamma_pos=0.0),
    Asymmetric(gamma_neg=0.0, gamma_pos=0.0, margin=0.2),
    Asymmetric(gamma_neg=1.0, gamma_pos=2.0, margin=0.001, detach_weight=True),
    Asymmetric(gamma_neg=2.5, gamma_pos=0.5, margin=0.2),
]
each_loss = pytest.mark.parametrize("loss", LOSSES, ids=str)
each_path = pytest.mark.parametrize("path", PATHS.values(), ids=PATHS)
each_dtype = pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
TARGETS = ["hard", "soft", "unknown"]


def batch(kind, dtype=torch.float64, rows=40, labels=30):
    """Scores up to ±1e4; a row without labels, one all unknown, a label never present."""
    generator = torch.Generator().manual_seed(1)
    scores = 3 * torch.randn(rows, labels, generator=generator, dtype=torch.float64) - 1
    scores[3] = torch.linspace(-1e4, 1e4, labels)
    scores[4] = torch.linspace(-100, 100, labels)
    targets = (torch.rand(rows, labels, generator=generator) < 0.2).double()
    targets[0], targets[:, 2] = 0, 0
    if kind == "soft":
        targets[1::2] = torch.rand(rows // 2, labels, generator=generator).double()
    if kind == "unknown":
        targets[5], targets[6:, ::3] = -1, -1
        scores[5, 0], scores[6, 0] = torch.nan, torch.inf
    return scores.to(dtype), targets.to(dtype)


def gradient(function, scores, targets):
    leaf = scores.clone().requires_grad_()
    value = function(leaf, targets)
    value.backward()
    return value.detach().double(), leaf.grad.double()


@each_loss
@each_path
@each_dtype
@pytest.mark.parametrize("kind", TARGETS)
def test_value_and_gradient_are_those_of_the_plain_formula(loss, kind, dtype, path):
    scores, targets = batch(kind, dtype)
    plain_value, plain = gradient(loss.plain_mean, scores.double(), targets.double())
    with path():
        value, found = gradient(loss, scores, targets)
        without = loss(scores, targets)
    tolerance = 1e-6 if dtype == torch.float32 else 1e-13
    assert value.item() == pytest.approx(plain_value.item(), rel=tolerance)
    assert without.item() == value.item()
    assert (found - plain).abs().max() <= tolerance * plain.abs().max()


mp.mp.dps = 50


def precise_slope(loss, v, present):
    """Slope of one entry with 50 digits: by the formula of each family."""
    v = mp.mpf(v)

    def sigmoid(x):
        return 1 / (1 + mp.exp(-x))

    if isinstance(loss, SPA):
        if present:
            k, b = mp.mpf(loss.slope_pos), mp.mpf(loss.shift_pos)
            return -k / mp.mpf(loss.scale_pos) * sigmoid(-k * (v - b))
        k, b = mp.mpf(loss.slope_neg), mp.mpf(loss.shift_neg)
        return k / mp.mpf(loss.scale_neg) * sigmoid(k * (v - b))
    if isinstance(loss, BCE):
        return -sigmoid(-v) if present else sigmoid(v)
    p, q = sigmoid(v), sigmoid(-v)
    gamma = mp.mpf(loss.gamma_pos if present else loss.gamma_neg)
    t = q if present else p - mp.mpf(loss.margin)
    if t <= 0:
        return mp.mpf(0)
    slope = t**gamma / (1 - t)
    if not loss.detach_weight:
        slope += gamma * t ** (gamma - 1) * -mp.log1p(-t)
    return (-1 if present else 1) * p * q * slope


@each_loss
@each_path
@pytest.mark.parametrize("present", [True, False])
def test_every_slope_has_twelve_digits_in_double(loss, present, path):
    scores = torch.linspace(-60, 60, 49, dtype=torch.float64)[None] + 1 / 3
    with path():
        _, found = gradient(loss, scores, torch.full_like(scores, float(present)))
    for score, slope in zip(scores[0].tolist(), found[0].tolist(), strict=True):
        expected = float(precise_slope(loss, score, present)) / scores.numel()
        assert slope == pytest.approx(expected, rel=1e-12)


@each_loss
@each_path
def test_the_plateau_has_no_gradient(loss, path):
    margin = getattr(loss, "margin", 0.0)
    if margin == 0:
        scores = torch.full((2, 600), -1e4)
    else:
        scores = torch.full((2, 600), float(np.log(margin / (1 - margin))) - 1e-3)
    with path():
        value, found = gradient(loss, scores, torch.zeros_like(scores))
    assert value == 0
    assert found.abs().max() == 0


@each_loss
@each_path
@pytest.mark.parametrize("kind", TARGETS)
def test_nan_stays_in_its_entry(loss, kind, path):
    scores, targets = batch(kind, torch.float32)
    scores[7, 1] = torch.nan
    with path():
        value, found = gradient(loss, scores, targets)
    bad = torch.isnan(found)
    assert torch.isnan(value)
    assert bad[7, 1]
    assert bad.sum() == 1


@each_loss
@each_path
def test_nothing_known_is_zero(loss, path):
    with path():
        for shape in ((0, 4), (3, 4)):
            value, found = gradient(loss, torch.randn(shape), torch.full(shape, -1.0))
            assert value == 0
            assert found.abs().sum() == 0


@each_loss
@each_path
def test_layout_does_not_matter(loss, path):
    scores, targets = batch("unknown")
    with path():
        value, found = gradient(loss, scores, targets)
        across = gradient(loss, scores.T.contiguous().T, targets.T.contiguous().T)
        spaced = gradient(loss, scores.repeat(1, 2)[:, ::1][:, :30], targets)
        deep = gradient(loss, scores.view(4, 10, 30), targets.view(4, 10, 30))
    for other_value, other in (across, spaced, deep):
        assert other_value.item() == pytest.approx(value.item(), rel=1e-13)
        torch.testing.assert_close(other.view_as(found), found, rtol=1e-13, atol=0)


# How gradients are kept ------------------------------------------------------------------------


KEPT = [SPA(), Asymmetric(), TwoWay(), LabelPairs(SPA())]
each_kept = pytest.mark.parametrize("loss", KEPT, ids=str)


@each_kept
def test_a_second_backward_gives_the_same_gradient(loss):
    scores, targets = torch.randn(5, 7).requires_grad_(), torch.eye(5, 7)
    value = loss(scores, targets)
    (first,) = torch.autograd.grad(value, scores, retain_graph=True)
    kept = first.clone()
    first.zero_()  # whoever took it may do with it what they like
    (second,) = torch.autograd.grad(5 * value, scores)
    torch.testing.assert_close(second, 5 * kept)
    with pytest.raises(RuntimeError, match="second time"):
        torch.autograd.grad(value, scores)


@each_kept
def test_double_backward_is_that_of_the_formula(loss):
    found = []
    for path in PATHS.values():
        generator = torch.Generator().manual_seed(0)
        scores = torch.randn(5, 7, generator=generator).double().requires_grad_()
        with path():
            value = 2 * loss(scores, torch.eye(5, 7).double())
            (first,) = torch.autograd.grad(value, scores, create_graph=True)
            found.append(torch.autograd.grad(first.square().sum(), scores)[0])
    torch.testing.assert_close(*found, rtol=1e-9, atol=1e-12)


@each_kept
def test_the_gradient_does_not_outlive_its_graph(loss):
    scores, targets = torch.randn(50, 70).requires_grad_(), torch.zeros(50, 70)
    loss(scores, targets)
    gc.collect()  # what earlier tests left
    with torch.profiler.profile(profile_memory=True) as profile:
        value = loss(scores, targets)
        del value
        gc.collect()
    held = sum(event.self_cpu_memory_usage for event in profile.key_averages())
    assert held < scores.numel() * 4


@pytest.mark.parametrize("loss", [SPA(), Asymmetric(), LabelPairs(SPA())], ids=str)
def test_memory_beyond_the_scores_is_one_gradient(loss):
    scores, targets = torch.randn(64, 1000, requires_grad=True), torch.zeros(64, 1000)
    targets[:, 0] = 1
    loss(scores, targets).backward()
    with torch.profiler.profile(profile_memory=True) as profile:
        value = loss(scores, targets)
    allocated = sum(event.self_cpu_memory_usage for event in profile.key_averages())
    assert value.requires_grad
    assert allocated <= 1.1 * scores.numel() * 4


# Vector functions --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("function", "reference", "points"),
    [
        (vectormath.exp_nonpositive, np.exp, -np.geomspace(1e-9, 87, 20001)),
        (vectormath.log1p_unit, np.log1p, np.geomspace(1e-12, 1, 20001)),
        (vectormath.log_positive, np.log, np.geomspace(1e-37, 1e37, 20000)),
        (vectormath.log_positive, np.log, np.linspace(0.4, 2.5, 20000)),
    ],
)
def test_vector_functions_are_accurate_and_keep_nan(function, reference, points):
    @njit(error_model="numpy")
    def apply(values, out):
        for i in range(values.size):
            out[i] = function(values[i])

    for dtype, tolerance in ((np.float32, 3e-7), (np.float64, 1e-15)):
        values = np.append(points.astype(dtype), dtype(np.nan))
        out = np.empty_like(values)
        apply(values, out)
        expected = reference(values[:-1].astype(np.float64))
        assert np.isnan(out[-1])
        np.testing.assert_allclose(out[:-1], expected, rtol=tolerance, atol=0)
    assert function(np.float64(-0.0 if function is vectormath.exp_nonpositive else 1.0)) >= 0
