"""``--model auto`` beside scikit-learn, a plain network and the recipes of two papers.

    python -m benchmarks.studies.default [SET …] [--seeds 5] [--methods "auto;…"] [--table]

Each cell (set, method, seed) runs in a process of its own with one thread and is one line of
``benchmarks/studies/default.jsonl``; the same command continues where it stopped. Training rows
train, choose and calibrate; the published test rows are measured once. Seeds move the split of the
training rows, the models and their order of rows. ``--table`` prints the tables and measures
nothing; ``--write`` puts them into benchmarks/results/default.md.

Peers, as a user of scikit-learn or PyTorch would run them:

- logistic CV: one-vs-rest ``LogisticRegression`` on standardised columns, C of each label by five
  folds and log loss;
- random forest: ``RandomForestClassifier`` of 300 trees (100 on tinyimagenet and coco80-features),
  of classes where every row has one label; votes of 0 and 1 moved by half a tree;
- boosting: ``HistGradientBoostingClassifier`` for each label with its defaults; LightGBM the same
  (``pip install lightgbm``);
- calibrated, each of them with Platt's sigmoid for every label: of out-of-bag votes for the forest,
  else of scores of five folds, or from 2,500 rows on of the first of them; the model is that of all
  rows, and C that of the plain one;
- 20 lines of torch: one hidden layer of 512, BCE, Adam at 1e-3, of 30 epochs the one with the best
  held-out log loss, then one affine map of the log-odds on the same held-out rows;
- MLP: one hidden layer of 512, BCE, Adam at 1e-3 for 30 epochs; the same with the official
  asymmetric loss and with the two-way loss, their scores read by the sigmoid, as the papers do.

On texts, auto is ``tfidf`` with its defaults, and the peers are scikit-learn's ``TfidfVectorizer``
with one-vs-rest logistic regression, calibrated, with C = 10 or the best C of seven by three folds
(``benchmarks.studies.text`` has both).

Labels with fewer than five rows of a kind keep their rate where a peer cannot be fitted.
``candidates`` measures every candidate of auto alone, for the regret of the choice; ``left out``
compares auto and random forests on training rows, without any test row.
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
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

for _variable in ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "NUMBA_NUM_THREADS"):
    os.environ[_variable] = "1"

import numpy as np  # noqa: E402 - after the number of threads is set

from benchmarks.studies import default_peers  # noqa: E402
from benchmarks.studies.training import data_file  # noqa: E402
from credibly.calibrate.auto import fit_by_name  # noqa: E402
from credibly.targets import Targets  # noqa: E402

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
    from credibly.train import fit, recipe

    data = cr.data.load(data_file(f"{name}.npz"), seed=seed)
    with tempfile.TemporaryDirectory() as folder:
        run = fit(data, recipe(split_seed=seed, **given), folder=Path(folder, "run"), seed=seed)
        found = run.predict(data.part("test")).probabilities
    table = run.candidates.get("candidates", [])
    return found, {"chosen": {row["model"]: row["weight"] for row in table}, "tried": table}


def candidates(name: str, seed: int) -> tuple[np.ndarray, dict[str, Any]]:
    """Every candidate alone, calibrated on its own left-out scores."""
    import torch

    import credibly as cr
    from credibly.train import recipe, resolve
    from credibly.train.assembly import build_loss
    from credibly.train.auto import choose, problem_of
    from credibly.train.run_folder import pooled

    data = cr.data.load(data_file(f"{name}.npz"), seed=seed)
    settings = resolve(recipe(split_seed=seed), data)
    rows, test = pooled(data, settings), data.part("test")
    loss = build_loss(settings, data, len(rows.part("train")))
    problem = problem_of(rows, loss, settings, seed)
    truth = problem.targets[problem.folds.scored]
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
    """Auto and random forests on training rows that they were not trained on; no test row."""
    import credibly as cr
    from credibly.train import recipe, resolve
    from credibly.train.assembly import build_loss
    from credibly.train.auto import choose, problem_of
    from credibly.train.run_folder import pooled

    data = cr.data.load(data_file(f"{name}.npz"), seed=seed)
    settings = resolve(recipe(split_seed=seed), data)
    rows = pooled(data, settings)
    loss = build_loss(settings, data, len(rows.part("train")))
    problem = problem_of(rows, loss, settings, seed)
    targets = problem.targets[problem.folds.scored]
    odds = cr.Pipeline(loss).link_log_odds(choose(problem, settings).scores)
    forests = ("random forest", CALIBRATED["random forest"])
    found = {method: np.empty(problem.targets.shape) for method in ("auto", *forests)}
    part_of = np.full(len(problem.targets), -1)
    for number, (inside, outside) in enumerate(problem.folds.parts):
        part_of[outside] = number
        train, test = problem.features[inside], problem.features[outside]
        split = (train, problem.targets[inside], test, problem.targets[outside])
        for method, votes in zip(forests, default_peers.forest(split, [seed]), strict=True):
            found[method][outside] = votes
    found = {method: values[problem.folds.scored] for method, values in found.items()}
    for own in part_of[problem.folds.scored] == np.arange(len(problem.folds.parts))[:, None]:
        calibrator = fit_by_name(
            settings.calibrate,
            odds[~own],
            Targets(targets[~own]),
            exclusive=loss.exclusive,
        )
        found["auto"][own] = cr.Pipeline(None, calibrator).probabilities(odds[own])
    figures = {method: _measured(values, targets) for method, values in found.items()}
    return np.zeros(0), {"left out": figures}


METHODS: dict[str, Callable[[str, int], tuple[np.ndarray, dict[str, Any]]]] = {
    "auto": auto,
    "mlp": network,
    "mlp, ensemble of 10": members,
    "mlp, ensemble of 10, no map": plain_members,
    "candidates": candidates,
    "left out": left_out,
}
PEERS: dict[str, default_peers.Peer] = {
    "logistic CV": default_peers.logistic,
    "random forest": default_peers.forest,
    "boosting": default_peers.boosting,
    "LightGBM": default_peers.lightgbm,
    "torch MLP": default_peers.network("bce"),
    "20 lines of torch": default_peers.twenty_lines,
    "official ASL": default_peers.network("asl(detach_weight=True)"),
    "two-way": default_peers.network("twl"),
}
CALIBRATED = {
    name: f"{name}, calibrated" for name in ("logistic CV", "random forest", "boosting", "LightGBM")
}
"""Names of the calibrated versions of those that have one."""

NOT_PEERS = ("candidates", "left out")
SEEDLESS = {
    "boosting": ("emotions", "medical", "yeast", "scene", "voc2012", "bibtex", *MORE_SETS),
    "LightGBM": (*SETS, *MORE_SETS),
}
"""Peers without any chance, and where: up to 10,000 rows boosting holds out none to stop early, and
LightGBM never does. One run stands for every seed."""

NAMES = tuple(dict.fromkeys((*METHODS, *PEERS, *CALIBRATED.values(), *TEXTS)))


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

    import sklearn.ensemble  # noqa: F401 - imports are not the method's cost
    import torch

    import credibly.train.auto  # noqa: F401

    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    cell = {"set": name, "method": method, "seed": seeds[0]}
    if name in TEXT_SETS:
        from benchmarks.studies import text

        probabilities, targets, cost = text.predicted(name, TEXTS[method], seeds[0])
        cost["all MB"] = _peak()
        yield cell | _measured(probabilities, targets) | cost
        return
    before, started = _peak(), time.process_time()
    if method in METHODS:
        probabilities, more = METHODS[method](name, seeds[0])
        cost = _cost(started, before)
        figures = _measured(probabilities, rows_of(name)[3]) if len(probabilities) else {}
        yield cell | figures | cost | more
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
        known = TEXTS if name in TEXT_SETS else (*METHODS, *PEERS, *CALIBRATED.values())
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


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.studies.default")
    parser.add_argument("sets", nargs="*", default=list(ALL_SETS))
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--methods", default=";".join(NAMES), help="separated by ;")
    parser.add_argument("--table", action="store_true", help="print the tables of the records")
    parser.add_argument("--summary", action="store_true", help="print the table in short")
    parser.add_argument("--write", action="store_true", help="write them into their pages")
    parser.add_argument("--one", nargs=3, metavar=("SET", "METHOD", "SEEDS"))
    given = parser.parse_args()
    if given.one:
        name, method, seeds = given.one
        for line in one(name, method, [int(seed) for seed in seeds.split(",")]):
            print(json.dumps(line), flush=True)
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
