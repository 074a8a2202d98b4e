"""Updates by torch's functional forms: the same numbers as torch.optim, without its compiler."""

import dataclasses
import re
import subprocess
import sys
from functools import partial

import numpy as np
import pytest
import torch
from train_instances import DATA, pictures, pretrained_weights

import credibly as cr
from credibly.cli import main
from credibly.data.torch_datasets import stream
from credibly.losses import BCE, OnlineEstimation
from credibly.models import build
from credibly.train import Recipe, fit, recipe
from credibly.train.distributed import SingleProcess, epoch_batches, score, scoring_batches, share
from credibly.train.optimizer import (
    SGD,
    AdamW,
    Average,
    build_optimizer,
    flatten_optimizer,
    learning_rate,
    restore_optimizer,
)

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


# Rates, averages and batches --------------------------------------------------------------


NETWORKS = {
    "resnet20-32": (3, 8, 8),
    "efficientnet-lite0": (3, 32, 32),
    "densenet40-12": (3, 8, 8),
    "mlp": (6,),
    "linear": (6,),
}
each_network = pytest.mark.parametrize("name", NETWORKS)


def scales(settings: Recipe, model, criterion=None) -> dict[int, float]:
    """The factor on the rate of each parameter, by its id."""
    optimizer = build_optimizer(settings, model, criterion or BCE())
    return {id(p): group["scale"] for group in optimizer.param_groups for p in group["params"]}


@each_network
def test_every_parameter_is_in_one_layer_in_the_order_of_the_network(name):
    model = build(name, NETWORKS[name], 3)
    listed = [id(p) for layer in model.layers() for p in layer]
    assert sorted(listed) == sorted(id(p) for p in model.backbone.parameters())
    assert len(listed) == len(set(listed))


@each_network
def test_rates_fall_from_the_head_to_the_input(name):
    model = build(name, NETWORKS[name], 3)
    found = scales(recipe(backbone_rate=0.5, layer_decay=0.8), model)
    assert all(found[id(p)] == 1 for p in model.head.parameters())
    layers = model.layers()
    for place, layer in enumerate(layers):
        expected = 0.5 * 0.8 ** (len(layers) - 1 - place)
        assert [found[id(p)] for p in layer] == pytest.approx([expected] * len(layer))


def test_parameters_of_the_loss_are_trained_once_at_the_full_rate():
    model = build("mlp", (6,), 3)
    criterion = OnlineEstimation(num_rows=10, num_labels=3, average_size=1.0)
    for settings in (recipe("mlp"), recipe(backbone_rate=0.1), recipe(layer_decay=0.5)):
        optimizer = build_optimizer(settings, model, criterion)
        listed = [id(p) for group in optimizer.param_groups for p in group["params"]]
        assert len(listed) == len(set(listed))
        found = scales(settings, model, criterion)
        assert {found[id(p)] for p in criterion.parameters()} <= {1.0}
        assert set(found) >= {id(p) for p in criterion.parameters()}


@each_network
def test_the_average_of_weights_lies_between_them_and_keeps_fixed_numbers(name):
    model = build(name, NETWORKS[name], 3)
    first = {key: value.clone() for key, value in model.state_dict().items()}
    average = Average(model, decay=0.5)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(1.0)
    average.update(model, updates=100)
    for key, value in model.state_dict().items():
        expected = (first[key] + value) / 2 if value.is_floating_point() else value
        torch.testing.assert_close(average.state[key], expected)


@pytest.mark.parametrize("schedule", ["cosine", "constant", "step", "onecycle"])
def test_the_learning_rate_stays_within_its_bounds_and_peaks_at_its_highest(schedule):
    milestones = (0.5,) if schedule == "step" else ()
    settings = recipe(schedule=schedule, warmup=0.2, milestones=milestones, learning_rate=2.0)
    rates = [learning_rate(settings, step, 100) for step in range(100)]
    assert all(0 < rate <= 2.0 for rate in rates)
    assert max(rates) == pytest.approx(2.0, rel=0.06)
    assert rates[0] < rates[10] < rates[19]
    if schedule != "constant":
        assert rates[99] <= 0.2


@pytest.mark.parametrize(("rows", "size", "processes"), [(10, 4, 1), (101, 32, 3), (7, 7, 2)])
def test_processes_together_see_every_row_once_an_epoch(rows, size, processes):
    batches = epoch_batches(rows, size, seed=3, epoch=5)
    shares = [share(batches, rank, processes) for rank in range(processes)]
    for number, batch in enumerate(batches):
        assert torch.cat([part[number] for part in shares]).equal(batch)
        assert len(batch) <= size
    assert torch.cat(batches).sort().values.equal(torch.arange(rows))
    assert max(map(len, batches)) - min(map(len, batches)) <= 1


def test_the_order_is_a_function_of_seed_and_epoch():
    def order(seed, epoch):
        return torch.cat(epoch_batches(50, 8, seed, epoch)).tolist()

    assert order(0, 1) == order(0, 1)
    assert order(0, 1) != order(0, 2)
    assert order(0, 1) != order(1, 0)


def test_the_average_of_constant_weights_is_those_weights_and_integers_are_copied():
    model = torch.nn.BatchNorm1d(3)
    average = Average(model, 0.5)
    model(torch.randn(8, 3))
    with torch.no_grad():
        model.weight.fill_(3.0)
    for update in range(1, 60):
        average.update(model, update)
    assert average.state["weight"].allclose(torch.full((3,), 3.0))
    assert average.state["num_batches_tracked"] == 1


def test_batches_hold_rows_of_like_length_and_every_row_once():
    lengths = np.random.default_rng(0).integers(1, 500, 1000)
    batches = epoch_batches(1000, 16, seed=1, epoch=2, lengths=lengths)
    assert sorted(torch.cat(batches).tolist()) == list(range(1000))
    padded = sum(len(b) * lengths[b].max() for b in batches)
    plain = sum(len(b) * lengths[b].max() for b in epoch_batches(1000, 16, 1, 2))
    assert padded < 1.15 * lengths.sum() < plain
    again = epoch_batches(1000, 16, seed=1, epoch=2, lengths=lengths)
    assert all(torch.equal(one, two) for one, two in zip(batches, again, strict=True))
    scored = scoring_batches(torch.arange(1000), 1024, lengths)
    assert sorted(torch.cat(scored).tolist()) == list(range(1000))
    assert max(len(b) * lengths[b].max() for b in scored) <= 16_384


@pytest.mark.parametrize("kind", ["pictures", "awkward"])
def test_images_are_scored_as_many_at_a_time_as_fit_the_bytes(kind):
    rows = DATA[kind]().torch_dataset(train=False)
    model = build("cnn" if kind == "pictures" else "mlp", DATA[kind](), 4).eval()
    sizes = []
    model.register_forward_pre_hook(lambda module, given: sizes.append(len(given[0])))
    scores = []
    for limit in (2**29, 2**19, 1):
        sizes.clear()
        scores.append(score(model, rows, SingleProcess(), max_bytes=limit))
        assert max(sizes) == {2**29: len(rows), 2**19: 8, 1: 1}[limit] or kind == "awkward"
    torch.testing.assert_close(scores[1], scores[0])
    torch.testing.assert_close(scores[2], scores[0])
    assert not model.training


class RowNumbers:
    """Rows that say how much memory their batch's row numbers keep."""

    def batch(self, rows):
        return torch.tensor(rows.untyped_storage().nbytes()), rows, rows


def test_batches_of_workers_own_the_memory_of_their_row_numbers():
    """Sending a batch moves that memory while the worker reads the next batch's rows."""
    batches = torch.arange(64).split(8)
    for size, _, rows in stream(RowNumbers(), batches, 1):
        assert size == rows.nbytes
