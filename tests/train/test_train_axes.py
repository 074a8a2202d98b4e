"""Along the axes of the features a linear model is the same one, and found in fewer steps."""

import numpy as np
import pytest
import torch
from torch import nn

import credibly as cr
from credibly.train.axes import Axes
from credibly.train.lbfgs import loss_terms, minimise

SHAPES = [(200, 12), (30, 50), (40, 40)]


def problem(count, width, seed=0):
    """Features of very different scales, and targets of which some are unknown."""
    noise = np.random.default_rng(seed)
    mixing = noise.normal(size=(width, width)) * np.logspace(0, -2, width)
    inputs = torch.from_numpy(noise.normal(size=(count, width)) @ mixing)
    targets = torch.from_numpy((noise.random((count, 3)) < [0.5, 0.2, 0.05]).astype(np.float64))
    targets[::7, 1] = -1
    return inputs, targets


@pytest.mark.parametrize(("count", "width"), SHAPES)
def test_axes_are_orthonormal_and_hold_the_rows(count, width):
    inputs, _ = problem(count, width)
    axes = Axes.of(inputs)
    kept = min(count, width)
    assert axes.directions.shape == (width, kept)
    one = torch.eye(kept).double()
    torch.testing.assert_close(axes.directions.T @ axes.directions, one)
    along = axes.along(inputs)
    torch.testing.assert_close(along @ axes.directions.T, inputs)
    torch.testing.assert_close(along.square().mean(dim=0), axes.lengths)


def test_very_many_features_are_taken_as_they_are(monkeypatch):
    inputs, targets = problem(200, 12)
    turned = Axes.of(inputs)
    monkeypatch.setattr("credibly.train.axes.MOST_AXES", 11)
    axes = Axes.of(inputs)
    assert axes.directions is None
    assert axes.along(inputs) is inputs
    values = []
    for kind in (turned, axes):
        layer = kind.head(nn.Linear(12, 3).double())
        values.append(
            minimise(
                layer,
                cr.losses.BCE(),
                kind.along(inputs),
                targets,
                0.01,
                max_iterations=5000,
                tolerance=1e-14,
                units=kind.units(targets, 1.0, 100),
            )
        )
        put = nn.Linear(12, 3).double()
        kind.put_back(layer, put)
        torch.testing.assert_close(put(inputs), layer(kind.along(inputs)))
    assert values[0] == pytest.approx(values[1], abs=1e-6)


@pytest.mark.parametrize(("count", "width"), SHAPES)
@pytest.mark.parametrize("loss", ["bce", "spa"])
def test_the_optimum_is_that_of_the_features_and_is_found_sooner(loss, count, width):
    inputs, targets = problem(count, width)
    criterion = cr.losses.from_name(loss, num_labels=3)
    terms = loss_terms(criterion, targets)
    found, steps = [], []
    for along in (False, True):
        plain = nn.Linear(width, 3).double()
        nn.init.zeros_(plain.weight)
        nn.init.zeros_(plain.bias)
        axes = Axes.of(inputs)
        head = axes.head(plain) if along else plain
        rows = axes.along(inputs) if along else inputs
        units = axes.units(targets, 3, terms) if along else None
        seen = []
        head.register_forward_hook(lambda *_: seen.append(1))  # noqa: B023 - used in this round
        lowest = minimise(
            head,
            criterion,
            rows,
            targets,
            3 / terms,
            max_iterations=20_000,
            tolerance=1e-14,
            units=units,
        )
        if along:
            axes.put_back(head, plain)
        with torch.no_grad():
            value = criterion(plain(inputs), targets) + 1.5 / terms * plain.weight.square().sum()
        assert float(value) == pytest.approx(lowest, abs=1e-12)
        found.append(lowest)
        steps.append(len(seen))
    assert found[0] == pytest.approx(found[1], abs=1e-5)
    assert steps[1] < steps[0]
