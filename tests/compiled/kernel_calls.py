"""Run every compiled loop of one family through the public door; print a digest of each result.

A script: ``python kernel_calls.py losses``. ``test_cold_and_warm.py`` runs it in fresh processes.
"""

from __future__ import annotations

import hashlib
import json
import sys
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import torch

import credibly as cr

ROWS, LABELS = 48, 9
PAIRED = ("bce", "spa", "asl(gamma_neg=1.5)")
LOSSES = ("focal", "asl", "asl(detach_weight=true)", "twl", *PAIRED)
LAST_LAYERS = ("spa", "softmax", "twl", "quasibinary")
Calls = Iterator[tuple[str, Callable[[], Any]]]

generator = np.random.default_rng(0)
scores = 3 * generator.normal(size=(ROWS, LABELS))
probabilities = 1 / (1 + np.exp(-scores))
targets = (generator.random((ROWS, LABELS)) < probabilities).astype(np.int8)
soft = np.where(targets == 1, 0.8, 0.1)
unknown = np.where(generator.random((ROWS, LABELS)) < 0.2, -1, targets)


def step(name: str, truth: Any, dtype: torch.dtype) -> list[Any]:
    loss = cr.losses.from_name(name)
    inside = torch.tensor(scores, dtype=dtype, requires_grad=True)
    value = loss(inside, torch.tensor(truth, dtype=dtype))
    value.backward()
    return [value.item(), inside.grad]


def last_layer(name: str) -> list[Any]:
    hidden = torch.tensor(scores, dtype=torch.float32)
    weight = torch.linspace(-1, 1, 600 * LABELS).reshape(600, LABELS).requires_grad_()
    labels = [[row, row + 300] for row in range(ROWS)]
    value = cr.losses.fused_linear(cr.losses.from_name(name), hidden, weight, None, labels)
    value.backward()
    return [value.item(), weight.grad]


def losses() -> Calls:
    cases = {"hard": targets, "soft": soft, "unknown": unknown}
    cases["crowded"] = np.tile(np.arange(LABELS) < 7, (ROWS, 1))
    for name in (*LOSSES, *(f"{name}+lpr" for name in PAIRED)):
        for case, truth in cases.items():
            yield f"{name}, {case}", lambda n=name, t=truth: step(n, t, torch.float32)
    yield "asl, float64", lambda: step("asl", targets, torch.float64)
    yield "spa+lpr, float64", lambda: step("spa+lpr", targets, torch.float64)
    for name in LAST_LAYERS:
        yield f"{name}, last layer", lambda n=name: last_layer(n)


def metrics() -> Calls:
    of = cr.metrics
    yield "summary", lambda: of.summary(probabilities, targets, min_count=1)
    single = probabilities.astype(np.float32)
    yield "summary, float32", lambda: of.summary(single, targets, min_count=1)
    yield "soft", lambda: [of.average_precision(probabilities, soft)]
    yield "soft rows", lambda: [of.sample_average_precision(probabilities, soft)]
    yield "rows", lambda: [of.sample_average_precision(probabilities, targets)]
    yield "ranking", lambda: [of.ranking_loss(probabilities, targets)]
    yield "top", lambda: [of.top_k_f1(probabilities, targets, k=3)]
    yield "intervals", lambda: of.summary_intervals(probabilities, targets, min_count=1)
    # A budget of nearly nothing: the longer queries are drawn.
    for budget in (60.0, 1e-6):
        yield (
            f"retrieval, {budget} s",
            lambda b=budget: of.retrieval_map(probabilities, targets, 3, b).by_conditions,
        )


def answers(index: Any, joint: Any = None) -> list[Any]:
    queries = ["+0 -1", "(0 | 3) & !2", "0 & 4 & 5 & !6 & !7", "0"]
    found = [index.search(query, top=5, joint=joint) for query in queries]
    return [[[hit.probability for hit in each.hits], each.expected_hits] for each in found]


def search() -> Calls:
    names = [str(label) for label in range(LABELS)]
    many = generator.random((3000, LABELS))
    truth = (generator.random(many.shape) < many).astype(np.int8)
    truth[:, 1] = truth[:, 0]
    index = cr.retrieve.Index(many.astype(np.float32), names)
    known = cr.retrieve.Index(many.astype(np.float32), names, targets=truth)
    joint = cr.retrieve.Joint().fit(many, truth, names)
    yield "without truth", lambda: answers(index)
    yield "with truth", lambda: answers(known)
    yield "joint", lambda: answers(index, joint)
    yield "joint with truth", lambda: answers(known, joint)
    yield "joint model", lambda: joint.state()


def fits() -> Calls:
    many = generator.random((3000, LABELS))
    for guarantee in ("expected", ("probability", 0.1)):
        rule = cr.decide.AverageSize(2, guarantee=guarantee)
        yield f"sets, {guarantee}", lambda r=rule: [r.fit(many).predict(many)]
    log_odds = np.clip(scores, -8, 8)
    for calibrator in (cr.calibrate.Affine(), cr.calibrate.Beta(), cr.calibrate.PerLabel()):
        name = type(calibrator).__name__
        yield name, lambda c=calibrator: [c.fit(log_odds, targets).transform(log_odds)]


def digest(result: Any) -> str:
    """Digest arrays by their bytes and numbers by all of their digits."""
    made = hashlib.sha256()

    def add(value: Any) -> None:
        if isinstance(value, dict):
            value = [part for item in sorted(value.items(), key=str) for part in item]
        if isinstance(value, (list, tuple)):
            for each in value:
                add(each)
        elif isinstance(value, (np.ndarray, torch.Tensor)):
            made.update(np.ascontiguousarray(value).tobytes())
        else:
            made.update(repr(value).encode())

    add(result)
    return made.hexdigest()


FAMILIES = {"losses": losses, "metrics": metrics, "search": search, "fits": fits}

if __name__ == "__main__":
    torch.set_num_threads(1)
    print(json.dumps({name: digest(call()) for name, call in FAMILIES[sys.argv[1]]()}))
