"""CSV, Parquet, ARFF and npz: the layouts people have; errors name file, row and column."""

import os
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq
import pytest
from PIL import Image

import credibly as cr

TRAIN, TEST, CALIBRATION = 0, 1, 2  # what `split` says of a row


def load(path, **options):
    return cr.data.load(path, calibration=0, test=options.pop("test", 0.0), **options)


def csv(folder, text, name="rows.csv"):
    for image in ("a", "b", "c"):
        Image.new("L", (6, 5), ord(image)).save(folder / f"{image}.png")
    (folder / name).write_text(text, encoding="utf-8")
    return folder / name


# Each of these says the same: a has cat and dog, b has nothing, of c the cat is unknown. --------
SAME = {
    "a column per label": "image,cat,dog\na.png,1,1\nb.png,0,0\nc.png,,0\n",
    "semicolons": "image;cat;dog\na.png;1;1\nb.png;0;0\nc.png;?;0\n",
    "tabs": "file\tcat\tdog\na.png\t1\t1\nb.png\t0\t0\nc.png\t-1\t0\n",
    "byte order mark": "\ufeffimage,cat,dog\na.png,1,1\nb.png,0,0\nc.png,-1,0\n",
    "image column by content": "what,cat,dog\na.png,1,1\nb.png,0,0\nc.png,-1,0\n",
    "marked columns": "image,y:cat,y:dog,width\na.png,1,1,9\nb.png,0,0,9\nc.png,,0,9\n",
    "quoted": '"image","cat","dog"\n"a.png","1","1"\n"b.png","0","0"\n"c.png","","0"\n',
}


@pytest.mark.parametrize("text", SAME.values(), ids=SAME.keys())
def test_csv_layouts_that_say_the_same_give_the_same(text, tmp_path):
    data = load(csv(tmp_path, text))
    assert data.labels == ["cat", "dog"]
    assert data.targets.tolist() == [[1, 1], [0, 0], [-1, 0]]
    assert data.ids.tolist() == ["a.png", "b.png", "c.png"]
    assert data.image(1)[0, 0].tolist() == [98, 98, 98]


LISTS = {
    "bars": ("image,labels\na.png,dog|cat\nb.png,\nc.png,dog\n", {}),
    "semicolons": ("image,tags\na.png,dog;cat\nb.png,\nc.png,dog\n", {}),
    "commas": ('image,labels\na.png,"dog, cat"\nb.png,\nc.png,dog\n', {}),
    "spaces": ("image,labels\na.png,dog cat\nb.png,\nc.png,dog\n", {"separator": " "}),
    "named column": ("image,what\na.png,dog|cat\nb.png,\nc.png,dog\n", {"label_column": "what"}),
}


@pytest.mark.parametrize(("text", "options"), LISTS.values(), ids=LISTS.keys())
def test_joined_label_names_are_split(text, options, tmp_path):
    data = load(csv(tmp_path, text), **options)
    assert data.labels == ["cat", "dog"]
    assert data.targets.tolist() == [[1, 1], [0, 0], [0, 1]]


def test_feature_columns_ids_and_parts(tmp_path):
    text = "id,x,y:wet,z,split\nr1,1.5,1,2,train\nr2,-2,0,3e1,val\nr3,0,,1,test\n"
    data = cr.data.load(csv(tmp_path, text))
    assert data.features.tolist() == [[1.5, 2], [-2, 30], [0, 1]]
    assert (data.labels, data.ids.tolist()) == (["wet"], ["r1", "r2", "r3"])
    assert data.split.tolist() == [TRAIN, CALIBRATION, TEST]


def test_labels_can_be_named_and_columns_ignored(tmp_path):
    text = "x,wet,note,cold\n1,1,hello,0\n2,0,you,1\n3,1,there,1\n"
    data = load(csv(tmp_path, text), labels=["cold", "wet"], ignore=["note"])
    assert data.targets.tolist() == [[0, 1], [1, 0], [1, 1]]
    assert data.features.tolist() == [[1], [2], [3]]


def test_rows_to_predict_need_no_targets(tmp_path):
    rows = csv(tmp_path, "x,cold,wet\n" + "1,0,1\n2,1,0\n3,1,1\n" * 20)
    run = cr.train.fit(load(rows, labels=["cold", "wet"]), cr.train.Linear(l2=1.0))
    found = run.predict(csv(tmp_path, "x\n1\n2\n3\n"))
    assert found.targets is None
    assert found.probabilities.shape == (3, 2)


BAD_CSV = {
    "no label column": ("x,z\n1,2\n", {}, "say which columns are labels"),
    "text in features": (
        "x,y:a\n1,1\ntwo,0\n",
        {},
        "row 3, column 'x' must be a number; got 'two'",
    ),
    "list as label": (
        "x,tags\n1,\n2,cat\n",
        {"labels": ["tags"]},
        r"column 'tags' holds text, the first 'cat'.*pass `label_column=\"tags\"`",
    ),
    "infinite feature": ("x,y:a\n1,1\ninf,0\n", {}, "infinite; 1 are, the first in row 1"),
    "target": ("image,a\na.png,1\nb.png,7\n", {}, "row 3, column 'a' must be 0, 1, .*got 7"),
    "split": ("x,y:a,split\n1,1,train\n2,1,holdout\n", {}, "row 3, column 'split' must be train"),
    "escape": ("image,a\na.png,1\n../b.png,1\n", {}, r"row 1: an image must be a path inside"),
    "absolute": ("image,a\n/etc/passwd.png,1\n", {}, "an image must be a path inside"),
    "missing": ("image,a\na.png,1\nz.png,1\n", {}, "1 of 2 images are missing: z.png"),
    "ragged": ("x,y:a\n1,1,5\n", {}, "must be a CSV file with a header"),
    "empty": ("", {}, "must start with a header line"),
    "twice": ("x,x,y:a\n1,2,1\n", {}, "'x' appears twice"),
    "option": (
        "x,y:a\n1,1\n",
        {"lables": ["a"]},
        "no option 'lables'; it has .* Did you mean 'labels'",
    ),
    "column": ("x,wet\n1,1\n", {"labels": ["wet", "cold"]}, "no column for label 'cold'"),
    "test label": (
        "x,labels,split\n1,cat,train\n2,dog,train\n3,catt,test\n",
        {},
        "row 4: label 'catt' is not among the 2 known ones. Did you mean 'cat'",
    ),
}


@pytest.mark.parametrize(("text", "options", "match"), BAD_CSV.values(), ids=BAD_CSV.keys())
def test_bad_csv_is_refused_with_file_row_and_column(text, options, match, tmp_path):
    path = csv(tmp_path, text)
    with pytest.raises(cr.InputError, match=match) as caught:
        cr.data.load(path, **options)
    assert "rows.csv" in str(caught.value) or "csv has no option" in str(caught.value)


def test_parquet_holds_lists_and_image_bytes(tmp_path):
    png = csv(tmp_path, "").with_name("a.png").read_bytes()
    table = pa.table(
        {
            "id": ["r1", "r2"],
            "features": pa.array([[1.0, 2.0], [3.0, 4.0]]),
            "labels": pa.array([["cat", "dog"], []]),
        }
    )
    pq.write_table(table, tmp_path / "x.parquet")
    data = load(tmp_path / "x.parquet")
    assert data.features.tolist() == [[1, 2], [3, 4]]
    assert data.targets.tolist() == [[1, 1], [0, 0]]
    pq.write_table(pa.table({"image": [png, png], "cat": [1, 0]}), tmp_path / "i.parquet")
    data = load(tmp_path / "i.parquet")
    assert data.image(1)[2, 2].tolist() == [97, 97, 97]
    assert data.take(np.array([1])).image(0).shape == (5, 6, 3)


def test_parquet_that_is_none_is_named(tmp_path):
    (tmp_path / "x.parquet").write_bytes(b"nothing")
    with pytest.raises(cr.InputError, match=r"x\.parquet must be complete Parquet"):
        load(tmp_path / "x.parquet")


# npz ------------------------------------------------------------------------------------------


def test_npz_takes_classes_images_and_soft_targets(tmp_path):
    np.savez(tmp_path / "c.npz", features=np.ones((3, 2)), targets=np.array([2, 0, -1]))
    data = load(tmp_path / "c.npz")
    assert data.targets.tolist() == [[0, 0, 1], [1, 0, 0], [-1, -1, -1]]
    assert data.labels == ["label-0", "label-1", "label-2"]
    soft = np.array([[0.3, 1.0], [0.0, -1.0]])
    images = np.zeros((2, 4, 5), dtype=np.uint8)
    np.savez(tmp_path / "i.npz", images=images, targets=soft, labels=["a", "b"], ids=[7, 8])
    data = load(tmp_path / "i.npz")
    assert data.targets == pytest.approx(soft)
    assert (data.images.shape, data.ids.tolist()) == ((2, 4, 5, 1), ["7", "8"])


def test_npz_labels_come_in_the_order_asked_for(tmp_path):
    np.savez(
        tmp_path / "x.npz",
        features=np.ones((2, 2)),
        targets=np.array([[1, 0], [0, -1]]),
        labels=["a", "b"],
        truth=np.array([[0.9, 0.1], [0.2, 0.3]]),
    )
    data = load(tmp_path / "x.npz", labels=["b", "a"])
    assert data.targets.tolist() == [[0, 1], [-1, 0]]
    assert data.truth[0] == pytest.approx([0.1, 0.9])


def test_npz_without_targets_is_read_for_prediction(tmp_path):
    np.savez(tmp_path / "x.npz", features=np.ones((3, 2)), labels=["a", "b"])
    data = load(tmp_path / "x.npz")
    assert data.labels == ["a", "b"]
    assert data.targets.tolist() == [[-1, -1]] * 3


BAD_NPZ = {
    "no inputs": ({"targets": np.ones((2, 1))}, "must hold `features` or `images`"),
    "no targets": ({"features": np.ones((2, 1))}, "must hold `targets`"),
    "key": ({"feature": np.ones((2, 1))}, "unknown array 'feature'. Did you mean 'features'"),
    "class": ({"features": np.ones((2, 1)), "targets": [0, 5], "labels": ["a"]}, "got 5 in row 1"),
    "pickle": ({"features": np.array([[None]], dtype=object)}, "plain arrays"),
}


@pytest.mark.parametrize(("arrays", "match"), BAD_NPZ.values(), ids=BAD_NPZ.keys())
def test_bad_npz_is_refused(arrays, match, tmp_path):
    np.savez(tmp_path / "x.npz", **arrays)
    with pytest.raises(cr.InputError, match=match):
        load(tmp_path / "x.npz")


def test_a_file_cut_short_is_named(tmp_path):
    np.savez(tmp_path / "x.npz", features=np.ones((50, 9)), targets=np.ones((50, 1)))
    whole = (tmp_path / "x.npz").read_bytes()
    for length in (0, 10, len(whole) // 2):
        (tmp_path / "x.npz").write_bytes(whole[:length])
        with pytest.raises(cr.InputError, match=r"x\.npz must be a complete \.npz file"):
            load(tmp_path / "x.npz")


MEASURED = Path(os.environ.get("CREDIBLY_DATA", Path(__file__).parents[3] / "shared" / "data"))


@pytest.mark.parametrize(
    ("name", "rows", "labels", "tests"),
    [("emotions", 593, 6, 202), ("voc2012", 11540, 20, 5823), ("cifar10h", 30000, 10, 10000)],
)
def test_evaluation_sets_keep_their_published_split(name, rows, labels, tests):
    file = MEASURED / f"{name}.npz"
    if not file.exists():
        pytest.skip(f"{file} is not here; set CREDIBLY_DATA to the folder of evaluation sets")
    data = cr.data.load(file)
    assert (len(data), data.num_labels, len(data.part("test"))) == (rows, labels, tests)
    assert len(data.part("calibration")) == pytest.approx(0.2 * (rows - tests), rel=0.02)
    known = data.targets >= 0
    rates = [
        np.where(known, data.targets, 0)[data.split == part].sum(axis=0)
        / known[data.split == part].sum(axis=0)
        for part in (TRAIN, CALIBRATION)
    ]
    counts = np.bincount(data.split, minlength=3)
    chance = np.sqrt(rates[0] * (1 - rates[0]) * (1 / counts[TRAIN] + 1 / counts[CALIBRATION]))
    # Rows drawn at random would differ by 0.8 standard errors on average.
    assert (abs(rates[0] - rates[1]) / chance).mean() < 0.5


# ARFF -----------------------------------------------------------------------------------------

HEADER = """% a comment
@relation 'scenes'
@attribute Att1 numeric
@attribute 'with space' REAL
@attribute colour {red, green,'deep blue'}
@attribute beach {0,1}
@attribute "it's sunset" {0,1}

@data
"""
DENSE = HEADER + "0.5,1e3,red,1,0\n% between\n-2,0,'deep blue',0,?\n"
SPARSE = HEADER + "{0 0.5, 1 1000, 3 1}\n{0 -2,2 'deep blue', 4 ?}\n"
XML = """<?xml version="1.0" encoding="utf-8"?>
<labels xmlns="http://mulan.sourceforge.net/labels">
<label name="it's sunset"></label><label name="beach"/>
</labels>"""


@pytest.mark.parametrize("text", [DENSE, SPARSE], ids=["dense", "sparse"])
def test_arff_gives_features_and_the_labels_of_its_xml(text, tmp_path):
    (tmp_path / "scene.arff").write_text(text)
    (tmp_path / "scene.xml").write_text(XML)
    data = load(tmp_path / "scene.arff")
    assert data.labels == ["it's sunset", "beach"]
    assert data.targets.tolist() == [[0, 1], [-1, 0]]
    assert data.features.tolist() == [[0.5, 1000, 1, 0, 0], [-2, 0, 0, 0, 1]]


@pytest.mark.parametrize("named", ["Swainson's Thrush", "Swainson\\'s Thrush"])
def test_arff_names_with_escaped_quotes_are_those_of_the_xml(named, tmp_path):
    """As in Mulan's birds; Weka writes the backslash into some XML files too."""
    header = "@relation birds\n@attribute x numeric\n@attribute 'Swainson\\'s Thrush' {0,1}\n"
    (tmp_path / "birds.arff").write_text(f"{header}@data\n0.5,1\n0.25,0\n")
    (tmp_path / "birds.xml").write_text(f'<labels><label name="{named}"/></labels>')
    data = load(tmp_path / "birds.arff")
    assert data.labels == ["Swainson's Thrush"]
    assert data.targets[:, 0].tolist() == [1, 0]


def test_arff_published_split_is_read_together(tmp_path):
    (tmp_path / "scene-train.arff").write_text(DENSE)
    (tmp_path / "scene-test.arff").write_text(SPARSE)
    (tmp_path / "scene.xml").write_text(XML)
    data = cr.data.load(tmp_path / "scene-train.arff", calibration=0)
    assert data.split.tolist() == [TRAIN, TRAIN, TEST, TEST]


def test_arff_label_count_in_the_relation(tmp_path):
    text = "@relation 'music: -C 2'\n@attribute a {0,1}\n@attribute b {0,1}\n@attribute x real\n"
    (tmp_path / "m.arff").write_text(text + "@data\n1,0,5\n")
    assert load(tmp_path / "m.arff").labels == ["a", "b"]
    (tmp_path / "m.arff").write_text(text.replace("-C 2", "-C -1") + "@data\n1,0,1\n")
    assert load(tmp_path / "m.arff").labels == ["x"]


BAD_ARFF = {
    "value": (
        DENSE.replace("1e3", "many"),
        XML,
        "line 10: with space must be a number; got 'many'",
    ),
    "nominal value": (DENSE.replace("red,1,0\n%", "pink,1,0\n%"), XML, "colour must be one of red"),
    "count": (DENSE.replace(",1,0\n", ",1\n"), XML, "line 10 must have 5 values; got 4"),
    "index": (
        SPARSE.replace("3 1", "9 1"),
        XML,
        "'9 1' must be `index value` with an index below 5",
    ),
    "string": (DENSE.replace("REAL", "string"), XML, "Turn text into numbers first"),
    "infinite": (DENSE.replace("0.5", "inf"), XML, "features must not be infinite"),
    "no data": (HEADER.replace("@data", ""), XML, "must have @attribute lines and @data"),
    "header": ("hello\n", XML, "line 1 must be an ARFF header"),
    "label": (DENSE, XML.replace("beach", "beech"), "no attribute 'beech'"),
    "no labels": (DENSE, None, "does not say which attributes are labels"),
    "not xml": (DENSE, "<labels>", "must be XML"),
    "entities": (
        DENSE,
        '<!DOCTYPE x [<!ENTITY a "aaaa"><!ENTITY b "&a;&a;">]><labels><label name="&b;"/></labels>',
        "must not declare a document type",
    ),
    "outside": (
        DENSE,
        '<!DOCTYPE x SYSTEM "file:///etc/passwd"><labels/>',
        "must not declare a document type",
    ),
    "deep": (DENSE, "<a>" * 200 + "</a>" * 200, "must nest at most 100 deep"),
}


@pytest.mark.parametrize(("text", "xml", "match"), BAD_ARFF.values(), ids=BAD_ARFF.keys())
def test_bad_arff_is_refused_with_its_line(text, xml, match, tmp_path):
    (tmp_path / "scene.arff").write_text(text)
    if xml is not None:
        (tmp_path / "scene.xml").write_text(xml)
    with pytest.raises(cr.InputError, match=match):
        load(tmp_path / "scene.arff")


def test_no_thread_holds_a_csv_file_after_it_is_read(tmp_path, monkeypatch):
    """A thread of pyarrow that gives up Python's bytes while Python ends aborts the process."""
    read, options = pyarrow.csv.read_csv, []

    def recorded(source, **given):
        options.append(given["read_options"])
        return read(source, **given)

    monkeypatch.setattr(pyarrow.csv, "read_csv", recorded)
    load(csv(tmp_path, SAME["a column per label"]))
    assert [each.use_threads for each in options] == [False]
