"""Joint probabilities: independence, set sizes, label mixtures and the joint loss, on test rows.

``python -m benchmarks.studies.joint DATA_DIR [SET …] [--seeds 0,1,2,3,4] [--out FILE]``

DATA_DIR holds ``voc2012.npz``, ``yeast.npz`` and so on; ``digits`` and ``synthetic`` are made. The
networks are those of ``joint_networks``; everything else is fitted and chosen on the held-out fifth
of the training rows and measured on the official test rows. Each finished (set, seed, method) is a
line of the output file; the same command continues where it stopped and prints means and paired
95 % intervals against independence. ``--table`` prints the
tables of benchmarks/results/joint.md from the records and measures nothing.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch

import credibly as cr
from benchmarks.studies.joint_networks import Scores, all_sets, scores
from credibly.retrieve import Joint, fit_joint
from credibly.targets import Targets

SETS = (
    "synthetic",
    "emotions",
    "yeast",
    "digits",
    "voc2012",
    "voc2012-mixed",
    "voc2012-images",
    "bibtex",
    "coco80-features",
)
SHOWN = (*SETS[4:7], "yeast", "emotions", "bibtex", "coco80-features", "digits", "synthetic")
# The form of the models was found while looking at the VOC test rows with seeds 0 to 2.
FIRST_SEEDS = {"voc2012": 3}
QUERIES, CONDITIONS = 100, 5
FOLDS = 5


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.studies.joint")
    parser.add_argument("folder", type=Path)
    parser.add_argument("sets", nargs="*", default=list(SETS))
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--out", type=Path, default=Path("benchmarks/studies/joint.jsonl"))
    parser.add_argument("--cache", type=Path, default=Path("artifacts/joint-networks"))
    parser.add_argument("--table", action="store_true", help="print the tables of the records")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    arguments.out.parent.mkdir(parents=True, exist_ok=True)
    records = read_records(arguments.out)
    if arguments.table:
        print(page_tables(records))
        return
    for name in arguments.sets:
        first = FIRST_SEEDS.get(name, 0)
        for seed in range(first, first + arguments.seeds):
            done = {
                each["method"] for each in records if (each["set"], each["seed"]) == (name, seed)
            }
            network = scores(arguments.folder, name, seed, arguments.cache)
            for method, measure in methods(network, seed):
                if method in done:
                    continue
                found = {"set": name, "seed": seed, "method": method, **measure()}
                with arguments.out.open("a", encoding="utf-8") as file:
                    file.write(json.dumps(found) + "\n")
                records.append(found)
        if any(each["set"] == name for each in records):
            print(table(name, records), flush=True)


def methods(network: Scores, seed: int) -> Iterator[tuple[str, Callable[[], dict[str, Any]]]]:
    """Yield each method and what measures it on the test rows."""
    held_out, truth = network.held_out_targets, network.test_targets
    queries = _queries(truth)
    alone = cr.calibrate.Affine().fit(network.held_out.astype(np.float64), held_out)
    odds = [
        np.asarray(alone.transform(each.astype(np.float64)))
        for each in (network.held_out, network.test)
    ]
    known, chances = (np.clip(1 / (1 + np.exp(-each)), 1e-7, 1 - 1e-7) for each in odds)
    labels = [f"{place:04d}" for place in range(truth.shape[1])]
    fit: dict[str, Any] = {"labels": labels, "coding": "unknown"}
    real = network.truth

    def numbers(model: Joint) -> dict[str, Any]:
        shares, products = model.mixture(chances, labels)
        shares, products = shares.T, products.transpose(1, 0, 2)
        score = model.log_likelihood(chances, truth, labels, coding="unknown")
        sets, _ = model.most_probable(chances, labels)
        return {
            **_of_mixture(shares, products, truth, queries),
            **_subset_accuracy(sets, truth),
            **_divergence(shares, products, real),
            "joint NLL": float(-score.mean() / len(labels) * 1000),
        }

    def mixture(components: int) -> dict[str, Any]:
        own = numbers(Joint(components).fit(known, held_out, **fit))
        if components < 8:
            own |= _across_folds(components, known, held_out, labels)
        return own

    def chosen() -> dict[str, Any]:
        found = fit_joint(known, held_out, **fit)
        return {**numbers(found.model), "model": found.chosen}

    def head() -> dict[str, Any]:
        loss = cr.losses.JointMixture(components=16, num_labels=len(labels), seed=seed)
        with torch.no_grad():
            loss.offsets.copy_(torch.from_numpy(network.offsets))
            rows = torch.from_numpy(network.head_test)
            weights, products = (each.double().numpy() for each in loss.mixture(rows))
            row = loss.values(rows, torch.from_numpy(truth).float()).mean()
        own = _of_mixture(weights, products, truth, queries)
        own |= _divergence(weights, products, real)
        return {**own, "joint NLL": float(row) * 1000}

    yield "independent", lambda: numbers(Joint.independent(labels))
    for components in (1, 3, 8):
        yield f"mixture-{components}", partial(mixture, components)
    yield "chosen", chosen
    yield "joint loss", head


def _across_folds(components: int, chances: Any, truth: Any, labels: Any) -> dict[str, float]:
    """Expected / real pairs and triples of held-out rows, by models fitted on the other folds.

    These rows are of the same kind as the fitted ones; official test rows need not be.
    """
    sums = np.zeros((2, 2))
    folds = np.random.default_rng(0).permutation(len(chances)) % FOLDS
    for fold in range(FOLDS):
        fitted, judged = folds != fold, folds == fold
        model = Joint(components).fit(chances[fitted], truth[fitted], labels, coding="unknown")
        weights, products = model.mixture(chances[judged], labels)
        inside = products * (truth[judged] >= 0)
        sums[0] += [(weights * each).sum() for each in _symmetric(inside)]
        sums[1] += [each.sum() for each in _symmetric((truth[judged] == 1).astype(float))]
    pairs, triples = (sums[0] / np.maximum(sums[1], 1)).tolist()
    return {"held-out pairs": pairs, "held-out triples": triples}


def _subset_accuracy(sets: Any, truth: Any) -> dict[str, float]:
    whole = (truth >= 0).all(axis=1)
    return {"subset accuracy": float((sets == (truth == 1))[whole].all(axis=1).mean() * 100)}


def _divergence(shares: Any, products: Any, truth: Any) -> dict[str, float]:
    """Divergence from the true distribution over label sets, where it is known."""
    if truth is None:
        return {}
    sets = all_sets(products.shape[2])
    guess = np.zeros_like(truth)
    for part in range(products.shape[1]):
        own = products[:, part, None]
        guess += shares[:, part, None] * np.where(sets, own, 1 - own).prod(-1)
    value = (truth * (np.log(truth) - np.log(np.maximum(guess, 1e-12)))).sum(axis=1).mean()
    return {"KL × 1000": float(value) * 1000}


def _of_mixture(shares: Any, products: Any, truth: Any, queries: Any) -> dict[str, float]:
    known, present = truth >= 0, truth == 1
    inside = products * known[:, None]
    pairs, triples = _symmetric(inside)
    real_pairs, real_triples = _symmetric(present.astype(float))
    marginals = np.clip((shares[:, :, None] * products).sum(axis=1), 1e-9, 1 - 1e-9)
    numbers = {
        "marginal NLL": float(cr.metrics.log_loss(marginals, Targets(truth))) * 1000,
        "pairs": float((shares * pairs).sum() / real_pairs.sum()),
        "triples": float((shares * triples).sum() / max(real_triples.sum(), 1)),
    }
    for conditions, asked in queries.items():
        values = []
        for places, wanted in asked:
            rows = known[:, places].all(axis=1)
            terms = products[rows][:, :, places]
            score = (shares[rows] * np.where(wanted, terms, 1 - terms).prod(-1)).sum(1)
            values.append(_average_precision((present[rows][:, places] == wanted).all(1), score))
        numbers[f"mAP at {conditions}"] = float(np.mean(values)) * 100
    return numbers


def _symmetric(values: Any) -> tuple[Any, Any]:
    """Sums over pairs and triples of labels, by power sums."""
    first, second, third = (np.power(values, power).sum(-1) for power in (1, 2, 3))
    return (first**2 - second) / 2, (first**3 - 3 * first * second + 2 * third) / 6


def _average_precision(relevant: Any, score: Any) -> float:
    ranks = np.flatnonzero(relevant[np.argsort(-score, kind="stable")])
    return float(np.mean(np.arange(1, len(ranks) + 1) / (ranks + 1)))


def _queries(truth: Any) -> dict[int, list[tuple[Any, Any]]]:
    """Queries of each number of conditions that some row satisfies; the same for every method."""
    rng = np.random.default_rng(0)
    found: dict[int, list[tuple[Any, Any]]] = {}
    for conditions in range(2, CONDITIONS + 1):
        asked = found.setdefault(conditions, [])
        for _ in range(200 * QUERIES):
            places = rng.choice(truth.shape[1], conditions, replace=False)
            wanted = rng.random(conditions) < 0.5
            wanted[rng.integers(conditions)] = True
            if (truth[:, places] == wanted).all(axis=1).any():
                asked.append((places, wanted))
            if len(asked) == QUERIES:
                break
    return {conditions: asked for conditions, asked in found.items() if asked}


def read_records(path: Path) -> list[dict[str, Any]]:
    if not path.exists():
        return []
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


NAMES = {
    "independent": "independent + affine",
    "sizes": "one factor per number of labels",
    "mixture-1": "`Joint(1)`",
    "mixture-3": "`Joint(3)`",
    "mixture-8": "`Joint(8)`",
    "chosen": "**chosen**",
    "joint loss": "`JointMixture(16)`, trained",
}
DIGITS = {
    **{"KL × 1000": 0, "joint NLL": 1, "marginal NLL": 1},
    **{"pairs": 2, "triples": 2, "held-out triples": 2},
    **{f"mAP at {count}": 1 for count in range(2, CONDITIONS + 1)},
    "subset accuracy": 1,
}
"""Columns of a table, and how many digits of each are shown."""


def table(name: str, records: list[dict[str, Any]]) -> str:
    """Return means over seeds, with paired 95 % half-widths of differences to independence."""
    own = [each for each in records if each["set"] == name]
    columns = [key for key in DIGITS if any(key in each for each in own)]
    base = {each["seed"]: each for each in own if each["method"] == "independent"}
    rows = []
    for method, shown in NAMES.items():
        found = [each for each in own if each["method"] == method]
        if not found:
            continue
        kinds = sorted(each["model"] for each in found if "model" in each)
        counted = ", ".join(f"{kind} {kinds.count(kind)} ×" for kind in dict.fromkeys(kinds))
        cells = [_cell(found, base, key) for key in columns]
        rows.append([f"{shown} ({counted})" if counted else shown, *cells])
    lines = [["", *columns], ["---"] * (len(columns) + 1), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines) + "\n"


def _cell(found: list[dict[str, Any]], base: dict[int, dict[str, Any]], key: str) -> str:
    """Return the mean of a number, ± the half-width of its difference to independence."""
    from scipy.stats import t

    having = [each for each in found if key in each]
    if not having:
        return ""
    mean = f"{np.mean([each[key] for each in having]):.{DIGITS[key]}f}"
    gaps = [each[key] - base[each["seed"]][key] for each in having if key in base[each["seed"]]]
    if len(gaps) < 2 or having[0]["method"] == "independent":
        return mean
    half = t.ppf(0.975, len(gaps) - 1) * np.std(gaps, ddof=1) / np.sqrt(len(gaps))
    return f"{mean} ± {half:.{DIGITS[key]}f}"


def page_tables(records: list[dict[str, Any]]) -> str:
    """Return the tables of every set, as benchmarks/results/joint.md shows them."""
    parts = []
    for name in SHOWN:
        seeds = {each["seed"] for each in records if each["set"] == name}
        if seeds:
            parts.append(f"{name}, {len(seeds)} seeds:\n\n{table(name, records)}")
    return "\n".join(parts)


if __name__ == "__main__":
    main()
