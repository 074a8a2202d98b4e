"""The quasibinary classifier: one label as classes grow, no label, several, and its normalizer."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from benchmarks.claims.calibrated import RATES
from benchmarks.claims.findings import NOT_RUN, Finding, counted, judged, side, tally, told
from benchmarks.claims.plan import Method
from benchmarks.claims.tables import Difference, Results, Table, difference, mean, spread

SMALL: dict[str, Any] = {"model": "mlp", "hidden": 256, "epochs": 15, "batch_size": 64}
LARGE: dict[str, Any] = {"model": "mlp", "hidden": 256, "epochs": 15, "batch_size": 256}
CNN: dict[str, Any] = {"model": "cnn", "epochs": 16, "batch_size": 64, "learning_rate": 3e-3}

GROWTH = {
    "tinyimagenet:10": SMALL,
    "tinyimagenet:50": SMALL,
    "tinyimagenet:100": LARGE,
    "tinyimagenet": LARGE,
    "cifar10h": LARGE,
}
NESTED = tuple(data for data in GROWTH if data != "cifar10h")
"""The same classes and more, and the same model."""

ONE = {"binary": "bce", "softmax": "softmax", "quasibinary": "quasibinary"}
ZERO = {
    "binary": "bce",
    "softmax + uniform": "softmax(zero_label=uniform)",
    "softmax + max confidence": "softmax(zero_label=max_confidence)",
    "softmax + none class": "softmax(zero_label=none_class)",
    "quasibinary": "quasibinary",
    "spa": "spa",
}


def methods() -> list[Method]:
    """Growth of classes, chosen by held-out top-1 error; zero labels, chosen by held-out NLL."""
    found: list[Method] = []
    for data, budget in GROWTH.items():
        for name, loss in ONE.items():
            settings = {**budget, "loss": loss, "prior_bias": False}
            found.append(Method(name, data, data, settings, RATES, by="top1"))
        found.append(Method("binary, prior", data, data, {"prior_bias": True}, like="binary"))
    for data, budget, grid in (
        ("tinyimagenet:120+80", LARGE, RATES),
        ("digits:6+4", CNN, ({},)),
    ):
        for name, loss in ZERO.items():
            settings = {**budget, "loss": loss, "prior_bias": False}
            found.append(Method(name, data, data, settings, grid))
        found.append(Method("binary, prior", data, data, {"prior_bias": True}, like="binary"))
    return found


# The tables ----------------------------------------------------------------------------------

SEVERAL = (
    *("voc2012, linear", "voc2012, mlp", "scene", "yeast", "emotions", "medical", "bibtex"),
    *("synthetic", "digits, cnn"),
)
READ = {
    "binary": ("bce", "link"),
    "binary, prior bias": ("bce, prior", "link"),
    "softmax": ("softmax", "link"),
    "softmax + temperature": ("softmax", "link + temperature"),
    "quasibinary": ("quasibinary", "link"),
    "quasibinary + affine": ("quasibinary", "link + affine"),
}
ZERO_LABEL = ("tinyimagenet:120+80", "digits:6+4")
FIGURES = ("IN accuracy", "MMC", "MMC, IN", "AU-ROC")


def tables(results: Results) -> list[Table]:
    """Top-1 error and ACE as classes grow; rows without a label."""
    rows = [
        [name, *(spread(results.values(s, name, "top-1 error")) for s in GROWTH)]
        for name in (*ONE, "binary, prior")
    ]
    growth = Table("quasibinary-growth", "Top-1 error, %", ["classifier", *GROWTH], rows)
    calibration = [
        [
            name,
            *(spread(results.values(s, name, "readings", "link", "ACE")) for s in GROWTH),
        ]
        for name in (*ONE, "binary, prior")
    ]
    errors = Table("quasibinary-ace", "ACE of the same, %", ["classifier", *GROWTH], calibration)
    every = (*ZERO, "binary, prior")
    return [growth, errors, *(zero_label_table(results, data, every) for data in ZERO_LABEL)]


def zero_label_table(results: Results, data: str, names: Sequence[str]) -> Table:
    """Rows with and without a label, by classifier."""
    rows = []
    for name in names:
        for reading in ("link", "link + affine"):
            cells = [
                spread(results.values(data, name, "readings", reading, figure))
                for figure in (*FIGURES, "ACE")
            ]
            rows.append([name + reading.removeprefix("link"), *cells])
    return Table(
        f"quasibinary-zero-{data.partition(':')[0]}",
        f"Rows without a label, {data}, %",
        ["classifier", *FIGURES, "ACE"],
        rows,
        "IN accuracy: top-1 on rows with a label. MMC: mean of the largest probability on rows "
        "without one. AU-ROC: of that probability, rows with a label against rows without.",
    )


def several(results: Results) -> Table:
    """F1 and ECE of the four most probable labels; ``results`` of the calibrated study."""
    rows = []
    for name, (method, reading) in READ.items():
        for figure in ("F1-top-4", "ECE-top-4", "every label sure", "a wrong label sure"):
            path = ("readings", reading, figure)
            rows.append(
                [name, figure, *(spread(results.values(s, method, *path)) for s in SEVERAL)]
            )
    return Table(
        "quasibinary-several",
        "Several labels per row, %",
        ["classifier", "figure", *SEVERAL],
        rows,
        "Every label sure: share of the rows with two labels or more whose labels all get more "
        "than one half; a wrong label sure: of those where an absent label does.",
    )


# The claims ----------------------------------------------------------------------------------


PUBLISHED_RIVALS = ("binary", "softmax + uniform", "softmax + max confidence")


def findings(
    results: Results, setups: Sequence[str], nested: Sequence[str] = NESTED
) -> dict[str, Finding]:
    """The claims that runs with one label per row, or none, test in these setups.

    The number of classes grows over the ``nested`` ones.
    """
    return {
        "001-binary-fails-with-many-classes": _binary_fails(results, setups, nested),
        "001-competitive-with-softmax": _competitive(results, setups),
        "001-zero-label-in-accuracy": _zero_label(results, setups, "IN accuracy", 1),
        "001-zero-label-mmc": _zero_label(results, setups, "MMC", -1),
        "001-zero-label-auroc": _zero_label(results, setups, "AU-ROC", 1),
    }


def findings_several(results: Results, setups: Sequence[str]) -> dict[str, Finding]:
    """Those that the multi-label runs test in these setups."""
    return {
        "001-multi-label-f1": _several(results, setups, "F1-top-4", ("bce", "bce, prior"), 1),
        "001-multi-label-ece": _several(
            results, setups, "ECE-top-4", ("bce", "bce, prior", "softmax"), -1
        ),
        "001-few-violations": _violations(results, setups),
        "001-confident-in-several-labels": _sure(results, setups),
    }


def _top1(results: Results, setups: Sequence[str], one: str, other: str) -> dict[str, Difference]:
    """Top-1 error of ``one`` minus that of ``other``, by data, where both were run."""
    gaps = {
        data: difference(
            results.values(data, one, "top-1 error"), results.values(data, other, "top-1 error")
        )
        for data in setups
    }
    return {data: gap for data, gap in gaps.items() if gap.n}


def _binary_fails(results: Results, setups: Sequence[str], nested: Sequence[str]) -> Finding:
    known = _top1(results, setups, "binary", "quasibinary")
    growing = [data for data in known if data in nested]
    if not growing:
        return NOT_RUN
    fewest, most = growing[0], growing[-1]
    shown = ", ".join(f"{data} {gap}" for data, gap in known.items())
    ours = f"Top-1 error of binary minus quasibinary, points: {shown}."
    if len(growing) == 1:  # nothing grows yet
        return Finding("not reached", ours)
    if known[most].sign <= 0:
        return Finding(judged(*counted([known[most].sign])), ours)
    errors = {
        (data, name): results.values(data, name, "top-1 error")
        for data in (fewest, most)
        for name in ("binary", "quasibinary")
    }
    lead = {
        data: {
            seed: errors[data, "binary"][seed] - value
            for seed, value in errors[data, "quasibinary"].items()
            if seed in errors[data, "binary"]
        }
        for data in (fewest, most)
    }
    grows = difference(lead[most], lead[fewest]).sign > 0
    return Finding("holds" if grows else "holds in part", ours)


def _competitive(results: Results, setups: Sequence[str]) -> Finding:
    known = _top1(results, setups, "quasibinary", "softmax")
    if not known:
        return NOT_RUN
    shown = ", ".join(f"{data} {gap}" for data, gap in known.items())
    ours = f"Top-1 error of quasibinary minus softmax, points: {shown}."
    return Finding(judged(*counted(-side(gap, 1) for gap in known.values())), ours)


def _zero_label(results: Results, setups: Sequence[str], figure: str, better: int) -> Finding:
    gaps, parts = [], []
    for data in setups:
        own = results.values(data, "quasibinary", "readings", "link", figure)
        if not own:
            continue
        cells = [f"quasibinary {mean(own):.1f}"]
        for name in ZERO:
            if name == "quasibinary":
                continue
            other = results.values(data, name, "readings", "link", figure)
            if not other:
                continue
            cells.append(f"{name} {mean(other):.1f}")
            if name in PUBLISHED_RIVALS:
                gaps.append(difference(own, other))
        parts.append(f"{data}: {', '.join(cells)}")
    below, above, open_ = tally(gaps)
    verdict = judged(above, below, open_) if better > 0 else judged(below, above, open_)
    counted = f" Quasibinary against the paper's baselines: {told((below, above, open_))}."
    return Finding(verdict, f"{figure}. {'; '.join(parts)}.{counted}") if parts else NOT_RUN


def _several(
    results: Results, setups: Sequence[str], figure: str, rivals: tuple[str, ...], better: int
) -> Finding:
    parts, total = [], [0, 0, 0]
    for rival in rivals:
        gaps = [
            difference(
                results.values(s, "quasibinary", "readings", "link", figure),
                results.values(s, rival, "readings", "link", figure),
            )
            for s in setups
        ]
        counts = tally(gaps)
        total = [a + b for a, b in zip(total, counts, strict=True)]
        known = [gap.mean for gap in gaps if gap.n]
        if known:
            parts.append(f"against {rival}: {told(counts)}, mean {np.mean(known):+.1f} points")
    below, above, open_ = total
    verdict = judged(above, below, open_) if better > 0 else judged(below, above, open_)
    return Finding(verdict, f"{figure} of quasibinary, {'; '.join(parts)}.") if parts else NOT_RUN


def _violations(results: Results, setups: Sequence[str]) -> Finding:
    parts, signs = [], []
    for setup in setups:
        every = results.values(setup, "quasibinary", "above one")
        if every:
            among = results.values(setup, "quasibinary", "above one, positives")
            parts.append(f"{setup} {mean(every):.2f} / {mean(among):.1f}")
            few = [share <= 0.1 for share in every.values()]
            signs.append(1 if all(few) else 0 if any(few) else -1)
    ours = f"Share of test cells with q > 1, % of all / of the positive: {', '.join(parts)}."
    return Finding(judged(*counted(signs)), ours) if parts else NOT_RUN


def _sure(results: Results, setups: Sequence[str]) -> Finding:
    parts, gaps = [], []
    for setup in setups:
        cells = []
        for name in ("bce", "softmax", "quasibinary"):
            right, wrong = (
                results.values(setup, name, "readings", "link", figure)
                for figure in ("every label sure", "a wrong label sure")
            )
            cells.append(f"{name} {mean(right):.1f} / {mean(wrong):.1f}")
        own, other = (
            results.values(setup, name, "readings", "link", "every label sure")
            for name in ("quasibinary", "bce")
        )
        gaps.append(difference(own, other))
        if own:
            parts.append(f"{setup}: {', '.join(cells)}")
    below, above, open_ = tally(gaps)
    ours = f"Rows with every label sure / with a wrong label sure, %. {'; '.join(parts)}."
    return Finding(judged(above, below, open_), ours) if parts else NOT_RUN
