"""Damaged, hostile or half-present data: named, never half-read."""

import io
import json
import struct
import zlib

import numpy as np
import pyarrow as pa
import pytest
import torch
from PIL import Image

import credibly as cr


def paint(path, size=(20, 16)):
    path.parent.mkdir(parents=True, exist_ok=True)
    noise = np.random.default_rng(0).integers(0, 256, (*size[::-1], 3), dtype=np.uint8)
    Image.fromarray(noise).save(path)


def write(path, text):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text if isinstance(text, str) else json.dumps(text), encoding="utf-8")


def bomb(width, height):
    """A PNG of a few bytes that claims to be huge."""

    def chunk(kind, content):
        check = struct.pack(">I", zlib.crc32(kind + content))
        return struct.pack(">I", len(content)) + kind + content + check

    header = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    body = chunk(b"IHDR", header) + chunk(b"IDAT", zlib.compress(b"")) + chunk(b"IEND", b"")
    return b"\x89PNG\r\n\x1a\n" + body


def shortened():
    file = io.BytesIO()
    noise = np.random.default_rng(0).integers(0, 256, (64, 64, 3), dtype=np.uint8)
    Image.fromarray(noise).save(file, "JPEG")
    return file.getvalue()[:1500]


BROKEN = {
    "text": (b"not an image at all", "does not decode"),
    "empty": (b"", "does not decode"),
    "cut short": (shortened(), "does not decode"),
    "huge": (bomb(60_000, 60_000), "Scale it down first"),
    "large": (bomb(9_400, 9_400), "at most 80,000,000 pixels; this one claims 9400 × 9400"),
}


@pytest.fixture
def folder(tmp_path):
    for name in ("cat/1.jpg", "cat/2.jpg", "dog/3.jpg", "dog/4.jpg"):
        paint(tmp_path / name)
    return tmp_path


@pytest.mark.parametrize(("content", "match"), BROKEN.values(), ids=BROKEN.keys())
def test_a_bad_image_is_an_error_that_names_it_unless_skipped(content, match, folder):
    (folder / "dog/3.jpg").write_bytes(content)
    data = cr.data.load(f"imagefolder:{folder}", test=0.0, calibration=0)
    for read in (data.image, lambda row: data.torch_dataset(train=True)[row]):
        with pytest.raises(cr.InputError, match=match) as caught:
            read(2)
        assert "3.jpg" in str(caught.value)
    kept = cr.data.load(f"imagefolder:{folder}", test=0.0, calibration=0, skip_bad_images=True)
    assert kept.skipped == ("dog/3.jpg",)
    assert kept.ids.tolist() == ["cat/1.jpg", "cat/2.jpg", "dog/4.jpg"]
    assert kept.targets.tolist() == [[1, 0], [1, 0], [0, 1]]
    assert kept.fingerprint() != data.fingerprint()


def test_a_bad_image_stops_a_worker_with_its_name(folder):
    (folder / "cat/1.jpg").write_bytes(b"nothing")
    data = cr.data.load(f"imagefolder:{folder}", test=0.0, calibration=0)
    loader = torch.utils.data.DataLoader(
        data.torch_dataset(train=False, image_size=8), num_workers=1
    )
    with pytest.raises(cr.InputError, match=r"1\.jpg does not decode"):
        list(loader)


def test_nothing_left_is_an_error(tmp_path):
    write(tmp_path / "cat/1.jpg", "no image")
    with pytest.raises(cr.InputError, match="none of its 1 images can be decoded"):
        cr.data.load(f"imagefolder:{tmp_path}", skip_bad_images=True)


def test_gray_palette_and_transparent_images_become_rgb(tmp_path):
    kinds = ["L.png", "P.png", "RGBA.png", "1.png", "CMYK.tif", "CMYK.jpg", "L.jpg"]
    (tmp_path / "cat").mkdir()
    for kind in kinds:
        Image.new(kind.partition(".")[0], (5, 4)).save(tmp_path / "cat" / kind)
    data = cr.data.load(f"imagefolder:{tmp_path}", test=0.0, calibration=0)
    assert all(data.image(row).shape == (4, 5, 3) for row in range(len(kinds)))
    batch = data.torch_dataset(train=True, image_size=8).batch(range(len(kinds)))[0]
    assert batch.shape == (len(kinds), 3, 8, 8)


def test_sixteen_bit_gray_is_scaled_not_cut_off(tmp_path):
    (tmp_path / "cat").mkdir()
    ramp = np.linspace(0, 65535, 16 * 16).reshape(16, 16).astype(np.uint16)
    Image.fromarray(ramp).save(tmp_path / "cat" / "deep.png")
    data = cr.data.load(f"imagefolder:{tmp_path}", test=0.0, calibration=0)
    np.testing.assert_array_equal(data.image(0)[..., 0], ramp >> 8)


# Layouts with something wrong in them: what is written, the kind, and what the error says. ------


def empty_class(root):
    paint(root / "cat/1.jpg")
    (root / "dog").mkdir()


def strange_class(root):
    paint(root / "train/cat/1.jpg")
    paint(root / "test/catt/1.jpg")


def coco(root, **changes):
    content = {
        "images": [{"id": 1, "file_name": "a.jpg"}],
        "annotations": [{"image_id": 1, "category_id": 1}],
        "categories": [{"id": 1, "name": "dog"}],
    }
    for part in ("train", "val"):
        write(root / f"annotations/instances_{part}2017.json", {**content, **changes})
        paint(root / f"{part}2017/a.jpg")


def coco_two_years(root):
    coco(root)
    write(root / "annotations/instances_train2014.json", {})


def coco_broken(root):
    coco(root)
    write(root / "annotations/instances_val2017.json", "{")


def coco_deep(root):
    coco(root)
    write(root / "annotations/instances_val2017.json", "[" * 200_000)


def coco_missing_image(root):
    coco(root)
    (root / "val2017/a.jpg").unlink()


def voc(root, annotation="<annotation/>"):
    write(root / "ImageSets/Main/train.txt", "a\n")
    write(root / "ImageSets/Main/val.txt", "b\n")
    for name in "ab":
        paint(root / f"JPEGImages/{name}.jpg")
        write(root / f"Annotations/{name}.xml", annotation)


def wider(root, attribute):
    person = {"attribute": attribute, "bbox": [0, 0, 1, 1]}
    image = {"file_name": "a.jpg", "targets": [person]}
    for part in ("trainval", "test"):
        content = {"images": [image], "attribute_id_map": {"0": "x", "1": "y"}}
        write(root / f"wider_attribute_{part}.json", content)
    paint(root / "Image/a.jpg")


def vispr(root, labels):
    for part in ("train2017", "val2017", "test2017"):
        found = ["a0_safe"] if part == "train2017" else labels
        write(root / f"annotations/{part}/1.json", {"image_path": "1.jpg", "labels": found})
        paint(root / f"images/{part}/1.jpg")


def nuswide(root, lines):
    write(root / "ConceptsList/Concepts81.txt", "zebra\n")
    for part in ("Train", "Test"):
        write(root / f"ImageList/{part}Imagelist.txt", f"zoo\\{part}.jpg\n")
        write(root / f"Groundtruth/TrainTestLabels/Labels_zebra_{part}.txt", lines)
        paint(root / f"Flickr/zoo/{part}.jpg")


def cifar_python(root):
    write(root / "cifar-10-batches-py/data_batch_1", "cos\nsystem\n(S'touch /tmp/x'\ntR.")


def cifar_short(root):
    write(root / "fine_label_names.txt", "a\nb\n")
    write(root / "train.bin", "x" * 3073)


def flat_val(root):
    """ImageNet as distributed: the validation images are not in folders by class."""
    for name in ("train/n1/x.JPEG", "train/n2/y.JPEG", "val/a.JPEG", "val/b.JPEG"):
        paint(root / name)


def plantnet_part(root):
    paint(root / "images/train/1/a.jpg")


def tiny_label(root):
    write(root / "wnids.txt", "n1\n")
    paint(root / "train/n1/images/a.JPEG")
    write(root / "val/val_annotations.txt", "v.JPEG\tn7\t0\n")


def hf(root, state=None, splits=("train",), filename="data.arrow", column=(0, 1)):
    write(root / "dataset_dict.json", {"splits": list(splits)})
    feature = {"label": {"names": ["a", "b"], "_type": "ClassLabel"}}
    table = pa.table({"label": list(column), "x": [0.0, 1.0]})
    metadata = {b"huggingface": json.dumps({"info": {"features": feature}}).encode()}
    table = table.replace_schema_metadata(metadata)
    for part in ("train", "huh"):
        (root / part).mkdir()
        with pa.OSFile(str(root / part / "data.arrow"), "wb") as sink:
            writer = pa.ipc.new_stream(sink, table.schema)
            writer.write_table(table)
            writer.close()
        write(
            root / part / "state.json", {"_data_files": [{"filename": filename}], **(state or {})}
        )


HOSTILE = '<!DOCTYPE a [<!ENTITY x SYSTEM "file:///etc/passwd">]><annotation>&x;</annotation>'
CASES = {
    "empty class": ("imagefolder", empty_class, "dog is empty"),
    "class only in test": ("imagefolder", strange_class, "class 'catt' is not .* mean 'cat'"),
    "flat val": (
        "imagefolder",
        flat_val,
        r"val must hold one folder per class; it also holds images, such as a\.JPEG",
    ),
    "no folders": ("imagefolder", lambda root: write(root / "x", ""), "one folder per class"),
    "no coco": (
        "coco",
        lambda root: None,
        r"must contain annotations/instances_train\[0-9\]\*.json",
    ),
    "coco years": ("coco", coco_two_years, r"holds the years \[2014, 2017\]\. Choose one"),
    "coco json": ("coco", coco_broken, "instances_val2017.json must be JSON"),
    "coco depth": ("coco", coco_deep, "nested too deeply"),
    "coco image": ("coco", coco_missing_image, "1 of 2 images are missing: val2017/a.jpg"),
    "coco category": (
        "coco",
        lambda root: coco(root, annotations=[{"image_id": 1, "category_id": 8}]),
        "annotation 0: image 1 and category 8 must both be listed",
    ),
    "coco key": ("coco", lambda root: coco(root, images=[{"id": 1}]), "image 0 must be an object"),
    "coco escape": (
        "coco",
        lambda root: coco(root, images=[{"id": 1, "file_name": "../../x.jpg"}]),
        "an image must be a path inside",
    ),
    "voc root": ("voc", lambda root: None, "must contain ImageSets/Main"),
    "voc class": (
        "voc",
        lambda root: voc(root, "<a><object><name>dogg</name></object></a>"),
        "a.xml: 'dogg' is no VOC class. Did you mean 'dog'",
    ),
    "voc entities": ("voc", lambda root: voc(root, HOSTILE), "must not declare a document type"),
    "wider count": ("wider", lambda root: wider(root, [1]), "must hold 2 of 1, -1 and 0"),
    "wider value": ("wider", lambda root: wider(root, [1, 4]), "image 0, person 0: attribute must"),
    "vispr label": ("vispr", lambda root: vispr(root, ["a1_sofa"]), "label 'a1_sofa' is not among"),
    "nuswide rows": (
        "nuswide",
        lambda root: nuswide(root, "1\n1\n"),
        "line for each of the 1 images",
    ),
    "nuswide value": ("nuswide", lambda root: nuswide(root, "yes\n"), "row 1 must be 0 or 1"),
    "cifar pickle": ("cifar10", cifar_python, "pickled and could run any code"),
    "cifar size": ("cifar100", cifar_short, "whole records of 3074 bytes; it has 3073"),
    "plantnet part": ("plantnet", plantnet_part, "images/val is missing"),
    "tiny label": ("tinyimagenet", tiny_label, "row 1: 'n7' is not in"),
    "hf none": ("hf", lambda root: None, "written by `save_to_disk`"),
    "hf escape": ("hf", lambda root: hf(root, filename="../x.arrow"), "must be beside it"),
    "hf split escape": ("hf", lambda root: hf(root, splits=["../../etc"]), "folders inside it"),
    "hf split": ("hf", lambda root: hf(root, splits=["huh"]), "must be called train, validation"),
    "hf file": ("hf", lambda root: hf(root, filename="b.arrow"), "b.arrow is missing"),
    "hf class": ("hf", lambda root: hf(root, column=[0, 7]), "row 1: classes must lie below 2"),
    "hf order": ("hf", lambda root: hf(root, state={"_indices_files": ["x"]}), "reorders its rows"),
}


@pytest.mark.parametrize(("kind", "make", "match"), CASES.values(), ids=CASES.keys())
def test_what_is_wrong_with_a_layout_is_said(kind, make, match, tmp_path):
    make(tmp_path)
    with pytest.raises(cr.InputError, match=match):
        cr.data.load(f"{kind}:{tmp_path}")
