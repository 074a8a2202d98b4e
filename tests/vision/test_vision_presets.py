"""Protocols of the papers with their own networks, at the printed image size: one epoch each."""

import sys
from pathlib import Path

import numpy as np
import pytest

import credibly as cr
from credibly.cli import main

pytest.importorskip("timm", reason="runs in make test-vision")
sys.path.append(str(Path(__file__).parents[1] / "papers"))
from test_papers_training import COCO, SMALL, cifar100, make_coco, make_plantnet

pytestmark = pytest.mark.filterwarnings("ignore")  # of the libraries, not ours

FEW_ROWS = ("--average-size", "1.5")
PRESETS = {
    **{name: ("coco", make_coco, ()) for name in COCO if name != "spa-coco-ours"},  # as spa-coco
    "avgk-plantnet": ("plantnet", make_plantnet, FEW_ROWS),
    "quasibinary-cifar": ("cifar100", cifar100, ()),
    "quasibinary-cifar-vgg16": ("cifar100", cifar100, ()),
    "quasibinary-cifar-densenet": ("cifar100", cifar100, ()),
}


@pytest.mark.parametrize("preset", PRESETS)
def test_a_protocol_trains_its_own_network(preset, tmp_path, capsys):
    kind, make, options = PRESETS[preset]
    make(tmp_path / "data")
    command = ["train", f"{kind}:{tmp_path / 'data'}", "--preset", preset, "--weights", "none"]
    command += ["--out", str(tmp_path / "run"), *SMALL, *options]
    assert main(command) == 0, capsys.readouterr().err
    run, printed = cr.load(tmp_path / "run"), cr.papers.preset(preset).settings
    for name in ("model", "image_size", "loss", "eval_crop"):
        assert getattr(run.recipe, name) == printed.get(name), name
    found = cr.Predictions.read(tmp_path / "run/predictions.parquet").probabilities
    assert found.size
    assert np.isfinite(found).all()
