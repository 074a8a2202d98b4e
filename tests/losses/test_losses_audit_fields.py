"""What an audit reports beside its verdict is what the loss gives when it is evaluated."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from credibly import losses as cl


@pytest.mark.parametrize(
    "loss", [cl.BCE(), cl.SPA(), cl.Focal(), cl.Asymmetric(), cl.BCE(pos_weight=3.0)], ids=str
)
def test_the_published_reading_is_evaluated_where_training_stops(loss):
    found = cl.audit(loss)
    rates = torch.tensor(found.rates, dtype=torch.float64)
    # The score where the expected loss of a rate is least, by golden-section search.
    low, high = torch.full_like(rates, -30.0), torch.full_like(rates, 30.0)
    share = (5**0.5 - 1) / 2

    def cost(scores):
        with torch.no_grad():
            return loss.values(scores[:, None], rates[:, None])[:, 0]

    for _ in range(120):
        left, right = high - share * (high - low), low + share * (high - low)
        better = cost(left) < cost(right)
        high, low = torch.where(better, right, high), torch.where(better, low, left)
    stops = ((low + high) / 2)[:, None]
    link = torch.sigmoid(loss.log_odds(stops))[:, 0].numpy()
    np.testing.assert_allclose(found.minimisers, link, atol=1e-5)
    printed = torch.sigmoid(loss.published_log_odds(stops))[:, 0].numpy()
    if np.abs(printed - np.array(found.rates)).max() < 1e-5:
        assert found.published is None
    else:
        np.testing.assert_allclose(found.published, printed, atol=1e-5)
        assert len(found.published) == len(found.rates)


def test_some_published_readings_are_off_and_some_are_not():
    assert cl.audit(cl.BCE()).published is None
    assert cl.audit(cl.SPA()).published is None
    assert cl.audit(cl.Focal()).published is not None
    assert cl.audit(cl.Asymmetric()).published is not None
