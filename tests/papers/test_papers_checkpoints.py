"""Official checkpoints become safetensors without running anything in them."""

from __future__ import annotations

import os

import numpy as np
import pytest
import torch
from safetensors.torch import load_file

import credibly as cr
from credibly.cli import main
from credibly.papers.checkpoints import convert_checkpoint
from credibly.papers.single_positive import hide_labels

STATE = {"conv.weight": torch.arange(6.0).reshape(2, 3), "fc.bias": torch.zeros(2)}
LAYOUTS = {
    "alone": STATE,
    "asl zoo": {"model": STATE, "num_classes": 80},
    "plantnet": {"epoch": 3, "model": STATE, "optimizer": {"state": {}, "param_groups": []}},
    "parallel": {"state_dict": {f"module.{name}": value for name, value in STATE.items()}},
}


@pytest.mark.parametrize("content", LAYOUTS.values(), ids=LAYOUTS)
def test_the_weights_of_a_checkpoint_are_kept(content, tmp_path):
    torch.save(content, tmp_path / "c.pth")
    assert convert_checkpoint(tmp_path / "c.pth", tmp_path / "c.safetensors") == [*STATE]
    found = load_file(tmp_path / "c.safetensors")
    assert found.keys() == STATE.keys()
    assert all(torch.equal(found[name], STATE[name]) for name in STATE)


class Command:
    def __reduce__(self):
        return os.system, ("touch ran",)


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ({"state_dict": STATE, "hook": Command()}, "nothing that runs code"),
        ({"epoch": 3}, "must hold a state dict"),
        ([STATE], "must hold a state dict"),
    ],
    ids=["code", "no weights", "a list"],
)
def test_anything_else_is_refused_and_nothing_is_written(content, words, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    torch.save(content, "c.pth")
    with pytest.raises(cr.InputError, match=words):
        convert_checkpoint("c.pth", "c.safetensors")
    assert os.listdir(tmp_path) == ["c.pth"]
    with pytest.raises(cr.InputError, match=r"`out` must end in \.safetensors"):
        convert_checkpoint("c.pth", "c.pt")


def test_the_command_converts(tmp_path, capsys):
    torch.save(STATE, tmp_path / "c.tar")
    out = tmp_path / "c.safetensors"
    assert main(["papers", "--checkpoint", str(tmp_path / "c.tar"), "--out", str(out)]) == 0
    assert "Wrote 2 tensors" in capsys.readouterr().out
    assert out.exists()


# Single positives ---------------------------------------------------------------------------------


@pytest.mark.parametrize(("others", "value"), [("unknown", -1), ("absent", 0)])
def test_one_label_of_each_training_row_is_kept_and_all_of_test_rows(others, value):
    data = cr.data.load("synthetic", n=2000, seed=0)
    hidden = hide_labels(data, seed=3, others=others)
    test = data.split == 1
    np.testing.assert_array_equal(hidden.targets[test], data.targets[test])
    several = ~test & (data.targets.sum(1) > 0)
    kept = hidden.targets[several]
    assert ((kept == 1).sum(1) == 1).all()
    assert set(np.unique(kept)) == {1, value}
    assert (data.targets[several][kept == 1] == 1).all()
    np.testing.assert_array_equal(hidden.targets[~test & ~several], data.targets[~test & ~several])


def test_each_label_of_a_row_is_kept_as_often_as_the_others():
    data = cr.data.Data(list("abc"), np.tile([1, 0, 1], (4000, 1)), features=np.zeros((4000, 1)))
    share = (hide_labels(data, seed=0).targets == 1).mean(0)
    np.testing.assert_allclose(share, [0.5, 0, 0.5], atol=0.03)
