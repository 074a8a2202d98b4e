"""Updates by torch's functional forms: the same numbers as torch.optim, without its compiler."""

import dataclasses
import subprocess
import sys

import numpy as np
import pytest
import torch

import credibly as cr
from credibly.data.splits import CALIBRATION, TRAIN
from credibly.train import fit, recipe
from credibly.train.checkpoint import flatten_optimizer, restore_optimizer
from credibly.train.optimizer import SGD, AdamW

KINDS = {
    "adamw": (AdamW, torch.optim.AdamW, {}),
    "sgd": (SGD, torch.optim.SGD, {"momentum": 0.0, "nesterov": False}),
    "momentum": (SGD, torch.optim.SGD, {"momentum": 0.9, "nesterov": False}),
    "nesterov": (SGD, torch.optim.SGD, {"momentum": 0.9, "nesterov": True}),
}


def layers():
    torch.manual_seed(0)
    return torch.nn.Sequential(torch.nn.Linear(5, 4), torch.nn.Tanh(), torch.nn.Linear(4, 3))


def groups(model):
    weights = [p for p in model.parameters() if p.ndim > 1]
    biases = [p for p in model.parameters() if p.ndim == 1]
    return [
        {"params": weights, "lr": 0.05, "weight_decay": 0.1, "scale": 1.0},
        {"params": biases, "lr": 0.02, "weight_decay": 0.0, "scale": 1.0},
    ]


def take_steps(model, optimizer, numbers):
    for number in numbers:
        torch.manual_seed(number)
        loss = model(torch.randn(8, 5)).square().mean()
        loss.backward()
        if number % 3 == 0:
            model[0].bias.grad = None  # a parameter without a gradient stays
        for group in optimizer.param_groups:
            group["lr"] *= 0.9
        optimizer.step()
        optimizer.zero_grad()


@pytest.mark.parametrize("kind", KINDS)
def test_weights_are_those_of_torch_optim_bit_for_bit(kind):
    ours, theirs, options = KINDS[kind]
    models = layers(), layers()
    take_steps(models[0], ours(groups(models[0]), **options), range(1, 12))
    take_steps(models[1], theirs(groups(models[1]), **options), range(1, 12))
    for one, other in zip(models[0].parameters(), models[1].parameters(), strict=True):
        assert torch.equal(one, other)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("order", ["ours first", "torch first"])
def test_either_goes_on_from_a_checkpoint_of_the_other(kind, order):
    ours, theirs, options = KINDS[kind]
    first, second = (ours, theirs) if order == "ours first" else (theirs, ours)
    whole, parted = layers(), layers()
    take_steps(whole, theirs(groups(whole), **options), range(1, 12))
    early = first(groups(parted), **options)
    take_steps(parted, early, range(1, 6))
    late = second(groups(parted), **options)
    for group, before in zip(late.param_groups, early.param_groups, strict=True):
        group["lr"] = before["lr"]
    restore_optimizer(late, *flatten_optimizer(early))
    take_steps(parted, late, range(6, 12))
    for one, other in zip(whole.parameters(), parted.parameters(), strict=True):
        assert torch.equal(one, other)


QUICK = """
import sys, tempfile
import credibly as cr
from credibly.train import recipe, fit

fit(cr.data.synthetic(200), recipe(model="mlp", epochs=1), folder=tempfile.mkdtemp() + "/run")
names = ("torch._dynamo", "accelerate", "sklearn", "pandas")
print([name for name in names if name in sys.modules])
"""


def test_training_a_network_imports_no_compiler_and_no_second_library():
    found = subprocess.run(
        [sys.executable, "-c", QUICK], capture_output=True, text=True, check=True
    )
    assert found.stdout.strip() == "[]"


SCALES = {
    "sgd": ({"optimizer": "sgd", "momentum": 0.9}, 1 / 128, 5e-6),
    "adamw": ({"optimizer": "adamw"}, 1.0, 1e-3),  # but for ε in its denominator
}


@pytest.mark.parametrize("name", SCALES)
def test_the_scale_of_a_loss_is_one_of_its_rate(name, tmp_path):
    """A sum over 32 rows and 4 labels is 128 times the mean."""
    given, share, tolerance = SCALES[name]
    rows = cr.data.synthetic(200, num_labels=4)
    split = np.where(np.arange(200) < 128, TRAIN, CALIBRATION)
    rows = dataclasses.replace(rows, split=split, _hash=[])
    scores = []
    for loss, rate in (("bce", 0.5), ("bce(reduction=sum)", 0.5 * share)):
        settings = recipe(
            **{"model": "linear", "epochs": 3, "batch_size": 32},
            **{"weight_decay": 0.0, "select": "last", "calibrate": "none"},
            **given,
            loss=loss,
            learning_rate=rate,
        )
        run = fit(rows, settings, folder=tmp_path / loss)
        scores.append(run.scores(rows).numpy())
    np.testing.assert_allclose(*scores, rtol=0, atol=tolerance)
    assert np.abs(scores[0]).max() > 0.1
