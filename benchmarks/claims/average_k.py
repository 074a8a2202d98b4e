"""The average-K loss: label sets of a given mean size from one observed label a row."""

from __future__ import annotations

from typing import Any

import numpy as np

from benchmarks.claims.calibrated import RATES
from benchmarks.claims.findings import NOT_RUN, Finding, judged, tally, told
from benchmarks.claims.plan import SEEDS, Method
from benchmarks.claims.tables import Difference, Results, Table, difference, mean, spread

BUDGET: dict[str, Any] = {"model": "mlp", "hidden": 256, "epochs": 15, "batch_size": 256}
CNN: dict[str, Any] = {"model": "cnn", "epochs": 16, "batch_size": 64, "learning_rate": 3e-3}
SETUPS: dict[str, tuple[dict[str, Any], tuple[int, ...]]] = {
    "tinyimagenet:tail": ({**BUDGET, "batch_size": 64}, (2, 3, 5, 10)),
    "cifar10h": (BUDGET, (2, 3, 5)),
    "tinyimagenet": ({**BUDGET, "epochs": 10}, (2, 5, 10)),
}
DEALT_ANEW = ("cifar10h@search", "tinyimagenet@search")
"""Held-out and test rows dealt from one heap: does a threshold carry over if nothing shifts?"""

VALIDATED = {
    "tinyimagenet:tail@search": (5, 3, (1e-3, 3e-3)),
    "cifar10h@search": (2, 1, (3e-3, 1e-3)),
}
"""Which head to read, asked of validation rows: K, and the α and rates that trials chose."""

TRIED_AT = 5
TRIED_AT_FOR = {"cifar10h": 2}
"""Sizes at which trials choose; with ten classes five are nearly always enough."""

DROPOUT = tuple({"dropout": value} for value in (0.2, 0.5, 0.7))

BY_SIZE: dict[str, tuple[str, tuple[dict[str, Any], ...]]] = {
    "ce": ("softmax", DROPOUT),
    "an": ("an", DROPOUT),
    "epr": ("epr", tuple({"loss": f"epr(weight={value:g})"} for value in (0.005, 0.01, 0.1))),
    "role": ("role", DROPOUT),
    "topk": ("topk", tuple({"loss": f"topk(noise={value:g})"} for value in (0.2, 1, 3))),
    "avgk": ("avgk", tuple({"loss": f"avgk(alpha={value:g})"} for value in (0.3, 1, 3))),
}
"""Trained and stopped for one size: the loss, and what three further trials try."""

TAIL_CHOSE = {"ce": 1, "an": 1, "epr": 0, "role": 0, "topk": 2, "avgk": 2}
"""Which of the three ``tinyimagenet:tail`` preferred; the whole of it takes that over."""

SHARED = {"spa": "spa", "quasibinary": "quasibinary"}
"""Trained without regard to size, thresholded for each."""


def methods() -> list[Method]:
    """Settings are chosen at one size, by held-out average-K accuracy, and kept for the others."""
    found: list[Method] = []
    for data, (budget, sizes) in SETUPS.items():
        seeds = (1, 2, 3) if data == "tinyimagenet" else SEEDS
        for name, (loss, own) in BY_SIZE.items():
            settings = {
                **budget,
                "loss": loss,
                "average_size": float(TRIED_AT_FOR.get(data, TRIED_AT)),
                "select": "average-k",
                "prior_bias": False,
            }
            rate = f"{name}, rate"
            found.append(Method(rate, data, data, settings, RATES, "average-k", seeds=()))
            if data == "tinyimagenet":  # what its tail chose
                own = own[TAIL_CHOSE[name] : TAIL_CHOSE[name] + 1]
            found.append(Method(f"{name}, own", data, data, {}, own, "average-k", rate, seeds=()))
            for size in sizes:
                at = {"average_size": float(size)}
                found.append(
                    Method(f"{name}, K = {size}", data, data, at, like=f"{name}, own", seeds=seeds)
                )
        for name, loss in SHARED.items():
            settings = {**budget, "loss": loss, "prior_bias": True}
            found.append(Method(name, data, data, settings, RATES, seeds=seeds))
    for data, (size, alpha, rates) in VALIDATED.items():
        settings = {**SETUPS[data.partition("@")[0]][0], "average_size": float(size)}
        settings |= {"select": "average-k", "prior_bias": False}
        for (name, loss), rate in zip(
            (("ce", "softmax"), ("avgk", f"avgk(alpha={alpha})")), rates, strict=True
        ):
            own = {**settings, "loss": loss, "learning_rate": rate}
            found.append(Method(f"{name}, K = {size}", data, data, own))
    for data in DEALT_ANEW:
        settings = {**BUDGET, "loss": "softmax", "learning_rate": 3e-3}
        found.append(Method("ce", data, data, settings))
    for name in ("ce", "topk", "avgk"):
        settings = {**CNN, "loss": BY_SIZE[name][0], "average_size": 2.0, "select": "average-k"}
        settings["prior_bias"] = False
        found.append(
            Method(f"{name}, K = 2", "digits:one", "digits:one", settings, seeds=(1, 2, 3))
        )
    return found


# The tables ----------------------------------------------------------------------------------

HEADS = {"avgk, ML head": ("avgk", "link"), "avgk, SCCP head": ("avgk", "sccp")}
READ = {
    "ce": ("ce", "link"),
    "an": ("an", "link"),
    "epr": ("epr", "link"),
    "role": ("role", "link"),
    "topk": ("topk", "softmax"),
    **HEADS,
    "avgk, ML head through softmax": ("avgk", "softmax"),
    "spa": ("spa", "link"),
    "quasibinary": ("quasibinary", "link"),
}
"""The method and how its scores are made comparable between rows before one threshold."""


def at(results: Results, data: str, name: str, size: int, figure: str = "accuracy") -> Any:
    """A figure of the sets of mean size ``size``, by seed, in percent (sizes as they are)."""
    method, reading = READ[name]
    full = method if method in SHARED else f"{method}, K = {size}"
    scale = 1.0 if figure.startswith(("size", "largest")) else 100.0
    return results.values(data, full, "sets", reading, str(size), figure, scale=scale)


def tables(results: Results) -> list[Table]:
    """Accuracy by size; by frequency on the long tail; sizes; people's votes; end to end."""
    found = [_accuracy(results, data, sizes) for data, (_, sizes) in SETUPS.items()]
    return [
        *found,
        _validated(results),
        _frequency(results),
        _sizes(results),
        _votes(results),
        _digits(results),
    ]


def _validated(results: Results) -> Table:
    rows = []
    for data, (size, _, _) in VALIDATED.items():
        for name in ("ce", *HEADS):
            rows.append([data, str(size), name, spread(at(results, data, name, size), 2)])
    title = "Which head to read, on validation rows: average-K accuracy, %"
    return Table("average-k-head", title, ["data", "K", "method", "accuracy"], rows)


def _accuracy(results: Results, data: str, sizes: tuple[int, ...]) -> Table:
    rows = [[name, *(spread(at(results, data, name, size), 2) for size in sizes)] for name in READ]
    title = f"Average-K accuracy, {data}, %"
    header = ["method", *(f"K = {size}" for size in sizes)]
    return Table(f"average-k-{data.replace(':', '-')}", title, header, rows)


def _frequency(results: Results) -> Table:
    groups = ("few", "medium", "many")
    rows = []
    for name in READ:
        for size in (2, 5, 10):
            cells = [spread(at(results, "tinyimagenet:tail", name, size, g)) for g in groups]
            rows.append([name, str(size), *cells])
    return Table(
        "average-k-frequency",
        "The same by frequency of the class, tinyimagenet:tail, mean over classes, %",
        ["method", "K", "few (< 10 rows)", "medium", "many (> 50)"],
        rows,
        "The tail is constructed: 100 rows for the most frequent class, 4 for the rarest, evenly "
        "in log; held-out rows follow the tail, test rows are balanced.",
    )


def _sizes(results: Results) -> Table:
    rows = []
    for data, (_, sizes) in SETUPS.items():
        for name in ("ce", *HEADS):
            for size in sizes:
                figures = ("size", "size, promised", "empty", "single", "two to four", "largest")
                cells = [spread(at(results, data, name, size, f), 2) for f in figures]
                rows.append([data, name, str(size), *cells])
    header = ["data", "method", "K", "size on test", "with the guarantee"]
    header += ["empty, %", "single, %", "two to four, %", "largest"]
    return Table("average-k-sizes", "Sizes of sets on test rows", header, rows)


def _votes(results: Results) -> Table:
    figures = ("human votes inside", "size, where people agree", "size, where they do not")
    rows = []
    for name in READ:
        for size in SETUPS["cifar10h"][1]:
            cells = [spread(at(results, "cifar10h", name, size, f), 2) for f in figures]
            rows.append([name, str(size), *cells])
    return Table(
        "average-k-votes",
        "CIFAR-10H: do the sets hold what people voted for?",
        ["method", "K", "votes inside, %", "size, calmer half", "size, most disputed tenth"],
        rows,
    )


def _digits(results: Results) -> Table:
    rows = [
        [name, spread(at(results, "digits:one", name, 2), 2)] for name in ("ce", "topk", *HEADS)
    ]
    return Table(
        "average-k-digits",
        "End to end: a small CNN on blurred single digits, average-2 accuracy, %",
        ["method", "K = 2"],
        rows,
    )


# The claims ----------------------------------------------------------------------------------


def findings(results: Results) -> dict[str, Finding]:
    """The claims of the paper, each by its rule."""
    every = [(data, size) for data, (_, sizes) in SETUPS.items() for size in sizes]
    return {
        "003-best-on-cifar100": _first(results, [pair for pair in every if pair[1] == 5]),
        "003-best-from-k3-on-plantnet": _first(results, [p for p in every if p[1] >= 3]),
        "003-gain-grows-with-k": _grows(results),
        "003-few-shot-classes": _few(results),
        "003-an-epr-role-lag": _lag(results, every),
        "003-set-sizes": _single(results),
        "003-threshold-carries-over": _carries(results, every),
        "003-which-head": _heads(results, every),
        "003-batch-size-and-alpha": _alpha(results),
    }


def _gaps(results: Results, pairs: list[tuple[str, int]], one: str, other: str) -> list[Difference]:
    return [difference(at(results, d, one, k), at(results, d, other, k)) for d, k in pairs]


def _shown(pairs: list[tuple[str, int]], gaps: list[Difference]) -> str:
    cells = [
        f"{data} K={size} {gap.mean:+.2f}"
        for (data, size), gap in zip(pairs, gaps, strict=True)
        if gap.n
    ]
    return ", ".join(cells)


def _first(results: Results, pairs: list[tuple[str, int]]) -> Finding:
    gaps = _gaps(results, pairs, "avgk, ML head", "ce")
    below, above, open_ = tally(gaps)
    parts = [f"ML head minus ce, points: {_shown(pairs, gaps)} ({told((below, above, open_))})"]
    for other in ("avgk, SCCP head", "topk"):
        others = _gaps(results, pairs, other, "ce")
        parts.append(f"{other} minus ce: {told(tally(others))}")
    return Finding(judged(above, below, open_), "; ".join(parts) + ".")


def _grows(results: Results) -> Finding:
    parts, grew = [], []
    for data, (_, sizes) in SETUPS.items():
        pairs = [(data, size) for size in sizes]
        gaps = _gaps(results, pairs, "avgk, ML head", "ce")
        if gaps[0].n and gaps[-1].n:
            grew.append(gaps[-1].mean > gaps[0].mean)
            parts.append(_shown(pairs, gaps))
    verdict = judged(sum(grew), len(grew) - sum(grew), 0)
    return Finding(verdict, f"ML head minus ce, points: {'; '.join(parts)}.") if parts else NOT_RUN


def _few(results: Results) -> Finding:
    data, parts, good, bad = "tinyimagenet:tail", [], 0, 0
    for size in (2, 5, 10):
        gains = {}
        for group in ("few", "medium", "many"):
            gains[group] = difference(
                at(results, data, "avgk, ML head", size, group),
                at(results, data, "ce", size, group),
            )
        if not gains["few"].n:
            continue
        parts.append(f"K={size} " + ", ".join(f"{g} {d.mean:+.1f}" for g, d in gains.items()))
        if size > 2:
            largest = gains["few"].mean == max(gain.mean for gain in gains.values())
            won = gains["few"].sign > 0 and largest
            good, bad = good + won, bad + (not won)
    ours = f"ML head minus ce by frequency of the class, points: {'; '.join(parts)}."
    return Finding(judged(good, bad, 0), ours) if parts else NOT_RUN


def _lag(results: Results, pairs: list[tuple[str, int]]) -> Finding:
    counts = {name: tally(_gaps(results, pairs, name, "ce")) for name in ("an", "epr", "role")}
    below, above, open_ = (sum(found[k] for found in counts.values()) for k in range(3))
    ours = "; ".join(f"{name} against ce: {told(found)}" for name, found in counts.items())
    return Finding(judged(below, above, open_), ours + ".") if below + above + open_ else NOT_RUN


def _single(results: Results) -> Finding:
    parts, good, bad, open_ = [], 0, 0, 0
    for data in SETUPS:
        one, other = (
            at(results, data, name, TRIED_AT, "single") for name in ("avgk, ML head", "ce")
        )
        gap = difference(one, other)
        if gap.n:
            parts.append(f"{data} ce {mean(other):.1f}, ML head {mean(one):.1f}")
            good, bad, open_ = good + (gap.sign < 0), bad + (gap.sign > 0), open_ + (gap.sign == 0)
    ours = f"Share of sets of one class at K = {TRIED_AT}, %: {'; '.join(parts)}."
    return Finding(judged(good, bad, open_), ours) if parts else NOT_RUN


def _carries(results: Results, pairs: list[tuple[str, int]]) -> Finding:
    """Sizes over K on the published test rows, and where rows were dealt from one heap."""
    published, promised = [], []
    for data, size in pairs:
        if data.endswith("tail"):  # held-out rows follow the tail there, test rows do not
            continue
        for name in ("ce", *HEADS):
            published += [v / size for v in at(results, data, name, size, "size").values()]
            kept = at(results, data, name, size, "size, promised").values()
            promised += [v / size for v in kept]
    dealt, dealt_promised = (
        [
            value / size
            for data in DEALT_ANEW
            for size in (2, 3, 5)
            for value in results.values(
                data, "ce", "sets", "link", str(size), figure, scale=1
            ).values()
        ]
        for figure in ("size", "size, promised")
    )
    if not published or not dealt:
        return NOT_RUN
    ours = (
        f"Mean size over K on published test rows: {np.mean(published):.3f} "
        f"({min(published):.3f} to {max(published):.3f}, {len(published)} runs and sizes), with "
        f"the guarantee {np.mean(promised):.3f}; where held-out and test rows are dealt from one "
        f"heap: {np.mean(dealt):.3f} ({min(dealt):.3f} to {max(dealt):.3f}, {len(dealt)}), with "
        f"the guarantee {np.mean(dealt_promised):.3f}."
    )
    good = [abs(np.mean(ratios) - 1) < 0.02 for ratios in (published, dealt)]
    return Finding(
        "holds" if all(good) else "holds in part" if any(good) else "does not hold", ours
    )


def _heads(results: Results, pairs: list[tuple[str, int]]) -> Finding:
    ml = _gaps(results, pairs, "avgk, ML head", "avgk, SCCP head")
    soft = _gaps(results, pairs, "avgk, SCCP head", "ce")
    below, above, open_ = tally(ml)
    ours = (
        f"ML head against SCCP head of the same model: {told((below, above, open_))}; SCCP head "
        f"against plain ce: {told(tally(soft))} ({_shown(pairs, soft)})."
    )
    return Finding(judged(above, below, open_), ours)


def _alpha(results: Results) -> Finding:
    parts = []
    for data, (_, sizes) in SETUPS.items():
        chosen = results.settings(data, f"avgk, K = {sizes[0]}").get("loss", "")
        if chosen:
            parts.append(f"{data} {chosen.partition('alpha=')[2].rstrip(')')}")
    if not parts:
        return NOT_RUN
    ours = f"α chosen on held-out rows among 0.3, 1 and 3: {', '.join(parts)}."
    return Finding("reported", f"{ours} Batch sizes were not varied.")
