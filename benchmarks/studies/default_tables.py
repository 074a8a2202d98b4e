"""The tables of benchmarks/results/default.md, from the records of ``studies.default``."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np

from benchmarks.studies.default import (
    ALL_SETS,
    METRICS,
    MORE_SETS,
    NAMES,
    SEEDLESS,
    SETS,
    TEXT_SETS,
    records,
)
from benchmarks.studies.training import markdown

SHOWN_SETS = (*ALL_SETS, *MORE_SETS)
COMPARED = METRICS[:-1]
COSTS = ("CPU s", "MB")
UNIT = {"NLL": " × 1000"}
LOWER = ("NLL", "ACE", *COSTS)
FACTOR = dict.fromkeys(METRICS, 100) | {"NLL": 1000, "CPU s": 1, "MB": 1}


def tables() -> str:
    """The page: every method on every set, differences from auto with intervals, and regret."""
    lines = records()
    found = [name for name in SHOWN_SETS if any(line["set"] == name for line in lines)]
    parts = [_set_table(name, [x for x in lines if x["set"] == name]) for name in found]
    first = [sentences(lines), _exceptions(lines), _costs(lines), _estimates(lines)]
    first.append(_missing(lines))
    return "\n\n".join([*first, _behind(lines), *parts, _images(), _texts()])


def beside(lines: list[dict[str, Any]]) -> Iterator[tuple[str, str, dict[str, list[Any]]]]:
    """Give each set, the peer whose log loss is nearest to auto's or below it, and all records."""
    for name in SHOWN_SETS:
        own = {m: [x for x in lines if (x["set"], x["method"]) == (name, m)] for m in NAMES}
        peers = {m: mean_of(own[m], "NLL") for m in NAMES if own[m] and m != "auto"}
        if own["auto"] and peers:
            yield name, min(peers, key=peers.__getitem__), own


def _age(lines: list[dict[str, Any]]) -> str:
    """Return a mark for records that code before this version made."""
    return " †" if any(line["version"].startswith("before") for line in lines) else ""


def _costs(lines: list[dict[str, Any]]) -> str:
    """CPU and memory of auto beside the nearest peer."""
    rows = []
    for name, nearest, own in beside(lines):
        ours, peer = (mean_of(own[method], "CPU s") for method in ("auto", nearest))
        memory = [max(x["all MB"] for x in own[method]) for method in ("auto", nearest)]
        ratio = f"{_ratio(own, nearest):.1f}"
        rows.append([name, nearest, f"{ours:.1f}{_age(own['auto'])}", f"{peer:.1f}", ratio])
        rows[-1] += [f"{each:,.0f}" for each in memory]
    header = ["set", "nearest peer", "auto, CPU s", "peer, CPU s", "(auto − 2 s) / peer"]
    return (
        "CPU seconds of fit and predict without imports, and peak memory of the process.\n\n"
        + markdown([*header, "auto, all MB", "peer, all MB"], rows)
    )


def _ratio(own: dict[str, list[Any]], nearest: str) -> float:
    """Return how many times the CPU seconds of the nearest peer auto takes beyond 2 seconds."""
    ours, peer = (mean_of(own[method], "CPU s") for method in ("auto", nearest))
    return max(ours - 2, 0) / peer


def sentences(lines: list[dict[str, Any]]) -> str:
    """Say where a peer has the lower log loss, and what auto costs on tables, images and texts."""
    ahead, ratios = [], {}
    for name, nearest, own in beside(lines):
        ratios[name + _age(own["auto"])] = _ratio(own, nearest)
        gap = mean_of(own["auto"], "NLL") - mean_of(own[nearest], "NLL")
        if gap >= 0.05:  # what the table can show
            both = paired(lines, name, nearest, "NLL")
            apart = "one common seed" if both is None else f"paired {both[0]:.1f} ± {both[1]:.1f}"
            ahead.append(f"{name}, {nearest} by {gap:.1f} ({apart})")
    beyond = [
        f"{name}, {method} by {gaps['NLL'][0]:.1f} ± {gaps['NLL'][1]:.1f}"
        for name, method, gaps in _gaps(lines)
        if gaps["NLL"][3]
    ]
    said = [
        f"A peer has a lower mean log loss (NLL × 1000) on {len(ahead)} of {len(ratios)} sets: "
        f"{_listed(ahead)}.",
        "With at least two common seeds, the paired 95 % interval is above zero for: "
        f"{_listed(beyond)}.",
        "The goal for CPU time is 2 s plus at most three times the time of the nearest peer in "
        "the median over sets, and at most six times on every set. Without the 2 s, the median is "
        f"{np.median(list(ratios.values())):.1f} times. Above six: {_above(ratios, 6, np.inf)}. "
        f"Above three: {_above(ratios, 3, 6)}.",
    ]
    return "\n".join(f"- {each}" for each in [*said, *_other_costs(lines)])


def _listed(names: list[str]) -> str:
    return "; ".join(names) or "none"


def _above(ratios: dict[str, float], low: float, high: float) -> str:
    return _listed([f"{name} ({r:.1f})" for name, r in ratios.items() if low < r <= high])


def _other_costs(lines: list[dict[str, Any]]) -> Iterator[str]:
    """Say what the default costs on images and texts, and how long a small table takes to start."""
    from benchmarks.studies import default_images
    from benchmarks.studies.default import START_UP

    for name in default_images.SETS:
        found = [run for run in default_images.records() if run["set"] == name]
        shown: list[tuple[float, str]] = []
        for method in default_images.METHODS:
            own = [run for run in found if run["method"] == method]
            if own:
                loss = np.mean([1000 * run["metrics"]["NLL"] for run in own])
                spent = np.mean([run["cpu_seconds"] for run in own])
                times = "1 seed" if len(own) == 1 else f"{len(own)} seeds"
                shown.append((float(loss), f"{method} {loss:.1f} in {spent:,.0f} s ({times})"))
        if shown:
            yield f"Images, {name}, NLL × 1000 and CPU seconds of the whole command: " + (
                f"{_listed([text for _, text in sorted(shown)])}."
            )
    for name, nearest, own in beside(lines):
        if name in TEXT_SETS:
            each = [
                f"{method} {mean_of(own[method], 'CPU s'):.0f} s and "
                f"{mean_of(own[method], 'MB'):.0f} MB"
                for method in ("auto", nearest)
            ]
            yield f"Texts, {name}, CPU time and memory without imports and data: {_listed(each)}."
    if START_UP.exists():
        run = json.loads(START_UP.read_text(encoding="utf-8"))
        yield (
            f"Start-up: the whole command `credibly train {run['set']} --model linear` takes "
            f"{min(run['CPU s']):.1f} to {max(run['CPU s']):.1f} CPU seconds in "
            f"{len(run['CPU s'])} runs on a machine with load {run['load']:.0f}; the goal is at "
            "most 3."
        )


def _estimates(lines: list[dict[str, Any]]) -> str:
    """What candidates were said to cost and cost, of seed 0."""
    rows = []
    for name in SHOWN_SETS:
        for line in lines:
            if (line["set"], line["method"], line["seed"]) != (name, "auto", 0):
                continue
            spent = line.get("spent", {})
            cells = [_estimate(each, spent) for each in line.get("tried", [])]
            if spent:
                rows.append([name, *cells])
    names = ("first", "second", "third", "fourth")
    return (
        "Candidates in the order in which they were tried: CPU seconds as estimated / as spent. "
        "Stopped: it gained nothing on the first fold, so it cost less than the estimate.\n\n"
        + markdown(["set", *names], rows)
    )


def _estimate(row: dict[str, Any], spent: dict[str, float]) -> str:
    if row["model"] not in spent:
        return f"{row['model']} {row['seconds']:g} / not tried"
    stopped = " (stopped)" if "left_out" in row else ""
    return f"{row['model']} {row['seconds']:g} / {spent[row['model']]:.1f}{stopped}"


def _missing(lines: list[dict[str, Any]]) -> str:
    """Name the cells that were not measured."""
    rows = []
    for name in (*SETS, *MORE_SETS):
        found = {line["method"] for line in lines if line["set"] == name}
        rows.append(f"- {name}: {', '.join(m for m in MEASURED if m not in found) or 'none'}")
    return "Methods without a record:\n\n" + "\n".join(rows)


def summary() -> str:
    """Log loss, mAP and CPU time of auto on every set, beside the peer that is nearest."""
    rows, lines = [], records()
    for name, nearest, own in beside(lines):
        pairs = ((mean_of(own[m], metric) for m in ("auto", nearest)) for metric in IN_SHORT)
        rows.append(
            [
                name + _age(own["auto"]),
                nearest,
                *(" / ".join(f"{v:.1f}" for v in pair) for pair in pairs),
                f"{len(own['auto'])} / {len(own[nearest])}",
            ]
        )
    header = ["set", "nearest peer", "NLL × 1000", "mAP@y %", "ACE %", "CPU s", "seeds"]
    old = "† `credibly train` as it was before version 0.3.0.\n\n"
    note = old if any("†" in row[0] for row in rows) else ""
    return f"{markdown(header, rows)}\n\n{note}{sentences(lines)}"


IN_SHORT = ("NLL", "mAP@y", "ACE", "CPU s")
MEASURED = ("auto", "logistic CV", "random forest", "extra trees", "LightGBM, tuned", "CatBoost")
MEASURED = (*MEASURED, "20 lines of torch")
"""Methods that are wanted on every set; calibrated versions come with the plain ones."""


def mean_of(lines: list[dict[str, Any]], metric: str) -> float:
    return float(np.mean([line[metric] for line in lines])) * FACTOR[metric]


def _shown(values: list[float], metric: str) -> str:
    array = np.array(values) * FACTOR[metric]
    spread = f" ± {array.std(ddof=1):.1f}" if len(array) > 1 else ""
    return f"{array.mean():.1f}{spread}"


def _set_table(name: str, lines: list[dict[str, Any]]) -> str:
    rows = []
    for method in NAMES:
        own = [line for line in lines if line["method"] == method]
        if not own:
            continue
        cells = [_shown([line[metric] for line in own], metric) for metric in (*METRICS, *COSTS)]
        seeds = "any" if name in SEEDLESS.get(method, ()) else str(len(own))
        rows.append([method, seeds, *cells])
    header = ["method", "seeds", "NLL × 1000"]
    return f"**{name}**\n\n" + markdown([*header, *(f"{m} %" for m in METRICS[1:]), *COSTS], rows)


def paired(
    lines: list[dict[str, Any]], name: str, method: str, metric: str
) -> tuple[float, float, int] | None:
    """Mean of auto minus ``method`` over common seeds, half of its 95 % interval, and the seeds."""
    from scipy.stats import t

    own = {x["seed"]: x[metric] for x in lines if (x["set"], x["method"]) == (name, "auto")}
    other = {x["seed"]: x[metric] for x in lines if (x["set"], x["method"]) == (name, method)}
    if other and name in SEEDLESS.get(method, ()):
        other = dict.fromkeys(own, next(iter(other.values())))
    gaps = [FACTOR[metric] * (own[seed] - other[seed]) for seed in own if seed in other]
    if len(gaps) < 2:
        return None
    half = t.ppf(0.975, len(gaps) - 1) * np.std(gaps, ddof=1) / np.sqrt(len(gaps))
    return float(np.mean(gaps)), float(half), len(gaps)


def _gaps(lines: list[dict[str, Any]]) -> Iterator[tuple[str, str, dict[str, Any]]]:
    """Give each set and peer with the paired difference by metric: mean, half interval, worse."""
    for name in SHOWN_SETS:
        for method in NAMES:
            if method == "auto":
                continue
            gaps = {}
            for metric in COMPARED:
                gap = paired(lines, name, method, metric)
                if gap is not None:
                    mean, half, seeds = gap
                    worse = mean > half if metric in LOWER else mean < -half
                    gaps[metric] = (mean, half, seeds, worse)
            if gaps:
                yield name, method, gaps


def _exceptions(lines: list[dict[str, Any]]) -> str:
    """Name every peer and metric in which auto is worse beyond the paired interval."""
    found = []
    for name, method, gaps in _gaps(lines):
        cells = [
            f"{metric} by {abs(mean):.1f} ± {half:.1f}{UNIT.get(metric, ' points')}"
            for metric, (mean, half, _, worse) in gaps.items()
            if worse
        ]
        if cells:
            seeds = next(iter(gaps.values()))[2]
            found.append(f"- {name}, {method} ({seeds} seeds): {'; '.join(cells)}")
    head = "Exceptions, where a peer is better than auto beyond the paired 95 % interval:\n\n"
    return head + ("\n".join(found) or "- none")


def _behind(lines: list[dict[str, Any]]) -> str:
    rows = []
    for name, method, gaps in _gaps(lines):
        cells = []
        for mean, half, _, worse in gaps.values():
            mark = "**" if worse else ""
            cells.append(f"{mark}{mean:+.1f} ± {half:.1f}{mark}")
        rows.append([name, method, str(next(iter(gaps.values()))[2]), *cells])
    header = ["set", "auto minus", "seeds", "NLL × 1000", *(f"{m} %" for m in COMPARED[1:])]
    return (
        "Auto minus each peer over the same seeds, ± half of the paired 95 % interval; bold where "
        "auto is worse beyond it.\n\n" + markdown(header, rows)
    )


PEERS_ON_IMAGES = ("BCE", "focal, sigmoid", "ASL detached, sigmoid", "two-way + temperature")
PEERS_ON_IMAGES = (*PEERS_ON_IMAGES, "two-way + affine", "SPA", "SPA + affine", "SPA+LPR")
PEERS_ON_IMAGES = (*PEERS_ON_IMAGES, "BCE, prior bias + affine")
PEERS_WITH_START = ("two-way + affine", "SPA", "SPA + affine", "SPA+LPR", "SPA+LPR + affine")
PEERS_ON_TEXTS = ("BCE", "focal, sigmoid", "ASL detached, sigmoid", "two-way, sigmoid")
PEERS_ON_TEXTS = (*PEERS_ON_TEXTS, "two-way + affine", "SPA", "SPA + affine")


def _images() -> str:
    """The default beside others on networks trained on images (the study of claims)."""
    from benchmarks.claims import networks
    from benchmarks.claims.networks.tables import RECIPES

    rows = []
    for name in ("coco", "voc", "ucmerced"):
        started = f"{name}, head start"
        peers = [(peer, name, peer) for peer in PEERS_ON_IMAGES]
        peers += [(f"{peer}, head start", started, peer) for peer in PEERS_WITH_START]
        peers.append(("linear, frozen features", f"{name}, frozen", "BCE, prior bias + affine"))
        rows.append(_Compared(name, (started, "BCE + affine"), peers))
    return (
        "EfficientNet-Lite0 fine-tuned on images for three epochs "
        "([networks](networks.md)): the default (BCE, head start, affine map) minus "
        "others', each as its paper uses it or with the affine map too.\n\n"
        + _recipes("images", networks.methods(), RECIPES, rows)
    )


def _texts() -> str:
    """The same on words of texts."""
    from benchmarks.claims import texts
    from benchmarks.claims.texts.tables import RECIPES

    rows = [
        _Compared(
            name,
            (name, "BCE, prior bias + affine"),
            [(peer, name, peer) for peer in PEERS_ON_TEXTS],
        )
        for name in ("reuters, tfidf", "goemotions, tfidf")
    ]
    return (
        "TF-IDF on texts ([texts](texts.md)), with held-out rows as in `--folds 0`: BCE, "
        "biases at the rates and one affine map, minus others'. The default has folds and a map "
        "per label besides; scikit-learn stands under reuters above.\n\n"
        + _recipes("texts", texts.methods(), RECIPES, rows)
    )


class _Compared(NamedTuple):
    """Our setup and recipe on a set, and the name, setup and recipe of each peer."""

    name: str
    own: tuple[str, str]
    peers: list[tuple[str, str, str]]


def _recipes(
    kind: str,
    methods: list[Any],
    recipes: dict[str, tuple[str, str]],
    compared: list[_Compared],
) -> str:
    from benchmarks.claims.runner import Book
    from benchmarks.claims.tables import Results, difference

    results = Results(methods, Book())

    def figures(setup: str, recipe: str) -> list[dict[int, float]]:
        method, reading = recipes[recipe]
        path = (setup, method, "readings", reading)
        nll = results.values(*path, "NLL", scale=1000)
        ranking = [results.values(setup, method, name) for name in ("mAP@y", "mAP@x")]
        return [nll, results.values(*path, "ACE"), *ranking]

    rows = []
    for each in compared:
        own = figures(*each.own)
        for label, setup, recipe in each.peers:
            gaps = [difference(*pair) for pair in zip(own, figures(setup, recipe), strict=True)]
            if gaps[0].n < 2:
                continue
            worse = [gap.sign > 0 if place < 2 else gap.sign < 0 for place, gap in enumerate(gaps)]
            cells = [
                f"**{gap.mean:+.1f} ± {gap.high - gap.mean:.1f}**"
                if bad
                else f"{gap.mean:+.1f} ± {gap.high - gap.mean:.1f}"
                for gap, bad in zip(gaps, worse, strict=True)
            ]
            rows.append([each.name, label, str(gaps[0].n), *cells])
    header = [kind, "recipe minus", "seeds", "NLL × 1000", "ACE %", "mAP@y %", "mAP@x %"]
    return markdown(header, rows)
