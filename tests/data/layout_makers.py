"""Tiny copies of published layouts: each maker writes one and returns the rows that must come back.

Rows are id → (labels, part), with the calibration part left as published.
"""

import json

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from PIL import Image

TRAIN, TEST, CALIBRATION = 0, 1, 2  # what `split` says of a row


def paint(path, color=0, size=(20, 16)):
    """A small image file of one colour."""
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.new("RGB", size, (color, 255 - color, 7)).save(path)


def write(path, text):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text if isinstance(text, str) else json.dumps(text), encoding="utf-8")


def make_imagefolder(root):
    for name in ("train/cat/a.jpg", "train/dog/deep/b.png", "val/cat/c.jpg", "val/dog/d.JPG"):
        paint(root / name)
    write(root / "train/cat/notes.txt", "not an image")
    return {
        "train/cat/a.jpg": (["cat"], TRAIN),
        "train/dog/deep/b.png": (["dog"], TRAIN),
        "val/cat/c.jpg": (["cat"], TEST),
        "val/dog/d.JPG": (["dog"], TEST),
    }


def make_coco(root):
    categories = [{"id": 3, "name": "dog"}, {"id": 1, "name": "person"}]
    for part, first in (("train", 1), ("val", 7)):
        images = [{"id": first + k, "file_name": f"{part}_{k}.jpg", "height": 1} for k in range(2)]
        notes = [
            {"image_id": first, "category_id": 3, "segmentation": [[1, 2, 3]], "iscrowd": 1},
            {"image_id": first, "category_id": 1, "segmentation": {"counts": [1]}},
            {"image_id": first, "category_id": 1},
        ]
        content = {"images": images, "annotations": notes, "categories": categories, "info": {}}
        write(root / f"annotations/instances_{part}2014.json", content)
        for image in images:
            paint(root / f"{part}2014" / image["file_name"])
    return {
        "train2014/train_0.jpg": (["person", "dog"], TRAIN),
        "train2014/train_1.jpg": ([], TRAIN),
        "val2014/val_0.jpg": (["person", "dog"], TEST),
        "val2014/val_1.jpg": ([], TEST),
    }


def voc_annotation(objects):
    things = "".join(
        f"<object><name>{name}</name><difficult>{int(hard)}</difficult></object>"
        for name, hard in objects
    )
    return f"<?xml version='1.0'?><annotation><folder>x</folder>{things}</annotation>"


VOC = {
    "2008_1": [("dog", False), ("cat", True), ("dog", True)],
    "2008_2": [],
    "2008_3": [("person", True), ("person", False), ("sofa", True)],
}


def make_voc(root, *, lists=False):
    from credibly.papers.datasets.voc import LABELS

    base = root / "VOCdevkit" / "VOC2012"
    write(base / "ImageSets/Main/train.txt", "2008_1\n2008_2\n")
    write(base / "ImageSets/Main/val.txt", "2008_3\n")
    for name, objects in VOC.items():
        paint(base / f"JPEGImages/{name}.jpg")
        write(base / f"Annotations/{name}.xml", voc_annotation(objects))
    if lists:
        for part, members in (("train", ["2008_1", "2008_2"]), ("val", ["2008_3"])):
            for label in LABELS:
                lines = []
                for name in members:
                    found = [hard for thing, hard in VOC[name] if thing == label]
                    code = -1 if not found else 0 if all(found) else 1
                    lines.append(f"{name} {code:2d}")
                write(base / f"ImageSets/Main/{label}_{part}.txt", "\n".join(lines) + "\n")
        for name in VOC:
            (base / f"Annotations/{name}.xml").unlink()
    return {
        "2008_1": (["?cat", "dog"], TRAIN),
        "2008_2": ([], TRAIN),
        "2008_3": (["person", "?sofa"], TEST),
    }


def make_voc_lists(root):
    return make_voc(root, lists=True)


def make_wider(root):
    names = {"0": "Male", "1": "longHair", "2": "sunglass"}
    for part, folder in (("trainval", "train"), ("test", "test")):
        people = [
            {"attribute": [1, -1, 0], "bbox": [2, 3, 5, 6]},
            {"attribute": [-1, -1, -1], "bbox": [-4, 0, 9, 99]},
        ]
        image = {"file_name": f"{folder}/0--Parade/p.jpg", "scene_id": 0, "targets": people}
        content = {"images": [image], "attribute_id_map": names, "scene_id_map": {"0": "Parade"}}
        write(root / f"Anno/wider_attribute_{part}.json", content)
        paint(root / "Image" / image["file_name"])
    return {
        f"{folder}/0--Parade/p.jpg#{k}": (present, part)
        for folder, part in (("train", TRAIN), ("test", TEST))
        for k, present in enumerate((["Male", "?sunglass"], []))
    }


def make_vispr(root):
    notes = {
        "train2017/2017_1": ["a0_safe"],
        "train2017/2017_2": ["a10_face_partial", "a9_face_complete"],
        "val2017/2017_3": ["a9_face_complete"],
        "test2017/2017_4": [],
    }
    for name, labels in notes.items():
        note = {"image_path": f"images/{name}.jpg", "labels": labels, "safe": False, "url": "x"}
        write(root / f"annotations/{name}.json", note)
        paint(root / f"images/{name}.jpg")
    return {
        "train2017/2017_1.jpg": (["a0_safe"], TRAIN),
        "train2017/2017_2.jpg": (["a9_face_complete", "a10_face_partial"], TRAIN),
        "val2017/2017_3.jpg": (["a9_face_complete"], CALIBRATION),
        "test2017/2017_4.jpg": ([], TEST),
    }


def make_nuswide(root):
    write(root / "ConceptsList/Concepts81.txt", "airport\nzebra \n")
    write(root / "ImageList/TrainImagelist.txt", "actor\\0001_1.jpg\nzoo\\0002_2.jpg\n")
    write(root / "ImageList/TestImagelist.txt", "zoo\\0003_3.jpg\n")
    for label, train, test in (("airport", "1\n0\n", "1\n"), ("zebra", "1\n0\n", "0\n")):
        write(root / f"Groundtruth/TrainTestLabels/Labels_{label}_Train.txt", train)
        write(root / f"Groundtruth/TrainTestLabels/Labels_{label}_Test.txt", test)
    for name in ("actor/0001_1.jpg", "zoo/0002_2.jpg", "zoo/0003_3.jpg"):
        paint(root / "Flickr" / name)
    return {
        "actor/0001_1.jpg": (["airport", "zebra"], TRAIN),
        "zoo/0002_2.jpg": ([], TRAIN),
        "zoo/0003_3.jpg": (["airport"], TEST),
    }


def records(labels, seed=0):
    """CIFAR records: the label bytes, then three planes of 32 × 32."""
    pixels = np.random.default_rng(seed).integers(0, 256, size=(len(labels), 3072), dtype=np.uint8)
    return np.concatenate([np.array(labels, dtype=np.uint8), pixels], axis=1)


def make_cifar10(root):
    base = root / "cifar-10-batches-bin"
    names = ["airplane", "automobile", "bird"]
    write(base / "batches.meta.txt", "\n".join(names) + "\n\n")
    for batch in range(1, 6):
        records([[batch % 3]], batch).tofile(base / f"data_batch_{batch}.bin")
    records([[2], [0]]).tofile(base / "test_batch.bin")
    expected = {f"train-{k:05d}": ([names[(k + 1) % 3]], TRAIN) for k in range(5)}
    return expected | {"test-00000": (["bird"], TEST), "test-00001": (["airplane"], TEST)}


def cifar100(root):
    write(root / "fine_label_names.txt", "\n".join(f"fine{k}" for k in range(100)))
    write(root / "coarse_label_names.txt", "\n".join(f"coarse{k}" for k in range(20)))
    every = [[fine // 5, fine] for fine in range(100)]
    records(every).tofile(root / "train.bin")
    records(every[::-1], 1).tofile(root / "test.bin")


def make_cifar100(root):
    root.mkdir()
    cifar100(root)
    expected = {f"train-{k:05d}": ([f"fine{k}"], TRAIN) for k in range(100)}
    return expected | {f"test-{k:05d}": ([f"fine{99 - k}"], TEST) for k in range(100)}


def make_tinyimagenet(root):
    write(root / "wnids.txt", "n02\nn01\n")
    write(root / "words.txt", "n01\ttabby, cat\nn02\treel\nn99\tnot here\n")
    for wnid in ("n01", "n02"):
        paint(root / f"train/{wnid}/images/{wnid}_0.JPEG")
    paint(root / "val/images/val_0.JPEG")
    write(root / "val/val_annotations.txt", "val_0.JPEG\tn01\t0\t0\t9\t9\n")
    return {
        "train/n02/images/n02_0.JPEG": (["reel"], TRAIN),
        "train/n01/images/n01_0.JPEG": (["tabby, cat"], TRAIN),
        "val/images/val_0.JPEG": (["tabby, cat"], TEST),
    }


def make_plantnet(root):
    for part in ("train", "val", "test"):
        for species in ("1355868", "1355920"):
            paint(root / f"images/{part}/{species}/{part}{species}.jpg")
    names = {"1355868": "Lactuca virosa", "1355920": "Pelargonium", "9": "unused"}
    write(root / "plantnet300K_species_id_2_name.json", names)
    parts = {"train": TRAIN, "val": CALIBRATION, "test": TEST}
    return {
        f"{part}/{species}/{part}{species}.jpg": ([names[species]], code)
        for part, code in parts.items()
        for species in ("1355868", "1355920")
    }


def encoded(color):
    import io

    file = io.BytesIO()
    Image.new("RGB", (9, 9), (color, 0, 0)).save(file, "PNG")
    return {"bytes": file.getvalue(), "path": None}


def make_hf(root):
    """What ``DatasetDict.save_to_disk`` writes."""
    write(root / "dataset_dict.json", {"splits": ["train", "test"]})
    label = {"feature": {"names": ["cat", "dog"], "_type": "ClassLabel"}, "_type": "Sequence"}
    features = {"image": {"_type": "Image"}, "labels": label}
    for part, cells in (("train", [[0, 1], []]), ("test", [[1], None])):
        table = pa.table(
            {
                "id": [f"{part}{k}" for k in range(2)],
                "image": pa.array([encoded(k) for k in range(2)]),
                "labels": pa.array(cells, pa.list_(pa.int64())),
            }
        )
        folder = root / part
        folder.mkdir(parents=True)
        file = folder / "data-00000-of-00001.arrow"
        with pa.OSFile(str(file), "wb") as sink, pa.ipc.new_stream(sink, table.schema) as writer:
            writer.write_table(table)
        write(folder / "dataset_info.json", {"features": features, "citation": ""})
        write(folder / "state.json", {"_data_files": [{"filename": "data-00000-of-00001.arrow"}]})
    return {
        "train0": (["cat", "dog"], TRAIN),
        "train1": ([], TRAIN),
        "test0": (["dog"], TEST),
        "test1": (["?cat", "?dog"], TEST),
    }


def make_hf_parquet(root):
    """What the hub serves: Parquet with the dataset's features in the metadata."""
    (root / "data").mkdir(parents=True)
    features = {"label": {"names": ["cat", "dog"], "_type": "ClassLabel"}}
    metadata = {b"huggingface": json.dumps({"info": {"features": features}}).encode()}
    for part, cells in (("train", [1, -1]), ("validation", [0, 1])):
        table = pa.table(
            {"id": [f"{part}{k}" for k in range(2)], "label": cells, "x": [0.5, 1.5], "z": [1, 2]}
        )
        table = table.replace_schema_metadata(metadata)
        pq.write_table(table, root / "data" / f"{part}-00000-of-00001.parquet")
    return {
        "train0": (["dog"], TRAIN),
        "train1": (["?cat", "?dog"], TRAIN),
        "validation0": (["cat"], TEST),
        "validation1": (["dog"], TEST),
    }


def make_aircraft(root):
    base = root / "data"
    write(base / "variants.txt", "707-320\nA330-200\n")
    rows = {"train": ["0001 A330-200"], "val": ["0002 707-320"], "test": ["0003 A330-200"]}
    for part, lines in rows.items():
        write(base / f"images_variant_{part}.txt", "\n".join(lines) + "\n")
        for line in lines:
            paint(base / f"images/{line.split()[0]}.jpg")
    return {
        "images/0001.jpg": (["A330-200"], TRAIN),
        "images/0002.jpg": (["707-320"], CALIBRATION),
        "images/0003.jpg": (["A330-200"], TEST),
    }


def make_caltech101(root):
    base = root / "101_ObjectCategories"
    for name in ("accordion/image_0001.jpg", "ant/image_0001.jpg", "BACKGROUND_Google/tmp"):
        paint(base / name) if name.endswith("jpg") else paint(base / f"{name}.jpg")
    return {
        "BACKGROUND_Google/tmp.jpg": (["BACKGROUND_Google"], TRAIN),
        "accordion/image_0001.jpg": (["accordion"], TRAIN),
        "ant/image_0001.jpg": (["ant"], TRAIN),
    }


def cells(texts):
    """A MATLAB cell array of strings."""
    array = np.empty((1, len(texts)), dtype=object)
    array[0] = texts
    return array


def structs(rows, fields):
    """A MATLAB struct array."""
    array = np.empty((1, len(rows)), dtype=[(field, object) for field in fields])
    for place, row in enumerate(rows):
        array[0, place] = row
    return array


CAR_FIELDS = ("bbox_x1", "bbox_y1", "bbox_x2", "bbox_y2", "class", "fname")
CARS = ("AM General Hummer SUV 2000", "Acura RL Sedan 2012")


def make_cars(root):
    from scipy.io import savemat

    (root / "devkit").mkdir(parents=True)
    savemat(root / "devkit/cars_meta.mat", {"class_names": cells(CARS)})
    rows = {
        "cars_train_annos": [(1, 2, 3, 4, 2, "00001.jpg"), (1, 2, 3, 4, 1, "00002.jpg")],
        "cars_test_annos_withlabels": [(1, 2, 3, 4, 2, "00001.jpg")],
    }
    for name, notes in rows.items():
        file = root / f"devkit/{name}.mat"
        savemat(file, {"annotations": structs(notes, CAR_FIELDS)}, do_compression=True)
    for name in ("cars_train/00001.jpg", "cars_train/00002.jpg", "cars_test/00001.jpg"):
        paint(root / name)
    return {
        "cars_train/00001.jpg": ([CARS[1]], TRAIN),
        "cars_train/00002.jpg": ([CARS[0]], TRAIN),
        "cars_test/00001.jpg": ([CARS[1]], TEST),
    }


def make_cars_in_one_file(root):
    from scipy.io import savemat

    root.mkdir(parents=True)
    fields = ("relative_im_path", "bbox_x1", "bbox_y1", "bbox_x2", "bbox_y2", "class", "test")
    notes = [("car_ims/1.jpg", 1, 2, 3, 4, 1, 0), ("car_ims/2.jpg", 1, 2, 3, 4, 2, 1)]
    content = {"annotations": structs(notes, fields), "class_names": cells(CARS)}
    savemat(root / "cars_annos.mat", content)
    for name in ("car_ims/1.jpg", "car_ims/2.jpg"):
        paint(root / name)
    return {"car_ims/1.jpg": ([CARS[0]], TRAIN), "car_ims/2.jpg": ([CARS[1]], TEST)}


def make_cub(root):
    base = root / "CUB_200_2011"
    write(base / "classes.txt", "1 001.Black_footed_Albatross\n2 002.Laysan_Albatross\n")
    names = [f"002.Laysan_Albatross/L_{k}.jpg" for k in range(2)] + ["001.Black/B_9.jpg"]
    write(base / "images.txt", "".join(f"{k} {name}\n" for k, name in enumerate(names, 1)))
    write(base / "image_class_labels.txt", "1 2\n2 2\n3 1\n")
    write(base / "train_test_split.txt", "1 0\n2 1\n3 1\n")
    for name in names:
        paint(base / "images" / name)
    return {
        f"images/{names[0]}": (["Laysan_Albatross"], TEST),
        f"images/{names[1]}": (["Laysan_Albatross"], TRAIN),
        f"images/{names[2]}": (["Black_footed_Albatross"], TRAIN),
    }


def make_dtd(root):
    base = root / "dtd"
    rows = {
        "train1": ["banded/banded_0002.jpg", "woven/woven_0001.jpg"],
        "val1": ["woven/woven_0002.jpg"],
        "test1": ["banded/banded_0004.jpg"],
    }
    for name, lines in rows.items():
        write(base / f"labels/{name}.txt", "\n".join(lines) + "\n")
        for line in lines:
            paint(base / "images" / line)
    return {
        "images/banded/banded_0002.jpg": (["banded"], TRAIN),
        "images/woven/woven_0001.jpg": (["woven"], TRAIN),
        "images/woven/woven_0002.jpg": (["woven"], CALIBRATION),
        "images/banded/banded_0004.jpg": (["banded"], TEST),
    }


def make_flowers(root):
    from scipy.io import savemat

    root.mkdir(parents=True)
    savemat(root / "imagelabels.mat", {"labels": np.array([[2, 1, 2, 1]], dtype=np.uint8)})
    sets = {"trnid": [[4, 1]], "valid": [[2]], "tstid": [[3]]}
    savemat(root / "setid.mat", {name: np.array(ids, np.uint16) for name, ids in sets.items()})
    for number in range(1, 5):
        paint(root / f"jpg/image_{number:05d}.jpg")
    return {
        "jpg/image_00004.jpg": (["001"], TRAIN),
        "jpg/image_00001.jpg": (["002"], TRAIN),
        "jpg/image_00002.jpg": (["001"], CALIBRATION),
        "jpg/image_00003.jpg": (["002"], TEST),
    }


def make_food101(root):
    base = root / "food-101"
    write(base / "meta/classes.txt", "apple_pie\nwaffles\n")
    write(base / "meta/train.txt", "waffles/12\napple_pie/34\n")
    write(base / "meta/test.txt", "waffles/56\n")
    for name in ("waffles/12", "apple_pie/34", "waffles/56"):
        paint(base / f"images/{name}.jpg")
    return {
        "images/waffles/12.jpg": (["waffles"], TRAIN),
        "images/apple_pie/34.jpg": (["apple_pie"], TRAIN),
        "images/waffles/56.jpg": (["waffles"], TEST),
    }


def make_pets(root):
    header = "#Image CLASS-ID SPECIES BREED ID\n"
    write(
        root / "annotations/trainval.txt", header + "yorkshire_terrier_2 10 2 9\nBombay_7 3 1 2\n"
    )
    write(root / "annotations/test.txt", "yorkshire_terrier_15 10 2 9\n")
    for name in ("yorkshire_terrier_2", "Bombay_7", "yorkshire_terrier_15"):
        paint(root / f"images/{name}.jpg")
    return {
        "images/yorkshire_terrier_2.jpg": (["yorkshire_terrier"], TRAIN),
        "images/Bombay_7.jpg": (["Bombay"], TRAIN),
        "images/yorkshire_terrier_15.jpg": (["yorkshire_terrier"], TEST),
    }


def make_sun397(root):
    write(root / "Partitions/ClassName.txt", "/a/abbey\n/a/apartment_building/outdoor\n")
    write(root / "Partitions/Training_01.txt", "/a/abbey/sun_a.jpg\n")
    write(root / "Partitions/Testing_01.txt", "/a/apartment_building/outdoor/sun_b.jpg\n")
    for name in ("a/abbey/sun_a.jpg", "a/apartment_building/outdoor/sun_b.jpg"):
        paint(root / "SUN397" / name)
    return {
        "a/abbey/sun_a.jpg": (["abbey"], TRAIN),
        "a/apartment_building/outdoor/sun_b.jpg": (["apartment_building/outdoor"], TEST),
    }


def make_vqa(root):
    """Nine questions each whose usual answers are "yes" and "2", written in several ways."""
    people = {"yes": ["Yes."] * 8 + ["no", "the yes"], "2": ["two"] * 2 + ["2"] + ["many"] * 7}
    expected = {}
    for part, first, count, code in (("train", 100, 16, TRAIN), ("val", 200, 2, TEST)):
        questions, annotations = [], []
        for number in range(first, first + count):
            usual = "yes" if number % 2 else "2"
            image = 10 + number % 3
            asked = {"image_id": image, "question": f"is it {number}?", "question_id": number}
            answers = [{"answer": each, "answer_id": n + 1} for n, each in enumerate(people[usual])]
            questions.append(asked)
            annotations.append(
                {
                    "question_id": number,
                    "image_id": image,
                    "question_type": "is it",
                    "answer_type": "yes/no" if usual == "yes" else "number",
                    "multiple_choice_answer": usual,
                    "answers": answers,
                }
            )
            expected[str(number)] = ([usual], code)
        about = {"info": {}, "license": {}, "data_type": "mscoco", "data_subtype": f"{part}2014"}
        name = f"{part}2014"
        write(
            root / f"v2_OpenEnded_mscoco_{name}_questions.json", {**about, "questions": questions}
        )
        write(root / f"v2_mscoco_{name}_annotations.json", {**about, "annotations": annotations})
    return expected


LAYOUTS = {
    "imagefolder": make_imagefolder,
    "coco": make_coco,
    "voc": make_voc,
    "voc lists": make_voc_lists,
    "wider": make_wider,
    "vispr": make_vispr,
    "nuswide": make_nuswide,
    "cifar10": make_cifar10,
    "cifar100": make_cifar100,
    "tinyimagenet": make_tinyimagenet,
    "plantnet": make_plantnet,
    "aircraft": make_aircraft,
    "caltech101": make_caltech101,
    "cars": make_cars,
    "cars in one file": make_cars_in_one_file,
    "cub": make_cub,
    "dtd": make_dtd,
    "flowers": make_flowers,
    "food101": make_food101,
    "pets": make_pets,
    "sun397": make_sun397,
    "vqa": make_vqa,
    "hf": make_hf,
    "hf parquet": make_hf_parquet,
}
