"""Retrieval on PASCAL VOC 2012 features: mAP by number of conditions, expected against real hits.

Linear heads on frozen features, one training recipe for every loss, official train and validation
images; 20 % of the train images are held out for the calibrator and the joint model.

    python -m benchmarks.studies.retrieval_voc [--seeds 3] [--epochs 12] [--figure FILE.svg]

The data is looked for in CREDIBLY_DATA, then in ../shared/data beside the repository.
"""

from __future__ import annotations

import argparse
import json
import os
from concurrent.futures import ProcessPoolExecutor
from itertools import combinations
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import numpy as np
import torch

import credibly as cr

RECIPES = {
    "bce": "bce",
    "asl, raw sigmoid": "asl(detach_weight=true)",
    "asl, right link": "asl(detach_weight=true)",
    "twl, raw sigmoid": "twl",
    "spa": "spa",
    "spa+lpr": "spa+lpr",
}
Arrays = dict[str, np.ndarray]


def run(seeds: int = 3, epochs: int = 12, budget_seconds: float = 1.0) -> dict[str, Any]:
    """Results by recipe, one per seed, as plain values; seeds run side by side."""
    results: dict[str, Any] = {}
    with ProcessPoolExecutor(seeds, mp_context=get_context("spawn")) as pool:
        jobs = [pool.submit(one_seed, seed, epochs, budget_seconds) for seed in range(seeds)]
        for job in jobs:
            for recipe, found in job.result().items():
                results.setdefault(recipe, []).append(found)
    return results


def one_seed(seed: int, epochs: int, budget_seconds: float) -> dict[str, Any]:
    """Train every loss once and measure every recipe, before and after affine calibration."""
    torch.set_num_threads(1)
    data, results = voc(seed), {}
    trained: dict[str, Arrays] = {}
    for recipe, name in RECIPES.items():
        if name not in trained:
            trained[name] = train(cr.losses.from_name(name, num_labels=20), data, epochs, seed)
        for calibrated in (False, True):
            key = recipe + (" + affine" if calibrated else "")
            results[key] = measure(recipe, name, trained[name], data, calibrated, budget_seconds)
            print(f"seed {seed}, {key}: {json.dumps(results[key])}", flush=True)
    return results


def voc(seed: int) -> Arrays:
    """Standardised features and targets of the fitted, held-out and test rows."""
    beside = Path(__file__).resolve().parents[3] / "shared" / "data"
    file = Path(os.environ.get("CREDIBLY_DATA", beside)) / "voc2012.npz"
    arrays = np.load(file, allow_pickle=False)
    train_rows = np.random.default_rng(seed).permutation(np.flatnonzero(arrays["split"] == 0))
    cut = int(0.8 * len(train_rows))
    rows = {"fit": train_rows[:cut], "held": train_rows[cut:]}
    rows["test"] = np.flatnonzero(arrays["split"] == 1)
    mean, spread = arrays["features"][rows["fit"]].mean(0), arrays["features"][rows["fit"]].std(0)
    data: Arrays = {}
    for part, chosen in rows.items():
        data[part] = ((arrays["features"][chosen] - mean) / (spread + 1e-6)).astype(np.float32)
        data[part + " targets"] = arrays["targets"][chosen].astype(np.int8)
    return data


def train(loss: Any, data: Arrays, epochs: int, seed: int) -> Arrays:
    """Scores of held-out and test rows at the epoch with the best held-out mAP."""
    torch.manual_seed(seed)
    features, targets = torch.from_numpy(data["fit"]), torch.from_numpy(data["fit targets"]).float()
    head = torch.nn.Linear(features.shape[1], targets.shape[1])
    torch.nn.init.zeros_(head.weight)
    if loss.has_link:
        known = (targets >= 0).sum(0)
        rates = ((targets == 1).sum(0) + 0.5) / (known + 1)
        with torch.no_grad():
            head.bias.copy_(loss.initial_scores(rates))
    optimizer = torch.optim.AdamW(head.parameters(), lr=1e-3, weight_decay=1e-2)
    best, kept = -1.0, {}
    for _ in range(epochs):
        for rows in torch.randperm(len(features)).split(128):
            dropped = torch.nn.functional.dropout(features[rows], 0.5)
            optimizer.zero_grad()
            loss(head(dropped), targets[rows]).backward()
            optimizer.step()
        with torch.no_grad():
            scores = {part: head(torch.from_numpy(data[part])).numpy() for part in ("held", "test")}
        value = float(cr.metrics.mean_average_precision(scores["held"], data["held targets"]))
        if value > best:
            best, kept = value, scores
    return kept


def probabilities(recipe: str, name: str, scores: Arrays, data: Arrays, calibrated: bool) -> Arrays:
    """Of held-out and test rows: by the loss's own link or a plain sigmoid, then ± affine."""
    loss = cr.losses.from_name(name, num_labels=20)
    log_odds = {
        part: value if "raw" in recipe else loss.log_odds(torch.from_numpy(value)).numpy()
        for part, value in scores.items()
    }
    if calibrated:
        affine = cr.calibrate.Affine().fit(log_odds["held"], data["held targets"])
        log_odds = {part: affine.transform(value) for part, value in log_odds.items()}
    with np.errstate(over="ignore"):
        return {
            part: (1 / (1 + np.exp(-value.astype(np.float64)))).astype(np.float32)
            for part, value in log_odds.items()
        }


def measure(
    recipe: str, name: str, scores: Arrays, data: Arrays, calibrated: bool, budget: float
) -> dict[str, Any]:
    """mAP by conditions, expected over real hits; with affine also what ``Joint`` makes of it."""
    chances = probabilities(recipe, name, scores, data, calibrated)
    truth = data["test targets"]
    found = cr.metrics.retrieval_map(chances["test"], truth, budget_seconds=budget)
    result: dict[str, Any] = {
        "map": [round(100 * found.by_conditions[k], 3) for k in range(1, 6)],
        "expected over real": {w: round(found.mass_ratio(w, w), 4) for w in (1, 2, 3)},
    }
    if calibrated:
        result |= joint(chances, data)
    return result


def joint(chances: Arrays, data: Arrays) -> dict[str, Any]:
    """Hits of every label, every pair and 190 triples, and the ranking of drawn queries."""
    labels = [f"{place:02d}" for place in range(20)]
    fitted = cr.retrieve.Joint(1).fit(chances["held"], data["held targets"], labels)
    truth, rng = data["test targets"], np.random.default_rng(0)
    result: dict[str, Any] = {
        "independent over real": {},
        "joint over real": {},
        "drawn map": [],
        "drawn map joint": [],
    }
    misses = {"independent": [], "joint": []}
    for wanted in (1, 2, 3):
        sets = list(combinations(range(20), wanted))
        sets = [sets[i] for i in rng.permutation(len(sets))[:190]]
        totals = np.zeros(3)
        for chosen in sets:
            query = cr.retrieve.Query(tuple(labels[place] for place in chosen))
            known = (truth[:, chosen] >= 0).all(1)
            hits = int((truth[known][:, chosen] == 1).all(1).sum())
            alone, together = (
                cr.retrieve.probability(query, chances["test"][known], labels, model).sum()
                for model in (None, fitted)
            )
            totals += alone, together, hits
            misses["independent"].append(abs(alone - hits) / np.sqrt(hits + 1))
            misses["joint"].append(abs(together - hits) / np.sqrt(hits + 1))
        result["independent over real"][wanted] = round(totals[0] / totals[2], 4)
        result["joint over real"][wanted] = round(totals[1] / totals[2], 4)
    result["miss"] = {key: round(float(np.mean(value)), 4) for key, value in misses.items()}
    for conditions in range(1, 6):
        alone, together = drawn(chances["test"], truth, labels, fitted, conditions, rng)
        result["drawn map"].append(round(100 * alone, 3))
        result["drawn map joint"].append(round(100 * together, 3))
    return result


def drawn(
    chances: np.ndarray, truth: np.ndarray, labels: list[str], fitted: Any, size: int, rng: Any
) -> tuple[float, float]:
    """Mean average precision of 50 drawn queries, without and with ``fitted``."""
    found: list[tuple[float, float]] = []
    while len(found) < 50:
        chosen = rng.choice(20, size, replace=False)
        signs = rng.random(size) < 0.5
        known = (truth[:, chosen] >= 0).all(1)
        real = known & (truth[:, chosen] == signs).all(1)
        if not signs.any() or not real.any():
            continue
        query = cr.retrieve.Query(
            tuple(labels[x] for x in chosen[signs]), tuple(labels[x] for x in chosen[~signs])
        )
        scores = [cr.retrieve.probability(query, chances[known], labels, m) for m in (None, fitted)]
        relevant = real[known][:, None].astype(np.int8)
        found.append(
            tuple(float(cr.metrics.average_precision(s[:, None], relevant)[0]) for s in scores)
        )
    alone, together = np.mean(found, axis=0)
    return float(alone), float(together)


def table(results: dict[str, Any]) -> str:
    """Mean ± standard deviation over seeds, as Markdown."""
    lines = ["| recipe | " + " | ".join(f"{k}" for k in range(1, 6)) + " | 1 | 2 | 3 |"]
    lines.append("|---|" + "---|" * 8)
    for recipe, runs in results.items():
        maps = np.array([each["map"] for each in runs])
        cells = [
            f"{m:.1f} ± {s:.1f}" for m, s in zip(maps.mean(0), maps.std(0, ddof=1), strict=True)
        ]
        ratios = np.array([list(each["expected over real"].values()) for each in runs]).mean(0)
        lines.append(f"| {recipe} | " + " | ".join(cells + [f"{x:.2f}" for x in ratios]) + " |")
    return "\n".join(lines)


def joint_table(results: dict[str, Any]) -> str:
    """What the joint model changes, means over seeds."""
    lines = ["| recipe | 1 | 2 | 3 | miss | " + " | ".join(map(str, range(1, 6))) + " |"]
    lines.append("|---|" + "---|" * 9)
    for recipe, runs in results.items():
        if "miss" not in runs[0]:
            continue

        def mean(key: str, runs: Any = runs) -> np.ndarray:
            values = [each[key] for each in runs]
            return np.mean([list(v.values()) if isinstance(v, dict) else v for v in values], axis=0)

        ratios = zip(mean("independent over real"), mean("joint over real"), strict=True)
        cells = [f"{one:.2f} → {two:.2f}" for one, two in ratios]
        cells.append("{:.2f} → {:.2f}".format(*mean("miss")))
        maps = zip(mean("drawn map"), mean("drawn map joint"), strict=True)
        cells += [f"{one:.1f} → {two:.1f}" for one, two in maps]
        lines.append(f"| {recipe} | " + " | ".join(cells) + " |")
    return "\n".join(lines)


def figure(results: dict[str, Any], path: str) -> None:
    """mAP against number of conditions, and expected over real hits against wanted labels."""
    import matplotlib

    matplotlib.use("svg")
    import matplotlib.pyplot as plt

    plt.rcParams["svg.hashsalt"] = "credibly"
    drawing, (left, right) = plt.subplots(1, 2, figsize=(10, 4), layout="constrained")
    for place, recipe in enumerate(RECIPES):
        raw, calibrated = results[recipe], results[recipe + " + affine"]
        for runs, style in ((raw, "--"), (calibrated, "-")):
            maps = np.mean([each["map"] for each in runs], axis=0)
            name = recipe if style == "-" else None
            left.plot(range(1, 6), maps, style, marker=".", color=f"C{place}", label=name)
            ratios = [list(each["expected over real"].values()) for each in runs]
            right.plot([1, 2, 3], np.mean(ratios, axis=0), style, marker=".", color=f"C{place}")
        ratios = [list(each["joint over real"].values()) for each in calibrated]
        right.plot([1, 2, 3], np.mean(ratios, axis=0), ":", marker="x", color=f"C{place}")
    left.set(xlabel="conditions", ylabel="mAP, %", xticks=range(1, 6))
    left.legend(title="dashed: before affine", fontsize="small")
    right.axhline(1, color="black", linewidth=0.8)
    right.set(xlabel="wanted labels", ylabel="expected / real hits", yscale="log", xticks=[1, 2, 3])
    right.set_title("crosses: joint", fontsize="small")
    Path(path).parent.mkdir(parents=True, exist_ok=True)
    drawing.savefig(path, metadata={"Date": None})


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--epochs", type=int, default=12)
    parser.add_argument("--figure")
    options = parser.parse_args()
    results = run(options.seeds, options.epochs)
    print(table(results))
    print(joint_table(results))
    if options.figure:
        figure(results, options.figure)


if __name__ == "__main__":
    main()
