"""Rescue scores of a network trained by ASL as its official code does it (weights detached).

    python -m benchmarks.studies.rescue_epochs [--table]

``epochs``: an MLP on the features of PASCAL VOC 2012, trained on 80 % of the training rows for 4,
12 and 30 epochs; half of the validation rows fit the maps, the other half judges. ``rows``: the
same scores after 12 epochs, and those of an MLP on COCO features, where the maps are fitted on few
labelled rows: 15 draws of each number of rows, against the limit of all rows that are left for
fitting. Each (set, epochs) and each (set, rows, draw) is a line of
``benchmarks.studies.rescue_epochs.jsonl``; the same command continues where it stopped.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

import numpy as np

import credibly as cr
from benchmarks.studies.training import data_file, markdown, mlp, scores_of, train

RECORDS = Path(__file__).with_suffix(".jsonl")
LOSS = "asl(gamma_neg=4, gamma_pos=0, margin=0.05, detach_weight=true)"
EPOCHS = (4, 12, 30)
ROWS = (0, 10, 20, 50, 100, 200, 500)
DRAWS = 15
SETS = {"voc2012": 12, "coco80-features": 4}
"""Epochs of the scores that are mapped with few rows."""

COLUMNS = {
    "sigmoid": ("raw", "none"),
    "own link": ("own", "none"),
    "link + affine": ("own", "affine"),
    "raw + affine": ("raw", "affine"),
    "auto": (None, "auto"),
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--table", action="store_true", help="print the tables and do nothing")
    if not parser.parse_args().table:
        _run()
    print(_tables())


def _run() -> None:
    for epochs in EPOCHS:
        _keep({"what": "epochs", "set": "voc2012", "epochs": epochs}, _columns)
    for name, epochs in SETS.items():
        for rows in ROWS:
            for draw in range(DRAWS if rows else 1):
                _keep(
                    {"what": "rows", "set": name, "epochs": epochs, "rows": rows, "draw": draw},
                    _few_rows,
                )
        _keep({"what": "rows", "set": name, "epochs": epochs, "rows": -1, "draw": 0}, _few_rows)


def _keep(cell: dict[str, Any], measure: Any) -> None:
    """Append the record of a cell that has none."""
    if any(all(line[key] == value for key, value in cell.items()) for line in _records()):
        return
    line = {**cell, **measure(cell)}
    with RECORDS.open("a", encoding="utf-8") as file:
        file.write(json.dumps(line) + "\n")
    print(line, flush=True)


def _records() -> list[dict[str, Any]]:
    if not RECORDS.exists():
        return []
    lines = [json.loads(line) for line in RECORDS.read_text(encoding="utf-8").splitlines()]
    return [{"rows": None, "draw": None, **line} for line in lines]


_SCORES: dict[tuple[str, int], tuple[np.ndarray, np.ndarray]] = {}


def _scores(name: str, epochs: int) -> tuple[np.ndarray, np.ndarray]:
    """Return scores and targets of the test rows."""
    if (name, epochs) not in _SCORES:
        stored = np.load(data_file(f"{name}.npz"), allow_pickle=False)
        features = stored["features"].astype(np.float32)
        if stored["features"].dtype == np.uint8:
            features /= 255
        targets = stored["targets"].astype(np.float32)
        rows = np.random.default_rng(0).permutation(np.flatnonzero(stored["split"] == 0))
        fit, test = rows[len(rows) // 5 :], stored["split"] == 1
        network = mlp(features.shape[1], targets.shape[1], seed=0)
        loss = cr.losses.from_name(LOSS)
        train(network, loss, features[fit], targets[fit], seed=0, epochs=epochs)
        scores = scores_of(network, features[test]).float().numpy()
        _SCORES[name, epochs] = scores, stored["targets"][test]
    return _SCORES[name, epochs]


def _halves(scores: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the rows to fit on and those that judge."""
    order = np.random.default_rng(1).permutation(len(scores))
    return order[: len(order) // 2], order[len(order) // 2 :]


def _fitted(scores: np.ndarray, targets: np.ndarray, link: str | None, method: str) -> cr.Pipeline:
    if link is not None:
        calibrator = cr.calibrate.from_name(method)
        return cr.Pipeline(LOSS, calibrator, link=link).fit(scores, targets)
    pipeline = cr.Pipeline(LOSS)
    pipeline.calibrate(scores, targets)
    return pipeline


def _measured(pipeline: cr.Pipeline, scores: np.ndarray, targets: np.ndarray) -> dict[str, float]:
    probabilities = pipeline.probabilities(scores).astype(np.float32)
    return {
        "NLL": float(cr.metrics.log_loss(probabilities, targets)),
        "ACE": float(cr.metrics.calibration_error(probabilities, targets, "ace", min_count=30)),
        "mAP": float(cr.metrics.mean_average_precision(probabilities, targets)),
    }


def _columns(cell: dict[str, Any]) -> dict[str, Any]:
    scores, targets = _scores(cell["set"], cell["epochs"])
    fit, judge = _halves(scores)
    found: dict[str, Any] = {"below the margin": cr.Pipeline(LOSS).plateau_share(scores)}
    for column, (link, method) in COLUMNS.items():
        pipeline = _fitted(scores[fit], targets[fit], link, method)
        found[column] = _measured(pipeline, scores[judge], targets[judge])
        if column == "auto":
            assert pipeline.calibrator is not None
            found["chosen"] = f"{pipeline.link} + {pipeline.calibrator.name}"
    found["mAP of the scores"] = float(
        cr.metrics.mean_average_precision(scores[judge], targets[judge])
    )
    return found


def _few_rows(cell: dict[str, Any]) -> dict[str, Any]:
    scores, targets = _scores(cell["set"], cell["epochs"])
    fit, judge = _halves(scores)
    if cell["rows"] > 0:
        fit = np.random.default_rng(100 + cell["draw"]).choice(fit, cell["rows"], replace=False)
    if cell["rows"] == 0:
        pipeline = cr.Pipeline(LOSS)
    else:
        pipeline = _fitted(scores[fit], targets[fit], None, "auto")
    chosen = "none" if pipeline.calibrator is None else pipeline.calibrator.name
    found = _measured(pipeline, scores[judge], targets[judge])
    return {**found, "chosen": f"{pipeline.link} + {chosen}"}


def _tables() -> str:
    lines = _records()
    rows = [
        [
            f"{line['epochs']} ({100 * line['below the margin']:.0f} %)",
            *(f"{1000 * line[c]['NLL']:.1f} / {100 * line[c]['ACE']:.1f}" for c in COLUMNS),
            line["chosen"],
        ]
        for line in lines
        if line["what"] == "epochs"
    ]
    parts = [markdown(["epochs (entries below the margin)", *COLUMNS, "chosen"], rows)]
    few = [line for line in lines if line["what"] == "rows"]
    body = []
    for name in SETS:
        limit = [x["NLL"] for x in few if x["set"] == name and x["rows"] == -1]
        if not limit:
            continue
        cells = [name]
        for number in ROWS:
            values = [x["NLL"] for x in few if x["set"] == name and x["rows"] == number]
            cells.append(f"{100 * (np.mean(values) / limit[0] - 1):.1f}" if values else "")
        body.append([*cells, f"{1000 * limit[0]:.1f}"])
    header = ["NLL above the limit, %", *(f"{n} rows" for n in ROWS), "limit × 1000"]
    return "\n\n".join([*parts, markdown(header, body)])


if __name__ == "__main__":
    main()
