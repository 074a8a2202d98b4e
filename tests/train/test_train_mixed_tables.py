"""A table of numbers, categories, dates, yes/no, ids and gaps: every door prepares it alike."""

from __future__ import annotations

import json
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
    "free text": {"note": [f"came in on day {d} with a light cough" for d in range(ROWS)]},
    "nothing": {"spare": [None] * ROWS},
}
EVERYTHING = {name: cells for columns in COLUMNS.values() for name, cells in columns.items()}
TABLES = {
    name: {"age": COLUMNS["numbers"]["age"], **columns} for name, columns in COLUMNS.items()
} | {"everything": EVERYTHING}
LEFT_OUT = "ignore:.* left out"


def frame(table):
    made = pd.DataFrame(TABLES[table])
    return made.assign(
        diabetes=(RISK > 0).astype(int), hypertension=np.where(RISK > 1, "yes", "no")
    )


def train(rows, folder):
    settings = cr.train.Settings(model="linear", epochs=3, solver="steps", calibrate="none")
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", ".* left out")
        data = cr.data.load(rows, labels=LABELS)
        return data, cr.train.fit(data, folder, settings)


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
def test_training_by_the_command_line_gives_the_same_run(tmp_path, capsys):
    rows = frame("everything")
    data, run = train(rows, tmp_path / "a")
    rows.to_csv(tmp_path / "rows.csv.gz", index=False)
    options = {"model": "linear", "epochs": 3, "solver": "steps", "calibrate": "none"}
    options |= {"labels": ",".join(LABELS), "out": tmp_path / "b"}
    given = [f"--{name}={value}" for name, value in options.items()]
    assert main(["train", str(tmp_path / "rows.csv.gz"), *given]) == 0
    said = " ".join(capsys.readouterr().out.split())
    assert (
        "rows.csv.gz: 2 numeric, 2 yes/no, 2 categorical (one-hot, 6 features), 4 date (4 parts), "
        "2 id ignored (patient_id, PatientId), 1 text ignored (note), 1 empty ignored (spare); "
        "missing cells in bmi, town, left"
    ) in said
    other = cr.load(tmp_path / "b")
    assert other.data["feature_names"] == data.feature_names
    np.testing.assert_allclose(
        other.predict(rows).probabilities, run.predict(rows).probabilities, atol=1e-5
    )


@pytest.mark.parametrize("model", ["linear", "forest", "boosting", "mlp"])
@pytest.mark.filterwarnings(LEFT_OUT)
def test_every_model_takes_gaps_and_learns_from_categories(model, tmp_path):
    rows = frame("everything").drop(columns=["age", "bmi", "smoker", "fever"])
    data = cr.data.load(rows, labels=LABELS)
    run = cr.train.fit(data, tmp_path / "run", cr.train.Settings(model=model))
    found = run.predict(rows).probabilities[:, 0]
    assert np.isfinite(found).all()
    assert found[COLOURS == "red"].mean() > found[COLOURS == "blue"].mean() + 0.3
    assert run.predict(rows.assign(town=None, left=pd.NaT)).probabilities.shape == (ROWS, 2)
