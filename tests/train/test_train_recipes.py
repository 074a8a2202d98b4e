"""Recipes, presets and schedules: pure functions, checked before anything is trained."""

from __future__ import annotations

import dataclasses
import subprocess
import sys

import numpy as np
import pytest

from credibly import InputError, data, losses
from credibly.cli import main
from credibly.data import Data
from credibly.train import fit, load, recipe, resolve


def test_settings_survive_a_file(tmp_path):
    settings = recipe(
        loss=losses.Asymmetric(gamma_neg=4), milestones=(0.5, 0.75), ema=1e-9, epochs=1
    )
    rows = data.synthetic(60, num_labels=3)
    written = fit(rows, settings, folder=tmp_path / "run", seed=3)
    again = load(tmp_path / "run", loss=settings.loss)
    assert (again.recipe, again.seed) == (written.recipe, 3)
    assert again.recipe.milestones == (0.5, 0.75)
    names = 'asl "quoted"\\', "é\x7f", "a=b"
    odd = dataclasses.replace(rows, labels=list(names))
    fit(odd, "linear", folder=tmp_path / "odd")
    assert load(tmp_path / "odd").labels == list(names)


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
    assert "--model timm:ecaresnet50t needs timm; it is not installed" in shown
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


def test_a_misspelt_key_of_a_run_names_the_nearest(tmp_path):
    folder = fit(data.synthetic(60), recipe("linear", epochs=1), folder=tmp_path / "run").folder
    (folder / "manifest.json").unlink()  # which would name the file first
    config = folder / "config.toml"
    config.write_text(config.read_text().replace("learning_rate =", "learningrate ="))
    with pytest.raises(InputError, match="Did you mean 'learning_rate'"):
        load(folder)


def test_flags_win_over_file_over_preset(tmp_path, capsys):
    """30 epochs is also the default: what is given wins even where it equals one."""
    (tmp_path / "run.toml").write_text("epochs = 30\nlearning-rate = 0.5\n")
    rows = data.digits(40)
    labels = np.array(rows.labels)
    np.savez(tmp_path / "rows.npz", images=rows.images, targets=rows.targets, labels=labels)
    command = ["train", str(tmp_path / "rows.npz"), "--preset", "spa-coco", "--model", "linear"]
    command += ["--config", str(tmp_path / "run.toml"), "--quiet", "--weights", "none"]
    for given, epochs in (([], 30), (["--epochs", "2"], 2)):
        out = tmp_path / str(epochs)
        assert main([*command, "--out", str(out), *given]) == 0, capsys.readouterr().err
        made = load(out).recipe
        assert (made.epochs, made.learning_rate, made.batch_size) == (epochs, 0.5, 256)


def test_the_command_line_knows_every_setting_without_importing_torch():
    code = (
        "import sys; from credibly.cli import train, compare; "
        "names = {f.name for f in __import__('dataclasses').fields(train.Options)}; "
        "assert {'loss', 'milestones', 'l2', 'resume', 'overwrite'} <= names; "
        "assert not {'torch', 'numpy', 'accelerate'} & set(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


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
