"""Properties of augmentation: which pixels change, which labels stay, what decides it."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
import torch

import credibly as cr
from credibly import InputError
from credibly.data import Data

KINDS = {
    "operations": {"operations": 0.7},
    "cutout": {"cutout": 0.4},
    "mixup": {"mixup": 0.4},
    "color_jitter": {"color_jitter": 0.4},
    "lighting": {"lighting": 0.1},
    "all": {"operations": 0.3, "cutout": 0.2, "mixup": 1.0},
}
each_kind = pytest.mark.parametrize("augment", KINDS.values(), ids=KINDS)


def pictures(channels: int = 3, rows: int = 30) -> Data:
    generator = np.random.default_rng(0)
    images = generator.integers(0, 256, size=(rows, 12, 15, channels), dtype=np.uint8)
    targets = generator.choice([0.0, 1.0, -1.0], size=(rows, 4), p=[0.6, 0.3, 0.1])
    return Data(list("abcd"), targets, images=images, augmentation="none")


def batch(augment, rows, *, seed=1, epoch=2, channels=3, train=True):
    dataset = pictures(channels).torch_dataset(train=train, seed=seed, **augment)
    dataset.set_epoch(epoch)
    return dataset.batch(rows)


@each_kind
@pytest.mark.parametrize("channels", [1, 3])
def test_a_row_depends_on_seed_epoch_and_row_alone(augment, channels):
    inputs, targets, _ = batch(augment, range(30), channels=channels)
    alone, its_targets, _ = batch(augment, [17], channels=channels)
    assert torch.equal(inputs[17], alone[0])
    assert torch.equal(targets[17], its_targets[0])
    assert inputs.shape == (30, channels, 12, 15)
    if "lighting" in augment and channels == 1:
        return  # of colours alone
    for other in ({"seed": 2}, {"epoch": 3}):
        changed, _, _ = batch(augment, range(30), channels=channels, **other)
        assert not torch.equal(changed, inputs)


@each_kind
def test_held_out_rows_are_never_augmented(augment):
    plain, targets, _ = batch({}, range(30))
    inputs, same, _ = batch(augment, range(30), train=False)
    assert torch.equal(inputs, plain)
    assert torch.equal(same, targets)


@pytest.mark.parametrize("name", ["operations", "cutout", "color_jitter"])
def test_labels_stay_as_they_are_and_pixels_change(name):
    plain, targets, _ = batch({}, range(30))
    inputs, same, _ = batch(KINDS[name], range(30))
    assert torch.equal(same, targets)
    assert not torch.equal(inputs, plain)
    assert 0 <= inputs.min() <= inputs.max() <= 1


def test_cutout_hides_a_square_of_the_mean_colour_and_nothing_else():
    plain, _, _ = batch({}, range(30))
    inputs, _, _ = batch({"cutout": 0.5}, range(30))
    changed = (inputs != plain).any(dim=1)
    assert (changed.sum(dim=(1, 2)) <= 6 * 8).all()
    assert changed.any(dim=(1, 2)).all()
    for image, before, where in zip(inputs, plain, changed, strict=True):
        rows, columns = where.any(dim=1).nonzero()[:, 0], where.any(dim=0).nonzero()[:, 0]
        inside = image[:, rows.min() : rows.max() + 1, columns.min() : columns.max() + 1]
        colour = before.mean(dim=(1, 2))
        assert (inside - colour[:, None, None]).abs().max() <= 0.5 / 255 + 1e-6


def test_a_mixture_is_the_shares_of_two_rows_and_unknown_labels_stay_unknown():
    plain, targets, _ = batch({}, range(30))
    inputs, soft, _ = batch({"mixup": 0.5}, range(30))
    for row in range(30):
        # The partner and share that explain the pixels explain the targets too.
        direction = (plain - plain[row]).flatten(1).double()
        moved = (inputs[row] - plain[row]).flatten().double()
        share = (direction @ moved) / (direction**2).sum(1).clamp_min(1e-12)
        miss = (moved - share[:, None] * direction).abs().amax(dim=1)
        partner = int(miss.argmin())
        assert miss[partner] < 1e-6
        assert -1e-6 <= share[partner] <= 0.5 + 1e-6
        known = (targets[row] >= 0) & (targets[partner] >= 0)
        expected = (1 - share[partner]) * targets[row] + share[partner] * targets[partner]
        assert torch.allclose(soft[row][known].double(), expected[known].double(), atol=1e-5)
        assert (soft[row][~known] == -1).all()


def test_shares_follow_the_beta_distribution_folded_at_one_half():
    from scipy.stats import beta

    place = np.arange(2000) / 2000
    curve = np.column_stack([place, place**2])  # the chord through a mixture tells its two rows
    rows = Data(["a"], np.zeros((2000, 1)), features=curve)
    mixed = rows.torch_dataset(train=True, mixup=0.3).batch(range(2000))[0].double().numpy()
    moved, other = mixed[:, 0] - place, (mixed[:, 1] - place**2) / (mixed[:, 0] - place) - place
    clear = (np.abs(moved) > 1e-3) & (np.abs(other - place) > 0.1)
    drawn = 1 - moved[clear] / (other - place)[clear]
    assert drawn.min() >= 0.5 - 1e-3
    unmoved = (np.abs(other - place) > 0.1) | (np.abs(moved) <= 1e-3)
    mean = (drawn.sum() + (unmoved & ~clear).sum()) / unmoved.sum()
    assert mean == pytest.approx(2 * beta(0.3, 0.3).expect(lambda p: p, 0.5, 1), abs=0.02)


@pytest.mark.parametrize("channels", [1, 3])
def test_operations_of_no_strength_change_nothing(channels):
    plain, _, _ = batch({}, range(30), channels=channels)
    for epoch in range(8):  # every operation is drawn
        same, _, _ = batch({"operations": 1e-9}, range(30), channels=channels, epoch=epoch)
        assert (same - plain).abs().max() <= 2 / 255 + 1e-6


@pytest.mark.parametrize(
    ("options", "match"),
    [
        ({"cutout": 0.6}, r"`cutout` must lie in \[0, 0.5\]; got 0.6"),
        ({"rand_augment": 1.5}, "`rand_augment` must lie in"),
        ({"mixup": -1.0}, "`mixup` must lie in"),
    ],
)
def test_what_would_not_keep_labels_is_refused(options, match):
    with pytest.raises(InputError, match=match):
        cr.train.Network(**options)


# As networks are trained on ImageNet -------------------------------------------------------------


def test_lighting_adds_one_colour_per_image_along_the_principal_components():
    plain, _, _ = batch({}, range(30))
    inputs, _, _ = batch({"lighting": 0.1}, range(30))
    added = (inputs - plain).flatten(2)
    torch.testing.assert_close(added, added[:, :, :1].expand_as(added), atol=1e-6, rtol=0)
    vectors = np.array(
        [[-0.5675, 0.7192, 0.4009], [-0.5808, -0.0045, -0.8140], [-0.5836, -0.6948, 0.4203]]
    )
    normal = added[:, :, 0].numpy() @ np.linalg.inv(vectors).T / [0.2175, 0.0188, 0.0045] / 0.1
    assert abs(normal.mean()) < 0.35
    assert 0.7 < normal.std() < 1.3
    one_channel = (batch(each, range(3), channels=1)[0] for each in ({"lighting": 0.1}, {}))
    assert torch.equal(*one_channel)


def test_colours_are_jittered_within_their_range():
    gray = Data(["a"], np.ones((200, 1)), images=np.full((200, 2, 2, 3), 100, np.uint8))
    gray = dataclasses.replace(gray, augmentation="none")
    inputs = gray.torch_dataset(True, color_jitter=0.4).batch(range(200))[0] * 255
    assert inputs.min() >= 59  # brightness alone changes a gray image
    assert inputs.max() <= 141
    assert inputs.min() < 65
    assert inputs.max() > 135


def photo(width, height, rows):
    """Return rows of one image whose first two channels grow from left to right and down."""
    image = np.zeros((height, width, 3), np.uint8)
    image[..., 0] = np.linspace(0, 255, width).round()
    image[..., 1] = np.linspace(0, 255, height).round()[:, None]
    images = np.broadcast_to(image, (rows, *image.shape))
    return Data(["a"], np.ones((rows, 1)), images=images, augmentation="imagenet")


def test_imagenet_crops_have_the_areas_and_sides_of_the_usual_recipe():
    rows = photo(400, 300, 1500)
    crops = rows.torch_dataset(True, image_size=8)
    parts = [crops.batch(range(start, start + 50))[0] for start in range(0, len(rows), 50)]
    found = torch.cat(parts).double()  # linear away from the edges
    width = ((found[:, 0, 4, 6] - found[:, 0, 4, 1]).abs() * 400 * 8 / 5).numpy()
    height = ((found[:, 1, 6, 4] - found[:, 1, 1, 4]) * 300 * 8 / 5).numpy()
    area, ratio = width * height / (400 * 300), width / height
    assert 0.06 < area.min() < 0.1
    assert area.max() > 0.95
    assert 0.7 < ratio.min() < 0.8
    assert 1.25 < ratio.max() < 1.42
    # Trials that do not fit are drawn again, so large areas are rarer than small ones.
    drawn = np.random.default_rng(1)
    share, stretch = (
        drawn.uniform(0.08, 1, 10**5),
        np.exp(drawn.uniform(-1, 1, 10**5) * np.log(4 / 3)),
    )
    fits = (share * 120_000 * stretch <= 400**2) & (share * 120_000 / stretch <= 300**2)
    assert area.mean() == pytest.approx(share[fits].mean(), abs=0.03)


def test_imagenet_crops_of_thin_images_are_their_middle():
    rows = photo(1000, 10, 60)
    found, _, _ = rows.torch_dataset(True, image_size=(10, 13)).batch(range(60))
    middle = torch.from_numpy(np.ascontiguousarray(rows.image(0)[:, 493:506])).permute(2, 0, 1)
    same = ((found * 255).round() == middle).flatten(1).all(1)
    assert same.any()


def test_an_image_is_evaluated_on_its_middle(tmp_path):
    from PIL import Image

    noise = np.random.default_rng(0).integers(0, 256, (60, 90, 3), dtype=np.uint8)
    noise = np.asarray(Image.fromarray(noise).resize((45, 30)).resize((90, 60)))
    small = Image.fromarray(noise).resize((48, 32), Image.Resampling.BILINEAR)
    expected = np.asarray(small)[4:28, 12:36]
    rows = Data(["a"], np.ones((1, 1)), images=noise[None])
    found = rows.torch_dataset(False, image_size=24, eval_crop=32).batch([0])[0][0] * 255
    assert np.abs(found.permute(1, 2, 0).numpy() - expected).max() <= 1.01
    (tmp_path / "a").mkdir()
    Image.fromarray(noise).save(tmp_path / "a" / "x.png")
    files = cr.data.load(f"imagefolder:{tmp_path}", test=0.0, calibration=0)
    again = files.torch_dataset(False, image_size=24, eval_crop=32).batch([0])[0][0] * 255
    assert torch.equal(again, found)
    with pytest.raises(InputError, match="`eval_crop` must be at least the side of the image, 24"):
        rows.torch_dataset(False, image_size=24, eval_crop=20)


def test_training_rows_of_imagenet_style_are_crops_at_the_size_asked_for():
    rows = dataclasses.replace(pictures(), augmentation="imagenet")
    inputs, _, _ = rows.torch_dataset(True, image_size=8, seed=1).batch(range(30))
    assert inputs.shape == (30, 3, 8, 8)
    again, _, _ = rows.torch_dataset(True, image_size=8, seed=1).batch([7])
    assert torch.equal(again[0], inputs[7])
