"""The quasibinary classifier: one label as classes grow, no label, several, and its normalizer."""

from __future__ import annotations

from typing import Any

import numpy as np

from benchmarks.claims.calibrated import RATES
from benchmarks.claims.findings import NOT_RUN, Finding, judged, tally, told
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
    return [growth, errors, *(_zero(results, data) for data in ZERO_LABEL)]


def _zero(results: Results, data: str) -> Table:
    rows = []
    for name in (*ZERO, "binary, prior"):
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
        "Several labels a row, %",
        ["classifier", "figure", *SEVERAL],
        rows,
        "Every label sure: share of the rows with two labels or more whose labels all get more "
        "than one half; a wrong label sure: of those where an absent label does.",
    )


# The claims ----------------------------------------------------------------------------------


def findings(results: Results) -> dict[str, Finding]:
    """The claims that the runs of this study test."""
    return {
        "001-binary-fails-with-many-classes": _binary_fails(results),
        "001-competitive-with-softmax": _competitive(results),
        "001-zero-label-in-accuracy": _zero_label(
            results, "IN accuracy", ("softmax + uniform", "softmax + max confidence", "binary"), 1
        ),
        "001-zero-label-mmc": _zero_label(
            results, "MMC", ("binary", "softmax + uniform", "softmax + max confidence"), -1
        ),
        "001-zero-label-auroc": _zero_label(
            results, "AU-ROC", ("binary", "softmax + uniform", "softmax + max confidence"), 1
        ),
    }


def findings_several(results: Results) -> dict[str, Finding]:
    """Those that the multi-label runs test."""
    return {
        "001-multi-label-f1": _several(results, "F1-top-4", ("bce", "bce, prior"), 1),
        "001-multi-label-ece": _several(results, "ECE-top-4", ("bce", "bce, prior", "softmax"), -1),
        "001-few-violations": _violations(results),
        "001-confident-in-several-labels": _sure(results),
    }


def _top1(results: Results, one: str, other: str) -> dict[str, Difference]:
    """Top-1 error of ``one`` minus that of ``other``, by data, where both were run."""
    gaps = {
        data: difference(
            results.values(data, one, "top-1 error"), results.values(data, other, "top-1 error")
        )
        for data in GROWTH
    }
    return {data: gap for data, gap in gaps.items() if gap.n}


def _binary_fails(results: Results) -> Finding:
    known = _top1(results, "binary", "quasibinary")
    if not known:
        return NOT_RUN
    ours = ", ".join(f"{data} {gap}" for data, gap in known.items())
    order = [gap.mean for data, gap in known.items() if data.startswith("tiny")]
    grows = len(order) > 1 and all(np.diff(order) > 0)
    worse = sum(gap.sign > 0 for gap in known.values())
    verdict = "holds" if grows and worse else "holds in part" if worse else "does not hold"
    return Finding(verdict, f"Top-1 error of binary minus quasibinary, points: {ours}.")


def _competitive(results: Results) -> Finding:
    known = _top1(results, "quasibinary", "softmax")
    near = sum(gap.mean < 1 for gap in known.values())
    ours = ", ".join(f"{data} {gap}" for data, gap in known.items())
    ours = f"Top-1 error of quasibinary minus softmax, points: {ours}."
    return Finding(judged(near, len(known) - near, 0), ours)


def _zero_label(results: Results, figure: str, rivals: tuple[str, ...], better: int) -> Finding:
    gaps, parts = [], []
    for data in ZERO_LABEL:
        own = results.values(data, "quasibinary", "readings", "link", figure)
        if not own:
            continue
        cells = [f"quasibinary {mean(own):.1f}"]
        for name in ZERO:
            if name == "quasibinary":
                continue
            other = results.values(data, name, "readings", "link", figure)
            cells.append(f"{name} {mean(other):.1f}")
            if name in rivals:
                gaps.append(difference(own, other))
        parts.append(f"{data}: {', '.join(cells)}")
    below, above, open_ = tally(gaps)
    verdict = judged(above, below, open_) if better > 0 else judged(below, above, open_)
    counted = f" Quasibinary against the paper's baselines: {told((below, above, open_))}."
    return Finding(verdict, f"{figure}. {'; '.join(parts)}.{counted}") if parts else NOT_RUN


def _several(results: Results, figure: str, rivals: tuple[str, ...], better: int) -> Finding:
    parts, total = [], [0, 0, 0]
    for rival in rivals:
        gaps = [
            difference(
                results.values(s, "quasibinary", "readings", "link", figure),
                results.values(s, rival, "readings", "link", figure),
            )
            for s in SEVERAL
        ]
        counts = tally(gaps)
        total = [a + b for a, b in zip(total, counts, strict=True)]
        known = [gap.mean for gap in gaps if gap.n]
        if known:
            parts.append(f"against {rival}: {told(counts)}, mean {np.mean(known):+.1f} points")
    below, above, open_ = total
    verdict = judged(above, below, open_) if better > 0 else judged(below, above, open_)
    return Finding(verdict, f"{figure} of quasibinary, {'; '.join(parts)}.") if parts else NOT_RUN


def _violations(results: Results) -> Finding:
    parts, good, bad = [], 0, 0
    for setup in SEVERAL:
        every = results.values(setup, "quasibinary", "above one")
        if every:
            among = results.values(setup, "quasibinary", "above one, positives")
            parts.append(f"{setup} {mean(every):.2f} / {mean(among):.1f}")
            good, bad = good + (mean(every) <= 0.1), bad + (mean(every) > 0.1)
    ours = f"Share of test cells with q > 1, % of all / of the positive: {', '.join(parts)}."
    return Finding(judged(good, bad, 0), ours) if parts else NOT_RUN


def _sure(results: Results) -> Finding:
    parts, gaps = [], []
    for setup in SEVERAL:
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
