"""Updates by torch's functional forms: the same numbers as torch.optim, without its compiler."""

import dataclasses
import re
import subprocess
import sys
from functools import partial

import numpy as np
import pytest
import torch
from train_instances import pictures, pretrained_weights

import credibly as cr
from credibly.cli import main
from credibly.train import fit, recipe
from credibly.train.optimizer import SGD, AdamW, flatten_optimizer, restore_optimizer

TRAIN, CALIBRATION = 0, 2  # what `split` says of a row

KINDS = {
    "adamw": (AdamW, partial(torch.optim.AdamW, fused=True), {}),
    "adam": (partial(AdamW, decoupled=False), partial(torch.optim.Adam, fused=True), {}),
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


def test_a_restored_state_goes_on_with_channels_last_weights():
    torch.manual_seed(0)
    start, rows = torch.randn(4, 3, 3, 3), torch.randn(12, 4, 3, 3, 3)

    def moved(parts):
        weight = torch.nn.Parameter(start.clone(memory_format=torch.channels_last))
        saved = None
        for part in parts:
            optimizer = AdamW([{"params": [weight], "lr": 0.05, "weight_decay": 0.1, "scale": 1.0}])
            if saved is not None:
                tensors = {name: tensor.contiguous() for name, tensor in saved[0].items()}
                restore_optimizer(optimizer, tensors, *saved[1:])
            for row in part:
                weight.grad = row.clone(memory_format=torch.channels_last)
                optimizer.step()
            saved = flatten_optimizer(optimizer)
        return weight

    assert torch.equal(moved([rows[:5], rows[5:]]), moved([rows]))


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
    rows = dataclasses.replace(rows, split=split)
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


def test_a_schedule_may_be_longer_than_the_training():
    data = cr.data.synthetic(200, seed=0)
    given = {"model": "mlp", "hidden": 4, "batch_size": 32, "schedule": "linear", "warmup": 0.0}

    def rates(**options):
        seen: list[float] = []

        class Watch(cr.train.Callback):
            def on_epoch(self, log):
                seen.append(log["learning_rate"])

        fit(data, recipe(**given, **options), callback=Watch())
        return seen

    assert rates(epochs=2, schedule_epochs=4) == pytest.approx(rates(epochs=4)[:2])


def test_time_and_memory_are_estimated_before_images_are_trained():
    class Ear(cr.train.Callback):
        def on_estimate(self, figures) -> None:
            heard.append(figures)

    heard: list[dict[str, float]] = []
    rows = cr.data.digits(120)
    recipes = [cr.train.Network(model="cnn", epochs=1, batch_size=size) for size in (16, 32)]
    first, _ = (cr.train.fit(rows, each, callback=Ear()) for each in recipes)
    small, large = heard
    weights = 5 * sum(each.nbytes for each in first.model.parameters())
    assert large["bytes"] - weights == pytest.approx(2 * (small["bytes"] - weights))
    assert min(small["seconds"], small["free"]) > 0
    assert small["before"] == 0 < small["after"] < 1  # without a probe, only the scores remain
    silent = cr.train.fit(rows, recipes[0])  # a step to measure by changes nothing
    for one, other in zip(first.model.parameters(), silent.model.parameters(), strict=True):
        assert (one == other).all()


@pytest.mark.parametrize("free", [1e9, 9e9])
def test_the_command_line_shows_the_estimate_the_probe_and_the_epochs(
    free, tmp_path, monkeypatch, capsys
):
    weights = pretrained_weights(tmp_path)
    images = pictures()
    np.savez(
        tmp_path / "rows.npz",
        images=images.images,
        targets=images.targets,
        labels=np.array(images.labels),
        split=images.split,
    )
    figures = {"seconds": 150.0, "epochs": 2, "bytes": 5e9, "free": free}
    figures |= {"before": 0.3, "after": 0.4}
    monkeypatch.setattr("credibly.train.fitting.estimated", lambda *_: figures)
    monkeypatch.setattr("credibly.cli.terminal.LINE_SECONDS", 0.002)
    command = ["train", str(tmp_path / "rows.npz"), "--model", "resnet20-32", "--loss", "bce"]
    command += ["--epochs", "2"]
    assert main([*command, "--weights", weights, "--out", str(tmp_path / "run")]) == 0
    out, shown = capsys.readouterr()
    assert re.search(r"Time: \d.\d minutes; the estimate was 2.5 minutes", out)
    shares = [int(share) for share in re.findall(r"(\d+)%", shown)]
    assert shares == sorted(shares)
    assert all(30 < int(share) <= 60 for share in re.findall(r"epoch 1 .* (\d+)%", shown))
    assert "Estimate: 2.5 minutes for 2 epochs, 5.0 GB of memory." in shown
    assert ("needs about 5.0 GB of memory, and 1.0 GB are free" in shown) == (free < 5e9)
    assert "bce, resnet20-32 · last layer · l2 " in shown
    assert "bce, resnet20-32 · epoch 1 · loss " in shown


def test_the_progress_of_scoring_ends_at_the_number_of_rows():
    class Ear(cr.train.Callback):
        def on_score(self, done, total):
            seen.append((done, total))

    seen: list[tuple[int, int]] = []
    rows = cr.data.digits(1500)
    cr.train.fit(rows, cr.train.Network(model="cnn", epochs=1), callback=Ear())
    parts = [len(rows.part(part)) for part in ("calibration", "test")]
    assert [total for done, total in seen if done == total] == parts
    assert all(done <= total for done, total in seen)
