"""The nine transfer sets: what is wrong is named with file and row; .mat files are not trusted."""

import io
import zlib

import numpy as np
import pytest
from layout_makers import (
    CAR_FIELDS,
    cells,
    make_aircraft,
    make_caltech101,
    make_cars,
    make_cub,
    make_dtd,
    make_flowers,
    make_food101,
    make_pets,
    make_sun397,
    paint,
    structs,
    write,
)
from scipy.io import savemat

import credibly as cr

pytestmark = pytest.mark.filterwarnings("ignore:.*validation rows .*stay held out:UserWarning")

TRAIN, TEST = 0, 1  # what `split` says of a row


def load(kind, root, **options):
    return cr.data.load(f"{kind}:{root}", calibration=0, **options)


def test_aircraft_has_families_and_manufacturers_too(tmp_path):
    make_aircraft(tmp_path)
    base = tmp_path / "data"
    write(base / "families.txt", "A330\nBoeing 707\n")
    for part, line in (("train", "0001 A330"), ("val", "0002 Boeing 707"), ("test", "0003 A330")):
        write(base / f"images_family_{part}.txt", line + "\n")
    data = load("aircraft", tmp_path, level="family")
    assert data.labels == ["A330", "Boeing 707"]
    assert data.targets.tolist() == [[1, 0], [0, 1], [1, 0]]


def test_caltech101_trains_on_so_many_images_of_each_class(tmp_path):
    for label, count in (("ant", 7), ("bass", 4)):
        for k in range(count):
            paint(tmp_path / f"101_ObjectCategories/{label}/image_{k:04d}.jpg")
    data = load("caltech101", tmp_path, per_class=3)
    trains = data.targets[data.split == TRAIN].sum(axis=0)
    assert trains.tolist() == [3, 3]
    assert data.targets[data.split == TEST].sum(axis=0).tolist() == [4, 1]
    np.testing.assert_array_equal(
        load("caltech101", tmp_path, per_class=3, seed=9).split, data.split
    )


@pytest.mark.parametrize(("kind", "make"), [("dtd", make_dtd), ("sun397", make_sun397)])
def test_another_partition_is_read_and_a_missing_one_named(kind, make, tmp_path):
    make(tmp_path)
    with pytest.raises(cr.InputError, match=r"`partition` must be one of .* got 3, and .* missing"):
        load(kind, tmp_path, partition=3)
    for file in [*tmp_path.glob("**/*1.txt")]:
        write(file.with_name(file.name.replace("1.txt", "3.txt")), file.read_text())
    assert load(kind, tmp_path, partition=3).fingerprint() == load(kind, tmp_path).fingerprint()


CASES = {
    "aircraft class": (
        make_aircraft,
        "data/images_variant_val.txt",
        "0002 707",
        "row 1: class '707'",
    ),
    "cub label": (
        make_cub,
        "CUB_200_2011/image_class_labels.txt",
        "1 2\n2 2\n3 7\n",
        "image 3.*got 7",
    ),
    "cub image": (
        make_cub,
        "CUB_200_2011/image_class_labels.txt",
        "1 2\n",
        "image 2 must be in image",
    ),
    "cub split": (
        make_cub,
        "CUB_200_2011/train_test_split.txt",
        "1 0\n2 x\n3 1\n",
        "must be 0 or 1",
    ),
    "cub line": (
        make_cub,
        "CUB_200_2011/classes.txt",
        "1\n",
        "classes.txt, row 1 must be a new number",
    ),
    "dtd class": (
        make_dtd,
        "dtd/labels/test1.txt",
        "wovn/x.jpg",
        "row 1: class 'wovn'.*mean 'woven'",
    ),
    "food class": (make_food101, "food-101/meta/test.txt", "waffle/5", "row 1: class 'waffle'"),
    "food image": (make_food101, "food-101/meta/test.txt", "waffles/5", "images are missing"),
    "food escape": (make_food101, "food-101/meta/test.txt", "waffles/../../x", "a path inside"),
    "pets line": (make_pets, "annotations/test.txt", "Bombay_7 3\n", "row 1 must be `image class"),
    "pets class": (make_pets, "annotations/test.txt", "Bombay_7 10 1 2", "class 10 is 'yorkshire"),
    "sun class": (make_sun397, "Partitions/Testing_01.txt", "/a/abbe/x.jpg", "mean 'a/abbey'"),
}


@pytest.mark.parametrize(("make", "file", "text", "match"), CASES.values(), ids=CASES.keys())
def test_what_is_wrong_is_named_with_its_row(make, file, text, match, tmp_path):
    make(tmp_path)
    assert (tmp_path / file).exists()
    write(tmp_path / file, text)
    with pytest.raises(cr.InputError, match=match):
        load(make.__name__.removeprefix("make_"), tmp_path)


KINDS = [make_aircraft, make_cub, make_dtd, make_food101, make_pets, make_sun397]


@pytest.mark.parametrize("make", [*KINDS, make_cars, make_flowers], ids=lambda make: make.__name__)
def test_every_file_is_needed(make, tmp_path):
    make(tmp_path / "data")
    kind = make.__name__.removeprefix("make_")
    for file in sorted((tmp_path / "data").glob("**/*.*")):
        content = file.read_bytes() if file.is_file() else None
        if content is None:
            continue
        file.unlink()
        with pytest.raises(cr.InputError, match=r"missing|must contain"):
            load(kind, tmp_path / "data")
        file.write_bytes(content)


def test_an_empty_folder_is_named(tmp_path):
    make_caltech101(tmp_path)
    (tmp_path / "101_ObjectCategories/empty").mkdir()
    with pytest.raises(cr.InputError, match="empty is empty"):
        load("caltech101", tmp_path)


# .mat files ------------------------------------------------------------------------------------


def mat(**content):
    file = io.BytesIO()
    savemat(file, content)
    return file.getvalue()


def bomb():
    """A few hundred kilobytes that come to 300 MB."""
    packer = zlib.compressobj(9)
    body = b"".join(packer.compress(bytes(1 << 20)) for _ in range(300)) + packer.flush()
    header = b"MATLAB 5.0 MAT-file".ljust(124) + (0x0100).to_bytes(2, "little") + b"IM"
    return header + (15).to_bytes(4, "little") + len(body).to_bytes(4, "little") + body


ROW = [(1, 2, 3, 4, 9, "00001.jpg")]
MAT = {
    "text": (b"not a MATLAB file at all" * 20, "must be a MATLAB file"),
    "empty": (b"", "must be a MATLAB file"),
    "bomb": (bomb(), "more than 256 MB once decompressed"),
    "hdf5": (
        b"MATLAB 7.3 MAT-file".ljust(124) + (0x0200).to_bytes(2, "little") + b"IM" + bytes(400),
        "version 7.3, save it with `-v7`",
    ),
    "variable": (mat(other=np.ones(3)), "must hold 'annotations'; it holds other"),
    "field": (mat(annotations=structs([(1,)], ["klass"])), "must have the field 'class'"),
    "numbers": (mat(annotations=np.ones(3)), "must have the field 'class'"),
    "class": (mat(annotations=structs(ROW, CAR_FIELDS)), "row 1: classes are 1 to 2; got 9"),
    "name": (
        mat(annotations=structs([(1, 2, 3, 4, "x", "1.jpg")], CAR_FIELDS)),
        "row 1 must be a whole number; got 'x'",
    ),
    "path": (
        mat(annotations=structs([(1, 2, 3, 4, 1, "../../x.jpg")], CAR_FIELDS)),
        "an image must be a path inside",
    ),
}


@pytest.mark.parametrize(("content", "match"), MAT.values(), ids=MAT.keys())
def test_a_bad_mat_file_is_named(content, match, tmp_path):
    make_cars(tmp_path)
    file = tmp_path / "devkit/cars_train_annos.mat"
    file.write_bytes(content)
    with pytest.raises(cr.InputError, match=match) as caught:
        load("cars", tmp_path)
    assert match.startswith("an image") or "cars_train_annos.mat" in str(caught.value)


VALUES = {
    "numbers": np.arange(6.0).reshape(2, 3),
    "small": np.array([[1, -2]], dtype=np.int8),
    "large": np.array([[2**40]], dtype=np.int64),
    "text": "grün – 7",
    "cells": cells(["a", "bc", ""]),
    "structs": structs([(1, "x"), (2, "y")], ("number", "name")),
    "logical": np.array([[True, False]]),
}


@pytest.mark.parametrize("compressed", [False, True])
def test_mat_files_give_what_scipy_gives(compressed, tmp_path):
    from scipy.io import loadmat

    from credibly.papers.datasets.mat import read_mat

    savemat(tmp_path / "x.mat", VALUES, do_compression=compressed)
    found = read_mat(tmp_path / "x.mat", *VALUES)
    expected = loadmat(tmp_path / "x.mat", squeeze_me=True)
    for name in ("numbers", "small", "large", "logical"):
        np.testing.assert_array_equal(found[name], np.ravel(expected[name], order="F"))
    assert found["text"] == expected["text"]
    assert [str(cell) if len(cell) else "" for cell in found["cells"]] == ["a", "bc", ""]
    assert [number.item() for number in found["structs"]["number"]] == [1, 2]
    assert found["structs"]["name"] == ["x", "y"]


def test_a_mat_file_cut_short_is_named(tmp_path):
    make_cars(tmp_path)
    file = tmp_path / "devkit/cars_train_annos.mat"
    whole = file.read_bytes()
    for length in range(0, len(whole), 23):
        file.write_bytes(whole[:length])
        with pytest.raises(cr.InputError, match=r"cars_train_annos\.mat"):
            load("cars", tmp_path)


@pytest.mark.parametrize(
    ("labels", "sets", "match"),
    [
        ([0, 1], [1], "class numbers from 1"),
        ([1.5, 1], [1], "image 1 must be a whole number"),
        ([1, 2], [3], "trnid, row 1: images are numbered 1 to 2; got 3"),
        (cells(["a", "b"]), [1], "image 1 must be a whole number"),
    ],
)
def test_flower_numbers_are_checked(labels, sets, match, tmp_path):
    make_flowers(tmp_path / "f")
    savemat(tmp_path / "f/imagelabels.mat", {"labels": labels})
    savemat(tmp_path / "f/setid.mat", {"trnid": sets, "valid": [1], "tstid": [1]})
    with pytest.raises(cr.InputError, match=match):
        load("flowers", tmp_path / "f")
