"""A run takes its features by name, whichever door they come through."""

from __future__ import annotations

import io
import re
import shutil
import warnings

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from starlette.testclient import TestClient

import credibly as cr
from credibly.app.server import create_app
from credibly.cli import main

FEATURES = ["age", "bmi", "blood pressure", "class", "sodium"]
LABELS = ["diabetes", "hypertension"]
ROWS = 12


def patients(rows: int = 160) -> pd.DataFrame:
    rng = np.random.default_rng(0)
    frame = pd.DataFrame(rng.normal(size=(rows, len(FEATURES))).round(3), columns=FEATURES)
    frame["diabetes"] = (frame["age"] + rng.normal(size=rows) > 0).astype(int)
    frame["hypertension"] = (frame["sodium"] - frame["bmi"] > 0.5).astype(int)
    return frame


@pytest.fixture(scope="module")
def world(tmp_path_factory):
    folder = tmp_path_factory.mktemp("names")
    data = cr.data.load(patients(), labels=LABELS)
    settings = cr.train.recipe(model="linear", epochs=3, calibrate="none")
    run = cr.train.fit(data, settings, folder=folder / "run")
    run.predict(data).write(folder / "all.parquet")
    cr.train.export(run, folder / "model.onnx")
    return folder


def by_command(write, ending):
    """Return the door of a kind of file: ``credibly predict``."""

    def door(world, frame, folder):
        write(frame, folder / f"new{ending}")
        command = ["predict", world / "run", folder / f"new{ending}", "--quiet"]
        if main([*map(str, command), "--out", str(folder / "p.parquet")]) != 0:
            raise cr.InputError("the command line has said why")
        return cr.Predictions.read(folder / "p.parquet").probabilities

    return door


def by_onnx(world, frame, folder):
    frame.to_parquet(folder / "new.parquet", index=False)
    command = ["predict", world / "model.onnx", folder / "new.parquet", "--quiet"]
    if main([*map(str, command), "--out", str(folder / "parts")]) != 0:
        raise cr.InputError("the command line has said why")
    return cr.Predictions.read(folder / "parts").probabilities


def served(world):
    app = create_app([world / "all.parquet"], run=world / "run", hosts=["testserver"])
    return TestClient(app)


def by_rest(world, frame, folder):
    rows = frame.select_dtypes("number").to_dict("records")
    answer = served(world).post("/api/predict", json={"features": rows})
    if answer.status_code != 200:
        raise cr.InputError(answer.json()["error"])
    return np.array(answer.json()["probabilities"])


def by_page(world, frame, folder):
    """The page shows one row, in percent with one decimal."""
    shown = []
    for row in range(2):
        file = io.BytesIO(frame.iloc[row : row + 1].to_csv(index=False).encode())
        page = served(world).post("/try", files={"file": ("new.csv", file)}).text
        found = re.findall(r"name=(\w+)[^>]*>\w+</a></th><td>([\d.]+) %</td>", page)
        if not found:
            raise cr.InputError(re.search(r'data-problem-of="file">([^<]+)<', page)[1])
        values = {label: float(value) / 100 for label, value in found}
        shown.append([values[label] for label in LABELS])
    return np.array(shown)


DOORS = {
    "csv": by_command(lambda frame, path: frame.to_csv(path, index=False), ".csv"),
    "tsv": by_command(lambda frame, path: frame.to_csv(path, index=False, sep="\t"), ".tsv"),
    "parquet": by_command(lambda frame, path: frame.to_parquet(path, index=False), ".parquet"),
    "jsonl": by_command(
        lambda frame, path: frame.to_json(path, orient="records", lines=True), ".jsonl"
    ),
    "onnx": by_onnx,
    "pandas": lambda world, frame, _: cr.load(world / "run").predict(frame).probabilities,
    "pyarrow": lambda world, frame, _: (
        cr.load(world / "run").predict(pa.Table.from_pandas(frame)).probabilities
    ),
    "rest": by_rest,
    "page": by_page,
}
each_door = pytest.mark.parametrize("door", DOORS)

SAME = {
    "as trained": lambda frame: frame,
    "reversed": lambda frame: frame[frame.columns[::-1]],
    "two swapped": lambda frame: frame[["bmi", "age", *frame.columns[2:]]],
    "with a note": lambda frame: frame.assign(zip_code=12345),
    "note first": lambda frame: frame.assign(zip_code=12345)[["zip_code", *frame.columns]],
}


@each_door
@pytest.mark.parametrize("change", SAME)
@pytest.mark.parametrize("with_labels", [False, True])
@pytest.mark.filterwarnings("ignore:.*'zip_code' left out")
def test_the_order_of_columns_changes_nothing(world, tmp_path, door, change, with_labels):
    frame = patients().iloc[:ROWS]
    expected = cr.load(world / "run").predict(frame[FEATURES].to_numpy()).probabilities
    given = frame if with_labels else frame[FEATURES]
    found = DOORS[door](world, SAME[change](given), tmp_path)
    exact = {"atol": 5.1e-4} if door == "page" else {"rtol": 1e-5}
    np.testing.assert_allclose(found, expected[: len(found)], **exact)


OTHER = {
    "replaced": (lambda f: f.rename(columns={"age": "zip_code"}), ["age"], ["zip_code"]),
    "renamed": (
        lambda f: f.rename(columns={"age": "years", "bmi": "BMI"}),
        ["age", "bmi"],
        ["years", "BMI"],
    ),
    "dropped": (lambda f: f.drop(columns=["class", "sodium"]), ["class", "sodium"], []),
}


@each_door
@pytest.mark.parametrize("change", OTHER)
def test_all_missing_and_all_other_columns_are_named(world, tmp_path, capsys, door, change):
    make, missing, extra = OTHER[change]
    frame = make(patients().iloc[:ROWS][FEATURES])
    with pytest.raises(cr.InputError, match=r"missing: |command line") as caught:
        DOORS[door](world, frame, tmp_path)
    said = (str(caught.value) + capsys.readouterr().err).replace("&#39;", "'")
    without, _, beside = said.partition("not known")
    assert all(f"'{name}'" in without for name in missing), said
    assert all(f"'{name}'" in beside for name in extra), said


SPEAKING = pytest.mark.parametrize("door", ["csv", "onnx", "pandas"])


def notes(door, world, frame, folder, capsys):
    """Return what is predicted, and what is said about it."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        found = DOORS[door](world, frame, folder)
    shown = [str(each.message) for each in caught] + capsys.readouterr().err.splitlines()
    return found, shown


@SPEAKING
def test_a_column_that_is_no_feature_is_left_out_and_said(world, tmp_path, capsys, door):
    frame = patients().iloc[:ROWS][FEATURES].assign(name="Ann", zip_code=1)
    _, shown = notes(door, world, frame, tmp_path, capsys)
    assert len(shown) == 1
    assert "columns 'name', 'zip_code' left out: not a feature of the model" in shown[0]


def test_the_rest_answer_lists_what_it_left_out(world):
    row = {**dict.fromkeys(FEATURES, 0.5), "zip_code": 1.0}
    answer = served(world).post("/api/predict", json={"features": row}).json()
    assert answer["ignored"] == ["zip_code"]
    listed = served(world).post("/api/predict", json={"features": [[0.5] * 5]}).json()
    assert "ignored" not in listed
    np.testing.assert_allclose(answer["probabilities"], listed["probabilities"], rtol=1e-6)


def test_a_rest_row_that_lacks_a_feature_is_named(world):
    whole = dict.fromkeys(FEATURES, 0.5)
    rows = [whole, {name: 1.0 for name in FEATURES if name != "bmi"}]
    answer = served(world).post("/api/predict", json={"features": rows})
    assert answer.status_code == 400
    assert re.search(r"row 1 .*missing: 'bmi'", answer.json()["error"])


def nameless(world, folder):
    """Return a copy of the run as version 0.2 wrote it: without the names of its features."""
    shutil.copytree(world / "run", folder / "run")
    (folder / "run" / "manifest.json").unlink()  # version 0.2 wrote none
    config = folder / "run" / "config.toml"
    lines = config.read_text(encoding="utf-8").splitlines(keepends=True)
    config.write_text("".join(x for x in lines if not x.startswith("feature_names")), "utf-8")
    return folder


@SPEAKING
def test_a_model_without_names_goes_by_position_and_says_so(world, tmp_path, capsys, door):
    folder = nameless(world, tmp_path)
    run = cr.load(folder / "run")
    cr.train.export(run, folder / "model.onnx")
    frame = patients().iloc[:ROWS][FEATURES]
    expected = cr.load(world / "run").predict(frame).probabilities
    renamed = frame.rename(columns={"class": "x", "age": "y"})
    found, shown = notes(door, folder, renamed, tmp_path, capsys)
    assert len(shown) == 1
    assert re.search("does not store the names of its features.* are matched by position", shown[0])
    np.testing.assert_allclose(found, expected, rtol=1e-5)
    by_array = run.predict(frame.to_numpy())  # has no names: nothing to say
    np.testing.assert_allclose(by_array.probabilities, expected, rtol=1e-5)


def test_objects_are_refused_by_a_run_without_names(world, tmp_path):
    folder = nameless(world, tmp_path)
    app = create_app([world / "all.parquet"], run=folder / "run", hosts=["testserver"])
    answer = TestClient(app).post("/api/predict", json={"features": [dict.fromkeys("abcde", 1.0)]})
    assert answer.status_code == 400
    assert "does not store the names of its features" in answer.json()["error"]


@pytest.mark.parametrize(
    "make",
    [
        lambda x, y: cr.data.from_arrays(features=x, targets=y, labels=LABELS),
        lambda x, y: cr.data.Data(LABELS, y.to_numpy(), features=x, split=np.arange(len(y)) % 3),
    ],
    ids=["from_arrays", "Data"],
)
def test_a_frame_of_features_keeps_its_names(make, tmp_path):
    frame = patients()
    data = make(frame[FEATURES], frame[LABELS])
    settings = cr.train.recipe(model="linear", epochs=1, calibrate="none")
    run = cr.train.fit(data, settings, folder=tmp_path / "run")
    turned = run.predict(frame[FEATURES[::-1]]).probabilities
    np.testing.assert_array_equal(turned, run.predict(frame[FEATURES]).probabilities)


def test_an_arff_file_gives_its_names(tmp_path):
    def write(path, order):
        head = "".join(f"@attribute {name} numeric\n" for name in order)
        rng = np.random.default_rng(0)
        cells = {name: rng.random(40) for name in ("u", "v")}
        cells["wet"] = (cells["u"] > 0.5).astype(int)
        rows = "\n".join(",".join(str(cells[n][i]) for n in order) for i in range(40))
        path.write_text(f"@relation r\n{head}@data\n{rows}\n")
        return cr.data.load(path, labels=["wet"])

    settings = cr.train.recipe(model="linear", epochs=1, calibrate="none")
    data = write(tmp_path / "a.arff", ["u", "v", "wet"])
    run = cr.train.fit(data, settings, folder=tmp_path / "run")
    turned = run.predict(write(tmp_path / "b.arff", ["v", "wet", "u"]))
    np.testing.assert_array_equal(turned.probabilities, run.predict(data).probabilities)


def test_frames_with_numbered_columns_go_by_position(world):
    run, frame = cr.load(world / "run"), patients().iloc[:ROWS][FEATURES]
    numbered = pd.DataFrame(frame.to_numpy())
    expected = run.predict(frame).probabilities
    np.testing.assert_allclose(run.predict(numbered).probabilities, expected, rtol=1e-6)


def test_the_estimator_has_the_names_of_scikit_learn():
    frame = patients()
    classifier = cr.CredibleClassifier(model="linear").fit(frame[FEATURES], frame[LABELS])
    assert list(classifier.feature_names_in_) == FEATURES
    with pytest.raises(ValueError, match="feature names should match"):
        classifier.predict_proba(frame[FEATURES[::-1]])


def test_the_onnx_file_names_its_features(world):
    import json

    import onnx

    about = {item.key: item.value for item in onnx.load(world / "model.onnx").metadata_props}
    assert json.loads(about["credibly"])["feature_names"] == FEATURES


def test_a_configuration_with_other_names_than_features_is_refused(world, tmp_path):
    shutil.copytree(world / "run", tmp_path / "run")
    (tmp_path / "run" / "manifest.json").unlink()  # which would name the file first
    config = tmp_path / "run" / "config.toml"
    text = config.read_text(encoding="utf-8")
    config.write_text(text.replace('["age", "bmi", ', '["age", '), encoding="utf-8")
    with pytest.raises(cr.InputError, match="`feature_names` must be 5 different names"):
        cr.load(tmp_path / "run")


def test_a_file_is_predicted_by_its_path(world, tmp_path):
    frame = patients().iloc[:ROWS][FEATURES]
    frame.iloc[:, ::-1].to_csv(tmp_path / "new.csv", index=False)
    run = cr.load(world / "run")
    found = run.predict(tmp_path / "new.csv").probabilities
    np.testing.assert_array_equal(found, run.predict(frame).probabilities)
