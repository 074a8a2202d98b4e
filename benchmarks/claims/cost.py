"""What a training step costs with the two-head loss, beside cross-entropy, ROLE and top-K."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import torch
from torch import nn

from benchmarks.claims.findings import NOT_RUN, Finding
from benchmarks.claims.tables import Table
from credibly import losses

FILE = "cost.json"
NAMES: tuple[str, ...] = ("softmax", "avgk", "topk", "epr", "an", "role")
CASES = ((64, 100, 512), (64, 200, 512), (64, 1081, 512), (32, 1081, 1280))
ROWS, REPEATS, ROUNDS = 20_000, 10, 7


def measure(folder: Path) -> None:
    """Write milliseconds of CPU a step (head, loss, backward) and bytes kept, unless there."""
    if (folder / FILE).exists():
        return
    found: list[dict[str, Any]] = []
    for batch, labels, width in CASES:
        inputs, classes = torch.randn(batch, width), torch.randint(labels, (batch,))
        steps = {name: _step(name, inputs, classes, labels) for name in NAMES}
        best = dict.fromkeys(NAMES, float("inf"))
        for _ in range(ROUNDS):  # interleaved, so that a busy machine is busy for all
            for name, (step, _) in steps.items():
                start = time.process_time()
                for _ in range(REPEATS):
                    step()
                best[name] = min(best[name], (time.process_time() - start) / REPEATS)
        for name in NAMES:
            found.append(
                {
                    "batch": batch,
                    "labels": labels,
                    "width": width,
                    "loss": name,
                    "milliseconds": round(1000 * best[name], 3),
                    "state": steps[name][1],
                }
            )
    (folder / FILE).write_text(json.dumps(found, indent=1), encoding="utf-8")


def _step(name: str, inputs: torch.Tensor, classes: torch.Tensor, labels: int) -> Any:
    loss = losses.from_name(name, num_labels=labels, num_rows=ROWS, average_size=5)
    head = nn.Linear(inputs.shape[1], labels * loss.scores_per_label)
    # ROLE keeps estimates of every row; they are its parameters.
    kept = sum(t.numel() * t.element_size() for t in (*loss.parameters(), *loss.buffers()))
    extra = {"indices": torch.arange(len(inputs))} if loss.needs_indices else {}

    def step() -> None:
        head.zero_grad()
        loss.zero_grad()
        loss(head(inputs), classes, **extra).backward()

    return step, kept


def read(folder: Path) -> list[dict[str, Any]]:
    path = folder / FILE
    return json.loads(path.read_text(encoding="utf-8")) if path.exists() else []


def table(folder: Path) -> Table:
    rows = []
    for batch, labels, width in CASES:
        case = [
            r
            for r in read(folder)
            if (r["batch"], r["labels"], r["width"]) == (batch, labels, width)
        ]
        base = next((r["milliseconds"] for r in case if r["loss"] == "softmax"), None)
        for r in case:
            rows.append(
                [
                    f"{batch} × {labels}, {width} features",
                    r["loss"],
                    f"{r['milliseconds']:.2f}",
                    f"{r['milliseconds'] / base:.2f}" if base else "–",
                    f"{r['state'] / 1e6:.1f}",
                ]
            )
    header = ["batch × labels", "loss", "CPU ms a step", "of softmax", "MB kept for 20,000 rows"]
    title = "A step of a linear head: scores, loss, gradient (one thread; least of seven rounds)"
    return Table("average-k-cost", title, header, rows)


def finding(folder: Path) -> dict[str, Finding]:
    found = read(folder)
    if not found:
        return {"003-cheap": NOT_RUN}
    ratios = []
    for batch, labels, width in CASES:
        case = {
            r["loss"]: r
            for r in found
            if (r["batch"], r["labels"], r["width"]) == (batch, labels, width)
        }
        ratio = case["avgk"]["milliseconds"] / case["softmax"]["milliseconds"]
        ratios.append((f"{batch} × {labels}", ratio, case["role"]["state"] / 1e6))
    ours = "Two heads and their loss cost " + ", ".join(
        f"{ratio:.1f} times a softmax step at {case} (ROLE keeps {state:.0f} MB)"
        for case, ratio, state in ratios
    )
    ours += ", without a backbone, of which the rule speaks; nothing is kept for rows."
    return {"003-cheap": Finding("not reached", ours)}
