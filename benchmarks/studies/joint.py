"""Joint probabilities: independence, set sizes, label mixtures and the joint loss, on test rows.

``python -m benchmarks.studies.joint DATA_DIR [SET …] [--seeds 5] [--out artifacts/joint.jsonl]``

DATA_DIR holds ``voc2012.npz``, ``yeast.npz`` and so on. A network of one hidden layer is trained on
four fifths of the training rows; everything else is fitted on the last fifth and measured on the
official test rows. Each finished (set, seed, method) is a line of the output file; the same command
continues where it stopped and prints means and paired 95 % intervals against independence.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn

import credibly as cr
from credibly.retrieve import Joint, MixtureJoint, fit_joint

SETS = ("emotions", "yeast", "voc2012", "bibtex", "coco80-features")
MOST_TRAINED, MOST_TESTED = 12_000, 6_000
QUERIES, CONDITIONS = 100, 5


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.studies.joint")
    parser.add_argument("folder", type=Path)
    parser.add_argument("sets", nargs="*", default=list(SETS))
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--out", type=Path, default=Path("artifacts/joint.jsonl"))
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    arguments.out.parent.mkdir(parents=True, exist_ok=True)
    records = _records(arguments.out)
    for name in arguments.sets:
        for seed in range(arguments.seeds):
            if any(each["set"] == name and each["seed"] == seed for each in records):
                continue
            found = [
                {"set": name, "seed": seed, "method": method, **numbers}
                for method, numbers in measured(arguments.folder / f"{name}.npz", seed)
            ]
            with arguments.out.open("a", encoding="utf-8") as file:
                file.writelines(json.dumps(each) + "\n" for each in found)
            records += found
        print(table(name, records), flush=True)


def measured(path: Path, seed: int) -> Iterator[tuple[str, dict[str, float]]]:
    """Yield each method's numbers on the test rows."""
    features, targets, split = _load(path)
    rng = np.random.default_rng(seed)
    train = rng.permutation(np.flatnonzero(split == 0))[:MOST_TRAINED]
    held_out, fitted = train[: len(train) // 5], train[len(train) // 5 :]
    test = np.flatnonzero(split == 1)[:MOST_TESTED]
    truth = targets[test]
    queries = _queries(truth)
    loss = cr.losses.BCE()
    scores = _trained(features, targets, fitted, held_out, loss, seed)
    alone = cr.calibrate.Affine().fit(scores[held_out].double().numpy(), targets[held_out])
    odds = [np.asarray(alone.transform(scores[rows].double().numpy())) for rows in (held_out, test)]
    known, chances = (1 / (1 + np.exp(-each)) for each in odds)
    labels = [f"{place:04d}" for place in range(targets.shape[1])]
    fit = {"labels": labels, "coding": "unknown"}
    yield "independent", _numbers(MixtureJoint.independent(labels), chances, truth, queries)
    if known.size <= 60_000:
        sizes = Joint().fit(known, targets[held_out], **fit)
        score = -sizes.log_likelihood(chances, truth, **fit).mean() / len(labels) * 1000
        yield "sizes", {"joint NLL": float(score)}
    for components in (1, 3):
        model = MixtureJoint(components).fit(known, targets[held_out], **fit)
        yield f"mixture-{components}", _numbers(model, chances, truth, queries)
    model = fit_joint(known, targets[held_out], **fit).model
    if isinstance(model, MixtureJoint):
        yield "chosen", _numbers(model, chances, truth, queries)
    else:
        score = -model.log_likelihood(chances, truth, **fit).mean() / len(labels) * 1000
        yield "chosen", {"joint NLL": float(score)}
    head = cr.losses.JointMixture(components=16, seed=seed)
    scores = _trained(features, targets, fitted, held_out, head, seed)[test]
    with torch.no_grad():
        weights, products = (each.double().numpy() for each in head.mixture(scores))
        row = head.values(scores, torch.from_numpy(truth).float()).mean()
    numbers = _of_mixture(weights, products, truth, queries)
    yield "joint loss", {**numbers, "joint NLL": float(row) * 1000}


def _numbers(model: MixtureJoint, chances: Any, truth: Any, queries: Any) -> dict[str, float]:
    """The numbers of a correction, from its products."""
    factors, weights, empty = model.parameters.parts()
    divisor = 1 + chances[:, None] * (factors - 1)
    mass = np.exp(np.log(divisor).sum(-1)) * weights
    none = empty * np.exp(np.log1p(-chances).sum(-1))
    shares = np.concatenate([mass, none[:, None]], axis=1)
    shares /= shares.sum(axis=1, keepdims=True)
    products = chances[:, None] * factors / divisor
    products = np.concatenate([products, np.zeros_like(products[:, :1])], axis=1)
    numbers = _of_mixture(shares, products, truth, queries)
    labels = list(model.labels)
    score = model.log_likelihood(chances, truth, labels, coding="unknown")
    sets, _ = model.most_probable(chances, labels)
    whole = (truth >= 0).all(axis=1)
    return {
        **numbers,
        "joint NLL": float(-score.mean() / len(labels) * 1000),
        "subset accuracy": float((sets == (truth == 1))[whole].all(axis=1).mean() * 100),
    }


def _of_mixture(shares: Any, products: Any, truth: Any, queries: Any) -> dict[str, float]:
    known, present = truth >= 0, truth == 1
    inside = products * known[:, None]
    pairs, triples = _symmetric(inside)
    real_pairs, real_triples = _symmetric(present.astype(float))
    marginals = np.clip((shares[:, :, None] * products).sum(axis=1), 1e-9, 1 - 1e-9)
    numbers = {
        "marginal NLL": float(cr.metrics.log_loss(marginals, truth, coding="unknown")) * 1000,
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


def _trained(features: Any, targets: Any, fitted: Any, held_out: Any, loss: Any, seed: int) -> Any:
    """Scores of all rows, at the epoch whose held-out loss is least."""
    torch.manual_seed(seed)
    inputs, truth = torch.from_numpy(features), torch.from_numpy(targets).float()
    inputs = (inputs - inputs[fitted].mean(0)) / (inputs[fitted].std(0) + 1e-6)
    last = nn.Linear(512, loss.num_outputs(targets.shape[1]))
    model = nn.Sequential(
        nn.Dropout(0.25),
        nn.Linear(inputs.shape[1], 512),
        nn.ReLU(),
        nn.Dropout(0.5),
        last,
    )
    own = truth[fitted]
    rates = (own.clamp(min=0).sum(0) + 0.5) / ((own >= 0).sum(0) + 1)
    with torch.no_grad():
        last.bias.copy_(loss.initial_scores(rates))
    search = torch.optim.AdamW([*model.parameters(), *loss.parameters()], 1e-3, weight_decay=1e-4)
    best, waited, kept = np.inf, 0, ({}, {})
    while waited < 4:
        model.train()
        for rows in torch.from_numpy(fitted)[torch.randperm(len(fitted))].split(64):
            search.zero_grad()
            loss(model(inputs[rows]), truth[rows]).backward()
            search.step()
        model.eval()
        with torch.no_grad():
            value = float(loss(model(inputs[held_out]), truth[held_out]))
        waited += 1
        if value < best:
            best, waited = value, 0
            kept = tuple(
                {name: each.clone() for name, each in part.state_dict().items()}
                for part in (model, loss)
            )
    model.load_state_dict(kept[0])
    loss.load_state_dict(kept[1])
    with torch.no_grad():
        return torch.cat([model(part) for part in inputs.split(4096)])


def _load(path: Path) -> tuple[Any, Any, Any]:
    with np.load(path, allow_pickle=False) as file:
        return file["features"].astype(np.float32), file["targets"], file["split"]


def _records(path: Path) -> list[dict[str, Any]]:
    if not path.exists():
        return []
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


def table(name: str, records: list[dict[str, Any]]) -> str:
    """Return means over seeds, with paired 95 % half-widths of differences to independence."""
    from scipy.stats import t

    own = [each for each in records if each["set"] == name]
    methods = list(dict.fromkeys(each["method"] for each in own))
    numbers = [key for key in own[0] if key not in ("set", "seed", "method")]
    lines = ["| " + " | ".join([name, *numbers]) + " |", "|---" * (len(numbers) + 1) + "|"]
    base = {each["seed"]: each for each in own if each["method"] == "independent"}
    for method in methods:
        cells = []
        for key in numbers:
            pairs = [
                (each[key], base[each["seed"]][key])
                for each in own
                if each["method"] == method and key in each
            ]
            if not pairs:
                cells.append("—")
                continue
            values, others = np.array(pairs).T
            text = f"{values.mean():.2f}"
            if method != "independent" and len(values) > 1:
                spread = (values - others).std(ddof=1) / np.sqrt(len(values))
                text += f" (±{t.ppf(0.975, len(values) - 1) * spread:.2f})"
            cells.append(text)
        lines.append("| " + " | ".join([method, *cells]) + " |")
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    main()
