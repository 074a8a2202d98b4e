"""Are planted label errors found? Precision among the first k, beside cleanlab.

``python -m benchmarks.studies.label_errors --peers PYTHON``, where PYTHON has cleanlab installed
(``pip install cleanlab`` into an environment of its own). 5 % of all entries of the truth are
flipped; probabilities are those of logistic regressions, cross-fitted in five folds on the noisy
truth. Every ranking gets the same probabilities; credibly first calibrates them per label, also
cross-fitted. k is the number of planted flips. The column "uncalibrated" ranks by the given
probabilities as they are, which is cleanlab's self-confidence and needs no cleanlab.
"""

from __future__ import annotations

import argparse
import subprocess
import tempfile
import warnings
from pathlib import Path
from typing import Any

import numpy as np
from scipy.special import expit, logit
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import KFold
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from benchmarks.studies.training import data_file, markdown
from credibly import Predictions, review
from credibly.calibrate import PerLabel

SETS, SEEDS, FLIPS = ("emotions", "scene", "yeast"), 5, 0.05
METHODS = ("self_confidence", "normalized_margin", "confidence_weighted_entropy")


def main() -> None:
    warnings.simplefilter("ignore")
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--peers", help="a Python with cleanlab")
    parser.add_argument("--sets", nargs="+", default=SETS)
    parser.add_argument("--first-seed", type=int, default=0)
    options = parser.parse_args()
    seeds = range(options.first_seed, options.first_seed + SEEDS)
    table, counts, rankings = [], [], []
    for name in options.sets:
        runs = [_run(name, seed, options.peers) for seed in seeds]
        planted = np.mean([run["planted"] for run in runs])
        rankings = [key for key in runs[0] if key not in ("planted", "errors")]
        for share in (0.25, 1.0):
            cells = []
            for key in rankings:
                values = np.array([run[key][share] for run in runs])
                cells.append(f"{values.mean():.3f} ± {values.std(ddof=1) / SEEDS**0.5:.3f}")
            table.append([name, f"{share * planted:.0f}", *cells])
        total = [run["errors"] for run in runs]
        shown = [np.mean([getattr(each, part) for each in total]) for part in _PARTS]
        counts.append([name, f"{planted:.0f}", *(f"{value:.0f}" for value in shown)])
        print(name, flush=True)
    print(markdown(["data", "k", *rankings], table))
    print()
    print(markdown(["data", "planted", "expected", "low", "high"], counts))


_PARTS = ("expected", "low", "high")


def _run(name: str, seed: int, peers: str | None) -> dict[str, Any]:
    data = np.load(data_file(f"{name}.npz"))
    clean = (data["targets"] > 0).astype(np.int8)
    flipped = np.random.default_rng(seed).random(clean.shape) < FLIPS
    noisy = np.where(flipped, 1 - clean, clean).astype(np.int8)
    raw = _cross_fitted(data["features"], noisy, seed)
    predictions = Predictions.from_arrays(
        probabilities=_calibrated(raw, noisy, seed),
        targets=noisy,
        labels=[str(place) for place in range(noisy.shape[1])],
    )
    found = review.label_issues(predictions, top=None, min_probability=0.0)
    columns = [int(each.label) for each in found]
    hits = flipped[[each.row for each in found], columns]
    result: dict[str, Any] = {
        "planted": int(flipped.sum()),
        "errors": found.total,
        "credibly": _precision(hits, flipped.sum()),
    }
    order = np.argsort(np.where(noisy == 1, raw, 1 - raw).ravel(), kind="stable")
    result["uncalibrated"] = _precision(flipped.ravel()[order], flipped.sum())
    for method, quality in (_cleanlab(peers, raw, noisy) if peers else {}).items():
        order = np.argsort(quality.ravel(), kind="stable")
        result[f"cleanlab, {method}"] = _precision(flipped.ravel()[order], flipped.sum())
    return result


def _precision(hits: np.ndarray, planted: int) -> dict[float, float]:
    return {share: float(hits[: round(share * planted)].mean()) for share in (0.25, 1.0)}


def _cross_fitted(features: np.ndarray, targets: np.ndarray, seed: int) -> np.ndarray:
    result = np.zeros(targets.shape)
    for train, test in KFold(5, shuffle=True, random_state=seed).split(features):
        for label in range(targets.shape[1]):
            model = make_pipeline(StandardScaler(), LogisticRegression(C=0.1, max_iter=100))
            model.fit(features[train], targets[train, label])
            result[test, label] = model.predict_proba(features[test])[:, 1]
    return result


def _calibrated(probabilities: np.ndarray, targets: np.ndarray, seed: int) -> np.ndarray:
    log_odds = logit(np.clip(probabilities, 1e-9, 1 - 1e-9))
    result = np.zeros(targets.shape)
    for train, test in KFold(5, shuffle=True, random_state=seed + 1).split(log_odds):
        fitted = PerLabel().fit(log_odds[train], targets[train])
        result[test] = expit(fitted.transform(log_odds[test]))
    return result


def _cleanlab(python: str, probabilities: np.ndarray, targets: np.ndarray) -> dict[str, np.ndarray]:
    """Return the quality of every entry by each method of cleanlab."""
    with tempfile.TemporaryDirectory() as folder:
        source, out = Path(folder) / "in.npz", Path(folder) / "out.npz"
        np.savez(source, probabilities=probabilities, targets=targets)
        module = "benchmarks.studies.peer_cleanlab"
        command = [python, "-m", module, str(source), str(out), *METHODS]
        subprocess.run(command, check=True, capture_output=True)
        with np.load(out) as arrays:
            return {method: arrays[method] for method in METHODS}


if __name__ == "__main__":
    main()
