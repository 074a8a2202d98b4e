"""What became of a claim, by a rule written down before the runs (``claims.toml``)."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable
from typing import Literal

from benchmarks.claims.tables import Difference

Verdict = Literal["holds", "holds in part", "does not hold", "reported", "not run", "not testable"]


@dataclasses.dataclass(frozen=True)
class Finding:
    """A verdict and the numbers it rests on."""

    verdict: Verdict
    ours: str


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
    """All good holds; more good than bad, and good at least as often as undecided, in part."""
    if good + bad + open_ == 0:
        return "not run"
    if bad == 0 and open_ <= (good + bad + open_) // 4:
        return "holds"
    return "holds in part" if good > bad and good >= open_ else "does not hold"
