"""A table of numbers, categories, dates, yes/no, ids and gaps: every door prepares it alike."""

from __future__ import annotations

import json
import shutil
import warnings

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from PIL import Image
from starlette.testclient import TestClient

import credibly as cr
from credibly.app.server import create_app
from credibly.cli import main

LABELS = ["diabetes", "hypertension"]
ROWS = 300
NEW = 12
RNG = np.random.default_rng(0)
RISK = RNG.normal(size=ROWS)


def holes(values):
    return [
        None if gap else value for gap, value in zip(RNG.random(ROWS) < 0.2, values, strict=True)
    ]


DAYS = pd.to_datetime("2023-01-01") + pd.to_timedelta(np.arange(ROWS) * 31, unit="h")
COLOURS = np.where(RISK > 0.5, "red", np.where(RISK < -0.5, "blue", "green, dark"))
COLUMNS = {
    "numbers": {"age": (50 + 10 * RISK).round(1)},
    "numbers with gaps": {"bmi": pd.Series(holes((25 + RISK).round(2)), dtype=float)},
    "categories": {"colour": COLOURS},
    "categories with gaps": {"town": holes(COLOURS)},
    "yes and no": {"smoker": np.where(RISK > 0, "yes", "no")},
    "true and false": {"fever": RISK > 0},
    "ISO dates": {"seen": DAYS.strftime("%Y-%m-%d")},
    "instants": {"born": DAYS},
    "instants with gaps": {"left": pd.Series(holes(DAYS))},
    "days before months": {"paid": DAYS.strftime("%d/%m/%Y")},
    "ids": {"patient_id": [f"P{number:05d}" for number in range(ROWS)]},
    "numbered ids": {"PatientId": np.arange(ROWS) + 1000},
    "texts": {"note": [f"came in on day {d} with {c} spots" for d, c in enumerate(COLOURS)]},
    "texts with gaps": {"seen_as": holes([f"day {d}: {c} spots" for d, c in enumerate(COLOURS)])},
    "nothing": {"spare": [None] * ROWS},
}
EVERYTHING = {name: cells for columns in COLUMNS.values() for name, cells in columns.items()}
TABLES = {
    name: {"age": COLUMNS["numbers"]["age"], **columns} for name, columns in COLUMNS.items()
} | {"everything": EVERYTHING}
LEFT_OUT = "ignore:.* (left out|per frequent word)"


def frame(table):
    made = pd.DataFrame(TABLES[table])
    return made.assign(
        diabetes=(RISK > 0).astype(int), hypertension=np.where(RISK > 1, "yes", "no")
    )


def train(rows, folder):
    settings = cr.train.Network(model="linear", epochs=3, calibrate="none")
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", ".* (left out|per frequent word)")
        data = cr.data.load(rows, labels=LABELS)
        return data, cr.train.fit(data, settings, folder=folder)


@pytest.fixture(scope="module", params=TABLES)
def world(request, tmp_path_factory):
    folder = tmp_path_factory.mktemp("mixed")
    rows = frame(request.param)
    data, run = train(rows, folder / "run")
    run.predict(data).write(folder / "all.parquet")
    cr.train.export(run, folder / "model.onnx")
    return folder, rows


def by_command(write, ending, model="run"):
    def door(folder, rows, scratch):
        write(rows, scratch / f"new{ending}")
        command = [
            "predict",
            folder / model,
            scratch / f"new{ending}",
            "--quiet",
            "--out",
            scratch / "out",
        ]
        assert main([*map(str, command)]) == 0
        return cr.Predictions.read(scratch / "out").probabilities

    return door


def by_rest(folder, rows, scratch):
    app = create_app([folder / "all.parquet"], run=folder / "run", hosts=["testserver"])
    records = json.loads(rows.to_json(orient="records", date_format="iso"))
    answer = TestClient(app).post("/api/predict", json={"features": records})
    assert answer.status_code == 200, answer.json()
    return np.array(answer.json()["probabilities"])


DOORS = {
    "csv": by_command(lambda rows, path: rows.to_csv(path, index=False), ".csv"),
    "csv.gz": by_command(lambda rows, path: rows.to_csv(path, index=False), ".csv.gz"),
    "semicolons": by_command(lambda rows, path: rows.to_csv(path, index=False, sep=";"), ".csv"),
    "parquet": by_command(lambda rows, path: rows.to_parquet(path, index=False), ".parquet"),
    "jsonl": by_command(
        lambda rows, path: rows.to_json(path, orient="records", lines=True, date_format="iso"),
        ".jsonl",
    ),
    "onnx": by_command(
        lambda rows, path: rows.to_parquet(path, index=False), ".parquet", "model.onnx"
    ),
    "pandas": lambda folder, rows, _: cr.load(folder / "run").predict(rows).probabilities,
    "pyarrow": lambda folder, rows, _: (
        cr.load(folder / "run").predict(pa.Table.from_pandas(rows)).probabilities
    ),
    "rest": by_rest,
}


@pytest.mark.parametrize("door", DOORS)
@pytest.mark.filterwarnings(LEFT_OUT)
def test_a_row_gets_one_probability_by_every_door(world, door, tmp_path):
    folder, rows = world
    run = cr.load(folder / "run")
    expected = run.predict(cr.data.load(rows, labels=LABELS)).probabilities[:NEW]
    assert np.ptp(expected) > 0.01
    new = rows.iloc[:NEW]
    given = new if door != "rest" else new.drop(columns=LABELS)
    for order in (given.columns, given.columns[::-1]):
        found = DOORS[door](folder, given[order], tmp_path)
        np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-6)
        shutil.rmtree(tmp_path)
        tmp_path.mkdir()


@pytest.mark.filterwarnings(LEFT_OUT)
def test_a_frame_of_features_beside_an_array_of_targets_is_prepared_alike():
    rows = frame("everything").drop(columns=LABELS)
    targets = np.stack([RISK > 0, RISK > 1], axis=1).astype(float)
    loaded = cr.data.load(frame("everything"), labels=LABELS)
    data = cr.data.from_arrays(features=rows, targets=targets, labels=LABELS)
    assert data.feature_names == loaded.feature_names
    np.testing.assert_array_equal(data.features, loaded.features)


@pytest.mark.filterwarnings(LEFT_OUT)
def test_training_by_the_command_line_gives_the_same_run(tmp_path, capsys):
    rows = frame("everything")
    data, run = train(rows, tmp_path / "a")
    rows.to_csv(tmp_path / "rows.csv.gz", index=False)
    options = {"model": "linear", "epochs": 3, "calibrate": "none"}
    options |= {"labels": ",".join(LABELS), "out": tmp_path / "b"}
    given = [f"--{name}={value}" for name, value in options.items()]
    with warnings.catch_warnings():
        warnings.simplefilter("always")
        assert main(["train", str(tmp_path / "rows.csv.gz"), *given]) == 0
    printed = capsys.readouterr()
    assert "To use a column as ids, pass --id-column patient_id." in printed.err
    assert "To train on the text only, pass --text note." in printed.err
    said = " ".join(printed.out.split())
    assert "2 labels" in said
    assert "Data(" not in said
    assert (
        "rows.csv.gz: 2 numeric, 2 yes/no, 2 categorical (one-hot, 6 features), 4 date (4 parts), "
        "2 text (8 words), 2 id ignored (patient_id, PatientId), 1 empty ignored (spare); "
        "missing cells in bmi, town, left, seen_as"
    ) in said
    other = cr.load(tmp_path / "b")
    assert other.data["feature_names"] == data.feature_names
    np.testing.assert_allclose(
        other.predict(rows).probabilities, run.predict(rows).probabilities, atol=1e-5
    )


@pytest.mark.filterwarnings(LEFT_OUT)
def test_new_categories_and_gaps_are_zeros_and_counted(tmp_path):
    rows = frame("categories")
    run = train(rows, tmp_path / "run")[1]
    run.predict(rows).write(tmp_path / "all.parquet")
    new = rows.drop(columns=LABELS).iloc[:4].assign(colour=["red", "teal", None, "pink"])
    with pytest.warns(UserWarning, match=r"the training rows did not have.*'colour' \(2\)"):
        found = run.predict(new).probabilities
    with pytest.warns(UserWarning, match="the training rows did not have"):
        features = run.read(new).features
    assert features[1:, 1:].tolist() == [[0, 0, 0]] * 3
    gap = run.predict(new.assign(colour=[None] * 4)).probabilities
    np.testing.assert_allclose(found[1:], gap[1:], rtol=1e-5)
    app = create_app([tmp_path / "all.parquet"], run=tmp_path / "run", hosts=["testserver"])
    records = json.loads(new.to_json(orient="records"))
    answer = TestClient(app).post("/api/predict", json={"features": records}).json()
    assert answer["unseen"] == {"colour": 2}
    np.testing.assert_allclose(answer["probabilities"], found, rtol=1e-4)


def test_the_run_reads_new_rows_with_the_options_of_its_training(tmp_path):
    images = tmp_path / "pictures"
    images.mkdir()
    for row in range(40):
        Image.new("L", (8, 8), 200 * (row % 2)).save(images / f"no {row}.png")
    labels = ["light big" if row % 2 else "dark" for row in range(40)]
    rows = pd.DataFrame({"what": [f"no {row}" for row in range(40)], "is": labels})
    rows.to_csv(tmp_path / "train.csv", index=False)
    read = {"images": images, "suffix": ".png", "separator": " ", "image-column": "what"}
    read |= {"label-column": "is", "test": 0.5}
    options = {"model": "linear", "epochs": 2, "out": tmp_path / "run", "image-size": 8}
    given = [f"--{name}={value}" for name, value in (options | read).items()]
    assert main(["train", str(tmp_path / "train.csv"), *given, "--quiet"]) == 0
    resumed = ["train", str(tmp_path / "train.csv"), "--out", str(tmp_path / "run"), "--resume"]
    assert main([*resumed, "--quiet"]) == 0
    rows[["what"]].to_csv(tmp_path / "new.csv", index=False)
    command = ["predict", str(tmp_path / "run"), str(tmp_path / "new.csv"), "--quiet"]
    for name in ("wide", "lists"):
        assert main([*command, "--format", name, "--out", str(tmp_path / f"{name}.csv")]) == 0
    wide, lists = (pd.read_csv(tmp_path / f"{name}.csv") for name in ("wide", "lists"))
    assert wide.columns.tolist() == ["what", "big", "dark", "light"]
    assert lists.columns.tolist() == ["what", "is"]
    assert wide["what"].tolist() == lists["what"].tolist() == rows["what"].tolist()
    for row, names in enumerate(lists["is"].fillna("").str.split()):
        assert set(names) == {name for name in wide.columns[1:] if wide[name][row] > 0.5}
    assert (
        main(
            [
                *command[:2],
                str(tmp_path / "train.csv"),
                "--part",
                "test",
                "--quiet",
                "--out",
                str(tmp_path / "test.parquet"),
            ]
        )
        == 0
    )
    written = cr.Predictions.read(tmp_path / "run" / "predictions.parquet")
    again = cr.Predictions.read(tmp_path / "test.parquet")
    assert again.ids.tolist() == written.ids.tolist()
    assert len(again) == 20


def test_a_changed_preparation_is_refused(tmp_path):
    train(frame("categories"), tmp_path / "run")
    config = tmp_path / "run" / "config.toml"
    (tmp_path / "run" / "manifest.json").unlink()
    text = config.read_text("utf-8")
    for old, new in (('"categorical"', '"colour"'), ('"values" = [', '"values" = [3, ')):
        assert old in text
        config.write_text(text.replace(old, new, 1), "utf-8")
        with pytest.raises(cr.InputError, match=r"config\.toml: `preparation` must be a list of"):
            cr.load(tmp_path / "run")


@pytest.mark.parametrize("model", ["linear", "forest", "boosting", "mlp"])
@pytest.mark.filterwarnings(LEFT_OUT)
def test_every_model_takes_gaps_and_learns_from_categories(model, tmp_path):
    rows = frame("everything").drop(columns=["age", "bmi", "smoker", "fever"])
    data = cr.data.load(rows, labels=LABELS)
    run = cr.train.fit(data, model, folder=tmp_path / "run")
    found = run.predict(rows).probabilities[:, 0]
    assert np.isfinite(found).all()
    assert found[COLOURS == "red"].mean() > found[COLOURS == "blue"].mean() + 0.3
    assert run.predict(rows.assign(town=None, left=pd.NaT)).probabilities.shape == (ROWS, 2)
