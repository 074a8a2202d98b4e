"""``--model auto`` beside scikit-learn, a plain network and the recipes of two papers.

    python -m benchmarks.studies.default [SET …] [--seeds 5] [--methods "auto;…"] [--table]

Each cell (set, method, seed) runs in a process of its own with one thread and is one line of
``benchmarks/studies/default.jsonl``; the same command continues where it stopped. Training rows
train, choose and calibrate; the published test rows are measured once. Seeds move the split of the
training rows, the models and their order of rows. ``--table`` prints the tables and measures
nothing; ``--write`` puts them into benchmarks/results/default.md. ``--start-up`` measures the CPU
time of ``credibly train`` on a small table with ``--model linear``, imports included.

Peers, as a user of scikit-learn or PyTorch would run them:

- logistic CV: one-vs-rest ``LogisticRegression`` on standardised columns, C of each label by five
  folds and log loss;
- random forest: ``RandomForestClassifier`` of 300 trees (100 on tinyimagenet and coco80-features),
  of classes where every row has one label; votes of 0 and 1 moved by half a tree;
- extra trees: ``ExtraTreesClassifier`` the same, on bootstrap samples;
- boosting: ``HistGradientBoostingClassifier`` for each label with its defaults; LightGBM the same;
- LightGBM, tuned: a held-out fifth stops it and chooses of four settings for each label;
- CatBoost: all labels or classes at once with its defaults, stopped by a held-out fifth
  (``pip install catboost``);
- calibrated, each of them with Platt's sigmoid for every label: of out-of-bag votes for forests, of
  the held-out fifth where there is one, else of scores of five folds, or from 2,500 rows on of the
  first of them; the model is that of all rows, and C that of the plain one;
- 20 lines of torch: one hidden layer of 512, BCE, Adam at 1e-3, of 30 epochs the one with the best
  held-out log loss, then one affine map of the log-odds on the same held-out rows;
- MLP: one hidden layer of 512, BCE, Adam at 1e-3 for 30 epochs; the same with the official
  asymmetric loss and with the two-way loss, their scores read by the sigmoid, as the papers do.

On texts, auto is ``tfidf`` with its defaults, and the peers are scikit-learn's ``TfidfVectorizer``
with one-vs-rest logistic regression, calibrated, with C = 10 or the best C of seven by three folds
(``benchmarks.studies.text`` has both).

Labels with fewer than five rows of a kind keep their rate where a peer cannot be fitted. CPU
seconds are those of fit and predict without imports. A record of auto names its version.
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
from collections.abc import Iterator
from importlib.metadata import version
from pathlib import Path
from typing import Any

for _variable in ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "NUMBA_NUM_THREADS"):
    os.environ[_variable] = "1"

import numpy as np  # noqa: E402 - after the number of threads is set

from benchmarks.studies import default_peers  # noqa: E402
from benchmarks.studies.training import data_file  # noqa: E402
from credibly.targets import Targets  # noqa: E402

RECORDS = Path(__file__).with_suffix(".jsonl")
START_UP = RECORDS.with_name("default_start_up.json")
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
MORE_SETS = ("flags", "birds", "foodtruck", "cal500", "enron", "genbase", "tmc2007")
"""Tables of a public repository (``benchmarks.studies.mulan``), not in the evaluation folder."""

METRICS = ("NLL", "ACE", "mAP@y", "mAP@x", "retrieval 3", "retrieval 5", "coverage")


def rows_of(name: str) -> default_peers.Rows:
    with np.load(data_file(f"{name}.npz"), allow_pickle=False) as file:
        features, split = file["features"].astype(np.float32), file["split"]
        targets = file["targets"]
        if targets.ndim == 1:
            targets = np.eye(int(targets.max()) + 1)[targets]
    train, test = split != 1, split == 1
    return features[train], targets[train].astype(np.float32), features[test], targets[test]


# Ours -----------------------------------------------------------------------------------------


def auto(name: str, seed: int) -> tuple[np.ndarray, dict[str, Any]]:
    """Train by the default; also return what was tried, the estimates and what was spent."""
    import credibly as cr
    from credibly.data.splits import TEST
    from credibly.train import fit

    data = cr.data.load(data_file(f"{name}.npz"), seed=seed)
    known = data.take(data.split != TEST)  # a run also predicts test rows, which peers do once
    with tempfile.TemporaryDirectory() as folder:
        recipe = cr.train.Auto(split_seed=seed)
        run = fit(known, recipe, folder=Path(folder, "run"), seed=seed)
        found = run.predict(data.part("test")).probabilities
    table = run.candidates.get("candidates", [])
    chosen = {row["model"]: row["weight"] for row in table}
    return found, {"chosen": chosen, "tried": table, "spent": run.spent}


PEERS: dict[str, default_peers.Peer] = {
    "logistic CV": default_peers.logistic,
    "random forest": default_peers.forest,
    "boosting": default_peers.boosting,
    "LightGBM": default_peers.lightgbm,
    "LightGBM, tuned": default_peers.tuned_lightgbm,
    "extra trees": default_peers.extra_trees,
    "CatBoost": default_peers.catboost,
    "torch MLP": default_peers.network("bce"),
    "20 lines of torch": default_peers.twenty_lines,
    "official ASL": default_peers.network("asl(detach_weight=True)"),
    "two-way": default_peers.network("twl"),
}
WITH_SIGMOID = ("logistic CV", "random forest", "extra trees", "boosting", "LightGBM")
WITH_SIGMOID = (*WITH_SIGMOID, "LightGBM, tuned", "CatBoost")
CALIBRATED = {name: f"{name}, calibrated" for name in WITH_SIGMOID}
"""Names of the calibrated versions of those that have one."""

SEEDLESS = {
    "boosting": ("emotions", "medical", "yeast", "scene", "voc2012", "bibtex", *MORE_SETS),
    "LightGBM": (*SETS, *MORE_SETS),
}
"""Peers without any chance, and where: up to 10,000 rows boosting holds out none to stop early, and
LightGBM never does. One run stands for every seed."""

NAMES = tuple(dict.fromkeys(("auto", *PEERS, *CALIBRATED.values(), *TEXTS)))


# Measuring ------------------------------------------------------------------------------------


def _measured(probabilities: np.ndarray, targets: np.ndarray) -> dict[str, float]:
    from credibly import decide, metrics

    probabilities = np.asarray(probabilities, np.float64)
    found = metrics.summary(probabilities, Targets(targets), sets=probabilities >= 0.5)
    most = min(5, targets.shape[1])
    queries = metrics.retrieval_map(
        probabilities, Targets(targets), max_conditions=most, budget_seconds=2.0
    ).by_conditions
    size = max(1.0, float(np.where(targets >= 0, targets, 0).sum(axis=1).mean().round(1)))
    sets = decide.AverageSize(size).fit(probabilities).predict(probabilities)
    return {
        **{name: float(found[name]) for name in ("NLL", "ACE", "mAP@y", "mAP@x")},
        "retrieval 3": float(queries[3]),
        "retrieval 5": float(queries[most]),
        "coverage": float(metrics.set_coverage(sets, Targets(targets))),
    }


def one(name: str, method: str, seeds: list[int]) -> Iterator[dict[str, Any]]:
    """Run cells in this process; before a calibrated peer comes the plain one.

    Several seeds only go with a calibrated peer whose models are the same for all of them.
    """
    import warnings

    import lightgbm  # noqa: F401 - imports are not the method's cost
    import scipy.optimize  # noqa: F401
    import sklearn.ensemble  # noqa: F401
    import torch

    import credibly.predictions
    import credibly.train.auto  # noqa: F401

    if method.startswith("CatBoost"):
        import catboost  # noqa: F401 # type: ignore[import-not-found, unused-ignore]

    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    cell = {"set": name, "method": method, "seed": seeds[0]}
    if name in TEXT_SETS:
        from benchmarks.studies import text

        probabilities, targets, cost = text.predicted(name, TEXTS[method], seeds[0])
        cost |= {"all MB": _peak(), "version": version("credibly")}
        yield cell | _measured(probabilities, targets) | cost
        return
    before, started = _peak(), time.process_time()
    if method == "auto":
        probabilities, more = auto(name, seeds[0])
        cost = _cost(started, before) | {"version": version("credibly")}
        yield cell | _measured(probabilities, rows_of(name)[3]) | cost | more
        return
    plain = next(peer for peer in PEERS if method in (peer, CALIBRATED.get(peer)))
    rows = rows_of(name)
    cells = [cell | {"method": plain}]
    if method != plain:
        cells += [cell | {"seed": seed} for seed in seeds]
    shared = 0.0  # the cost of the models is part of every calibrated version's
    for own, probabilities in zip(cells, PEERS[plain](rows, seeds), strict=False):
        cost = _cost(started - shared, before)
        if own["method"] == plain:
            shared = cost["CPU s"]
        yield own | _measured(probabilities, rows[3]) | cost
        started = time.process_time()


def _cost(started: float, before: float) -> dict[str, float]:
    """CPU time since ``started``, and peak memory above ``before`` and in all."""
    seconds = time.process_time() - started
    return {"CPU s": seconds, "MB": _peak() - before, "all MB": _peak()}


def _peak() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def records() -> list[dict[str, Any]]:
    if not RECORDS.exists():
        return []
    return [json.loads(line) for line in RECORDS.read_text(encoding="utf-8").splitlines()]


def run(sets: list[str], methods: list[str], seeds: int) -> None:
    """Measure the cells that have no record yet."""
    done = {(line["set"], line["method"], line["seed"]) for line in records()}

    def missing(name: str, method: str, seed: int) -> bool:
        known = TEXTS if name in TEXT_SETS else ("auto", *PEERS, *CALIBRATED.values())
        once = seed and name in SEEDLESS.get(method, ())
        return (
            method in known and method in methods and not once and (name, method, seed) not in done
        )

    for name in sets:
        for seed in range(seeds):
            for method in NAMES:
                if method in CALIBRATED.values() and name not in TEXT_SETS:
                    continue  # with the plain one
                kinds = [method, CALIBRATED.get(method, method)]
                wanted = [kind for kind in kinds if missing(name, kind, seed)]
                if not wanted:
                    continue
                several = [seed]
                if wanted[-1] != method and name in SEEDLESS.get(method, ()):
                    several = [own for own in range(seeds) if missing(name, wanted[-1], own)]
                _run_cell(name, wanted[-1], several, wanted)
                done.update((name, wanted[-1], own) for own in several)


def _run_cell(name: str, method: str, seeds: list[int], wanted: list[str]) -> None:
    """Measure cells in a process of their own and keep each wanted record as it comes."""
    command = [sys.executable, "-W", "ignore", "-m", "benchmarks.studies.default"]
    command += ["--one", name, method, ",".join(map(str, seeds))]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        for line in process.stdout or ():
            if json.loads(line)["method"] in wanted:
                with RECORDS.open("a", encoding="utf-8") as file:
                    file.write(line)
                print(line[:160], file=sys.stderr, flush=True)
    if process.returncode:
        raise subprocess.CalledProcessError(process.returncode, command)


def start_up(name: str = "emotions", runs: int = 5) -> None:
    """Measure the CPU seconds of whole commands, with compiled functions in the cache."""
    spent = []
    with tempfile.TemporaryDirectory() as folder:
        for number in range(runs + 1):  # the first fills the cache
            before = resource.getrusage(resource.RUSAGE_CHILDREN)
            command = [sys.executable, "-m", "credibly", "train", str(data_file(f"{name}.npz"))]
            command += ["--model", "linear", "--out", f"{folder}/{number}", "--quiet"]
            subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
            after = resource.getrusage(resource.RUSAGE_CHILDREN)
            spent.append(after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime)
    record = {"set": f"{name}.npz", "CPU s": [round(each, 2) for each in spent[1:]]}
    record |= {"load": round(os.getloadavg()[0], 1), "version": version("credibly")}
    START_UP.write_text(json.dumps(record) + "\n", encoding="utf-8")


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.studies.default")
    parser.add_argument("sets", nargs="*", default=list(ALL_SETS))
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--methods", default=";".join(NAMES), help="separated by ;")
    parser.add_argument("--table", action="store_true", help="print the tables of the records")
    parser.add_argument("--summary", action="store_true", help="print the table in short")
    parser.add_argument("--write", action="store_true", help="write them into their pages")
    parser.add_argument("--start-up", action="store_true", help="measure it, as said above")
    parser.add_argument("--one", nargs=3, metavar=("SET", "METHOD", "SEEDS"))
    given = parser.parse_args()
    if given.one:
        name, method, seeds = given.one
        for line in one(name, method, [int(seed) for seed in seeds.split(",")]):
            print(json.dumps(line), flush=True)
    elif given.start_up:
        start_up()
    elif given.table or given.summary or given.write:
        from benchmarks.studies.default_tables import summary, tables
        from benchmarks.studies.documents import RECORD, put_tables

        if given.table:
            print(tables())
        elif given.summary:
            print(summary())
        else:
            put_tables(f"{RECORD}/default.md", "default", tables())
            put_tables("docs/benchmarks/quality.md", "summary", summary())
    else:
        methods = given.methods.split(";")
        run(given.sets, methods, given.seeds)


if __name__ == "__main__":
    main()
