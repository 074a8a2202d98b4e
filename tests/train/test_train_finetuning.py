"""Fine-tuning: rates by layer, freezing, fixed norms, augmentation, views."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
import torch
from PIL import Image
from train_instances import DATA, awkward, pictures

from credibly import InputError
from credibly.data import digits
from credibly.data import load as load_rows
from credibly.models import build
from credibly.train import Callback, fit, load, recipe, resolve


def weights(folder, **settings):
    """Initial and final weights of a short run."""
    options = {"model": "resnet20-32", "epochs": 2, "batch_size": 16, "select": "last"}
    chosen = recipe(**{**options, **settings})
    data = DATA["pictures"]()
    run = fit(data, chosen, folder=folder)
    # Nothing moves at this rate; statistics of norms are fixed.
    still = {"learning_rate": 1e-30, "weight_decay": 0.0, "epochs": 1, "fixed_norms": True}
    kept = {"frozen_epochs": 0} if "frozen_epochs" in settings else {}
    first = fit(data, recipe(**{**options, **settings, **still, **kept}))
    return first.model.state_dict(), run.model.state_dict()


def moved(before, after, part: str) -> bool:
    return any(
        not torch.equal(value, after[name])
        for name, value in before.items()
        if name.startswith(part) and value.is_floating_point()
    )


def test_the_backbone_stays_still_while_frozen_and_moves_after(tmp_path):
    before, after = weights(tmp_path / "thawed", frozen_epochs=1)
    assert moved(before, after, "backbone.stem.weight")
    # At the first epoch's end nothing but the head has changed, statistics of norms included.
    one, other = weights(tmp_path / "short", frozen=True, epochs=1)
    assert not moved(one, other, "backbone")
    assert moved(one, other, "head")


def test_thawing_begins_where_a_frozen_run_ends(tmp_path):
    """The first of two epochs is a run of the last layer alone, at the same rates."""

    class Snapshot(Callback):
        def __init__(self) -> None:
            self.losses: list[float] = []

        def on_epoch(self, figures) -> None:
            self.losses.append(figures["loss"])

    options = {"model": "resnet20-32", "batch_size": 16, "schedule": "constant", "warmup": 0.0}
    thawed, frozen = Snapshot(), Snapshot()
    data = DATA["pictures"]()
    fit(data, recipe(**options, epochs=2, frozen_epochs=1), folder=tmp_path / "a", callback=thawed)
    fit(data, recipe(**options, epochs=1, frozen=True), folder=tmp_path / "b", callback=frozen)
    assert thawed.losses[0] == frozen.losses[0]


def test_fixed_norms_keep_their_statistics_and_train_their_weights(tmp_path):
    before, after = weights(tmp_path / "fixed", fixed_norms=True)
    names = [name for name in before if "running_" in name]
    assert names
    assert all(torch.equal(before[name], after[name]) for name in names)
    assert moved(before, after, "backbone.norm.weight")
    before, after = weights(tmp_path / "free")
    assert not any(torch.equal(before[name], after[name]) for name in names)


@pytest.mark.parametrize("views", ["flip", "crops"])
def test_views_average_scores_in_evaluation_alone(views):
    torch.manual_seed(0)
    model = build("resnet20-32", (3, 16, 16), 4, views=views).eval()
    plain = build("resnet20-32", (3, 16, 16), 4).eval()
    plain.load_state_dict(model.state_dict())
    images = torch.rand(3, 3, 16, 16)
    scores = model(images)
    torch.testing.assert_close(scores, model(images.flip(-1)), rtol=1e-4, atol=1e-5)
    if views == "flip":
        expected = (plain(images) + plain(images.flip(-1))) / 2
        torch.testing.assert_close(scores, expected)
    model.train()
    plain.train()
    torch.testing.assert_close(model(images), plain(images))


def test_a_run_predicts_with_the_views_it_was_given(tmp_path):
    data = DATA["pictures"]()
    settings = recipe(model="cnn", hidden=4, epochs=1, views="flip")
    run = fit(data, settings, folder=tmp_path / "run")
    again = load(tmp_path / "run")
    assert again.model.views == "flip"
    rows = data.part("test")
    np.testing.assert_array_equal(again.scores(rows), run.scores(rows))
    mirrored = dataclasses.replace(rows, images=rows.images[:, :, ::-1].copy())
    torch.testing.assert_close(run.scores(mirrored), run.scores(rows))


def test_averaged_weights_of_a_network_for_images_predict(tmp_path):
    settings = recipe(model="cnn", epochs=2, batch_size=16, ema=0.9)
    run = fit(pictures(), settings, folder=tmp_path)
    assert np.isfinite(run.predict(pictures().part("test")).probabilities).all()


def test_mixup_trains_on_soft_targets(tmp_path):
    data = DATA["pictures"]()
    run = fit(data, recipe(model="cnn", hidden=4, epochs=1, mixup=0.4), folder=tmp_path / "run")
    assert all(value is None or np.isfinite(value) for value in run.metrics.values())


REFUSED = {
    "frozen for ever": ({"frozen_epochs": 3, "epochs": 3}, "fewer than `epochs`"),
    "frozen twice": ({"frozen": True, "backbone_rate": 0.1}, "`frozen` trains the last layer only"),
    "rate": ({"backbone_rate": 0.0}, "`backbone_rate` must lie in"),
    "decay": ({"layer_decay": 1.5}, "`layer_decay` must lie in"),
    "cutout": ({"cutout": 0.7}, "`cutout` must lie in"),
    "views": ({"views": "many"}, "`views` must be one of"),
    "cached views": (
        {"frozen": True, "features": True, "views": "flip"},
        "stores one view per image",
    ),
    "augment": ({"augment": "flip"}, "`augment` must be one of"),
}


@pytest.mark.parametrize(("settings", "match"), REFUSED.values(), ids=REFUSED)
def test_settings_that_contradict_each_other_are_refused(settings, match):
    with pytest.raises(InputError, match=match):
        recipe(**settings)


def test_views_of_features_and_mixtures_of_single_labels_are_refused(tmp_path):
    with pytest.raises(InputError, match="needs images; awkward holds features"):
        fit(awkward(), recipe(views="flip"), folder=tmp_path / "a")
    settings = recipe(loss="avgk", average_size=2, mixup=0.3)
    with pytest.raises(InputError, match="`mixup` makes soft targets"):
        fit(DATA["single"](), settings, folder=tmp_path / "b")


# Defaults for images --------------------------------------------------------------------------


def files(folder, side, count=24):
    """Images of a size, in files."""
    rows = pictures(count)
    large = rows.images.repeat(side // 16, axis=1).repeat(side // 16, axis=2).repeat(3, axis=3)
    names = [f"{row}.png" for row in range(count)]
    for name, image in zip(names, large, strict=True):
        Image.fromarray(image).save(folder / name)
    parts = np.array(["train", "test", "val"])[rows.split]
    marks = rows.targets.astype(int).astype(str)
    lines = [",".join(cells) for cells in zip(names, parts, *marks.T, strict=True)]
    header = ",".join(["image", "split", *(f"y:{label}" for label in rows.labels)])
    (folder / "rows.csv").write_text("\n".join([header, *lines]) + "\n")
    return load_rows(folder / "rows.csv")


@pytest.mark.parametrize("given", [{"probe": True, "l2": 1.0}, {"frozen": True, "features": True}])
def test_weights_of_rows_reach_a_layer_that_is_trained_on_kept_features(given):
    rows, settings = digits(60), recipe("cnn", hidden=4, **given)
    if settings.name == "network":
        settings = dataclasses.replace(settings, epochs=1)
    uneven = np.where(np.arange(60) % 2, 1.0, 0.1)
    heads = [
        fit(dataclasses.replace(rows, weights=weights), settings).model.head.weight
        for weights in (np.ones(60), uneven)
    ]
    assert not torch.equal(*heads)


@pytest.mark.parametrize(("side", "expected"), [(16, 32), (96, 96), (256, 224)])
def test_images_keep_their_size_where_it_is_smaller_than_the_usual_one(side, expected, tmp_path):
    found = resolve(recipe("efficientnet-lite0"), files(tmp_path, side))
    assert found.image_size == expected
    given = resolve(recipe("efficientnet-lite0", image_size=64), files(tmp_path, side))
    assert given.image_size == 64


def test_large_images_get_the_pretrained_network_and_few_epochs(tmp_path, monkeypatch):
    rows = files(tmp_path, 96)
    monkeypatch.setattr("credibly.models.efficientnet.weights_file", lambda: tmp_path)
    found = resolve(recipe(), rows)
    assert (found.model, found.weights, found.probe_first) == ("efficientnet-lite0", "auto", True)
    assert (found.image_size, found.epochs, found.patience) == (224, 1, 2)  # 5 × (96 / 224)²
    scratch = resolve(recipe(weights="none"), rows)
    assert (scratch.model, scratch.probe_first) == ("efficientnet-lite0", False)
    assert (scratch.image_size, scratch.epochs, scratch.patience) == (96, 30, 0)
    chosen = resolve(recipe(epochs=9, patience=0), rows)
    assert (chosen.image_size, chosen.epochs, chosen.patience) == (224, 9, 0)
    stored = resolve(recipe(image_size=96), rows)
    assert (stored.image_size, stored.epochs) == (96, 5)


@pytest.mark.parametrize(("side", "epochs"), [(112, 1), (128, 2), (160, 3), (256, 5)])
def test_enlarged_images_take_as_many_epochs_as_cost_the_same(side, epochs, tmp_path, monkeypatch):
    monkeypatch.setattr("credibly.models.efficientnet.weights_file", lambda: tmp_path)
    found = resolve(recipe(), files(tmp_path, side))
    assert (found.image_size, found.epochs) == (224, epochs)


def test_without_the_weights_large_images_say_what_to_install(tmp_path, monkeypatch):
    monkeypatch.setattr("credibly.models.efficientnet.find_spec", lambda name: None)
    with pytest.raises(InputError, match=r"credibly\[images\]"):
        resolve(recipe(), files(tmp_path, 96))
