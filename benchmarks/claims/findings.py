"""What became of a claim, by a rule written down before the runs (``claims.toml``)."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable
from typing import Literal

from benchmarks.claims.tables import Difference

Verdict = Literal[
    "holds",
    "holds in part",
    "not reproduced",
    "not seen",
    "not reached",
    "reported",
    "not run",
    "not testable",
]
"""What became of a claim in one kind of run (networks, or heads on frozen features).

holds          the intervals say so; at most a quarter of the comparisons are undecided
holds in part  more comparisons for the claim than against it, and not mostly undecided
not reproduced  most intervals lie on the other side; no stronger word, as networks are small here
not seen       undecided: the effect, if there is one, is smaller than these runs can see
not reached    the condition that the claim speaks of did not occur
reported       there was nothing to confirm; the numbers are given
"""


@dataclasses.dataclass(frozen=True)
class Amended:
    """Another rule with its verdict, written when the verdict of the first was known."""

    rule: str
    verdict: Verdict


@dataclasses.dataclass(frozen=True)
class Finding:
    """A verdict by the written rule and the numbers it rests on."""

    verdict: Verdict
    ours: str
    amended: tuple[Amended, ...] = ()


NOT_RUN = Finding("not run", "–")


def tally(gaps: Iterable[Difference]) -> tuple[int, int, int]:
    """How many differences are below zero, above, undecided, by their intervals."""
    signs = [gap.sign for gap in gaps if gap.n]
    return signs.count(-1), signs.count(1), signs.count(0)


def told(counts: tuple[int, int, int], low: str = "lower", high: str = "higher") -> str:
    """``tally`` in words."""
    below, above, open_ = counts
    return f"{low} in {below}, {high} in {above}, undecided in {open_} of {sum(counts)}"


def judged(good: int, bad: int, open_: int) -> Verdict:
    """Return the verdict of comparisons for the claim, against it, and undecided ones."""
    total = good + bad + open_
    if total == 0:
        return "not run"
    if bad == 0 and open_ <= total // 4:
        return "holds"
    if good > bad and good >= open_:
        return "holds in part"
    return "not reproduced" if bad > good and bad >= open_ else "not seen"


def side(gap: Difference, margin: float) -> int:
    """1 where the interval lies above ``margin``, −1 where it lies below, else 0."""
    return int(gap.low > margin) - int(gap.high < margin)


def counted(signs: Iterable[int]) -> tuple[int, int, int]:
    """How many signs are 1, −1 and 0: for ``judged``."""
    listed = list(signs)
    return listed.count(1), listed.count(-1), listed.count(0)
