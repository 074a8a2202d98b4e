"""Recipes, presets and schedules: pure functions, checked before anything is trained."""

from __future__ import annotations

import dataclasses
import subprocess
import sys

import numpy as np
import pytest
import torch
from torch import nn

from credibly import InputError
from credibly.cli import main
from credibly.data import Data
from credibly.train import recipe, resolve
from credibly.train.distributed import epoch_batches, share
from credibly.train.optimizer import Average, learning_rate
from credibly.train.recipes import from_table, to_table
from credibly.train.run_folder import write_toml
from credibly.untrusted.documents import read_toml


def test_settings_survive_a_file(tmp_path):
    settings = recipe(
        loss='asl(gamma_neg=4)+"quoted"\\', milestones=(0.5, 0.75), ema=1e-9, average_size=None
    )
    write_toml(tmp_path / "c.toml", {"settings": to_table(settings, 3)})
    assert from_table(read_toml(tmp_path / "c.toml")["settings"], "c.toml") == (settings, 3)


TIMM_WITHOUT_A_CONNECTION = """
def is_model(name):
    return True
def create_model(name, **settings):
    assert settings["pretrained"]
    raise OSError("Name or service not known")
"""


@pytest.mark.parametrize("command", ["train", "compare"])
def test_a_preset_without_its_library_says_so_before_the_data_are_read(
    command, tmp_path, monkeypatch, capsys
):
    monkeypatch.setitem(sys.modules, "timm", None)
    out = tmp_path / "run"
    assert main([command, "nowhere.npz", "--preset", "spa-coco", "--out", str(out)]) == 2
    shown = " ".join(capsys.readouterr().err.split())
    assert "preset spa-coco: --model timm:ecaresnet50t needs timm; it is not installed" in shown
    assert "pip install 'credibly[vision]'" in shown
    assert "--model efficientnet-lite0" in shown
    assert not out.exists()


def test_a_preset_whose_weights_cannot_be_had_says_what_to_do(tmp_path, monkeypatch, capsys):
    (tmp_path / "timm.py").write_text(TIMM_WITHOUT_A_CONNECTION)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.delitem(sys.modules, "timm", raising=False)
    out = tmp_path / "run"
    command = ["train", "digits", "--preset", "spa-coco", "--out", str(out), "--quiet"]
    assert main([*command, "--image-size", "8"]) == 2
    sys.modules.pop("timm", None)
    shown = " ".join(capsys.readouterr().err.split())
    assert "needs the ImageNet weights of timm:ecaresnet50t, which timm downloads" in shown
    assert "OSError: Name or service not known" in shown
    assert "--weights FILE.safetensors" in shown
    assert "--weights none" in shown
    assert not out.exists()


BAD = {
    "`epochs` must lie": {"epochs": 0},
    "`epochs` must be a whole number": {"epochs": 2.5},
    "`learning_rate` must lie": {"learning_rate": 0.0},
    "`ema` must lie": {"ema": 1.0},
    "`optimizer` must be one of": {"optimizer": "adagrad"},
    "needs `milestones`": {"schedule": "step"},
    "needs `average_size`": {"select": "average-k"},
    "`l2` belongs to the recipe Linear, TextLinear or Probe": {"l2": 1.0, "model": "mlp"},
    "`model` auto makes Auto with `budget`": {"budget": "5s", "epochs": 3},
    "unknown option 'solver'": {"solver": "lbfgs"},
    "give `frozen` too": {"features": True},
    "`average_size` must": {"average_size": 0.5},
}


@pytest.mark.parametrize("message", BAD)
def test_settings_that_cannot_be_are_refused(message):
    with pytest.raises(InputError, match=message):
        recipe(**BAD[message])


def test_a_misspelt_key_names_the_nearest():
    with pytest.raises(InputError, match="Did you mean 'learning_rate'"):
        from_table({"recipe": "network", "learningrate": 1.0}, "run.toml")


def test_flags_win_over_file_over_preset(tmp_path):
    from credibly.cli import train
    from credibly.cli.command import resolve

    (tmp_path / "run.toml").write_text("epochs = 30\nlearning-rate = 0.5\n")
    options = resolve(
        train.Options,
        {
            "data": "digits",
            "out": str(tmp_path / "run"),
            "preset": "spa-coco",
            "config": str(tmp_path / "run.toml"),
            "epochs": 7,
        },
    )
    settings, _ = train.recipe_of(options)
    # 30 epochs is also the default: what is given wins even where it equals one.
    assert (settings.epochs, settings.learning_rate, settings.batch_size) == (7, 0.5, 256)
    options = dataclasses.replace(options, epochs=30)
    assert train.recipe_of(options)[0].epochs == 30


def test_the_command_line_knows_every_setting_without_importing_torch():
    code = (
        "import sys; from credibly.cli import train, compare; "
        "names = {f.name for f in __import__('dataclasses').fields(train.Options)}; "
        "assert {'loss', 'milestones', 'l2', 'resume', 'overwrite'} <= names; "
        "assert not {'torch', 'numpy', 'accelerate'} & set(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


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
    model = nn.BatchNorm1d(3)
    average = Average(model, 0.5)
    model(torch.randn(8, 3))
    with torch.no_grad():
        model.weight.fill_(3.0)
    for update in range(1, 60):
        average.update(model, update)
    assert average.state["weight"].allclose(torch.full((3,), 3.0))
    assert average.state["num_batches_tracked"] == 1


@pytest.mark.parametrize(
    ("targets", "loss"),
    [
        ([[1, 0, 0], [0, 1, 0], [0, 0, 1]], "softmax"),
        ([[1, 0, 0], [0, 1, 1], [0, 0, 1]], "bce"),
        ([[1, 0, 0], [0, 0, 0], [0, 0, 1]], "bce"),
        ([[1, 0, 0], [0, 1, -1], [0, 0, 1]], "bce"),
        ([[1, 0, 0], [0, 0.5, 0.5], [0, 0, 1]], "bce"),
        ([[1], [1], [1]], "bce"),
    ],
)
def test_auto_takes_softmax_only_where_every_row_has_one_known_label(
    targets: list[list[float]], loss: str
) -> None:
    rows = Data([str(k) for k in range(len(targets[0]))], np.array(targets), features=np.eye(3))
    assert resolve(recipe(), rows).loss == loss
    assert resolve(recipe(loss="spa"), rows).loss == "spa"
