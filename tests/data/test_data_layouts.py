"""Each published layout, read from a tiny copy made here."""

import numpy as np
import pytest
from layout_makers import LAYOUTS, cifar100, make_cifar10, make_wider, paint, records

import credibly as cr
from credibly import names

TRAIN, CALIBRATION = 0, 2  # what `split` says of a row


def rows(data):
    """Id → the labels it has, with ? before unknown ones; and its part."""
    named = {}
    for id_, targets, part in zip(data.ids, data.targets, data.split, strict=True):
        present = [
            ("?" if t < 0 else "") + n for n, t in zip(data.labels, targets, strict=True) if t
        ]
        named[str(id_)] = (present, int(part))
    return named


# Without a share to hold out, the validation rows that a layout publishes are the only ones.
pytestmark = pytest.mark.filterwarnings("ignore:.*validation rows .*stay held out:UserWarning")
each_layout = pytest.mark.parametrize("name", LAYOUTS)


def load(name, root, **options):
    return cr.data.load(f"{name.split()[0]}:{root}", calibration=0, **options)


@each_layout
def test_layout_gives_its_rows_labels_and_parts(name, tmp_path):
    expected = LAYOUTS[name](tmp_path / "data")
    assert rows(load(name, tmp_path / "data")) == expected


@each_layout
def test_published_validation_rows_train_when_asked(name, tmp_path):
    expected = LAYOUTS[name](tmp_path / "data")
    parts = {row: part for row, (_, part) in expected.items()}
    found = load(name, tmp_path / "data", val="train")
    assert dict(zip(found.ids.astype(str), found.split, strict=True)) == {
        row: TRAIN if part == CALIBRATION else part for row, part in parts.items()
    }


@pytest.mark.parametrize("name", [name for name in LAYOUTS if name.split()[0] in names.READERS])
def test_the_folder_around_an_unpacked_archive_may_be_named(name, tmp_path):
    (tmp_path / "downloads" / "papers").mkdir(parents=True)
    expected = LAYOUTS[name](tmp_path / "downloads" / "archive-1.0")
    inside = load(name, tmp_path / "downloads" / "archive-1.0")
    around = load(name, tmp_path / "downloads")
    assert rows(around) == expected
    if name != "vqa":  # its source is the name of the folder
        assert around.fingerprint() == inside.fingerprint()


@each_layout
def test_data_may_move(name, tmp_path):
    LAYOUTS[name](tmp_path / "data")
    first = load(name, tmp_path / "data").fingerprint()
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "data").rename(tmp_path / "elsewhere" / "data")
    assert load(name, tmp_path / "elsewhere" / "data").fingerprint() == first


@each_layout
def test_inputs_become_tensors(name, tmp_path):
    LAYOUTS[name](tmp_path / "data")
    data = load(name, tmp_path / "data")
    if data.kind == "text":
        data = data.encoded_by(lambda texts: cr.data.SparseRows(np.ones((len(texts), 2))))
    for train in (True, False):
        inputs, targets, _ = data.torch_dataset(train, image_size=24, seed=1)[len(data) - 1]
        if data.kind == "text":
            assert len(inputs) == 1
        else:
            assert inputs.shape == ((3, 24, 24) if data.kind == "images" else (2,))
        assert targets.shape == (data.num_labels,)


def test_images_decode_to_what_was_painted(tmp_path):
    paint(tmp_path / "cat/a.png", 200, size=(12, 30))
    paint(tmp_path / "dog/b.png", 3, size=(40, 10))
    data = cr.data.load(f"imagefolder:{tmp_path}", test=0.0, calibration=0)
    assert data.image(0).shape == (30, 12, 3)
    assert data.image(1)[4, 5].tolist() == [3, 252, 7]
    batch = data.torch_dataset(train=False, image_size=(8, 6)).batch([1])[0]
    assert batch.shape == (1, 3, 8, 6)
    assert (batch[0, :, 2, 2] * 255).round().tolist() == [3, 252, 7]


def test_a_person_is_cut_out_by_its_box(tmp_path):
    make_wider(tmp_path)
    data = load("wider", tmp_path)
    assert [data.image(row).shape for row in (0, 1)] == [(6, 5, 3), (16, 5, 3)]


def test_cifar_planes_are_red_green_blue(tmp_path):
    make_cifar10(tmp_path / "c")
    record = records([[2], [0]])[0, 1:].reshape(3, 32, 32)
    data = load("cifar10", tmp_path / "c")
    np.testing.assert_array_equal(data.part("test").image(0), record.transpose(1, 2, 0))


def test_cifar60_40_removes_two_of_five_in_every_coarse_class(tmp_path):
    cifar100(tmp_path)
    data = cr.data.load(f"cifar60+40:{tmp_path}", calibration=0)
    kept = np.array([int(label.removeprefix("fine")) for label in data.labels])
    assert np.bincount(kept // 5).tolist() == [3] * 20
    assert (data.targets.sum(axis=1) == 0).sum() == 80
    for row, fine in ((0, 0), (99, 99), (100, 99)):
        present = [data.labels[k] for k in np.flatnonzero(data.targets[row])]
        assert present == ([f"fine{fine}"] if fine in kept else [])
    again = cr.data.load(f"cifar60+40:{tmp_path}", calibration=0, seed=5)
    assert again.labels == data.labels
    other = cr.data.load(f"cifar60+40:{tmp_path}", classes_seed=1)
    assert other.labels != data.labels


@pytest.mark.parametrize("name", ["coco", "nuswide"])
def test_images_without_labels_are_dropped_only_when_asked(name, tmp_path):
    LAYOUTS[name](tmp_path)
    dropped = load(name, tmp_path, drop_empty=True)
    assert (dropped.targets.sum(axis=1) > 0).all()
    assert len(dropped) < len(load(name, tmp_path))


def test_loose_images_can_be_predicted_when_the_labels_are_given(tmp_path):
    paint(tmp_path / "a.jpg")
    paint(tmp_path / "b.jpg")
    data = cr.data.load(f"imagefolder:{tmp_path}", labels=["x", "y"])
    assert (data.targets == -1).all()
    assert data.part("all").ids.tolist() == ["a.jpg", "b.jpg"]


@each_layout
def test_labels_come_in_the_order_asked_for(name, tmp_path):
    LAYOUTS[name](tmp_path / "data")
    data = load(name, tmp_path / "data")
    backwards = load(name, tmp_path / "data", labels=data.labels[::-1])
    assert backwards.labels == data.labels[::-1]
    np.testing.assert_array_equal(backwards.targets, data.targets[:, ::-1])


@pytest.mark.parametrize("name", ["coco", "voc", "wider", "cifar10", "tinyimagenet"])
def test_other_labels_than_asked_for_are_named(name, tmp_path):
    LAYOUTS[name](tmp_path / "data")
    labels = load(name, tmp_path / "data").labels
    with pytest.raises(cr.InputError, match="it has no 'unicorn'"):
        load(name, tmp_path / "data", labels=[*labels, "unicorn"])
    with pytest.raises(cr.InputError, match=f"it also has '{labels[-1]}'"):
        load(name, tmp_path / "data", labels=labels[:-1])
