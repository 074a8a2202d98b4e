"""Paired differences by data set: the unit of a verdict is the data set, not the setup."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Iterable, Mapping, Sequence

from scipy import stats

from benchmarks.claims.findings import (
    NOT_RUN,
    Amended,
    Finding,
    Verdict,
    counted,
    judged,
    side,
)
from benchmarks.claims.tables import LEVEL, Difference, Results, difference

Values = dict[int, float]
"""A figure by seed."""

POWER = 0.8


@dataclasses.dataclass(frozen=True)
class Comparison:
    """Differences between two methods, one for each data set on which both were run.

    A name can add something to its data set after a comma (``cifar10h, K = 3``).
    """

    sets: Mapping[str, Difference]

    @property
    def pooled(self) -> Difference:
        """Mean of the data sets' differences, with the interval over data sets."""
        found: dict[str, list[float]] = {}
        for name, gap in self.sets.items():
            found.setdefault(name.partition(",")[0], []).append(gap.mean)
        means = {k: sum(each) / len(each) for k, each in enumerate(found.values())}
        return difference(means, dict.fromkeys(means, 0.0))

    @property
    def overall(self) -> Difference:
        """The pooled difference; that of one data set has its interval over seeds."""
        pooled = self.pooled
        return pooled if pooled.n or not self.sets else next(iter(self.sets.values()))

    @property
    def visible(self) -> float:
        """The smallest overall difference that would be seen with a probability of 80 %."""
        overall = self.overall
        if not overall.n:
            return math.nan
        inner, outer = stats.t.ppf([POWER, (1 + LEVEL) / 2], overall.n - 1)
        return float((overall.high - overall.mean) * (1 + inner / outer))

    def sides(self, margin: float = 0, sign: int = 1) -> dict[str, int]:
        """By data set: 1 where the interval lies above ``margin``, −1 below; ``sign`` turns it."""
        return {name: sign * side(gap, margin) for name, gap in self.sets.items()}

    def told(self) -> str:
        """How many data sets are lower and higher, and by how much over all of them."""
        signs = list(self.sides().values())
        unit = "comparisons" if any("," in name for name in self.sets) else "data sets"
        unit = unit if len(signs) != 1 else unit.removesuffix("s")
        words = f"lower on {signs.count(-1)}, higher on {signs.count(1)} of {len(signs)} {unit}"
        if not self.overall.n:
            return words
        how = "pooled" if self.pooled.n else "alone"
        return f"{words}, {how} {self.overall}, visible from {self.visible:.2f}"


def compare(
    results: Results,
    setups: Iterable[str],
    one: Callable[[str], Values],
    other: Callable[[str], Values],
) -> Comparison:
    """``one`` − ``other``; setups of a data set are averaged seed by seed."""
    found: dict[str, dict[int, list[float]]] = {}
    for setup in setups:
        own, rival = one(setup), other(setup)
        for seed in own:
            if seed in rival:
                of_set = found.setdefault(results.data_set(setup), {})
                of_set.setdefault(seed, []).append(own[seed] - rival[seed])
    gaps = {
        name: difference(
            {seed: sum(each) / len(each) for seed, each in seeds.items()}, dict.fromkeys(seeds, 0.0)
        )
        for name, seeds in found.items()
    }
    return Comparison({name: gap for name, gap in gaps.items() if gap.n})


def all_of(*conditions: Mapping[str, int]) -> dict[str, int]:
    """By data set: 1 where every condition is met, −1 where one fails; sets that have them all."""
    sets = [name for name in conditions[0] if all(name in other for other in conditions)]
    return {name: min(condition[name] for condition in conditions) for name in sets}


PARTS = "one part of several suffices to hold in part"


def verdict_of(*conditions: Mapping[str, int]) -> Verdict:
    """The verdict of a rule whose conditions are all to be met on every data set."""
    return judged(*counted(all_of(*conditions).values()))


def finding_of(
    ours: str, *conditions: Mapping[str, int], amended: Iterable[Amended] = ()
) -> Finding:
    """What was found of a rule whose conditions are all to be met on every data set.

    Where the rule says nothing for the claim, but one of its several conditions holds by itself,
    the amended rule that counts this is told beside it.
    """
    if not all_of(*conditions):
        return NOT_RUN
    verdict = verdict_of(*conditions)
    parts = [judged(*counted(condition.values())) for condition in conditions]
    if len(conditions) > 1 and verdict in ("not reproduced", "not seen") and "holds" in parts:
        amended = [*amended, Amended(PARTS, "holds in part")]
    return Finding(verdict, ours, tuple(amended))


def verdict_of_most(each: Sequence[Mapping[str, int]]) -> Verdict:
    """The verdict of a rule that each of several losses is to meet on most data sets."""
    signs = []
    for sides in filter(None, each):
        listed = list(sides.values())
        signs.append((2 * listed.count(1) > len(listed)) - (2 * listed.count(-1) > len(listed)))
    return judged(*counted(signs))


def on(sides: Mapping[str, int]) -> str:
    """On how many data sets a rule is met, fails and is undecided."""
    good, bad, open_ = counted(sides.values())
    unit = "data set" if len(sides) == 1 else "data sets"
    return f"met on {good}, failed on {bad}, undecided on {open_} of {len(sides)} {unit}"
