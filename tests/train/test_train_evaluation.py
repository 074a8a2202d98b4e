"""The metric that selects an epoch: nearly the full affine map's log loss, whatever is unknown."""

from __future__ import annotations

import numpy as np
import pytest

import credibly as cr

LABELS, ROWS = 100, 3600
TRAINED = 600


@pytest.mark.parametrize("unknown", [0, 3], ids=["all known", "every third row unknown"])
def test_the_log_loss_of_an_epoch_is_that_of_all_held_out_rows(unknown: int) -> None:
    """The map is fitted on 100,000 entries; of 3,000 rows, this is every third."""
    noise = np.random.default_rng(0)
    features = noise.normal(size=(ROWS, 20)).astype(np.float32)
    pull = noise.normal(size=(20, LABELS))
    rates = 1 / (1 + np.exp(2 - features @ pull))
    targets = (noise.random(rates.shape) < rates).astype(np.float32)
    if unknown:
        targets[TRAINED::unknown] = -1
    split = np.where(np.arange(ROWS) < TRAINED, 0, 2)
    names = [str(label) for label in range(LABELS)]
    rows = cr.data.Data(names, targets, features=features, split=split)
    heard = []

    class Ear(cr.train.Callback):
        def on_epoch(self, figures) -> None:
            heard.append(figures["nll"])

    recipe = cr.train.Network(model="linear", epochs=1, learning_rate=0.3, calibrate="affine")
    run = cr.train.fit(rows, recipe, callback=Ear())
    held_out = rows.part("calibration")
    odds = run.pipeline.log_odds(run.scores(held_out).numpy())
    full = cr.calibrate.Affine().fit(odds, held_out.targets).transform(odds)
    expected = cr.metrics.log_loss(1 / (1 + np.exp(-full)), held_out.targets)
    assert heard == [pytest.approx(float(expected), rel=1e-3)]
