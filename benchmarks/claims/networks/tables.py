"""Networks beside the papers' tables; what biases and optimizers change; what could be seen."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from scipy import stats

from benchmarks.claims.calibrated.tables import RECIPES as CALIBRATED
from benchmarks.claims.cells import Cell
from benchmarks.claims.networks.methods import (
    CIFAR_RATES,
    CIFAR_SETUPS,
    FEATURES,
    FLOWERS,
    FLOWERS_SIZE,
    FLOWERS_SIZES,
    FROM_WEIGHTS,
    FROZEN_SETUPS,
    LONG_TAIL,
    LONGER,
    LONGER_LOSSES,
    NO_LABEL,
    NO_LABEL_LOSSES,
    ONE_LABEL,
    ONE_OF_BOTH,
    RANKED,
    RANKING,
    SETS_SETUPS,
    SETUPS,
    SUMMED,
    THROUGH,
    WITH_A_BUDGET,
)
from benchmarks.claims.plan import TRIAL_SEED, Method
from benchmarks.claims.quasibinary import zero_label_table
from benchmarks.claims.tables import LEVEL, Results, Table, difference, spread
from benchmarks.claims.transfer import TRANSFERRED

Printed = dict[str, str]
PAPER: dict[str, tuple[str, Printed]] = {
    "coco": (
        "COCO, ECA-ResNet50-T",
        {
            "BCE": "72.2 / 82.4, 8.2 / 17.0",
            "two-way + temperature": "77.2 / 87.9, 17.2 / 33.6",
            "focal, sigmoid": "74.8 / 85.9, 20.1 / 34.9",
            "ASL detached, sigmoid": "77.5 / 88.2, 30.6 / 46.0",
            "SPA": "77.8 / 88.4, 5.3 / 12.0",
            "SPA+LPR": "77.7 / 88.6, 4.2 / 9.3",
        },
    ),
    "voc": (
        "VOC, ECA-ResNet50-T",
        {
            "BCE": "85.1 / 92.4, 6.9 / 13.8",
            "two-way + temperature": "89.1 / 93.7, 10.8 / 22.0",
            "ASL detached, sigmoid": "89.6 / 94.6, 26.4 / 47.7",
            "SPA": "89.5 / 94.1, 5.4 / 14.9",
            "SPA+LPR": "89.9 / 94.3, 4.9 / 11.0",
        },
    ),
}
"""mAP@y / mAP@x, ACE / MCE of the SPA paper's Table 3."""

RECIPES = {
    name: CALIBRATED[name]
    for name in (
        *("BCE", "BCE + affine", "BCE, prior bias", "BCE, prior bias + affine"),
        *("two-way + temperature", "two-way + affine", "focal, sigmoid", "focal, φ"),
        *("ASL detached, sigmoid", "ASL detached, φ"),
        *("ASL detached, right link", "ASL detached, right link + affine"),
        *("SPA", "SPA + affine", "SPA, prior bias", "SPA, prior bias + affine"),
        *("SPA+LPR", "SPA+LPR + affine"),
    )
}
RECIPES["BCE + two-way term, prior bias + affine"] = ("bce+twl, prior", "link + affine")
"""As a row of a table: the method and how its scores become probabilities."""


SEARCHED = (
    *("BCE", "SPA", "SPA+LPR", "ASL detached, sigmoid", "BCE, prior bias + affine"),
    "BCE + two-way term, prior bias + affine",
)


def tables(results: Results) -> list[Table]:
    """Every setup by recipe; SPA minus BCE by optimizer and biases; CIFAR-100 by classes."""
    several = [setup for setup in SETUPS if setup not in (*ONE_OF_BOTH, *FROZEN_SETUPS)]
    every = [_setup(results, setup) for setup in (*several, FEATURES)]
    further = (_starts, _switches, _ahead, _ranking, _several, _longer, _retrieval, _growth, _rates)
    return [
        *every,
        *(table(results) for table in further),
        zero_label_table(results, NO_LABEL, tuple(NO_LABEL_LOSSES)),
        *(table(results) for table in (_transfer, _sets, _frequency)),
    ]


def _setup(results: Results, setup: str) -> Table:
    title, printed = PAPER.get(setup, ("", {}))
    rows = []
    for recipe, (method, reading) in RECIPES.items():
        cells = [spread(results.values(setup, method, figure)) for figure in ("mAP@y", "mAP@x")]
        cells += [
            spread(results.values(setup, method, "readings", reading, figure, scale=scale))
            for figure, scale in (("ACE", 100), ("MCE", 100), ("NLL", 1000))
        ]
        rows.append([recipe, *cells] + ([printed.get(recipe, "")] if printed else []))
    header = ["recipe", "mAP@y, %", "mAP@x, %", "ACE, %", "MCE, %", "NLL × 1000"]
    note = ""
    if printed:
        header.append("the paper")
        note = f"The paper: {title}, mAP@y / mAP@x, ACE / MCE."
    name = f"networks-{setup.replace(', ', '-').replace(' ', '')}"
    data = SETUPS[setup][0] if setup in SETUPS else setup
    return Table(name, f"{setup} ({data}), test", header, rows, note)


STARTS = (
    ("coco", "bce, prior"),
    ("coco, fixed norms alone", "bce, prior"),
    ("coco, head start, free norms", "bce, prior"),
    ("coco, head start", "bce"),
    ("coco, frozen", "bce, prior"),
    ("ucmerced", "bce, prior"),
    ("ucmerced, head start", "bce"),
    ("ucmerced, frozen", "bce, prior"),
    ("voc", "bce, prior"),
    ("voc, head start", "bce"),
    ("voc, frozen", "bce, prior"),
    ("coco, 15 epochs", "bce, prior"),
    ("coco, 15 epochs, head start", "bce"),
)
"""BCE from a random last layer with biases at the rates, with a head start, and frozen."""


def _starts(results: Results) -> Table:
    """What the start of fine-tuning is worth."""
    rows = []
    for setup, method in STARTS:
        cells = [spread(results.values(setup, method, f)) for f in ("mAP@y", "mAP@x")]
        cells += [
            spread(results.values(setup, method, "readings", reading, figure, scale=scale))
            for reading, figure, scale in (
                ("link", "ACE", 100),
                ("link + affine", "ACE", 100),
                ("link + affine", "NLL", 1000),
            )
        ]
        rows.append([setup, *cells])
    header = ["setup", "mAP@y, %", "mAP@x, %", "ACE, %", "ACE + affine", "NLL + affine × 1000"]
    title = "BCE by the start of fine-tuning: biases at the rates alone, a head start, or frozen"
    return Table("networks-starts", title, header, rows)


def _switches(results: Results) -> Table:
    """What SPA gains over BCE by setup and initial bias."""
    rows = []
    for setup in (*SETUPS, FEATURES):
        for start, spa, bce in (("zero", "spa", "bce"), ("prior", "spa, prior", "bce, prior")):
            gaps = [
                difference(results.values(setup, spa, f), results.values(setup, bce, f))
                for f in ("mAP@y", "mAP@x")
            ]
            gaps += [
                difference(
                    results.values(setup, spa, "readings", reading, figure, scale=scale),
                    results.values(setup, bce, "readings", reading, figure, scale=scale),
                )
                for reading, figure, scale in (
                    ("link", "ACE", 100),
                    ("link", "NLL", 1000),
                    ("link + affine", "NLL", 1000),
                )
            ]
            if gaps[0].n:
                rows.append([setup, start, *map(str, gaps)])
    header = ["setup", "biases", "mAP@y, %", "mAP@x, %", "ACE, %", "NLL × 1000", "NLL + affine"]
    title = "SPA minus BCE by optimizer and initial biases (95 % interval over seeds)"
    return Table("networks-switches", title, header, rows)


def _ahead(results: Results) -> Table:
    """What the two-way term adds to BCE with prior biases."""
    rows = []
    for setup in (*SETUPS, *LONGER, FEATURES):
        one, other = "bce+twl, prior", "bce, prior"
        path, scales = ("readings", "link + affine"), (("NLL", 1000.0), ("ACE", 100.0))
        gaps = [
            difference(results.values(setup, one, f), results.values(setup, other, f))
            for f in ("mAP@y", "mAP@x")
        ]
        gaps += [
            difference(
                results.values(setup, one, *path, figure, scale=scale),
                results.values(setup, other, *path, figure, scale=scale),
            )
            for figure, scale in scales
        ]
        if gaps[0].n:
            rows.append([setup, *map(str, gaps)])
    header = ["setup", "mAP@y, %", "mAP@x, %", "NLL × 1000", "ACE, %"]
    title = "BCE + two-way term minus BCE, both with prior biases and an affine map"
    return Table("networks-two-way-term", title, header, rows)


def _longer(results: Results) -> Table:
    """The same losses for few epochs and for many."""
    rows = []
    for name in LONGER_LOSSES:
        reading = "sigmoid + affine" if name == "twl" else "link + affine"
        path = ("readings", reading, "NLL")
        cells = [spread(results.values(setup, name, "mAP@y")) for setup in LONGER]
        cells += [spread(results.values(setup, name, *path, scale=1000)) for setup in LONGER]
        rows.append([name, *cells])
    few, many = LONGER.values()
    header = [
        "method",
        *(f"{f}, {e} epochs" for f in ("mAP@y, %", "NLL × 1000") for e in (few, many)),
    ]
    title = "Digit scenes, a small CNN: what is left of the gaps when training goes on"
    return Table("networks-longer", title, header, rows)


def _sets(results: Results) -> Table:
    """Average-K accuracy by setup, loss and the probabilities used, trained for each K."""
    rows = []
    for setup, sizes in SETS_SETUPS.items():
        for loss in WITH_A_BUDGET:
            found = {k: results.by_seed(setup, f"{loss}, K = {k}", "sets") for k in sizes}
            for reading in _readings(found[FLOWERS_SIZE]):
                error = results.values(setup, f"{loss}, K = {FLOWERS_SIZE}", "top-1 error")
                cells = [
                    spread(_share(found.get(k, {}), reading, str(k), "accuracy"))
                    for k in FLOWERS_SIZES
                ]
                rows.append([setup, f"{loss}, {reading}", spread(error), *cells])
    header = ["setup", "loss, probabilities", f"top-1 error at K = {FLOWERS_SIZE}, %"]
    header += [f"K = {k}" for k in FLOWERS_SIZES]
    title = "Sets of an average size, each loss trained for the K of its column: accuracy, %"
    note = (
        "Lite0 fine-tuned at 64 px, on Flowers-102 with a long tail and on 50 classes of CIFAR-100."
    )
    return Table("networks-sets", title, header, rows, note)


def _frequency(results: Results) -> Table:
    """At one size, by how many training rows a class has."""
    groups, size = ("few", "medium", "many"), str(FLOWERS_SIZE)
    rows = []
    for setup in (FLOWERS, LONG_TAIL):
        for loss in WITH_A_BUDGET:
            found = results.by_seed(setup, f"{loss}, K = {size}", "sets")
            for reading in _readings(found):
                cells = [spread(_share(found, reading, size, g)) for g in (*groups, "single")]
                rows.append([setup, f"{loss}, {reading}", *cells])
    header = [
        "setup",
        "loss, probabilities",
        "few (< 10 rows)",
        "medium",
        "many (> 50)",
        "sets of one class",
    ]
    title = f"The same at K = {FLOWERS_SIZE} by frequency of the class, and sets of one class, %"
    return Table("networks-sets-frequency", title, header, rows)


def _readings(found: dict[int, Any]) -> list[str]:
    """The maps to probabilities that these sets were made with."""
    return list(dict.fromkeys(key for one in found.values() for key in one))


def _share(found: dict[int, Any], reading: str, size: str, figure: str) -> dict[int, float]:
    return {
        seed: 100 * sets[reading][size][figure]
        for seed, sets in found.items()
        if sets.get(reading, {}).get(size, {}).get(figure) is not None
    }


def _several(results: Results) -> Table:
    """F1 and ECE of the four most probable labels, as the quasibinary paper has them for COCO."""
    names = ("bce", "bce, prior", "softmax", "quasibinary")
    rows = []
    for name in names:
        cells = [
            spread(results.values(setup, name, "readings", "link", figure))
            for setup in RANKED
            for figure in ("F1-top-4", "ECE-top-4")
        ]
        above = [spread(results.values(setup, name, "above one")) for setup in RANKED]
        rows.append([name, *cells, *above])
    header = ["classifier", *(f"{s}, {f}" for s in RANKED for f in ("F1-top-4", "ECE-top-4"))]
    header += [f"{s}, q > 1" for s in RANKED]
    title = "The four most probable labels, each loss through its own link, %"
    return Table("networks-top-4", title, header, rows)


def _transfer(results: Results) -> Table:
    rows = [
        [
            loss,
            *(spread(results.values(THROUGH, loss, f)) for f in ("mAP@y", "mAP@x", "top-1 error")),
        ]
        for loss in TRANSFERRED
    ]
    title = "Linear probes for 102 flowers on a ResNet-20 trained for 50 classes of CIFAR-100"
    header = ["trained with", "mAP@y, %", "mAP@x, %", "top-1 error, %"]
    return Table("networks-transfer", title, header, rows)


def _ranking(results: Results) -> Table:
    """The ways, temperature and rivals of the two-way loss, from zero biases."""
    names = ("twl", *RANKING, "asl, detached", "bce")
    rows = []
    for name in names:
        cells = [
            spread(results.values(setup, name, figure))
            for setup in RANKED
            for figure in ("mAP@y", "mAP@x")
        ]
        rows.append(["two-way, T = 4" if name == "twl" else name, *cells])
    header = ["loss", *(f"{s}, {figure}" for s in RANKED for figure in ("mAP@y, %", "mAP@x, %"))]
    return Table("networks-two-way", "The two-way loss on images, zero biases", header, rows)


def _retrieval(results: Results) -> Table:
    rows = []
    for setup in SETUPS:
        for recipe in SEARCHED:
            method, reading = RECIPES[recipe]
            found = results.by_seed(setup, method, "readings", reading, "retrieval")
            cells = [
                spread({seed: 100 * values[count] for seed, values in found.items()})
                for count in range(5)
            ]
            rows.append([setup, recipe, *cells])
    title = "Networks: mAP of queries by number of conditions, %"
    return Table("networks-retrieval", title, ["setup", "recipe", *map(str, range(1, 6))], rows)


def _growth(results: Results) -> Table:
    setups = (*CIFAR_SETUPS, FROM_WEIGHTS)
    rows = [
        [name, *(spread(results.values(s, name, "top-1 error")) for s in setups)]
        for name in (*ONE_LABEL, *SUMMED, "softmax, head start")
    ]
    title = "CIFAR-100: top-1 error by number of classes, %"
    note = (
        "ResNet-20 from scratch, SGD, 10 epochs; the rate of each, 0.1 or 0.03, has the lower "
        "held-out error (seed 0). Fine-tuned: Lite0, 64 px, AdamW, 3 epochs."
    )
    return Table("networks-growth", title, ["classifier", *setups], rows, note)


def _rates(results: Results) -> Table:
    """What the rate does to each classifier: the runs of seed 0 that chose it."""
    rows = []
    for setup in CIFAR_SETUPS:
        tried = [m for m in results.methods if m.setup == setup and len(m.grid) > 1]
        for method in tried:
            found = [
                results.book.get(Cell.of(method.data, {**method.settings, **rate}, TRIAL_SEED))
                for rate in method.grid
            ]
            cells = [
                f"{100 * record['test']['top-1 error']:.1f}" if record else "–" for record in found
            ]
            if any(found):
                rows.append([setup, method.name, *cells])
    header = ["setup", "classifier", *(f"rate {rate['learning_rate']:g}" for rate in CIFAR_RATES)]
    note = "Summed: that rate times the number of classes, which is the loss summed over them."
    return Table("networks-rates", "Top-1 error by learning rate, seed 0, %", header, rows, note)


# What could be seen --------------------------------------------------------------------------

PAIRS = (("spa", "bce"), ("spa, prior", "bce, prior"), ("twl", "bce"), ("asl, detached", "bce"))
POWER = 0.8


def power(results: Results, kind: str, setups: Sequence[str]) -> Table:
    """The smallest true difference that four studies in five like this one would have seen."""
    rows = []
    for setup in setups:
        cells = []
        for path, scale in (
            (("mAP@y",), 100.0),
            (("readings", "link", "ACE"), 100.0),
            (("readings", "link + affine", "NLL"), 1000.0),
        ):
            seen = [_detectable(results, setup, pair, path, scale) for pair in PAIRS]
            known = [value for value in seen if math.isfinite(value)]
            cells.append(f"{np.median(known):.1f}" if known else "–")
        rows.append([setup, *cells])
    rows = [row for row in rows if row[1] != "–"]
    header = ["setup", "mAP@y, points", "ACE, points", "NLL + affine × 1000"]
    seen = f"the smallest difference seen with {POWER:.0%} probability"
    title = f"Power of {kind}: {seen} (5 % level, paired by seed)"
    note = "Median over four pairs of losses. A difference below this is likely to stay undecided."
    return Table(f"power-{kind}", title, header, rows, note)


def _detectable(
    results: Results, setup: str, pair: tuple[str, str], path: tuple[str, ...], scale: float
) -> float:
    one, other = (results.values(setup, name, *path, scale=scale) for name in pair)
    gaps = [one[seed] - other[seed] for seed in one if seed in other]
    if len(gaps) < 3:
        return math.nan
    quantiles = stats.t.ppf([(1 + LEVEL) / 2, POWER], len(gaps) - 1)
    return float(sum(quantiles) * stats.sem(gaps))


def unfinished(results: Results, methods: Sequence[Method]) -> str:
    """Say which setups of the plan have how many of their runs."""
    wanted: dict[str, int] = {}
    have: dict[str, int] = {}
    for method in methods:
        wanted[method.setup] = wanted.get(method.setup, 0) + len(method.seeds)
        found = len(results.by_seed(method.setup, method.name, "mAP@y"))
        have[method.setup] = have.get(method.setup, 0) + found
    left = [f"{s}: {have[s]} of {wanted[s]}" for s in wanted if have[s] < wanted[s]]
    return f"Runs of the plan that are there: {'; '.join(left)}; all others whole." if left else ""
