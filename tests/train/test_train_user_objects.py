"""A user's own network and loss: trained, resumed and loaded like ours; code only where allowed."""

from __future__ import annotations

import sys

import numpy as np
import pytest
import torch
from torch import nn

import credibly as cr
from credibly import InputError, losses
from credibly.cli import main
from credibly.train import Callback, Linear, Network, fit

DATA = cr.data.synthetic(300)
NEW = cr.data.synthetic(20, seed=3).features
QUICK = {"epochs": 2}


class Net(nn.Module):
    def __init__(self, shape: tuple[int, ...], num_scores: int) -> None:
        super().__init__()
        self.first, self.last = nn.Linear(shape[0], 8), nn.Linear(8, num_scores)

    def forward(self, rows: torch.Tensor) -> torch.Tensor:
        return self.last(self.first(rows).relu())


class Hinge(losses.BinaryLoss):
    name = "mine"

    def positive(self, scores: torch.Tensor) -> torch.Tensor:
        return nn.functional.softplus(-2 * scores)

    def negative(self, scores: torch.Tensor) -> torch.Tensor:
        return nn.functional.softplus(scores)


def network(scores_per_label: int = 1) -> Net:
    torch.manual_seed(0)
    return Net(DATA.input_shape, DATA.num_labels * scores_per_label)


def test_own_network_and_loss_give_a_run_that_loads_with_them(tmp_path):
    run = fit(DATA, Network(**QUICK, model=network(), loss=Hinge()), folder=tmp_path / "run")
    assert run.recipe.model == "object:Net"
    assert run.metrics["NLL"] < 0.7
    loaded = cr.load(tmp_path / "run", model=network(), loss=Hinge())
    found = loaded.predict(NEW).probabilities
    np.testing.assert_array_equal(found, run.predict(NEW).probabilities)
    with pytest.raises(InputError, match=r"your own model \(Net\).*cr\.load\(folder, model="):
        cr.load(tmp_path / "run", loss=Hinge())
    with pytest.raises(InputError, match=r"your own loss \(Hinge\).*cr\.load\(folder, loss="):
        cr.load(tmp_path / "run", model=network())


def test_an_interrupted_run_with_own_objects_goes_on_to_the_same_result(tmp_path):
    class Stop(Callback):
        def on_update(self, done: int, total: int) -> None:
            if done == total // 2 + 1:
                raise KeyboardInterrupt

    def own(model: nn.Module) -> Network:
        return Network(model=model, loss=losses.SPA(), epochs=4, checkpoint_seconds=0)

    whole = fit(DATA, own(network()), folder=tmp_path / "whole")
    with pytest.raises(KeyboardInterrupt):
        fit(DATA, own(network()), folder=tmp_path / "cut", callback=Stop())
    other = own(Net(DATA.input_shape, DATA.num_labels))
    cut = fit(DATA, other, folder=tmp_path / "cut", resume=True)
    for name, tensor in whole.model.state_dict().items():
        assert torch.equal(tensor, cut.model.state_dict()[name]), name


def test_two_scores_per_label_reach_an_own_network(tmp_path):
    one = np.eye(DATA.num_labels, dtype=np.float32)[np.arange(len(DATA)) % DATA.num_labels]
    rows = cr.data.Data(DATA.labels, one, features=DATA.features, split=DATA.split)
    own = Network(**QUICK, model=network(2), loss=losses.AverageK(3))
    run = fit(rows, own, folder=tmp_path / "run")
    assert run.predict(NEW).probabilities.shape == (20, DATA.num_labels)


BAD = {
    "not a network": ({"model": lambda rows: rows}, r"torch\.nn\.Module; got function"),
    "not a loss": ({"loss": nn.BCEWithLogitsLoss()}, r"log_odds.*class MyLoss"),
    "wrong width": ({"model": Net((20,), 3)}, r"shape \(rows, 20\).*got \(2, 3\)"),
    "other inputs": ({"model": Net((7,), 20)}, r"take inputs of shape \(2, 20\); it fails"),
    "frozen": ({"model": network(), "frozen": True}, "built-in network"),
}


@pytest.mark.parametrize("name", BAD)
def test_objects_that_do_not_fit_are_errors_and_leave_nothing(name, tmp_path):
    options, message = BAD[name]
    with pytest.raises(InputError, match=f"(?s){message}"):
        fit(DATA, Network(**QUICK, **options), folder=tmp_path / "run")
    assert list(tmp_path.iterdir()) == []


def test_an_own_loss_is_solved_to_its_optimum_too():
    class Mine(losses.BCE):
        name = "mine"

    own, ours = (fit(DATA, Linear(loss=loss, l2=1.0)) for loss in (Mine(), "bce"))
    np.testing.assert_allclose(own.probabilities(NEW), ours.probabilities(NEW), atol=1e-6)


FACTORY = """
from torch import nn
def build(shape, num_scores):
    return nn.Sequential(nn.Linear(shape[0], num_scores))
def text(shape, num_scores):
    return "a network"
def short(shape):
    return None
"""


@pytest.fixture
def package(tmp_path, monkeypatch):
    (tmp_path / "code").mkdir()
    (tmp_path / "code" / "own_networks.py").write_text(FACTORY)
    monkeypatch.syspath_prepend(str(tmp_path / "code"))
    yield "own_networks"
    sys.modules.pop("own_networks", None)


def test_a_factory_named_by_the_user_is_trained_and_never_imported_unasked(package, tmp_path):
    name, out = f"python:{package}:build", tmp_path / "run"
    command = ["train", "synthetic", "--model", name, "--epochs", "1", "--out", str(out), "--quiet"]
    assert main(command) == 0
    sys.modules.pop(package)
    with pytest.raises(InputError, match=r"imports Python code.*allow_python=True"):
        cr.load(out)
    assert package not in sys.modules
    run = cr.load(out, allow_python=True)
    assert run.predict(NEW).probabilities.shape[0] == 20
    torch.manual_seed(1)
    again = cr.load(out, model=sys.modules[package].build(DATA.input_shape, DATA.num_labels))
    np.testing.assert_array_equal(again.predict(NEW).probabilities, run.predict(NEW).probabilities)


@pytest.mark.parametrize("seeds", [1, 2])
def test_a_factory_can_be_compared(package, seeds, tmp_path):
    settings = Network(model=f"python:{package}:build", epochs=1)
    options = {"seeds": seeds, "recipe": settings, "conditions": 1, "data_options": {"n": 200}}
    found = cr.compare("synthetic", tmp_path, ["bce"], **options)
    for name in ("NLL", "set coverage"):
        figure = found.losses["bce"][name]
        assert figure["low"] < figure["mean"] < figure["high"]


def test_resuming_a_folder_that_names_code_asks_for_the_name_again(package, tmp_path, capsys):
    name, out = f"python:{package}:build", tmp_path / "run"
    command = ["train", "synthetic", "--out", str(out), "--epochs", "1", "--quiet"]
    assert main([*command, "--model", name]) == 0
    sys.modules.pop(package)
    assert main([*command, "--resume"]) == 2
    assert f"--model {name}" in capsys.readouterr().err
    assert package not in sys.modules
    assert main([*command, "--resume", "--model", name]) == 0


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("python:own_networks", "must read python:package.module:factory"),
        ("python:no_such_module:build", "cannot be imported"),
        ("python:own_networks:nothing", "has no 'nothing'"),
        ("python:own_networks:text", "must return a torch.nn.Module; got str"),
        ("python:own_networks:short", r"called as short\(input_shape, num_scores\)"),
    ],
)
def test_factories_that_do_not_work_say_why(package, name, message, tmp_path):
    with pytest.raises(InputError, match=message):
        fit(DATA, Network(model=name, epochs=1), folder=tmp_path / "run")
    assert not (tmp_path / "run").exists()
