"""The claims about the two-head loss, each judged by the rule of ``claims.toml``."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from benchmarks.claims.average_k.methods import (
    ALPHAS,
    BATCHES,
    DEALT_ANEW,
    TAIL,
    TRIED_AT,
)
from benchmarks.claims.average_k.tables import HEADS, at, varied
from benchmarks.claims.comparisons import Comparison, all_of, compare, finding_of, on, verdict_of
from benchmarks.claims.findings import NOT_RUN, Amended, Finding, Verdict, counted, judged
from benchmarks.claims.tables import Difference, Results, difference, mean

PRINTED = "avgk, ML head through softmax"
"""Algorithm 1 of the paper applies a softmax to the scores of the ML head."""

OURS = "avgk, ML head"
"""The same scores through the sigmoid, which the loss trains."""

Sizes = Mapping[str, tuple[int, ...]]
"""Setups, and the K for which methods were trained there."""

SMALL = "digits:one"
"""Ten classes: K = 2 there, since five of ten are nearly always enough."""


def findings(results: Results, sizes: Sizes) -> dict[str, Finding]:
    """The claims of the paper, each by its rule, in these setups."""
    every = [(data, size) for data, each in sizes.items() for size in each]
    five = [(data, size) for data, size in every if size == 5 or data == SMALL]
    found = {
        "003-best-on-cifar100": _first(results, five),
        "003-best-from-k3-on-plantnet": _best(results, [p for p in every if p[1] >= 3]),
        "003-gain-grows-with-k": _grows(results, sizes),
        "003-an-epr-role-lag": _lag(results, every),
        "003-set-sizes": _single(results, sizes),
        "003-which-head": _heads(results, every),
        "003-threshold-carries-over": _carries(results, every, DEALT_ANEW if TAIL in sizes else ()),
    }
    for data in (data for data in sizes if data.endswith("tail")):
        found["003-few-shot-classes"] = _few(results, data, sizes[data])
    if TAIL in sizes:
        found["003-batch-size-and-alpha"] = _batch_and_alpha(results)
    return found


def cheap(results: Results, sizes: Sizes) -> Finding:
    """CPU time of whole runs, backbone included, with two heads over that of cross-entropy."""
    ratios = []
    for data, each in sizes.items():
        for size in each:
            own, other = (results.seconds(data, f"{name}, K = {size}") for name in ("avgk", "ce"))
            ratios += [own[seed] / other[seed] for seed in own if seed in other]
    if not ratios:
        return NOT_RUN
    ours = (
        f"CPU time of whole runs over those with cross-entropy, {len(ratios)} pairs: mean "
        f"{np.mean(ratios):.2f}, {min(ratios):.2f} to {max(ratios):.2f}; nothing is kept for rows."
    )
    return Finding("holds" if max(ratios) < 2 else _some([np.mean(ratios) < 2, False]), ours)


def _gaps(results: Results, pairs: list[tuple[str, int]], one: str, other: str) -> list[Difference]:
    return [difference(at(results, d, one, k), at(results, d, other, k)) for d, k in pairs]


def _shown(pairs: list[tuple[str, int]], gaps: list[Difference]) -> str:
    cells = [
        f"{data} K={size} {gap.mean:+.2f}"
        for (data, size), gap in zip(pairs, gaps, strict=True)
        if gap.n
    ]
    return ", ".join(cells)


def _over(
    results: Results, pairs: list[tuple[str, int]], one: str, other: str, figure: str = "accuracy"
) -> Comparison:
    """``one`` − ``other`` for each K, by data set; the sets are named with their K."""
    found: dict[str, Difference] = {}
    for size in dict.fromkeys(size for _, size in pairs):
        gaps = compare(
            results,
            [data for data, each in pairs if each == size],
            lambda data, size=size: at(results, data, one, size, figure),
            lambda data, size=size: at(results, data, other, size, figure),
        )
        found |= {f"{name}, K = {size}": gap for name, gap in gaps.sets.items()}
    return Comparison(found)


def _by_set(sides: Mapping[str, int]) -> dict[str, int]:
    """A data set meets a rule where it does at every K."""
    found: dict[str, int] = {}
    for name, sign in sides.items():
        data = name.partition(",")[0]
        found[data] = min(sign, found.get(data, 1))
    return found


def _first(results: Results, pairs: list[tuple[str, int]]) -> Finding:
    gaps = _gaps(results, pairs, PRINTED, "ce")
    own = _over(results, pairs, PRINTED, "ce")
    if not own.sets:
        return NOT_RUN
    sides = _by_set(own.sides())
    parts = [f"ML head as printed minus ce, points: {_shown(pairs, gaps)} ({own.told()})"]
    for title, other in (("ML head through its sigmoid", OURS), ("SCCP head", "avgk, SCCP head")):
        parts.append(f"{title} minus ce: {_over(results, pairs, other, 'ce').told()}")
    return finding_of("; ".join(parts) + f". Above ce: {on(sides)}.", sides)


def _best(results: Results, pairs: list[tuple[str, int]]) -> Finding:
    """First of cross-entropy, top-K and two heads, and top-K above cross-entropy."""
    gaps = {
        pair: _over(results, pairs, *pair)
        for pair in ((PRINTED, "ce"), (PRINTED, "topk"), ("topk", "ce"))
    }
    conditions = [_by_set(gap.sides()) for gap in gaps.values()]
    sides = all_of(*conditions)
    if not sides:
        return NOT_RUN
    parts = [f"{one} minus {other}: {gap.told()}" for (one, other), gap in gaps.items()]
    soft = _over(results, pairs, "avgk, SCCP head", "ce")
    ours = f"Points, each K and data set: {'; '.join(parts)}; SCCP head minus ce: {soft.told()}. "
    ours = ours.replace(PRINTED, "ML head as printed")
    return finding_of(f"{ours}All three: {on(sides)}.", *conditions)


def _grows(results: Results, setups: Sizes) -> Finding:
    """The gain at the largest K above that at the smallest, over all rows and for rare classes."""
    several = {data: sizes for data, sizes in setups.items() if len(sizes) > 1}

    def gain(data: str, size: int, group: str) -> dict[int, float]:
        one, other = (at(results, data, name, size, group) for name in (PRINTED, "ce"))
        return {seed: one[seed] - other[seed] for seed in one if seed in other}

    whole, few = (
        compare(
            results,
            several,
            lambda data, group=group: gain(data, several[data][-1], group),
            lambda data, group=group: gain(data, several[data][0], group),
        )
        for group in ("accuracy", "few")
    )
    if not whole.sets:
        return NOT_RUN
    parts = []
    for data, sizes in several.items():
        pairs = [(data, size) for size in sizes]
        parts.append(_shown(pairs, _gaps(results, pairs, PRINTED, "ce")))
    conditions = [gap.sides() for gap in (whole, few) if gap.sets]
    ours = (
        f"ML head as printed minus ce, points: {'; '.join(filter(None, parts))}. Growth from the "
        f"smallest K to the largest, all rows: {whole.told()}; rare classes: {few.told()}."
    )
    return finding_of(ours, *conditions)


def _few(results: Results, data: str, sizes: tuple[int, ...]) -> Finding:
    parts, signs = [], []
    for size in (k for k in sizes if k != 3):
        gains, weighed = (
            {
                group: difference(
                    at(results, data, name, size, group), at(results, data, "ce", size, group)
                )
                for group in ("few", "medium", "many")
            }
            for name in (PRINTED, "ce, classes weighed alike")
        )
        if not gains["few"].n:
            continue
        parts.append(
            f"K={size} "
            + ", ".join(f"{g} {d.mean:+.1f}" for g, d in gains.items())
            + f" (ce with classes weighed alike: few {weighed['few'].mean:+.1f}, "
            f"many {weighed['many'].mean:+.1f})"
        )
        if size > 2:
            largest = gains["few"].mean == max(gain.mean for gain in gains.values())
            signs.append(min(gains["few"].sign, 1 if largest else 0))
    ours = f"ML head as printed minus ce by frequency of the class, points: {'; '.join(parts)}."
    return Finding(judged(*counted(signs)), ours) if parts else NOT_RUN


def _lag(results: Results, pairs: list[tuple[str, int]]) -> Finding:
    names = ("an", "an, through softmax", "epr", "role")
    gaps = {name: _over(results, pairs, name, "ce") for name in names}
    gaps = {name: gap for name, gap in gaps.items() if gap.sets}
    if not gaps:
        return NOT_RUN
    conditions = [_by_set(gap.sides(sign=-1)) for gap in gaps.values()]
    parts = [
        f"{name} below ce at every K: {on(sides)}, pooled {gap.overall}"
        for (name, gap), sides in zip(gaps.items(), conditions, strict=True)
    ]
    return finding_of("; ".join(parts) + ".", *conditions)


def _single(results: Results, setups: Sizes) -> Finding:
    """Fewer sets of one class, and more of two to four."""
    pairs = [(data, TRIED_AT) for data in setups]
    gaps = {f: _over(results, pairs, PRINTED, "ce", f) for f in ("single", "two to four")}
    conditions = (
        _by_set(gaps["single"].sides(sign=-1)),
        _by_set(gaps["two to four"].sides()),
    )
    sides = all_of(*conditions)
    if not sides:
        return NOT_RUN
    parts = []
    for data in setups:
        one, other = (at(results, data, name, TRIED_AT, "single") for name in (PRINTED, "ce"))
        few, rest = (at(results, data, name, TRIED_AT, "two to four") for name in (PRINTED, "ce"))
        if one:
            parts.append(
                f"{data} ce {mean(other):.1f}, ML head {mean(one):.1f} "
                f"(two to four: {mean(rest):.1f}, {mean(few):.1f})"
            )
    ours = f"Share of sets of one class at K = {TRIED_AT}, %: {'; '.join(parts)}. "
    return finding_of(f"{ours}Fewer of one and more of two to four: {on(sides)}.", *conditions)


def _carries(
    results: Results, pairs: list[tuple[str, int]], dealt_anew: tuple[str, ...]
) -> Finding:
    """Sizes over K on the published test rows, and where rows were dealt from one heap."""
    published, promised = [], []
    for data, size in pairs:
        if ":tail" in data:  # held-out rows follow the tail there, test rows do not
            continue
        for name in ("ce", *HEADS):
            published += [v / size for v in at(results, data, name, size, "size").values()]
            kept = at(results, data, name, size, "size, promised").values()
            promised += [v / size for v in kept]
    dealt, dealt_promised = (
        [
            value / size
            for data in dealt_anew
            for size in (2, 3, 5)
            for value in results.values(
                data, "ce", "sets", "link", str(size), figure, scale=1
            ).values()
        ]
        for figure in ("size", "size, promised")
    )
    if not published:
        return NOT_RUN
    ours = (
        f"Mean size over K on published test rows: {np.mean(published):.3f} "
        f"({min(published):.3f} to {max(published):.3f}, {len(published)} runs and sizes), with "
        f"the guarantee {np.mean(promised):.3f}"
    )
    if dealt:
        ours += (
            f"; where held-out and test rows are dealt from one heap: {np.mean(dealt):.3f} "
            f"({min(dealt):.3f} to {max(dealt):.3f}, {len(dealt)}), with the guarantee "
            f"{np.mean(dealt_promised):.3f}"
        )
    good = [abs(np.mean(ratios) - 1) < 0.02 for ratios in (published, dealt) if ratios]
    return Finding(_some(good), f"{ours}.")


def _heads(results: Results, pairs: list[tuple[str, int]]) -> Finding:
    """The ML head at least as good as the SCCP head; amended: within half a point."""
    printed, own, soft = (
        _over(results, pairs, *pair)
        for pair in (
            (PRINTED, "avgk, SCCP head"),
            (OURS, "avgk, SCCP head"),
            ("avgk, SCCP head", "ce"),
        )
    )
    if not printed.sets:
        return NOT_RUN
    strict, within = (_by_set(printed.sides(margin)) for margin in (0, -0.5))
    shown = _shown(pairs, _gaps(results, pairs, "avgk, SCCP head", "ce"))
    ours = (
        f"ML head as printed minus SCCP head of the same model, points: {printed.told()}; through "
        f"its sigmoid: {own.told()}; SCCP head minus plain ce: {soft.told()} ({shown}). ML head "
        f"above: {on(strict)}."
    )
    amended = Amended(f"at most half a point below: {on(within)}", verdict_of(within))
    return finding_of(ours, strict, amended=[amended])


def _batch_and_alpha(results: Results) -> Finding:
    """By batch size and by α, the ML head's accuracy at K = 5 on the tail."""
    batches = {size: mean(varied(results, f"batch {size}")) for size in BATCHES}
    alphas = {alpha: mean(varied(results, f"α = {alpha}")) for alpha in ALPHAS}
    if not np.isfinite([*batches.values(), *alphas.values()]).all():
        return NOT_RUN
    ordinary = [batches[size] for size in (16, 64, 256)]
    best = max(alphas, key=lambda alpha: alphas[alpha])
    good = [
        batches[1] == min(batches.values()),
        max(ordinary) - min(ordinary) < 1,
        0.1 <= best <= 10,
    ]
    shown = [
        ", ".join(f"{value} {accuracy:.1f}" for value, accuracy in found.items())
        for found in (batches, alphas)
    ]
    ours = f"ML head, average-5 accuracy on the tail, by batch size: {shown[0]}; by α: {shown[1]}."
    return Finding(_some(good), ours)


def _some(good: list[bool]) -> Verdict:
    """A claim of several parts, each of which was met or not."""
    return "holds" if all(good) else "holds in part" if any(good) else "not reproduced"
