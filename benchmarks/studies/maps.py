"""Which calibrator after training: each map on left-out scores, judged on other training rows.

    python -m benchmarks.studies.maps [SET …] [--seeds 3] [--table | --write]

A quarter of the training rows stands in for test rows; the published test rows take no part. Every
candidate of ``--model auto`` scores the rest by cross-fitting. Each map is fitted on some of those
rows, 40, 100, 300 or all, and judged on the quarter. ``auto`` chooses among none, affine and
per-label by cross-validated log loss, ``with beta`` also among beta, ``choose`` among every map
without ties. Each (set, seed) is some lines of ``benchmarks/studies/maps.jsonl``; the same command
continues where it stopped. ``--write`` puts the tables into benchmarks/results/default.md.
"""

from __future__ import annotations

import argparse
import json
import os
from pathlib import Path
from typing import Any

for _variable in ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "NUMBA_NUM_THREADS"):
    os.environ[_variable] = "1"

import numpy as np  # noqa: E402 - after the number of threads is set
from scipy.special import expit  # noqa: E402

from benchmarks.studies.documents import RECORD, put_tables  # noqa: E402
from benchmarks.studies.training import markdown  # noqa: E402

RECORDS = Path(__file__).with_suffix(".jsonl")
SETS = ("emotions", "medical", "yeast", "scene", "voc2012", "bibtex")
SIZES = (40, 100, 300, 0)
"""Rows that a map is fitted on; 0 for all."""

SINGLE = ("none", "temperature", "affine", "beta", "per-label")
CHOICES = {
    "auto": ("none", "affine", "per-label"),
    "with beta": ("none", "affine", "beta", "per-label"),
}
RULES = (*SINGLE, *CHOICES, "choose")
METRICS = {"NLL": 1000, "ACE": 100, "mAP@x": 100}
"""Maps keep the order of rows within a label, so mAP@y is that of the scores."""


def fitted(rule: str, odds: np.ndarray, targets: np.ndarray) -> Any:
    """Return the calibrator that a rule comes to on these rows."""
    from credibly import calibrate

    if rule in SINGLE:
        return calibrate.from_name(rule).fit(odds, targets, coding="unknown")
    names = CHOICES.get(rule)
    return calibrate.choose({"link": odds}, targets, names=names, coding="unknown").calibrator


def lines_of(name: str, seed: int) -> list[dict[str, Any]]:
    """Every map of every candidate on one split of one set."""
    import torch

    from benchmarks.claims import sets
    from credibly.train import recipe, resolve
    from credibly.train.auto import choose, problem_of
    from credibly.train.fitting import build_loss
    from credibly.train.run_folder import pooled

    data = sets.rows(f"{name}@search", seed)
    settings = resolve(recipe(split_seed=seed, folds=5), data)
    rows, judged = pooled(data, settings), data.part("test")
    loss = build_loss(settings, data, len(rows.part("train")))
    problem = problem_of(rows, loss, settings, seed)
    truth, order = problem.targets[problem.folds.scored], np.random.default_rng(seed)
    assert judged.features is not None
    assert isinstance(judged.targets, np.ndarray)
    found = []
    for candidate in choose(problem, settings).tried:
        left_out = _log_odds(loss, candidate.scores)
        with torch.no_grad():
            inputs = torch.from_numpy(judged.features)
            scores = torch.stack([member(inputs) for member in candidate.members]).mean(dim=0)
        odds = _log_odds(loss, scores.double().numpy())
        shuffled = order.permutation(len(truth))
        for size in SIZES:
            if size >= len(truth):
                continue
            chosen = shuffled[:size] if size else shuffled
            for rule in RULES:
                map_ = fitted(rule, left_out[chosen], truth[chosen])
                figures = _figures(expit(map_.transform(odds)), judged.targets)
                found.append(
                    {"set": name, "seed": seed, "model": candidate.name, "rows": size}
                    | {"rule": rule, "map": map_.name, **figures}
                )
    return found


def _log_odds(loss: Any, scores: np.ndarray) -> np.ndarray:
    import torch

    return loss.log_odds(torch.as_tensor(scores)).numpy()


def _figures(probabilities: np.ndarray, targets: np.ndarray) -> dict[str, float]:
    from credibly import metrics
    from credibly.targets import Targets

    found = metrics.summary(probabilities, Targets(targets))
    return {name: float(found[name]) for name in METRICS}


def records() -> list[dict[str, Any]]:
    if not RECORDS.exists():
        return []
    return [json.loads(line) for line in RECORDS.read_text(encoding="utf-8").splitlines()]


def tables() -> str:
    """Each rule minus affine, by number of rows: the mean over sets, models and seeds."""
    return "\n\n".join(_table(metric) for metric in METRICS)


def _table(metric: str) -> str:
    lines = records()
    cells = {
        (x["set"], x["seed"], x["model"], x["rows"], x["rule"]): METRICS[metric] * x[metric]
        for x in lines
    }
    rows = []
    for rule in RULES:
        if rule == "affine":
            continue
        shown = [rule]
        for size in SIZES:
            gaps: dict[str, list[float]] = {}
            for (name, seed, model, own, which), value in cells.items():
                if (own, which) == (size, rule):
                    base = cells[name, seed, model, own, "affine"]
                    if np.isfinite(value - base):
                        gaps.setdefault(name, []).append(value - base)
            means = [float(np.mean(own)) for own in gaps.values()]
            worst = max(means, default=0) if metric != "mAP@x" else min(means, default=0)
            shown.append(f"{np.mean(means):+.2f} ({worst:+.2f})" if means else "–")
        rows.append(shown)
    unit = "× 1000" if metric == "NLL" else "%"
    header = [f"{metric} {unit}", *(f"{n} rows" if n else "all rows" for n in SIZES)]
    return markdown(header, rows)


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.studies.maps")
    parser.add_argument("sets", nargs="*", default=list(SETS))
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--table", action="store_true", help="print the tables of the records")
    parser.add_argument("--write", action="store_true", help="write them into the page")
    given = parser.parse_args()
    if given.table:
        print(tables())
        return
    if given.write:
        put_tables(f"{RECORD}/default.md", "maps", tables())
        return
    done = {(line["set"], line["seed"]) for line in records()}
    for name in given.sets or SETS:
        for seed in range(given.seeds):
            if (name, seed) not in done:
                text = "".join(json.dumps(line) + "\n" for line in lines_of(name, seed))
                with RECORDS.open("a", encoding="utf-8") as file:
                    file.write(text)
                print(name, seed, flush=True)


if __name__ == "__main__":
    main()
