"""Values and gradients against 60-digit arithmetic, on ordinary and extreme scores."""

from __future__ import annotations

from functools import partial

import loss_references as reference
import mpmath as mp
import pytest
import torch

from credibly.losses import BCE, SPA, Asymmetric, Focal, LabelPairs

SCORES = [0.0, -0.3, 0.952, 1.0, 3.7, -2.5, 12.0, -12.0, 40.0, -40.0, 300.0, -300.0, 1e4, -1e4]


def named(value):
    """Losses go by their text, the rest by what pytest finds."""
    return str(value)[:40] if isinstance(value, torch.nn.Module) else None


BINARY = [
    (BCE(), reference.bce),
    (SPA(), reference.spa),
    (SPA(2.0, 0.5, -1.0, 10.0, 2.0, 0.5), lambda v, y: reference.spa(v, y, 2, 0.5, -1, 10, 2, 0.5)),
    (Focal(), reference.focal),
    (Focal(gamma_pos=1.5, gamma_neg=0.5), lambda v, y: reference.asymmetric(v, y, 0.5, 1.5, "0")),
    (Asymmetric(margin=0.0625), partial(reference.asymmetric, margin="0.0625")),
    (
        Asymmetric(gamma_neg=2.5, gamma_pos=0.0, margin=0.125),
        partial(reference.asymmetric, gamma_neg=2.5, gamma_pos=0, margin="0.125"),
    ),
]
each_binary = pytest.mark.parametrize(("loss", "entry"), BINARY, ids=named)


def table(target):
    """One row a score; margins above are exact in binary, so that the print is too."""
    scores = torch.tensor(SCORES, dtype=torch.float64)[:, None]
    return scores, torch.full_like(scores, target)


def gradient(loss, scores, targets):
    scores = scores.clone().requires_grad_()
    loss(scores, targets).backward()
    return scores.grad


@each_binary
@pytest.mark.parametrize("target", [1.0, 0.0, 0.25])
def test_values_have_twelve_digits(loss, entry, target):
    scores, targets = table(target)
    exact = torch.tensor(
        [float(entry(mp.mpf(v), mp.mpf(target))) for v in SCORES], dtype=torch.float64
    )
    torch.testing.assert_close(loss.values(scores, targets)[:, 0], exact, rtol=1e-12, atol=1e-300)
    assert loss(scores, targets).item() == pytest.approx(exact.mean().item(), rel=1e-12)
    single = loss(scores.float(), targets.float()).item()
    assert single == pytest.approx(exact.mean().item(), rel=1e-6)


@each_binary
@pytest.mark.parametrize("target", [1.0, 0.0, 0.25])
def test_gradients_have_twelve_digits(loss, entry, target):
    scores, targets = table(target)
    slopes = [float(reference.entry_slope(entry, v, target)) for v in SCORES]
    exact = torch.tensor(slopes, dtype=torch.float64)[:, None] / len(SCORES)
    torch.testing.assert_close(gradient(loss, scores, targets), exact, rtol=1e-12, atol=1e-300)
    single = gradient(loss, scores.float(), targets.float()).double()
    assert (single - exact).abs().max() <= 1e-6 * exact.abs().max()


@pytest.mark.parametrize("target", [1.0, 0.0, 0.25])
def test_the_detached_gradient_is_that_of_the_official_training(target):
    loss = Asymmetric(margin=0.0625, detach_weight=True)
    scores, targets = table(target)
    slope = reference.detached_asymmetric_slope
    exact = [float(slope(mp.mpf(v), mp.mpf(target), margin="0.0625")) for v in SCORES]
    exact = torch.tensor(exact, dtype=torch.float64)[:, None] / len(SCORES)
    torch.testing.assert_close(gradient(loss, scores, targets), exact, rtol=1e-12, atol=1e-300)
    single = gradient(loss, scores.float(), targets.float()).double()
    assert (single - exact).abs().max() <= 1e-6 * exact.abs().max()


PAIRS = [
    (LabelPairs(SPA(), weight=1.5), reference.spa, reference.spa_log_odds, 1.5),
    (LabelPairs(BCE()), reference.bce, lambda v: v, 1),
]


@pytest.mark.parametrize(("loss", "entry", "log_odds", "weight"), PAIRS, ids=named)
@pytest.mark.parametrize("spread", [1.0, 30.0, 2000.0])
def test_label_pairs_equal_the_sum_over_pairs(loss, entry, log_odds, weight, spread):
    generator = torch.Generator().manual_seed(3)
    scores = spread * torch.randn(5, 6, generator=generator, dtype=torch.float64)
    targets = (torch.rand(5, 6, generator=generator) < 0.4).double()
    targets[0], targets[1], targets[2, :2], targets[3] = 0.0, 1.0, -1.0, -1.0
    exact = reference.with_label_pairs(reference.mean_over_known(entry), log_odds, weight)
    value = reference.value_of(exact, scores, targets)
    slopes = reference.gradient_of(exact, scores, targets)
    assert loss(scores, targets).item() == pytest.approx(value, rel=1e-12)
    grad = gradient(loss, scores, targets)
    assert (grad - slopes).abs().max() <= 1e-12 * slopes.abs().max()
    single = gradient(loss, scores.float(), targets.float()).double()
    slopes = reference.gradient_of(exact, scores.float(), targets)
    assert (single - slopes).abs().max() <= 1e-6 * slopes.abs().max()
