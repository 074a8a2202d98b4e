"""One table: every part beside its peers, how it grows, and its worst case.

    python -m benchmarks scale

A case is timed at some sizes together with its peer, in turns, by CPU time on one thread; the
values are compared first. The table has the times at the largest size, the worst ratio to the peer
over all sizes and kinds of input (a half-trained head, a trained one, scores far below 0, rows
without labels), the exponents of growth (slope of log time over log size, a fixed cost included),
and the peak of memory at the largest size. Clients of the web app wait; their time is wall time.

Timm and polars are peers where they are installed; compiled formulas need a C++ compiler.
"""

from __future__ import annotations

import asyncio
import ctypes
import gc
import importlib
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks import scale_files
from benchmarks.scale_files import Step
from benchmarks.timing import in_turns, median, ratio

REPEATS = 5


@dataclass(frozen=True)
class Case:
    """What is measured: ``make(size, kind)`` returns our step and the peer's."""

    name: str
    peer: str
    over: str
    sizes: tuple[int, ...]
    make: Callable[[int, str], tuple[Step, Step]]
    kinds: tuple[str, ...] = ("",)


def run() -> list[dict[str, object]]:
    """Return one row per case."""
    import torch

    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as folder:
        rows = [measure(case) for case in cases(Path(folder))]
        return [*rows, clients(Path(folder))]


def measure(case: Case) -> dict[str, object]:
    """Time a case at all sizes and kinds."""
    ours: list[float] = []
    peers: list[float] = []
    ratios: dict[str, float] = {}
    peaks = (0.0, 0.0)
    for size in case.sizes:
        worst = [0.0, 0.0]
        for kind in case.kinds:
            step, peer = case.make(size, kind)
            seconds = in_turns({"ours": step, "peer": peer}, REPEATS)
            ratios[f"{size:,} {kind}".strip()] = ratio(seconds, "ours", "peer")
            worst = [max(worst[0], median(seconds["ours"])), max(worst[1], median(seconds["peer"]))]
            if size == case.sizes[-1]:
                peaks = (peak_megabytes(step), peak_megabytes(peer))
        ours.append(worst[0])
        peers.append(worst[1])
    at = max(ratios, key=lambda name: ratios[name])
    row: dict[str, object] = {
        "what": case.name,
        "peer": case.peer,
        "size": f"{case.sizes[-1]:,} {case.over}",
        "ms": f"{1e3 * ours[-1]:.3g}",
        "peer ms": f"{1e3 * peers[-1]:.3g}",
        "worst ratio": f"{ratios[at]:.2f} at {at}",
        "growth": f"{exponent(case.sizes, ours):.2f}",
        "peer growth": f"{exponent(case.sizes, peers):.2f}",
        "MB / peer": f"{peaks[0]:.0f} / {peaks[1]:.0f}",
    }
    print(" · ".join(f"{name} {value}" for name, value in row.items()), flush=True)
    return row


def exponent(sizes: tuple[int, ...], seconds: list[float]) -> float:
    """Return the slope of log time over log size."""
    return float(np.polyfit(np.log(sizes), np.log(seconds), 1)[0])


def peak_megabytes(step: Step) -> float:
    """Return by how much the process grows while the step runs."""
    gc.collect()
    ctypes.CDLL(None).malloc_trim(0)  # what earlier steps left would be used again
    Path("/proc/self/clear_refs").write_text("5")  # the peak counts from now on
    before = _status("VmRSS")
    step()
    return max(0.0, _status("VmHWM") - before)


def _status(key: str) -> float:
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith(key)) / 1024


def installed(module: str) -> bool:
    """Return whether a peer can be imported; print why it is left out otherwise."""
    try:
        importlib.import_module(module)
    except Exception as error:  # a broken dependency raises errors of its own
        print(f"{module} is left out: {str(error).splitlines()[0]}", flush=True)
        return False
    return True


def cases(folder: Path) -> Iterator[Case]:
    """Yield every case."""
    yield from loss_cases()
    yield Case(
        "fused_linear(SPA), batch 64",
        "nn.Linear + BCEWithLogitsLoss",
        "labels",
        (10_000, 30_000, 100_000),
        fused_step,
    )
    ap = "average_precision, 20 labels"
    yield Case(ap, "scikit-learn", "rows", (4_000, 16_000, 64_000), precision_step)
    yield Case(ap, "torchmetrics", "rows", (4_000, 16_000, 64_000), torchmetrics_step)
    yield Case(
        "calibration_error, 20 labels",
        "torchmetrics",
        "rows",
        (4_000, 16_000, 64_000),
        calibration_step,
    )
    yield Case(
        "search in memory, 5 conditions",
        "numpy",
        "rows",
        (100_000, 400_000, 1_600_000),
        scale_files.memory_step,
    )

    if installed("polars"):
        yield Case(
            "search in memory, 5 conditions",
            "polars",
            "rows",
            (100_000, 400_000, 1_600_000),
            scale_files.polars_memory_step,
        )

    def file_step(rows: int, _: str) -> tuple[Step, Step]:
        return scale_files.parquet_step(folder, rows, 5)

    def conditions_step(count: int, _: str) -> tuple[Step, Step]:
        return scale_files.parquet_step(folder, 300_000, count)

    search = "search from Parquet with truth, 80 labels"
    yield Case(
        f"{search}, 5 conditions", "plain DuckDB", "rows", (100_000, 300_000, 1_000_000), file_step
    )
    yield Case(search, "plain DuckDB", "conditions of 300,000 rows", (2, 5, 10), conditions_step)
    if installed("polars"):
        sizes = (100_000, 300_000, 1_000_000)

        def polars_step(rows: int, _: str) -> tuple[Step, Step]:
            return scale_files.polars_parquet_step(folder, rows)

        yield Case(f"{search}, 5 conditions", "polars", "rows", sizes, polars_step)
    yield from many_label_cases(folder)
    yield from evaluation_cases(folder)
    yield Case(
        "search in memory, joint model, 80 labels",
        "independent labels",
        "rows",
        (50_000, 100_000, 200_000),
        scale_files.joint_step,
    )


def many_label_cases(folder: Path) -> Iterator[Case]:
    """Yield searches of files with very many labels, in both layouts."""

    def wide_step(labels: int, _: str) -> tuple[Step, Step]:
        return scale_files.parquet_step(folder, 500, 5, labels)

    def top_step(rows: int, _: str) -> tuple[Step, Step]:
        return scale_files.top_labels_step(folder, rows)

    yield Case(
        "search from Parquet with truth, 500 rows, 5 conditions",
        "plain DuckDB",
        "labels",
        (1_000, 3_000, 10_000),
        wide_step,
    )
    yield Case(
        "search of 50 most probable labels of 100,000, 3 conditions",
        "plain DuckDB",
        "rows",
        (10_000, 30_000, 100_000),
        top_step,
    )


def evaluation_cases(folder: Path) -> Iterator[Case]:
    """Yield ``evaluate`` over rows and over labels."""

    def rows_step(rows: int, _: str) -> tuple[Step, Step]:
        return scale_files.evaluate_step(folder, rows, 20)

    def labels_step(labels: int, _: str) -> tuple[Step, Step]:
        return scale_files.evaluate_step(folder, 1_000, labels)

    peer = "scikit-learn, mAP@y and Brier alone"
    yield Case("evaluate, 20 labels", peer, "rows", (10_000, 40_000, 160_000), rows_step)
    yield Case("evaluate, 1,000 rows", peer, "labels", (300, 1_000, 3_000), labels_step)


# Losses -----------------------------------------------------------------------------------------


def loss_cases() -> Iterator[Case]:
    """Yield losses beside the base and beside the formulas that their authors print."""
    import torch

    from benchmarks import losses
    from credibly.losses import SPA, Asymmetric, LabelPairs, TwoWay

    def step(loss: Any, peer: Any) -> Callable[[int, str], tuple[Step, Step]]:
        def make(labels: int, kind: str) -> tuple[Step, Step]:
            scores, targets = losses.ranged_batch(64, labels, kind)

            def once(criterion: Any) -> Step:
                def call() -> None:
                    scores.grad = None
                    criterion(scores, targets).backward()

                return call

            return once(loss), once(peer)

        return make

    def compiled(formula: Any) -> Any:
        torch._dynamo.reset()  # one shape at a time: no limit on how often it is compiled
        return torch.compile(formula, dynamic=False)

    def compiled_step(loss: Any, formula: Any) -> Callable[[int, str], tuple[Step, Step]]:
        return lambda labels, kind: step(loss, compiled(formula))(labels, kind)

    kinds = ("half-trained", "trained", "saturated", "far below", "rare")
    base, sizes = torch.nn.BCEWithLogitsLoss(), (80, 1000, 9605)
    yield Case("SPA, batch 64", "nn.BCEWithLogitsLoss", "labels", sizes, step(SPA(), base), kinds)
    yield Case(
        "Asymmetric, batch 64", "as printed", "labels", sizes,
        step(Asymmetric(), losses.naive_asymmetric), kinds,
    )  # fmt: skip
    if installed("timm.loss"):
        asymmetric: Any = importlib.import_module("timm.loss").AsymmetricLossMultiLabel()
        yield Case(
            "Asymmetric, batch 64", "timm", "labels", sizes, step(Asymmetric(), asymmetric), kinds
        )
    for name, loss, formula in (
        ("SPA", SPA(), losses.naive_spa),
        ("Asymmetric", Asymmetric(), losses.naive_asymmetric),
    ):
        peer, make = "plain formula, torch.compile", compiled_step(loss, formula)
        yield Case(f"{name}, batch 64", peer, "labels", sizes, make, kinds[:2])
    yield Case(
        "TwoWay, batch 64",
        "as printed",
        "labels",
        sizes,
        step(TwoWay(), printed_two_way),
        kinds[:2],
    )
    yield Case(
        "SPA + LabelPairs, batch 64", "cube of pairs", "labels", (20, 80, 320),
        step(LabelPairs(SPA()), losses.naive_label_pairs), kinds[:2],
    )  # fmt: skip


def printed_two_way(scores: Any, targets: Any) -> Any:
    """Return the two-way loss as its authors compute it, with infinities in place of the others."""
    import torch
    from torch.nn.functional import softplus

    present = targets.bool()
    total = scores.new_zeros(())
    for dim in (0, 1):
        some = present.any(dim) & (~present).any(dim)
        low = torch.logsumexp(torch.where(present, -scores / 4.0, -torch.inf), dim) * 4.0
        high = torch.logsumexp(torch.where(present, -torch.inf, scores), dim)
        total = total + softplus((low + high)[some]).mean()
    return total


def fused_step(labels: int, _: str) -> tuple[Step, Step]:
    """Return the last layer with its loss, at once and one after the other."""
    import torch

    from credibly.losses import SPA, fused_linear
    from credibly.targets import SparseTargets

    generator = np.random.default_rng(0)
    hidden = torch.randn(64, 128, requires_grad=True)
    layer, base = torch.nn.Linear(128, labels), torch.nn.BCEWithLogitsLoss()
    lists = [generator.choice(labels, 3, replace=False) for _ in range(64)]
    targets = SparseTargets.from_lists(lists, labels)
    loss = SPA()

    def clear() -> None:
        hidden.grad = layer.weight.grad = layer.bias.grad = None

    def ours() -> None:
        clear()
        fused_linear(loss, hidden, layer.weight, layer.bias, targets).backward()

    def peer() -> None:
        clear()
        base(layer(hidden), torch.from_numpy(targets.dense())).backward()

    return ours, peer


# Metrics ----------------------------------------------------------------------------------------


def _predictions(rows: int) -> tuple[Any, Any]:
    from benchmarks.metrics import predictions

    return predictions(rows, 20)


def precision_step(rows: int, _: str) -> tuple[Step, Step]:
    """Return average precision per label, by credibly and by scikit-learn."""
    from sklearn import metrics as peers

    from credibly import metrics

    scores, targets = _predictions(rows)
    score: Any = peers.average_precision_score
    theirs = score(targets, scores, average=None)
    np.testing.assert_allclose(metrics.average_precision(scores, targets), theirs, rtol=1e-6)
    return (
        lambda: metrics.average_precision(scores, targets),
        lambda: score(targets, scores, average=None),
    )


def torchmetrics_step(rows: int, _: str) -> tuple[Step, Step]:
    """Return average precision per label, by credibly and by torchmetrics."""
    import torch
    from torchmetrics.functional.classification import multilabel_average_precision

    from credibly import metrics

    scores, targets = _predictions(rows)
    values, truth = torch.from_numpy(scores), torch.from_numpy(targets).long()
    return (
        lambda: metrics.average_precision(scores, targets),
        lambda: multilabel_average_precision(values, truth, 20, average=None, thresholds=None),
    )


def calibration_step(rows: int, _: str) -> tuple[Step, Step]:
    """Return the pooled calibration error, by credibly and by torchmetrics."""
    import torch
    from torchmetrics.functional.classification import binary_calibration_error

    from credibly import metrics

    scores, targets = _predictions(rows)
    values = torch.from_numpy(scores).flatten()
    truth = torch.from_numpy(targets).long().flatten()
    return (
        lambda: metrics.calibration_error(scores, targets, kind="ece"),
        lambda: binary_calibration_error(values, truth, n_bins=15),
    )


# Clients ----------------------------------------------------------------------------------------


def clients(folder: Path) -> dict[str, object]:
    """Return how the wait for a search grows with the clients that ask at once."""
    from benchmarks import serve

    path, counts = folder / "served.parquet", (1, 5, 25)
    serve.write_predictions(path, 200_000)
    server = subprocess.Popen(
        [sys.executable, "-m", "credibly", "serve", str(path), "--port", "0", "--quiet"],
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        assert server.stdout is not None
        address = server.stdout.readline().split()[0]
        asyncio.run(serve.load(address, 1, len(serve.QUERIES)))
        waits = []
        for count in counts:
            times, wrong = asyncio.run(serve.load(address, count, 10))
            assert not wrong
            waits.append(float(np.median(times)))
    finally:
        server.terminate()
        server.wait(30)
    return {
        "what": "search in the web app, 200,000 rows",
        "peer": "",
        "size": f"{counts[-1]} clients",
        "ms": f"{1e3 * waits[-1]:.3g} (median wait)",
        "peer ms": "",
        "worst ratio": "",
        "growth": f"{exponent(counts, waits):.2f}",
        "peer growth": "",
        "MB / peer": "",
    }
