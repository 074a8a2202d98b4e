"""The claims about SPA, LPR and retrieval, each judged by the rule of ``claims.toml``."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from benchmarks.claims.calibrated.tables import RECIPES, retrieval
from benchmarks.claims.findings import NOT_RUN, Finding, Verdict, counted, judged, side, tally, told
from benchmarks.claims.tables import Difference, Results, difference, mean


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


def _improper(results: Results, setups: Sequence[str]) -> Finding:
    counts = []
    for recipe in (
        "focal, sigmoid",
        "ASL detached, sigmoid",
        "ASL, sigmoid",
        "two-way + temperature",
    ):
        gaps = [
            difference(_ace(results, setup, recipe), _ace(results, setup, proper))
            for setup in setups
            for proper in ("BCE", "SPA")
        ]
        counts.append((recipe, tally(gaps)))
    counts = [(recipe, found) for recipe, found in counts if sum(found)]
    if not counts:
        return NOT_RUN
    most = all(above > below + open_ for _, (below, above, open_) in counts)
    below, above, open_ = (sum(found[k] for _, found in counts) for k in range(3))
    parts = [f"{recipe}: {told(found)}" for recipe, found in counts]
    recipes = ("BCE", "SPA", "two-way + temperature", "focal, sigmoid", "ASL detached, sigmoid")
    return Finding(
        "holds" if most else judged(above, below, open_),
        f"{_means(results, setups, recipes)}. Against BCE and SPA: {'; '.join(parts)}.",
    )


def _phi_improves(results: Results, setups: Sequence[str]) -> Finding:
    pairs = (
        ("focal, φ", "focal, sigmoid"),
        ("ASL, φ", "ASL, sigmoid"),
        ("ASL detached, φ", "ASL detached, sigmoid"),
        ("ASL detached, right link", "ASL detached, φ"),
    )
    counts = {
        read: tally(difference(_ace(results, s, read), _ace(results, s, raw)) for s in setups)
        for read, raw in pairs
    }
    below, above, open_ = (sum(c[k] for c in list(counts.values())[:3]) for k in range(3))
    recipes = (*(raw for _, raw in pairs[:3]), *(read for read, _ in pairs))
    parts = [f"{read} against {raw}: {told(counts[read])}" for read, raw in pairs]
    ours = f"{_means(results, setups, recipes)}. {'; '.join(parts)}."
    return Finding(judged(below, above, open_), ours)


def _phi_not_enough(results: Results, setups: Sequence[str]) -> Finding:
    wrong = tally(
        difference(_ace(results, s, "ASL detached, φ"), _ace(results, s, "SPA")) for s in setups
    )
    right = tally(
        difference(_ace(results, s, "ASL detached, right link"), _ace(results, s, "SPA"))
        for s in setups
    )
    focal = tally(difference(_ace(results, s, "focal, φ"), _ace(results, s, "BCE")) for s in setups)
    recipes = ("focal, φ", "ASL, φ", "ASL detached, φ", "ASL detached, right link", "BCE", "SPA")
    ours = (
        f"{_means(results, setups, recipes)}. ASL detached against SPA, φ: {told(wrong)}; "
        f"right link: {told(right)}. Focal through φ against BCE: {told(focal)}."
    )
    return Finding(judged(right[1] + focal[1], right[0] + focal[0], right[2] + focal[2]), ours)


def _phi_costs(results: Results, setups: Sequence[str]) -> Finding:
    costs = {}
    for setup in setups:
        scores = results.values(setup, "asl", "mAP@y")
        tied = results.values(setup, "asl", "readings", "link", "mAP@y, probabilities")
        costs[setup] = difference(scores, tied)
    known = {setup: gap for setup, gap in costs.items() if gap.n}
    if not known:
        return NOT_RUN
    parts = [f"{setup} {gap.mean:.2f}" for setup, gap in known.items()]
    # Exactly nothing in every seed: no two scores share the plateau, so φ had nothing to cost.
    reached = [gap for gap in known.values() if gap.low < 0 or gap.high > 0]
    verdict: Verdict = "not reached"
    if reached:
        verdict = judged(*counted(gap.sign if gap.high < 1 else -1 for gap in reached))
    return Finding(verdict, f"mAP@y by scores minus by φ, points: {', '.join(parts)}.")


def _spa_calibrated(results: Results, setups: Sequence[str]) -> Finding:
    parts, verdicts = [], []
    for start, spa, bce in (
        ("zero bias", "SPA", "BCE"),
        ("prior bias", "SPA, prior bias", "BCE, prior bias"),
        ("prior bias + affine", "SPA, prior bias + affine", "BCE, prior bias + affine"),
    ):
        found = tally(difference(_ace(results, s, spa), _ace(results, s, bce)) for s in setups)
        parts.append(f"{start}: {told(found)} ({_means(results, setups, (bce, spa))})")
        verdicts.append(judged(*found))
    return Finding(verdicts[0], "SPA against BCE, ACE. " + "; ".join(parts) + ".")


def _best(results: Results, setup: str, methods: tuple[str, ...]) -> dict[int, float]:
    """mAP@y of the method with the highest mean: chosen with hindsight."""
    by_method = [results.values(setup, method, "mAP@y") for method in methods]
    return max(by_method, key=lambda values: np.nan_to_num(mean(values), nan=-1.0))


def _spa_accurate(results: Results, setups: Sequence[str]) -> Finding:
    gaps = {
        setup: difference(
            _best(results, setup, ("spa", "spa+lpr")),
            _best(results, setup, ("asl", "asl, detached", "twl")),
        )
        for setup in setups
    }
    known = {setup: gap for setup, gap in gaps.items() if gap.n}
    if not known:
        return NOT_RUN
    parts = [f"{setup} {gap}" for setup, gap in known.items()]
    verdict = judged(*counted(side(gap, -0.5) for gap in known.values()))
    ours = "Better of SPA and SPA+LPR minus best of ASL, ASL detached, two-way, mAP@y points: "
    return Finding(verdict, ours + ", ".join(parts) + ".")


def _bce_less_accurate(results: Results, setups: Sequence[str]) -> Finding:
    parts, counts = [], []
    for start, bce in (("zero bias", "bce"), ("prior bias", "bce, prior")):
        gaps = []
        for setup in setups:
            best = _best(results, setup, ("focal", "asl", "asl, detached", "twl", "spa"))
            gaps.append(difference(results.values(setup, bce, "mAP@y"), best))
        known = [gap.mean for gap in gaps if gap.n]
        counts.append(tally(gaps))
        if known:
            parts.append(f"{start}: {told(counts[-1])}, mean gap {np.mean(known):+.1f} points")
    if not parts:
        return NOT_RUN
    ours = "BCE against the best other loss of each setup, mAP@y. " + "; ".join(parts) + "."
    zero, prior = judged(*counts[0]), judged(*counts[1])
    good = ("holds", "holds in part")
    # The paper does not say where its biases start; the claim is whole only if that is no matter.
    verdict = zero if zero not in good or prior == "holds" else "holds in part"
    return Finding(verdict, ours)


def _lpr(results: Results, setups: Sequence[str], bases: tuple[str, ...]) -> Finding:
    parts, total = [], np.zeros(3, int)
    for base in bases:
        ace, worth = [], []
        for setup in setups:
            path = ("readings", "link", "ACE")
            ace.append(
                difference(
                    results.values(setup, f"{base}+lpr", *path), results.values(setup, base, *path)
                )
            )
            worth.append(
                difference(
                    results.values(setup, f"{base}+lpr", "mAP@y"),
                    results.values(setup, base, "mAP@y"),
                )
            )
        known = [gap.mean for gap in ace if gap.n]
        if known:
            change = np.mean([gap.mean for gap in worth if gap.n])
            parts.append(
                f"{base}: ACE {told(tally(ace))}, mean change {np.mean(known):+.2f}; "
                f"mAP@y mean change {change:+.2f}"
            )
            total += tally(ace)
    if not parts:
        return NOT_RUN
    return Finding(judged(*map(int, total)), "; ".join(parts) + ".")


def _retrieval_order(results: Results, setups: Sequence[str]) -> Finding:
    over_bce: list[Difference] = []
    over_raw: list[Difference] = []
    shown = []
    for setup in setups:
        spa, bce, raw = (
            retrieval(results, setup, r) for r in ("SPA", "BCE", "ASL detached, sigmoid")
        )
        over_bce += [difference(spa[k], bce[k]) for k in range(2, 6)]
        over_raw += [difference(bce[k], raw[k]) for k in range(2, 6)]
        if spa[5] and raw[5]:
            cells = [f"{name} {mean(v[5]):.1f}" for name, v in (("SPA", spa), ("BCE", bce))]
            shown.append(f"{setup}: {', '.join(cells)}, raw ASL {mean(raw[5]):.1f}")
    if not shown:
        return NOT_RUN
    below, above, open_ = tally(over_bce)
    ours = (
        f"SPA against BCE over setups and 2–5 conditions: {told(tally(over_bce))}; BCE against raw "
        f"ASL: {told(tally(over_raw))}. mAP at 5 conditions: " + "; ".join(shown)
    )
    verdict = judged(above, below, open_)
    return Finding(verdict, ours + ".")


def _retrieval_gap(results: Results, setups: Sequence[str]) -> Finding:
    parts, grew = [], []
    for setup in setups:
        spa, raw = (retrieval(results, setup, r) for r in ("SPA", "ASL detached, sigmoid"))
        seeds = [seed for seed in spa[5] if seed in raw[5]]
        two, five = ({seed: spa[k][seed] - raw[k][seed] for seed in seeds} for k in (2, 5))
        growth = difference(five, two)
        if growth.n:
            grew.append(growth)
            parts.append(f"{setup} {mean(two):+.1f} → {mean(five):+.1f}")
    if not parts:
        return NOT_RUN
    below, above, open_ = tally(grew)
    verdict = judged(above, below, open_)
    return Finding(verdict, f"SPA minus raw ASL, 2 → 5 conditions, points: {', '.join(parts)}.")


def _one_setting(results: Results, setups: Sequence[str]) -> Finding:
    parts, signs = [], []
    for setup in setups:
        gaps = [
            difference(
                results.values(setup, "spa, tuned", *path, scale=scale),
                results.values(setup, "spa", *path, scale=scale),
            )
            for path, scale in (
                (("mAP@y",), 100),
                (("readings", "link", "ACE"), 100),
                (("readings", "link", "NLL"), 1000),
            )
        ]
        if gaps[0].n:
            shape = results.settings(setup, "spa, tuned")["loss"]
            parts.append(f"{setup}: {shape}, mAP@y {gaps[0]}, ACE {gaps[1]}, NLL × 1000 {gaps[2]}")
            signs.append(min(-side(gaps[0], 0.5), side(gaps[1], -1)))
    if not parts:
        return NOT_RUN
    verdict = judged(*counted(signs))
    return Finding(verdict, f"Shape chosen on held-out rows minus the paper's: {'; '.join(parts)}.")


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
