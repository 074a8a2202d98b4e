"""What 0.9 means: a network trained with ASL, before and after calibration. The README's figure.

    python -m benchmarks.studies.headline            # three seeds, then docs/img/what-0.9-means.svg
    python -m benchmarks.studies.headline --peers PYTHON      # also the guarantee of MAPIE

An MLP on the COCO 2014 features is trained as the official code of the asymmetric loss does it
(γ− 4, γ+ 0, margin 0.05, weights detached) on the published training rows. Half of the validation
rows choose and fit the calibration (``cr.calibrate_scores``' default), the other half judges. Each
seed is a line of ``headline.jsonl``; the same command continues where it stopped. The guarantee is
a recall of 90 % on average: each of 500 draws fits the rule on 500 rows with labels and counts on
5,000 others. ``headline_peers.jsonl`` has it for MAPIE, on the same draws of one seed.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import tempfile
from pathlib import Path
from typing import Any

import matplotlib as mpl
import numpy as np
from matplotlib.figure import Figure
from scipy.special import expit

import credibly as cr
from benchmarks.studies.training import data_file, mlp, scores_of, train

RECORDS = Path(__file__).with_suffix(".jsonl")
PEERS = Path(__file__).with_name("headline_peers.jsonl")
PICTURE = Path(__file__).parents[2] / "docs" / "img" / "what-0.9-means.svg"
LOSS = "asl(gamma_neg=4, gamma_pos=0, margin=0.05, detach_weight=true)"
EPOCHS, SEEDS, QUERIES = 4, (0, 1, 2), 2000
NEAR = (0.85, 0.95)
"""Probabilities that a person reads as 0.9."""
ROWS, DRAWS, RECALL = 500, 500, 0.9
BINS = np.linspace(0, 1, 11)


def main() -> None:
    """Run the seeds that have no record, and draw the figure."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.studies.headline")
    parser.add_argument("--peers", help="a Python with MAPIE")
    if python := parser.parse_args().peers:
        PEERS.write_text(json.dumps(beside_mapie(python, SEEDS[0])) + "\n", encoding="utf-8")
    done = {line["seed"] for line in records()}
    for seed in SEEDS:
        if seed not in done:
            line = {"seed": seed, **measured(seed)}
            with RECORDS.open("a", encoding="utf-8") as file:
                file.write(json.dumps(line) + "\n")
            print(json.dumps(line), flush=True)
    draw(records())


def records(path: Path = RECORDS) -> list[dict[str, Any]]:
    """Return the lines of a record."""
    if not path.exists():
        return []
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


def measured(seed: int) -> dict[str, Any]:
    """Train one network; return what its sigmoid and its calibrated probabilities are worth."""
    chosen, given, truth = judged(seed)
    queries = three_labels(truth, seed)
    found: dict[str, Any] = {"chosen": chosen}
    for name, probabilities in given.items():
        found[name] = {
            **reliability(probabilities, truth),
            **search(probabilities, truth, queries),
        }
    found["recall guarantee"] = guarantee(given["calibrated"], truth, seed)
    return found


def judged(seed: int) -> tuple[str, dict[str, np.ndarray], np.ndarray]:
    """Return the calibration chosen, and both probabilities and truth of the rows that judge."""
    stored = np.load(data_file("coco80-features.npz"), allow_pickle=False)
    features = stored["features"].astype(np.float32) / 255
    targets, test = stored["targets"].astype(np.float32), stored["split"] == 1
    network = mlp(features.shape[1], targets.shape[1], seed=seed)
    loss = cr.losses.from_name(LOSS)
    train(network, loss, features[~test], targets[~test], seed=seed, epochs=EPOCHS)
    scores, truth = scores_of(network, features[test]).float().numpy(), stored["targets"][test]
    order = np.random.default_rng(seed).permutation(len(scores))
    fit, judge = order[: len(order) // 2], order[len(order) // 2 :]
    pipeline = cr.Pipeline(LOSS)
    pipeline.calibrate(scores[fit], truth[fit])
    assert pipeline.calibrator is not None
    given = {"sigmoid": expit(scores[judge]), "calibrated": pipeline.probabilities(scores[judge])}
    return f"{pipeline.link} + {pipeline.calibrator.name}", given, truth[judge]


def reliability(probabilities: np.ndarray, truth: np.ndarray) -> dict[str, Any]:
    """Return how often a label is there when its probability is near 0.9, and the whole curve."""
    near = (probabilities >= NEAR[0]) & (probabilities <= NEAR[1])
    which = np.digitize(probabilities, BINS[1:-1])
    curve = [
        [float(probabilities[which == b].mean()), float(truth[which == b].mean())]
        for b in range(len(BINS) - 1)
    ]
    return {
        "there when it says 0.9": float(truth[near].mean()),
        "entries": int(near.sum()),
        "curve": curve,
        "ACE": float(cr.metrics.calibration_error(probabilities, truth, "ace", min_count=30)),
        "NLL": float(cr.metrics.log_loss(probabilities, truth)),
    }


def three_labels(truth: np.ndarray, seed: int) -> np.ndarray:
    """Draw searches for three labels at once that at least one row satisfies."""
    generator = np.random.default_rng(seed)
    rich = np.flatnonzero(truth.sum(axis=1) >= 3)
    drawn = {
        tuple(sorted(generator.choice(np.flatnonzero(truth[row]), 3, replace=False).tolist()))
        for row in generator.choice(rich, QUERIES)
    }
    return np.array(sorted(drawn))


def search(probabilities: np.ndarray, truth: np.ndarray, queries: np.ndarray) -> dict[str, float]:
    """Return mAP of searches for three labels, and how many rows are expected and real."""
    precisions, expected, real = [], 0.0, 0
    for query in queries:
        product, hits = probabilities[:, query].prod(axis=1), truth[:, query].all(axis=1)
        precisions.append(float(cr.metrics.average_precision(product[:, None], hits[:, None])[0]))
        expected, real = expected + float(product.sum()), real + int(hits.sum())
    return {"mAP": float(np.mean(precisions)), "expected": expected, "real": real}


def guarantee(probabilities: np.ndarray, truth: np.ndarray, seed: int) -> dict[str, float]:
    """Return the mean recall of sets whose rule was fitted on few rows, over many draws."""
    generator = np.random.default_rng(seed)
    recalls, sizes = [], []
    for _ in range(DRAWS):
        order = generator.permutation(len(truth))
        few, rest = order[:ROWS], order[ROWS : ROWS + 5000]
        rule = cr.decide.Recall(RECALL, guarantee="expected").fit(probabilities[few], truth[few])
        sets, present = rule.predict(probabilities[rest]), truth[rest] > 0
        some = present.any(axis=1)
        recalls.append(float(((sets & present).sum(1)[some] / present.sum(1)[some]).mean()))
        sizes.append(float(sets.sum(axis=1).mean()))
    return {"recall": float(np.mean(recalls)), "size": float(np.mean(sizes))}


def beside_mapie(python: str, seed: int) -> dict[str, Any]:
    """Return recalls and sizes of our rule and of MAPIE's on the same draws of labelled rows."""
    _, given, truth = judged(seed)
    some = truth.any(axis=1)
    probabilities, present = given["calibrated"][some], truth[some] > 0
    generator = np.random.default_rng(seed)
    orders = [generator.permutation(len(present))[: ROWS + 5000] for _ in range(DRAWS)]
    few = np.array([order[:ROWS] for order in orders])
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "rows.npz"
        np.savez(path, probabilities=probabilities, truth=present.astype(np.int8), draws=few)
        command = [python, "-m", "benchmarks.studies.peer_mapie", str(path)]
        answer = json.loads(subprocess.run(command, check=True, capture_output=True).stdout)
    found: dict[str, list[list[float]]] = {"credibly": [], f"MAPIE {answer['version']}": []}
    ours, theirs = found.values()
    for order, threshold in zip(orders, answer["thresholds"], strict=True):
        fitted, rest = order[:ROWS], order[ROWS:]
        rule = cr.decide.Recall(RECALL, guarantee="expected")
        rule = rule.fit(probabilities[fitted], present[fitted])
        chosen = (rule.predict(probabilities[rest]), probabilities[rest] > threshold)
        for line, sets in zip((ours, theirs), chosen, strict=True):
            recall = (sets & present[rest]).sum(1) / present[rest].sum(1)
            line.append([float(recall.mean()), float(sets.sum(1).mean())])
    return {
        name: {
            "recall": float(np.mean(line, axis=0)[0]),
            "standard error": float(np.std(line, axis=0)[0] / np.sqrt(DRAWS)),
            "below 0.9": float(np.mean([recall < RECALL for recall, _ in line])),
            "size": float(np.mean(line, axis=0)[1]),
            "draws": len(line),
        }
        for name, line in found.items()
    }


def draw(lines: list[dict[str, Any]], picture: Path = PICTURE) -> None:
    """Draw the reliability of both, expected against real hits, and the recall beside MAPIE's."""
    mpl.rcParams["svg.hashsalt"] = "credibly"
    figure = Figure(figsize=(7, 5.6), layout="constrained")
    places = figure.subplot_mosaic([["left", "left"], ["right", "last"]], height_ratios=[3, 2])
    left, right, last = (places[name] for name in ("left", "right", "last"))
    left.plot([0, 1], [0, 1], color="#999999", linewidth=1, linestyle="--")
    for name, colour in (("sigmoid", "#d0843a"), ("calibrated", "#3f51b5")):
        curve = np.mean([line[name]["curve"] for line in lines], axis=0)
        share = np.mean([line[name]["there when it says 0.9"] for line in lines])
        left.plot(*curve.T, marker="o", color=colour, label=f"{name}: 0.9 means {share:.2f}")
        hits = np.mean([line[name]["expected"] / line[name]["real"] for line in lines])
        right.bar(name, hits, color=colour)
        right.text(name, hits, f"{hits:.2g} ×", ha="center", va="bottom")
    right.axhline(1, color="#999999", linewidth=1, linestyle="--")
    left.set(xlabel="probability given", ylabel="share of labels really there")
    left.legend(loc="upper left", frameon=False)
    right.set(title="Search for three labels", ylabel="expected hits / real hits", ylim=(0, 58))
    for (name, found), colour in zip(
        records(PEERS)[0].items(), ("#3f51b5", "#777777"), strict=True
    ):
        last.bar(name, 100 * found["recall"], color=colour)
        last.text(
            name, 100 * found["recall"], f"{100 * found['recall']:.1f} %", ha="center", va="bottom"
        )
    last.axhline(100 * RECALL, color="#999999", linewidth=1, linestyle="--")
    last.set(title="Sets that promise 90 % recall", ylabel="recall, %, 500 draws")
    last.set_ylim(0, 108)
    figure.savefig(picture, metadata={"Date": None})


if __name__ == "__main__":
    main()
