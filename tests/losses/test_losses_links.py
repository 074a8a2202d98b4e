"""Links against their formulas; the printed ones shown wrong where they are."""

from __future__ import annotations

import itertools

import mpmath as mp
import pytest
import torch
from loss_references import sigmoid

from credibly.losses import SPA, Asymmetric, Composite, Focal

SCORES = [-30.0, -9.0, -2.5, -0.5, 0.0, 0.4, 0.952, 1.7, 5.0, 20.0]


def log_odds_of(probability):
    return float(mp.log(probability) - mp.log(1 - probability))


def h(w, gamma):
    """Cheng & Vasconcelos (2024), Eq. 15."""
    return (w**gamma - gamma * w ** (gamma - 1) * (1 - w) * mp.log(1 - w)) / (1 - w)


def phi(v, gamma_neg, gamma_pos, margin):
    """Their Eq. 14, at p = σ(v)."""
    p = sigmoid(mp.mpf(v))
    shifted = max(p - mp.mpf(margin), mp.mpf(0))
    up = h(shifted, gamma_neg) if shifted > 0 else mp.mpf(0)
    return up / (up + h(1 - p, gamma_pos))


def detached_link(v, gamma_neg, gamma_pos, margin):
    """From the slopes with the weights held fixed."""
    p = sigmoid(mp.mpf(v))
    shifted = max(p - mp.mpf(margin), mp.mpf(0))
    up = shifted**gamma_neg / (1 - shifted) * p * (1 - p)
    down = (1 - p) ** gamma_pos * (1 - p)
    return up / (up + down)


def spa_link(v, sign):
    """Eq. 17 with its arguments times ``sign``: −1 as printed, +1 as it must be."""
    v = mp.mpf(v)
    up = mp.mpf(3) / 5 * sigmoid(sign * 3 * (v - 1))
    down = sigmoid(-sign * v)
    return up / (up + down)


@pytest.mark.parametrize("score", SCORES)
def test_the_corrected_link_of_spa(score):
    ours = SPA().log_odds(torch.tensor([[score]], dtype=torch.float64)).item()
    assert ours == pytest.approx(log_odds_of(spa_link(score, +1)), rel=1e-12)


def test_the_printed_link_of_spa_is_wrong():
    printed = [float(spa_link(score, -1)) for score in SCORES]
    assert all(a >= b for a, b in itertools.pairwise(printed))  # it falls
    rate = 0.25
    scores = torch.linspace(-4, 4, 80_001, dtype=torch.float64)[:, None]
    stop = scores[SPA().values(scores, torch.full_like(scores, rate)).argmin()].item()
    assert float(spa_link(stop, +1)) == pytest.approx(rate, abs=1e-3)
    assert abs(float(spa_link(stop, -1)) - rate) > 0.1


@pytest.mark.parametrize("score", SCORES)
def test_phi_is_the_link_of_focal_and_asymmetric(score):
    at = torch.tensor([[score]], dtype=torch.float64)
    assert Focal().log_odds(at).item() == pytest.approx(log_odds_of(phi(score, 2, 2, 0)), rel=1e-11)
    expected = phi(score, 4, 1, 0.0625)
    if expected == 0:
        assert Asymmetric(margin=0.0625).probabilities(at).item() == 0
    else:
        ours = Asymmetric(margin=0.0625).log_odds(at).item()
        assert ours == pytest.approx(log_odds_of(expected), rel=1e-11)


@pytest.mark.parametrize("score", SCORES)
def test_detached_weights_have_a_link_of_their_own(score):
    at = torch.tensor([[score]], dtype=torch.float64)
    loss = Asymmetric(margin=0.0625, detach_weight=True)
    expected = detached_link(score, 4, 1, 0.0625)
    assert loss.probabilities(at).item() == pytest.approx(float(expected), rel=1e-12)
    if 0 < score < 2:
        assert abs(float(expected) - float(phi(score, 4, 1, 0.0625))) > 0.01


@pytest.mark.parametrize("loss", [SPA(), Focal(), Asymmetric()], ids=str)
def test_the_derived_link_equals_the_closed_form(loss):
    scores = torch.linspace(-2.5, 8, 200, dtype=torch.float64)[:, None]
    derived = Composite(loss.positive, loss.negative).log_odds(scores)
    torch.testing.assert_close(derived, loss.log_odds(scores), rtol=1e-9, atol=1e-9)


def test_spa_reads_the_numbers_of_the_docs():
    probabilities = SPA().probabilities(torch.tensor([[0.0, 0.952]], dtype=torch.float64))
    assert probabilities[0, 0].item() == pytest.approx(0.0538, abs=1e-4)
    assert probabilities[0, 1].item() == pytest.approx(0.5, abs=1e-4)


def test_without_positive_focus_the_top_is_lost():
    top = Asymmetric(gamma_pos=0.0).probabilities(torch.tensor([[200.0]], dtype=torch.float64))
    assert top.item() == pytest.approx(0.9637, abs=1e-4)
