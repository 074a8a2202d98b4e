"""Networks of the joint study: scores of held-out and test rows, trained once and kept.

A network of one hidden layer is trained on four fifths of the training rows, with BCE and with
``JointMixture``; the epoch with the least loss on the last fifth is kept. Each network is a file of
the cache folder, so that the study itself can be repeated in minutes. ``voc2012-images`` is trained
end to end instead, by ``credibly.train`` as in the study of networks: EfficientNet-Lite0 from
ImageNet weights (``$CREDIBLY_ASSETS``), 1,500 training images, three epochs.
"""

from __future__ import annotations

import os
import tempfile
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn

import credibly as cr
from credibly.data.splits import TEST

MOST_TRAINED, MOST_TESTED = 12_000, 6_000
SYNTHETIC_LABELS = 6
END_TO_END = "voc2012-images"
MOST_IMAGES, HELD_OUT_IMAGES, TEST_IMAGES = 1500, 1500, 3000
MIXED = "-mixed"
"""Ending of a set whose official training and test rows are mixed and drawn again."""


@dataclass(frozen=True)
class Rows:
    """Features and targets, and which rows are trained on, held out, and tested."""

    features: Any
    targets: Any
    fitted: Any
    held_out: Any
    test: Any
    truth: Any = None  # probability of each label set of the test rows, where it is known


@dataclass(frozen=True)
class Scores:
    """What the networks say about held-out and test rows."""

    held_out: Any
    test: Any
    head_test: Any
    head_held_out: Any
    offsets: Any
    held_out_targets: Any
    test_targets: Any
    truth: Any = None


def scores(folder: Path, name: str, seed: int, cache: Path) -> Scores:
    """Return the scores of a data set and seed, from the cache or after training."""
    path = cache / f"{name}-{seed}.npz"
    if path.exists():
        with np.load(path, allow_pickle=False) as file:
            return Scores(**{key: file[key] for key in file.files})
    kept = _of_images(folder, seed) if name == END_TO_END else _of_features(folder, name, seed)
    cache.mkdir(parents=True, exist_ok=True)
    np.savez(path, **kept)
    return Scores(**kept)


def _of_features(folder: Path, name: str, seed: int) -> dict[str, Any]:
    rows = load(folder, name, seed)
    loss, head = cr.losses.BCE(), cr.losses.JointMixture(rows.targets.shape[1], seed=seed)
    alone, joint = (_trained(rows, each, seed) for each in (loss, head))
    kept = {
        "held_out": alone[rows.held_out],
        "test": alone[rows.test],
        "head_held_out": joint[rows.held_out],
        "head_test": joint[rows.test],
        "offsets": head.offsets.detach().numpy(),
        "held_out_targets": rows.targets[rows.held_out],
        "test_targets": rows.targets[rows.test],
        **({} if rows.truth is None else {"truth": rows.truth}),
    }
    return {key: np.asarray(value) for key, value in kept.items()}


def _of_images(folder: Path, seed: int) -> dict[str, Any]:
    """Fine-tune with each loss; held-out rows choose nothing but the models of the study."""
    data = cr.data.load(folder / f"{END_TO_END}.parquet")
    split = np.asarray(data.split)
    rest = np.random.default_rng(seed).permutation(np.flatnonzero(split != TEST))
    test = np.flatnonzero(split == TEST)
    test = np.random.default_rng(0).permutation(test)[:TEST_IMAGES]
    held_out = rest[MOST_IMAGES : MOST_IMAGES + HELD_OUT_IMAGES]
    fitted = np.zeros(MOST_IMAGES, np.int8)  # the code of training rows
    own = replace(data.take(rest[:MOST_IMAGES]), split=fitted)
    judged = {"held_out": data.take(held_out), "test": data.take(test)}
    settings = cr.train.recipe(
        model="efficientnet-lite0",
        probe_first=False,
        weights=os.path.expandvars("$CREDIBLY_ASSETS/efficientnet-lite0.safetensors"),
        image_size=112,
        epochs=3,
        batch_size=32,
        learning_rate=1.5e-3,
        warmup=0.1,
        select="last",
        calibrate="none",
    )
    kept: dict[str, Any] = {}
    for prefix, loss in (("", "bce"), ("head_", "joint(components=16)")):
        with tempfile.TemporaryDirectory() as run_folder:
            run = cr.train.fit(own, replace(settings, loss=loss), folder=run_folder, seed=seed)
            for part, rows in judged.items():
                kept[prefix + part] = run.scores(rows).numpy()
        if isinstance(run.criterion, cr.losses.JointMixture):
            kept["offsets"] = run.criterion.offsets.detach().numpy()
    return kept | {f"{part}_targets": np.asarray(rows.targets) for part, rows in judged.items()}


def load(folder: Path, name: str, seed: int) -> Rows:
    """Return a data set, its training rows drawn and split by ``seed``."""
    truth = None
    if name == "digits":
        data = cr.data.load("digits")
        assert data.images is not None
        features = np.asarray(data.images, np.float32).reshape(len(data.targets), -1)
        targets, split = np.asarray(data.targets), np.asarray(data.split)
    elif name == "synthetic":
        features, targets, split, truth = synthetic(6000, seed)
    else:
        with np.load(folder / f"{name.removesuffix(MIXED)}.npz", allow_pickle=False) as file:
            features, targets = file["features"].astype(np.float32), file["targets"]
            split = file["split"]
        if name.endswith(MIXED):
            split = np.random.default_rng([2, seed]).permutation(split)
    train = np.random.default_rng(seed).permutation(np.flatnonzero(split == 0))[:MOST_TRAINED]
    test = np.flatnonzero(split == 1)[:MOST_TESTED]
    fifth = len(train) // 5
    truth = None if truth is None else truth[test]
    return Rows(features, targets, train[fifth:], train[:fifth], test, truth)


def synthetic(rows: int, seed: int, dependence: float = 1.0) -> tuple[Any, Any, Any, Any]:
    """Return features, targets, split, and the probability of every label set of every row.

    Four products of labels, chosen between by the features; their log-odds differ by
    ``dependence`` times a normal offset, so that 0 makes labels independent given the features.
    The law of the rows is the same for every seed; only the draw differs.
    """
    law, draw = np.random.default_rng(0), np.random.default_rng([1, seed])
    inputs, components = 8, 4
    gate_law = law.standard_normal((inputs, components)) * 0.5
    label_law = law.standard_normal((inputs, SYNTHETIC_LABELS)) * 0.7
    offsets = law.standard_normal((components, SYNTHETIC_LABELS)) * 1.5 * dependence
    bias = law.standard_normal(SYNTHETIC_LABELS) * 0.5 - 0.8
    features = draw.standard_normal((rows, inputs)).astype(np.float32)
    gate = np.exp(features @ gate_law)
    gate /= gate.sum(axis=1, keepdims=True)
    chances = 1 / (1 + np.exp(-((features @ label_law + bias)[:, None] + offsets)))
    sets = all_sets(SYNTHETIC_LABELS)
    by_set = np.where(sets[:, None, None], chances, 1 - chances).prod(-1)  # (sets, rows, K)
    truth = (by_set * gate).sum(-1).T
    chosen = (truth.cumsum(axis=1) < draw.random((rows, 1))).sum(axis=1)
    targets = sets[np.minimum(chosen, len(sets) - 1)].astype(np.int8)
    split = (np.arange(rows) >= rows // 2).astype(np.int8)
    return features, targets, split, truth


def all_sets(labels: int) -> Any:
    """Return every set of labels, one per row."""
    return (np.arange(2**labels)[:, None] >> np.arange(labels) & 1).astype(bool)


def _trained(rows: Rows, loss: Any, seed: int) -> Any:
    """Return the scores of all rows, at the epoch whose held-out loss is least."""
    torch.manual_seed(seed)
    targets, fitted, held_out = rows.targets, rows.fitted, rows.held_out
    inputs, truth = torch.from_numpy(rows.features), torch.from_numpy(targets).float()
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
        for batch in torch.from_numpy(fitted)[torch.randperm(len(fitted))].split(64):
            search.zero_grad()
            loss(model(inputs[batch]), truth[batch]).backward()
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
