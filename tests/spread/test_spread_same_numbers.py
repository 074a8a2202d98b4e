"""One array gives one log loss, average precision and calibration error, by whichever door."""

from __future__ import annotations

import time
from functools import cache
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from local_session import LocalSession
from spread_rows import rows, write

import credibly as cr
from credibly import InputError, metrics
from credibly.executors import Executor, Spark
from credibly.predictions import Dataset
from credibly.workflows import calibrate_dataset

ROWS, LABELS = 800, [f"label {place}" for place in range(5)]
NAMES = ("NLL", "mAP@y", "ACE", "MCE", "ECE")


@cache
def arrays():
    """4,000 entries, each non-empty bin well filled, with a float32 zero at a present label."""
    rng = np.random.default_rng(0)
    probabilities = rng.choice(np.arange(20) / 20, (ROWS, 5)).astype(np.float32)
    targets = (rng.random(probabilities.shape) < 0.8 * probabilities + 0.1).astype(np.int8)
    targets[probabilities == 0] = 0
    probabilities[0, 0], targets[0, 0] = 0.0, 1
    return probabilities, targets


def predictions(**layout):
    probabilities, targets = arrays()
    return cr.Predictions.from_arrays(
        probabilities=probabilities, targets=targets, labels=LABELS, **layout
    )


def by_function(folder):
    p, y = arrays()
    errors = {kind.upper(): metrics.calibration_error(p, y, kind) for kind in ("ace", "mce", "ece")}
    precision = metrics.mean_average_precision(p, y)
    return {"NLL": metrics.log_loss(p, y), "mAP@y": precision, **errors}


def by_accumulator(folder):
    p, y = arrays()
    found = metrics.Summary(5)
    for start in range(0, ROWS, 130):
        found.update(p[start : start + 130], y[start : start + 130])
    return found.numbers()


def by_scorer(folder, **weights):
    p, y = arrays()
    model = SimpleNamespace(predict_proba=lambda X: p, classes_=[np.array([0, 1])] * 5)
    names = {"NLL": "nll"}
    if not weights:
        names |= {"mAP@y": "map", "ACE": "ace", "MCE": "mce", "ECE": "ece"}
    return {name: abs(metrics.scorer(of)(model, p, y, **weights)) for name, of in names.items()}


def by_weighted_scorer(folder):
    return by_scorer(folder, sample_weight=np.full(ROWS, 3.0))


def by_streaming(folder):
    made = {
        "NLL": metrics.streaming.LogLoss(5),
        "mAP@y": metrics.streaming.AveragePrecision(5),
        **{k.upper(): metrics.streaming.CalibrationError(5, k) for k in ("ace", "mce", "ece")},
    }
    for each in made.values():
        for p, y in zip(*(torch.from_numpy(one).split(130) for one in arrays()), strict=True):
            each.update(p, y)
    return {name: each.compute().item() for name, each in made.items()}


def by_interval(folder):
    p, y = arrays()
    found = metrics.summary_intervals(p, y)
    numbers = {name: found[name].estimate for name in NAMES}
    numbers["NLL"] = metrics.interval(metrics.log_loss, p, y, resamples=1).estimate
    return numbers


def by_file(folder, **options):
    predictions().write(folder / "p.parquet")
    return cr.evaluate(folder / "p.parquet", **options).numbers


def by_file_with_intervals(folder):
    found = by_file(folder, intervals=True, resampled_rows=0)  # groups of rows
    assert found == by_file(folder, intervals=True)  # single rows
    return found


def by_ranges(folder):
    return by_file(folder, rows_in_memory=90)


def by_spark(folder):
    return by_file(folder, executor=Spark(LocalSession()))


def by_top_labels(folder):
    order = np.argsort(-arrays()[0], axis=1, kind="stable")
    values = np.take_along_axis(arrays()[0], order, axis=1)
    cr.Predictions.from_arrays(
        top=order, probabilities=values, targets=arrays()[1], labels=LABELS
    ).write(folder / "top.parquet")
    numbers = cr.evaluate(folder / "top.parquet").numbers
    return {name: numbers[f"{name}, held labels"] for name in NAMES if name != "mAP@y"}


def by_compare_page(folder):
    pytest.importorskip("fastapi")
    from fastapi.testclient import TestClient

    from credibly.app.server import create_app

    predictions().write(folder / "a.parquet")
    p, y = arrays()
    cr.Predictions.from_arrays(probabilities=p / 2 + 0.25, targets=y, labels=LABELS).write(
        folder / "b.parquet"
    )
    with TestClient(create_app([folder], hosts=["testserver"])) as client:
        while (answer := client.get("/api/runs").json())["pending"]:
            time.sleep(0.05)
        labels = client.get("/api/compare/labels?first=0&second=1&by=NLL").json()["labels"]
    assert [run["name"] for run in answer["runs"]][:1] == ["a"]
    for label in labels:  # the interval of a difference, by rows, is about that of the means
        middle = (label["low"] + label["high"]) / 2
        assert middle == pytest.approx(label["first"] - label["second"], rel=1e-9)
    mean = np.mean([label["first"] for label in labels])
    assert mean == pytest.approx(metrics.log_loss(p, y), rel=1e-9)
    return {name: number["estimate"] for name, number in answer["numbers"]["0"].items()}


DOORS = [each for name, each in globals().items() if name.startswith("by_")]


@pytest.mark.parametrize("door", DOORS, ids=lambda door: door.__name__)
def test_numbers_do_not_depend_on_the_door(door, tmp_path):
    expected, found = by_function(tmp_path), door(tmp_path)
    shared = [name for name in NAMES if name in found]
    assert "NLL" in shared
    for name in shared:
        assert found[name] == pytest.approx(float(expected[name]), rel=1e-9), name


def test_a_zero_counts_as_the_resolution_of_its_type():
    p, y = arrays()
    clipped = np.clip(p.astype(np.float64), np.finfo(np.float32).eps, None)
    terms = np.where(y == 1, -np.log(clipped), -np.log1p(-p.astype(np.float64)))
    assert metrics.log_loss(p, y) == pytest.approx(terms.mean(), rel=1e-9)


@pytest.mark.parametrize("executor", [Executor(), Spark(LocalSession())], ids=["local", "spark"])
def test_every_executor_runs_the_one_body_of_evaluate(executor, tmp_path, monkeypatch):
    def broken(*arguments, **options):
        raise RuntimeError("the body of evaluate")

    folder = write(rows(), tmp_path / "shards", 3)
    assert cr.evaluate(folder, executor=executor).rows == 230
    monkeypatch.setattr(Dataset, "summary", broken)
    with pytest.raises(RuntimeError, match="the body of evaluate"):
        cr.evaluate(folder, executor=executor)


def test_workers_write_a_folder(tmp_path):
    folder = write(rows(), tmp_path / "shards", 3)
    spark = Spark(LocalSession())
    with pytest.raises(InputError, match="must be a folder, for a file per shard"):
        calibrate_dataset(folder, tmp_path / "x.parquet", executor=spark)
    with pytest.raises(InputError, match="must be a folder, for a file per shard"):
        cr.write_sets(folder, cr.decide.TopK(1), tmp_path / "x.csv", executor=spark)


def test_an_executor_is_local_or_spark(tmp_path):
    predictions().write(tmp_path / "p.parquet")
    with pytest.raises(InputError, match=r"`executor` must be .*local.*spark.*duckdb"):
        cr.evaluate(tmp_path / "p.parquet", executor="duckdb")
