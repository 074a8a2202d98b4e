"""Each protocol trains for one epoch on a small copy of its data, as distributed."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pytest

import credibly as cr
from credibly.cli import main

sys.path.append(str(Path(__file__).parents[1] / "data"))
from layout_makers import cifar100, make_plantnet, paint, write

SMALL = ("--epochs", "1", "--batch-size", "4", "--quiet")


def make_coco(root):
    """Write 12 training and 6 test images, one of each without an object."""
    names = ("dog", "person", "sofa")
    for part, count in (("train", 12), ("val", 6)):
        images = [{"id": k, "file_name": f"{k}.jpg"} for k in range(count)]
        notes = [{"image_id": k, "category_id": k % 3} for k in range(1, count)]
        notes += [{"image_id": k, "category_id": (k + 1) % 3} for k in range(1, count, 2)]
        categories = [{"id": k, "name": name} for k, name in enumerate(names)]
        content = {"images": images, "annotations": notes, "categories": categories}
        write(root / f"annotations/instances_{part}2014.json", content)
        for k in range(count):
            paint(root / f"{part}2014/{k}.jpg", 20 * k, size=(70, 60))


# timm's networks are replaced by a small one, since they and their weights are not here.
WITHOUT_TIMM = ("--model", "cnn", "--weights", "none", "--image-size", "32")


COCO = ("spa-coco", "spa-coco-vit", "spa-coco-ours", "quasibinary-coco", "twl", "asl")


@pytest.mark.parametrize("preset", COCO)
def test_a_protocol_of_coco_trains(preset, tmp_path, capsys):
    make_coco(tmp_path / "coco")
    crop = ("--eval-crop", "36") if preset == "twl" else ()
    command = ["train", f"coco:{tmp_path / 'coco'}", "--preset", preset, "--out"]
    command += [str(tmp_path / "run"), *SMALL, *WITHOUT_TIMM, *crop]
    assert main(command) == 0, capsys.readouterr().err
    run = cr.load(tmp_path / "run")
    printed = cr.papers.preset(preset).settings
    changed = {"model", "weights", "image_size", "epochs", "batch_size", "eval_crop"}
    changed |= {"calibrate", "select"}  # nothing is held out of so few rows
    for name in set(printed) - changed - {"probe_first", "fixed_norms"}:
        assert getattr(run.recipe, name) == printed[name], name
    rows = cr.data.load(f"coco:{tmp_path / 'coco'}", **cr.papers.preset(preset).data("coco:x"))
    assert len(cr.Predictions.read(tmp_path / "run" / "predictions.parquet")) == len(
        rows.part("test")
    )
    dropped = preset != "quasibinary-coco"
    assert len(rows) == (16 if dropped else 18)


CIFAR = ("--model", "cnn", "--select", "last")
PROTOCOLS = {
    "quasibinary-cifar": ("cifar100", CIFAR),
    "quasibinary-cifar-vgg16": ("cifar100", CIFAR),
    "quasibinary-cifar-densenet": ("cifar100", CIFAR),
    "quasibinary-cifar-ours": ("cifar100", (*CIFAR, "--calibrate", "none")),
    "avgk-cifar100": ("cifar100", CIFAR),
    "avgk-cifar100-bc": ("cifar100", CIFAR),
    "avgk-plantnet": ("plantnet", (*WITHOUT_TIMM, "--average-size", "1.5")),
    "twl-probe": ("features", ()),
}


def make_features(path):
    """Write the features that a trained backbone gives: what the probe is trained on."""
    rows = np.random.default_rng(0).normal(size=(60, 4)).astype(np.float32)
    np.savez(path, features=rows, targets=rows[:, :3].argmax(1), labels=list("abc"))


@pytest.mark.parametrize("preset", PROTOCOLS)
def test_a_protocol_of_one_label_trains(preset, tmp_path, capsys):
    kind, options = PROTOCOLS[preset]
    if kind == "features":
        make_features(source := tmp_path / "features.npz")
    else:
        source = f"{kind}:{tmp_path / 'data'}"
        (cifar100 if kind == "cifar100" else make_plantnet)(tmp_path / "data")
    small = ("--quiet",) if kind == "features" else SMALL
    command = ["train", str(source), "--preset", preset, "--out", str(tmp_path / "run")]
    assert main([*command, *small, *options]) == 0, capsys.readouterr().err
    recipe, printed = cr.load(tmp_path / "run").recipe, cr.papers.preset(preset).settings
    changed = {"model", "weights", "image_size", "epochs", "batch_size", "average_size", "select"}
    changed |= {"calibrate", "probe_first", "fixed_norms"}  # decided by the rows, which are few
    for name in set(printed) - changed:
        assert getattr(recipe, name) == printed[name], name


def test_every_protocol_is_trained_by_a_test():
    trained = {*PROTOCOLS, *COCO, "spa-vqa"}  # spa-vqa needs transformers: tests/text
    assert trained == set(cr.papers.PRESETS)
