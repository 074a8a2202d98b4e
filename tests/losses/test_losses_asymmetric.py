"""The adaptive exponent of the asymmetric loss."""

from __future__ import annotations

import pytest
import torch

from credibly.losses import Asymmetric

LOGIT = torch.logit(torch.tensor([[0.6, 0.2, 0.4], [0.8, 0.1, 0.9]], dtype=torch.float64))
TARGETS = torch.tensor([[1.0, 0.0, 0.0], [1.0, 0.0, -1.0]], dtype=torch.float64)


def test_the_exponent_moves_by_the_rate_times_the_missing_gap():
    scores = LOGIT.clone().requires_grad_()
    loss = Asymmetric(gamma_neg=2.0, gap_target=0.1, gap_rate=0.5)
    value = loss(scores, TARGETS)
    value.backward()  # with the exponent of this batch, as a loss without adaptation
    fixed = LOGIT.clone().requires_grad_()
    Asymmetric(gamma_neg=2.0)(fixed, TARGETS).backward()
    torch.testing.assert_close(scores.grad, fixed.grad)
    # Positives: (0.6 + 0.8)/2 = 0.7; negatives: (0.8 + 0.6 + 0.9)/3; the unknown entry is out.
    expected = 2.0 + 0.5 * (0.1 - (0.7 - 2.3 / 3))
    assert float(loss.gamma_neg) == pytest.approx(expected, abs=1e-12)
    assert loss.formula()["gamma_neg"] == float(loss.gamma_neg)
    again = Asymmetric(gap_target=0.1)
    again.load_state_dict(loss.state_dict())
    assert torch.equal(again.log_odds(LOGIT), loss.log_odds(LOGIT))


@pytest.mark.parametrize("targets", [torch.zeros(2, 3), torch.ones(2, 3), -torch.ones(2, 3)])
def test_a_batch_with_one_sign_and_evaluation_leave_the_exponent(targets):
    loss = Asymmetric(gap_target=0.1)
    loss(LOGIT.float(), targets)
    loss.eval()(LOGIT, TARGETS)
    assert float(loss.gamma_neg) == 4.0


def test_training_ends_at_the_target():
    torch.manual_seed(0)
    inputs = torch.randn(400, 4)
    targets = (torch.rand(400, 3) < torch.sigmoid(2 * inputs[:, :3] - 2)).float()
    model, gaps = torch.nn.Linear(4, 3), {}
    for goal in (0.0, 0.1):
        loss = Asymmetric(gamma_neg=1.0, gap_target=goal, gap_rate=0.2)
        optimizer = torch.optim.Adam(model.parameters(), 0.05)
        for _ in range(600):
            optimizer.zero_grad()
            loss(model(inputs), targets).backward()
            optimizer.step()
        p = torch.sigmoid(model(inputs)).detach()
        gaps[goal] = float(p[targets == 1].mean() - (1 - p[targets == 0]).mean())
    assert gaps == pytest.approx({0.0: 0.0, 0.1: 0.1}, abs=0.02)
