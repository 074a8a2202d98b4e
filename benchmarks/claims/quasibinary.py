"""The quasibinary classifier: one label as classes grow, no label, several, and its normalizer."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from benchmarks.claims.calibrated import RATES
from benchmarks.claims.comparisons import Comparison, all_of, compare, finding_of, on
from benchmarks.claims.findings import NOT_RUN, Finding, counted, judged
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

RIVALS = tuple(name for name in ZERO if name != "quasibinary")


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
        "001-zero-label-in-accuracy": _in_accuracy(results, setups),
        "001-zero-label-mmc": _zero_label(results, setups, "MMC", -1, RIVALS),
        "001-zero-label-auroc": _zero_label(results, setups, "AU-ROC", 1, PUBLISHED_RIVALS),
    }


Shares = Mapping[str, Mapping[str, dict[int, float]]]
"""What ``several_labels`` found, by setup, classifier and seed."""


def findings_several(
    results: Results, setups: Sequence[str], shares: Shares | None = None
) -> dict[str, Finding]:
    """Those that the multi-label runs test in these setups."""
    return {
        "001-multi-label-f1": _f1(results, setups),
        "001-multi-label-ece": _ece(results, setups),
        "001-confident-in-several-labels": _sure(results, setups, shares or {}),
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
    gap = compare(
        results,
        setups,
        lambda s: results.values(s, "quasibinary", "top-1 error"),
        lambda s: results.values(s, "softmax", "top-1 error"),
    )
    if not gap.sets:
        return NOT_RUN
    each = _top1(results, setups, "quasibinary", "softmax")
    shown = ", ".join(f"{data} {one.mean:+.2f}" for data, one in each.items())
    ours = f"Top-1 error of quasibinary minus softmax, points: {gap.told()}; {shown}."
    return finding_of(ours, gap.sides(1, sign=-1))


def _shown(results: Results, setups: Sequence[str], figure: str) -> str:
    """Every method on rows with and without a label, by data."""
    parts = []
    for data in setups:
        found = {
            name: results.values(data, name, "readings", "link", figure)
            for name in ("quasibinary", *(name for name in ZERO if name != "quasibinary"))
        }
        if found["quasibinary"]:
            cells = [f"{name} {mean(values):.1f}" for name, values in found.items() if values]
            parts.append(f"{data}: {', '.join(cells)}")
    return "; ".join(parts)


def _over(results: Results, setups: Sequence[str], figure: str, rival: str) -> Comparison:
    """A figure of quasibinary minus that of a rival, both through their links."""
    return compare(
        results,
        setups,
        lambda s: results.values(s, "quasibinary", "readings", "link", figure),
        lambda s: results.values(s, rival, "readings", "link", figure),
    )


def _in_accuracy(results: Results, setups: Sequence[str]) -> Finding:
    uniform, binary = (
        _over(results, setups, "IN accuracy", rival) for rival in ("softmax + uniform", "binary")
    )
    conditions = (uniform.sides(-1), binary.sides())
    sides = all_of(*conditions)
    ours = (
        f"IN accuracy. {_shown(results, setups, 'IN accuracy')}. Quasibinary against softmax with "
        f"the uniform term: {uniform.told()}; against binary: {binary.told()}; within a point of "
        f"the one and above the other: {on(sides)}."
    )
    return finding_of(ours, *conditions)


def _zero_label(
    results: Results, setups: Sequence[str], figure: str, better: int, rivals: Sequence[str]
) -> Finding:
    gaps = {rival: _over(results, setups, figure, rival) for rival in rivals}
    gaps = {rival: gap for rival, gap in gaps.items() if gap.sets}
    if not gaps:
        return NOT_RUN
    conditions = [gap.sides(sign=better) for gap in gaps.values()]
    parts = [f"against {rival}: {gap.told()}" for rival, gap in gaps.items()]
    ours = f"{figure}. {_shown(results, setups, figure)}. Quasibinary {'; '.join(parts)}."
    return finding_of(ours, *conditions)


def _f1(results: Results, setups: Sequence[str]) -> Finding:
    margins = {"softmax": -0.5, "bce": 1.0, "bce, prior": 1.0}
    gaps = {rival: _over(results, setups, "F1-top-4", rival) for rival in margins}
    conditions = [gap.sides(margins[rival]) for rival, gap in gaps.items()]
    sides = all_of(*conditions)
    parts = [f"minus {rival}: {gap.told()}" for rival, gap in gaps.items()]
    ours = (
        f"F1-top-4 of quasibinary, points, {'; '.join(parts)}; within half a point of softmax and "
        f"a point above both binary classifiers: {on(sides)}."
    )
    return finding_of(ours, *conditions)


def _ece(results: Results, setups: Sequence[str]) -> Finding:
    gaps = {rival: _over(results, setups, "ECE-top-4", rival) for rival in ("bce", "bce, prior")}
    small = compare(
        results,
        setups,
        lambda s: results.values(s, "quasibinary", "readings", "link", "ECE-top-4"),
        lambda s: dict.fromkeys(results.by_seed(s, "quasibinary", "mAP@y"), 0.0),
    )
    conditions = (small.sides(5, sign=-1), *(gap.sides(sign=-1) for gap in gaps.values()))
    sides = all_of(*conditions)
    parts = [f"minus {rival}: {gap.told()}" for rival, gap in gaps.items()]
    below = [f"{name} {gap.mean:.1f}" for name, gap in small.sets.items()]
    ours = (
        f"ECE-top-4 of quasibinary, %: {', '.join(below)}; {'; '.join(parts)}; below 5 and below "
        f"both binary classifiers: {on(sides)}."
    )
    return finding_of(ours, *conditions)


def violations(studies: Sequence[tuple[Results, Sequence[str]]]) -> Finding:
    """Share of test cells above one in all quasibinary runs, with one label per row or several."""
    parts: list[str] = []
    sides: dict[str, int] = {}
    for results, setups in studies:
        for setup in setups:
            every = results.values(setup, "quasibinary", "above one")
            if every:
                among = results.values(setup, "quasibinary", "above one, positives")
                parts.append(f"{setup} {mean(every):.2f} / {mean(among):.1f}")
                few = [share <= 0.1 for share in every.values()]
                name = results.data_set(setup)
                sign = 1 if all(few) else 0 if any(few) else -1
                sides[name] = min(sign, sides.get(name, 1))
    ours = f"Share of test cells with q > 1, % of all / of the positive: {', '.join(parts)}."
    return finding_of(f"{ours} At most 0.1 %: {on(sides)}.", sides)


def _sure(results: Results, setups: Sequence[str], shares: Shares) -> Finding:
    """Every label above a threshold that a wrong one exceeds as often as with BCE at one half."""
    known = [setup for setup in setups if setup in shares]
    gap = compare(results, known, lambda s: shares[s]["quasibinary"], lambda s: shares[s]["bce"])
    parts = [
        f"{s} bce {mean(shares[s]['bce']):.1f}, quasibinary {mean(shares[s]['quasibinary']):.1f}"
        for s in known
    ]
    ours = (
        "Rows with several labels whose labels all lie above a threshold, at an equal rate of "
        f"wrong ones (that of bce at one half), %. {'; '.join(parts)}. Quasibinary minus bce: "
        f"{gap.told()}."
    )
    return finding_of(ours, gap.sides())
