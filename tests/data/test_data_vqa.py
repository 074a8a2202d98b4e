"""VQA v2: counts and soft targets, the official accuracy by brute force, region features."""

import base64
import csv
import importlib.util
import json
import sys
import tracemalloc

import numpy as np
import pytest
from layout_makers import make_vqa

import credibly as cr
from credibly.papers.datasets.regions import open_regions
from credibly.papers.datasets.vqa import vqa_counts
from credibly.papers.vqa import answer_accuracy, count_accuracy, normalize_answer, vqa_accuracy

IMAGES = (10, 11, 12)
csv.field_size_limit(sys.maxsize)


def regions_of(image, count=36, width=16):
    generator = np.random.default_rng(image)
    features = generator.random((count, width)).astype(np.float32)
    corners = np.sort(generator.random((count, 2, 2)), axis=1).reshape(count, 4)
    return features, corners.astype(np.float32)


def text64(array):
    return base64.b64encode(np.ascontiguousarray(array, np.float32)).decode()


def write_tsv(path, columns=10, width=16, images=IMAGES):
    lines = []
    for image in images:
        features, boxes = regions_of(image, width=width)
        pixels = boxes * np.array([640, 480, 640, 480], np.float32)
        name = f"COCO_val2014_{image:012d}"
        middle = ["640", "480"] if columns == 6 else ["480", "640", *([text64([1])] * 4)]
        lines.append("\t".join([name, *middle, "36", text64(pixels), text64(features)]))
    path.write_text("\n".join(lines) + "\n")


def write_hdf5(path, layout):
    import h5py

    with h5py.File(path, "w") as file:
        if layout == "rows":
            found = [regions_of(image) for image in IMAGES]
            file["image_features"] = np.stack([features for features, _ in found])
            file["image_bb"] = np.stack([boxes for _, boxes in found])
            file["image_ids"] = np.array(IMAGES)
        else:
            for image in IMAGES:
                group = file.create_group(str(image))
                group["features"], group["boxes"] = regions_of(image)


def write_npy(path):
    path.mkdir()
    for image in IMAGES:
        features, boxes = regions_of(image)
        np.save(path / f"COCO_train2014_{image:012d}.npy", features)
        np.save(path / f"COCO_train2014_{image:012d}.boxes.npy", boxes)


def write_npz(path):
    path.mkdir()
    for image in IMAGES:
        features, boxes = regions_of(image)
        pixels = boxes * np.array([640, 480, 640, 480], np.float32)
        np.savez(path / f"{image}.npz", x=features.T, bbox=pixels, image_w=640, image_h=480)


def write_two_files(path):
    path.mkdir()
    write_tsv(path / "train2014_obj36.tsv", images=IMAGES[:2])
    write_tsv(path / "val2014_obj36.tsv", images=IMAGES[2:])


REGIONS = {
    "two files": write_two_files,
    "lxmert.tsv": write_tsv,
    "bottom-up.tsv": lambda path: write_tsv(path, columns=6),
    "rows.hdf5": lambda path: write_hdf5(path, "rows"),
    "groups.h5": lambda path: write_hdf5(path, "groups"),
    "arrays": write_npy,
    "archives": write_npz,
}


@pytest.fixture
def folder(tmp_path):
    make_vqa(tmp_path / "vqa")
    return tmp_path / "vqa"


def brute_force(answer, people):
    """The official formula, word by word: leave each person out, ask the nine others."""
    scores = []
    for out in range(len(people)):
        others = [normalize_answer(each) for n, each in enumerate(people) if n != out]
        scores.append(min(1.0, others.count(normalize_answer(answer)) / 3))
    return sum(scores) / len(scores)


@pytest.mark.parametrize("count", range(11))
def test_accuracy_is_the_mean_over_the_ten_subsets(count):
    people = ["yes"] * count + ["no"] * (10 - count)
    for answer in ("yes", "No", "maybe"):
        assert answer_accuracy(answer, people) == pytest.approx(brute_force(answer, people))
    assert count_accuracy(count) == pytest.approx(min(1, 0.3 * count))


NORMAL = {
    "The two dogs!": "2 dogs",
    "dont know": "don't know",
    "1,000": "1000",
    "red/white": "red white",
    "red / white": "red white",
    "an apple.": "apple",
    "3.5 m.": "3.5 m",
    "None": "0",
    "couldnt've": "couldn't've",
    "  YES\n": "yes",
    "t-shirt": "t shirt",
    "東京": "東京",
}


@pytest.mark.parametrize("answer", NORMAL)
def test_answers_are_compared_in_one_form(answer):
    assert normalize_answer(answer) == NORMAL[answer]
    assert normalize_answer(NORMAL[answer]) == NORMAL[answer]


def test_soft_targets_count_people(folder):
    ours = cr.data.load(f"vqa:{folder}")
    printed = cr.data.load(f"vqa:{folder}", soft="printed")
    assert ours.labels == ["2", "yes"]
    row = int(np.flatnonzero(ours.ids == "101")[0])  # nine said yes
    other = int(np.flatnonzero(ours.ids == "100")[0])  # three said two, seven many
    assert ours.targets[row].tolist() == [0, 1]
    assert ours.targets[other].tolist() == pytest.approx([0.9, 0])
    assert printed.targets[other].tolist() == [1, 0]
    assert ours.texts[row, 0] == "is it 101?"
    counts = vqa_counts(folder, ours.ids, ours.labels)
    assert np.allclose(np.minimum(1, 0.3 * counts), ours.targets)
    best = vqa_accuracy(ours.targets, counts)
    assert best == pytest.approx(np.mean([1.0 if int(i) % 2 else 0.9 for i in ours.ids]))
    assert vqa_accuracy(-ours.targets, counts) == 0


def test_large_targets_are_sparse_and_the_same(folder, monkeypatch):
    dense = cr.data.load(f"vqa:{folder}", labels=["yes", "many", "2"])
    monkeypatch.setattr("credibly.papers.datasets.vqa.DENSE", 10)
    sparse = cr.data.load(f"vqa:{folder}", labels=["yes", "many", "2"])
    assert isinstance(dense.targets, np.ndarray)
    assert np.array_equal(sparse.targets.dense(), dense.targets)
    assert np.array_equal(sparse.split, dense.split)


def test_the_vocabulary_is_the_usual_answers(folder):
    with pytest.raises(cr.InputError, match="at least 99 questions; the most frequent is right"):
        cr.data.load(f"vqa:{folder}", min_occurrence=99)
    with pytest.raises(cr.InputError, match=r"none is\. Question 100 was answered '2'"):
        cr.data.load(f"vqa:{folder}", labels=["Yes!"])
    given = cr.data.load(f"vqa:{folder}", labels=["yes", "many"])
    assert given.targets[given.ids == "100"].tolist() == [[0, 1]]


@pytest.mark.parametrize("name", REGIONS)
def test_every_layout_of_regions_gives_the_same_arrays(name, folder, tmp_path):
    if name.endswith(("h5", "hdf5")) and importlib.util.find_spec("h5py") is None:
        pytest.skip("h5py is not installed here; `make test-text` has it")
    REGIONS[name](tmp_path / name)
    data = cr.data.load(f"vqa:{folder}", regions=str(tmp_path / name))
    assert data.kind == "text+regions"
    assert data.input_shape == (1, 36, 16)
    features, boxes, mask = data.regions.batch(np.arange(4))
    for place in range(4):
        image = 10 + int(data.ids[place]) % 3
        assert np.allclose(features[place], regions_of(image)[0])
        assert np.allclose(boxes[place], regions_of(image)[1], atol=1e-5)
    assert mask.all()
    again = cr.data.load(f"vqa:{folder}", regions=str(tmp_path / name))
    assert again.fingerprint() == data.fingerprint()
    taken = data.take(np.array([2, 0]))
    assert np.array_equal(taken.regions.batch(np.array([1]))[0][0], features[0])


def broken_tsv(path, edit):
    write_tsv(path)
    rows = [line.split("\t") for line in path.read_text().splitlines()]
    edit(rows)
    path.write_text("".join("\t".join(row) + "\n" for row in rows))


def set_cell(row, column, value):
    def edit(rows):
        rows[row][column] = value

    return edit


TSV = {
    "columns": (lambda rows: rows[1].pop(), r"row 2 must have 6 columns .* got 9"),
    "twice": (lambda rows: rows.append(rows[0]), r"row 4: image .* appears twice"),
    "base64": (set_cell(0, 9, "%%%"), r"row 1, column 'features' must be base64"),
    "cut": (set_cell(0, 9, text64(np.zeros(7))), r"float32 numbers for 36 regions; got 28 bytes"),
    "count": (set_cell(0, 7, "many"), r"row 1, column 'num_boxes' must be a whole number"),
    "missing": (lambda rows: rows.pop(1), "no features of image 11, which question"),
}


@pytest.mark.parametrize("case", TSV)
def test_broken_regions_are_named(case, folder, tmp_path):
    edit, words = TSV[case]
    broken_tsv(tmp_path / "x.tsv", edit)
    with pytest.raises(cr.InputError, match=words):
        cr.data.load(f"vqa:{folder}", regions=str(tmp_path / "x.tsv"))


@pytest.mark.parametrize("layout", ["rows", "groups"])
def test_damaged_hdf5_is_read_or_refused(layout, folder, tmp_path):
    pytest.importorskip("h5py", reason="h5py is not installed here; `make test-text` has it")
    write_hdf5(tmp_path / "x.h5", layout)
    whole, refused = (tmp_path / "x.h5").read_bytes(), []
    for place in range(0, min(4000, len(whole)), 16):
        (tmp_path / "x.h5").write_bytes(whole[:place] + b"\xff" * 8 + whole[place + 8 :])
        try:
            source = open_regions(tmp_path / "x.h5")
            for name in source.names:
                source.read(name)
        except cr.InputError as error:
            refused.append(str(error))
    assert refused
    assert all(message.startswith(str(tmp_path / "x.h5")) for message in refused)


def test_files_that_share_an_image_are_refused(folder, tmp_path):
    (tmp_path / "r").mkdir()
    for name in ("a.tsv", "b.tsv"):
        write_tsv(tmp_path / "r" / name)
    with pytest.raises(cr.InputError, match=r"b\.tsv: image 10 is also in .*a\.tsv; each image"):
        cr.data.load(f"vqa:{folder}", regions=str(tmp_path / "r"))


def test_memory_does_not_grow_with_the_features(tmp_path):
    sizes, peaks = [], []
    for images in (20, 80):
        file = tmp_path / f"{images}.tsv"
        write_tsv(file, width=256, images=range(images))
        tracemalloc.start()
        source = open_regions(file)
        for name in source.names:
            source.checked(name)
        peaks.append(tracemalloc.get_traced_memory()[1])
        tracemalloc.stop()
        sizes.append(file.stat().st_size)
    # What grows is the index: a name and an offset per image.
    assert peaks[1] - peaks[0] < 0.02 * (sizes[1] - sizes[0])


def test_features_of_another_shape_are_named(folder, tmp_path):
    wide = text64(np.zeros((36, 8)))
    broken_tsv(tmp_path / "x.tsv", set_cell(1, 9, wide))
    data = cr.data.load(f"vqa:{folder}", regions=str(tmp_path / "x.tsv"))
    with pytest.raises(cr.InputError, match=r"x\.tsv, image 11: .* 36 × 16; got 36 × 8"):
        data.regions.batch(np.arange(len(data)))


def edit_json(path, change):
    content = json.loads(path.read_text())
    change(content)
    path.write_text(json.dumps(content))


ANNOTATIONS = "v2_mscoco_train2014_annotations.json"
QUESTIONS = "v2_OpenEnded_mscoco_train2014_questions.json"
JSON = {
    "no answers": (ANNOTATIONS, lambda c: c["annotations"].pop(3), r"question 3 .*has no answers"),
    "a number": (
        *(QUESTIONS, lambda c: c["questions"][2].update(question=7)),
        r"question 2: `question` must be a text; got 7",
    ),
    "empty": (
        *(ANNOTATIONS, lambda c: c["annotations"][1].update(answers=[])),
        r"annotation 1: `answers` must be a list",
    ),
    "no key": (
        *(ANNOTATIONS, lambda c: c["annotations"][0].pop("multiple_choice_answer")),
        r"annotation 0 must be an object with 'multiple_choice_answer'",
    ),
}


@pytest.mark.parametrize("case", JSON)
def test_broken_questions_and_annotations_are_named(case, folder):
    name, change, words = JSON[case]
    edit_json(folder / name, change)
    with pytest.raises(cr.InputError, match=words):
        cr.data.load(f"vqa:{folder}")


def test_a_folder_of_something_else_is_refused(tmp_path):
    with pytest.raises(cr.InputError, match="must contain v2_OpenEnded_mscoco_train2014_questions"):
        cr.data.load(f"vqa:{tmp_path}")
    with pytest.raises(cr.InputError, match="questions, answers"):
        vqa_accuracy([[0.1]], [[1, 2]])


def test_predictions_of_other_questions_are_refused(folder):
    with pytest.raises(cr.InputError, match="has no question 'x'"):
        vqa_counts(folder, ["x"], ["yes"])
