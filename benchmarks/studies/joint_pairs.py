"""Label pairs (LPR) with and without a joint model: is the minimiser biased, and is it better?

``python -m benchmarks.studies.joint_pairs [--draws 100]``

Three labels with known rates; ``dependence`` moves probability between label sets without moving
the rates, and 0 makes the labels independent. For each loss the scores are fitted to the true
distribution itself (what remains is bias) and to samples of 200 rows (what remains is error). Pairs
use β = P(t, not t') / (P(t, not t') + P(t', not t)): from the marginals as published, or from the
joint probabilities of the mixture.
"""

from __future__ import annotations

import argparse

import numpy as np
import torch
from torch import Tensor

import credibly as cr
from benchmarks.studies.joint_networks import all_sets

RATES = (0.5, 0.35, 0.2)
SETS = all_sets(3)
ROWS = 200


def distribution(dependence: float) -> np.ndarray:
    """Return the probability of each label set: rates as given, log-odds ratios by dependence."""
    pairs = np.array([1.5, -1.0, 1.0]) * dependence
    weights = np.exp(
        pairs[0] * SETS[:, 0] * SETS[:, 1]
        + pairs[1] * SETS[:, 1] * SETS[:, 2]
        + pairs[2] * SETS[:, 0] * SETS[:, 2]
    )
    for _ in range(2000):  # iterative proportional fitting to the rates
        for label, rate in enumerate(RATES):
            share = weights[SETS[:, label]].sum() / weights.sum()
            factor = rate * (1 - share) / (share * (1 - rate))
            weights = np.where(SETS[:, label], weights * factor, weights)
    return weights / weights.sum()


def fitted(shares: np.ndarray, joint: bool, weight: float) -> tuple[np.ndarray, np.ndarray]:
    """Return marginals and probabilities of label sets that minimise the expected loss."""
    targets = torch.from_numpy(SETS).double()
    importance = torch.from_numpy(shares)
    loss: cr.losses.Loss = cr.losses.BCE()
    if joint:
        loss = cr.losses.JointMixture(components=4, num_labels=3)
    loss.double()
    scores = torch.zeros(1, loss.num_outputs(3), dtype=torch.float64, requires_grad=True)
    parameters = [scores, *loss.parameters()]
    search = torch.optim.LBFGS(parameters, max_iter=200, line_search_fn="strong_wolfe")

    def risk() -> Tensor:
        search.zero_grad()
        rows = scores.expand(len(SETS), -1)
        own = loss.values(rows, targets)
        own = own if own.dim() == 1 else own.mean(1)
        own = own + weight / 3 * _pairs(loss, rows, targets, joint)
        penalty = torch.cat([each.flatten() for each in parameters]).square().sum()
        value = (importance * own).sum() + 1e-6 * penalty
        value.backward()
        return value

    search.step(risk)
    with torch.no_grad():
        marginals = loss.probabilities(scores)[0].numpy()
        if not isinstance(loss, cr.losses.JointMixture):
            return marginals, np.where(SETS, marginals, 1 - marginals).prod(1)
        weights, products = (each[0].numpy() for each in loss.mixture(scores))
        by_set = np.where(SETS[:, None], products, 1 - products).prod(-1) @ weights
        return marginals, np.clip(by_set, 1e-12, None)


def _pairs(loss: cr.losses.Loss, scores: Tensor, targets: Tensor, joint: bool) -> Tensor:
    """Return the sum of −log β over pairs of a present and an absent label, per row."""
    if joint:
        assert isinstance(loss, cr.losses.JointMixture)
        weights, products = loss.mixture(scores)
        first = torch.einsum("bk,bks,bkt->bst", weights, products, 1 - products)
    else:
        chances = loss.probabilities(scores)
        first = chances[:, :, None] * (1 - chances[:, None])
    first = first.clamp(min=1e-12)
    cost = torch.log(first + first.transpose(1, 2)) - torch.log(first)
    return (cost * targets[:, :, None] * (1 - targets[:, None])).sum((1, 2))


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.studies.joint_pairs")
    parser.add_argument("--draws", type=int, default=100)
    draws = parser.parse_args().draws
    torch.set_num_threads(1)
    methods = {
        "bce": (False, 0.0),
        "bce+lpr": (False, 1.0),
        "bce+lpr, λ = 3": (False, 3.0),
        "joint": (True, 0.0),
        "joint, pairs by the joint": (True, 1.0),
        "joint, pairs by the joint, λ = 3": (True, 3.0),
    }
    print("| dependence | loss | bias of marginals | error of marginals | KL × 1000 |")
    print("|---|---|---|---|---|")
    for dependence in (0.0, 1.0):
        true = distribution(dependence)
        samples = [
            np.random.default_rng(seed).multinomial(ROWS, true) / ROWS for seed in range(draws)
        ]
        first: np.ndarray | None = None
        for name, (joint, weight) in methods.items():
            limit, _ = fitted(true, joint, weight)
            errors, divergences = [], []
            for sample in samples:
                marginals, sets = fitted(sample, joint, weight)
                errors.append(np.abs(marginals - RATES).mean())
                divergences.append((true * np.log(true / sets)).sum() * 1000)
            base = np.array(divergences)
            first = base if name in ("bce", "joint") else first
            assert first is not None
            width = 1.96 * (base - first).std() / np.sqrt(len(base))
            print(
                f"| {dependence:g} | {name} | {np.abs(limit - RATES).max():.4f} | "
                f"{np.mean(errors):.4f} | {base.mean():.1f} ({(base - first).mean():+.1f} "
                f"± {width:.1f}) |",
                flush=True,
            )


if __name__ == "__main__":
    main()
