"""The quasibinary loss: one normaliser for all labels and rows."""

from __future__ import annotations

import itertools
import math

import mpmath as mp
import pytest
import torch

import credibly as cr
from credibly.losses import Quasibinary

mp.mp.dps = 50


def batch(seed=0, size=2.0, rows=6, labels=5):
    generator = torch.Generator().manual_seed(seed)
    scores = size * torch.randn(rows, labels, generator=generator, dtype=torch.float64)
    targets = (torch.rand(rows, labels, generator=generator) < 0.3).double()
    targets[0], targets[1] = 0, -1
    targets[2, ::2] = -1
    targets[3, 0], targets[3, 1] = 1, 0.25
    targets[:, 4] = torch.where(targets[:, 4] > 0, 0.0, targets[:, 4])
    return scores.float().double(), targets.float().double()


def by_hand(scores, targets):
    """Value and gradient from MATH: (1/B)[q(1 − M/N) − y + 1{q > 1}], in 50 digits."""
    known = [
        (i, j, mp.mpf(scores[i, j].item()), mp.mpf(targets[i, j].item()))
        for i, j in (targets >= 0).nonzero().tolist()
    ]
    rows = len({i for i, *_ in known})
    count = mp.fsum(y for *_, y in known)
    norm = mp.fsum(mp.exp(z) for *_, z, _ in known) / count
    log_q = {(i, j): z - mp.log(norm) for i, j, z, _ in known}
    above = sum(v > 0 for v in log_q.values())
    value = mp.fsum(-y * log_q[i, j] + max(log_q[i, j], 0) for i, j, _, y in known) / rows
    gradient = torch.zeros_like(scores)
    for i, j, _, y in known:
        q = mp.exp(log_q[i, j])
        gradient[i, j] = float((q * (1 - above / count) - y + (log_q[i, j] > 0)) / rows)
    return float(value), gradient


@pytest.mark.parametrize("size", [0.1, 2.0, 30.0, 1e4])
@pytest.mark.parametrize("offset", [0.0, 1e3])
def test_value_and_gradient_follow_the_formula(size, offset):
    scores, targets = batch(size=size)
    scores = (scores + offset).float().double()
    expected, slopes = by_hand(scores, targets)
    for dtype, digits in ((torch.float64, 1e-12), (torch.float32, 1e-6)):
        leaf = scores.clone().to(dtype).requires_grad_()
        value = Quasibinary()(leaf, targets.to(dtype))
        value.backward()
        assert value.item() == pytest.approx(expected, rel=digits)
        assert (leaf.grad - slopes).abs().max() <= digits * slopes.abs().max()


def test_a_detached_normaliser_would_leave_negatives_without_gradient():
    scores, targets = batch()
    scores.requires_grad_()
    Quasibinary()(scores, targets).backward()
    assert (scores.grad[targets == 0] > 0).all()


def test_true_rates_are_stationary_for_every_size_of_batch():
    rates = torch.tensor([0.1, 0.25, 0.5], dtype=torch.float64)
    for rows in (1, 7):
        scores = (torch.log(rates) + 3).repeat(rows, 1).requires_grad_()
        Quasibinary()(scores, rates.repeat(rows, 1)).backward()
        assert scores.grad.abs().max() < 1e-15


RATES = torch.tensor([[0.9, 0.1], [0.8, 0.2]], dtype=torch.float64)


def expected_gradient(penalty):
    """Over all 16 outcomes of two rows and two labels, at z = log η, with C̄ = 1."""
    gradient = torch.zeros_like(RATES)
    for bits in itertools.product((0.0, 1.0), repeat=4):
        targets = torch.tensor(bits, dtype=torch.float64).view(2, 2)
        probability = torch.where(targets > 0, RATES, 1 - RATES).prod()
        loss = Quasibinary(penalty=penalty).fit_state([(torch.log(RATES), RATES)])
        assert loss.normalizer.item() == pytest.approx(1)
        scores = torch.log(RATES).requires_grad_()
        (slope,) = torch.autograd.grad(loss(scores, targets), scores)
        gradient += probability * slope
    return gradient


def test_the_printed_penalty_moves_the_truth_at_a_finite_batch():
    expected = torch.tensor([[0.0103, -0.0103], [0.0207, -0.0207]], dtype=torch.float64)
    torch.testing.assert_close(expected_gradient("batch"), expected, rtol=0, atol=1e-4)
    assert Quasibinary().properness == "none"


def test_the_running_penalty_leaves_the_truth_stationary_at_any_batch():
    assert expected_gradient("running").abs().max() < 1e-15
    assert Quasibinary(penalty="running").properness == "strict"


def test_audit_tells_the_penalties_apart():
    printed, running = (cr.losses.audit(Quasibinary(penalty=p)) for p in ("batch", "running"))
    assert printed.properness == "none"
    assert printed.worst > 0.02
    assert running.properness == "strict"
    assert running.worst < 1e-6


def trained(penalty, size, steps, rate):
    """Return where SGD from the truth settles: mean q of η = .95, and its standard error.

    The error comes from means of ten blocks of the last half, each much longer than iterates
    depend on each other (1/``rate`` steps), so it holds the noise of SGD but not its bias.
    """
    rates = torch.tensor([0.95, 0.5, 0.05])
    generator = torch.Generator().manual_seed(0)
    loss = Quasibinary(penalty=penalty)
    scores = torch.log(rates).clone().requires_grad_()
    q = []
    for step in range(steps):
        targets = (torch.rand(size, 3, generator=generator) < rates).float()
        (slope,) = torch.autograd.grad(loss(scores.expand(size, -1), targets), scores)
        with torch.no_grad():
            scores -= rate * slope
        if step >= steps // 2:  # C of the truth: a constant for these scores
            masses = scores.detach().double().exp()
            q.append(masses[0] / (masses.sum() / rates.sum()))
    blocks = torch.stack(q).view(10, -1).mean(1)
    return blocks.mean().item(), blocks.std().item() / math.sqrt(10)


@pytest.mark.parametrize(("size", "ends"), [(1, 0.775), (2, 0.832), (8, 0.881)])
def test_training_from_the_truth_drifts_with_the_printed_penalty(size, ends):
    mean, error = trained("batch", size, 1500, 0.1)
    assert mean == pytest.approx(ends, abs=0.03)
    assert 0.95 - mean > 5 * error


@pytest.mark.parametrize("size", [1, 8])
def test_training_from_the_truth_stays_with_the_running_penalty(size):
    """At a rate so small that its own bias, of the order of the rate, is below the noise."""
    mean, error = trained("running", size, 4000, 0.02)
    assert error < 0.006
    assert abs(mean - 0.95) < 3 * error


def test_running_sums_give_a_ratio_of_averages():
    loss, sums, counts = Quasibinary(momentum=0.75), 0.0, 0.0
    for seed in range(5):
        scores, targets = batch(seed)
        loss(scores, targets)
        known = targets >= 0
        sums = 0.75 * sums + 0.25 * scores[known].exp().sum().item()
        counts = 0.75 * counts + 0.25 * targets[known].sum().item()
    assert loss.normalizer.item() == pytest.approx(sums / counts, rel=1e-13)


def test_the_average_settles_where_the_printed_recursion_diverges():
    scores, targets = batch()
    loss, printed = Quasibinary(), 0.0
    for _ in range(500):
        loss(scores, targets)
        known = targets >= 0
        now = (scores[known].exp().sum() / targets[known].sum()).item()
        printed = printed + 0.1 * now
    assert loss.normalizer.item() == pytest.approx(now, rel=1e-12)
    assert printed > 40 * now


def test_the_ratio_of_sums_is_less_biased_than_a_mean_of_ratios():
    generator = torch.Generator().manual_seed(0)
    rates = torch.tensor([0.05, 0.1, 0.2])
    loss, ratios = Quasibinary(momentum=0.998), []
    for _ in range(1500):
        targets = (torch.rand(8, 3, generator=generator) < rates).float()
        scores = torch.log(rates).repeat(8, 1)
        loss(scores, targets)
        if targets.sum() > 0:
            ratios.append((scores.exp().sum() / targets.sum()).item())
    assert loss.normalizer.item() == pytest.approx(1, abs=0.05)
    assert sum(ratios) / len(ratios) > 1.08


def test_a_batch_without_labels_uses_the_constant():
    scores, targets = batch()
    loss = Quasibinary()
    zeros = torch.zeros_like(targets)
    assert loss.normalizer == 1
    assert loss(scores, zeros).item() == pytest.approx(scores.relu().sum().item() / 6)
    loss = Quasibinary(momentum=0.0)
    loss(scores, targets)
    constant = loss.log_normalizer.item()
    leaf = scores.clone().requires_grad_()
    value = loss(leaf, zeros)
    value.backward()
    assert value.item() == pytest.approx((scores - constant).relu().sum().item() / 6)
    torch.testing.assert_close(leaf.grad, (scores > constant).double() / 6)


def test_an_exact_pass_replaces_the_running_sums():
    batches = [batch(seed) for seed in range(3)]
    loss = Quasibinary()
    loss(*batches[0])
    assert loss.fit_state(batches) is loss
    scores, targets = (torch.cat(parts) for parts in zip(*batches, strict=True))
    known = targets >= 0
    exact = (scores[known].exp().sum() / targets[known].sum()).item()
    assert loss.normalizer.item() == pytest.approx(exact, rel=1e-13)


def test_evaluation_agrees_with_training_where_the_normaliser_does():
    scores, targets = batch(size=0.3)
    loss = Quasibinary(momentum=0.0)
    trained = loss(scores, targets).item()
    assert (scores - loss.log_normalizer).max() < 0  # no probability above 1
    assert loss.eval()(scores, targets).item() == pytest.approx(trained, rel=1e-12)


def test_evaluation_loss_is_least_at_the_true_rate():
    loss = Quasibinary().eval()
    grid = torch.linspace(-6, 3, 9001, dtype=torch.float64)[:, None]
    for rate in (0.01, 0.3, 0.9):
        risk = loss.values(grid, torch.full_like(grid, rate))
        assert grid[risk.argmin()].exp().item() == pytest.approx(rate, rel=2e-3)


def test_evaluation_leaves_the_state_alone():
    loss = Quasibinary().eval()
    loss(*batch())
    loss.train().values(*batch())
    assert loss.count == 0


def test_probabilities_are_clipped_and_scores_rank():
    scores, targets = batch()
    loss = Quasibinary()
    loss(scores, targets)
    high = torch.tensor([[50.0, 1e4, 60.0, -1e4]])
    assert loss.probabilities(high)[0, :3] == pytest.approx([1, 1, 1])
    assert torch.isfinite(loss.log_odds(high)).all()
    assert loss.ranking_scores(high) is high
    constant = loss.log_normalizer
    low = constant.float() + torch.tensor([-5.0, -1.0, -1e-3])
    expected = torch.logit(torch.exp((low - constant).double()))
    torch.testing.assert_close(loss.log_odds(low).double(), expected, rtol=1e-4, atol=1e-3)


def test_initial_scores_have_the_label_rates():
    rates = torch.tensor([0.001, 0.3, 0.9])
    loss = Quasibinary()
    loss(*batch())
    torch.testing.assert_close(loss.probabilities(loss.initial_scores(rates)), rates)


def test_a_batch_with_nan_does_not_spoil_the_running_sums():
    scores, targets = batch()
    loss = Quasibinary()
    loss(scores, targets)
    before = loss.normalizer.item()
    scores[4, 1], targets[4, 1] = math.nan, 0
    assert math.isnan(loss(scores, targets).item())
    assert loss.normalizer.item() == before
    targets[4, 1] = -1
    leaf = scores.requires_grad_()
    value = loss(leaf, targets)
    value.backward()
    assert torch.isfinite(leaf.grad).all()


@pytest.mark.parametrize("momentum", [-0.1, 1.0, math.nan])
def test_a_momentum_out_of_range_is_refused(momentum):
    with pytest.raises(cr.InputError, match=r"`momentum` must lie in \[0, 1\)"):
        Quasibinary(momentum)
