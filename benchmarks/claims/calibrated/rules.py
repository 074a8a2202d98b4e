"""The claims about SPA, LPR and retrieval, each judged by the rule of ``claims.toml``."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from benchmarks.claims.calibrated.tables import RECIPES, retrieval
from benchmarks.claims.comparisons import (
    Comparison,
    all_of,
    compare,
    finding_of,
    on,
    verdict_of,
    verdict_of_most,
)
from benchmarks.claims.findings import NOT_RUN, Finding, Verdict
from benchmarks.claims.tables import Results, difference, mean


def findings(results: Results, setups: Sequence[str]) -> dict[str, Finding]:
    """The claims of the paper, each by its rule, in these setups."""
    return {
        "000-improper-losses-miscalibrated": _improper(results, setups),
        "000-phi-improves": _phi_improves(results, setups),
        "000-phi-not-enough": _phi_not_enough(results, setups),
        "000-phi-costs-asy-accuracy": _phi_costs(results, setups),
        "000-spa-better-calibrated-than-bce": _spa_calibrated(results, setups),
        "000-spa-accuracy": _spa_accurate(results, setups),
        "000-bce-less-accurate": _bce_less_accurate(results, setups),
        "000-lpr-on-spa": _lpr(results, setups, ("spa",)),
        "000-lpr-on-other-losses": _lpr(results, setups, ("bce", "focal", "asl")),
        "000-retrieval-needs-calibration": _retrieval_order(results, setups),
        "000-retrieval-gap-grows": _retrieval_gap(results, setups),
        "000-one-setting-for-all": _one_setting(results, setups),
        "000-lpr-weight": _weights(results, setups),
        "000-initialisation": _initialisation(results, setups),
    }


def _ace(results: Results, setup: str, recipe: str, figure: str = "ACE") -> dict[int, float]:
    method, reading = RECIPES[recipe]
    return results.values(setup, method, "readings", reading, figure)


def _means(
    results: Results, setups: Sequence[str], recipes: tuple[str, ...], figure: str = "ACE"
) -> str:
    """Means over the setups that all recipes have."""
    table = {r: [mean(_ace(results, s, r, figure)) for s in setups] for r in recipes}
    have = [k for k in range(len(setups)) if all(np.isfinite(v[k]) for v in table.values())]
    if not have:
        return f"{figure}: no setup has all of {', '.join(recipes)}"
    cells = [f"{r} {np.mean([v[k] for k in have]):.1f}" for r, v in table.items()]
    return f"{figure}, mean of {len(have)} setups: {', '.join(cells)}"


def _compared(results: Results, setups: Sequence[str], one: str, other: str) -> Comparison:
    """ACE of a recipe minus that of another."""
    return compare(
        results, setups, lambda s: _ace(results, s, one), lambda s: _ace(results, s, other)
    )


def _improper(results: Results, setups: Sequence[str]) -> Finding:
    parts, each = [], []
    for recipe in (
        "focal, sigmoid",
        "ASL detached, sigmoid",
        "ASL, sigmoid",
        "two-way + temperature",
    ):
        gaps = [_compared(results, setups, recipe, proper) for proper in ("BCE", "SPA")]
        both = all_of(*(gap.sides() for gap in gaps))
        if both:
            each.append(both)
            pooled = ", ".join(f"{gap.overall}" for gap in gaps)
            parts.append(f"{recipe}: {on(both)}, pooled against BCE and SPA {pooled}")
    if not parts:
        return NOT_RUN
    recipes = ("BCE", "SPA", "two-way + temperature", "focal, sigmoid", "ASL detached, sigmoid")
    return Finding(
        verdict_of_most(each),
        f"{_means(results, setups, recipes)}. ACE above that of both: {'; '.join(parts)}.",
    )


def _phi_improves(results: Results, setups: Sequence[str]) -> Finding:
    pairs = (
        ("focal, φ", "focal, sigmoid"),
        ("ASL, φ", "ASL, sigmoid"),
        ("ASL detached, φ", "ASL detached, sigmoid"),
        ("ASL detached, right link", "ASL detached, φ"),
    )
    gaps = {pair: _compared(results, setups, *pair) for pair in pairs}
    sides = {
        f"{name}, {read}": sign
        for (read, raw), gap in list(gaps.items())[:3]
        for name, sign in gap.sides(sign=-1).items()
    }
    if not sides:
        return NOT_RUN
    recipes = (*(raw for _, raw in pairs[:3]), *(read for read, _ in pairs))
    parts = [f"{read} against {raw}: {gap.told()}" for (read, raw), gap in gaps.items()]
    return finding_of(f"{_means(results, setups, recipes)}. {'; '.join(parts)}.", sides)


def _phi_not_enough(results: Results, setups: Sequence[str]) -> Finding:
    wrong, right = (
        _compared(results, setups, recipe, "SPA")
        for recipe in ("ASL detached, φ", "ASL detached, right link")
    )
    if not right.sets:
        return NOT_RUN
    focal = _compared(results, setups, "focal, φ", "BCE")
    recipes = ("focal, φ", "ASL, φ", "ASL detached, φ", "ASL detached, right link", "BCE", "SPA")
    ours = (
        f"{_means(results, setups, recipes)}. ASL detached against SPA, right link: "
        f"{right.told()}; φ: {wrong.told()}. Not in the rule: focal through φ against BCE: "
        f"{focal.told()}."
    )
    return finding_of(ours, right.sides())


def _phi_costs(results: Results, setups: Sequence[str]) -> Finding:
    gap = compare(
        results,
        setups,
        lambda s: results.values(s, "asl", "mAP@y"),
        lambda s: results.values(s, "asl", "readings", "link", "mAP@y, probabilities"),
    )
    if not gap.sets:
        return NOT_RUN
    # Exactly nothing in every seed: no two scores share the plateau, so φ had nothing to cost.
    reached = {name: each for name, each in gap.sets.items() if each.low < 0 or each.high > 0}
    verdict: Verdict = "not reached"
    if reached:
        verdict = verdict_of({n: d.sign if d.high < 1 else -1 for n, d in reached.items()})
    shown = ", ".join(f"{name} {each.mean:.2f}" for name, each in gap.sets.items())
    return Finding(verdict, f"mAP@y by scores minus by φ, points: {gap.told()}; {shown}.")


def _spa_calibrated(results: Results, setups: Sequence[str]) -> Finding:
    parts, sides = [], []
    for start, spa, bce in (
        ("zero bias", "SPA", "BCE"),
        ("prior bias", "SPA, prior bias", "BCE, prior bias"),
        ("prior bias + affine", "SPA, prior bias + affine", "BCE, prior bias + affine"),
    ):
        gap = _compared(results, setups, spa, bce)
        parts.append(f"{start}: {gap.told()} ({_means(results, setups, (bce, spa))})")
        sides.append(gap.sides(sign=-1))
    starts = [found for found in sides[:2] if found]
    if not starts:
        return NOT_RUN
    return finding_of("SPA against BCE, ACE. " + "; ".join(parts) + ".", *starts)


def _best(
    results: Results, setup: str, methods: tuple[str, ...], figure: str = "mAP@y"
) -> dict[int, float]:
    """The figure of the method with the highest mean: chosen with hindsight."""
    by_method = [results.values(setup, method, figure) for method in methods]
    return max(by_method, key=lambda values: np.nan_to_num(mean(values), nan=-1.0))


def _spa_accurate(results: Results, setups: Sequence[str]) -> Finding:
    rivals = ("asl", "asl, detached", "twl")
    gaps = {
        figure: compare(
            results,
            setups,
            lambda s, figure=figure: results.values(s, "spa", figure),
            lambda s, figure=figure: _best(results, s, rivals, figure),
        )
        for figure in ("mAP@y", "mAP@x")
    }
    sides = all_of(*(gap.sides(-0.5) for gap in gaps.values()))
    if not sides:
        return NOT_RUN
    parts = [f"{figure} {gap.told()}" for figure, gap in gaps.items()]
    ours = f"SPA minus the best of ASL, ASL detached, two-way, points: {'; '.join(parts)}. "
    ours += f"At most half a point behind in both: {on(sides)}."
    return finding_of(ours, *(gap.sides(-0.5) for gap in gaps.values()))


def _bce_less_accurate(results: Results, setups: Sequence[str]) -> Finding:
    others = ("focal", "asl", "asl, detached", "twl", "spa")
    parts, sides = [], []
    for start, bce in (("zero bias", "bce"), ("prior bias", "bce, prior")):
        gap = compare(
            results,
            setups,
            lambda s, bce=bce: results.values(s, bce, "mAP@y"),
            lambda s: _best(results, s, others),
        )
        if gap.sets:
            parts.append(f"{start}: {gap.told()}")
            sides.append(gap.sides(-1, sign=-1))
    if not parts:
        return NOT_RUN
    both = all_of(*sides)
    ours = "BCE minus the best other loss of each setup, mAP@y points. " + "; ".join(parts)
    return finding_of(f"{ours}. A point behind from both starts: {on(both)}.", *sides)


def _lpr(results: Results, setups: Sequence[str], bases: tuple[str, ...]) -> Finding:
    parts, sides = [], {}
    for base in bases:
        ace, worth = (
            compare(
                results,
                setups,
                lambda s, path=path, base=base: results.values(s, f"{base}+lpr", *path),
                lambda s, path=path, base=base: results.values(s, base, *path),
            )
            for path in (("readings", "link", "ACE"), ("mAP@y",))
        )
        found = all_of(ace.sides(sign=-1), worth.sides(-0.5))
        if found:
            parts.append(
                f"{base}: ACE {ace.told()}; mAP@y {worth.told()}; ACE falls with mAP within half a "
                f"point: {on(found)}"
            )
            sides |= {f"{base}, {name}": sign for name, sign in found.items()}
    return finding_of("; ".join(parts) + ".", sides) if parts else NOT_RUN


def _retrieval_order(results: Results, setups: Sequence[str]) -> Finding:
    pairs = (("SPA", "BCE"), ("BCE", "ASL detached, sigmoid"))
    gaps = {
        pair: [
            compare(
                results,
                setups,
                lambda s, k=k, name=pair[0]: retrieval(results, s, name)[k],
                lambda s, k=k, name=pair[1]: retrieval(results, s, name)[k],
            )
            for k in range(2, 6)
        ]
        for pair in pairs
    }
    sides = all_of(*(gap.sides() for each in gaps.values() for gap in each))
    if not sides:
        return NOT_RUN
    parts = []
    for (one, other), each in gaps.items():
        met = all_of(*(gap.sides() for gap in each))
        pooled = ", ".join(f"{gap.overall}" for gap in each)
        parts.append(f"{one} above {other} at every length: {on(met)}, pooled by length {pooled}")
    ours = f"mAP of queries of 2 to 5 conditions, points. {'; '.join(parts)}. Both: {on(sides)}."
    halves = (all_of(*(gap.sides() for gap in each)) for each in gaps.values())
    return finding_of(ours.replace("ASL detached, sigmoid", "raw ASL"), *halves)


def _retrieval_gap(results: Results, setups: Sequence[str]) -> Finding:
    parts, growths = [], {}
    for setup in setups:
        spa, raw = (retrieval(results, setup, r) for r in ("SPA", "ASL detached, sigmoid"))
        seeds = [seed for seed in spa[5] if seed in raw[5]]
        two, five = ({seed: spa[k][seed] - raw[k][seed] for seed in seeds} for k in (2, 5))
        if len(seeds) > 1:
            growths[setup] = {seed: five[seed] - two[seed] for seed in seeds}
            parts.append(f"{setup} {mean(two):+.1f} → {mean(five):+.1f}")
    if not parts:
        return NOT_RUN
    gap = compare(results, growths, growths.__getitem__, lambda s: dict.fromkeys(growths[s], 0.0))
    every: dict[str, int] = {}
    for setup, growth in growths.items():
        name = results.data_set(setup)
        grown = 1 if min(growth.values()) > 0 else min(0, gap.sides()[name])
        every[name] = min(grown, every.get(name, 1))
    ours = (
        f"SPA minus raw ASL, 2 → 5 conditions, points: {', '.join(parts)}. Growth: {gap.told()}. "
    )
    return finding_of(f"{ours}It grows in every seed: {on(every)}.", every)


def _one_setting(results: Results, setups: Sequence[str]) -> Finding:
    figures = {
        "mAP@y": (("mAP@y",), 100),
        "ACE": (("readings", "link", "ACE"), 100),
        "NLL × 1000": (("readings", "link", "NLL"), 1000),
    }
    gaps = {
        name: compare(
            results,
            setups,
            lambda s, path=path, scale=scale: results.values(s, "spa, tuned", *path, scale=scale),
            lambda s, path=path, scale=scale: results.values(s, "spa", *path, scale=scale),
        )
        for name, (path, scale) in figures.items()
    }
    if not gaps["mAP@y"].sets:
        return NOT_RUN
    sides = all_of(gaps["mAP@y"].sides(0.5, sign=-1), gaps["ACE"].sides(-1))
    told = "; ".join(f"{name} {gap.told()}" for name, gap in gaps.items())
    shapes = [(s, results.settings(s, "spa, tuned").get("loss")) for s in setups]
    chosen = ", ".join(f"{setup}: {shape}" for setup, shape in shapes if shape)
    ours = f"Shape chosen on held-out rows minus the paper's: {told}. Gains less: {on(sides)}."
    return finding_of(f"{ours} Chosen: {chosen}.", sides)


def _weights(results: Results, setups: Sequence[str]) -> Finding:
    picked: dict[bool, list[str]] = {True: [], False: []}
    grids = {method.setup: method.grid for method in results.methods if method.name == "spa+lpr"}
    for setup in setups:
        chosen = results.settings(setup, "spa+lpr")
        if chosen:
            weight = chosen["loss"].partition("weight=")[2].rstrip(")")
            picked[len(grids[setup]) > 1].append(f"{setup} {weight}")
    words = {True: "chosen on held-out rows", False: "fixed before the runs"}
    parts = [f"{words[tried]}: {', '.join(picked[tried])}" for tried in words if picked[tried]]
    return Finding("reported", f"Weight for SPA, {'; '.join(parts)}.") if parts else NOT_RUN


def _initialisation(results: Results, setups: Sequence[str]) -> Finding:
    parts = []
    for figure, path, scale in (
        ("ACE", ("readings", "link", "ACE"), 100),
        ("NLL × 1000", ("readings", "link", "NLL"), 1000),
        ("mAP@y", ("mAP@y",), 100),
    ):
        gaps = {}
        for start, spa, bce in (("zero", "spa", "bce"), ("prior", "spa, prior", "bce, prior")):
            found = [
                difference(
                    results.values(s, spa, *path, scale=scale),
                    results.values(s, bce, *path, scale=scale),
                )
                for s in setups
            ]
            known = [gap.mean for gap in found if gap.n]
            gaps[start] = np.mean(known) if known else np.nan
        parts.append(f"{figure} {gaps['zero']:+.2f} → {gaps['prior']:+.2f}")
    return Finding(
        "reported", f"SPA minus BCE, mean over setups, zero → prior: {'; '.join(parts)}."
    )
