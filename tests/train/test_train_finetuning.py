"""Fine-tuning: rates by layer, freezing, fixed norms, augmentation, views."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
import torch
from PIL import Image
from train_instances import DATA, awkward, pictures

from credibly import InputError
from credibly.data import Data, digits
from credibly.data.images import ImageFiles
from credibly.losses import BCE, OnlineEstimation
from credibly.models import build
from credibly.train import Callback, Recipe, fit, load, recipe, resolve
from credibly.train.distributed import SingleProcess, score
from credibly.train.optimizer import Average, build_optimizer

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


def weights(folder, **settings):
    """Initial and final weights of a short run."""
    options = {"model": "resnet20-32", "epochs": 2, "batch_size": 16, "select": "last"}
    chosen = recipe(**{**options, **settings})
    data = DATA["pictures"]()
    run = fit(data, chosen, folder=folder)
    from credibly.train.assembly import build_model

    first = build_model(run.recipe, data, run.criterion, 0)
    return first.state_dict(), run.model.state_dict()


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


def test_the_choices_are_those_of_the_packages_below():
    from credibly.data.rows import AUGMENTATIONS
    from credibly.models.network import VIEWS
    from credibly.train import recipes

    assert recipes.STYLES == AUGMENTATIONS
    assert recipes.VIEWS == VIEWS


# Defaults for images --------------------------------------------------------------------------


def files(folder, side, count=24):
    """Images of a size, in files."""
    rows = pictures(count)
    large = rows.images.repeat(side // 16, axis=1).repeat(side // 16, axis=2).repeat(3, axis=3)
    names = [f"{row}.png" for row in range(count)]
    for name, image in zip(names, large, strict=True):
        Image.fromarray(image).save(folder / name)
    images = ImageFiles(folder, names, source="files")
    return Data(rows.labels, rows.targets, images=images, split=rows.split, source="files")


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
