"""Average precision by ranges of values equals that of all values at once."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.metrics import roc_auc_score

import credibly as cr
from credibly import metrics
from credibly.targets import Targets

VALUES = {
    "probabilities": lambda g: g.random(2000),
    "rare probabilities": lambda g: g.random(2000) ** 8,
    "scores": lambda g: 5 * g.normal(size=2000),
    "few values": lambda g: g.integers(-3, 4, 2000) / 4,
    "one value": lambda g: np.full(2000, 0.25),
    "both zeros and infinities": lambda g: g.choice([-0.0, 0.0, np.inf, -np.inf, 1.0], 2000),
}


@pytest.mark.parametrize("soft", [False, True])
@pytest.mark.parametrize("kind", VALUES)
def test_ranges_give_the_ranking_of_the_whole(kind, soft, tmp_path):
    generator = np.random.default_rng(0)
    values = np.stack([VALUES[kind](generator) for _ in range(3)], 1).astype(np.float32)
    targets = generator.choice([0, 0, 0, 1, -1], values.shape).astype(np.int8)
    targets[:, 2] = np.minimum(targets[:, 2], 0)  # no positive
    if soft:
        targets = np.where(targets == 1, np.float32(0.7), targets)
    path = tmp_path / "p.parquet"
    cr.Predictions.from_arrays(
        probabilities=generator.random(values.shape),
        scores=values,
        targets=Targets(targets),
        labels=["a", "b", "c"],
    ).write(path)
    expected = [
        each(values, Targets(targets)) for each in (metrics.average_precision, metrics.auroc)
    ]
    for limit in (1, 37, 500, 10_000):
        found = cr.evaluate(path, rows_in_memory=limit, batch_rows=300).by_label
        np.testing.assert_allclose([found["AP"], found["AUROC"]], expected, rtol=1e-12)


def test_more_than_a_million_confidences_take_bounded_memory_and_change_the_auroc_alone():
    generator = np.random.default_rng(0)
    values = generator.random((1_100_000, 2))
    targets = (generator.random(values.shape) < values**3).astype(np.int8)
    merged = metrics.Summary(2, zero=True)
    for rows in np.array_split(np.arange(len(values)), 3):
        part = metrics.Summary(2, zero=True)
        part.update(values[rows], targets[rows])
        merged.merge(part.state())
    assert max(map(len, merged.state().values())) <= 2**20
    found, inside, confidence = merged.numbers(), targets.any(1), values.max(1)
    top = np.take_along_axis(targets, values.argmax(1)[:, None], 1)[:, 0]
    assert found["zero-label AUROC"] == pytest.approx(roc_auc_score(inside, confidence), rel=1e-4)
    assert found["IN accuracy"] == pytest.approx(top[inside].mean(), rel=1e-12)
    assert found["OUT MMC"] == pytest.approx(confidence[~inside].mean(), rel=1e-12)
