"""Rows, parts, splits and their tensors."""

import dataclasses

import numpy as np
import pytest
import torch
from PIL import Image

import credibly as cr
from credibly.data import Data

TRAIN, TEST, CALIBRATION = range(3)


def split_rows(targets, **options):
    """Return the split that rows with these targets get."""
    features = np.zeros((len(targets), 1))
    return cr.data.from_arrays(features=features, targets=targets, **options).split


def _targets(rows=400, labels=12, seed=0):
    """Rare labels, zero-label rows, all-unknown rows, and a label without positives."""
    generator = np.random.default_rng(seed)
    rates = 0.4 * 0.7 ** np.arange(labels)
    targets = (generator.random((rows, labels)) < rates).astype(np.float32)
    targets[:, -1] = 0
    targets[:20] = 0
    targets[20:25] = -1
    return targets


FEATURES = Data(
    [f"l{i}" for i in range(12)],
    _targets(),
    features=np.random.default_rng(1).normal(size=(400, 5)),
    split=split_rows(_targets()),
)
DATA = {
    "features": FEATURES,
    "digits": cr.data.digits(300, seed=1),
    "synthetic": cr.data.synthetic(300, seed=1, num_labels=6, unknown=0.1),
}
each_data = pytest.mark.parametrize("data", DATA.values(), ids=DATA.keys())


@each_data
def test_parts_are_disjoint_and_complete(data):
    parts = [data.part(name) for name in ("train", "calibration", "test")]
    assert sorted(np.concatenate([part.ids for part in parts])) == sorted(data.ids)
    assert all(type(part) is Data and len(part) for part in parts)
    assert data.part("all") is data


@each_data
def test_taking_rows_takes_everything_of_them(data):
    rows = np.array([5, 2, 9])
    taken = data.take(rows)
    np.testing.assert_array_equal(taken.ids, data.ids[rows])
    np.testing.assert_array_equal(taken.targets, data.targets[rows])
    for batch in (
        data.torch_dataset(train=False).batch(rows),
        taken.torch_dataset(False).batch([0, 1, 2]),
    ):
        np.testing.assert_array_equal(batch[1], data.targets[rows])
    assert torch.equal(
        data.torch_dataset(train=False).batch(rows)[0],
        taken.torch_dataset(False).batch([0, 1, 2])[0],
    )


def test_a_contiguous_part_is_a_view():
    assert np.shares_memory(FEATURES.take(np.arange(10, 20)).features, FEATURES.features)


@each_data
def test_fingerprint_is_stable_and_sees_every_change(data):
    again = dataclasses.replace(data)
    assert again.fingerprint() == data.fingerprint()
    targets = data.targets.copy()
    targets[3, 1] = 1 - max(targets[3, 1], 0)
    split = data.split.copy()
    split[0] = (split[0] + 1) % 3
    ids = data.ids.copy()
    ids[0] = "another"
    changes = [
        {"targets": targets},
        {"split": split},
        {"ids": ids},
        {"source": "elsewhere"},
        {"labels": ["new", *data.labels[1:]]},
    ]
    if data.features is not None:
        changes.append({"features": data.features + np.float32(1e-3)})
    else:
        changes.append({"images": 255 - data.images})
    found = {dataclasses.replace(data, **change).fingerprint() for change in changes}
    assert len(found | {data.fingerprint()}) == len(changes) + 1


# Splits ---------------------------------------------------------------------------------------


def test_split_is_deterministic_and_follows_the_seed():
    targets = _targets()
    np.testing.assert_array_equal(split_rows(targets, seed=3), split_rows(targets, seed=3))
    assert (split_rows(targets, seed=3) != split_rows(targets, seed=4)).any()


@pytest.mark.parametrize("seed", range(5))
def test_split_keeps_each_label_in_proportion(seed):
    targets = _targets(rows=2000, seed=seed)
    split = split_rows(targets, test=0.2, calibration=0.25, seed=seed)
    assert np.bincount(split, minlength=3) / 2000 == pytest.approx([0.6, 0.2, 0.2], abs=0.005)
    for label in range(targets.shape[1]):
        rows = split[targets[:, label] == 1]
        if len(rows) >= 5:
            counts = np.bincount(rows, minlength=3)
            # At most what rounding in each rarer label's group leaves: far below √n sampling error.
            assert abs(counts[TRAIN] - 0.6 * len(rows)) <= 2 + 0.1 * len(rows)
            assert counts.min() >= 1 or len(rows) < 12


def test_rare_labels_reach_every_part_better_than_by_chance():
    targets = _targets(rows=1000, labels=14)
    rare = [label for label in range(13) if 5 <= (targets[:, label] == 1).sum() <= 40]
    chance = np.random.default_rng(0).choice(3, size=1000, p=[0.64, 0.2, 0.16])

    def spread(split):
        expected = np.bincount(split, minlength=3) / len(split)
        parts = [np.bincount(split[targets[:, r] == 1], minlength=3) for r in rare]
        return sum(abs(part / part.sum() - expected).sum() for part in parts)

    assert rare
    assert spread(split_rows(targets)) < 0.5 * spread(chance)


def test_the_only_row_of_a_label_trains():
    targets = np.zeros((50, 10))
    targets[np.arange(10), np.arange(10)] = 1
    assert (split_rows(targets, test=0.4, calibration=0.4)[:10] == TRAIN).all()


def test_published_parts_stay_and_calibration_comes_from_training(tmp_path):
    targets = _targets()
    published = np.repeat([TRAIN, TEST], [300, 100])
    np.savez(tmp_path / "x.npz", features=np.ones((400, 2)), targets=targets, split=published)
    split = cr.data.load(tmp_path / "x.npz").split
    np.testing.assert_array_equal(split == TEST, published == TEST)
    assert (split == CALIBRATION).sum() == 60
    assert not (cr.data.load(tmp_path / "x.npz", calibration=0).split == CALIBRATION).any()
    with pytest.raises(cr.InputError, match="has published test rows"):
        cr.data.load(tmp_path / "x.npz", test=0.5)
    published[:50] = CALIBRATION
    np.savez(tmp_path / "y.npz", features=np.ones((400, 2)), targets=targets, split=published)
    with pytest.warns(
        UserWarning, match=r"validation rows \(50\)\. They stay held out.*`val='train'`"
    ):
        cr.data.load(tmp_path / "y.npz", calibration=0)
    assert not (cr.data.load(tmp_path / "y.npz", calibration=0, val="train").split == 2).any()


# Embedded data --------------------------------------------------------------------------------


def test_digit_scenes_cover_every_number_of_labels():
    data = DATA["digits"]
    sizes = np.bincount(data.targets.sum(axis=1).astype(int), minlength=5)
    assert (sizes[:4] > 0).all()
    assert data.images.shape == (300, 28, 28, 1)
    assert data.augmentation == "shift"


def test_digit_scenes_are_a_function_of_the_seed():
    again = cr.data.load("digits", n=300, seed=1)
    assert again.fingerprint() == DATA["digits"].fingerprint()
    assert cr.data.digits(300, seed=2).fingerprint() != again.fingerprint()


def test_exactly_one_digit_when_asked():
    data = cr.data.digits(100, counts=(0, 1), clutter=0, blur=0)
    assert (data.targets.sum(axis=1) == 1).all()


def test_the_labels_of_a_scene_are_the_digits_in_it():
    """One clear digit a scene: cut out and shrunk, its nearest scan shows the labelled digit."""
    from sklearn.datasets import load_digits

    scans = load_digits()
    data = cr.data.digits(200, counts=(0, 1), clutter=0, blur=0, seed=5)
    right = 0
    for image, target in zip(data.images[..., 0], data.targets, strict=True):
        ys, xs = np.nonzero(image > 90)
        box = (xs.min(), ys.min(), xs.max() + 1, ys.max() + 1)
        small = Image.fromarray(image).resize((6, 8), Image.Resampling.BOX, box=box)
        pixels = np.asarray(small, dtype=float) / image.max()
        nearest = np.argmin(((scans.images[:, :, 1:7] / 16 - pixels) ** 2).sum(axis=(1, 2)))
        right += target[scans.target[nearest]] == 1
    assert right > 150


@pytest.mark.parametrize("noise", [0.0, 0.1])
def test_synthetic_noise_bounds_the_probabilities(noise):
    truth = cr.data.synthetic(2000, noise=noise, sharpness=8).truth
    assert truth.min() == pytest.approx(noise, abs=1e-3)
    assert truth.max() == pytest.approx(1 - noise, abs=2e-2)


def test_synthetic_labels_have_the_known_probabilities():
    data = cr.data.synthetic(40_000, num_labels=5, dependence=0.6, noise=0.05, curvature=0.5)
    for low in np.arange(0, 1, 0.2):
        inside = (data.truth >= low) & (data.truth < low + 0.2)
        if inside.sum() > 500:
            error = data.targets[inside].mean() - data.truth[inside].mean()
            assert abs(error) < 4 * 0.5 / np.sqrt(inside.sum()) * 2


def test_synthetic_dependence_is_given_the_features():
    def correlation(dependence):
        data = cr.data.synthetic(20_000, num_labels=2, imbalance=1, dependence=dependence)
        surprise = (data.targets - data.truth) / np.sqrt(data.truth * (1 - data.truth))
        return (surprise[:, 0] * surprise[:, 1]).mean()

    assert abs(correlation(0.0)) < 0.03
    assert correlation(0.8) > 0.3


def test_synthetic_imbalance_is_the_ratio_of_rates():
    truth = cr.data.synthetic(4000, num_labels=4, rate=0.4, imbalance=8, noise=0).truth
    assert truth.mean(axis=0) == pytest.approx(0.4 / 8 ** (np.arange(4) / 3), rel=1e-3)


# Tensors --------------------------------------------------------------------------------------

IMAGES = np.random.default_rng(0).integers(0, 256, size=(20, 16, 16, 3), dtype=np.uint8)
STYLES = ["none", "shift", "shift+flip", "crop+flip"]


def _images(style):
    return Data(["a"], np.zeros((20, 1)), images=IMAGES, augmentation=style)


@pytest.mark.parametrize("style", STYLES)
@pytest.mark.parametrize("size", [None, 24])
def test_augmentation_depends_on_seed_epoch_and_row_alone(style, size):
    def epoch(number, seed=0, rows=range(20)):
        dataset = _images(style).torch_dataset(train=True, image_size=size, seed=seed)
        dataset.set_epoch(number)
        return torch.stack([dataset[row][0] for row in rows])

    whole = epoch(3)
    assert torch.equal(whole, epoch(3))
    assert torch.equal(whole[[7, 2]], epoch(3, rows=[7, 2]))
    assert whole.shape == (20, 3, size or 16, size or 16)
    assert whole.min() >= 0
    assert whole.max() <= 1
    changed = [(epoch(4) != whole).any(), (epoch(3, seed=1) != whole).any()]
    assert changed == [style != "none"] * 2


@pytest.mark.parametrize("style", STYLES)
def test_evaluation_never_augments(style):
    inputs = _images(style).torch_dataset(train=False).batch(range(20))[0]
    np.testing.assert_array_equal((inputs * 255).round().permute(0, 2, 3, 1).numpy(), IMAGES)


def test_shifts_never_flip():
    """Every shifted image shares a long row segment with the original, in the same order."""
    dataset = _images("shift").torch_dataset(train=True)
    for row in range(20):
        image = (dataset[row][0] * 255).round().byte().permute(1, 2, 0).numpy()
        places = [
            (dy, dx)
            for dy in range(-2, 3)
            for dx in range(-2, 3)
            if (image[4:12, 4:12] == IMAGES[row, 4 + dy : 12 + dy, 4 + dx : 12 + dx]).all()
        ]
        assert len(places) == 1


def test_flips_happen_about_half_of_the_time():
    data = Data(["a"], np.zeros((100, 1)), images=np.repeat(IMAGES[:1], 100, axis=0))
    data = dataclasses.replace(data, augmentation="shift+flip")
    images = data.torch_dataset(train=True).batch(range(100))[0][:, :, 4:12, :]
    original = torch.from_numpy(IMAGES[0]).permute(2, 0, 1).float() / 255
    straight = [
        any(
            torch.equal(image[:, 2:6, 4:12], original[:, y : y + 4, x : x + 8])
            for y in range(13)
            for x in range(9)
        )
        for image in images
    ]
    assert 30 < sum(straight) < 70


def test_workers_see_the_epoch_and_give_the_same_rows():
    dataset = _images("shift+flip").torch_dataset(train=True)
    loader = torch.utils.data.DataLoader(
        dataset, batch_size=5, num_workers=1, persistent_workers=True
    )
    for epoch in (0, 1):
        dataset.set_epoch(epoch)
        inputs = torch.cat([batch[0] for batch in loader])
        assert torch.equal(inputs, dataset.batch(range(20))[0])


def test_samples_are_input_target_and_row_number():
    inputs, targets, row = FEATURES.torch_dataset(train=True)[7]
    assert (inputs.shape, targets.shape, row) == ((5,), (12,), 7)
    assert inputs.dtype == targets.dtype == torch.float32
    with pytest.raises(IndexError):
        FEATURES.torch_dataset(train=True)[400]


# Bad input ------------------------------------------------------------------------------------

GOOD = {"labels": ["a", "b"], "targets": np.zeros((3, 2)), "features": np.ones((3, 4))}
INFINITE = np.ones((3, 4))
INFINITE[1, 2] = np.inf
BAD = {
    "labels twice": ({"labels": ["a", "a"]}, "different names; 'a' appears twice"),
    "empty label": ({"labels": ["a", ""]}, "non-empty names"),
    "target columns": ({"targets": np.zeros((3, 3))}, "must have one column per label, 2; got 3"),
    "target value": ({"targets": np.full((3, 2), 7.0)}, "got .*7.* at"),
    "infinite feature": ({"features": INFINITE}, r"first in row 1 \(id '1'\), column 2: inf"),
    "rows": ({"features": np.ones((4, 4))}, "a row for each of the 3 rows"),
    "ids": ({"ids": ["x", "x", "y"]}, "'x' appears 2 times"),
    "split": ({"split": [0, 1, 3]}, "0 .train., 1 .test. or 2 .calibration.; got .*3.* at row 2"),
    "nothing": ({"features": None}, "one of `features`, `images` and `texts`; got none"),
    "images": ({"features": None, "images": np.ones((3, 4, 4))}, "must be uint8"),
    "truth": ({"truth": np.ones((3, 1))}, "must have the shape of `targets`"),
    "augmentation": ({"augmentation": "spin"}, "must be one of"),
}


@pytest.mark.parametrize(("change", "match"), BAD.values(), ids=BAD.keys())
def test_bad_rows_are_refused_with_the_place(change, match):
    with pytest.raises(cr.InputError, match=match):
        Data(**{**GOOD, **change})


@pytest.mark.parametrize(
    ("source", "options", "match"),
    [
        ("digit", {}, "Did you mean 'digits'"),
        ("coc:here", {}, "Did you mean 'coco'"),
        ("no.npz", {}, "does not exist"),
        (".", {}, "is a folder. Say how to read it, for example imagefolder:"),
        ("digits", {"blurr": 1}, "no option 'blurr'; it has .* Did you mean 'blur'"),
        ("digits", {"n": 0}, "`n` must be"),
        ("digits", {"counts": (-1, 2)}, "`counts` must be"),
        ("synthetic", {"noise": 0.5}, "`noise` must lie"),
        ("synthetic", {"rate": 1.5}, "`rate` must lie"),
    ],
)
def test_what_cannot_be_loaded_is_named(source, options, match):
    with pytest.raises(cr.InputError, match=match):
        cr.data.load(source, **options)


def test_rows_already_read_pass_through():
    assert cr.data.load(FEATURES) is FEATURES
