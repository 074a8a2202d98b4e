"""Texts with zero, one or many labels, beside scikit-learn's TF-IDF and logistic regression.

    python -m benchmarks.studies.text reuters      Reuters-21578, ModApte split, 115 topics
    python -m benchmarks.studies.text goemotions   GoEmotions, published split, 28 emotions
    python -m benchmarks.studies.text banking      Banking77, published split, one of 77 intents
    python -m benchmarks.studies.text average-k    sets of K intents on average, by loss

Every method trains on the training rows, in a process of its own with one thread: CPU seconds
from texts to the probabilities of the test rows, and memory beyond the largest before it, that of
imports, compilation (a run on 300 rows) and of the data as Python lists. The
peer is ``TfidfVectorizer`` and one-vs-rest ``LogisticRegression``, calibrated by
``CalibratedClassifierCV`` (sigmoid, three folds) for labels with rows in every fold; C = 1 is the
default, C = 10 a weaker penalty; "chosen" is the C of seven, one for all labels, with the least log
loss over three folds, as ``tfidf`` chooses its L2 weight. F1 is that of labels of at least 0.5,
and, as mean over labels, also of labels above a threshold per label, by one rule for all methods.
Seeds move the folds.

The files are looked for in CREDIBLY_DATA: ``reuters21578.jsonl.gz`` (id, split, title, body,
topics); ``goemotions-{train,dev,test}.tsv`` and ``goemotions-labels.txt`` as published;
``banking-{train,test}.csv`` as published. Topics of three test documents that no training document
has are left out.
"""

from __future__ import annotations

import gzip
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

from benchmarks.studies.training import data_file, markdown  # noqa: E402

SEEDS = range(3)
METHODS = (
    *("credibly", "credibly per-label", "credibly spa per-label"),
    *("scikit-learn C=1", "scikit-learn C=10", "scikit-learn C=chosen"),
)
STRENGTHS = (0.3, 1.0, 3.0, 10.0, 30.0, 100.0, 300.0)
NUMBERS = ("NLL", "ACE", "mAP@y", "mAP@x", "micro F1", "macro F1", "macro F1, own", "CPU s", "MB")
LOWER = ("NLL", "ACE", "CPU s", "MB")
SHOWN = (
    *("NLL × 1000", "ACE %", "mAP@y %", "mAP@x %", "micro F1 %", "macro F1 %"),
    *("macro F1 at own thresholds %", "CPU s", "MB"),
)
FACTOR = dict.fromkeys(NUMBERS, 100) | {"NLL": 1000, "CPU s": 1, "MB": 1}
Rows = tuple[list[str], list[list[str]], list[str]]
"""Texts, the labels of each, and its part."""


def reuters() -> Rows:
    with gzip.open(data_file("reuters21578.jsonl.gz"), "rt", encoding="utf-8") as file:
        records = [json.loads(line) for line in file]
    known = {topic for each in records if each["split"] == "train" for topic in each["topics"]}
    texts = [f"{each['title']}\n{each['body']}" for each in records]
    topics = [[topic for topic in each["topics"] if topic in known] for each in records]
    return texts, topics, [each["split"] for each in records]


def goemotions() -> Rows:
    names = data_file("goemotions-labels.txt").read_text(encoding="utf-8").split()
    texts, labels, parts = [], [], []
    for part in ("train", "dev", "test"):
        lines = data_file(f"goemotions-{part}.tsv").read_text(encoding="utf-8").splitlines()
        for line in lines:
            text, numbers, _ = line.split("\t")
            texts.append(text)
            labels.append([names[int(number)] for number in numbers.split(",")])
            parts.append("test" if part == "test" else "train")  # the peer holds nothing out
    return texts, labels, parts


def banking() -> Rows:
    import csv

    texts, labels, parts = [], [], []
    for part in ("train", "test"):
        with data_file(f"banking-{part}.csv").open(encoding="utf-8", newline="") as file:
            for row in csv.DictReader(file):
                texts.append(row["text"])
                labels.append([row["category"]])
                parts.append(part)
    return texts, labels, parts


SETS: dict[str, Callable[[], Rows]] = {
    "reuters": reuters,
    "goemotions": goemotions,
    "banking": banking,
}


def write_jsonl(rows: Rows, path: Path) -> None:
    """Write rows in the layout that ``credibly train`` reads."""
    with path.open("w", encoding="utf-8") as file:
        for text, labels, part in zip(*rows, strict=True):
            file.write(json.dumps({"text": text, "labels": labels, "split": part}) + "\n")


# One method, in a process of its own ------------------------------------------------------------


def predicted(name: str, method: str, seed: int) -> tuple[np.ndarray, np.ndarray, dict[str, float]]:
    """Train and predict; return probabilities and truth of the test rows, and the cost."""
    run = _sklearn if method.startswith("scikit-learn") else _credibly
    return run(SETS[name](), method, seed)


def one(name: str, method: str, seed: int, out: Path) -> None:
    """Write what one method predicts, the truth and the cost."""
    probabilities, targets, cost = predicted(name, method, seed)
    np.savez(out, probabilities=probabilities, targets=targets, cost=json.dumps(cost))


def _credibly(rows: Rows, method: str, seed: int) -> tuple[np.ndarray, np.ndarray, dict[str, Any]]:
    import credibly as cr
    from credibly.train import fit, recipe

    with tempfile.TemporaryDirectory() as folder:
        loss = "spa" if "spa" in method else "auto"
        few = tuple(column[:300] for column in rows)
        write_jsonl((*few[:2], ["train"] * 300), Path(folder, "few.jsonl"))
        # Imports and compilation are not the method's cost.
        fit(cr.data.load(f"{folder}/few.jsonl"), recipe(loss=loss), folder=f"{folder}/few")
        write_jsonl(rows, Path(folder, "rows.jsonl"))
        del rows
        data = cr.data.load(f"{folder}/rows.jsonl", seed=seed)
        meter = _Meter()
        calibrate = "per-label" if "per-label" in method else "auto"
        settings = recipe(loss=loss, calibrate=calibrate, split_seed=seed)
        run = fit(data, settings, folder=f"{folder}/run", seed=seed)
        test = data.part("test")
        probabilities = run.predict(test).probabilities
        cost = meter.read()
    return probabilities, test.targets, cost


def _sklearn(rows: Rows, method: str, seed: int) -> tuple[np.ndarray, np.ndarray, dict[str, Any]]:
    from sklearn.calibration import CalibratedClassifierCV
    from sklearn.feature_extraction.text import TfidfVectorizer
    from sklearn.linear_model import LogisticRegression
    from sklearn.model_selection import StratifiedKFold

    texts, labels, parts = rows
    train = np.array([part == "train" for part in parts])
    names = sorted(
        {label for each, inside in zip(labels, train, strict=True) if inside for label in each}
    )
    targets = np.array([[name in each for name in names] for each in map(set, labels)], np.float32)
    meter = _Meter()
    vectorizer = TfidfVectorizer(sublinear_tf=True, min_df=2)
    inputs = vectorizer.fit_transform([text for text, own in zip(texts, train, strict=True) if own])
    test = vectorizer.transform([text for text, own in zip(texts, train, strict=True) if not own])
    named = method.partition("=")[2]
    strength = _strength(inputs, targets[train], seed) if named == "chosen" else float(named)
    probabilities = np.empty((test.shape[0], len(names)), np.float32)
    for column in range(len(names)):
        truth = targets[train, column]
        model: Any = LogisticRegression(C=strength, solver="liblinear")
        if min(truth.sum(), (1 - truth).sum()) >= 3:
            folds = StratifiedKFold(3, shuffle=True, random_state=seed)
            model = CalibratedClassifierCV(model, method="sigmoid", cv=folds, ensemble=False)
        probabilities[:, column] = model.fit(inputs, truth).predict_proba(test)[:, 1]
    return probabilities, targets[~train], meter.read()


def _strength(inputs: Any, targets: np.ndarray, seed: int) -> float:
    """Return the C with the least log loss on rows left out, labels known in every fold."""
    from sklearn.linear_model import LogisticRegression
    from sklearn.model_selection import KFold

    costs = dict.fromkeys(STRENGTHS, 0.0)
    for fit, left_out in KFold(3, shuffle=True, random_state=seed).split(inputs):
        for truth, judged in zip(targets[fit].T, targets[left_out].T, strict=True):
            if 0 < truth.sum() < len(truth):
                for strength in STRENGTHS:
                    model = LogisticRegression(C=strength, solver="liblinear")
                    odds = model.fit(inputs[fit], truth).decision_function(inputs[left_out])
                    costs[strength] += float((np.logaddexp(0, odds) - judged * odds).sum())
    return min(costs, key=lambda strength: costs[strength])


class _Meter:
    """CPU seconds, and the growth of the largest memory, since it was made."""

    def __init__(self) -> None:
        self.memory, self.seconds = self._peak(), time.process_time()

    def read(self) -> dict[str, float]:
        return {
            "CPU s": time.process_time() - self.seconds,
            "MB": self._peak() - self.memory,
        }

    @staticmethod
    def _peak() -> float:
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


# All of them ------------------------------------------------------------------------------------


def numbers(probabilities: np.ndarray, targets: np.ndarray) -> dict[str, float]:
    """Return the figures of merit, by the same functions for every method."""
    from credibly import metrics
    from credibly.targets import Targets

    found = metrics.summary(probabilities, Targets(targets), sets=probabilities >= 0.5)
    labelled = targets.sum(axis=0) > 0
    sets = probabilities >= 0.5
    return {
        **{name: float(found[name]) for name in ("NLL", "ACE", "mAP@y", "mAP@x")},
        "micro F1": float(metrics.f1(sets, targets)),
        "macro F1": float(metrics.f1(sets[:, labelled], targets[:, labelled], "mean_of_f1s")),
        "macro F1, own": float(
            metrics.f1(
                best_expected_f1(probabilities[:, labelled]), targets[:, labelled], "mean_of_f1s"
            )
        ),
    }


def best_expected_f1(probabilities: np.ndarray) -> np.ndarray:
    """Return sets by the threshold of each label with the highest F1 that its values expect.

    No truth is used. Rare labels seldom reach 0.5, however well they are told apart.
    """
    order = np.argsort(-probabilities, axis=0, kind="stable")
    found = np.take_along_axis(probabilities, order, axis=0).cumsum(axis=0, dtype=np.float64)
    counts = np.arange(1, len(probabilities) + 1)[:, None]
    most = (2 * found / (counts + found[-1])).argmax(axis=0)
    places = np.argsort(order, axis=0, kind="stable")
    return places <= most


def compare(name: str, methods: tuple[str, ...] = METHODS) -> dict[str, list[dict[str, float]]]:
    """Run every method for every seed; return its numbers, one entry per seed."""
    results: dict[str, list[dict[str, float]]] = {method: [] for method in methods}
    with tempfile.TemporaryDirectory() as folder:
        for seed in SEEDS:
            for method in methods:
                out = Path(folder, "found.npz")
                command = [sys.executable, "-W", "ignore", "-m", "benchmarks.studies.text", "--one"]
                subprocess.run([*command, name, method, str(seed), str(out)], check=True)
                with np.load(out, allow_pickle=False) as found:
                    entry = numbers(found["probabilities"], found["targets"])
                    entry |= json.loads(str(found["cost"]))
                results[method].append(entry)
                print(f"{name}, {method}, seed {seed}: {_shown([entry])}", file=sys.stderr)
    return results


def _shown(entries: list[dict[str, float]]) -> list[str]:
    cells = []
    for name in NUMBERS:
        values = np.array([entry[name] for entry in entries]) * FACTOR[name]
        spread = f" ± {values.std(ddof=1):.2g}" if len(values) > 1 else ""
        cells.append(f"{values.mean():.4g}{spread}")
    return cells


def behind(results: dict[str, list[dict[str, float]]], method: str, peer: str) -> list[str]:
    """Return the numbers in which ``method`` is worse by more than twice the seeds' spread."""
    worse = []
    for name in NUMBERS:
        ours, theirs = ([entry[name] for entry in results[each]] for each in (method, peer))
        gap = np.mean(ours) - np.mean(theirs)
        gap = gap if name in LOWER else -gap
        noise = 2 * float(np.hypot(np.std(ours, ddof=1), np.std(theirs, ddof=1)))
        if gap > max(noise, 1e-9):
            worse.append(name)
    return worse


def average_k(name: str = "banking", sizes: tuple[float, ...] = (1.0, 2.0, 5.0)) -> None:
    """Print how often sets of K labels on average hold the true one, by loss, on single labels.

    Sets are thresholds fitted on held-out rows (``AverageSize``), of K labels on average.
    """
    import credibly as cr
    from credibly.train import fit, recipe

    table = []
    for loss in ("softmax", "bce", "spa", "avgk"):
        cells: list[list[float]] = [[] for _ in sizes]
        for seed in AVERAGE_K_SEEDS:
            with tempfile.TemporaryDirectory() as folder:
                write_jsonl(SETS[name](), Path(folder, "rows.jsonl"))
                data = cr.data.load(f"{folder}/rows.jsonl", seed=seed)
                settings = recipe(loss=loss, average_size=2.0, split_seed=seed, folds=0)
                run = fit(data, settings, folder=f"{folder}/run", seed=seed)
                held_out, test = data.part("calibration"), data.part("test")
                fitting, judged = (run.predict(part).probabilities for part in (held_out, test))
            for place, size in enumerate(sizes):
                sets = cr.decide.AverageSize(size).fit(fitting).predict(judged)
                cells[place].append(float(cr.metrics.set_coverage(sets, test.targets)))
        table.append([loss, *(f"{100 * np.mean(values):.2f}" for values in cells)])
        print(table[-1], file=sys.stderr)
    print(markdown(["loss", *(f"coverage at K = {size:g}, %" for size in sizes)], table))


AVERAGE_K_SEEDS = range(2)


def main(names: list[str]) -> None:
    if names == ["average-k"]:
        average_k()
        return
    for name in names or list(SETS):
        results = compare(name)
        rows = [[method, *_shown(entries)] for method, entries in results.items()]
        print(f"\n{name}, seeds {SEEDS.start} to {SEEDS.stop - 1}\n")
        print(markdown(["method", *SHOWN], rows))
        for method in METHODS[:3]:
            for peer in METHODS[3:]:
                worse = ", ".join(behind(results, method, peer)) or "nothing"
                print(f"\n{method} is behind {peer} in: {worse}")
        sys.stdout.flush()


if __name__ == "__main__":
    if sys.argv[1:2] == ["--one"]:
        one(sys.argv[2], sys.argv[3], int(sys.argv[4]), Path(sys.argv[5]))
    else:
        main(sys.argv[1:])
