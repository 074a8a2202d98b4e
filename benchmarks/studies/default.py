"""``--model auto`` beside scikit-learn, a plain network and the recipes of two papers.

    python -m benchmarks.studies.default [SET …] [--seeds 5] [--methods auto,…] [--table]

Each cell (set, method, seed) runs in a process of its own with one thread and is one line of
``benchmarks/studies/default.jsonl``; the same command continues where it stopped. Training rows
train, choose and calibrate; the published test rows are measured once. Seeds move the split of the
training rows, the models and their order of rows. ``--table`` prints the tables and measures
nothing; ``--write`` puts them into docs/default.md.

Peers, as a user of scikit-learn or PyTorch would run them:

- logistic CV: one-vs-rest ``LogisticRegression`` on standardised columns, C of each label by five
  folds and log loss;
- random forest: ``RandomForestClassifier`` of 300 trees; votes of 0 and 1 moved by half a tree;
- boosting: ``HistGradientBoostingClassifier`` for each label with its defaults;
- each of the three with ``CalibratedClassifierCV`` (sigmoid, five folds) around every label;
- MLP: one hidden layer of 512, BCE, Adam at 1e-3 for 30 epochs; the same with the official
  asymmetric loss and with the two-way loss, their scores read by the sigmoid, as the papers do.

On texts, auto is ``tfidf`` with its defaults, and the peers are scikit-learn's ``TfidfVectorizer``
with one-vs-rest logistic regression, calibrated, with C = 10 or the best C of seven by three folds
(``benchmarks.studies.text`` has both).

Labels with fewer than five rows of a kind keep their rate where a peer cannot be fitted.
``candidates`` measures every candidate of auto alone, for the regret of the choice; ``left out``
compares auto and the random forest on training rows, without any test row.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

for _variable in ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "NUMBA_NUM_THREADS"):
    os.environ[_variable] = "1"

import numpy as np  # noqa: E402 - after the number of threads is set

from benchmarks.studies.training import data_file  # noqa: E402

RECORDS = Path(__file__).with_suffix(".jsonl")
SETS = ("emotions", "medical", "yeast", "scene", "voc2012", "cifar10h", "tinyimagenet")
SETS = (*SETS, "bibtex", "coco80-features")
TEXTS = {
    "auto": "credibly",
    "logistic C = 10, calibrated": "scikit-learn C=10",
    "logistic CV, calibrated": "scikit-learn C=chosen",
}
"""Methods on texts, by their name in the study of texts."""

TEXT_SETS = ("reuters",)
ALL_SETS = (*SETS, *TEXT_SETS)
MORE_SETS = ("flags", "birds", "foodtruck", "cal500", "enron", "genbase")
"""Tables of a public repository (``benchmarks.studies.mulan``), not in the evaluation folder."""

METRICS = ("NLL", "ACE", "mAP@y", "mAP@x", "retrieval 3", "retrieval 5", "coverage")
FEWEST = 5

Rows = tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]
"""Features and targets of the training rows, then of the test rows."""


def rows_of(name: str) -> Rows:
    with np.load(data_file(f"{name}.npz"), allow_pickle=False) as file:
        features, split = file["features"].astype(np.float32), file["split"]
        targets = file["targets"]
        if targets.ndim == 1:
            targets = np.eye(int(targets.max()) + 1)[targets]
    train, test = split != 1, split == 1
    return features[train], targets[train].astype(np.float32), features[test], targets[test]


# Ours -----------------------------------------------------------------------------------------


def auto(name: str, seed: int) -> tuple[np.ndarray, dict[str, Any]]:
    return _ours(name, seed, {})


def network(name: str, seed: int) -> tuple[np.ndarray, dict[str, Any]]:
    """The default of version 0.2."""
    return _ours(name, seed, {"model": "mlp"})


def members(name: str, seed: int) -> tuple[np.ndarray, dict[str, Any]]:
    """Ten networks that hold out different rows, calibrated after averaging."""
    return _ours(name, seed, {"model": "mlp", "ensemble": 10})


def plain_members(name: str, seed: int) -> tuple[np.ndarray, dict[str, Any]]:
    """The same without a map after averaging."""
    return _ours(name, seed, {"model": "mlp", "ensemble": 10, "calibrate": "none"})


def _ours(name: str, seed: int, given: dict[str, Any]) -> tuple[np.ndarray, dict[str, Any]]:
    import credibly as cr
    from credibly.train import Settings, fit

    data = cr.data.load(data_file(f"{name}.npz"), seed=seed)
    with tempfile.TemporaryDirectory() as folder:
        run = fit(data, Path(folder, "run"), Settings(seed=seed, split_seed=seed, **given))
        found = run.predict(data.part("test")).probabilities
    table = run.candidates.get("candidates", [])
    return found, {"chosen": {row["model"]: row["weight"] for row in table}, "tried": table}


def candidates(name: str, seed: int) -> tuple[np.ndarray, dict[str, Any]]:
    """Every candidate alone, calibrated on its own left-out scores."""
    import torch

    import credibly as cr
    from credibly.train import Settings, build_loss, resolve_settings
    from credibly.train.choice import choose, problem_of
    from credibly.train.run_folder import pooled

    data = cr.data.load(data_file(f"{name}.npz"), seed=seed)
    settings = resolve_settings(Settings(seed=seed, split_seed=seed), data)
    rows, test = pooled(data, settings), data.part("test")
    loss = build_loss(settings, data, len(rows.part("train")))
    problem = problem_of(rows, loss, settings)
    truth = problem.targets[problem.scored]
    inputs, found, alone = torch.from_numpy(test.features), np.zeros(0), {}
    for candidate in choose(problem, settings).tried:
        pipeline = cr.Pipeline(loss, cr.calibrate.Affine())
        pipeline.fit(candidate.scores, truth, coding="unknown")
        with torch.no_grad():
            scores = torch.stack([member(inputs) for member in candidate.members]).mean(dim=0)
        found = pipeline.probabilities(scores.double().numpy())
        alone[candidate.name] = _measured(found, np.asarray(test.targets))
        alone[candidate.name]["left-out NLL"] = candidate.figures["nll"]
    return found, {"alone": alone}


def left_out(name: str, seed: int) -> tuple[np.ndarray, dict[str, Any]]:
    """Auto and a random forest on training rows that neither was trained on; no test row."""
    import credibly as cr
    from credibly.train import Settings, build_loss, resolve_settings
    from credibly.train.choice import choose, problem_of
    from credibly.train.maps import fitted_map
    from credibly.train.run_folder import pooled

    data = cr.data.load(data_file(f"{name}.npz"), seed=seed)
    settings = resolve_settings(Settings(seed=seed, split_seed=seed), data)
    rows = pooled(data, settings)
    loss = build_loss(settings, data, len(rows.part("train")))
    problem = problem_of(rows, loss, settings)
    targets = problem.targets[problem.scored]
    odds = cr.Pipeline(loss).link_log_odds(choose(problem, settings).scores)
    calibrator = fitted_map(settings.calibrate, odds, targets, has_link=True)
    votes = np.empty(problem.targets.shape)
    for inside, outside in problem.parts:
        votes[outside] = _votes(
            problem.features[inside], problem.targets[inside], problem.features[outside], seed
        )
    found = {
        "auto": cr.Pipeline(None, calibrator).probabilities(odds),
        "random forest": votes[problem.scored],
    }
    figures = {method: _measured(values, targets) for method, values in found.items()}
    return np.zeros(0), {"left out": figures}


# Peers ----------------------------------------------------------------------------------------


def _labels(rows: Rows, make: Callable[[int], Any], folds: int = 0, seed: int = 0) -> np.ndarray:
    """Probabilities of one estimator per label; calibrated around it with ``folds``."""
    from sklearn.calibration import CalibratedClassifierCV
    from sklearn.model_selection import StratifiedKFold

    features, targets, test, _ = rows
    found = np.empty((len(test), targets.shape[1]))
    for label in range(targets.shape[1]):
        known = targets[:, label] >= 0
        truth = targets[known, label] > 0.5
        fewest = int(min(truth.sum(), (~truth).sum()))
        model = make(fewest) if fewest else None
        if model is None:
            found[:, label] = (truth.sum() + 0.5) / (len(truth) + 1)
            continue
        if folds and fewest >= folds:
            split = StratifiedKFold(folds, shuffle=True, random_state=seed)
            model = CalibratedClassifierCV(model, cv=split).set_params(ensemble=False)
        found[:, label] = model.fit(features[known], truth).predict_proba(test)[:, 1]
    return found


def _logistic(name: str, seed: int, calibrated: bool) -> np.ndarray:
    from sklearn.linear_model import LogisticRegression
    from sklearn.model_selection import GridSearchCV, StratifiedKFold
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler

    def make(fewest: int) -> Any:
        plain: Any = LogisticRegression(max_iter=300)
        if fewest >= FEWEST:
            folds = StratifiedKFold(5, shuffle=True, random_state=seed)
            grid = {"C": np.logspace(-4, 1, 6)}
            plain = GridSearchCV(plain, grid, scoring="neg_log_loss", cv=folds)
        return make_pipeline(StandardScaler(), plain)

    return _labels(rows_of(name), make, 5 if calibrated else 0, seed)


def _forest(name: str, seed: int, calibrated: bool) -> np.ndarray:
    from sklearn.ensemble import RandomForestClassifier

    rows = rows_of(name)
    if calibrated:
        return _labels(rows, lambda _: RandomForestClassifier(100, random_state=seed), 5, seed)
    return _votes(*rows[:3], seed)


def _votes(features: np.ndarray, targets: np.ndarray, test: np.ndarray, seed: int) -> np.ndarray:
    from sklearn.ensemble import RandomForestClassifier

    model = RandomForestClassifier(300, random_state=seed).fit(features, targets > 0.5)
    votes = model.predict_proba(test)
    votes = votes if isinstance(votes, list) else [votes]
    known: Any = model.classes_  # of one label, its classes; of many, a list of them
    classes = known if isinstance(known, list) else [known]
    columns = [
        vote[:, 1] if vote.shape[1] == 2 else np.full(len(test), float(own[0]))
        for vote, own in zip(votes, classes, strict=True)
    ]
    return np.clip(np.stack(columns, axis=1), 1 / 600, 1 - 1 / 600)


def _boosting(name: str, seed: int, calibrated: bool) -> np.ndarray:
    from sklearn.ensemble import HistGradientBoostingClassifier

    make = lambda _: HistGradientBoostingClassifier(random_state=seed)  # noqa: E731
    return _labels(rows_of(name), make, 5 if calibrated else 0, seed)


def _mlp(name: str, seed: int, loss: str) -> np.ndarray:
    import torch
    from torch import nn

    import credibly as cr
    from benchmarks.studies.training import scores_of, train

    features, targets, test, _ = rows_of(name)
    mean, scale = features.mean(axis=0), features.std(axis=0)
    scale[scale == 0] = 1
    features, test = (features - mean) / scale, (test - mean) / scale
    torch.manual_seed(seed)
    width = targets.shape[1]
    net = nn.Sequential(nn.Linear(features.shape[1], 512), nn.ReLU(), nn.Linear(512, width))
    criterion: Any = cr.losses.from_name(loss, num_labels=width, num_rows=len(features))
    train(net, criterion, features, targets, seed=seed, epochs=30)
    return torch.sigmoid(scores_of(net, test)).numpy()


def _peer(function: Callable[..., np.ndarray], option: Any) -> Callable[[str, int], Any]:
    return lambda name, seed: (function(name, seed, option), {})


METHODS: dict[str, Callable[[str, int], tuple[np.ndarray, dict[str, Any]]]] = {
    "auto": auto,
    "mlp": network,
    "mlp, ensemble of 10": members,
    "mlp, ensemble of 10, no map": plain_members,
    "logistic CV": _peer(_logistic, False),
    "random forest": _peer(_forest, False),
    "boosting": _peer(_boosting, False),
    "torch MLP": _peer(_mlp, "bce"),
    "official ASL": _peer(_mlp, "asl(detach_weight=True)"),
    "two-way": _peer(_mlp, "twl"),
    "logistic CV, calibrated": _peer(_logistic, True),
    "random forest, calibrated": _peer(_forest, True),
    "boosting, calibrated": _peer(_boosting, True),
    "candidates": candidates,
    "left out": left_out,
}

NOT_PEERS = ("candidates", "left out")
SEEDLESS = {"boosting": ("emotions", "medical", "yeast", "scene", "voc2012", "bibtex", *MORE_SETS)}
"""Peers without any chance, and where: up to 10,000 rows boosting holds out none to stop early. One
run stands for every seed."""

NAMES = tuple(dict.fromkeys((*METHODS, *TEXTS)))


# Measuring ------------------------------------------------------------------------------------


def _measured(probabilities: np.ndarray, targets: np.ndarray) -> dict[str, float]:
    from credibly import decide, metrics

    found = metrics.summary(probabilities, targets, sets=probabilities >= 0.5, coding="unknown")
    most = min(5, targets.shape[1])
    queries = metrics.retrieval_map(
        probabilities, targets, max_conditions=most, budget_seconds=2.0, coding="unknown"
    ).by_conditions
    size = max(1.0, float(np.where(targets >= 0, targets, 0).sum(axis=1).mean().round(1)))
    sets = decide.AverageSize(size).fit(probabilities).predict(probabilities)
    return {
        **{name: float(found[name]) for name in ("NLL", "ACE", "mAP@y", "mAP@x")},
        "retrieval 3": float(queries[3]),
        "retrieval 5": float(queries[most]),
        "coverage": float(metrics.set_coverage(sets, targets, coding="unknown")),
    }


def one(name: str, method: str, seed: int) -> dict[str, Any]:
    """Run one cell in this process."""
    import warnings

    import sklearn.ensemble  # noqa: F401 - imports are not the method's cost
    import torch

    import credibly.train.choice  # noqa: F401

    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    if name in TEXT_SETS:
        from benchmarks.studies import text

        probabilities, targets, cost = text.predicted(name, TEXTS[method], seed)
        cost["all MB"] = _peak()
        figures = _measured(np.asarray(probabilities, np.float64), targets)
        return {"set": name, "method": method, "seed": seed, **figures, **cost}
    before, started = _peak(), time.process_time()
    probabilities, more = METHODS[method](name, seed)
    cost = {"CPU s": time.process_time() - started, "MB": _peak() - before, "all MB": _peak()}
    figures = {}
    if len(probabilities):
        figures = _measured(np.asarray(probabilities, np.float64), rows_of(name)[3])
    return {"set": name, "method": method, "seed": seed, **figures, **cost, **more}


def _peak() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def records() -> list[dict[str, Any]]:
    if not RECORDS.exists():
        return []
    return [json.loads(line) for line in RECORDS.read_text(encoding="utf-8").splitlines()]


def run(sets: list[str], methods: list[str], seeds: int) -> None:
    """Measure the cells that have no record yet."""
    done = {(line["set"], line["method"], line["seed"]) for line in records()}
    for name in sets:
        for seed in range(seeds):
            for method in methods:
                known = TEXTS if name in TEXT_SETS else METHODS
                once = seed and name in SEEDLESS.get(method, ())
                if method not in known or once or (name, method, seed) in done:
                    continue
                command = [sys.executable, "-W", "ignore", "-m", "benchmarks.studies.default"]
                command += ["--one", name, method, str(seed)]
                found = subprocess.run(command, stdout=subprocess.PIPE, check=True, text=True)
                line = found.stdout.splitlines()[-1]
                with RECORDS.open("a", encoding="utf-8") as file:
                    file.write(line + "\n")
                print(line[:160], file=sys.stderr, flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.studies.default")
    parser.add_argument("sets", nargs="*", default=list(ALL_SETS))
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--methods", default=";".join(NAMES), help="separated by ;")
    parser.add_argument("--table", action="store_true", help="print the tables of the records")
    parser.add_argument("--write", action="store_true", help="write them into the page")
    parser.add_argument("--one", nargs=3, metavar=("SET", "METHOD", "SEED"))
    given = parser.parse_args()
    if given.one:
        name, method, seed = given.one
        print(json.dumps(one(name, method, int(seed))))
    elif given.table or given.write:
        from benchmarks.studies import default_tables

        if given.table:
            print(default_tables.tables())
        else:
            default_tables.write_page()
    else:
        methods = given.methods.split(";")
        run(given.sets, methods, given.seeds)


if __name__ == "__main__":
    main()
